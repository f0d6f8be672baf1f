//! Statements that are cancelled, terminated, dead-locked, out of memory or out of disk, again and again: counts and
//! levels stay right, memory stays flat, and no error of ours reaches anybody.
//!
//! `PGSS_RS_STATEMENTS` says how many statements of each kind one session executes; `make torture` asks for many.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use postgres::{Client, NoTls};

use crate::cluster::{Builder, Cluster, SUPERUSER, Shutdown};
use crate::servers::{
    ALONE, Database, connect, distinct, lacks, leave_as_pg_upgrade, nullable, number, observe, pg_config,
    rows, saver, sqlstate_of, start, to_preload, value,
};

const OBJECTS: &str = "
    CREATE TABLE one AS SELECT 1 AS a; CREATE TABLE parent (a int PRIMARY KEY);
    CREATE TABLE child (a int REFERENCES parent);
    CREATE FUNCTION divides() RETURNS int LANGUAGE plpgsql AS
      'BEGIN PERFORM 1 / (a - a) FROM one; RETURN 1; END';
    CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS
      'BEGIN BEGIN PERFORM divides(); EXCEPTION WHEN OTHERS THEN END; RETURN 1; END';
    CREATE FUNCTION raises_again() RETURNS int LANGUAGE plpgsql AS
      'BEGIN BEGIN PERFORM divides(); EXCEPTION WHEN OTHERS THEN RAISE; END; RETURN 1; END';
    CREATE FUNCTION warns() RETURNS int LANGUAGE plpgsql AS
      'BEGIN RAISE WARNING ''w'' USING ERRCODE = ''22012''; RETURN 1; END';
    CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN IF n = 0 THEN RETURN divides(); END IF; PERFORM deep(n - 1) FROM one; RETURN 1; END';
    CREATE FUNCTION sleeps() RETURNS int LANGUAGE plpgsql AS
      'BEGIN
         BEGIN PERFORM pg_sleep(60) FROM one; EXCEPTION WHEN query_canceled THEN PERFORM a FROM one; END;
         RETURN 1;
       END'";

fn database<'a>() -> Database<'a> {
    let db = ALONE.database();
    db.prepare(OBJECTS);
    db
}

fn errors(db: &Database, query: &str, toplevel: bool) -> f64 {
    db.number("coalesce(sum(errors), 0)", &format!("query = '{query}' AND toplevel = {toplevel}"))
}

fn calls(db: &Database, query: &str, toplevel: bool) -> f64 {
    db.number("coalesce(sum(calls), 0)", &format!("query = '{query}' AND toplevel = {toplevel}"))
}

/// Of the backend: its anonymous memory, which Rust's heap is part of, and its memory contexts; kB.
pub fn memory(session: &mut Client) -> (u64, u64) {
    let contexts = number(session, "SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts");
    (anonymous(&value(session, "SELECT pg_backend_pid()")), contexts as u64)
}

