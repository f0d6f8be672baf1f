//! Sampling: what is not drawn is not recorded, and totals are estimates without bias.
//!
//! Bounds are five standard deviations wide: they fail once in two million runs.

use crate::servers::{ALONE, Database, connect, distinct, number, start_with_pgss_rs};

const SIGMAS: f64 = 5.0;

/// `n` executions of `sql` as statements of their own.
fn execute(db: &Database, settings: &[&str], sql: &str, n: usize) {
    db.session_with(settings).batch_execute(&format!("{sql};").repeat(n)).unwrap();
}

#[test]
fn at_rate_0_nothing_is_recorded() {
    let db = ALONE.database();
    db.prepare("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM 1; RETURN 2; END'");
    let none = ["pgss_rs.sample_rate=0", "pgss_rs.track=all", "pgss_rs.track_planning=on"];
    execute(&db, &none, "SELECT f(); CREATE TEMP TABLE t (a int); DROP TABLE t", 20);
    db.session_with(&none).query("SELECT $1::int", &[&1i32]).unwrap();
    assert_eq!(db.entries(), []);
}

#[test]
fn at_rate_1_totals_are_exact_and_their_errors_0() {
    let db = ALONE.database();
    execute(&db, &[], "SELECT generate_series(1, 3)", 500);
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2)", true), (500, 1500));
    assert_eq!(db.number("sum(sampled_calls)", "true"), 500.0);
    assert_eq!(db.number("max(calls_stderr) + max(total_exec_time_stderr)", "true"), 0.0);
}

#[test]
fn totals_of_a_sample_are_near_the_truth_and_say_how_near() {
    let n = 4000;
    for rate in [0.5, 0.1] {
        let db = ALONE.database();
        let setting = format!("pgss_rs.sample_rate={rate}");
        execute(&db, &[&setting], "SELECT generate_series(1, 3)", n);
        let theory = (n as f64 * (1.0 - rate) / rate).sqrt();
        let (calls, rows) = db.calls_and_rows("SELECT generate_series($1, $2)", true);
        assert!((calls as f64 - n as f64).abs() < SIGMAS * theory, "{calls} calls at {rate}");
        // every execution returned three rows, each of those looked at stands for 1 / rate
        assert!((rows - 3 * calls).abs() <= 2, "{rows} rows of {calls} calls");
        let sampled = db.number("sum(sampled_calls)", "true");
        assert!(sampled > 0.0 && (sampled / rate - calls as f64).abs() <= 0.5, "{sampled} of {calls}");
        let stderr = db.number("max(calls_stderr)", "true");
        assert!((stderr / theory - 1.0).abs() < 0.25, "{stderr}, not {theory}");
        let (time, time_stderr) =
            (db.number("sum(total_exec_time)", "true"), db.number("max(total_exec_time_stderr)", "true"));
        assert!(time > 0.0 && time_stderr > 0.0, "{time} +- {time_stderr}");
        let ordered = "min_exec_time <= mean_exec_time AND mean_exec_time <= max_exec_time";
        assert_eq!(db.value(&format!("bool_and({ordered})"), "true"), "t");
    }
}

#[test]
fn slow_executions_are_all_kept_and_stand_for_themselves() {
    let slow = "SELECT pg_sleep(0.03)";
    for rate in ["0", "0.01"] {
        let db = ALONE.database();
        let rate = format!("pgss_rs.sample_rate={rate}");
        let mut session = db.session_with(&[&rate, "pgss_rs.sample_slow_ms=20", "pgss_rs.track=all"]);
        for _ in 0..10 {
            session.batch_execute(&format!("{slow}; SELECT 1 AS fast")).unwrap();
            session.query(slow, &[]).unwrap();
        }
        session
            .batch_execute(&format!("DO 'BEGIN PERFORM pg_sleep(0.03); END'; PREPARE p AS {slow}; EXECUTE p"))
            .unwrap();
        let of_slow =
            |column: &str| db.number(&format!("sum({column})"), "toplevel AND query = 'SELECT pg_sleep($1)'");
        assert_eq!(of_slow("calls"), 21.0, "{:?}", db.entries());
        assert_eq!(of_slow("sampled_calls"), 21.0);
        assert_eq!(of_slow("calls_stderr + total_exec_time_stderr"), 0.0);
        assert!(of_slow("total_exec_time") > 600.0 && of_slow("min_exec_time") > 20.0);
        let nested = db.number("sum(calls)", "NOT toplevel AND query = 'SELECT pg_sleep($1)'");
        assert_eq!(nested, 1.0);
        assert_eq!(db.number("sum(calls)", "query LIKE 'DO%'"), 1.0);
        // the rest is drawn as ever
        assert!(db.number("coalesce(sum(sampled_calls), 0)", "query LIKE '%fast'") < 10.0);
    }
}

