//! Top level or nested, whatever happened before.

use crate::servers::{ALONE, BESIDE, BESIDE_INNER, Database, Shared, asserts_wrongly, lacks, since};
use crate::text::differences;
use postgres::Client;

/// A statement that shows at which level the session believes to be.
const PROBE: &str = "SELECT pg_backend_pid() > 1";
const PROBED: &str = "SELECT pg_backend_pid() > $1";

const FUNCTIONS: &str = "
    CREATE TABLE t (a int, CONSTRAINT positive CHECK (a > 0));
    CREATE FUNCTION inner_f(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN PERFORM count(*) AS nested_probe FROM pg_class; RETURN n; END';
    CREATE FUNCTION outer_f(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN inner_f(n); END';
    CREATE FUNCTION sql_f(n int) RETURNS bigint LANGUAGE sql AS
      'SELECT count(*) AS nested_probe FROM pg_class; SELECT 5::bigint + n';
    CREATE FUNCTION fails(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN PERFORM inner_f(n); RAISE EXCEPTION ''on purpose''; END';
    CREATE FUNCTION fails_deep(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM fails(n); RETURN 1; END';
    CREATE FUNCTION catches(n int) RETURNS int LANGUAGE plpgsql AS
      'BEGIN
         BEGIN PERFORM fails_deep(n); EXCEPTION WHEN OTHERS THEN NULL; END;
         PERFORM inner_f(n);
         RETURN n;
       END';
    CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN PERFORM count(*) AS nested_probe FROM pg_class; RETURN NEW; END';
    CREATE PROCEDURE fails_in_procedure() LANGUAGE plpgsql AS 'BEGIN PERFORM fails_deep(1); END';";
const NESTED: &str = "SELECT count(*) AS nested_probe FROM pg_class";

/// The stored text of a utility statement that calls `outer_f`: from 16 on the server looks for constants in these too.
fn utility(text: &str) -> String {
    since(16, text.replace("outer_f(1)", "outer_f($1)").replace("outer_f(2)", "outer_f($1)"), text.to_owned())
}

fn database<'a>() -> (Database<'a>, Client) {
    let db = ALONE.database();
    db.prepare(FUNCTIONS);
    let session = db.session_with(&["pgss_rs.track=all"]);
    (db, session)
}

/// The next statements are at the top, and what they call is nested.
fn assert_level_right(db: &Database, session: &mut Client) {
    session.batch_execute("ROLLBACK").unwrap();
    db.reset();
    session.batch_execute(PROBE).unwrap();
    session.execute(PROBE, &[]).unwrap();
    session.batch_execute("SELECT outer_f(1) IS NULL").unwrap();
    assert_eq!(db.calls(PROBED), (2, 0), "{:#?}", db.entries());
    assert_eq!(db.calls("SELECT outer_f($1) IS NULL"), (1, 0));
    assert_eq!(db.calls(NESTED), (0, 1));
}

#[test]
fn what_a_function_executes_is_nested() {
    let (db, mut session) = database();
    session.batch_execute("SELECT outer_f(1); SELECT sql_f(2); DO 'BEGIN PERFORM inner_f(3); END'").unwrap();
    assert_eq!(db.calls("SELECT outer_f($1)"), (1, 0));
    assert_eq!(db.calls("SELECT sql_f($1)"), (1, 0));
    assert_eq!(db.calls("DO 'BEGIN PERFORM inner_f(3); END'"), (1, 0));
    assert_eq!(db.calls("SELECT inner_f($1)"), (0, 1));
    assert_eq!(db.calls(NESTED), (0, 3));
    assert_level_right(&db, &mut session);
}

#[test]
fn what_a_trigger_executes_is_nested() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION on_insert();
         CREATE TRIGGER a AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION on_insert();
         CREATE TRIGGER s AFTER INSERT ON t EXECUTE FUNCTION on_insert()",
    );
    session.batch_execute("INSERT INTO t VALUES (1), (2)").unwrap();
    assert_eq!(db.calls_and_rows("INSERT INTO t VALUES ($1), ($2)", true), (1, 2));
    assert_eq!(db.calls(NESTED), (0, 5));
    assert_level_right(&db, &mut session);
}

#[test]
fn only_the_top_level_is_recorded_by_default() {
    let (db, _) = database();
    let mut session = db.session();
    session
        .batch_execute("SELECT outer_f(1); DO 'BEGIN PERFORM inner_f(3); END'; SELECT catches(1)")
        .unwrap();
    session.batch_execute("SELECT fails_deep(1)").unwrap_err();
    session.batch_execute(PROBE).unwrap();
    let texts = db.texts();
    let top = ["DO 'BEGIN PERFORM inner_f(3); END'", "SELECT catches($1)", "SELECT outer_f($1)", PROBED];
    assert_eq!(texts, top);
}

#[test]
fn one_text_at_both_levels_has_two_entries() {
    let (db, mut session) = database();
    session.batch_execute(&format!("{NESTED}; SELECT outer_f(1); SELECT outer_f(1)")).unwrap();
    assert_eq!(db.calls(NESTED), (1, 2));
}

#[test]
fn a_procedure_that_commits_and_rolls_back_keeps_its_statements_nested() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
         BEGIN
           INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); ROLLBACK; INSERT INTO t VALUES (3);
           PERFORM inner_f(1);
           ROLLBACK; COMMIT;
           BEGIN PERFORM fails(1); EXCEPTION WHEN OTHERS THEN NULL; END;
           INSERT INTO t VALUES (4);
         END $$",
    );
    for _ in 0..2 {
        session.batch_execute("CALL p()").unwrap();
        session.batch_execute(PROBE).unwrap();
    }
    session.execute("CALL p()", &[]).unwrap();
    assert_eq!(db.calls("INSERT INTO t VALUES ($1)"), (0, 12), "{:#?}", db.entries());
    assert_eq!(db.calls("CALL p()"), (3, 0));
    assert_eq!(db.calls(PROBED), (2, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn a_procedure_that_commits_inside_a_do_block_keeps_its_statements_nested() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3); END $$",
    );
    session.batch_execute("DO 'BEGIN CALL p(); ROLLBACK; INSERT INTO t VALUES (4); END'").unwrap();
    assert_eq!(db.calls("INSERT INTO t VALUES ($1)"), (0, 4), "{:#?}", db.entries());
    assert_eq!(db.calls("CALL p()"), (0, 1));
    assert_level_right(&db, &mut session);
}