/// Anonymous memory of a process, kB.
pub fn anonymous(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    anonymous.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Kinds of statements, and whether they fail.
const KINDS: &[(&str, bool)] = &[
    ("SELECT a FROM one", false),
    ("SELECT catches()", false),
    ("SELECT warns()", false),
    ("BEGIN; DECLARE c CURSOR FOR SELECT divides(), a FROM one; COMMIT", false),
    ("BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT a FROM one; COMMIT; CLOSE c", false),
    (
        "DO 'BEGIN FOR i IN 1 .. 3 LOOP BEGIN PERFORM divides(); EXCEPTION WHEN OTHERS THEN END; END LOOP; END'",
        false,
    ),
    ("SELECT 1 / 0 FROM one", true),
    ("SELECT 1 / (a - a) FROM one", true),
    ("INSERT INTO child VALUES (5)", true),
    ("ALTER TABLE one ADD COLUMN a int", true),
    ("SELECT raises_again()", true),
    ("SELECT deep(10)", true),
    ("SELECT nonsense FROM one", true),
];

#[test]
fn memory_stays_flat_over_many_statements_of_each_kind() {
    /// kB; what the allocators keep to themselves comes and goes.
    const ALLOWED: u64 = 512;
    let count = std::env::var("PGSS_RS_STATEMENTS").map_or(100, |n| n.parse::<u32>().unwrap());
    let db = database();
    for settings in [
        &["pgss_rs.track=all"][..],
        &[
            "pgss_rs.track=all",
            "pgss_rs.sample_rate=0.2",
            "pgss_rs.max_overhead=1",
            "pgss_rs.track_planning=on",
        ],
        &["pgss_rs.track=all", "pgss_rs.sample_rate=0.2", "pgss_rs.sample_slow_ms=1"],
    ] {
        let quiet = ["client_min_messages=error"];
        let mut session = db.session_with(&[settings, &quiet[..]].concat());
        for (sql, fails) in KINDS {
            let mut run = |count: u32| {
                for _ in 0..count {
                    assert_eq!(session.batch_execute(sql).is_err(), *fails, "{sql}");
                }
                memory(&mut session)
            };
            run(count / 2 + 50);
            let (before, after) = (run(50), run(count));
            assert!(
                after.0 <= before.0 + ALLOWED && after.1 <= before.1 + ALLOWED,
                "{sql}: {before:?} {after:?}"
            );
        }
    }
    assert_eq!(number(&mut observe(db.cluster), "SELECT skipped FROM pgss_rs_info"), 0.0);
}

#[test]
fn a_cancel_that_is_caught_counts_for_what_was_cancelled_alone() {
    let db = database();
    let mut session = db.session_with(&["pgss_rs.track=all", "statement_timeout=50ms"]);
    session.batch_execute("SELECT sleeps()").unwrap();
    assert_eq!((calls(&db, "SELECT sleeps()", true), errors(&db, "SELECT sleeps()", true)), (1.0, 0.0));
    let slept = "SELECT pg_sleep($1) FROM one";
    assert_eq!((calls(&db, slept, false), errors(&db, slept, false)), (0.0, 1.0));
    assert_eq!(db.number("sum(cancels)", "true"), 1.0);
    assert_eq!(calls(&db, "SELECT a FROM one", false), 1.0);
    // the next one is at the top
    session.batch_execute("SELECT a FROM one").unwrap();
    assert_eq!(calls(&db, "SELECT a FROM one", true), 1.0);
}

#[test]
fn a_deadlock_counts_for_the_one_that_is_ended_by_it() {
    let db = database();
    db.prepare("INSERT INTO parent VALUES (1), (2)");
    let mut sessions = [0, 1].map(|_| db.session_with(&["pgss_rs.track=all", "deadlock_timeout=20ms"]));
    for (n, session) in sessions.iter_mut().enumerate() {
        session.batch_execute(&format!("BEGIN; UPDATE parent SET a = a WHERE a = {}", n + 1)).unwrap();
    }
    let threads: Vec<_> = sessions
        .into_iter()
        .zip([2, 1])
        .map(|(mut session, other)| {
            std::thread::spawn(move || {
                let result = session.batch_execute(&format!("UPDATE parent SET a = a WHERE a = {other}"));
                let code = result.err().map(|e| e.code().unwrap().code().to_owned());
                session.batch_execute("COMMIT; SELECT a FROM one").unwrap();
                code
            })
        })
        .collect();
    let mut codes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    codes.sort();
    assert_eq!(codes, [None, Some("40P01".to_owned())]);
    let update = "UPDATE parent SET a = a WHERE a = $1";
    assert_eq!((calls(&db, update, true), errors(&db, update, true)), (3.0, 1.0));
    assert_eq!(calls(&db, "SELECT a FROM one", true), 2.0);
}

#[test]
fn running_out_of_disk_or_patience_counts_once() {
    let db = database();
    for (settings, sql, text, code) in [
        (
            &["temp_file_limit=64kB", "work_mem=64kB"][..],
            "SELECT a FROM generate_series(1, 50000) a ORDER BY -a",
            "SELECT a FROM generate_series($1, $2) a ORDER BY -a",
            "53400",
        ),
        (&["lock_timeout=20ms"], "LOCK TABLE one", "LOCK TABLE one", "25P01"),
        (&["lock_timeout=20ms"], "DELETE FROM one", "DELETE FROM one", "55P03"),
    ] {
        let mut holder = db.session_with(&["pgss_rs.track=none"]);
        holder.batch_execute("BEGIN; LOCK TABLE one IN SHARE MODE").unwrap();
        let mut session = db.session_with(&[settings, &["pgss_rs.track=all"]].concat());
        for _ in 0..3 {
            assert_eq!(sqlstate_of(&mut session, sql), code, "{sql}");
        }
        // a client hears of an error before it is counted
        session.batch_execute("").unwrap();
        // the lock that its analysis waits for comes before there is an identifier
        let counted = errors(&db, text, true);
        assert_eq!(counted, if code == "55P03" { 0.0 } else { 3.0 }, "{sql}");
        holder.batch_execute("ROLLBACK").unwrap();
        session.batch_execute("SELECT a FROM one").unwrap();
        assert!(calls(&db, "SELECT a FROM one", true) > 0.0);
        db.reset();
    }
}

struct Storm {
    succeeded: AtomicU64,
    failed: AtomicU64,
    done: AtomicBool,
}

/// Executes until it is over; connects again when it is terminated.
fn work(config: &postgres::Config, storm: &Storm, sql: &str) {
    while !storm.done.load(Ordering::Relaxed) {
        // a new backend may be terminated before it says anything
        let Ok(mut session) = config.connect(NoTls) else { continue };
        while !storm.done.load(Ordering::Relaxed) {
            match session.batch_execute(sql) {
                Ok(()) => storm.succeeded.fetch_add(1, Ordering::Relaxed),
                Err(e) => {
                    storm.failed.fetch_add(1, Ordering::Relaxed);
                    let code = e.code().map(|c| c.code().to_owned());
                    match code.as_deref() {
                        Some("57014") => continue,
                        None | Some("57P01") => break,
                        other => panic!("{other:?}: {e}"),
                    }
                }
            };
        }
    }
}

#[test]
fn a_storm_of_cancels_and_terminations_leaves_counts_and_levels_right() {
    let db = database();
    db.prepare(
        "CREATE FUNCTION storms() RETURNS int LANGUAGE plpgsql AS
           'BEGIN
              FOR i IN 1 .. 20 LOOP
                BEGIN PERFORM divides(); EXCEPTION WHEN division_by_zero THEN END;
                PERFORM deep(0) FROM one WHERE a = 2;
                PERFORM a FROM one;
              END LOOP;
              RETURN 1;
            END'",
    );
    let storm = Arc::new(Storm {
        succeeded: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        done: AtomicBool::new(false),
    });
    let mut config = crate::servers::config(db.cluster, &db.name);
    config.options("-c pgss_rs.track=all");
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (config, storm) = (config.clone(), Arc::clone(&storm));
            std::thread::spawn(move || work(&config, &storm, "SELECT storms()"))
        })
        .collect();
    let mut observer = observe(db.cluster);
    for n in 0..120 {
        let how = if n % 5 == 0 { "pg_terminate_backend" } else { "pg_cancel_backend" };
        rows(
            &mut observer,
            &format!(
                "SELECT {how}(pid) FROM pg_stat_activity WHERE datname = '{}' ORDER BY random() LIMIT 1",
                db.name
            ),
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    storm.done.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|w| w.join().unwrap());
    let (ok, failed) = (storm.succeeded.load(Ordering::Relaxed), storm.failed.load(Ordering::Relaxed));
    let (calls_, errors_) = (calls(&db, "SELECT storms()", true), errors(&db, "SELECT storms()", true));
    // one that is cancelled before it is analysed is not counted; after its end it is already
    assert!(
        ok as f64 <= calls_ && calls_ + errors_ <= (ok + failed) as f64,
        "{ok} {failed}: {calls_} {errors_}"
    );
    assert!(ok > 20 && errors_ > 5.0, "{ok} {errors_}");
    // only the client's statements are at the top, and only they; each of them has 20 rounds
    let others = "toplevel AND query NOT IN ('SELECT storms()') AND calls + errors > 0";
    assert_eq!(db.number("count(*)", others), 0.0, "{:?}", db.entries());
    assert_eq!(calls(&db, "SELECT storms()", false), 0.0);
    let rounds = calls(&db, "SELECT a FROM one", false);
    assert!(20.0 * ok as f64 <= rounds && rounds <= 20.0 * (ok + failed) as f64, "{ok} {failed} {rounds}");
}

