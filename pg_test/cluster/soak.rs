//! Everything at once, for as long as is asked for: all kinds of statements, reconnects, readers of every kind, resets,
//! evictions, roles and databases that come and go, reloads of settings. What holds is looked at all the while, and what
//! was counted against what the clients did at the end of each round, when nobody does anything.
//!
//! `PGSS_RS_MINUTES` says how long; `make soak` asks for an hour. Each round is told as it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::cluster::{Cluster, SUPERUSER};
use crate::faults::{anonymous, memory};
use crate::servers::{config, connect, distinct, number, observe, rows, saver, start_with_pgss_rs, value};

/// Sessions that stay for the whole time. As many others connect anew again and again.
const SESSIONS: usize = 3;

const OBJECTS: &str = "
    CREATE TABLE t AS SELECT generate_series(1, 100) AS a;
    CREATE TABLE u (a int);
    CREATE FUNCTION nests(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN FOR i IN 1 .. n LOOP PERFORM a FROM t WHERE a <= i; END LOOP; RETURN n; END';
    CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS
      'BEGIN BEGIN PERFORM 1 / (a - a) FROM t; EXCEPTION WHEN division_by_zero THEN PERFORM a FROM t; END; RETURN 1; END';
    GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;";

/// What clients did.
#[derive(Default)]
struct Told {
    /// Executions at the top, and nested.
    top: AtomicU64,
    nested: AtomicU64,
    rows: AtomicU64,
    errors: AtomicU64,
}

impl Told {
    fn add(&self, [top, nested, rows, errors]: [u64; 4]) {
        self.top.fetch_add(top, Relaxed);
        self.nested.fetch_add(nested, Relaxed);
        self.rows.fetch_add(rows, Relaxed);
        self.errors.fetch_add(errors, Relaxed);
    }

    fn everything(&self) -> [f64; 3] {
        [
            self.top.load(Relaxed) + self.nested.load(Relaxed),
            self.rows.load(Relaxed),
            self.errors.load(Relaxed),
        ]
        .map(|n| n as f64)
    }
}

/// Strings for the server, and what they count for: executions at the top, nested ones, rows, errors.
const KINDS: &[(&str, [u64; 4])] = &[
    ("SELECT a FROM t WHERE a = 5", [1, 0, 1, 0]),
    ("SELECT nests(4)", [1, 4, 1 + 10, 0]),
    ("SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; VALUES (1), (2)", [3, 0, 4, 0]),
    ("BEGIN; INSERT INTO u SELECT a FROM t WHERE a < 4; UPDATE u SET a = a + 1; ROLLBACK", [4, 0, 6, 0]),
    ("SELECT 1 / (a - a) FROM t", [0, 0, 0, 1]),
    ("SELECT nonsense FROM t", [0, 0, 0, 0]),
    ("SELECT catches()", [1, 1, 101, 1]),
    ("SELECT count(*) FROM t x, t y WHERE x.a < 30 AND y.a IN (1, 2, 3)", [1, 0, 1, 0]),
    ("CREATE TEMP TABLE x (a int); DROP TABLE x", [2, 0, 0, 0]),
    ("PREPARE p AS SELECT a FROM t WHERE a < 4; EXECUTE p; DEALLOCATE p", [2, 0, 3, 0]),
    ("SET work_mem = '5MB'; RESET work_mem", [2, 0, 0, 0]),
    ("SELECT a FROM t ORDER BY a DESC LIMIT 7", [1, 0, 7, 0]),
];

/// Works until it is told to stop.
fn work(session: &mut Client, told: &Told, stop: &AtomicBool, seed: u32) {
    let prepared = session.prepare("SELECT a FROM t WHERE a <= $1").unwrap();
    for n in (0u32..).map(|n| n.wrapping_mul(7).wrapping_add(seed * 1000)) {
        if stop.load(Relaxed) {
            break;
        }
        one_of_each(session, told, n);
        session.query(&prepared, &[&9i32]).unwrap();
        told.add([1, 0, 9, 0]);
    }
    // a client hears of an error before it is counted
    session.batch_execute("").unwrap();
}

fn one_of_each(session: &mut Client, told: &Told, n: u32) {
    let (sql, counts) = KINDS[n as usize % KINDS.len()];
    let fails = session.batch_execute(sql).is_err();
    assert_eq!(fails, counts[0] == 0, "{sql}");
    told.add(counts);
    session.batch_execute(&distinct(n % 4096)).unwrap();
    told.add([1, 0, 1, 0]);
}

/// Comes, works a little and goes.
fn reconnect(cluster: &Cluster, settings: &str, told: &Told, stop: &AtomicBool, seed: u32) {
    for n in (0u32..).map(|n| n + seed * 500) {
        if stop.load(Relaxed) {
            break;
        }
        let mut session = config(cluster, SUPERUSER).options(settings).connect(NoTls).unwrap();
        (n * 11..n * 11 + 11).for_each(|n| one_of_each(&mut session, told, n));
        session.batch_execute("").unwrap();
    }
}

/// Roles and databases that are dropped when statements of theirs were counted, and settings that are reloaded.
fn administer(cluster: &Cluster, settings: &str, told: &Told, stop: &AtomicBool) {
    let mut administrator = observe(cluster);
    for n in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let name = format!("passing{n}");
        let (create, drop) = match n % 2 {
            0 => (format!("CREATE ROLE {name} LOGIN SUPERUSER"), format!("DROP ROLE {name}")),
            _ => (
                format!("CREATE DATABASE {name} STRATEGY file_copy"),
                format!("DROP DATABASE {name} WITH (FORCE)"),
            ),
        };
        // a database that somebody is connected to cannot be copied
        if administrator.batch_execute(&create).is_ok() {
            let mut config = config(cluster, if n % 2 == 0 { SUPERUSER } else { &name });
            config.user(if n % 2 == 0 { &name } else { SUPERUSER });
            let mut session = config.options(settings).connect(NoTls).unwrap();
            for n in 0..50 {
                session.batch_execute(&distinct(n * 3 % 4096)).unwrap();
                told.add([1, 0, 1, 0]);
            }
            drop_session(session);
            administrator.batch_execute(&drop).unwrap();
        }
        let planning = ["on", "off"][n % 2];
        let clock = ["auto", "system"][n / 2 % 2];
        for (name, setting) in [
            ("track_planning", planning),
            ("timing_clock_source", clock),
            ("save_interval", ["1s", "3s", "0"][n % 3]),
            ("save", "on"),
        ] {
            administrator.batch_execute(&format!("ALTER SYSTEM SET pgss_rs.{name} = '{setting}'")).unwrap();
        }
        administrator.batch_execute("SELECT pg_reload_conf()").unwrap();
    }
}

