//! Crashes and stops at random moments under full load.
//!
//! `PGSS_RS_ROUNDS` says how often each is done; `make torture` asks for many.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;

use crate::client::Session;
use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{connect, distinct, number, observe, rows, saver, start_with_pgss_rs};

const SESSIONS: usize = 4;

fn rounds(usual: u64) -> u64 {
    std::env::var("PGSS_RS_ROUNDS").ok().map_or(usual, |n| n.parse().expect("PGSS_RS_ROUNDS is a number"))
}

fn random_moment() {
    std::thread::sleep(Duration::from_millis(rand::random::<u64>() % 300));
}

const OBJECTS: &str = "
    CREATE TABLE t AS SELECT generate_series(1, 100) AS a;
    CREATE FUNCTION nests(n int) RETURNS bigint LANGUAGE plpgsql AS
      'BEGIN
         BEGIN PERFORM 1 / (a - a) FROM t; EXCEPTION WHEN division_by_zero THEN END;
         RETURN (SELECT count(*) FROM t WHERE a < n);
       END'";

/// All kinds of work, with a table too small for it, until the session is lost.
fn everything_at_once(socket: &Path, which: usize) -> (i32, JoinHandle<()>) {
    let mut session = Session::connect(socket).unwrap();
    let pid = session.backend_pid();
    let mut work = move || -> Result<(), crate::error::Error> {
        session.execute("SET pgss_rs.track = 'all'")?;
        session.prepare("p", "SELECT count(*) FROM t WHERE a < $1")?;
        for n in (0u32..).map(|n| n * 7 + which as u32 * 1000) {
            session.execute(&distinct(n % 4096))?;
            session.prepared("p", &[5])?;
            session.execute("SELECT nests(5)")?;
            match n % 700 {
                0 => session.execute("SELECT pgss_rs_reset(0, 0, 1)")?,
                7 => session.execute("SELECT count(*) FROM pgss_rs_stats")?,
                14 => session.execute("CREATE TEMP TABLE IF NOT EXISTS x (a int); DROP TABLE x")?,
                _ => {}
            }
        }
        Ok(())
    };
    (pid, std::thread::spawn(move || drop(work())))
}

/// Calls and failures by user, database, level and identifier.
type Kept = BTreeMap<(u32, u32, bool, i64), (f64, f64)>;

/// The part of the file that is looked at here: `pgss_rs::snapshot`'s lines.
#[derive(Deserialize)]
struct Line {
    queryid: u64,
    userid: u32,
    dbid: u32,
    toplevel: bool,
    counters: LineCounters,
}

#[derive(Deserialize)]
struct LineCounters {
    exec: LineTiming,
    failures: LineFailures,
}

#[derive(Deserialize)]
struct LineTiming {
    calls: f64,
}

#[derive(Deserialize)]
struct LineFailures {
    errors: f64,
}

fn in_file(cluster: &Cluster) -> Kept {
    let file = std::fs::read_to_string(cluster.data_dir().join("pg_stat/pgss_rs.stat")).unwrap_or_default();
    // the first line and the last are none
    let lines = file.lines().filter_map(|line| serde_json::from_str::<Line>(line.get(9..)?).ok());
    lines
        .map(|l| {
            let key = (l.userid, l.dbid, l.toplevel, l.queryid as i64);
            (key, (l.counters.exec.calls, l.counters.failures.errors))
        })
        .collect()
}

fn in_view(cluster: &Cluster) -> Kept {
    let sql = "SELECT userid, dbid, toplevel, queryid, calls, errors FROM pgss_rs_stats";
    rows(&mut observe(cluster), sql)
        .into_iter()
        .map(|row| {
            let [user, db, top, id, calls, errors] = row.try_into().unwrap();
            fn parsed<T: std::str::FromStr>(field: Option<String>) -> T {
                field.and_then(|f| f.parse().ok()).unwrap()
            }
            let key = (parsed(user), parsed(db), top.as_deref() == Some("t"), parsed(id));
            (key, (parsed(calls), parsed(errors)))
        })
        .collect()
}

/// The hooks count exactly, at the right levels.
fn assert_counts(cluster: &Cluster) {
    let mut session = connect(cluster, SUPERUSER);
    session.batch_execute("SET pgss_rs.track = 'all'; SELECT pgss_rs_reset()").unwrap();
    for _ in 0..10 {
        session.batch_execute("SELECT nests(3)").unwrap();
        assert!(session.batch_execute("SELECT 1 / (a - a) FROM t").is_err());
    }
    // a client hears of an error before it is counted
    session.batch_execute("").unwrap();
    let mut observer = observe(cluster);
    let mut told = |columns: &str, of: &str| {
        let sql = format!("SELECT coalesce(sum({columns}), 0) FROM pgss_rs_stats WHERE {of}");
        number(&mut observer, &sql)
    };
    assert_eq!(told("calls", "query = 'SELECT nests($1)' AND toplevel"), 10.0);
    assert_eq!(told("calls", "query LIKE '%count(*) FROM t WHERE a < n%' AND NOT toplevel"), 10.0);
    assert_eq!(told("errors", "query = 'SELECT $1 / (a - a) FROM t' AND toplevel"), 10.0);
    assert_eq!(told("errors", "query = 'SELECT $1 / (a - a) FROM t' AND NOT toplevel"), 10.0);
    assert_eq!(number(&mut observe(cluster), "SELECT skipped FROM pgss_rs_info"), 0.0);
}

fn loaded() -> Cluster {
    let cluster = start_with_pgss_rs(&[
        ("pgss_rs.save_interval", "1s"),
        ("pgss_rs.max", "200"),
        ("pgss_rs.text_memory", "64kB"),
        ("restart_after_crash", "on"),
    ]);
    connect(&cluster, SUPERUSER).batch_execute(OBJECTS).unwrap();
    cluster
}

