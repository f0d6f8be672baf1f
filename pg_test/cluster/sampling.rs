//! Sampling: what is not drawn is not recorded, and totals are estimates without bias.
//!
//! Bounds are five standard deviations wide: they fail once in two million runs.

use postgres::Client;

use crate::servers::{
    ALONE, BESIDE, Database, connect, distinct, lacks, number, rows, start_with_pgss_rs, value,
};

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
fn within_a_budget_hot_statements_are_thinned_and_rare_ones_are_not() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, "postgres");
    session.batch_execute("SET pgss_rs.max_overhead = 0.2").unwrap();
    let (hot, rare) = (session.prepare("SELECT 1").unwrap(), session.prepare("SELECT 'rare', 2").unwrap());
    for n in 0..40_000 {
        session.query(&hot, &[]).unwrap();
        // at most once in a window of 1,024, however small the budget
        if n % 2000 == 1999 {
            session.query(&rare, &[]).unwrap();
        }
    }
    let mut of = |column: &str, query: &str| {
        number(&mut session, &format!("SELECT {column} FROM pgss_rs_stats WHERE query = '{query}'"))
    };
    let (calls, stderr, looked) =
        (of("calls", "SELECT $1"), of("calls_stderr", "SELECT $1"), of("sampled_calls", "SELECT $1"));
    assert!(looked < 20_000.0 && stderr > 0.0, "{looked} +- {stderr}");
    assert!((calls - 40_000.0).abs() < SIGMAS * stderr, "{calls} +- {stderr}");
    let of_rare = ["calls", "sampled_calls", "calls_stderr"].map(|column| of(column, "SELECT $1, $2"));
    assert_eq!(of_rare, [20.0, 20.0, 0.0]);
    let thinned = number(&mut session, "SELECT thinned_calls FROM pgss_rs_info WHERE last_thinned <= now()");
    assert!((thinned / (40_000.0 - looked) - 1.0).abs() < 0.2, "{thinned}");
}

#[test]
fn within_a_budget_nested_statements_and_client_statements_are_thinned_without_bias() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.track", "all"), ("pgss_rs.max_overhead", "0.2")]);
    let mut session = connect(&cluster, "postgres");
    let sql = "DO $$ BEGIN FOR i IN 1..2000 LOOP PERFORM i + 1; END LOOP; PERFORM 'once'; END $$";
    for rate in ["1", "0.5"] {
        session.batch_execute(&format!("SELECT pgss_rs_reset(); SET pgss_rs.sample_rate = {rate}")).unwrap();
        for _ in 0..30 {
            // in the simple protocol it would be thinned with all others there
            session.execute(sql, &[]).unwrap();
        }
        session.batch_execute(&"SELECT 1 AS of_clients;".repeat(10_000)).unwrap();
        session.batch_execute("SET pgss_rs.sample_rate = 0").unwrap();
        let mut of = |column: &str, query: &str| {
            let sql =
                format!("SELECT coalesce(sum({column}), 0) FROM pgss_rs_stats WHERE query LIKE '{query}'");
            number(&mut session, &sql)
        };
        for (query, executed) in [("SELECT i + $%", 60_000.0), ("%of_clients", 10_000.0)] {
            let (calls, stderr, looked) =
                (of("calls", query), of("calls_stderr", query), of("sampled_calls", query));
            assert!(looked < 0.8 * executed, "{looked} of {query} at {rate}");
            assert!(
                (calls - executed).abs() < SIGMAS * stderr,
                "{calls} +- {stderr} of {looked}, not {executed}: {query} at {rate}; {:?}",
                rows(&mut session, "SELECT query, calls, sampled_calls, calls_stderr FROM pgss_rs_stats")
            );
        }
    }
}

/// The end of a window of the budget must not cost the draw that is due. Of these only what one window of 1,024 grants
/// whatever it costs is looked at, so that the variance is at most 1,024 for each.
#[test]
fn within_a_budget_utility_statements_are_thinned_without_bias() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max_overhead", "0.0001")]);
    let mut session = connect(&cluster, "postgres");
    let executed = 200_000.0;
    for _ in 0..200 {
        session.batch_execute(&"UNLISTEN anything;".repeat(1000)).unwrap();
    }
    session.batch_execute("SET pgss_rs.track = 'none'").unwrap();
    let calls = "SELECT coalesce(sum(calls), 0) FROM pgss_rs_stats WHERE query LIKE 'UNLISTEN%'";
    let calls = number(&mut session, calls);
    assert!((calls - executed).abs() < SIGMAS * f64::sqrt(executed * 1024.0), "{calls}, not {executed}");
}

