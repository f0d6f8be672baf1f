//! A physical standby: it records what runs on it, into statistics of its own, before and after its promotion.

use std::fs;
use std::time::Duration;

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{connect, nullable, number, observe, rows, sqlstate_of, start_with_pgss_rs, value};

/// A primary that has recorded an INSERT, which is in its file too, and a standby of it that has the table.
fn pair(settings: &[(&str, &str)]) -> (Cluster, Cluster) {
    let mut primary = start_with_pgss_rs(settings);
    connect(&primary, SUPERUSER)
        .batch_execute("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 10)")
        .unwrap();
    primary.restart(Shutdown::Fast).unwrap();
    let standby = primary.standby().unwrap();
    assert_eq!(value(&mut observe(&standby), "SELECT pg_is_in_recovery()"), "t");
    (primary, standby)
}

/// Texts, calls and rows of what was recorded of `t`, in order.
fn recorded(cluster: &Cluster) -> Vec<(String, i64, i64)> {
    let sql = "SELECT query, calls, rows FROM pgss_rs_stats WHERE query LIKE '% t%' ORDER BY query";
    rows(&mut observe(cluster), sql)
        .into_iter()
        .map(|row| {
            let field = |n: usize| row[n].clone().unwrap();
            (field(0), field(1).parse().unwrap(), field(2).parse().unwrap())
        })
        .collect()
}

fn seen(query: &str, calls: i64, rows: i64) -> (String, i64, i64) {
    (query.to_owned(), calls, rows)
}

const READ: &str = "SELECT a FROM t WHERE a <= $1";
const WRITTEN: &str = "INSERT INTO t VALUES ($1)";

/// Reads six rows in three calls.
fn read(cluster: &Cluster) {
    let mut session = connect(cluster, SUPERUSER);
    session.batch_execute("SELECT a FROM t WHERE a <= 1; SELECT a FROM t WHERE a <= 3").unwrap();
    session.query("SELECT a FROM t WHERE a <= 2", &[]).unwrap();
}

fn promote(standby: &Cluster) {
    assert_eq!(value(&mut observe(standby), "SELECT pg_promote()"), "t");
    assert_eq!(value(&mut observe(standby), "SELECT pg_is_in_recovery()"), "f");
}

