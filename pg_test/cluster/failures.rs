//! Failed executions: which are counted, for whom, and how.

use crate::cluster::Shutdown;
use crate::servers::{ALONE, Database, major, since, start_with_pgss_rs};
use postgres::Client;
use std::time::Duration;

const FUNCTIONS: &str = "
    CREATE TABLE t (a int PRIMARY KEY, CONSTRAINT small CHECK (a < 100));
    CREATE FUNCTION divides(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN PERFORM 10 / n FROM generate_series(1, 1); RETURN 1; END';
    CREATE FUNCTION catches(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN
         BEGIN PERFORM divides(n); EXCEPTION WHEN division_by_zero THEN RETURN 0; END;
         RETURN 1;
       END';
    CREATE FUNCTION warns() RETURNS int LANGUAGE plpgsql AS
      'BEGIN RAISE WARNING ''with a code of errors'' USING ERRCODE = ''22012''; RETURN 1; END';
    CREATE PROCEDURE ends_transactions() LANGUAGE plpgsql AS
      'BEGIN RAISE WARNING ''w'' USING ERRCODE = ''22012''; ROLLBACK; PERFORM 1; COMMIT; END';";

fn database() -> (Database<'static>, Client) {
    let db = ALONE.database();
    db.prepare(FUNCTIONS);
    let session = db.session_with(&["pgss_rs.track=all"]);
    (db, session)
}

/// Calls, errors and cancels of the entries with this text.
fn counts(db: &Database, query: &str) -> (f64, f64, f64) {
    let of = |column: &str| {
        db.number(&format!("coalesce(sum({column}), 0)"), &format!("query = '{}'", query.replace('\'', "''")))
    };
    (of("calls"), of("errors"), of("cancels"))
}

/// Class and errors, of the entries with this text.
fn classes(db: &Database, query: &str) -> Vec<(String, String)> {
    let sql = format!(
        "SELECT coalesce(sqlstate_class, 'others'), e.errors FROM pgss_rs_errors() e
         JOIN pgss_rs_stats USING (userid, dbid, toplevel, queryid)
         WHERE dbid = {} AND query = '{}' ORDER BY 1",
        db.oid,
        query.replace('\'', "''")
    );
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    db.ask(&sql).iter().map(|row| (text(&row[0]), text(&row[1]))).collect()
}

fn fail(session: &mut Client, sql: &str) {
    assert!(session.batch_execute(sql).is_err(), "{sql}");
    session.batch_execute("ROLLBACK").unwrap();
}

#[test]
fn a_failure_is_counted_apart_from_the_calls() {
    let (db, mut session) = database();
    session.batch_execute("INSERT INTO t VALUES (1)").unwrap();
    for value in [1, 1, 1000] {
        fail(&mut session, &format!("INSERT INTO t VALUES ({value})"));
    }
    let insert = "INSERT INTO t VALUES ($1)";
    assert_eq!(counts(&db, insert), (1.0, 3.0, 0.0));
    assert_eq!(classes(&db, insert), [("23".into(), "3".into())]);
    assert_eq!(db.calls_and_rows(insert, true), (1, 1));
    // those that have only failed are not among pg_stat_statements' statements
    fail(&mut session, "INSERT INTO t SELECT 1000 + 1");
    let compat = format!(
        "SELECT count(*) FROM pgss_compat.pg_stat_statements WHERE dbid = {} AND query LIKE 'INSERT%'",
        db.oid
    );
    assert_eq!(db.ask(&compat)[0][0].as_deref(), Some("1"));
    let times = "first_exec IS NOT NULL AND last_exec >= first_exec AND calls = 0 AND mean_exec_time = 0";
    assert_eq!(
        db.value(&format!("errors || ' ' || ({times})"), "query LIKE 'INSERT INTO t SELECT%'"),
        "1 true"
    );
}

#[test]
fn every_stage_of_an_execution_may_fail() {
    let (db, mut session) = database();
    db.prepare("CREATE ROLE failing_reader_of_t; GRANT SELECT ON t TO PUBLIC");
    let stages = [
        // when it is planned, as constants are folded
        ("SELECT 1 / 0", "SELECT $1 / $2", "22"),
        // when it starts, as rights are checked
        ("SET ROLE failing_reader_of_t; DELETE FROM t WHERE a = 5", "DELETE FROM t WHERE a = $1", "42"),
        // when it runs
        (
            "SELECT 10 / (a - a) FROM generate_series(1, 2) a",
            "SELECT $1 / (a - a) FROM generate_series($2, $3) a",
            "22",
        ),
    ];
    for (sql, query, class) in stages {
        fail(&mut session, sql);
        session.batch_execute("RESET ROLE").unwrap();
        assert_eq!(counts(&db, query), (0.0, 1.0, 0.0), "{sql}");
        assert_eq!(classes(&db, query), [(class.to_string(), "1".to_string())], "{sql}");
    }
    // when it finishes, as triggers fire
    db.prepare("CREATE TABLE child (a int REFERENCES t)");
    fail(&mut session, "INSERT INTO child VALUES (77)");
    assert_eq!(counts(&db, "INSERT INTO child VALUES ($1)"), (0.0, 1.0, 0.0));
    db.prepare("DROP ROLE failing_reader_of_t");
    // what has no identifier counts nowhere
    let entries = db.number("count(*)", "true");
    fail(&mut session, "SELECT nonsense");
    fail(&mut session, "SELECT FROM WHERE");
    assert_eq!(db.number("count(*)", "true"), entries);
}

#[test]
fn what_a_rolled_back_or_forgotten_cursor_was_doing_is_no_failure() {
    let (db, mut session) = database();
    session
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 100); FETCH 2 FROM c; ROLLBACK")
        .unwrap();
    assert_eq!(db.number("sum(errors)", "true"), 0.0);
    fail(
        &mut session,
        "BEGIN; DECLARE c CURSOR FOR SELECT generate_series(1, 100); FETCH 2 FROM c; SELECT 1 / 0",
    );
    assert_eq!(db.number("sum(errors)", "true"), 1.0);
    assert_eq!(counts(&db, "SELECT $1 / $2").1, 1.0);
}

#[test]
fn a_nested_failure_counts_for_everyone_it_ends_and_a_caught_one_for_no_one_else() {
    let (db, mut session) = database();
    for _ in 0..2 {
        fail(&mut session, "SELECT divides(0)");
    }
    assert_eq!(counts(&db, "SELECT divides($1)"), (0.0, 2.0, 0.0));
    let nested = "NOT toplevel AND query LIKE '%/ n FROM generate_series%'";
    assert_eq!(db.number("sum(errors)", nested), 2.0, "{:?}", db.entries());
    session.batch_execute("SELECT catches(0); SELECT catches(0); SELECT catches(1)").unwrap();
    assert_eq!(counts(&db, "SELECT catches($1)"), (3.0, 0.0, 0.0));
    assert_eq!(db.number("sum(errors)", nested), 4.0);
    assert_eq!(db.number("sum(calls)", nested), 1.0);
    assert_eq!(db.number("sum(errors)", "NOT toplevel AND query = 'SELECT divides(n)'"), 2.0);
    // savepoints likewise
    session.batch_execute("BEGIN; SAVEPOINT a").unwrap();
    assert!(session.batch_execute("SELECT divides(0)").is_err());
    session.batch_execute("ROLLBACK TO a; SELECT divides(1); COMMIT").unwrap();
    assert_eq!(counts(&db, "SELECT divides($1)"), (1.0, 3.0, 0.0));
}

#[test]
fn only_what_is_tracked_counts_its_failures() {
    let db = ALONE.database();
    db.prepare(FUNCTIONS);
    let mut session = db.session_with(&["pgss_rs.track=top", "pgss_rs.track_utility=off"]);
    fail(&mut session, "SELECT divides(0)");
    fail(&mut session, "CREATE TABLE t (a int)");
    assert_eq!(db.number("sum(errors)", "true"), 1.0);
    assert_eq!(db.number("count(*)", "NOT toplevel OR query LIKE 'CREATE%'"), 0.0);
    for setting in ["pgss_rs.track=none", "pgss_rs.sample_rate=0"] {
        fail(&mut db.session_with(&[setting]), "SELECT divides(0)");
    }
    assert_eq!(db.number("sum(errors)", "true"), 1.0);
}

#[test]
fn a_warning_with_an_errors_code_is_no_failure() {
    let (db, mut session) = database();
    for sql in ["SELECT warns()", "CALL ends_transactions()", "SELECT warns()"] {
        session.batch_execute(sql).unwrap();
    }
    session.batch_execute("BEGIN; SELECT warns(); ROLLBACK").unwrap();
    assert_eq!(db.number("sum(errors)", "true"), 0.0, "{:?}", db.entries());
    assert_eq!(counts(&db, "SELECT warns()").0, 3.0);
}

#[test]
fn utility_statements_fail_too() {
    let (db, mut session) = database();
    fail(&mut session, "CREATE TABLE t (a int)");
    fail(&mut session, "DO 'BEGIN PERFORM divides(0); END'");
    fail(&mut session, "COPY t FROM '/nonexistent'");
    let like = |start: &str| db.number("sum(errors)", &format!("query LIKE '{start}%' AND calls = 0"));
    assert_eq!([like("CREATE TABLE t"), like("DO"), like("COPY t")], [1.0; 3]);
    assert_eq!(db.number("count(*)", "query LIKE '%nonexistent%'"), since(16, 0.0, 1.0), "on {}", major());
}

#[test]
fn cancels_are_counted_with_the_time_they_took() {
    let (db, mut session) = database();
    session.batch_execute("SET statement_timeout = '50ms'").unwrap();
    fail(&mut session, "SELECT pg_sleep(10)");
    session.batch_execute("SET statement_timeout = 0").unwrap();
    let cancel = session.cancel_token();
    let canceler = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        cancel.cancel_query(postgres::NoTls).unwrap();
    });
    fail(&mut session, "SELECT pg_sleep(60)");
    canceler.join().unwrap();
    assert_eq!(counts(&db, "SELECT pg_sleep($1)"), (0.0, 2.0, 2.0));
    let time = db.number("total_error_time", "query = 'SELECT pg_sleep($1)'");
    assert!((50.0..60_000.0).contains(&time), "{time}");
    assert_eq!(classes(&db, "SELECT pg_sleep($1)"), [("57".into(), "2".into())]);
}