#[test]
fn the_hooks_say_what_they_cost() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, "postgres");
    let told = "SELECT recording_ns IS NULL OR recording_ns > 0 AND recording_share > 0 FROM pgss_rs_info";
    assert_eq!(value(&mut session, told), "t");
    session.batch_execute(&"SELECT 1;".repeat(5000)).unwrap();
    let told =
        "SELECT recording_ns BETWEEN 1 AND 1e6 AND recording_share BETWEEN 0.001 AND 1e5 FROM pgss_rs_info";
    assert_eq!(value(&mut session, told), "t");
    session.batch_execute("SELECT pgss_rs_reset()").unwrap();
    assert_eq!(
        value(&mut session, "SELECT recording_ns IS NULL AND thinned_calls = 0 FROM pgss_rs_info"),
        "t"
    );
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
    // however full it is, each stands for two
    let others =
        "SELECT count(*) FROM pgss_rs_stats WHERE calls <> 2 * sampled_calls AND query LIKE 'SELECT $1%'";
    assert_eq!(number(&mut session, others), 0.0);
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

/// The variance of calls where each draw of weight 2 has added so many: 2 (2 - 1) n^2 for each.
fn assert_calls_variance(db: &Database, of: &str, draws: &[(f64, f64)]) {
    let variance = db.number("calls_stderr ^ 2", of);
    let theory: f64 = draws.iter().map(|(draws, calls)| draws * 2.0 * calls * calls).sum();
    assert!((variance / theory - 1.0).abs() < 1e-9, "{variance}, not {theory}");
}

#[test]
fn statements_that_a_rule_makes_of_one_count_as_one_draw() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (a int); CREATE TABLE log (a int);
         CREATE RULE twice AS ON INSERT TO t DO ALSO (INSERT INTO log VALUES (1); INSERT INTO log VALUES (2))",
    );
    execute(&db, &["pgss_rs.sample_rate=0.5"], "INSERT INTO t VALUES (0)", 300);
    let of = "query = 'INSERT INTO t VALUES ($1)'";
    let sampled = db.number("sampled_calls", of);
    assert!(sampled > 0.0 && sampled % 3.0 == 0.0, "{sampled}");
    assert_calls_variance(&db, of, &[(sampled / 3.0, 3.0)]);
}

#[test]
fn portals_that_take_turns_keep_what_is_nested_in_each_to_its_own_draw() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION nests(n int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM n AS nested_in_portal; RETURN n; END'",
    );
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.sample_rate=0.5"]);
    for _ in 0..50 {
        let mut transaction = session.transaction().unwrap();
        let six = transaction.bind("SELECT nests(n) + 1 FROM generate_series(1, 6) n", &[]).unwrap();
        let four = transaction.bind("SELECT nests(n) - 1 FROM generate_series(1, 4) n", &[]).unwrap();
        for _ in 0..2 {
            assert_eq!(transaction.query_portal(&six, 3).unwrap().len(), 3);
            assert_eq!(transaction.query_portal(&four, 2).unwrap().len(), 2);
        }
        transaction.commit().unwrap();
    }
    let drawn = |operator: char| {
        db.number("coalesce(sum(sampled_calls), 0)", &format!("query LIKE 'SELECT nests(n) {operator} %'"))
    };
    let nested = "query = 'SELECT n AS nested_in_portal'";
    assert_eq!(db.number("sampled_calls", nested), 6.0 * drawn('+') + 4.0 * drawn('-'));
    assert_calls_variance(&db, nested, &[(drawn('+'), 6.0), (drawn('-'), 4.0)]);
}

#[test]
fn what_a_statement_executes_and_what_its_commit_does_count_as_one_draw() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (a int);
         CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1, 2; RETURN NEW; END';
         CREATE TRIGGER now AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION on_insert();
         CREATE CONSTRAINT TRIGGER later AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION on_insert()",
    );
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.sample_rate=0.5"]);
    for _ in 0..200 {
        session.batch_execute("INSERT INTO t VALUES (0)").unwrap();
    }
    let drawn = db.number("sampled_calls", "query = 'INSERT INTO t VALUES ($1)'");
    assert_eq!(db.number("sampled_calls", "query = 'SELECT $1, $2'"), 2.0 * drawn);
    assert_calls_variance(&db, "query = 'SELECT $1, $2'", &[(drawn, 2.0)]);
}

/// Two sessions at once send each of the messages, so many times at one rate and then at the other.
fn send_at_two_rates(db: &Database, settings: &[&str], messages: &[String], times: [(f64, usize); 2]) {
    let settings = [settings, &["pgss_rs.track_utility=off"]].concat();
    let work = |mut session: Client| {
        session.batch_execute("PREPARE p(int) AS SELECT FROM generate_series(1, $1)").unwrap();
        for (rate, times) in times {
            session.batch_execute(&format!("SET pgss_rs.sample_rate = {rate}")).unwrap();
            for message in (0..times).flat_map(|_| messages) {
                session.batch_execute(message).unwrap();
            }
        }
    };
    let sessions = [db.session_with(&settings), db.session_with(&settings)];
    std::thread::scope(|scope| {
        for session in sessions {
            scope.spawn(|| work(session));
        }
    });
}