/// Waits until the session has gone.
fn drop_session(mut session: Client) {
    session.batch_execute("").unwrap();
    session.close().unwrap();
}

/// Rows of the view that cannot be.
const WRONG: &str = "
    SELECT s::text FROM pgss_rs_stats s WHERE NOT (
        least(calls, plans, rows, shared_blks_hit, shared_blks_read, shared_blks_dirtied, shared_blks_written, local_blks_hit,
            local_blks_read, local_blks_dirtied, local_blks_written, temp_blks_read, temp_blks_written, wal_records, wal_fpi,
            wal_bytes, sampled_calls, errors, cancels, jit_functions, parallel_workers_to_launch) >= 0
        AND least(total_exec_time, total_plan_time, min_exec_time, min_plan_time, stddev_exec_time, stddev_plan_time,
            shared_blk_read_time, shared_blk_write_time, calls_stderr, total_exec_time_stderr, total_error_time) >= 0
        AND min_exec_time <= max_exec_time AND min_plan_time <= max_plan_time
        AND minmax_stats_since >= stats_since
        AND coalesce(p50_exec_time <= p90_exec_time AND p90_exec_time <= p95_exec_time AND p95_exec_time <= p99_exec_time,
            calls = 0)
        AND (calls = 0) = (sampled_calls = 0) AND sampled_calls <= calls
        AND cancels <= errors AND first_exec <= last_exec)";

/// Nor these, where calls are no estimates, and minima and maxima were not started anew without the rest.
const INEXACT: &str = "
    SELECT s::text FROM pgss_rs_stats s WHERE NOT (
        min_exec_time <= mean_exec_time AND mean_exec_time <= max_exec_time
        AND min_plan_time <= mean_plan_time AND mean_plan_time <= max_plan_time
        AND abs(total_exec_time - mean_exec_time * calls) <= 1e-6 * total_exec_time
        AND abs(total_plan_time - mean_plan_time * plans) <= 1e-6 * total_plan_time
        AND stddev_exec_time <= (max_exec_time - min_exec_time) * (1 + 1e-9))";

