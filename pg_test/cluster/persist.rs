//! Statistics over restarts and crashes, and what becomes of a file that is not as it should be.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::Client;

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{
    connect, distinct, nullable, number, observe, pg_config, rows, start_with_pgss_rs, to_preload, value,
};

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
    connect(cluster, SUPERUSER).batch_execute("CREATE TABLE kept (a int)").unwrap();
    fill_again(cluster);
}

fn fill_again(cluster: &Cluster) {
    let mut session = connect(cluster, SUPERUSER);
    for n in 0..5 {
        session.batch_execute(&format!("INSERT INTO kept VALUES ({n})")).unwrap();
        session.batch_execute(&format!("SELECT 'größe', a FROM kept WHERE a <> {n}")).unwrap();
    }
    session.batch_execute("SET pgss_rs.sample_rate = 0.5").unwrap();
    for _ in 0..50 {
        session.batch_execute("SELECT count(*) FROM kept").unwrap();
    }
}

type Rows = Vec<Vec<Option<String>>>;

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
    let many: String = (0..500).map(|n| distinct(n) + ";").collect();
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

/// Of one statement, or of minima alone: the rest is kept.
#[test]
fn a_reset_of_a_part_is_not_undone_by_a_crash_once_it_was_saved() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save_interval", "1d"), ("restart_after_crash", "on")]);
    fill(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    let before = counted(&cluster);
    let mut observer = observe(&cluster);
    let wait_until_saved = |observer: &mut Client, reset: &str| {
        while value(observer, &format!("SELECT coalesce(last_saved >= '{reset}', false) FROM pgss_rs_info"))
            == "f"
        {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let one = "SELECT queryid FROM pgss_rs_stats WHERE query = 'SELECT $1, a FROM kept WHERE a <> $2'";
    value(&mut observer, &format!("SELECT pgss_rs_reset(0, 0, ({one}))"));
    let after_reset = value(&mut observer, "SELECT clock_timestamp()");
    wait_until_saved(&mut observer, &after_reset);
    crash(&mut cluster);
    let after = counted(&cluster);
    assert_eq!(after.len(), before.len() - 1);
    assert!(after.iter().all(|row| before.contains(row)));

    let mut observer = observe(&cluster);
    let reset = value(&mut observer, "SELECT pgss_rs_reset(0, 0, 0, true)");
    let after_reset = value(&mut observer, "SELECT clock_timestamp()");
    wait_until_saved(&mut observer, &after_reset);
    crash(&mut cluster);
    let since = format!(
        "SELECT count(*) FROM pgss_rs_stats WHERE query LIKE '%kept%' AND minmax_stats_since < '{reset}'"
    );
    assert_eq!(number(&mut observe(&cluster), &since), 0.0);
    assert_eq!(counted(&cluster).len(), before.len() - 1);
}

/// However many: in between is a second at least.
#[test]
fn a_storm_of_resets_is_no_storm_of_saves() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.save_interval", "0")]);
    let mut session = connect(&cluster, SUPERUSER);
    let mut saves = std::collections::BTreeSet::new();
    while saves.len() < 4 {
        session.batch_execute("SELECT pgss_rs_reset(1, 1, 1)").unwrap();
        saves.extend(nullable(&mut session, "SELECT extract(epoch FROM last_saved) FROM pgss_rs_info"));
    }
    let at: Vec<f64> = saves.iter().map(|at| at.parse().unwrap()).collect();
    assert!(at.windows(2).all(|two| two[1] - two[0] >= 1.0), "{at:?}");
}

/// A backend is killed.
fn crash(cluster: &mut Cluster) {
    let mut session = connect(cluster, SUPERUSER);
    let pid = number(&mut session, "SELECT pg_backend_pid()") as i32;
    cluster.crash(pid).unwrap();
}

#[test]
fn a_file_that_is_not_as_it_should_be_costs_one_log_line_and_no_start() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    cluster.stop(Shutdown::Fast).unwrap();
    let good = fs::read(file(&cluster)).unwrap();
    let mut bad_byte = good.clone();
    let end = good[..good.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    bad_byte[end - 30] ^= 4;
    // (bytes, whether most entries are still to be had)
    let cases: [(&[u8], bool); 6] = [
        (&good[..end], true),
        (&good[..end - 10], true),
        (&bad_byte, true),
        (&good[..good.len() / 2], false),
        (b"", false),
        (&[0xff; 5000], false),
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

/// `contents` with another first line; each line stands behind its checksum.
fn with_first_line(contents: &[u8], change: impl Fn(&str) -> String) -> Vec<u8> {
    let end = contents.iter().position(|b| *b == b'\n').unwrap();
    let json = change(str::from_utf8(&contents[9..end]).unwrap());
    let checksum = crc32fast::hash(json.as_bytes());
    [format!("{checksum:08x} {json}").as_bytes(), &contents[end..]].concat()
}

#[test]
fn a_file_of_another_major_is_read_and_said_to_be_one() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    cluster.stop(Shutdown::Fast).unwrap();
    let other = with_first_line(&fs::read(file(&cluster)).unwrap(), |json| {
        let (start, rest) = json.split_once("\"server_major\":").unwrap();
        format!("{start}\"server_major\":14,{}", rest.split_once(',').unwrap().1)
    });
    fs::write(file(&cluster), other).unwrap();
    cluster.start().unwrap();
    assert_eq!(counted(&cluster), before);
    assert_eq!(log_lines(&cluster), 1, "{}", cluster.log());
    assert!(cluster.log().contains("is of PostgreSQL 14; its statements may have other identifiers here"));
}

#[test]
fn a_file_of_a_newer_version_costs_one_log_line_and_no_start() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    cluster.stop(Shutdown::Fast).unwrap();
    let good = fs::read(file(&cluster)).unwrap();
    let newer = with_first_line(&good, |json| {
        let newer = json.replace("\"pgss_rs_format\":1", "\"pgss_rs_format\":2");
        assert_ne!(newer, json);
        newer
    });
    fs::write(file(&cluster), newer).unwrap();
    cluster.start().unwrap();
    assert_eq!(log_lines(&cluster), 1, "{}", cluster.log());
    assert!(cluster.log().contains("is of a newer version; starting with empty statistics"));
    assert!(counted(&cluster).is_empty());
    cluster.stop(Shutdown::Immediate).unwrap();
    fs::write(file(&cluster), with_first_line(&good, str::to_owned)).unwrap();
    cluster.start().unwrap();
    assert_eq!(counted(&cluster), before);
    assert_eq!(log_lines(&cluster), 1, "{}", cluster.log());
}

/// The postmaster ends in good order then, although it gives its children no time; killed, it writes nothing.
#[test]
fn an_immediate_stop_keeps_everything_and_a_kill_goes_back_to_the_last_file() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    assert!(before.len() >= 3, "{before:#?}");
    cluster.restart(Shutdown::Immediate).unwrap();
    assert_eq!(counted(&cluster), before);
    let written = fs::read(file(&cluster)).unwrap();
    connect(&cluster, SUPERUSER).batch_execute("SELECT a, a FROM kept").unwrap();
    assert_eq!(counted(&cluster).len(), before.len() + 1);
    cluster.kill().unwrap();
    assert!(fs::read(file(&cluster)).unwrap() == written);
    cluster.start().unwrap();
    assert_eq!(counted(&cluster), before);
    assert_eq!(log_lines(&cluster), 0, "{}", cluster.log());
}