/// The backend may have little more memory than it has.
#[test]
fn without_memory_a_session_goes_on_and_so_does_its_counting() {
    let db = database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    session.batch_execute("SELECT catches()").unwrap();
    let pid = value(&mut session, "SELECT pg_backend_pid()");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = format!("--as={}", (size + 4096) * 1024);
    // by the server's own user, who may always lower it
    let owner = std::fs::metadata(db.cluster.data_dir()).unwrap();
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &pid, &limit]).uid(owner.uid()).gid(owner.gid());
    assert!(prlimit.status().unwrap().success());
    for n in 0..15 {
        for sql in [
            "SELECT length(repeat('x', 100000000)) FROM one".to_owned(),
            "DO 'BEGIN PERFORM repeat(''x'', 100000000); EXCEPTION WHEN out_of_memory THEN PERFORM divides(); END'"
                .to_owned(),
            format!("SELECT /* {} */ {} FROM one", "x".repeat(300_000), &distinct(n)[7..]),
            "SELECT string_agg(a::text, 'x') FROM generate_series(1, 1000000) a".to_owned(),
            "SELECT deep(30)".to_owned(),
            "SELECT catches()".to_owned(),
        ] {
            if let Err(e) = session.batch_execute(&sql) {
                let code = e.code().unwrap_or_else(|| panic!("{}: {e}", &sql[..60.min(sql.len())])).code();
                assert!(["53200", "22012"].contains(&code), "{e}");
            }
        }
    }
    assert!(errors(&db, "SELECT length(repeat($1, $2)) FROM one", true) > 0.0);
    let before = calls(&db, "SELECT catches()", true);
    for _ in 0..5 {
        session.batch_execute("SELECT catches()").unwrap();
    }
    assert_eq!(calls(&db, "SELECT catches()", true), before + 5.0);
    assert_eq!(calls(&db, "SELECT catches()", false), 0.0);
}

