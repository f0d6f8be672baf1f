//! Statistics over restarts and crashes, and what becomes of a file that is not as it should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{connect, number, rows, start_with_pgss_rs, value};

fn file(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("pg_stat/pgss_rs.stat")
}

/// All that is counted of the statements of `fill`.
fn counted(cluster: &Cluster) -> Vec<Vec<Option<String>>> {
    let sql = "SELECT userid, dbid, toplevel, queryid, query, plans, total_plan_time, calls, total_exec_time,
                 min_exec_time, max_exec_time, mean_exec_time, stddev_exec_time, rows, shared_blks_hit, wal_bytes,
                 stats_since, minmax_stats_since, sampled_calls, calls_stderr, total_exec_time_stderr, first_exec,
                 last_exec, query_truncated
               FROM pgss_rs_stats WHERE query LIKE '%kept%' AND query NOT LIKE '%pgss%' ORDER BY query";
    rows(&mut connect(cluster, SUPERUSER), sql)
}

fn fill(cluster: &Cluster) {
    let mut session = connect(cluster, SUPERUSER);
    session.batch_execute("CREATE TABLE kept (a int)").unwrap();
    for n in 0..5 {
        session.batch_execute(&format!("INSERT INTO kept VALUES ({n})")).unwrap();
        session.batch_execute(&format!("SELECT 'größe', a FROM kept WHERE a <> {n}")).unwrap();
    }
    session.batch_execute("SET pgss_rs.sample_rate = 0.5").unwrap();
    for _ in 0..50 {
        session.batch_execute("SELECT count(*) FROM kept").unwrap();
    }
}

fn log_lines(cluster: &Cluster) -> usize {
    cluster.log().lines().filter(|l| l.contains("pgss_rs:")).count()
}

#[test]
fn a_clean_restart_keeps_everything() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.track_planning", "on")]);
    fill(&cluster);
    let before = counted(&cluster);
    assert!(before.len() >= 3, "{before:#?}");
    let reset = value(&mut connect(&cluster, SUPERUSER), "SELECT stats_reset FROM pgss_rs_info");
    for how in [Shutdown::Fast, Shutdown::Smart] {
        cluster.restart(how).unwrap();
        assert_eq!(counted(&cluster), before, "{how:?}");
    }
    assert_eq!(value(&mut connect(&cluster, SUPERUSER), "SELECT stats_reset FROM pgss_rs_info"), reset);
    // and they are counted on
    connect(&cluster, SUPERUSER).batch_execute("INSERT INTO kept VALUES (9)").unwrap();
    let calls = "SELECT calls FROM pgss_rs_stats WHERE query = 'INSERT INTO kept VALUES ($1)'";
    assert_eq!(number(&mut connect(&cluster, SUPERUSER), calls), 6.0);
    assert_eq!(log_lines(&cluster), 0);
}

#[test]
fn what_was_evicted_is_kept_too() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.max", "100")]);
    let many: String = (0..500).map(|n| crate::servers::distinct(n) + ";").collect();
    connect(&cluster, SUPERUSER).batch_execute(&many).unwrap();
    let totals = "SELECT dealloc, evicted_calls, evicted_total_exec_time FROM pgss_rs_info";
    let before = rows(&mut connect(&cluster, SUPERUSER), totals);
    cluster.stop(Shutdown::Fast).unwrap();
    cluster.start().unwrap();
    let evicted =
        |rows: &[Vec<Option<String>>], n: usize| rows[0][n].clone().unwrap().parse::<f64>().unwrap();
    let after = rows(&mut connect(&cluster, SUPERUSER), totals);
    assert!(evicted(&before, 0) >= 400.0);
    for n in 0..3 {
        assert!(evicted(&after, n) >= evicted(&before, n), "{before:?} {after:?}");
    }
}

#[test]
fn a_crash_goes_back_to_the_last_snapshot() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save_interval", "1s")]);
    fill(&cluster);
    let before = counted(&cluster);
    let saved = |needle: &str| fs::read_to_string(file(&cluster)).is_ok_and(|s| s.contains(needle));
    while !saved("SELECT count(*) FROM kept") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let pid: i32 = value(&mut connect(&cluster, SUPERUSER), "SELECT pg_backend_pid()").parse().unwrap();
    let mut victim = connect(&cluster, SUPERUSER);
    let pid = value(&mut victim, "SELECT pg_backend_pid()").parse().unwrap_or(pid);
    cluster.crash(pid).unwrap();
    assert_eq!(counted(&cluster), before);
    cluster.restart(Shutdown::Immediate).unwrap();
    assert_eq!(counted(&cluster), before);
}

#[test]
fn with_save_off_nothing_is_written_or_read() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save", "off"), ("pgss_rs.save_interval", "1s")]);
    fill(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    assert!(counted(&cluster).is_empty() && !file(&cluster).exists());
}

#[test]
fn a_reset_is_not_undone_by_a_crash() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    assert!(file(&cluster).exists());
    connect(&cluster, SUPERUSER).batch_execute("SELECT pgss_rs_reset()").unwrap();
    assert!(!file(&cluster).exists());
    cluster.restart(Shutdown::Immediate).unwrap();
    assert!(counted(&cluster).is_empty());
}

#[test]
fn a_file_that_is_not_as_it_should_be_costs_one_log_line_and_no_start() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    cluster.stop(Shutdown::Fast).unwrap();
    let good = fs::read(file(&cluster)).unwrap();
    let mut bad_byte = good.clone();
    let last_line = good[..good.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    bad_byte[last_line + 30] ^= 4;
    let other_major =
        String::from_utf8(good.clone()).unwrap().replacen("\"server_major\":15", "\"server_major\":14", 1);
    // (bytes, whether most entries are still to be had)
    let cases: [(&[u8], bool); 6] = [
        (&good[..good.len() - 10], true),
        (&bad_byte, true),
        (&good[..good.len() / 2], false),
        (b"", false),
        (&[0xff; 5000], false),
        (other_major.as_bytes(), false),
    ];
    for (n, (bytes, most)) in cases.into_iter().enumerate() {
        fs::write(file(&cluster), bytes).unwrap();
        let lines = log_lines(&cluster);
        cluster.start().unwrap();
        assert_eq!(log_lines(&cluster), lines + 1, "case {n}: {}", cluster.log());
        let after = counted(&cluster);
        assert!(after.iter().all(|row| before.contains(row)), "case {n}: {after:#?}");
        assert!(!most || after.len() + 1 >= before.len(), "case {n}: {after:#?}");
        cluster.stop(Shutdown::Immediate).unwrap();
    }
    fs::write(file(&cluster), &good).unwrap();
    cluster.start().unwrap();
    assert_eq!(counted(&cluster), before);
}

#[test]
fn a_directory_that_cannot_be_written_costs_one_log_line_and_no_stop() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let directory = cluster.data_dir().join("pg_stat");
    // root may write everywhere, the server may not: it runs as another user
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o500)).unwrap();
    cluster.stop(Shutdown::Fast).unwrap();
    assert_eq!(log_lines(&cluster), 1, "{}", cluster.log());
    assert!(!file(&cluster).exists());
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    cluster.start().unwrap();
    assert!(counted(&cluster).is_empty());
}