/// Stops the server, which cannot write its file, and starts it again: one line says so, and what the last stop had
/// written is there as it was.
fn assert_stops_and_starts_with_the_last_file(cluster: &mut Cluster, why: &str, before: &Rows) {
    let written = fs::read(file(cluster)).unwrap();
    let lines = log_lines(cluster);
    cluster.stop(Shutdown::Fast).unwrap();
    let log = cluster.log();
    assert!(log.contains(&format!("pgss_rs: could not write file \"pg_stat/pgss_rs.stat\": {why}")), "{log}");
    assert_eq!(log_lines(cluster), lines + 1, "{log}");
    assert!(log.trim_end().ends_with("database system is shut down"), "{log}");
    assert!(fs::read(file(cluster)).unwrap() == written);
    // fails also where the name is that of a broken link
    fs::symlink_metadata(temporary(cluster)).unwrap_err();
    cluster.start().unwrap();
    assert_eq!(&counted(cluster), before);
    assert_eq!(log_lines(cluster), lines + 1, "{}", cluster.log());
}

fn temporary(cluster: &Cluster) -> PathBuf {
    file(cluster).with_extension("stat.tmp")
}

/// A server whose disk is full for the new file while the file that comes with it is there; that goes with the first write
/// that fails.
fn on_a_disk_that_fills_up(settings: &[(&str, &str)]) -> (Cluster, PathBuf) {
    let library = to_preload("full_disk");
    let full = library.with_extension("full");
    let builder = Cluster::builder(pg_config())
        .environment("LD_PRELOAD", library.to_str().unwrap())
        .environment("PGSS_RS_FULL_DISK", full.to_str().unwrap())
        .setting("shared_preload_libraries", "pgss_rs");
    let cluster = settings.iter().fold(builder, |b, (name, value)| b.setting(name, value)).start().unwrap();
    connect(&cluster, SUPERUSER).batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    (cluster, full)
}

