//! Exact counts, however many sessions execute, read and reset at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use crate::client::Session;
use crate::servers::{distinct, start_with_pgss_rs};

const SESSIONS: usize = 16;
const EXECUTIONS: usize = 10_000;

/// (SQL, stored text, rows of one execution). The last is first seen when all sessions start it at once.
const STATEMENTS: [(&str, &str, usize); 5] = [
    ("SELECT 1", "SELECT $1", 1),
    ("SELECT a FROM t WHERE a = 5", "SELECT a FROM t WHERE a = $1", 1),
    ("SELECT a FROM t WHERE a <= 2", "SELECT a FROM t WHERE a <= $1", 2),
    ("SELECT FROM t WHERE false", "SELECT FROM t WHERE $1", 0),
    ("VALUES (1, 'never seen'), (2, 'before')", "VALUES ($1, $2), ($3, $4)", 2),
];

fn field<T: std::str::FromStr>(row: &[Option<String>], n: usize) -> T {
    row[n].as_deref().and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("column {n} of {row:?}"))
}

/// Reads the view without pause; the number of readings.
fn watch(mut reader: Session, done: &AtomicBool) -> usize {
    let sql = "SELECT query, calls, rows, total_exec_time, min_exec_time, mean_exec_time, max_exec_time,
                      stddev_exec_time, shared_blks_hit FROM pgss_rs_stats WHERE query <> ''";
    let mut last: HashMap<String, [f64; 4]> = HashMap::new();
    let mut readings = 0;
    while !done.load(Ordering::Relaxed) {
        let rows = reader.query(sql).unwrap();
        for row in &rows {
            let query: String = field(row, 0);
            let Some((_, _, each)) = STATEMENTS.iter().find(|(_, text, _)| *text == query) else { continue };
            let [calls, returned, total, min, mean, max, stddev, hit] =
                std::array::from_fn(|n| field::<f64>(row, n + 1));
            // every row is one consistent state
            assert_eq!(returned, calls * *each as f64, "{query}");
            assert!(0.0 < min && min <= mean && mean <= max, "{query}: {min} {mean} {max}");
            assert!((total - mean * calls).abs() <= total * 1e-9, "{query}: {total} of {calls} at {mean}");
            assert!(stddev <= max - min, "{query}: {stddev}");
            // nothing ever shrinks
            let now = [calls, returned, total, hit];
            if let Some(before) = last.insert(query.clone(), now) {
                assert!(before.iter().zip(now).all(|(b, n)| *b <= n), "{query}: {before:?} then {now:?}");
            }
        }
        readings += 1;
    }
    readings
}

#[test]
fn counts_of_many_sessions_are_exact_while_another_reads_without_pause() {
    let cluster = start_with_pgss_rs(&[]);
    let socket = cluster.socket();
    let mut control = Session::connect(&socket).unwrap();
    control
        .execute("SET pgss_rs.track = 'none'; CREATE TABLE t AS SELECT generate_series(1, 10) AS a")
        .unwrap();
    control.execute("SELECT pgss_rs_reset()").unwrap();

    let done = Arc::new(AtomicBool::new(false));
    let mut reader = Session::connect(&socket).unwrap();
    reader.execute("SET pgss_rs.track = 'none'").unwrap();
    let watching = std::thread::spawn({
        let done = Arc::clone(&done);
        move || watch(reader, &done)
    });
    let barrier = Arc::new(Barrier::new(SESSIONS));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let mut session = Session::connect(&socket).unwrap();
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                for (n, (sql, _, _)) in STATEMENTS.iter().enumerate() {
                    session.prepare(&format!("s{n}"), sql).unwrap();
                }
                barrier.wait();
                for _ in 0..EXECUTIONS {
                    // the new one first
                    for n in (0..STATEMENTS.len()).rev() {
                        session.prepared(["s0", "s1", "s2", "s3", "s4"][n], &[] as &[i64]).unwrap();
                    }
                }
            })
        })
        .collect();
    let ended: Vec<_> = sessions.into_iter().map(std::thread::JoinHandle::join).collect();
    done.store(true, Ordering::Relaxed);
    let readings = watching.join().unwrap();
    assert!(ended.iter().all(Result::is_ok));
    assert!(readings > 10, "{readings}");

    for (_, text, rows) in STATEMENTS {
        let sql = format!(
            "SELECT calls, rows, sampled_calls, calls_stderr FROM pgss_rs_stats WHERE query = '{text}'"
        );
        let shown = control.query(&sql).unwrap();
        let calls = SESSIONS * EXECUTIONS;
        let expected = [calls, calls * rows, calls, 0].map(|n| Some(n.to_string()));
        assert_eq!(shown, [expected], "{text}");
    }
    let info = control.query("SELECT skipped, dealloc, evicted_calls FROM pgss_rs_info").unwrap();
    assert_eq!(info, [["0", "0", "0"].map(|s| Some(s.to_owned()))]);
}

#[test]
fn resets_and_evictions_under_load_leave_the_table_whole() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "100"), ("pgss_rs.text_memory", "64kB")]);
    let socket = cluster.socket();
    let mut control = Session::connect(&socket).unwrap();
    control.execute("SET pgss_rs.track = 'none'").unwrap();
    let strings: Vec<String> =
        (0..6).map(|s| (0..300).map(|n| distinct(s * 50 + n) + ";").collect()).collect();
    let sessions: Vec<_> = strings
        .into_iter()
        .map(|sql| {
            let mut session = Session::connect(&socket).unwrap();
            std::thread::spawn(move || (0..10).for_each(|_| session.execute(&sql).unwrap()))
        })
        .collect();
    let mut rounds = 0;
    while !sessions.iter().all(std::thread::JoinHandle::is_finished) || rounds < 10 {
        control.execute("SELECT pgss_rs_reset()").unwrap();
        let odd = "SELECT query FROM pgss_rs_stats WHERE query !~ '^SELECT \\$1([-+]\\$[0-9]+){12}$'
                   AND NOT query_truncated AND query NOT LIKE 'SET %'";
        assert_eq!(control.query(odd).unwrap(), [[None; 0]; 0]);
        rounds += 1;
    }
    assert!(sessions.into_iter().all(|s| s.join().is_ok()));
    // all slots and all memory came back
    control.execute("SELECT pgss_rs_reset()").unwrap();
    let info = "SELECT entries, text_bytes_used, skipped FROM pgss_rs_info";
    assert_eq!(control.query(info).unwrap(), [["0", "0", "0"].map(|s| Some(s.to_owned()))]);
    let mut session = Session::connect(&socket).unwrap();
    let each: String = (0..100).map(|n| distinct(n) + ";").collect();
    session.execute(&each).unwrap();
    let info = "SELECT entries, dealloc, skipped FROM pgss_rs_info";
    assert_eq!(control.query(info).unwrap(), [["100", "0", "0"].map(|s| Some(s.to_owned()))]);
    let sum = control.query("SELECT sum(calls), count(DISTINCT query) FROM pgss_rs_stats").unwrap();
    assert_eq!(sum, [["100", "100"].map(|s| Some(s.to_owned()))]);
}