#[test]
fn a_terminated_sessions_statement_failed() {
    let (db, session) = database();
    let mut session = session;
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let sleeping =
        std::thread::spawn(move || session.batch_execute("SELECT pg_sleep(60), 'terminated'").is_err());
    let running =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'");
    while db.ask(&running)[0][0].as_deref() != Some("1") {
        std::thread::sleep(Duration::from_millis(20));
    }
    db.ask(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
    assert!(sleeping.join().unwrap());
    assert_eq!(counts(&db, "SELECT pg_sleep($1), $2"), (0.0, 1.0, 0.0));
    assert_eq!(classes(&db, "SELECT pg_sleep($1), $2"), [("57".into(), "1".into())]);
}

#[test]
fn more_classes_than_there_are_places_for_are_told_together() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE FUNCTION raises(code text) RETURNS int LANGUAGE plpgsql AS
           'BEGIN RAISE EXCEPTION ''x'' USING ERRCODE = code; END'",
    );
    for code in ["22012", "23505", "40001", "22003", "53100", "57014", "P0001", "XX000"] {
        fail(&mut session, &format!("SELECT raises('{code}')"));
    }
    let told = ["22", "23", "40", "53", "others"].map(str::to_string);
    assert_eq!(
        classes(&db, "SELECT raises($1)"),
        told.into_iter().zip(["2", "1", "1", "1", "3"].map(str::to_string)).collect::<Vec<_>>()
    );
    assert_eq!(counts(&db, "SELECT raises($1)"), (0.0, 8.0, 1.0));
}

