//! Errors pass through whole.

use crate::servers::{ALONE, BARE, Database, Shared, error_of};
use postgres::error::{DbError, ErrorPosition};

const OBJECTS: &str = "
    CREATE TABLE parent (id int PRIMARY KEY, name text NOT NULL, CONSTRAINT short CHECK (length(name) < 10));
    CREATE TABLE child (id int CONSTRAINT to_parent REFERENCES parent, x int CONSTRAINT only_once UNIQUE);
    CREATE DOMAIN small AS int CONSTRAINT is_small CHECK (VALUE < 100);
    INSERT INTO parent VALUES (1, 'one');
    INSERT INTO child VALUES (1, 1);
    CREATE FUNCTION raises(n int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
      IF n > 0 THEN RETURN raises(n - 1); END IF;
      RAISE EXCEPTION 'on purpose' USING ERRCODE = 'P4242', DETAIL = 'the detail', HINT = 'the hint',
        CONSTRAINT = 'a constraint', TABLE = 'a table', COLUMN = 'a column', SCHEMA = 'a schema',
        DATATYPE = 'a type';
    END $$;
    CREATE FUNCTION divides(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 10 / n; END';
    CREATE FUNCTION divides_sql(n int) RETURNS int LANGUAGE sql AS 'SELECT divides(n) + 1';
    CREATE FUNCTION checks() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / NEW.x; RETURN NEW; END';
    CREATE TRIGGER checks BEFORE UPDATE ON child FOR EACH ROW EXECUTE FUNCTION checks();";

const FAILING: &[&str] = &[
    "INSERT INTO parent VALUES (1, 'again')",
    "INSERT INTO child VALUES (7, 7)",
    "DELETE FROM parent",
    "INSERT INTO parent VALUES (2, NULL)",
    "INSERT INTO parent VALUES (3, 'a long, long name')",
    "INSERT INTO child VALUES (1, 1)",
    "SELECT 1000::small",
    "SELECT raises(0)",
    "SELECT raises(3)",
    "DO 'BEGIN PERFORM raises(2); END'",
    "SELECT divides(0)",
    "SELECT divides_sql(0)",
    "UPDATE child SET x = 0",
    "SELECT FROM WHERE",
    "SELECT 1;\n SELECT é, nonsense FROM parent",
    "SELECT no_such_function(1)",
    "SELECT * FROM no_such_table",
    "SELECT 'x'::int",
    "SELECT 1/0",
    "EXPLAIN ANALYZE SELECT raises(1)",
    "CREATE TABLE x AS SELECT raises(1)",
    "CREATE TABLE parent (a int)",
    "COPY parent FROM '/nonexistent'",
    "SET pgss_unknown.x = 1; SET work_mem = 'much'",
    "BEGIN; DECLARE c CURSOR FOR SELECT divides(0); FETCH c",
    "SET statement_timeout = '20ms'; SELECT pg_sleep(10)",
    "PREPARE p(int) AS SELECT divides($1); EXECUTE p(0)",
    "EXECUTE nothing",
    "ROLLBACK TO nothing",
];

/// Everything that a client is told, and where in the server it arose.
fn whole(e: &DbError) -> Vec<(&'static str, Option<String>)> {
    let text = |s: Option<&str>| s.map(str::to_owned);
    let position = match e.position() {
        None => None,
        Some(ErrorPosition::Original(n)) => Some(n.to_string()),
        Some(ErrorPosition::Internal { position, query }) => Some(format!("{position} in {query}")),
    };
    vec![
        ("severity", Some(e.severity().to_owned())),
        ("sqlstate", Some(e.code().code().to_owned())),
        ("message", Some(e.message().to_owned())),
        ("detail", text(e.detail())),
        ("hint", text(e.hint())),
        ("context", text(e.where_())),
        ("schema", text(e.schema())),
        ("table", text(e.table())),
        ("column", text(e.column())),
        ("datatype", text(e.datatype())),
        ("constraint", text(e.constraint())),
        ("position", position),
        ("file", text(e.file())),
        ("line", e.line().map(|n| n.to_string())),
        ("routine", text(e.routine())),
    ]
}

fn database(server: &Shared) -> Database<'_> {
    let db = server.database();
    db.session().batch_execute(OBJECTS).unwrap();
    db
}

#[test]
fn errors_are_those_of_a_server_without_the_extension() {
    let (with, without) = (database(&ALONE), database(&BARE));
    for settings in [
        &["pgss_rs.track=all", "pgss_rs.track_planning=on"][..],
        &["pgss_rs.track=all"],
        &[],
        &["pgss_rs.sample_rate=0"],
    ] {
        for sql in FAILING {
            let ours = error_of(&mut with.session_with(settings), sql);
            let plain = error_of(&mut without.session(), sql);
            assert_eq!(whole(&ours), whole(&plain), "{sql}");
            let (ours, plain) =
                (with.session_with(settings).execute(*sql, &[]), without.session().execute(*sql, &[]));
            let whole = |r: Result<u64, postgres::Error>| r.map_err(|e| e.as_db_error().map(whole));
            assert_eq!(format!("{:?}", whole(ours)), format!("{:?}", whole(plain)), "{sql}");
        }
    }
}

#[test]
fn a_violated_constraint_is_named() {
    let db = database(&ALONE);
    let mut session = db.session();
    let e = error_of(&mut session, "INSERT INTO child VALUES (7, 7)");
    assert_eq!(
        (e.code().code(), e.constraint(), e.table(), e.schema()),
        ("23503", Some("to_parent"), Some("child"), Some("public"))
    );
    assert_eq!(e.detail(), Some("Key (id)=(7) is not present in table \"parent\"."));
    let e = error_of(&mut session, "INSERT INTO parent VALUES (2, NULL)");
    assert_eq!((e.code().code(), e.column(), e.table()), ("23502", Some("name"), Some("parent")));
    let e = error_of(&mut session, "SELECT 1000::small");
    assert_eq!((e.code().code(), e.datatype(), e.constraint()), ("23514", Some("small"), Some("is_small")));
}

#[test]
fn an_error_raised_in_nested_functions_keeps_all_its_fields_and_its_context() {
    let db = database(&ALONE);
    let e = error_of(&mut db.session_with(&["pgss_rs.track=all"]), "SELECT raises(1)");
    assert_eq!((e.code().code(), e.message()), ("P4242", "on purpose"));
    assert_eq!((e.detail(), e.hint()), (Some("the detail"), Some("the hint")));
    assert_eq!((e.schema(), e.table(), e.column()), (Some("a schema"), Some("a table"), Some("a column")));
    assert_eq!((e.datatype(), e.constraint()), (Some("a type"), Some("a constraint")));
    let context = "PL/pgSQL function raises(integer) line 4 at RAISE\n\
                   PL/pgSQL function raises(integer) line 3 at RETURN";
    assert_eq!(e.where_(), Some(context));
}

#[test]
fn a_cancelled_statement_is_cancelled_and_not_recorded() {
    let db = ALONE.database();
    let mut session = db.session_with(&["statement_timeout=20ms"]);
    let e = error_of(&mut session, "SELECT pg_sleep(10)");
    assert_eq!((e.code().code(), e.message()), ("57014", "canceling statement due to statement timeout"));
    session.batch_execute("SELECT 1 AS after_cancel").unwrap();
    assert_eq!(db.texts(), ["SELECT $1 AS after_cancel"]);
}