/// The server's own user can remove it.
fn fill_disk(full: &Path, cluster: &Cluster) {
    let made = full.with_extension("made");
    fs::write(&made, "").unwrap();
    let owner = fs::metadata(cluster.data_dir()).unwrap();
    std::os::unix::fs::chown(&made, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::rename(made, full).unwrap();
}

#[test]
fn on_a_full_disk_the_last_file_stays_and_one_log_line_says_so() {
    let (mut cluster, full) = on_a_disk_that_fills_up(&[]);
    fill(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    let before = counted(&cluster);
    connect(&cluster, SUPERUSER).batch_execute("SELECT a, a FROM kept").unwrap();
    fill_disk(&full, &cluster);
    assert_stops_and_starts_with_the_last_file(&mut cluster, "No space left on device", &before);
    // with room again, it is written again
    connect(&cluster, SUPERUSER).batch_execute("SELECT a, a FROM kept").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(counted(&cluster).len(), before.len() + 1);
    fs::remove_file(full.with_extension("so")).unwrap();
}

/// Somebody's link, or what is left of a crash.
#[test]
fn what_stands_under_the_new_files_name_is_not_written_to() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    let target = cluster.data_dir().join("somebodys");
    let owner = fs::metadata(cluster.data_dir()).unwrap();
    fs::write(&target, "as it was").unwrap();
    std::os::unix::fs::chown(&target, Some(owner.uid()), Some(owner.gid())).unwrap();
    let left = |name: &Path| {
        fs::write(name, "left").unwrap();
        fs::set_permissions(name, fs::Permissions::from_mode(0o666)).unwrap();
    };
    let linked = |name: &Path| std::os::unix::fs::symlink(&target, name).unwrap();
    let linked_hard = |name: &Path| fs::hard_link(&target, name).unwrap();
    let cases: [&dyn Fn(&Path); 3] = [&linked, &linked_hard, &left];
    for make in cases {
        cluster.stop(Shutdown::Fast).unwrap();
        fs::remove_file(file(&cluster)).unwrap();
        cluster.start().unwrap();
        fill_again(&cluster);
        make(&temporary(&cluster));
        cluster.stop(Shutdown::Fast).unwrap();
        let written = fs::symlink_metadata(file(&cluster)).unwrap();
        assert!(written.is_file() && written.len() > 1000);
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&target).unwrap(), "as it was");
        fs::symlink_metadata(temporary(&cluster)).unwrap_err();
        cluster.start().unwrap();
        assert_eq!(counted(&cluster).len(), before.len() - 1);
    }
    assert_eq!(log_lines(&cluster), 0, "{}", cluster.log());
}

/// As a disk that fills up in the middle of the file: the postmaster may write no file longer than 16 MB, which is
/// enough for all of the server's own.
#[test]
fn a_file_that_can_be_written_only_in_part_leaves_the_last_one_and_nothing_of_itself() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    let before = counted(&cluster);
    let comment = "x".repeat(8000);
    let many: String =
        (0..2500).map(|n| distinct(n).replace("SELECT", &format!("SELECT /* {comment} */")) + ";").collect();
    connect(&cluster, SUPERUSER).batch_execute(&many).unwrap();
    let pid = cluster.postmaster_pid().unwrap().to_string();
    // by the server's own user, who may always lower it
    let owner = fs::metadata(cluster.data_dir()).unwrap();
    let mut limit = Command::new("prlimit");
    limit.args(["--fsize=16777216", "--pid", &pid]).uid(owner.uid()).gid(owner.gid());
    assert!(limit.status().unwrap().success());
    assert_stops_and_starts_with_the_last_file(&mut cluster, "File too large", &before);
    connect(&cluster, SUPERUSER).batch_execute(&many).unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    assert!(fs::metadata(file(&cluster)).unwrap().len() > 16 << 20);
    assert_eq!(
        number(&mut observe(&cluster), "SELECT count(*) FROM pgss_rs_stats WHERE query LIKE '%xxx%'"),
        2500.0
    );
}