#[test]
fn in_a_sample_failures_with_an_identifier_are_all_kept() {
    let db = ALONE.database();
    db.prepare(FUNCTIONS);
    let mut session = db.session_with(&["pgss_rs.sample_rate=0.05", "pgss_rs.track=all"]);
    let prepared = session.prepare("SELECT divides($1)").unwrap();
    for _ in 0..200 {
        assert!(session.query(&prepared, &[&0i32]).is_err());
    }
    session.batch_execute("ROLLBACK").unwrap(); // an error is told before the abort, in which it is counted
    assert_eq!(counts(&db, "SELECT divides($1)").1, 200.0);
    assert_eq!(db.number("sum(errors)", "NOT toplevel"), 200.0);
    // without one they are drawn as everything else, and stand for the others
    for _ in 0..4000 {
        assert!(session.batch_execute("SELECT 10 / (a - a) FROM generate_series(1, 2) a").is_err());
    }
    session.batch_execute("ROLLBACK").unwrap();
    let errors = counts(&db, "SELECT $1 / (a - a) FROM generate_series($2, $3) a").1;
    let sigma = f64::sqrt(4000.0 * 0.95 / 0.05);
    assert!((errors - 4000.0).abs() < 5.0 * sigma, "{errors}");
    assert_eq!(errors % 20.0, 0.0);
}