#[test]
fn what_is_not_slow_is_sampled_at_the_rate_all_the_same() {
    let db = ALONE.database();
    let settings = ["pgss_rs.sample_rate=0.2", "pgss_rs.sample_slow_ms=10000", "pgss_rs.track_planning=on"];
    let n = 4000.0;
    execute(&db, &settings, "SELECT generate_series(1, 3)", n as usize);
    let sigma = f64::sqrt(n * 0.8 / 0.2);
    for column in ["calls", "plans"] {
        let found = db.number(&format!("sum({column})"), "true");
        assert!((found - n).abs() < SIGMAS * sigma, "{found} {column}");
    }
    assert!((db.number("max(calls_stderr)", "true") / sigma - 1.0).abs() < 0.25);
    // at rate 1 it changes nothing
    let db = ALONE.database();
    execute(&db, &["pgss_rs.sample_slow_ms=0"], "SELECT 1", 100);
    assert_eq!(db.calls("SELECT $1"), (100, 0));
}

#[test]
fn totals_stay_near_the_truth_when_the_rate_changes() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    let (mut truth, mut variance) = (0.0, 0.0);
    for (rate, n) in [(1.0, 300), (0.25, 1200), (0.0, 0), (0.5, 1000), (1.0, 100)] {
        session.batch_execute(&format!("SET pgss_rs.sample_rate = {rate}")).unwrap();
        session.batch_execute(&"SELECT 1;".repeat(n)).unwrap();
        truth += n as f64;
        if rate > 0.0 {
            variance += n as f64 * (1.0 - rate) / rate;
        }
    }
    let calls = db.calls_and_rows("SELECT $1", true).0 as f64;
    assert!((calls - truth).abs() < SIGMAS * f64::sqrt(variance), "{calls} for {truth}");
    let stderr = db.number("max(calls_stderr)", "true");
    assert!((stderr / f64::sqrt(variance) - 1.0).abs() < 0.25, "{stderr} for {}", f64::sqrt(variance));
}

#[test]
fn two_backends_draw_different_sequences() {
    let drawn = || {
        let db = ALONE.database();
        let statements: String = (0..64).map(|n| distinct(n) + ";").collect();
        db.session_with(&["pgss_rs.sample_rate=0.5"]).batch_execute(&statements).unwrap();
        db.texts()
    };
    let (one, two) = (drawn(), drawn());
    for texts in [&one, &two] {
        assert!((8..=56).contains(&texts.len()), "{}", texts.len());
    }
    assert_ne!(one, two);
}

#[test]
fn nested_statements_share_the_draw_of_their_top_level_statement() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION deeper() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 1, 2, 3; END';
         CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM 1; PERFORM 1, 2; PERFORM 1, 2; PERFORM deeper(); RETURN 1; END'",
    );
    let n = 1000;
    execute(&db, &["pgss_rs.sample_rate=0.3", "pgss_rs.track=all"], "SELECT f()", n);
    let sampled = |query: &str, toplevel: bool| {
        db.number("coalesce(sum(sampled_calls), 0)", &format!("query = '{query}' AND toplevel = {toplevel}"))
    };
    let drawn = sampled("SELECT f()", true);
    let deviation = (n as f64 * 0.3 * 0.7).sqrt();
    assert!((drawn - 300.0).abs() < SIGMAS * deviation, "{drawn}");
    assert_eq!(sampled("SELECT $1", false), drawn);
    assert_eq!(sampled("SELECT $1, $2", false), 2.0 * drawn);
    assert_eq!(sampled("SELECT deeper()", false), drawn);
    assert_eq!(sampled("SELECT $1, $2, $3", false), drawn);
    // twice in each draw: the error is twice as large too
    let stderr = |query: &str| db.number("max(calls_stderr)", &format!("query = '{query}'"));
    let ratio = stderr("SELECT $1, $2") / stderr("SELECT f()");
    assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
}

#[test]
fn utility_statements_are_drawn_with_what_they_execute() {
    let db = ALONE.database();
    let n = 400;
    execute(&db, &["pgss_rs.sample_rate=0.5", "pgss_rs.track=all"], "DO 'BEGIN PERFORM 1; END'", n);
    let sampled = |toplevel: bool| db.number("sum(sampled_calls)", &format!("toplevel = {toplevel}"));
    let drawn = sampled(true);
    assert!((drawn - 200.0).abs() < SIGMAS * f64::sqrt(n as f64) / 2.0, "{drawn}");
    assert_eq!(sampled(false), drawn);
}

