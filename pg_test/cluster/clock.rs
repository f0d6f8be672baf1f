//! The clock that times statements: each source tells the time, whenever the source is changed.
//!
//! Bounds are wide: what a statement must at least take, less the 1 % that the clocks may differ by, and what its client
//! saw pass.

use std::time::Instant;

use postgres::Client;

use crate::servers::{ALONE, Database, error_of, sqlstate_of, value};

const SOURCES: [&str; 3] = ["auto", "system", "tsc"];

/// The sources that there are on this machine.
fn sources(session: &mut Client) -> Vec<&'static str> {
    let refused = |e: postgres::Error| {
        let e = crate::servers::db_error(&e, "tsc");
        assert_eq!(e.code().code(), "22023");
        assert_eq!(e.detail(), Some("This processor has no invariant time stamp counter."));
        assert_eq!(e.hint(), Some("Use \"auto\" or \"system\"."));
    };
    let mut there = Vec::new();
    for source in SOURCES {
        match session.batch_execute(&format!("SET pgss_rs.timing_clock_source = {source}")) {
            Ok(()) => there.push(source),
            Err(e) => {
                assert_eq!(source, "tsc", "{e}");
                refused(e);
            }
        }
    }
    session.batch_execute("RESET pgss_rs.timing_clock_source").unwrap();
    there
}

/// A function that sets the source.
const SETS: &str = "CREATE FUNCTION use(source text) RETURNS void LANGUAGE sql VOLATILE AS
    $$ SELECT set_config('pgss_rs.timing_clock_source', source, false) $$";

/// Runs `sql`, whose statements are to take at least `ms`, and asserts that each of the entries like `query` took that
/// in each call, and no more than passed.
fn assert_times(db: &Database, session: &mut Client, sql: &str, query: &str, ms: f64) {
    db.reset();
    let begin = Instant::now();
    session.batch_execute(sql).unwrap();
    let passed = begin.elapsed().as_secs_f64() * 1000.0;
    let of = format!("query LIKE '{query}'");
    assert!(db.number("count(*)", &of) > 0.0, "{sql}: {:#?}", db.entries());
    let (least, most) = (db.number("min(min_exec_time)", &of), db.number("max(total_exec_time)", &of));
    assert!(least >= 0.99 * ms, "{least} ms, not {ms}: {sql}");
    assert!(most <= 1.01 * passed + 1.0, "{most} ms, not {passed}: {sql}");
    assert!(db.number("min(min_exec_time)", "true") >= 0.0);
    assert!(db.number("max(max_exec_time)", "true") <= 1.01 * passed + 1.0);
}

#[test]
fn each_source_tells_the_time() {
    let db = ALONE.database();
    for source in sources(&mut db.session()) {
        let set = format!("pgss_rs.timing_clock_source={source}");
        let mut session = db.session_with(&[&set]);
        for _ in 0..3 {
            assert_times(&db, &mut session, "SELECT pg_sleep(0.05)", "SELECT pg_sleep%", 50.0);
            assert_times(
                &db,
                &mut session,
                "SELECT pg_sleep(0.01); SELECT pg_sleep(0.01)",
                "SELECT pg_sleep%",
                10.0,
            );
        }
        assert_times(&db, &mut session, "DO 'BEGIN PERFORM pg_sleep(0.05); END'", "DO%", 50.0);
        session.batch_execute("SET pgss_rs.track_planning = on").unwrap();
        session.batch_execute("SELECT 1").unwrap();
        let plan = db.number("max(total_plan_time)", "query = 'SELECT $1'");
        assert!(plan > 0.0 && plan < 5000.0, "{plan}");
    }
}

#[test]
fn long_statements_within_each_other_take_what_they_take() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION inner_one() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); END';
         CREATE FUNCTION outer_one() RETURNS void LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(0.1); PERFORM inner_one(); PERFORM pg_sleep(0.1); END'",
    );
    for source in sources(&mut db.session()) {
        let set = format!("pgss_rs.timing_clock_source={source}");
        let mut session = db.session_with(&[&set, "pgss_rs.track=all"]);
        for _ in 0..2 {
            assert_times(&db, &mut session, "SELECT outer_one()", "SELECT outer_one()", 300.0);
            let time = |query: &str| db.number("sum(total_exec_time)", &format!("query = '{query}'"));
            let (all, inner, slept) =
                (time("SELECT outer_one()"), time("SELECT inner_one()"), time("SELECT pg_sleep($1)"));
            assert!(inner >= 99.0 && slept >= 297.0, "{inner} {slept}");
            assert!(inner <= 1.01 * all && slept <= 1.01 * all, "{inner}, {slept} in {all}");
        }
    }
}

#[test]
fn a_change_of_the_source_between_statements_leaves_their_times_right() {
    let db = ALONE.database();
    let mut session = db.session();
    let sources = sources(&mut session);
    for from in &sources {
        for to in &sources {
            let sql = format!(
                "SET pgss_rs.timing_clock_source = {from}; SELECT pg_sleep(0.02);
                 SET pgss_rs.timing_clock_source = {to}; SELECT pg_sleep(0.02)"
            );
            assert_times(&db, &mut session, &sql, "SELECT pg_sleep%", 20.0);
        }
    }
}