/// What is not drawn has no record, and its failing is noticed all the same.
#[test]
fn failures_of_what_is_not_drawn_count_for_who_executes_it() {
    let db = ALONE.database();
    db.prepare(FUNCTIONS);
    db.prepare(
        "CREATE ROLE failing_undrawn; GRANT SELECT ON t TO PUBLIC;
         CREATE FUNCTION divides_as_owner(n int) RETURNS int SECURITY DEFINER LANGUAGE plpgsql AS
           'BEGIN PERFORM 10 / n FROM generate_series(1, 1); RETURN 1; END'",
    );
    let mut session = db.session_with(&[
        "pgss_rs.sample_rate=1e-12",
        "pgss_rs.track=all",
        "plan_cache_mode=force_generic_plan",
    ]);
    let errors = |db: &Database, query: &str, role: &str| {
        db.number(
            "coalesce(sum(errors), 0)",
            &format!("toplevel AND query = '{query}' AND userid = '{role}'::regrole"),
        )
    };
    let owner = session.query_one("SELECT current_user::text", &[]).unwrap().get::<_, String>(0);
    let divides = session.prepare("SELECT divides_as_owner($1)").unwrap();
    let deletes = session.prepare("DELETE FROM t WHERE a = $1").unwrap();
    let query = "SELECT divides_as_owner($1)";
    for (role, failures) in [("failing_undrawn", 3), (owner.as_str(), 2)] {
        session.batch_execute(&format!("SET ROLE {role}")).unwrap();
        for _ in 0..failures {
            assert!(session.query(&divides, &[&0i32]).is_err());
            // what succeeds between them takes none of them away, nor adds one
            session.query(&divides, &[&1i32]).unwrap();
        }
        assert_eq!(errors(&db, query, role), f64::from(failures), "{role}");
        // one that fails as it starts
        assert_eq!(session.query(&deletes, &[&1i32]).is_err(), role != owner);
    }
    session.batch_execute("RESET ROLE").unwrap();
    assert_eq!(errors(&db, "DELETE FROM t WHERE a = $1", "failing_undrawn"), 1.0);
    assert_eq!(errors(&db, "DELETE FROM t WHERE a = $1", &owner), 0.0);
    // the same by EXECUTE, whose text is not the message's
    session.batch_execute("PREPARE executed AS SELECT divides_as_owner($1) IS NULL").unwrap();
    fail(&mut session, "EXECUTE executed(0)");
    session.batch_execute("EXECUTE executed(1)").unwrap();
    assert_eq!(errors(&db, "PREPARE executed AS SELECT divides_as_owner($1) IS NULL", &owner), 1.0);
    // caught further in, or no error at all
    let catches = session.prepare("SELECT catches($1), warns()").unwrap();
    session.query(&catches, &[&0i32]).unwrap();
    assert_eq!(errors(&db, "SELECT catches($1), warns()", &owner), 0.0);
    assert_eq!(db.number("sum(errors)", "NOT toplevel AND query = 'SELECT divides(n)'"), 1.0);
    db.prepare("DROP ROLE failing_undrawn");
}

