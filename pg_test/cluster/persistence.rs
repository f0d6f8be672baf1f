//! Statistics over restarts and crashes, and what becomes of them when their file is damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{connect, distinct, number, observe, rows, start_with_pgss_rs, value};

type Rows = Vec<Vec<Option<String>>>;

fn file(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("pg_stat/pgss_rs.stat")
}

/// Every column of every entry, and what is kept of the table as a whole.
fn everything(cluster: &Cluster) -> (Rows, Rows) {
    let mut observer = observe(cluster);
    let entries = rows(&mut observer, "SELECT s::text FROM pgss_rs_stats s ORDER BY 1");
    let totals =
        "SELECT dealloc, stats_reset, entries, evicted_calls, evicted_total_exec_time FROM pgss_rs_info";
    (entries, rows(&mut observer, totals))
}

fn sum_of_calls(cluster: &Cluster) -> f64 {
    let mut observer = observe(cluster);
    let sum = "SELECT coalesce(sum(calls), 0) + (SELECT evicted_calls FROM pgss_rs_info) FROM pgss_rs_stats";
    number(&mut observer, sum)
}

#[test]
fn a_clean_restart_keeps_every_value() {
    let settings = [("pgss_rs.max", "100"), ("pgss_rs.track", "all"), ("pgss_rs.track_planning", "on")];
    let mut cluster = start_with_pgss_rs(&settings);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(&(0..300).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    session.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 1000) a").unwrap();
    session.batch_execute("DO 'BEGIN PERFORM count(*) FROM t; END'").unwrap();
    let latin = "ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    session.batch_execute(&format!("CREATE DATABASE latin {latin}")).unwrap();
    connect(&cluster, "latin").batch_execute("SELECT 1 AS \"größe\", 'ß', 2.5").unwrap();
    session.batch_execute("SET pgss_rs.sample_rate = 0.5").unwrap();
    session.batch_execute(&"SELECT 1, 'sampled', now();".repeat(100)).unwrap();
    drop(session);
    for how in [Shutdown::Fast, Shutdown::Smart] {
        let before = everything(&cluster);
        assert_eq!(before.0.len(), 100);
        cluster.restart(how).unwrap();
        assert_eq!(everything(&cluster), before, "{how:?}");
    }
    // the same entry goes on
    let mut session = connect(&cluster, SUPERUSER);
    let sampled = "SELECT calls FROM pgss_rs_stats WHERE query = 'SELECT $1, $2, now()'";
    let calls = number(&mut session, sampled);
    session.batch_execute("SELECT 1, 'again', now()").unwrap();
    assert_eq!(number(&mut session, sampled), calls + 1.0);
    let latin = "SELECT count(*) FROM pgss_rs_stats WHERE query = 'SELECT $1 AS \"größe\", $2, $3'";
    assert_eq!(number(&mut session, latin), 1.0);
}

#[test]
fn the_file_is_the_servers_alone() {
    let mut cluster = start_with_pgss_rs(&[]);
    cluster.stop(Shutdown::Fast).unwrap();
    let mode = fs::metadata(file(&cluster)).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn without_save_nothing_is_kept() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save", "off"), ("pgss_rs.save_interval", "1s")]);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1, 2").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(everything(&cluster).0.len(), 0);
    assert!(!file(&cluster).exists());
}