/// A server whose malloc fails as the file says that is named in this variable, and the file.
fn with_failing_malloc(variable: &str) -> (Builder, PathBuf) {
    let library = to_preload("failing_malloc");
    let file = library.with_extension("file");
    let builder = Cluster::builder(pg_config())
        .environment("LD_PRELOAD", library.to_str().unwrap())
        .environment(variable, file.to_str().unwrap())
        .setting("shared_preload_libraries", "pgss_rs");
    (builder, file)
}

#[test]
fn hooks_that_are_refused_memory_record_less_and_break_nothing() {
    let (builder, switch) = with_failing_malloc("PGSS_RS_FAILING_MALLOC");
    let cluster = builder.setting("pgss_rs.max", "100").start().unwrap();
    connect(&cluster, SUPERUSER).batch_execute(&format!("CREATE EXTENSION pgss_rs; {OBJECTS}")).unwrap();
    std::fs::write(&switch, "").unwrap();
    for round in 0..12 {
        let settings = ["sample_rate=1", "sample_rate=0.5", "max_overhead=1", "sample_slow_ms=0"][round % 4];
        let mut config = crate::servers::config(&cluster, SUPERUSER);
        config.options(&format!("-c pgss_rs.track=all -c client_min_messages=error -c pgss_rs.{settings}"));
        let mut session = config.connect(NoTls).unwrap();
        for n in 0..12 {
            for (sql, fails) in KINDS {
                let result = session.batch_execute(sql);
                assert_eq!(result.is_err(), *fails, "{sql}: {result:?}");
            }
            session.batch_execute(&distinct(n * 12 + round as u32)).unwrap();
            session.execute("SELECT deep($1 - 1) WHERE $1 > 5", &[&1i32]).unwrap();
        }
    }
    std::fs::remove_file(&switch).unwrap();
    let log = cluster.log();
    assert!(!log.contains("was terminated by signal") && !log.contains("panicked"), "{log}");
    // it did work, and does
    let mut session = connect(&cluster, SUPERUSER);
    assert!(number(&mut session, "SELECT sum(calls) FROM pgss_rs_stats") > 100.0);
    session.batch_execute("SELECT pgss_rs_reset(); SELECT a FROM one; SELECT a FROM one").unwrap();
    assert_eq!(
        number(&mut session, "SELECT calls FROM pgss_rs_stats WHERE query = 'SELECT a FROM one'"),
        2.0
    );
    drop(cluster);
    std::fs::remove_file(switch.with_extension("so")).unwrap();
}