/// Each number is allowed 5.5 standard deviations: eight of them are all within in all but one of three million runs.
#[test]
fn two_hundred_thousand_executions_at_two_rates_are_estimated_within_their_errors() {
    const DEVIATIONS: f64 = 5.5;
    let db = ALONE.database();
    // 0 to 4 rows each; drawn at analysis, and at the start of the execution
    let texts: String = (0..1000).map(|n| format!("SELECT FROM generate_series(1, {});", n % 5)).collect();
    let executes: String = (0..1000).map(|n| format!("EXECUTE p({});", n % 5)).collect();
    send_at_two_rates(&db, &[], &[texts, executes], [(0.5, 25), (0.1, 25)]);
    for of in ["query = 'SELECT FROM generate_series($1, $2)'", "query LIKE 'PREPARE p(int) AS%'"] {
        let near = |what: &str, is: f64, expected: f64, deviation: f64| {
            assert!(
                (is - expected).abs() < DEVIATIONS * deviation,
                "{what} where {of}: {is}, not {expected}"
            );
        };
        // in each entry 50,000 executions at each rate, each of variance (1 - p) / p; 0 to 4 rows are 30 squared a five
        let n = 50_000.0;
        let variance = n * (1.0 + 9.0);
        near("calls", db.number("calls", of), 2.0 * n, variance.sqrt());
        near("rows", db.number("rows", of), 2.0 * n * 2.0, (variance * 6.0).sqrt());
        let drawn_variance = n * (0.5 * 0.5 + 0.1 * 0.9);
        near("sampled calls", db.number("sampled_calls", of), n * 0.6, drawn_variance.sqrt());
        // what is drawn adds 2 (2 - 1), or 10 (10 - 1)
        let of_the_variance = n * (2.0 * 2.0 * 0.5 * 0.5 + 90.0 * 90.0 * 0.1 * 0.9);
        near("squared error", db.number("calls_stderr ^ 2", of), variance, of_the_variance.sqrt());
    }
}

/// Here the truth is what pg_stat_statements measured of the same executions. How long they take is the machine's affair,
/// so that no distribution can be taken for granted; but Bernstein's inequality bounds the error of a sum by the variance
/// and the largest possible value of its terms alone: the probability that it is beyond x is at most
/// 2 exp(-x^2 / 2 / (V + M x / 3)).
#[test]
fn total_time_of_a_sample_is_near_what_pg_stat_statements_measured() {
    if lacks("pg_stat_statements") {
        return;
    }
    const FALSE_ALARM: f64 = 5e-7;
    let db = BESIDE.database();
    let message = "SELECT count(*) FROM generate_series(1, 2000);".repeat(100);
    send_at_two_rates(&db, &["pg_stat_statements.track_utility=off"], &[message], [(0.5, 30), (0.25, 30)]);

    let of = "query = 'SELECT count(*) FROM generate_series($1, $2)'";
    let columns = "calls, total_exec_time, mean_exec_time, stddev_exec_time, max_exec_time";
    let truth = db.ask(&format!("SELECT {columns} FROM pg_stat_statements WHERE dbid = {} AND {of}", db.oid));
    let truth = truth[0].iter().map(|value| value.as_deref().unwrap().parse::<f64>().unwrap());
    let [calls, total, mean, stddev, max] = truth.collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(calls, 12_000.0);
    // as if all had been drawn at the lower rate
    let odds = 3.0;
    let variance = odds * calls * (mean * mean + stddev * stddev);
    let (l, linear) = ((2.0 / FALSE_ALARM).ln(), (2.0 / FALSE_ALARM).ln() * odds * max / 3.0);
    let bound = linear + (linear * linear + 2.0 * l * variance).sqrt();
    // and pg_stat_statements' own readings of the clock are in our times
    let estimate = db.number("total_exec_time", of);
    assert!((estimate - total).abs() < bound + 0.05 * total, "{estimate} for {total}, +- {bound}");
}

#[test]
fn the_error_of_total_time_is_what_times_and_weights_make_it() {
    let db = ALONE.database();
    let rate = 0.25;
    execute(
        &db,
        &[&format!("pgss_rs.sample_rate={rate}")],
        "SELECT count(*) FROM generate_series(1, 200)",
        2000,
    );
    // at one rate the sum of w (w - 1) t^2 is w - 1 times that of w t^2, which mean and deviation tell
    let squares = "calls * (mean_exec_time ^ 2 + stddev_exec_time ^ 2)";
    let theory = (1.0 / rate - 1.0) * db.number(squares, "true");
    let variance = db.number("total_exec_time_stderr ^ 2", "true");
    assert!((variance / theory - 1.0).abs() < 1e-9, "{variance}, not {theory}");
}