/// Reads all there is, again and again: no row is wrong, and nothing shrinks.
fn read(cluster: &Cluster, exact: bool, stop: &AtomicBool) -> u64 {
    let columns = "calls, plans, total_exec_time, total_plan_time, rows, errors, sampled_calls, shared_blks_hit, wal_bytes";
    let sums = format!(
        "SELECT concat_ws('/', userid, dbid, toplevel, queryid, stats_since), {columns} FROM pgss_rs_stats(false)"
    );
    let mut reader = observe(cluster);
    let mut last: HashMap<String, Vec<f64>> = HashMap::new();
    let mut readings = 0;
    while !stop.load(Relaxed) {
        let mut wrong = rows(&mut reader, WRONG);
        if exact {
            wrong.append(&mut rows(&mut reader, INEXACT));
        }
        assert!(wrong.is_empty(), "{} rows as {:?}", wrong.len(), wrong[0]);
        last = rows(&mut reader, &sums)
            .into_iter()
            .map(|row| {
                let [entry, sums @ ..] = row.as_slice() else { panic!("{row:?}") };
                let entry = entry.clone().unwrap();
                let now: Vec<f64> = sums.iter().map(|n| n.as_ref().unwrap().parse().unwrap()).collect();
                if let Some(before) = last.get(&entry) {
                    assert!(before.iter().zip(&now).all(|(b, n)| b <= n), "{entry}: {before:?} then {now:?}");
                }
                (entry, now)
            })
            .collect();
        readings += 1;
    }
    readings
}

/// Reads in all other ways, maybe starts minima anew, and takes what there is, for good or not.
fn take(cluster: &Cluster, exact: bool, stop: &AtomicBool) -> [f64; 3] {
    const READ: &[&str] = &[
        "SELECT count(*) FROM pgss_rs_top",
        "SELECT count(*), max(length(query)) FROM pgss_compat.pg_stat_statements",
        "SELECT count(*) FROM pgss_rs_errors() e WHERE errors < 0 OR sqlstate_class !~ '^[0-9A-Z]{2}$'",
        "SELECT count(*) FROM pgss_rs_histogram() WHERE calls <= 0 OR lower >= upper",
        "SELECT count(*) FROM pgss_rs_stats(true, 20, now() - interval '1 s')",
        "SELECT pgss_rs_text(queryid) FROM pgss_rs_stats(false) LIMIT 50",
    ];
    let taking = "SELECT coalesce(sum(calls), 0), coalesce(sum(rows), 0), coalesce(sum(errors), 0)
        FROM pgss_rs_stats_and_reset()";
    let mut reader = observe(cluster);
    let mut taken = [0.0; 3];
    for n in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        reader.batch_execute(READ[n % READ.len()]).unwrap();
        match n % 200 {
            100 => {
                reader.batch_execute(&format!("BEGIN; {taking}; SELECT pg_sleep(0.01); ROLLBACK")).unwrap()
            }
            50 if !exact => reader.batch_execute("SELECT pgss_rs_reset(0, 0, 0, true)").unwrap(),
            199 => taken = sum(taken, sums(&mut reader, taking)),
            _ => {}
        }
    }
    taken
}

fn sums(session: &mut Client, sql: &str) -> [f64; 3] {
    let rows = rows(session, sql);
    std::array::from_fn(|n| rows[0][n].as_ref().unwrap().parse().unwrap())
}

fn sum(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|n| a[n] + b[n])
}

/// In the table, or given up for want of room.
fn counted(observer: &mut Client) -> [f64; 3] {
    sums(
        observer,
        "SELECT sum(calls) + evicted_calls, sum(rows) + evicted_rows, sum(errors) + evicted_errors
         FROM pgss_rs_info, pgss_rs_stats GROUP BY evicted_calls, evicted_rows, evicted_errors",
    )
}

