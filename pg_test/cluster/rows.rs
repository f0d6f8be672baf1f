//! The column `rows`: what a statement returned or changed.

use std::io::{Read, Write};

use crate::servers::ALONE;

#[test]
fn rows_are_those_returned_or_changed() {
    let db = ALONE.database();
    let mut session = db.session();
    for (sql, text, rows) in [
        ("CREATE TABLE t (a int)", "CREATE TABLE t (a int)", 0),
        ("INSERT INTO t SELECT generate_series(1, 7)", "INSERT INTO t SELECT generate_series($1, $2)", 7),
        ("INSERT INTO t VALUES (8), (9) RETURNING a", "INSERT INTO t VALUES ($1), ($2) RETURNING a", 2),
        ("SELECT * FROM t", "SELECT * FROM t", 9),
        ("SELECT * FROM t WHERE false", "SELECT * FROM t WHERE $1", 0),
        ("UPDATE t SET a = a WHERE a <= 5", "UPDATE t SET a = a WHERE a <= $1", 5),
        ("UPDATE t SET a = 0 WHERE a = 1 RETURNING *", "UPDATE t SET a = $1 WHERE a = $2 RETURNING *", 1),
        ("DELETE FROM t WHERE a = 0", "DELETE FROM t WHERE a = $1", 1),
        ("DELETE FROM t WHERE a > 7 RETURNING a", "DELETE FROM t WHERE a > $1 RETURNING a", 2),
        (
            "MERGE INTO t USING (VALUES (2), (50)) v(b) ON a = b WHEN MATCHED THEN DELETE
             WHEN NOT MATCHED THEN INSERT VALUES (b)",
            "MERGE INTO t USING (VALUES ($1), ($2)) v(b) ON a = b WHEN MATCHED THEN DELETE
             WHEN NOT MATCHED THEN INSERT VALUES (b)",
            2,
        ),
        ("CREATE TABLE ctas AS SELECT * FROM t", "CREATE TABLE ctas AS SELECT * FROM t", 6),
        ("SELECT * INTO into_t FROM t", "SELECT * INTO into_t FROM t", 6),
        ("CREATE MATERIALIZED VIEW m AS SELECT * FROM t", "CREATE MATERIALIZED VIEW m AS SELECT * FROM t", 6),
        ("DELETE FROM t WHERE a = 50", "DELETE FROM t WHERE a = $1", 1),
        ("REFRESH MATERIALIZED VIEW m", "REFRESH MATERIALIZED VIEW m", 5),
        ("COPY t TO '/dev/null'", "COPY t TO '/dev/null'", 5),
        ("COPY (SELECT 1) TO '/dev/null'", "COPY (SELECT 1) TO '/dev/null'", 1),
        (
            "CREATE TABLE none AS SELECT * FROM t WITH NO DATA",
            "CREATE TABLE none AS SELECT * FROM t WITH NO DATA",
            0,
        ),
    ] {
        db.reset();
        session.batch_execute(sql).unwrap();
        assert_eq!(db.calls_and_rows(text, true), (1, rows), "{sql}");
    }
}

#[test]
fn rows_of_fetches_are_summed() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT generate_series(1, 20)").unwrap();
    session
        .batch_execute("FETCH 3 FROM c; FETCH 3 FROM c; FETCH BACKWARD 2 FROM c; FETCH ALL FROM c")
        .unwrap();
    session.batch_execute("MOVE BACKWARD ALL FROM c; CLOSE c; COMMIT").unwrap();
    assert_eq!(db.calls_and_rows("FETCH 3 FROM c", true), (2, 6));
    assert_eq!(db.calls_and_rows("FETCH BACKWARD 2 FROM c", true), (1, 2));
    assert_eq!(db.calls_and_rows("FETCH ALL FROM c", true), (1, 16));
}

#[test]
fn rows_of_copy_through_the_connection_are_counted() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    let mut session = db.session();
    let mut writer = session.copy_in("COPY t FROM STDIN").unwrap();
    writer.write_all(b"1\n2\n3\n4\n").unwrap();
    assert_eq!(writer.finish().unwrap(), 4);
    let mut copied = String::new();
    session.copy_out("COPY t TO STDOUT").unwrap().read_to_string(&mut copied).unwrap();
    assert_eq!(copied, "1\n2\n3\n4\n");
    assert_eq!(db.calls_and_rows("COPY t FROM STDIN", true), (1, 4));
    assert_eq!(db.calls_and_rows("COPY t TO STDOUT", true), (1, 4));
}

#[test]
fn rows_and_calls_add_up_over_executions() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    let mut session = db.session();
    let insert = session.prepare("INSERT INTO t SELECT generate_series(1, $1)").unwrap();
    for n in 0..10i32 {
        session.execute(&insert, &[&n]).unwrap();
    }
    assert_eq!(db.calls_and_rows("INSERT INTO t SELECT generate_series($2, $1)", true), (10, 45));
}

#[test]
fn rows_that_a_loop_in_a_function_fetches_in_portions_are_summed() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION loops() RETURNS void LANGUAGE plpgsql AS
         'DECLARE r record; BEGIN FOR r IN SELECT generate_series(1, 100) LOOP PERFORM r; END LOOP; END'",
    );
    db.session_with(&["pgss_rs.track=all"]).batch_execute("SELECT loops(); SELECT loops()").unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2)", false), (2, 200));
    assert_eq!(db.calls_and_rows("SELECT r", false), (200, 200));
}

/// pg_stat_statements takes the identifier out of the plan that the session keeps, so that it counts the first time only.
#[test]
fn a_prepared_utility_statement_counts_each_time() {
    let db = ALONE.database();
    let mut session = db.session();
    let (begin, end) = (session.prepare("BEGIN").unwrap(), session.prepare("COMMIT").unwrap());
    for _ in 0..3 {
        session.execute(&begin, &[]).unwrap();
        session.execute(&end, &[]).unwrap();
    }
    assert_eq!(db.calls_and_rows("BEGIN", true), (3, 0));
    assert_eq!(db.calls_and_rows("COMMIT", true), (3, 0));
}