/// What reads, resets or makes something, and needs no argument that only a client could know.
const FUNCTIONS: &[&str] = &[
    "SELECT * FROM pgss_rs_stats",
    "SELECT * FROM pgss_rs_stats(true, 100)",
    "SELECT * FROM pgss_rs_stats(true, -1)",
    "SELECT * FROM pgss_rs_stats_and_reset()",
    "SELECT pgss_rs_text(queryid) FROM pgss_rs_stats(false)",
    "SELECT * FROM pgss_rs_top",
    "SELECT * FROM pgss_rs_errors()",
    "SELECT * FROM pgss_rs_histogram()",
    "SELECT pgss_rs_percentile(0, 0.9)",
    "SELECT pgss_rs_percentile(0, 9)",
    "SELECT * FROM pgss_rs_info",
    "SELECT pgss_rs_reset(1, 1, 1)",
    "SELECT pgss_rs_reset(0, 0, 0, true)",
    "SELECT * FROM pgss_compat.pg_stat_statements",
    "SELECT * FROM pgss_compat.pg_stat_statements(true)",
    "SELECT * FROM pgss_compat.pg_stat_statements_info",
    "SELECT pgss_compat.pg_stat_statements_reset(1, 1, 1)",
    "SELECT pgss_rs_refresh_compat()",
];

/// Does nothing that lasts, but that memory may be refused; what it failed with.
fn tried(session: &mut Client, sql: &str) -> Option<String> {
    let done = session.batch_execute(&format!("BEGIN; {sql}; ROLLBACK"));
    let code = done.err().map(|e| {
        let code = e.code().unwrap_or_else(|| panic!("{sql}: {e}")).code().to_owned();
        session.batch_execute("ROLLBACK").unwrap();
        code
    });
    // expected of the calls with arguments out of range
    code.filter(|code| !["22023", "22003"].contains(&code.as_str()))
}