#[test]
fn after_a_crash_statistics_are_those_of_the_last_snapshot() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save_interval", "1s")]);
    for round in 1..=2 {
        let mut session = connect(&cluster, SUPERUSER);
        session.batch_execute(&"SELECT 1, 2, 3;".repeat(10)).unwrap();
        // two snapshots: the second began after those statements
        let deadline = Instant::now() + Duration::from_secs(30);
        let written = || fs::metadata(file(&cluster)).and_then(|m| m.modified()).ok();
        for _ in 0..2 {
            let before = written();
            while written() == before {
                assert!(Instant::now() < deadline, "no snapshot");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if round == 1 {
            let pid: i32 = value(&mut session, "SELECT pg_backend_pid()").parse().unwrap();
            cluster.crash(pid).unwrap();
        } else {
            cluster.restart(Shutdown::Immediate).unwrap();
        }
        let mut session = connect(&cluster, SUPERUSER);
        let calls = "SELECT sum(calls) FROM pgss_rs_stats WHERE query = 'SELECT $1, $2, $3'";
        assert_eq!(number(&mut session, calls), 10.0 * f64::from(round));
    }
}

#[test]
fn what_was_reset_does_not_come_back_after_a_crash() {
    let mut cluster = start_with_pgss_rs(&[]);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 'old', 2, 3").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    assert!(sum_of_calls(&cluster) >= 1.0);
    observe(&cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
    cluster.restart(Shutdown::Immediate).unwrap();
    assert_eq!(everything(&cluster).0, [[None; 0]; 0]);
}

#[test]
fn a_damaged_file_costs_a_line_in_the_log_and_no_start() {
    let mut cluster = start_with_pgss_rs(&[]);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1; SELECT 1, 2; SELECT 1, 2, 3").unwrap();
    cluster.stop(Shutdown::Fast).unwrap();
    let whole = fs::read(file(&cluster)).unwrap();
    let newer = String::from_utf8_lossy(&whole).replacen("\"pgss_rs_format\":1", "\"pgss_rs_format\":9", 1);
    let long = [&b"00000000 "[..], &b"[".repeat(1 << 20)].concat();
    for (name, damaged) in [
        ("empty", Vec::new()),
        ("no text", vec![0xff; 10_000]),
        ("zeroed", vec![0; whole.len()]),
        ("nested", long),
        ("another module's", b"\x20\x17\x01\x15PGSS".to_vec()),
        ("changed header", newer.into_bytes()),
    ] {
        fs::write(file(&cluster), &damaged).unwrap();
        let seen = cluster.log().len();
        cluster.start().unwrap();
        let log = cluster.log()[seen..].to_owned();
        let said: Vec<&str> = log.lines().filter(|l| l.contains("pgss_rs: ")).collect();
        assert_eq!(said.len(), 1, "{name}: {log}");
        assert!(said[0].contains("LOG") && said[0].contains("starting with empty statistics"), "{said:?}");
        let mut session = connect(&cluster, SUPERUSER);
        assert_eq!(number(&mut session, "SELECT count(*) FROM pgss_rs_stats WHERE query = 'SELECT $1'"), 0.0);
        session.batch_execute("SELECT 5").unwrap();
        assert_eq!(
            number(&mut session, "SELECT sum(calls) FROM pgss_rs_stats WHERE query = 'SELECT $1'"),
            1.0
        );
        drop(session);
        cluster.stop(Shutdown::Immediate).unwrap();
    }
}

#[test]
fn a_damaged_entry_costs_itself_alone() {
    let mut cluster = start_with_pgss_rs(&[]);
    let many: String = (0..50).map(|n| distinct(n) + ";").collect();
    connect(&cluster, SUPERUSER).batch_execute(&many).unwrap();
    cluster.stop(Shutdown::Fast).unwrap();
    let whole = fs::read(file(&cluster)).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    let flipped = {
        let mut bytes = whole.clone();
        let at = lines[..20].iter().map(|l| l.len()).sum::<usize>() + 40;
        bytes[at] ^= 1;
        bytes
    };
    let cut = whole[..whole.len() - 10].to_vec();
    let missing = lines.iter().enumerate().filter(|(n, _)| *n != 7).flat_map(|(_, l)| l.to_vec()).collect();
    for (name, damaged) in [("flipped", flipped), ("cut", cut), ("missing", missing)] {
        fs::write(file(&cluster), &damaged).unwrap();
        let seen = cluster.log().len();
        cluster.start().unwrap();
        assert_eq!(everything(&cluster).0.len(), lines.len() - 2, "{name}");
        let said = format!("pgss_rs: 1 of {} statements in file", lines.len() - 1);
        assert!(cluster.log()[seen..].contains(&said), "{name}: {}", &cluster.log()[seen..]);
        cluster.stop(Shutdown::Immediate).unwrap();
    }
    // an entry written twice is there once
    let twice = [&whole[..], lines[5]].concat();
    fs::write(file(&cluster), &twice).unwrap();
    cluster.start().unwrap();
    assert_eq!(everything(&cluster).0.len(), lines.len() - 1);
    assert_eq!(sum_of_calls(&cluster), lines.len() as f64 - 1.0);
}

#[test]
fn a_smaller_table_takes_what_fits_and_loses_no_call() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.max", "1000")]);
    connect(&cluster, SUPERUSER)
        .batch_execute(&(0..500).map(|n| distinct(n) + ";").collect::<String>())
        .unwrap();
    let before = sum_of_calls(&cluster);
    cluster.set("pgss_rs.max", "100").unwrap();
    cluster.set("pgss_rs.text_memory", "64kB").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(number(&mut observe(&cluster), "SELECT entries FROM pgss_rs_info"), 100.0);
    let after = sum_of_calls(&cluster);
    assert_eq!(after, before);
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(sum_of_calls(&cluster), after);
}