/// Waits until the standby shows the rows of `sql` on the primary.
fn wait_replayed(standby: &Cluster, sql: &str, expected: &str) {
    while value(&mut observe(standby), sql) != expected {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_standby_records_what_runs_on_it_and_the_primary_what_runs_there() {
    let (primary, standby) = pair(&[]);
    assert_eq!(recorded(&standby), []);
    read(&standby);
    assert_eq!(recorded(&standby), [seen(READ, 3, 6)]);
    // what replay applies is no statement
    connect(&primary, SUPERUSER).batch_execute("INSERT INTO t VALUES (0)").unwrap();
    wait_replayed(&standby, "SELECT count(*) FROM t WHERE a = 0", "1");
    assert_eq!(recorded(&standby), [seen(READ, 3, 6)]);
    let on_primary = [
        seen("CREATE TABLE t (a int)", 1, 0),
        seen("INSERT INTO t SELECT generate_series($1, $2)", 1, 10),
        seen(WRITTEN, 1, 1),
    ];
    assert_eq!(recorded(&primary), on_primary);
    // a write is refused, counts as a failure only, and leaves the level right
    let mut session = connect(&standby, SUPERUSER);
    assert_eq!(sqlstate_of(&mut session, "INSERT INTO t VALUES (5)"), "25006");
    session.batch_execute("SELECT a FROM t WHERE a <= 2").unwrap();
    assert_eq!(recorded(&standby), [seen("INSERT INTO t VALUES ($1)", 0, 0), seen(READ, 4, 9)]);
    let errors = "SELECT errors FROM pgss_rs_stats WHERE query LIKE 'INSERT INTO t VALUES%'";
    assert_eq!(value(&mut observe(&standby), errors), "1");
    let toplevel = format!("SELECT toplevel FROM pgss_rs_stats WHERE query = '{READ}'");
    assert_eq!(value(&mut observe(&standby), &toplevel), "t");
}

#[test]
fn views_and_resets_work_on_a_standby() {
    let (primary, standby) = pair(&[]);
    read(&standby);
    connect(&standby, SUPERUSER).batch_execute("SELECT count(*) FROM t").unwrap();
    let mut observer = observe(&standby);
    let of = format!("WHERE query = '{READ}'");
    let compat = format!("SELECT calls || ' ' || rows FROM pgss_compat.pg_stat_statements {of}");
    assert_eq!(value(&mut observer, &compat), "3 6");
    let reads = "SELECT shared_blks_hit + shared_blks_read > 0 AND wal_records = 0 AND total_exec_time > 0";
    assert_eq!(value(&mut observer, &format!("{reads} FROM pgss_rs_stats {of}")), "t");
    assert_eq!(value(&mut observer, "SELECT skipped FROM pgss_rs_info"), "0");
    let since = "SELECT stats_reset FROM pgss_compat.pg_stat_statements_info";
    let begun = value(&mut observer, since);

    let minmax = format!("SELECT pgss_rs_reset(0, 0, queryid, true) FROM pgss_rs_stats {of}");
    assert!(nullable(&mut observer, &minmax).is_some());
    let minimum = format!("SELECT min_exec_time = 0 AND calls = 3 FROM pgss_rs_stats {of}");
    assert_eq!(value(&mut observer, &minimum), "t");
    let one = format!(
        "SELECT pgss_compat.pg_stat_statements_reset(0, 0, queryid) FROM pgss_compat.pg_stat_statements {of}"
    );
    assert_eq!(rows(&mut observer, &one).len(), 1);
    assert_eq!(recorded(&standby), [seen("SELECT count(*) FROM t", 1, 1)]);
    assert_eq!(value(&mut observer, since), begun);
    observer.batch_execute("SELECT pgss_compat.pg_stat_statements_reset()").unwrap();
    assert_eq!(number(&mut observer, "SELECT count(*) FROM pgss_rs_stats"), 0.0);
    assert!(value(&mut observer, since) > begun);
    // the primary's are its own
    assert_eq!(recorded(&primary).len(), 2);
}

#[test]
fn what_a_standby_recorded_survives_its_restart_and_its_promotion() {
    let (primary, mut standby) = pair(&[]);
    read(&standby);
    for how in [Shutdown::Fast, Shutdown::Smart] {
        standby.restart(how).unwrap();
        assert_eq!(value(&mut observe(&standby), "SELECT pg_is_in_recovery()"), "t");
        assert_eq!(recorded(&standby), [seen(READ, 3, 6)], "{how:?}");
    }
    // a session that was there before goes on
    let mut session = connect(&standby, SUPERUSER);
    session.batch_execute("SELECT a FROM t WHERE a <= 1").unwrap();
    promote(&standby);
    assert_eq!(recorded(&standby), [seen(READ, 4, 7)]);
    session.batch_execute("INSERT INTO t VALUES (11); SELECT a FROM t WHERE a <= 1").unwrap();
    connect(&standby, SUPERUSER).batch_execute("INSERT INTO t VALUES (12)").unwrap();
    let after = [seen(WRITTEN, 2, 2), seen(READ, 5, 8)];
    assert_eq!(recorded(&standby), after);
    let wal = format!("SELECT wal_records >= 2 FROM pgss_rs_stats WHERE query = '{WRITTEN}'");
    assert_eq!(value(&mut observe(&standby), &wal), "t");
    drop(session);
    standby.restart(Shutdown::Fast).unwrap();
    assert_eq!(recorded(&standby), after);
    assert_eq!(recorded(&primary).len(), 2);
    assert!(!standby.log().contains("pgss_rs:"), "{}", standby.log());
}

#[test]
fn the_saver_works_on_a_standby_and_goes_on_after_its_promotion() {
    let (_primary, mut standby) = pair(&[("pgss_rs.save_interval", "1s")]);
    let file = standby.data_dir().join("pg_stat/pgss_rs.stat");
    let wait_saved = |text: &str| {
        while !fs::read_to_string(&file).is_ok_and(|saved| saved.contains(text)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    read(&standby);
    wait_saved(READ);
    standby.restart(Shutdown::Immediate).unwrap();
    assert_eq!(recorded(&standby), [seen(READ, 3, 6)]);
    promote(&standby);
    connect(&standby, SUPERUSER).batch_execute("INSERT INTO t VALUES (11)").unwrap();
    wait_saved(WRITTEN);
    standby.restart(Shutdown::Immediate).unwrap();
    assert_eq!(recorded(&standby), [seen(WRITTEN, 1, 1), seen(READ, 3, 6)]);
}