/// Kills a process of the server. What the file said when no process was left.
fn crash(cluster: &mut Cluster, victim: i32) -> Kept {
    const STARTS_ANEW: &str = "all server processes terminated; reinitializing";
    let seen = cluster.log().len();
    cluster.kill_process(victim).unwrap();
    while !cluster.log()[seen..].contains(STARTS_ANEW) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let kept = in_file(cluster);
    cluster.wait_ready().unwrap();
    kept
}

#[test]
fn after_a_kill_at_any_moment_statistics_are_those_of_the_last_snapshot_and_the_hooks_count_on() {
    let mut cluster = loaded();
    let mut kept_any = false;
    for round in 0..rounds(3) {
        let sessions: Vec<_> = (0..SESSIONS).map(|n| everything_at_once(&cluster.socket(), n)).collect();
        // in the first round long enough for a snapshot
        std::thread::sleep(Duration::from_millis(if round == 0 { 1500 } else { 0 }));
        let checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        let checkpointer = number(&mut observe(&cluster), checkpointer) as i32;
        // after a crash it is not there at once
        let helpers = [checkpointer].into_iter().chain(saver(&mut cluster));
        let victims: Vec<i32> = sessions.iter().map(|(pid, _)| *pid).chain(helpers).collect();
        random_moment();
        let kept = crash(&mut cluster, victims[rand::random::<u64>() as usize % victims.len()]);
        for (_, session) in sessions {
            session.join().unwrap();
        }
        assert_eq!(in_view(&cluster), kept, "round {round}");
        kept_any |= kept.len() > 100;
        if round % 2 == 1 {
            assert_counts(&cluster);
        }
    }
    assert!(kept_any);
    // the postmaster itself
    for round in 0..rounds(1) {
        let sessions: Vec<_> = (0..SESSIONS).map(|n| everything_at_once(&cluster.socket(), n)).collect();
        random_moment();
        cluster.kill().unwrap();
        for (_, session) in sessions {
            session.join().unwrap();
        }
        // the saver writes no more: it ends with the postmaster, which it may take a moment to see
        while std::fs::exists(cluster.data_dir().join("pg_stat/pgss_rs.stat.tmp")).unwrap() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(200));
        let kept = in_file(&cluster);
        cluster.start().unwrap();
        assert_eq!(in_view(&cluster), kept, "round {round}, postmaster");
    }
    assert_counts(&cluster);
}

/// What a client was told of: executions of its statements that came to their end.
#[derive(Default)]
struct Told {
    selects: AtomicU64,
    inserts: AtomicU64,
}

/// Statements of the simple protocol, of which the client is told as they are counted, until the session or the test ends.
fn exact_load(socket: &Path, told: &Arc<Told>, done: &Arc<AtomicBool>) -> JoinHandle<()> {
    let mut session = Session::connect(socket).unwrap();
    let (told, done) = (Arc::clone(told), Arc::clone(done));
    std::thread::spawn(move || {
        while !done.load(Ordering::Relaxed) {
            if session.simple("SELECT count(*) FROM t WHERE a < 5").is_err() {
                return;
            }
            told.selects.fetch_add(1, Ordering::Relaxed);
            if session.simple("INSERT INTO u SELECT a FROM t WHERE a < 3").is_err() {
                return;
            }
            told.inserts.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[test]
fn after_every_kind_of_stop_under_load_calls_are_those_that_the_clients_were_told_of() {
    let mut cluster = start_with_pgss_rs(&[]);
    connect(&cluster, SUPERUSER).batch_execute(OBJECTS).unwrap();
    connect(&cluster, SUPERUSER).batch_execute("CREATE UNLOGGED TABLE u (a int)").unwrap();
    let calls = |cluster: &Cluster, start: &str| {
        let sql = format!("SELECT coalesce(sum(calls), 0) FROM pgss_rs_stats WHERE query LIKE '{start}%'");
        number(&mut observe(cluster), &sql) as u64
    };
    for round in 0..rounds(1) {
        for how in [Shutdown::Smart, Shutdown::Fast, Shutdown::Immediate] {
            observe(&cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
            let (told, done) = (Arc::new(Told::default()), Arc::new(AtomicBool::new(false)));
            let sessions: Vec<_> =
                (0..SESSIONS).map(|_| exact_load(&cluster.socket(), &told, &done)).collect();
            random_moment();
            std::thread::sleep(Duration::from_millis(100));
            let ending = std::thread::spawn({
                let done = Arc::clone(&done);
                move || {
                    random_moment();
                    done.store(how == Shutdown::Smart, Ordering::Relaxed);
                }
            });
            cluster.stop(how).unwrap();
            sessions.into_iter().for_each(|s| s.join().unwrap());
            ending.join().unwrap();
            cluster.start().unwrap();
            let told = (told.selects.load(Ordering::Relaxed), told.inserts.load(Ordering::Relaxed));
            let counted = (calls(&cluster, "SELECT count(*) FROM t"), calls(&cluster, "INSERT INTO u"));
            assert!(told.0 > 10, "{how:?}");
            if how == Shutdown::Immediate {
                // sessions end without a word of what they have just done
                let most = (told.0 + SESSIONS as u64, told.1 + SESSIONS as u64);
                assert!(
                    told <= counted && counted.0 <= most.0 && counted.1 <= most.1,
                    "{told:?}, {counted:?}"
                );
            } else {
                assert_eq!(counted, told, "{how:?}, round {round}");
            }
        }
    }
    assert!(!cluster.log().contains("pgss_rs:"), "{}", cluster.log());
}