fn assert_no_process_died(cluster: &Cluster) {
    let log = cluster.log();
    let bad = ["terminated by signal", "exited with exit code", "panicked", "memory allocation of", "PANIC"];
    let lines: Vec<_> = log.lines().filter(|line| bad.iter().any(|bad| line.contains(bad))).collect();
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Everything that the library asks for is refused, down to the last byte.
#[test]
fn without_any_memory_of_rusts_functions_work_or_raise_an_error() {
    let (builder, switch) = with_failing_malloc("PGSS_RS_FAILING_MALLOC");
    let cluster = builder.environment("PGSS_RS_FAILING_MALLOC_IN_TEN", "10").start().unwrap();
    fill_with_all_kinds(&mut connect(&cluster, SUPERUSER));
    std::fs::write(&switch, "").unwrap();
    let mut session = connect(&cluster, SUPERUSER);
    for sql in FUNCTIONS {
        // what was taken out of the table is kept by Rust's means
        let refused = sql.contains("stats_and_reset").then(|| "53200".to_owned());
        assert_eq!(tried(&mut session, sql), refused, "{sql}");
    }
    leave_as_pg_upgrade(&mut session);
    session.batch_execute("SELECT * FROM pgss_rs_info").unwrap();
    assert_eq!(tried(&mut session, "SELECT pgss_rs_refresh_compat()"), None);
    assert_no_process_died(&cluster);
    drop(cluster);
    std::fs::remove_file(switch.with_extension("so")).unwrap();
    std::fs::remove_file(switch).unwrap();
}

fn fill_with_all_kinds(session: &mut Client) {
    session.batch_execute(&format!("CREATE EXTENSION pgss_rs; {OBJECTS}")).unwrap();
    for n in 0..40 {
        session.batch_execute(&distinct(n)).unwrap();
    }
    session.batch_execute(&format!("SELECT 1 AS long /* {} */", "x".repeat(50_000))).unwrap();
    assert!(session.batch_execute("SELECT 1 / 0").is_err());
}

/// How many pieces of memory a process still gets: see failing_malloc.c.
struct Limit(std::fs::File);

impl Limit {
    fn new(file: &std::path::Path) -> Self {
        std::fs::write(file, [0; 8]).unwrap();
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        Limit(std::fs::File::options().read(true).write(true).open(file).unwrap())
    }

    fn set(&self, pid: i32, left: i32) {
        self.0.write_all_at(&left.to_ne_bytes(), 4).unwrap();
        self.0.write_all_at(&pid.to_ne_bytes(), 0).unwrap();
    }

    /// Ends it; whether anything was refused.
    fn end(&self) -> bool {
        self.0.write_all_at(&[0; 4], 0).unwrap();
        let mut left = [0; 4];
        self.0.read_exact_at(&mut left, 4).unwrap();
        i32::from_ne_bytes(left) < 0
    }
}

/// A session gets no more memory from some moment on, whoever asks for it, the server itself or the library: at every moment
/// that there is in each function. And the process that saves likewise.
#[test]
fn memory_that_runs_out_at_any_moment_is_an_error_and_no_crash() {
    let (builder, file) = with_failing_malloc("PGSS_RS_FAILING_MALLOC_AFTER");
    let limit = Limit::new(&file);
    let mut cluster = builder.setting("pgss_rs.save_interval", "1s").start().unwrap();
    fill_with_all_kinds(&mut connect(&cluster, SUPERUSER));
    let mut session = connect(&cluster, SUPERUSER);
    let pid = number(&mut session, "SELECT pg_backend_pid()") as i32;
    let mut refused = 0;
    // a function with a SET clause makes the server itself end the session, in an orderly way
    for sql in FUNCTIONS.iter().filter(|sql| !sql.contains("refresh_compat")) {
        tried(&mut session, sql);
        for left in 0.. {
            limit.set(pid, left);
            let done = session.batch_execute(sql);
            let any = limit.end();
            if let Err(e) = done {
                let code = e.code().unwrap_or_else(|| panic!("{sql} with {left}: {e}")).code();
                assert!(["53200", "22023", "22003"].contains(&code), "{sql} with {left}: {e:?}");
                refused += u32::from(code == "53200");
            }
            if !any {
                break;
            }
        }
    }
    assert!(refused > 50, "{refused}");

    let process = saver(&mut cluster).unwrap();
    let saved = |session: &mut Client| nullable(session, "SELECT last_saved FROM pgss_rs_info");
    for left in [0, 1, 2, 5, 20] {
        let lines = |cluster: &Cluster| cluster.log().matches("could not write file").count();
        let before = (saved(&mut session), lines(&cluster));
        limit.set(process, left);
        while (saved(&mut session), lines(&cluster)) == before {
            std::thread::sleep(Duration::from_millis(50));
        }
        limit.end();
    }
    let before = saved(&mut session);
    while saved(&mut session) == before {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(saver(&mut cluster), Some(process));
    assert_no_process_died(&cluster);
    drop(cluster);
    std::fs::remove_file(file.with_extension("so")).unwrap();
    std::fs::remove_file(file).unwrap();
}

/// Of what they ask for, all pieces of 4 kB and more.
#[test]
fn readers_that_are_refused_memory_raise_an_error_and_break_nothing() {
    let (builder, switch) = with_failing_malloc("PGSS_RS_FAILING_MALLOC");
    let mut cluster = builder.environment("PGSS_RS_FAILING_MALLOC_FROM", "4096").start().unwrap();
    let mut session = connect(&cluster, SUPERUSER);
    let latin = "ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    session.batch_execute(&format!("CREATE DATABASE latin {latin}")).unwrap();
    let mut other = connect(&cluster, "latin");
    other.batch_execute("CREATE EXTENSION pgss_rs; SELECT pgss_rs_reset()").unwrap();
    session.batch_execute(&format!("SELECT 1 AS long /* {} */", "ö".repeat(50_000))).unwrap();
    drop((session, other));
    std::fs::write(&switch, "").unwrap();
    for database in [SUPERUSER, "latin"] {
        let mut session = connect(&cluster, database);
        for sql in ["SELECT * FROM pgss_rs_stats_and_reset()", "SELECT * FROM pgss_rs_stats_and_reset(false)"]
        {
            assert_eq!(sqlstate_of(&mut session, sql), "53200", "{sql}");
        }
        // the others take the server's memory
        for sql in [
            "SELECT * FROM pgss_rs_stats",
            "SELECT pgss_rs_text(queryid) FROM pgss_rs_stats(false)",
            "SELECT * FROM pgss_compat.pg_stat_statements",
            "SELECT * FROM pgss_rs_stats(false)",
            "SELECT * FROM pgss_rs_stats(true, 100)",
            "SELECT * FROM pgss_rs_errors()",
            "SELECT * FROM pgss_rs_histogram()",
            "SELECT * FROM pgss_rs_info",
        ] {
            session.batch_execute(&format!("BEGIN; {sql}; ROLLBACK")).unwrap();
        }
    }
    let log = cluster.log();
    assert!(!log.contains("was terminated by signal") && !log.contains("panicked"), "{log}");
    std::fs::remove_file(&switch).unwrap();
    let counted = "SELECT calls FROM pgss_rs_stats WHERE query LIKE 'SELECT $1 AS long%'";
    assert_eq!(number(&mut connect(&cluster, SUPERUSER), counted), 1.0);
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(number(&mut connect(&cluster, SUPERUSER), counted), 1.0);
    drop(cluster);
    std::fs::remove_file(switch.with_extension("so")).unwrap();
}

/// Decoding begins and rolls back a subtransaction of its own, whatever comes of it.
#[test]
fn logical_decoding_in_a_statement_leaves_the_level_right() {
    if lacks("test_decoding") {
        return;
    }
    let cluster =
        start(&[("shared_preload_libraries", "pgss_rs"), ("wal_level", "logical"), ("pgss_rs.track", "all")]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(&format!("CREATE EXTENSION pgss_rs; {OBJECTS}")).unwrap();
    let create = "SELECT pg_create_logical_replication_slot('slot', 'test_decoding')";
    session.batch_execute(create).unwrap();
    session.batch_execute("INSERT INTO parent VALUES (1), (2)").unwrap();
    session
        .batch_execute(
            "CREATE FUNCTION decodes(option text) RETURNS bigint LANGUAGE plpgsql AS
               'DECLARE n bigint; BEGIN
                  n := (SELECT count(*) FROM pg_logical_slot_peek_changes(''slot'', NULL, NULL, option, ''1''));
                  PERFORM a FROM one;
                  RETURN n;
                END'",
        )
        .unwrap();
    for _ in 0..2 {
        session.batch_execute("BEGIN").unwrap();
        assert!(number(&mut session, "SELECT decodes('include-xids')") > 0.0);
        session.batch_execute("SELECT a FROM one; COMMIT").unwrap();
        assert_eq!(sqlstate_of(&mut session, "SELECT decodes('no-such-option')"), "22023");
        session.batch_execute("SELECT a FROM one").unwrap();
    }
    let counted = "SELECT toplevel || ' ' || calls || ' ' || errors FROM pgss_rs_stats WHERE query = ";
    let mut told = |query: &str| rows(&mut session, &format!("{counted} '{query}' ORDER BY toplevel"));
    let rows_of = |rows: &[&str]| rows.iter().map(|r| vec![Some((*r).to_owned())]).collect::<Vec<_>>();
    assert_eq!(told("SELECT a FROM one"), rows_of(&["false 2 0", "true 4 0"]));
    assert_eq!(told("SELECT decodes($1)"), rows_of(&["true 2 2"]));
}
