//! Percentiles and histograms of execution times.

use crate::cluster::Shutdown;
use crate::servers::{ALONE, connect, error_of, nullable, number, rows, start_with_pgss_rs, value};

/// One call in ten takes 30 ms, the others next to nothing.
const MIXED: &str =
    "SELECT pg_sleep(CASE WHEN n % 10 = 0 THEN 0.03 ELSE 0 END) FROM (VALUES ($1::int)) v (n)";

#[test]
fn percentiles_tell_how_long_most_calls_took() {
    let db = ALONE.database();
    let mut session = db.session();
    for n in 1..=40 {
        session.execute(MIXED, &[&n]).unwrap();
    }
    let of = |column: &str| db.number(column, "query LIKE 'SELECT pg_sleep%'");
    let [p50, p90, p95, p99] = ["p50", "p90", "p95", "p99"].map(|p| of(&format!("{p}_exec_time")));
    assert!(p50 < 25.0, "{p50}");
    assert!(p50 <= p90 && p90 <= p95 && p95 <= p99);
    assert!(p95 >= 30.0 && p99 >= 30.0, "{p95} {p99}");
    assert!(of("min_exec_time") <= p50 && p99 <= of("max_exec_time"));

    let mut observer = db.session_with(&["pgss_rs.track=none"]);
    observer.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let id = db.value("queryid", "query LIKE 'SELECT pg_sleep%'");
    let sum = format!("SELECT sum(calls) FROM pgss_rs_histogram({id}, dbid => {})", db.oid);
    assert_eq!(number(&mut observer, &sum), 40.0);
    let slow = format!("{sum} WHERE lower >= 24");
    assert_eq!(number(&mut observer, &slow), 4.0);
    let sane = format!("SELECT bool_and(lower < upper AND calls > 0) FROM pgss_rs_histogram({id})");
    assert_eq!(value(&mut observer, &sane), "t");
    let median = number(&mut observer, &format!("SELECT pgss_rs_percentile({id}, 0.5)"));
    assert!((median - p50).abs() <= 0.1 * p50, "{median} {p50}");
    assert!(number(&mut observer, &format!("SELECT pgss_rs_percentile({id}, 1)")) >= 26.0);
}

#[test]
fn histograms_of_all_statements_are_those_of_each_added_up() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("SELECT 1; SELECT 1, 2; SELECT 1, 2; SELECT 1, 2, 3").unwrap();
    session.batch_execute("SET pgss_rs.track = 'none'; CREATE EXTENSION pgss_rs").unwrap();
    let sum = format!("SELECT sum(calls) FROM pgss_rs_histogram(dbid => {})", db.oid);
    assert_eq!(number(&mut session, &sum), 5.0); // with the SET
    let by_entry = format!(
        "SELECT sum(h.calls) FROM pgss_rs_stats s, pgss_rs_histogram(s.queryid, s.userid, s.dbid) h
         WHERE s.dbid = {}",
        db.oid
    );
    assert_eq!(number(&mut session, &by_entry), 5.0);
}

#[test]
fn a_sample_is_weighted_and_planning_is_left_out() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.sample_rate=0.25", "pgss_rs.track_planning=on"]);
    for _ in 0..200 {
        session.batch_execute("SELECT 1").unwrap();
    }
    session.batch_execute("SET pgss_rs.track = 'none'; CREATE EXTENSION pgss_rs").unwrap();
    let sum = format!("SELECT sum(calls) FROM pgss_rs_histogram(dbid => {})", db.oid);
    assert_eq!(number(&mut session, &sum), db.number("sum(calls)", "true"));
    assert_eq!(db.number("sum(calls)", "true"), 4.0 * db.number("sum(sampled_calls)", "true"));
}

#[test]
fn a_restart_keeps_histograms_and_a_reset_starts_them_anew() {
    let mut cluster = start_with_pgss_rs(&[]);
    connect(&cluster, "postgres").batch_execute("SELECT 1, 2; SELECT 1, 2; SELECT pg_sleep(0.01)").unwrap();
    let quiet = "SET pgss_rs.track = 'none'; ";
    let histogram = format!("{quiet} SELECT lower, upper, calls FROM pgss_rs_histogram() WHERE upper > 8");
    let before = rows(&mut connect(&cluster, "postgres"), &histogram);
    assert!(!before.is_empty());
    cluster.restart(Shutdown::Fast).unwrap();
    assert_eq!(rows(&mut connect(&cluster, "postgres"), &histogram), before);
    let mut session = connect(&cluster, "postgres");
    session.batch_execute("SET pgss_rs.track = 'none'; SELECT pgss_rs_reset()").unwrap();
    assert_eq!(number(&mut session, "SELECT count(*) FROM pgss_rs_histogram()"), 0.0);
    assert_eq!(nullable(&mut session, "SELECT pgss_rs_percentile(0, 0.5)"), None);
}

#[test]
fn a_fraction_out_of_range_is_refused_and_null_is_null() {
    let mut session = ALONE.database().session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    for fraction in ["-0.1", "1.5", "'NaN'", "95"] {
        let error = error_of(&mut session, &format!("SELECT pgss_rs_percentile(5, {fraction})"));
        assert_eq!((error.code().code(), error.hint().is_some()), ("22003", true), "{error}");
    }
    assert_eq!(nullable(&mut session, "SELECT pgss_rs_percentile(5, NULL)"), None);
    assert_eq!(nullable(&mut session, "SELECT pgss_rs_percentile(5, 0.5)"), None);
}

#[test]
fn others_times_are_for_those_who_may_read_all_statistics() {
    let db = ALONE.database();
    let (plain, reader) = (format!("plain_{}", db.name), format!("reader_{}", db.name));
    db.prepare(&format!(
        "CREATE EXTENSION pgss_rs; CREATE ROLE {plain} LOGIN; CREATE ROLE {reader} LOGIN IN ROLE pg_read_all_stats"
    ));
    db.session().batch_execute("SELECT 1, 2, 3, 4, 5").unwrap();
    let of_owner = format!("SELECT count(*) FROM pgss_rs_histogram(userid => 10, dbid => {})", db.oid);
    assert_eq!(number(&mut db.session_as(&plain), &of_owner), 0.0);
    assert_eq!(number(&mut db.session_as(&reader), &of_owner), 1.0);
    let percentile = format!("SELECT pgss_rs_percentile(0, 0.5, 10, {})", db.oid);
    assert_eq!(nullable(&mut db.session_as(&plain), &percentile), None);
    assert!(nullable(&mut db.session_as(&reader), &percentile).is_some());
}