#[test]
fn a_change_of_the_source_within_a_statement_leaves_its_time_right() {
    let db = ALONE.database();
    db.prepare(SETS);
    for track in ["top", "all"] {
        let mut session = db.session_with(&[&format!("pgss_rs.track={track}")]);
        let sources = sources(&mut session);
        for from in &sources {
            for by in &sources {
                for to in &sources {
                    session
                        .batch_execute(&format!("SET pgss_rs.timing_clock_source = {from}; SELECT 1"))
                        .unwrap();
                    let sql = format!(
                        "SELECT pg_sleep(0.02), use('{by}'), pg_sleep(0.01), use('{to}'), pg_sleep(0.01) FROM pg_sleep(0.02)"
                    );
                    assert_times(&db, &mut session, &sql, "SELECT pg_sleep%", 60.0);
                    // the first change and the last at one moment
                    let sql = format!("SELECT pg_sleep(0.03), use('{by}'), use('{to}')");
                    assert_times(&db, &mut session, &sql, "SELECT pg_sleep%", 30.0);
                }
            }
        }
    }
}

#[test]
fn a_change_of_the_source_in_a_long_statement_leaves_its_time_right() {
    let db = ALONE.database();
    db.prepare(SETS);
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    for from in sources(&mut session) {
        for to in sources(&mut session) {
            session.batch_execute(&format!("SET pgss_rs.timing_clock_source = {from}; SELECT 1")).unwrap();
            let sql = format!("SELECT pg_sleep(0.1), use('{to}'), pg_sleep(0.1), use('{from}')");
            assert_times(&db, &mut session, &sql, "SELECT pg_sleep%", 200.0);
        }
    }
}

#[test]
fn a_change_of_the_source_that_is_taken_back_leaves_times_right() {
    let db = ALONE.database();
    let mut session = db.session();
    let sources = sources(&mut session);
    for from in &sources {
        for to in &sources {
            session.batch_execute(&format!("SET pgss_rs.timing_clock_source = {from}; SELECT 1")).unwrap();
            session
                .batch_execute(&format!(
                    "CREATE OR REPLACE FUNCTION under() RETURNS void LANGUAGE plpgsql
                     SET pgss_rs.timing_clock_source = {to} AS 'BEGIN NULL; END'"
                ))
                .unwrap();
            let sql = "SELECT pg_sleep(0.02), under(), under()";
            assert_times(&db, &mut session, sql, "SELECT pg_sleep%", 20.0);
            let sql = format!(
                "DO $$ BEGIN
                   PERFORM pg_sleep(0.02);
                   BEGIN
                     PERFORM set_config('pgss_rs.timing_clock_source', '{to}', false);
                     RAISE EXCEPTION 'on purpose';
                   EXCEPTION WHEN OTHERS THEN NULL;
                   END;
                 END $$"
            );
            assert_times(&db, &mut session, &sql, "DO%", 20.0);
            assert_eq!(value(&mut session, "SHOW pgss_rs.timing_clock_source"), *from);
        }
    }
}

#[test]
fn cursors_that_live_over_a_change_of_the_source_have_sane_times() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION opens() RETURNS void LANGUAGE plpgsql AS
         'DECLARE c refcursor := ''c''; BEGIN OPEN c FOR SELECT pg_sleep(0.02) FROM generate_series(1, 2); END'",
    );
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let sources = sources(&mut session);
    for from in &sources {
        for to in &sources {
            let sql = format!(
                "BEGIN; SET LOCAL pgss_rs.timing_clock_source = {from}; SELECT opens();
                 FETCH 1 FROM c; SET LOCAL pgss_rs.timing_clock_source = {to}; FETCH 1 FROM c; CLOSE c; COMMIT"
            );
            db.reset();
            let begin = Instant::now();
            session.batch_execute(&sql).unwrap();
            let passed = begin.elapsed().as_secs_f64() * 1000.0;
            let time = db.number("sum(total_exec_time)", "query LIKE '%pg_sleep%' AND NOT toplevel");
            assert!((39.6..=1.01 * passed + 1.0).contains(&time), "{time} of {passed}: {from}, {to}");
        }
    }
}

#[test]
fn the_information_names_the_clock_in_use() {
    let mut session = ALONE.database().session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let there = sources(&mut session);
    let mut used = |source: &str| {
        session.batch_execute(&format!("SET pgss_rs.timing_clock_source = {source}")).unwrap();
        value(&mut session, "SELECT clock_source FROM pgss_rs_info")
    };
    assert_eq!(used("system"), "system");
    if there.contains(&"tsc") {
        assert_eq!(used("tsc"), "tsc");
    }
    let kernels = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let relied_on = there.contains(&"tsc") && kernels.is_ok_and(|name| name.trim() == "tsc");
    assert_eq!(used("auto"), if relied_on { "tsc" } else { "system" });
}

#[test]
fn an_unknown_source_is_refused_with_those_there_are() {
    let mut session = ALONE.database().session();
    let e = error_of(&mut session, "SET pgss_rs.timing_clock_source = 'sundial'");
    assert_eq!(e.code().code(), "22023");
    assert_eq!(e.message(), "invalid value for parameter \"pgss_rs.timing_clock_source\": \"sundial\"");
    assert_eq!(e.hint(), Some("Available values: auto, system, tsc."));
    assert_eq!(value(&mut session, "SHOW pgss_rs.timing_clock_source"), "auto");
}

#[test]
fn the_source_is_for_superusers_and_whom_they_grant_it() {
    let db = ALONE.database();
    let role = format!("clock_{}", db.name);
    db.prepare(&format!("CREATE ROLE {role} LOGIN"));
    let mut session = db.session_as(&role);
    let set = "SET pgss_rs.timing_clock_source = 'system'";
    assert_eq!(sqlstate_of(&mut session, set), "42501");
    db.prepare(&format!("GRANT SET ON PARAMETER pgss_rs.timing_clock_source TO {role}"));
    session.batch_execute(set).unwrap();
    assert_eq!(value(&mut session, "SHOW pgss_rs.timing_clock_source"), "system");
}