/// What a deferred trigger executes at the commit is never taken for the next statement of the client's.
#[test]
fn failures_of_deferred_triggers_are_nested_when_nothing_is_drawn() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE d (a int);
         CREATE FUNCTION divides_late() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM 10 / NEW.a AS late; RETURN NEW; END';
         CREATE CONSTRAINT TRIGGER c AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION divides_late()",
    );
    let mut session = db.session_with(&[
        "pgss_rs.sample_rate=1e-12",
        "pgss_rs.track=all",
        "plan_cache_mode=force_generic_plan",
    ]);
    let insert = session.prepare("INSERT INTO d VALUES ($1)").unwrap();
    let select = session.prepare("SELECT $1::int").unwrap();
    for failures in 1..=3 {
        session.query(&select, &[&1i32]).unwrap();
        session.query(&insert, &[&1i32]).unwrap();
        session.query(&select, &[&1i32]).unwrap();
        let failed = match failures {
            1 => session.query(&insert, &[&0i32]).is_err(),
            2 => {
                let mut transaction = session.transaction().unwrap();
                transaction.query(&insert, &[&0i32]).unwrap();
                transaction.query(&select, &[&0i32]).unwrap();
                transaction.commit().is_err()
            }
            _ => session.batch_execute("COPY d FROM PROGRAM 'echo 0'").is_err(),
        };
        assert!(failed);
        session.batch_execute("ROLLBACK").unwrap();
        let late =
            |of: &str| db.number("coalesce(sum(errors), 0)", &format!("{of} AND query LIKE '%AS late'"));
        assert_eq!((late("NOT toplevel"), late("toplevel")), (f64::from(failures), 0.0));
    }
}

/// The portals of the protocol: each of two is run in turn with the other, so that neither is the one that started last.
#[test]
fn failures_of_portals_in_turn_are_each_their_own() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.sample_rate=1e-12", "plan_cache_mode=force_generic_plan"]);
    let first = session.prepare("SELECT 10 / (3 - a), 'first' FROM generate_series(1, $1) a").unwrap();
    let second = session.prepare("SELECT 10 / (3 - a), 'second' FROM generate_series(1, $1) a").unwrap();
    let errors = |db: &Database, which: &str| {
        db.number("coalesce(sum(errors), 0)", &format!("query LIKE 'SELECT $_ / ($_ - a), $_ FROM%' {which}"))
    };
    let mut transaction = session.transaction().unwrap();
    let portals = [&first, &second].map(|statement| transaction.bind(statement, &[&5i32]).unwrap());
    for portal in [0, 1, 0, 1] {
        transaction.query_portal(&portals[portal], 1).unwrap();
    }
    assert!(transaction.query_portal(&portals[0], 1).is_err());
    drop(transaction);
    assert_eq!(errors(&db, ""), 1.0);
    // the one that fails is the one at work, whichever started last and whatever the rate is by then
    for (rate, fails) in [("1e-12", 1), ("1", 0), ("0", 1), ("1", 1)] {
        let mut transaction = session.transaction().unwrap();
        let portals = [&first, &second].map(|statement| transaction.bind(statement, &[&5i32]).unwrap());
        transaction.query_portal(&portals[1 - fails], 2).unwrap();
        transaction.batch_execute(&format!("SET LOCAL pgss_rs.sample_rate = {rate}")).unwrap();
        let before = errors(&db, "");
        assert!(transaction.query_portal(&portals[fails], 3).is_err());
        drop(transaction);
        assert_eq!(errors(&db, "") - before, if rate == "0" { 0.0 } else { 1.0 }, "{rate}");
    }
}

#[test]
fn failures_are_kept_over_a_restart_and_counted_when_evicted() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.max", "100")]);
    let mut session = crate::servers::connect(&cluster, "postgres");
    for _ in 0..3 {
        fail(&mut session, "SELECT 1 / 0");
    }
    drop(session);
    cluster.restart(Shutdown::Fast).unwrap();
    let mut session = crate::servers::connect(&cluster, "postgres");
    let errors = "SELECT errors FROM pgss_rs_stats WHERE query = 'SELECT $1 / $2'";
    assert_eq!(crate::servers::number(&mut session, errors), 3.0);
    assert_eq!(crate::servers::value(&mut session, "SELECT sqlstate_class FROM pgss_rs_errors()"), "22");
    for round in 0..5 {
        for n in 0..1000 {
            session.batch_execute(&format!("{} + {round}::int8", crate::servers::distinct(n))).unwrap();
        }
    }
    let total =
        "SELECT coalesce((SELECT sum(errors) FROM pgss_rs_stats), 0) + evicted_errors FROM pgss_rs_info";
    assert_eq!(crate::servers::number(&mut session, total), 3.0);
}