#[test]
fn planning_and_execution_share_one_draw() {
    let db = ALONE.database();
    let n = 600;
    execute(&db, &["pgss_rs.sample_rate=0.5", "pgss_rs.track_planning=on"], "SELECT 1", n);
    let (plans, calls) = (db.number("max(plans)", "true"), db.number("max(calls)", "true"));
    assert_eq!(plans, calls);
    let deviation = (n as f64).sqrt();
    assert!((calls - n as f64).abs() < SIGMAS * deviation, "{calls}");
    // planned with every execution, in the extended protocol
    let mut session = db.session_with(&[
        "pgss_rs.sample_rate=0.5",
        "pgss_rs.track_planning=on",
        "plan_cache_mode=force_custom_plan",
    ]);
    let statement = session.prepare("SELECT $1::int + 1").unwrap();
    for _ in 0..n {
        session.query(&statement, &[&1i32]).unwrap();
    }
    let of = "query = 'SELECT $1::int + $2'";
    assert_eq!(db.number("max(plans)", of), db.number("max(calls)", of));
}

#[test]
fn prepared_executions_are_drawn_one_by_one() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.sample_rate=0.2", "plan_cache_mode=force_generic_plan"]);
    let statement = session.prepare("SELECT $1::int").unwrap();
    let n = 2000;
    for _ in 0..n {
        session.query(&statement, &[&1i32]).unwrap();
    }
    let calls = db.number("sum(calls)", "true");
    assert!((calls - f64::from(n)).abs() < SIGMAS * (f64::from(n) * 0.8 / 0.2).sqrt(), "{calls}");
    assert!(db.number("sum(sampled_calls)", "true") < f64::from(n) * 0.4);
}

#[test]
fn a_rate_next_to_0_draws_nothing_and_breaks_nothing() {
    for rate in ["1e-300", "1e-30", "1e-12"] {
        let db = ALONE.database();
        execute(&db, &[&format!("pgss_rs.sample_rate={rate}")], "SELECT 1", 1000);
        assert_eq!(db.entries(), [], "{rate}");
    }
}

#[test]
fn a_rate_next_to_1_counts_nearly_everything() {
    let db = ALONE.database();
    execute(&db, &["pgss_rs.sample_rate=0.9999999999999999"], "SELECT 1", 1000);
    assert_eq!(db.calls_and_rows("SELECT $1", true), (1000, 1000));
    assert!(db.number("max(calls_stderr)", "true") < 1e-4);
}

#[test]
fn counts_of_a_sample_that_were_evicted_are_kept_in_the_totals() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "100"), ("pgss_rs.sample_rate", "0.5")]);
    let mut session = connect(&cluster, "postgres");
    session.batch_execute("SET pgss_rs.track_utility = off; SELECT pgss_rs_reset()").unwrap();
    let n = 4000;
    session.batch_execute(&(0..n).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    session.batch_execute("SET pgss_rs.track = 'none'").unwrap();
    let sum = "SELECT sum(calls) + (SELECT evicted_calls FROM pgss_rs_info) FROM pgss_rs_stats";
    let calls = number(&mut session, sum);
    assert!((calls - f64::from(n)).abs() < SIGMAS * f64::from(n).sqrt(), "{calls}");
    assert_eq!(number(&mut session, "SELECT skipped FROM pgss_rs_info"), 0.0);
}

#[test]
fn the_error_of_nested_statements_is_right_after_failed_top_level_statements() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS
         'BEGIN PERFORM 1, 2; RAISE EXCEPTION ''on purpose''; END';
         CREATE FUNCTION works() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 1, 2; END'",
    );
    let mut session = db.session_with(&["pgss_rs.sample_rate=0.5", "pgss_rs.track=all"]);
    let n = 600;
    for _ in 0..n {
        session.batch_execute("SELECT fails()").unwrap_err();
    }
    session.batch_execute(&"SELECT works();".repeat(20)).unwrap();
    let theory = f64::from(n + 20).sqrt();
    let calls = db.number("sum(calls)", "NOT toplevel");
    assert!((calls - f64::from(n + 20)).abs() < SIGMAS * theory, "{calls}");
    let stderr = db.number("max(calls_stderr)", "NOT toplevel");
    assert!((stderr / theory - 1.0).abs() < 0.25, "{stderr}, not {theory}");
}