#[test]
fn a_procedure_that_fails_after_its_rollback_leaves_the_level_right() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
         BEGIN INSERT INTO t VALUES (1); ROLLBACK; INSERT INTO t VALUES (2); PERFORM fails_deep(1); END $$",
    );
    for _ in 0..2 {
        session.batch_execute("CALL p()").unwrap_err();
        session.batch_execute(PROBE).unwrap();
    }
    assert_eq!(db.calls(PROBED), (2, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn after_an_error_caught_in_a_block_the_level_is_right() {
    let (db, mut session) = database();
    session.batch_execute("SELECT catches(1)").unwrap();
    // inner_f within fails within fails_deep is recorded, although its callers failed
    assert_eq!(db.calls(NESTED), (0, 2));
    assert_eq!(db.calls("SELECT catches($1)"), (1, 0));
    assert_level_right(&db, &mut session);
    session
        .batch_execute(
            "DO $$ BEGIN FOR i IN 1..5 LOOP
               BEGIN PERFORM fails(i); EXCEPTION WHEN OTHERS THEN
                 BEGIN PERFORM fails_deep(i); EXCEPTION WHEN OTHERS THEN PERFORM inner_f(i); END;
               END;
             END LOOP; END $$",
        )
        .unwrap();
    assert_level_right(&db, &mut session);
}

#[test]
fn after_uncaught_errors_the_next_statement_is_at_the_top() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE TABLE deferred (a int);
         CREATE FUNCTION fails_in_trigger() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM fails_deep(1); RETURN NEW; END';
         CREATE CONSTRAINT TRIGGER c AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION fails_in_trigger();
         CREATE FUNCTION fails_immutable(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1 / (n - n)';
         INSERT INTO t VALUES (1)",
    );
    for failing in [
        "SELECT fails(1)",
        "SELECT fails_deep(1)",
        "CALL fails_in_procedure()",
        "DO 'BEGIN PERFORM fails_deep(1); END'",
        "SELECT 1/0",
        "SELECT nonsense",
        "SELECT FROM WHERE",
        "CREATE TABLE t (a int)",
        "CREATE TABLE x AS SELECT fails_deep(1)",
        "INSERT INTO t VALUES (-1)",
        "EXPLAIN ANALYZE SELECT fails_deep(1)",
        "COPY (SELECT fails_deep(1)) TO '/dev/null'",
        "EXECUTE nothing",
        "ROLLBACK TO nothing",
        "SELECT 1 AS before_error; SELECT fails_deep(1); SELECT 2 AS after_error",
        "BEGIN; SELECT fails_deep(1)",
        "BEGIN; DECLARE c CURSOR FOR SELECT fails_deep(1); FETCH c",
        "BEGIN; SAVEPOINT a; SELECT fails_deep(1)",
        "PREPARE failing AS SELECT fails_deep(1); EXECUTE failing",
        "CREATE MATERIALIZED VIEW m AS SELECT fails_deep(1)",
        "INSERT INTO deferred VALUES (1)",
        "BEGIN; INSERT INTO deferred VALUES (1); COMMIT",
        "BEGIN; INSERT INTO deferred VALUES (1); SET CONSTRAINTS ALL IMMEDIATE",
        "BEGIN; SAVEPOINT a; SAVEPOINT b; INSERT INTO deferred VALUES (1); RELEASE b; COMMIT",
        "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT fails_deep(1); COMMIT",
        "SET statement_timeout = '10ms'; DO 'BEGIN PERFORM inner_f(1); PERFORM pg_sleep(9); END'",
        "VACUUM nothing",
        "CREATE INDEX CONCURRENTLY ON t (fails_immutable(a))",
        "ALTER TABLE t ADD CHECK (fails_deep(1) > 0)",
        "COPY t FROM PROGRAM 'echo 1; echo x'",
    ] {
        session.batch_execute(failing).expect_err(failing);
        session.batch_execute("ROLLBACK; RESET statement_timeout; CLOSE ALL").unwrap();
        assert_level_right(&db, &mut session);
        let _ = session.execute(failing, &[]);
        assert_level_right(&db, &mut session);
    }
}

#[test]
fn after_an_error_and_a_rollback_to_a_savepoint_the_level_is_right() {
    let (db, mut session) = database();
    session.batch_execute("BEGIN; SAVEPOINT a; SAVEPOINT b").unwrap();
    session.batch_execute("SELECT fails_deep(1)").unwrap_err();
    session.batch_execute("ROLLBACK TO b; SELECT pg_backend_pid() > 1; SELECT outer_f(1)").unwrap();
    session.batch_execute("SELECT catches(1); SELECT fails(1)").unwrap_err();
    session
        .batch_execute(
            "ROLLBACK TO a; SELECT pg_backend_pid() > 1; RELEASE a; SELECT pg_backend_pid() > 1; COMMIT",
        )
        .unwrap();
    assert_eq!(db.calls(PROBED), (3, 0));
    assert_eq!(db.calls("SELECT outer_f($1)"), (1, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn errors_inside_an_aborted_transaction_leave_the_level_right() {
    let (db, mut session) = database();
    session.batch_execute("BEGIN; SAVEPOINT a").unwrap();
    session.batch_execute("SELECT fails_deep(1)").unwrap_err();
    for _ in 0..3 {
        session.batch_execute("ROLLBACK TO nonexistent").unwrap_err();
        session.batch_execute(PROBE).unwrap_err();
        session.execute("ROLLBACK TO nonexistent", &[]).unwrap_err();
        session.batch_execute("RELEASE a").unwrap_err();
    }
    session.batch_execute("ROLLBACK TO a").unwrap();
    session.batch_execute(PROBE).unwrap();
    session.batch_execute("SELECT fails_deep(1)").unwrap_err();
    session.batch_execute("ROLLBACK TO nonexistent").unwrap_err();
    session.batch_execute("COMMIT").unwrap();
    assert_eq!(db.calls(PROBED), (1, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn a_prepared_rollback_leaves_the_level_right() {
    let (db, mut session) = database();
    let rollback = session.prepare("ROLLBACK").unwrap();
    let failing = session.prepare("SELECT fails_deep(1)").unwrap();
    for _ in 0..3 {
        session.batch_execute("BEGIN").unwrap();
        session.query(&failing, &[]).unwrap_err();
        session.execute(&rollback, &[]).unwrap();
        session.batch_execute(PROBE).unwrap();
    }
    assert_eq!(db.calls(PROBED), (3, 0));
    assert_eq!(db.calls("ROLLBACK"), (3, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn what_explain_analyze_executes_is_nested() {
    let (db, mut session) = database();
    session.batch_execute("EXPLAIN (ANALYZE) SELECT outer_f(1)").unwrap();
    // what is explained shows the whole string, and before 16 a utility statement keeps its constants
    assert_eq!(db.calls("EXPLAIN (ANALYZE) SELECT outer_f(1)"), since(16, (0, 0), (1, 0)));
    assert_eq!(db.calls("EXPLAIN (ANALYZE) SELECT outer_f($1)"), since(16, (1, 1), (0, 1)));
    assert_eq!(db.calls(NESTED), (0, 1));
    assert_eq!(db.entries().iter().filter(|e| e.toplevel).count(), 1, "{:#?}", db.entries());
    assert_level_right(&db, &mut session);
}

#[test]
fn what_create_table_as_and_cursors_execute_is_nested() {
    let (db, mut session) = database();
    session.batch_execute("CREATE TABLE x AS SELECT outer_f(1)").unwrap();
    session.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT outer_f(2); FETCH c; CLOSE c; COMMIT").unwrap();
    assert_eq!(db.calls("FETCH c"), (1, 0));
    assert_eq!(db.calls(NESTED), (0, 2));
    let top: Vec<_> = db.entries().into_iter().filter(|e| e.toplevel).map(|e| e.query).collect();
    assert_eq!(
        top,
        [
            "BEGIN",
            "CLOSE c",
            "COMMIT",
            &utility("CREATE TABLE x AS SELECT outer_f(1)"),
            &utility("DECLARE c CURSOR FOR SELECT outer_f(2)"),
            "FETCH c"
        ]
    );
    assert_level_right(&db, &mut session);
}

/// Its execution ends after the COMMIT, at a time when nothing runs; contrib takes it for the top level then. Before 18
/// a cursor's query has no identifier.
#[test]
fn a_cursor_that_the_commit_closes_is_nested() {
    let (db, mut session) = database();
    for sql in CLOSED_BY_COMMIT {
        session.batch_execute(sql).unwrap();
    }
    assert_eq!(db.calls(NESTED), (0, 1));
    assert_eq!(db.calls(&utility("DECLARE c CURSOR FOR SELECT outer_f(1)")), (1, since(18, 1, 0)));
    assert_level_right(&db, &mut session);
}

#[test]
fn a_cursor_opened_in_a_function_is_nested_wherever_it_ends() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE FUNCTION opens() RETURNS refcursor LANGUAGE plpgsql AS
         'DECLARE c refcursor := ''cur''; BEGIN OPEN c FOR SELECT generate_series(1, 4); RETURN c; END'",
    );
    session.batch_execute("BEGIN; SELECT opens(); FETCH 1 FROM cur; FETCH ALL FROM cur; COMMIT").unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2)", false), (1, 4));
    assert_eq!(db.calls("SELECT opens()"), (1, 0));
    assert_eq!(db.calls("FETCH ALL FROM cur"), (1, 0));
    assert_level_right(&db, &mut session);
}

#[test]
fn execute_counts_the_prepared_statement_at_the_top() {
    let (db, mut session) = database();
    session.batch_execute("PREPARE p(int) AS SELECT outer_f($1), 'x'; EXECUTE p(1); EXECUTE p(2)").unwrap();
    session.batch_execute("DEALLOCATE p").unwrap();
    assert_eq!(db.calls("PREPARE p(int) AS SELECT outer_f($1), $2"), (2, 0), "{:#?}", db.entries());
    assert_eq!(db.calls(NESTED), (0, 2));
    assert_eq!(db.calls("DEALLOCATE $1"), (1, 0));
    let top = db.entries().iter().filter(|e| e.toplevel).count();
    assert_eq!(top, 2, "{:#?}", db.entries());
    assert_level_right(&db, &mut session);
}

#[test]
fn what_planning_executes_is_nested() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE FUNCTION folded(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN PERFORM count(*) AS nested_probe FROM pg_class; RETURN n; END'",
    );
    for planning in ["on", "off"] {
        db.reset();
        session.batch_execute(&format!("SET pgss_rs.track_planning = {planning}; SELECT folded(1)")).unwrap();
        assert_eq!(db.calls("SELECT folded($1)"), (1, 0));
        assert_eq!(db.calls(NESTED), (0, 1), "{:#?}", db.entries());
    }
    db.prepare(
        "CREATE FUNCTION fails_folded(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN PERFORM 1/0; RETURN n; END'",
    );
    session.batch_execute("SELECT fails_folded(1)").unwrap_err();
    assert_level_right(&db, &mut session);
    session.batch_execute("BEGIN; SAVEPOINT a; SELECT fails_folded(1)").unwrap_err();
    session.batch_execute("ROLLBACK TO a; SELECT pg_backend_pid() > 1").unwrap();
    assert_eq!(db.calls(PROBED).1, 0);
    assert_level_right(&db, &mut session);
}

#[test]
fn a_change_of_track_within_a_statement_keeps_the_level() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE FUNCTION toggles() RETURNS void LANGUAGE plpgsql AS $$
         BEGIN
           SET pgss_rs.track = 'none'; PERFORM inner_f(1);
           SET pgss_rs.track = 'all'; PERFORM inner_f(2);
         END $$",
    );
    session.batch_execute("SELECT toggles()").unwrap();
    assert_eq!(db.calls(NESTED), (0, 1), "{:#?}", db.entries());
    assert_eq!(db.calls("SELECT toggles()"), (1, 0));
    assert_level_right(&db, &mut session);
}

/// Its execution ends with its caller's, when the caller's level is the present one.
#[test]
fn a_set_returning_function_cut_short_by_limit_is_nested_and_normalised() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE FUNCTION lazy() RETURNS SETOF int LANGUAGE sql AS
         'SELECT i + 100 AS lazily FROM generate_series(1, 10) i'",
    );
    session.batch_execute("SELECT lazy() LIMIT 3; SELECT lazy() LIMIT 2").unwrap();
    session.execute("SELECT lazy() LIMIT 2", &[]).unwrap();
    let lazily = "SELECT i + $1 AS lazily FROM generate_series($2, $3) i";
    assert_eq!(db.calls_and_rows(lazily, false), (3, 7));
    assert_eq!(db.calls(lazily), (0, 3));
    assert_level_right(&db, &mut session);
}

/// With a deferred trigger on `d`, and a deferred foreign key from `child`.
const DEFERRED: &str = "
    CREATE TABLE d (a int);
    CREATE CONSTRAINT TRIGGER c AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION on_insert();
    CREATE TABLE parent (a int PRIMARY KEY);
    INSERT INTO parent VALUES (1);
    CREATE TABLE child (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);";
const KEY_CHECKED: &str =
    "SELECT $2 FROM ONLY \"public\".\"parent\" x WHERE \"a\" OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x";

#[test]
fn what_deferred_triggers_execute_is_nested_in_the_commit() {
    let (db, mut session) = database();
    db.prepare(DEFERRED);
    let mut nested = 0;
    for commit in [
        "INSERT INTO d VALUES (1), (2)",
        "BEGIN; INSERT INTO d VALUES (1), (2); COMMIT",
        "BEGIN; SAVEPOINT s; INSERT INTO d VALUES (1), (2); RELEASE s; COMMIT",
        "BEGIN; INSERT INTO d VALUES (1), (2); SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
        "DO 'BEGIN INSERT INTO d VALUES (1); COMMIT; INSERT INTO d VALUES (2); END'",
    ] {
        session.batch_execute(commit).unwrap();
        session.batch_execute(PROBE).unwrap();
        nested += 2;
        assert_eq!(db.calls(NESTED), (0, nested), "{commit}");
    }
    session.execute("INSERT INTO d VALUES ($1)", &[&3]).unwrap();
    session.execute(PROBE, &[]).unwrap();
    assert_eq!(db.calls(NESTED), (0, nested + 1));
    assert_eq!(db.calls(PROBED), (6, 0));
    for sql in ["INSERT INTO child VALUES (1)", "BEGIN; INSERT INTO child VALUES (1); COMMIT"] {
        session.batch_execute(sql).unwrap();
    }
    session.batch_execute("BEGIN; INSERT INTO child VALUES (2); COMMIT").unwrap_err();
    // analysed when the foreign key is first checked; its own parameter is the first
    let checks = KEY_CHECKED.replace("$2", "1");
    let checks = [KEY_CHECKED, &checks].map(|text| db.calls(text));
    assert_eq!(checks.iter().map(|c| c.0).sum::<i64>(), 0);
    assert_eq!(checks.iter().map(|c| c.1).sum::<i64>(), 3, "{:#?}", db.entries());
    assert_level_right(&db, &mut session);
}

#[test]
fn what_deferred_triggers_execute_first_may_be_a_cursor_or_utility_statement() {
    let (db, mut session) = database();
    db.prepare(
        "CREATE TABLE d (a int);
         CREATE FUNCTION loops() RETURNS trigger LANGUAGE plpgsql AS
           'DECLARE r record;
            BEGIN FOR r IN SELECT 1 AS looped LOOP PERFORM inner_f(r.looped); END LOOP; RETURN NEW; END';
         CREATE FUNCTION locks() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE t; RETURN NEW; END';
         CREATE CONSTRAINT TRIGGER a AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN (NEW.a = 1) EXECUTE FUNCTION loops();
         CREATE CONSTRAINT TRIGGER b AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN (NEW.a = 2) EXECUTE FUNCTION locks()",
    );
    for planning in ["off", "on"] {
        db.reset();
        session.batch_execute(&format!("SET pgss_rs.track_planning = {planning}")).unwrap();
        session.batch_execute("INSERT INTO d VALUES (1)").unwrap();
        session.batch_execute("INSERT INTO d VALUES (2)").unwrap();
        session.batch_execute(PROBE).unwrap();
        assert_eq!(db.calls("SELECT $1 AS looped"), (0, 1), "{:#?}", db.entries());
        assert_eq!(db.calls(NESTED), (0, 1));
        assert_eq!(db.calls("LOCK TABLE t"), (0, 1));
        assert_eq!(db.calls(PROBED), (1, 0));
        assert_eq!(db.value("count(*)", "toplevel AND query ~ 'looped|nested_probe'"), "0");
    }
}

#[test]
fn what_deferred_triggers_execute_is_not_recorded_where_only_the_top_is() {
    let (db, _) = database();
    db.prepare(DEFERRED);
    let mut session = db.session();
    session.batch_execute("INSERT INTO d VALUES (1)").unwrap();
    session.batch_execute("BEGIN; INSERT INTO d VALUES (1); COMMIT").unwrap();
    assert_eq!(db.texts(), ["BEGIN", "COMMIT", "INSERT INTO d VALUES ($1)"]);
}

#[test]
fn after_a_commit_that_deferred_triggers_made_fail_the_level_is_right() {
    let (db, mut session) = database();
    // in RollbackAndReleaseCurrentSubTransaction of 15 at least, and without any module
    if asserts_wrongly(db.cluster, "an exception block in a deferred trigger ends a server with assertions") {
        return;
    }
    db.prepare(
        "CREATE TABLE d (a int);
         CREATE FUNCTION fails_in_trigger() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM catches(1); PERFORM fails_deep(1); RETURN NEW; END';
         CREATE CONSTRAINT TRIGGER c AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION fails_in_trigger()",
    );
    for sql in ["INSERT INTO d VALUES (1)", "BEGIN; INSERT INTO d VALUES (1); COMMIT"] {
        session.batch_execute(sql).unwrap_err();
        assert_eq!(db.calls("SELECT catches($1)"), (0, 1), "{:#?}", db.entries());
        assert_eq!(db.calls(NESTED), (0, 3));
        assert_level_right(&db, &mut session);
        session.execute("INSERT INTO d VALUES (1)", &[]).unwrap_err();
        session.execute(PROBE, &[]).unwrap();
        assert_eq!(db.calls(PROBED), (3, 0));
        db.reset();
    }
}

#[test]
fn deferred_triggers_share_the_draw_of_their_commit() {
    let (db, _) = database();
    db.prepare(DEFERRED);
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.sample_rate=0.5"]);
    for _ in 0..400 {
        session.batch_execute("INSERT INTO d VALUES (1), (2), (3)").unwrap();
    }
    let nested = format!("NOT toplevel AND query = '{NESTED}'");
    let sampled = db.number("sampled_calls", &nested);
    assert_eq!(sampled % 3.0, 0.0);
    assert!((sampled - 600.0).abs() < 3.0 * 5.0 * 10.0, "{sampled}"); // five standard deviations
    assert_eq!(db.number("calls", &nested), 2.0 * sampled);
    // each draw added three calls of weight two: the variance is the sum of 2 (2 - 1) 3^2
    let variance = db.number("calls_stderr ^ 2", &nested);
    assert!((variance - sampled / 3.0 * 18.0).abs() < 1e-6, "{variance}");
}
const CLOSED_BY_COMMIT: &[&str] = &["BEGIN", "DECLARE c CURSOR FOR SELECT outer_f(1)", "FETCH c", "COMMIT"];

/// Each script runs in a session of its own, statement by statement; errors are part of it.
const SCRIPTS: &[&[&str]] = &[
    &["SELECT outer_f(1)", "SELECT sql_f(1)", "DO 'BEGIN PERFORM inner_f(3); END'"],
    &["SELECT fails_deep(1)", "SELECT 1", "SELECT catches(1)", "SELECT outer_f(1)"],
    &["BEGIN", "SAVEPOINT a", "SELECT fails(1)", "ROLLBACK TO a", "SELECT outer_f(1)", "COMMIT"],
    &["BEGIN", "SELECT fails(1)", "ROLLBACK TO nothing", "SELECT 1", "ROLLBACK", "SELECT 2"],
    &["EXPLAIN SELECT outer_f(1)", "EXPLAIN ANALYZE SELECT outer_f(1)", "EXPLAIN ANALYZE SELECT 3 AS three"],
    &["CREATE TABLE x AS SELECT outer_f(1)", "SELECT outer_f(2) INTO y", "DROP TABLE x, y"],
    &["CREATE MATERIALIZED VIEW m AS SELECT outer_f(1) AS a", "REFRESH MATERIALIZED VIEW m", "SELECT a FROM m"],
    &["BEGIN", "DECLARE c CURSOR FOR SELECT outer_f(1)", "FETCH c", "SELECT 1", "MOVE c", "CLOSE c", "COMMIT"],
    &["PREPARE p AS SELECT inner_f(count(*)::int) FROM t", "EXECUTE p", "EXPLAIN ANALYZE EXECUTE p", "CREATE TABLE x AS EXECUTE p"],
    &["COPY (SELECT outer_f(1)) TO '/dev/null'", "COPY t TO '/dev/null'"],
    &["CREATE SCHEMA s CREATE TABLE a (b int PRIMARY KEY) CREATE VIEW v AS SELECT 1 AS one"],
    &["CREATE VIEW v AS SELECT outer_f(1) AS a", "SELECT a FROM v", "CREATE RULE r AS ON INSERT TO v DO INSTEAD
       (INSERT INTO t VALUES (NEW.a); UPDATE t SET a = 5 WHERE a = 4)", "INSERT INTO v VALUES (4)"],
    &["CREATE TABLE parent (a int PRIMARY KEY)", "CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE)",
      "INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1)", "DELETE FROM parent WHERE a = 1",
      "INSERT INTO child VALUES (9)", "ALTER TABLE child ADD CHECK (a < 100)"],
    &["CREATE PROCEDURE commits() LANGUAGE plpgsql AS
       'BEGIN INSERT INTO t VALUES (1); COMMIT; INSERT INTO t VALUES (2); ROLLBACK; INSERT INTO t VALUES (3); END'",
      "CALL commits()", "SELECT 1", "BEGIN", "CALL commits()", "ROLLBACK", "SELECT 1"],
    &["DO 'BEGIN EXECUTE ''CREATE TABLE dynamic (a int)''; EXECUTE ''SELECT 1''; DROP TABLE dynamic; END'"],
    &["CREATE FUNCTION streams() RETURNS SETOF int LANGUAGE plpgsql AS
       'BEGIN RETURN QUERY SELECT generate_series(1, 10); RETURN NEXT 11; END'", "SELECT * FROM streams()",
      "SELECT streams() LIMIT 3"],
    &["CREATE FUNCTION on_ddl() RETURNS event_trigger LANGUAGE plpgsql AS
       'BEGIN PERFORM count(*) FROM pg_event_trigger_ddl_commands(); END'",
      "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION on_ddl()", "CREATE TABLE ddl (a int)",
      "DO 'BEGIN CREATE TABLE ddl2 (a int); END'", "SELECT 1"],
    &["CREATE TRIGGER b BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION on_insert()",
      "COPY (SELECT 1 UNION SELECT 2) TO '/dev/null'", "INSERT INTO t VALUES (1), (-1)", "SELECT 1"],
    &["SELECT * FROM pg_prepared_statements", "SELECT query_to_xml('SELECT 1', true, true, '')"],
    &["VACUUM t", "ANALYZE t", "REINDEX TABLE t", "CLUSTER"],
];

/// Both see the same statements at the same levels, the two protocols alike.
fn compare_levels(server: &Shared, settings: &[&str]) {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = server.database();
    let mut differing = String::new();
    for script in SCRIPTS.iter().chain(since(18, None, Some(&CLOSED_BY_COMMIT))) {
        for extended in [false, true] {
            // cheaper than a database for each
            db.prepare("DROP SCHEMA IF EXISTS s, scratch CASCADE; CREATE SCHEMA scratch");
            db.prepare(&format!("SET search_path = scratch; {FUNCTIONS}"));
            db.reset();
            db.ask(&format!("SELECT pg_stat_statements_reset(0, {}, 0)", db.oid));
            let all = ["pgss_rs.track=all", "pg_stat_statements.track=all", "search_path=scratch"];
            let mut session = db.session_with(&[&all, settings].concat());
            for sql in *script {
                let _ =
                    if extended { session.execute(*sql, &[]).map(drop) } else { session.batch_execute(sql) };
            }
            let (ours, contribs) = (db.entries(), db.entries_in("pg_stat_statements"));
            let found = differences(&ours, &contribs);
            if !found.is_empty() {
                differing += &format!("{script:#?}, extended: {extended}\n{found:#?}\n");
            }
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

#[test]
fn levels_are_those_that_contrib_sees() {
    compare_levels(&BESIDE, &[]);
}

#[test]
fn levels_are_those_that_contrib_sees_when_its_hooks_come_first() {
    compare_levels(&BESIDE_INNER, &[]);
}

#[test]
fn levels_are_those_that_contrib_sees_without_utility_statements() {
    compare_levels(&BESIDE, &["pgss_rs.track_utility=off", "pg_stat_statements.track_utility=off"]);
}

#[test]
fn what_a_statement_without_an_identifier_calls_is_recorded_as_contrib_does() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    db.prepare(FUNCTIONS);
    let mut session = db.session_with(&["pgss_rs.track=all", "pg_stat_statements.track=all"]);
    session.batch_execute("SET compute_query_id = off; PREPARE p AS SELECT outer_f(1)").unwrap();
    session.batch_execute("SET compute_query_id = on; EXECUTE p; EXECUTE p").unwrap();
    let (ours, contribs) = (db.entries(), db.entries_in("pg_stat_statements"));
    assert_eq!(differences(&ours, &contribs), []);
    assert_eq!(db.calls(NESTED), (0, 2));
}