/// The snapshots in between fail and succeed as the disk does.
#[test]
fn the_saver_survives_a_full_disk() {
    let (mut cluster, full) = on_a_disk_that_fills_up(&[("pgss_rs.save_interval", "1s")]);
    fill(&cluster);
    fill_disk(&full, &cluster);
    while !cluster.log().contains("No space left on device") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let before = counted(&cluster);
    while !fs::read_to_string(file(&cluster)).is_ok_and(|s| s.contains("SELECT count(*) FROM kept")) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(log_lines(&cluster), 1, "{}", cluster.log());
    cluster.restart(Shutdown::Immediate).unwrap();
    assert_eq!(counted(&cluster), before);
    fs::remove_file(full.with_extension("so")).unwrap();
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
    let entries = lines.len() - 2; // but for the first line and the last
    let cut = whole[..whole.len() - lines[entries + 1].len() - 10].to_vec();
    let missing = lines.iter().enumerate().filter(|(n, _)| *n != 7).flat_map(|(_, l)| l.to_vec()).collect();
    let damaged = format!("damaged; restored {} of {entries} statements", entries - 1);
    let cut_off = format!("cut off; restored the first {} statements", entries - 1);
    for (name, file_bytes, said) in
        [("flipped", flipped, &damaged), ("cut", cut, &cut_off), ("missing", missing, &damaged)]
    {
        fs::write(file(&cluster), &file_bytes).unwrap();
        let seen = cluster.log().len();
        cluster.start().unwrap();
        assert_eq!(everything(&cluster).0.len(), entries - 1, "{name}");
        assert!(cluster.log()[seen..].contains(said), "{name}: {}", &cluster.log()[seen..]);
        cluster.stop(Shutdown::Immediate).unwrap();
    }
    // an entry written twice is there once
    let twice = [&whole[..], lines[5]].concat();
    fs::write(file(&cluster), &twice).unwrap();
    cluster.start().unwrap();
    assert_eq!(everything(&cluster).0.len(), entries);
    assert_eq!(sum_of_calls(&cluster), entries as f64);
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

/// A base backup carries the file with it; what it says was never executed on the copy.
#[test]
fn a_copy_made_by_a_base_backup_starts_empty() {
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    let before = counted(&cluster);
    cluster.restart(Shutdown::Fast).unwrap();
    assert!(file(&cluster).exists());
    let (directory, copy) = (cluster.data_dir().to_owned(), cluster.data_dir().with_extension("copy"));
    let bin = crate::cluster::pg_config(crate::servers::pg_config().as_ref(), "--bindir").unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    run(Command::new(bin + "/pg_basebackup")
        .args(["-X", "stream", "-c", "fast", "-U", SUPERUSER, "-p", &cluster.port().to_string(), "-h"])
        .arg(cluster.socket_dir())
        .arg("-D")
        .arg(&copy));
    cluster.stop(Shutdown::Fast).unwrap();
    run(Command::new("chown").arg("-R").arg(format!("--reference={}", directory.display())).arg(&copy));
    fs::rename(&directory, directory.with_extension("old")).unwrap();
    fs::rename(&copy, &directory).unwrap();
    assert!(file(&cluster).exists());
    cluster.start().unwrap();
    assert!(!before.is_empty() && counted(&cluster).is_empty());
}

#[test]
fn what_is_no_file_costs_one_log_line_and_no_start() {
    let started_empty = |c: &Cluster| c.log().lines().filter(|l| l.contains("starting with empty")).count();
    let mut cluster = start_with_pgss_rs(&[]);
    fill(&cluster);
    cluster.stop(Shutdown::Immediate).unwrap();
    fs::remove_file(file(&cluster)).unwrap();
    fs::create_dir(file(&cluster)).unwrap();
    cluster.start().unwrap();
    assert_eq!(started_empty(&cluster), 1, "{}", cluster.log());
    cluster.stop(Shutdown::Immediate).unwrap();
    fs::remove_dir(file(&cluster)).unwrap();
    let made = Command::new("mkfifo").arg(file(&cluster)).status().unwrap();
    assert!(made.success());
    cluster.start().unwrap();
    assert_eq!(started_empty(&cluster), 2, "{}", cluster.log());
}