/// All of it for a while, with these settings. What was told, what was counted, and readings.
fn round(
    cluster: &Cluster,
    sessions: &mut [Client],
    settings: &[(&str, &str)],
    exact: bool,
    time: Duration,
) -> (Told, [f64; 3], u64) {
    observe(cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
    let (told, stop) = (Told::default(), AtomicBool::new(false));
    let options: String = settings.iter().map(|(name, value)| format!("-c {name}={value} ")).collect();
    for session in &mut *sessions {
        session.batch_execute("SET pgss_rs.track = 'none'").unwrap();
        for (name, value) in settings {
            session.batch_execute(&format!("SET {name} = '{value}'")).unwrap();
        }
    }
    observe(cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
    let (taken, readings) = std::thread::scope(|scope| {
        let (told, stop, options) = (&told, &stop, &options);
        for (n, session) in sessions.iter_mut().enumerate() {
            scope.spawn(move || work(session, told, stop, n as u32));
        }
        for n in 0..SESSIONS {
            scope.spawn(move || reconnect(cluster, options, told, stop, n as u32));
        }
        scope.spawn(move || administer(cluster, options, told, stop));
        let reading = scope.spawn(move || read(cluster, exact, stop));
        let taking = scope.spawn(move || take(cluster, exact, stop));
        std::thread::sleep(time);
        stop.store(true, Relaxed);
        (taking.join().unwrap(), reading.join().unwrap())
    });
    (told, sum(taken, counted(&mut observe(cluster))), readings)
}

/// kB of each session's anonymous memory and memory contexts, and of the process that saves.
fn memories(cluster: &mut Cluster, sessions: &mut [Client]) -> Vec<(u64, u64)> {
    let saver = anonymous(&saver(cluster).expect("the saver runs").to_string());
    sessions.iter_mut().map(memory).chain([(saver, 0)]).collect()
}

#[test]
fn whatever_happens_at_once_nothing_is_lost_or_wrong_or_leaks() {
    /// kB that a process may have taken since the first quarter of the time.
    const ALLOWED: u64 = 2048;
    let minutes: f64 = std::env::var("PGSS_RS_MINUTES").map_or(0.0, |m| m.parse().unwrap());
    let (time, rounds) = if minutes > 0.0 { (15.0, (minutes * 4.0).ceil() as u32) } else { (1.0, 2) };
    let mut cluster = start_with_pgss_rs(&[
        ("pgss_rs.max", "500"),
        ("pgss_rs.text_memory", "64kB"),
        ("pgss_rs.save_interval", "1s"),
        ("client_min_messages", "error"),
        ("fsync", "off"),
    ]);
    connect(&cluster, SUPERUSER).batch_execute(OBJECTS).unwrap();
    let mut sessions: Vec<Client> = (0..SESSIONS).map(|_| connect(&cluster, SUPERUSER)).collect();
    let begin = Instant::now();
    let mut first = Vec::new();
    for n in 0..rounds {
        let exact = n % 3 != 1;
        let settings: &[(&str, &str)] = if exact {
            &[("pgss_rs.sample_rate", "1"), ("pgss_rs.track", "all")]
        } else {
            &[("pgss_rs.sample_rate", "0.3"), ("pgss_rs.track", "top")]
        };
        let (told, counted, readings) =
            round(&cluster, &mut sessions, settings, exact, Duration::from_secs_f64(time));
        let mut observer = observe(&cluster);
        let info = "SELECT format('%s entries, %s given up, %s texts'' bytes, %s waits', entries, dealloc, text_bytes_used,
            lock_waits + index_lock_waits + text_lock_waits) FROM pgss_rs_info";
        let info = value(&mut observer, info);
        let memories = memories(&mut cluster, &mut sessions);
        eprintln!(
            "{:.1} min, round {n}: told {:?}, counted {counted:?}, {readings} readings; {info}; memory {memories:?}",
            begin.elapsed().as_secs_f64() / 60.0,
            told.everything(),
        );
        if exact {
            assert_eq!(counted, told.everything(), "round {n}");
        } else {
            let top = told.top.load(Relaxed) as f64;
            let deviation = (top * (1.0 / 0.3 - 1.0)).sqrt();
            assert!((counted[0] - top).abs() <= 8.0 * deviation, "round {n}: {} of {top}", counted[0]);
        }
        assert_eq!(number(&mut observer, "SELECT skipped FROM pgss_rs_info"), 0.0);
        let full =
            "SELECT (entries <= max_entries AND text_bytes_used <= text_bytes_total)::int FROM pgss_rs_info";
        assert_eq!(number(&mut observer, full), 1.0);
        if n == rounds / 4 {
            first = memories;
        } else if n > rounds / 4 {
            for (now, first) in memories.iter().zip(&first) {
                assert!(now.0 <= first.0 + ALLOWED && now.1 <= first.1 + ALLOWED, "{first:?} {now:?}");
            }
        }
    }
    assert!(!cluster.log().contains("pgss_rs:"), "{}", cluster.log());
}
