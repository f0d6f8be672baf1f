//! Query identifiers under `compute_query_id = auto`: a client's statement of the simple protocol has one only if it is
//! drawn; what may be executed again, under another draw, always has one.
//!
//! Bounds are five standard deviations wide, as in `sampling`.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;

use postgres::Client;

use crate::servers::{
    ALONE, BESIDE, BESIDE_INNER, Database, Shared, connect, distinct, number, pg_config, rows, since,
    sqlstate_of, start_with_pgss_rs, value,
};

const SIGMAS: f64 = 5.0;
/// Settings under which nothing is drawn.
const UNDRAWN: &[&str] = &["pgss_rs.sample_rate=0", "pgss_rs.track=none"];
const HALF: &[&str] = &["pgss_rs.sample_rate=0.5", "pgss_rs.track_utility=off"];

/// Whether contrib is installed, which some servers come without.
fn has_contrib() -> bool {
    let told = Command::new(pg_config()).arg("--pkglibdir").output().unwrap();
    let libraries = PathBuf::from(String::from_utf8(told.stdout).unwrap().trim());
    libraries.join("pg_stat_statements.so").exists()
}

/// The identifier that other sessions see of a session while it waits in the last statement of `sql`.
fn id_seen(db: &Database, settings: &[&str], sql: &str) -> Option<String> {
    let mut session = db.session_with(settings);
    let pid = value(&mut session, "SELECT pg_backend_pid()");
    let sql = sql.to_owned();
    let waiting = std::thread::spawn(move || session.batch_execute(&sql).unwrap_err());
    let of = format!("FROM pg_stat_activity WHERE pid = {pid}");
    while db.ask(&format!("SELECT {of} AND wait_event_type IN ('Timeout', 'Lock')")).is_empty() {}
    // only now: the view reads what a session waits for later than the rest
    let seen = db.ask(&format!("SELECT query_id {of}"))[0][0].clone();
    db.ask(&format!("SELECT pg_cancel_backend({pid})"));
    assert_eq!(waiting.join().unwrap().code().map(|c| c.code()), Some("57014"));
    seen
}

/// Session settings that draw everything, whatever it began with.
fn draw_all(session: &mut Client) {
    session
        .batch_execute(
            "SET pgss_rs.sample_rate = 1; SET pgss_rs.track = 'all'; SET pgss_rs.track_planning = off",
        )
        .unwrap();
}

fn draw_none(session: &mut Client, how: &str) {
    session.batch_execute(&format!("SET {how}")).unwrap();
}

/// `calls` are within bounds of `n` statements drawn one by one at rate 0.5.
fn assert_near(calls: f64, n: u32, what: &str) {
    let n = f64::from(n);
    assert!((calls - n).abs() < SIGMAS * n.sqrt(), "{what}: {calls}, not {n}");
}

fn calls(db: &Database, condition: &str) -> f64 {
    db.number("coalesce(sum(calls), 0)", condition)
}

// Who has one.

#[test]
fn a_statement_of_the_simple_protocol_has_an_identifier_only_if_it_is_drawn() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    let mut holder = db.session();
    holder.batch_execute("BEGIN; LOCK TABLE t").unwrap();
    for sql in [
        "SELECT pg_sleep(600)",
        "SELECT 1; SELECT pg_sleep(600)",
        "BEGIN; SELECT 1; SELECT pg_sleep(600)",
        "BEGIN; LOCK TABLE t",
        "TRUNCATE t",
    ] {
        let on = id_seen(&db, &["compute_query_id=on", "pgss_rs.sample_rate=0"], sql);
        assert!(on.as_ref().is_some_and(|id| id != "0"), "{sql}: {on:?}");
        assert_eq!(id_seen(&db, &[], sql), on, "{sql}");
        assert_eq!(id_seen(&db, &["compute_query_id=regress"], sql), on, "{sql}");
        assert_eq!(id_seen(&db, &["compute_query_id=off"], sql), None, "{sql}");
        for undrawn in UNDRAWN {
            assert_eq!(id_seen(&db, &[undrawn], sql), None, "{sql} with {undrawn}");
            assert_eq!(
                id_seen(&db, &[undrawn, "compute_query_id=regress"], sql),
                None,
                "{sql} with {undrawn}"
            );
        }
    }
}

#[test]
fn of_an_undrawn_statement_others_see_the_identifier_of_what_is_nested_in_it() {
    let db = ALONE.database();
    db.prepare("CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); END'");
    let nested = id_seen(&db, &[], "SELECT pg_sleep(600)");
    for sql in ["SELECT f()", "DO 'BEGIN PERFORM pg_sleep(600); END'"] {
        assert_eq!(id_seen(&db, &["pgss_rs.sample_rate=0"], sql), nested, "{sql}");
        assert_ne!(id_seen(&db, &[], sql), nested, "{sql}");
    }
}

#[test]
fn the_identifier_seen_is_the_one_in_the_view() {
    let db = ALONE.database();
    let seen = id_seen(&db, &[], "SELECT pg_sleep(600)");
    db.session().batch_execute("SELECT pg_sleep(0)").unwrap();
    assert_eq!(db.value("queryid", "query = 'SELECT pg_sleep($1)'"), seen.unwrap());
}

#[test]
fn explain_shows_the_identifier_that_the_statement_has() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("SELECT 17 + 4").unwrap();
    let id = db.value("queryid", "query = 'SELECT $1 + $2'");
    let mut explained = |prefix: &str| {
        let plan = rows(&mut session, &format!("{prefix}EXPLAIN (VERBOSE) SELECT 17 + 4"));
        let line = |row: &Vec<Option<String>>| row[0].clone().filter(|l| l.starts_with("Query Identifier"));
        plan.iter().find_map(line)
    };
    let shown = Some(format!("Query Identifier: {id}"));
    assert_eq!(explained(""), shown);
    assert_eq!(explained("SET compute_query_id = on;"), shown);
    assert_eq!(explained("SET compute_query_id = regress;"), None);
    assert_eq!(explained("SET compute_query_id = off;"), None);
}

// What is executed again.

#[test]
fn what_the_protocol_prepares_while_nothing_is_drawn_is_counted_later() {
    for undrawn in UNDRAWN {
        let db = ALONE.database();
        let mut session = db.session_with(&[undrawn, "pgss_rs.track_utility=off"]);
        let plain = session.prepare("SELECT 17, 'text'").unwrap();
        let with = session.prepare("SELECT $1::int + 18").unwrap();
        session.query(&plain, &[]).unwrap();
        session.query(&with, &[&1i32]).unwrap();
        assert_eq!(db.entries(), []);
        draw_all(&mut session);
        session.query(&plain, &[]).unwrap();
        session.query(&with, &[&1i32]).unwrap();
        assert_eq!(db.calls_and_rows("SELECT $1, $2", true), (1, 1), "{undrawn}");
        assert_eq!(db.calls_and_rows("SELECT $1::int + $2", true), (1, 1), "{undrawn}");
        assert_eq!(db.entries().len(), 2);
    }
}

#[test]
fn what_prepare_prepares_while_nothing_is_drawn_is_counted_later() {
    for undrawn in UNDRAWN {
        let db = ALONE.database();
        let mut session = db.session_with(&[undrawn, "pgss_rs.track_utility=off"]);
        session.batch_execute("PREPARE plain AS SELECT 17, 'text'").unwrap();
        session.batch_execute("SELECT 0; PREPARE typed (int) AS SELECT $1 + 18; EXECUTE typed (1)").unwrap();
        session.batch_execute("PREPARE guessed AS SELECT $1 || 'x' || $2").unwrap();
        assert_eq!(db.entries(), []);
        draw_all(&mut session);
        session.batch_execute("EXECUTE plain; EXECUTE typed (1); EXECUTE guessed ('a', 'b')").unwrap();
        session.query("EXECUTE plain", &[]).unwrap();
        assert_eq!(db.calls_and_rows("PREPARE plain AS SELECT $1, $2", true), (2, 2), "{undrawn}");
        assert_eq!(db.calls_and_rows("PREPARE typed (int) AS SELECT $1 + $2", true), (1, 1), "{undrawn}");
        assert_eq!(db.calls_and_rows("PREPARE guessed AS SELECT $1 || $3 || $2", true), (1, 1), "{undrawn}");
        assert_eq!(db.entries().len(), 3);
    }
}

/// Makes a prepared statement on `v` be analysed again, and whether its identifier stays.
const INVALIDATIONS: &[(&str, bool)] = &[
    ("ALTER TABLE t ADD COLUMN more int", true),
    ("ANALYZE t", true),
    ("CREATE INDEX ON t (a)", true),
    ("SET search_path = public, pg_catalog", true),
    ("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a > 0", true),
    ("DROP VIEW v; CREATE VIEW v AS SELECT a FROM t", false),
    ("DISCARD PLANS", true),
];

#[test]
fn a_prepared_statement_that_is_analysed_again_while_nothing_is_drawn_keeps_its_identifier() {
    for undrawn in UNDRAWN {
        for (invalidation, stays) in INVALIDATIONS {
            let db = ALONE.database();
            db.prepare("CREATE TABLE t (a int); INSERT INTO t VALUES (7); CREATE VIEW v AS SELECT a FROM t");
            let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
            session.batch_execute("PREPARE p AS SELECT a, 'sql' FROM v WHERE a = 7").unwrap();
            session.batch_execute("PREPARE q (int) AS SELECT a, 1, 'sql' FROM v WHERE a = $1").unwrap();
            let protocol = session.prepare("SELECT a, 1, 2, 'protocol' FROM v WHERE a = 7").unwrap();
            let execute = |session: &mut Client| {
                session.batch_execute("SELECT 0; EXECUTE p; EXECUTE q (7); SELECT 0").unwrap();
                session.batch_execute("EXECUTE p; EXECUTE p").unwrap();
                session.query("EXECUTE p", &[]).unwrap();
                session.query(&protocol, &[]).unwrap();
                session.query(&protocol, &[]).unwrap();
            };
            execute(&mut session);
            // by identifier: a view made anew makes another entry with the same text
            let counted = || {
                let shown = format!(
                    "SELECT query, array_length(regexp_split_to_array(query, ','), 1), queryid, calls
                     FROM pgss_rs_stats WHERE dbid = {} AND query ~ 'FROM v'",
                    db.oid
                );
                let mut shown = db.ask(&shown);
                shown.sort();
                shown
            };
            let first = counted();
            let calls_of = |shown: &[Vec<Option<String>>]| {
                let mut calls: Vec<_> = shown.iter().map(|row| row[3].clone().unwrap()).collect();
                calls.sort();
                calls
            };
            assert_eq!(calls_of(&first), ["1", "2", "4"], "{first:?}");

            draw_none(&mut session, undrawn);
            match *invalidation {
                own if own.starts_with("SET") || own.starts_with("DISCARD") => {
                    session.batch_execute(own).unwrap();
                }
                of_others => db.prepare(of_others),
            }
            execute(&mut session);
            assert_eq!(counted(), first, "{invalidation} with {undrawn}");
            db.reset();
            draw_all(&mut session);
            execute(&mut session);
            let again = counted();
            assert_eq!(calls_of(&again), ["1", "2", "4"], "{invalidation} with {undrawn}: {again:?}");
            if *stays {
                assert_eq!(again, first, "{invalidation} with {undrawn}");
            }
            // with its text normalised
            assert!(again.iter().all(|row| !row[0].as_ref().unwrap().contains('7')), "{again:?}");
        }
    }
}

#[test]
fn a_message_in_another_encoding_is_drawn_as_any_other() {
    let db = ALONE.database_with("TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'");
    let settings = ["pgss_rs.sample_rate=0", "pgss_rs.track_utility=off"];
    let mut session = db.session_with(&settings);
    // the server converts what is not plain ASCII: the string it analyses is a copy
    session.batch_execute("SET client_encoding = 'LATIN1'").unwrap();
    session.batch_execute("PREPARE p AS SELECT 'a', 'b', 'c'").unwrap();
    session.batch_execute("SET client_encoding = 'UTF8'; SELECT 'ä'").unwrap();
    assert_eq!(db.entries(), []);
    session.batch_execute("SET pgss_rs.sample_rate = 1; EXECUTE p; SELECT 'ä'").unwrap();
    assert_eq!(db.calls_and_rows("PREPARE p AS SELECT $1, $2, $3", true), (1, 1));
    assert_eq!(db.calls_and_rows("SELECT $1", true), (1, 1));
}

#[test]
fn a_cursor_is_counted_under_the_draw_of_what_opened_it() {
    let db = ALONE.database();
    // opened by a function: before 18, what DECLARE contains has no identifier
    db.prepare(
        "CREATE FUNCTION opens() RETURNS void LANGUAGE plpgsql AS
         'DECLARE c refcursor := ''c''; BEGIN OPEN c FOR SELECT generate_series(1, 5); END'",
    );
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let inner = ("SELECT generate_series($1, $2)", "query LIKE 'FETCH%' AND toplevel");
    session.batch_execute("SET pgss_rs.sample_rate = 0; BEGIN; SELECT opens()").unwrap();
    session.batch_execute("SET pgss_rs.sample_rate = 1; FETCH 2 FROM c; CLOSE c; COMMIT").unwrap();
    assert_eq!((db.calls(inner.0), calls(&db, inner.1)), ((0, 0), 1.0));
    session.batch_execute("BEGIN; SELECT opens()").unwrap();
    session.batch_execute("SET pgss_rs.sample_rate = 0; FETCH 2 FROM c; CLOSE c; COMMIT").unwrap();
    assert_eq!((db.calls_and_rows(inner.0, false), calls(&db, inner.1)), ((1, 2), 1.0));
    session.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH 1 FROM c; COMMIT").unwrap();
    assert_eq!(calls(&db, "query LIKE 'DECLARE%'"), 0.0);
    session.batch_execute("SET pgss_rs.sample_rate = 1; BEGIN").unwrap();
    session.batch_execute("DECLARE c CURSOR FOR SELECT 1; FETCH 1 FROM c; COMMIT").unwrap();
    assert_eq!(calls(&db, "query LIKE 'DECLARE%' AND toplevel"), 1.0);
}

#[test]
fn what_functions_cached_while_nothing_was_drawn_is_counted_later() {
    for undrawn in UNDRAWN {
        let db = ALONE.database();
        db.prepare(
            "CREATE TABLE t (a int); CREATE TABLE seen (a int, b int, c int);
             CREATE FUNCTION p() RETURNS void LANGUAGE plpgsql AS
             'BEGIN PERFORM 1; EXECUTE ''SELECT 1, 2''; PERFORM 1 + a FROM t WHERE a = 99; END';
             CREATE FUNCTION s() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1, 2, 3 LIMIT 0; SELECT 4 + 5 OFFSET 0';
             CREATE FUNCTION trigger() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO seen VALUES (1); RETURN NEW; END';
             CREATE FUNCTION deferred() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO seen VALUES (1, 2); EXECUTE ''INSERT INTO seen VALUES (1, 2, 3)''; RETURN NULL; END';
             CREATE TRIGGER now BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION trigger();
             CREATE CONSTRAINT TRIGGER later AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION deferred()",
        );
        let mut session = db.session_with(&[undrawn, "pgss_rs.track_utility=off"]);
        let run = |session: &mut Client| {
            session.batch_execute("SELECT p()").unwrap();
            session.batch_execute("SELECT s()").unwrap();
            session.batch_execute("INSERT INTO t VALUES (1)").unwrap();
            session.batch_execute("BEGIN; INSERT INTO t VALUES (1); COMMIT").unwrap();
            session.batch_execute("DO 'BEGIN PERFORM 1, 2, 3, 4; END'").unwrap();
            session.query("SELECT p()", &[]).unwrap();
        };
        run(&mut session);
        assert_eq!(db.entries(), []);
        draw_all(&mut session);
        run(&mut session);
        for (query, top, nested) in [
            ("SELECT p()", 2, 0),
            ("SELECT $1", 0, 2),
            ("SELECT $1, $2", 0, 2),
            ("SELECT $1 + a FROM t WHERE a = $2", 0, 2),
            ("SELECT s()", 1, 0),
            ("SELECT $1, $2, $3 LIMIT $4", 0, 1),
            ("SELECT $1 + $2 OFFSET $3", 0, 1),
            ("INSERT INTO t VALUES ($1)", 2, 0),
            ("INSERT INTO seen VALUES ($1)", 0, 2),
            ("INSERT INTO seen VALUES ($1, $2)", 0, 2),
            ("INSERT INTO seen VALUES ($1, $2, $3)", 0, 2),
        ] {
            assert_eq!(db.calls(query), (top, nested), "{query} with {undrawn} in {:#?}", db.entries());
        }
        // of a DO block at the top while utility statements do not count, before 17
        let (top, nested) = db.calls("SELECT $1, $2, $3, $4");
        assert_eq!(top + nested, 1);
    }
}

#[test]
fn no_identifiers_at_all_are_no_harm_and_regress_is_as_auto() {
    let db = ALONE.database();
    let mut off = db.session_with(&["compute_query_id=off", "pgss_rs.sample_rate=0.5", "pgss_rs.track=all"]);
    off.batch_execute(&"SELECT 1; EXPLAIN SELECT 1; DO 'BEGIN PERFORM 1; END';".repeat(50)).unwrap();
    off.batch_execute("PREPARE p AS SELECT 1, 2; EXECUTE p; EXECUTE p").unwrap();
    assert_eq!(sqlstate_of(&mut off, "SELECT 1/0"), "22012");
    assert_eq!(db.entries(), []);
    let mut regress = db.session_with(&["compute_query_id=regress", "pgss_rs.track_utility=off"]);
    regress.batch_execute("SELECT 1; SET pgss_rs.sample_rate = 0; SELECT 1").unwrap();
    regress.batch_execute("PREPARE p AS SELECT 1, 2; SET pgss_rs.sample_rate = 1; EXECUTE p").unwrap();
    assert_eq!(db.calls("SELECT $1"), (1, 0));
    assert_eq!(db.calls("PREPARE p AS SELECT $1, $2"), (1, 0));
}

#[test]
fn pg_stat_statements_counts_all_under_the_same_identifiers_whatever_we_draw() {
    if !has_contrib() {
        return;
    }
    for server in [&BESIDE, &BESIDE_INNER] as [&Shared; 2] {
        let db = server.database();
        let n = 300;
        let mut session = db.session_with(&["pgss_rs.sample_rate=0", "pg_stat_statements.track_utility=off"]);
        session.batch_execute(&"SELECT 1; SELECT 1, 2;".repeat(10)).unwrap();
        assert_eq!(db.entries(), []);
        session.batch_execute("SET pgss_rs.track_utility = off; SET pgss_rs.sample_rate = 0.5").unwrap();
        session.batch_execute(&"SELECT 1; SELECT 1, 2;".repeat(n as usize)).unwrap();
        assert_near(calls(&db, "query = 'SELECT $1'"), n, "beside");
        assert_near(calls(&db, "query = 'SELECT $1, $2'"), n, "beside");
        session.batch_execute("SET pgss_rs.sample_rate = 1; SELECT 1, 2, 3").unwrap();
        let theirs = db.entries_in("pg_stat_statements");
        let complete: Vec<_> = theirs.iter().map(|e| (e.query.as_str(), e.calls)).collect();
        assert_eq!(complete, [("SELECT $1", 310), ("SELECT $1, $2", 310), ("SELECT $1, $2, $3", 1)]);
        let ids = |view: &str| {
            let sql = format!("SELECT query, queryid FROM {view} WHERE dbid = {} ORDER BY 1", db.oid);
            db.ask(&sql)
        };
        assert_eq!(ids("pgss_rs_stats"), ids("pg_stat_statements"));
    }
}

// The draw of what is analysed.

#[test]
fn each_statement_of_a_message_is_drawn_by_itself() {
    let db = ALONE.database();
    let mut session = db.session_with(HALF);
    for n in 0..200 {
        session.batch_execute(&format!("{}; {}", distinct(2 * n), distinct(2 * n + 1))).unwrap();
    }
    let operators = |text: &str| text.chars().filter(|c| "+-".contains(*c)).collect::<String>();
    let drawn: HashSet<String> = db.texts().iter().map(|text| operators(text)).collect();
    let is_drawn = |n: u32| drawn.contains(&operators(&distinct(n)));
    let mut pairs = [0.0; 4];
    for n in 0..200 {
        pairs[usize::from(is_drawn(2 * n)) * 2 + usize::from(is_drawn(2 * n + 1))] += 1.0;
    }
    for count in pairs {
        assert!((count - 50.0f64).abs() < SIGMAS * (200.0 * 0.25 * 0.75f64).sqrt(), "{pairs:?}");
    }
}

#[test]
fn executions_of_prepared_statements_in_one_message_are_drawn_one_by_one() {
    let db = ALONE.database();
    let mut session = db.session_with(HALF);
    session.batch_execute("PREPARE p AS SELECT 1, 2").unwrap();
    let n = 1000;
    session.batch_execute(&format!("SELECT 1; {}", "EXECUTE p;".repeat(n as usize))).unwrap();
    let of = "query = 'PREPARE p AS SELECT $1, $2'";
    assert_near(calls(&db, of), n, "EXECUTE");
    let stderr = db.number("max(calls_stderr)", of) / f64::from(n).sqrt();
    assert!((stderr - 1.0).abs() < 0.25, "{stderr}");
    // each in a message
    db.reset();
    for _ in 0..n {
        session.batch_execute("EXECUTE p").unwrap();
    }
    assert_near(calls(&db, of), n, "EXECUTE");
}

#[test]
fn statements_of_a_block_are_drawn_one_by_one_where_the_block_does_not_count() {
    let db = ALONE.database();
    let mut session = db.session_with(&[HALF, &["pgss_rs.track=all"]].concat());
    session.batch_execute("DO 'BEGIN FOR i IN 1..1000 LOOP PERFORM 1, i; END LOOP; END'").unwrap();
    let calls = calls(&db, "true");
    if value(&mut session, "SHOW server_version_num").as_str() < "170000" {
        assert_near(calls, 1000, "in a block that does not count");
    } else {
        assert!([0.0, 2000.0].contains(&calls), "{calls}");
    }
}

#[test]
fn utility_statements_are_drawn_without_bias() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.sample_rate=0.5"]);
    let n = 500;
    session.batch_execute(&"BEGIN; COMMIT; LISTEN a; LISTEN b;".repeat(n as usize)).unwrap();
    for utility in ["BEGIN", "COMMIT", "LISTEN a", "LISTEN b"] {
        assert_near(calls(&db, &format!("query = '{utility}'")), n, utility);
    }
}

#[test]
fn what_utility_statements_contain_is_drawn_without_bias() {
    for (track_utility, top) in [("on", false), ("off", true)] {
        let db = ALONE.database();
        let track = format!("pgss_rs.track_utility={track_utility}");
        db.prepare(
            "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM 1, 2, 3; RETURN 1; END'",
        );
        let mut session = db.session_with(&["pgss_rs.sample_rate=0.5", "pgss_rs.track=all", &track]);
        session.batch_execute("BEGIN").unwrap();
        let n = 400;
        for _ in 0..n {
            session.batch_execute("DECLARE c CURSOR FOR SELECT f(); FETCH ALL FROM c; CLOSE c").unwrap();
            session.batch_execute("EXPLAIN ANALYZE SELECT f(), 2").unwrap();
            session.batch_execute("CREATE TEMP TABLE x AS SELECT f(), 2 AS b, 3 AS c; DROP TABLE x").unwrap();
            session.batch_execute("COPY (SELECT f(), 2, 3, 4, 5) TO '/dev/null'").unwrap();
        }
        for inner in ["% f(), $1", "% f(), $1, $2, $3, $4%"] {
            // before 17 they are the client's while utility statements do not count
            let of = format!("query LIKE '{inner}' AND query NOT LIKE '{inner}, $%'");
            let of = format!("{of} AND (NOT toplevel OR {top})");
            assert_near(calls(&db, &of), n, &format!("{inner} with {track}: {:#?}", db.entries()));
        }
        // each nested in one of four draws a round; before 18 CREATE TABLE AS and DECLARE contain no identifiers
        let nested = calls(&db, "query = 'SELECT $1, $2, $3'");
        assert_near(nested, 4 * n, &format!("nested with {track}"));
    }
}

#[test]
fn the_statements_that_a_rule_makes_of_one_are_all_counted_without_bias() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (a int); CREATE TABLE log (a int); CREATE TABLE log2 (a int, b int);
         CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM 1; RETURN 1; END';
         CREATE FUNCTION g() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM 1, 2; RETURN 1; END';
         CREATE RULE also AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (f());
         CREATE VIEW v AS SELECT a FROM t;
         CREATE RULE instead AS ON INSERT TO v DO INSTEAD
         (INSERT INTO log VALUES (f()); INSERT INTO log2 VALUES (g(), 2))",
    );
    let mut session = db.session_with(&[HALF, &["pgss_rs.track=all"]].concat());
    let n = 500;
    for _ in 0..n {
        session.batch_execute("INSERT INTO t VALUES (7)").unwrap();
        session.batch_execute("INSERT INTO v VALUES (7); SELECT 1, 2, 3").unwrap();
    }
    // both statements have the identifier of the one they were made of, and its draw
    for into in ["t", "v"] {
        let of = format!("query = 'INSERT INTO {into} VALUES ($1)'");
        let both = calls(&db, &of);
        assert_near(both / 2.0, n, into);
        assert_eq!(db.number("sum(sampled_calls)", &of) % 2.0, 0.0, "{into}");
    }
    assert_near(calls(&db, "query = 'SELECT $1' AND NOT toplevel") / 2.0, n, "f");
    assert_near(calls(&db, "query = 'SELECT $1, $2' AND NOT toplevel"), n, "g");
    assert_near(calls(&db, "query = 'SELECT $1, $2, $3' AND toplevel"), n, "after the rule");
}

#[test]
fn what_analysis_executes_does_not_take_the_draw_of_the_statement_before() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION checks(a int) RETURNS bool LANGUAGE plpgsql AS
         'BEGIN PERFORM 1, 2; RETURN a > 0; END';
         CREATE DOMAIN positive AS int CHECK (checks(VALUE))",
    );
    let mut session = db.session_with(&[HALF, &["pgss_rs.track=all"]].concat());
    let n = 500;
    for _ in 0..n {
        session.batch_execute("SELECT 1; SELECT '7'::positive; SELECT 1, 2, 3").unwrap();
    }
    assert_near(calls(&db, "query = 'SELECT $1'"), n, "before");
    assert_near(calls(&db, "query = 'SELECT $1::positive'"), n, "itself");
    assert_near(calls(&db, "query = 'SELECT $1, $2, $3'"), n, "after");
    let executed = calls(&db, "query = 'SELECT $1, $2'");
    assert!(executed > 0.0, "{executed}");
}

#[test]
fn nested_statements_share_the_draw_of_their_statement_whatever_else_is_in_the_message() {
    let db = ALONE.database();
    db.prepare("CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM 1; EXECUTE ''SELECT 1, 2''; RETURN 1; END'");
    let mut session = db.session_with(&[HALF, &["pgss_rs.track=all"]].concat());
    let n = 500;
    for _ in 0..n {
        session.batch_execute("SELECT 1, 2, 3; SELECT f(); SELECT 1, 2, 3, 4").unwrap();
    }
    assert_near(calls(&db, "query = 'SELECT f()' AND toplevel"), n, "f");
    let sampled = |query: &str| db.number("coalesce(sum(sampled_calls), 0)", &format!("query = '{query}'"));
    assert_eq!(sampled("SELECT $1"), sampled("SELECT f()"));
    assert_eq!(sampled("SELECT $1, $2"), sampled("SELECT f()"));
}

// Statements that fail.

/// `n` rounds of a statement that fails and `then`, which has the identifier of `counted`.
fn after_failures(setup: &str, failing: &str, code: &str, then: &str, of: &str) {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int); INSERT INTO t VALUES (0)");
    let mut session = db.session_with(HALF);
    session.batch_execute(setup).unwrap();
    session.batch_execute(&format!("{then};").repeat(10)).unwrap();
    db.reset();
    let n = 600;
    for _ in 0..n {
        assert_eq!(sqlstate_of(&mut session, failing), code);
        session.batch_execute(then).unwrap();
    }
    assert_near(calls(&db, of), n, &format!("{then} after {failing}"));
}

#[test]
fn a_statement_that_fails_while_it_is_planned_does_not_leave_its_draw_to_the_next() {
    let of = "query LIKE '%SELECT $1/$2'";
    after_failures("PREPARE p AS SELECT 1/1", "SELECT 1/0", "22012", "EXECUTE p", of);
    after_failures("PREPARE p AS SELECT 1/1", "SELECT 1/0", "22012", "SELECT 1/1", of);
    after_failures("PREPARE p AS SELECT 1/1", "SELECT 1, 2; SELECT 1/0", "22012", "SELECT 0; EXECUTE p", of);
}

#[test]
fn a_statement_that_fails_when_it_starts_does_not_leave_its_draw_to_the_next() {
    let failing = "SELECT set_config('transaction_read_only', 'on', true); INSERT INTO t VALUES (7)";
    let of = "query LIKE '%INSERT INTO t VALUES ($1)'";
    after_failures("PREPARE p AS INSERT INTO t VALUES (1)", failing, "25006", "EXECUTE p", of);
    after_failures("SELECT", failing, "25006", "INSERT INTO t VALUES (1)", of);
}

#[test]
fn a_statement_that_fails_while_it_runs_does_not_leave_its_draw_to_the_next() {
    let of = "query LIKE '%SELECT $1/(a + $2) FROM t'";
    let failing = "SELECT 1/(a + 0) FROM t";
    after_failures("PREPARE p AS SELECT 1/(a + 1) FROM t", failing, "22012", "EXECUTE p", of);
    after_failures("SELECT", failing, "22012", "SELECT 1/(a + 1) FROM t", of);
    after_failures("SELECT", "LOCK TABLE t NOWAIT", "25P01", "SELECT 1/(a + 1) FROM t", of);
}

#[test]
fn a_failed_statement_of_the_extended_protocol_does_not_leave_its_draw_to_the_next() {
    let db = ALONE.database();
    let mut session = db.session_with(HALF);
    session.batch_execute("PREPARE p AS SELECT 1/1; EXECUTE p").unwrap();
    db.reset();
    let n = 600;
    for _ in 0..n {
        session.query("SELECT 1/0", &[]).unwrap_err();
        session.batch_execute("EXECUTE p").unwrap();
    }
    assert_near(calls(&db, "query LIKE '%SELECT $1/$2'"), n, "EXECUTE");
}

#[test]
fn workers_and_the_saver_go_on_whatever_is_drawn() {
    let cluster = start_with_pgss_rs(&[
        ("pgss_rs.sample_rate", "0"),
        ("pgss_rs.save_interval", "1"),
        ("min_parallel_table_scan_size", "0"),
        ("parallel_setup_cost", "0"),
        ("parallel_tuple_cost", "0"),
    ]);
    let mut session = connect(&cluster, "postgres");
    session.batch_execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS a; ANALYZE t").unwrap();
    assert_eq!(number(&mut session, "SELECT sum(a) FROM t"), 500_500.0);
    session.batch_execute("SET pgss_rs.sample_rate = 1").unwrap();
    assert_eq!(number(&mut session, "SELECT sum(a) FROM t"), 500_500.0);
    let of = "FROM pgss_rs_stats WHERE query = 'SELECT sum(a) FROM t'";
    assert_eq!(number(&mut session, &format!("SELECT calls {of}")), 1.0);
    let snapshot = cluster.data_dir().join("pg_stat/pgss_rs.stat");
    while !std::fs::read_to_string(&snapshot).is_ok_and(|s| s.contains("SELECT sum(a) FROM t")) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Sends a text with the identifier left to us and with the server computing it. Whenever both find the same statement,
/// every entry is called as often by the one as by the other.
fn both_ways(session: &mut Client, text: &str) {
    session.batch_execute("SET compute_query_id = auto").unwrap();
    session.batch_execute(text).unwrap();
    session.batch_execute("SET compute_query_id = on").unwrap();
    session.batch_execute(text).unwrap();
}

#[test]
fn a_text_that_came_before_has_its_old_identifier_only_while_it_is_the_same_statement() {
    let db = ALONE.database();
    let role = format!("{}_role", db.name);
    db.prepare(&format!(
        "CREATE SCHEMA first; CREATE SCHEMA second; CREATE TABLE second.t (a int);
         CREATE FUNCTION second.f(numeric) RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE ROLE {role}; CREATE SCHEMA {role} AUTHORIZATION {role}; CREATE TABLE {role}.t (a int);
         GRANT ALL ON SCHEMA first, second TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA second, {role} TO {role};
         ALTER DATABASE {} SET search_path = \"$user\", first, second, public",
        db.name
    ));
    let text = "SELECT a, f(1), a = NULL FROM t";
    let mut session = db.session();
    let entries = || {
        let sql = format!(
            "SELECT count(*), coalesce(bool_and(calls % 2 = 0), true) FROM pgss_rs_stats
             WHERE dbid = {} AND query LIKE '%FROM t'",
            db.oid
        );
        let row = db.ask(&sql).remove(0);
        (row[0].clone().unwrap().parse::<i64>().unwrap(), row[1].as_deref() == Some("t"))
    };
    (0..3).for_each(|_| both_ways(&mut session, text));
    assert_eq!(entries(), (1, true));

    // (what changes, by whom, statements that the text has been by then)
    let own: &[(&str, i64)] = &[
        ("CREATE TABLE first.t (a int)", 2),
        ("SET search_path = second", 2),
        ("RESET search_path", 2),
        ("CREATE FUNCTION first.f(int) RETURNS int LANGUAGE sql AS 'SELECT 2'", 3),
        ("BEGIN; CREATE TEMP TABLE t (a int)", 4),
        ("COMMIT", 4),
        ("DISCARD TEMP", 4),
        ("BEGIN; CREATE TEMP TABLE t (a int)", 5),
        ("ROLLBACK", 5),
        ("BEGIN; SAVEPOINT s; DROP TABLE first.t", 6),
        ("ROLLBACK TO s", 6),
        ("COMMIT", 6),
        ("BEGIN; SET LOCAL search_path = second", 6),
        ("ROLLBACK", 6),
        ("SET transform_null_equals = on", 7),
        ("SET transform_null_equals = off", 7),
        ("ALTER TABLE first.t RENAME TO u", 7),
        ("ALTER TABLE first.u RENAME TO t", 7),
        ("DROP TABLE first.t; CREATE TABLE first.t (a int)", 8),
    ];
    for (change, statements) in own {
        session.batch_execute(change).unwrap();
        for _ in 0..2 {
            both_ways(&mut session, text);
            let (count, even) = entries();
            assert!(even && count <= *statements, "{change}: {count} {:#?}", db.entries());
        }
    }
    // by others
    for change in [
        "DROP TABLE first.t; CREATE TABLE first.t (a int)",
        "ALTER TABLE first.t ADD b int",
        "ALTER TABLE first.t ALTER a TYPE bigint",
        "CREATE FUNCTION first.f(bigint) RETURNS int LANGUAGE sql AS 'SELECT 3'",
        "ALTER SCHEMA first RENAME TO away; CREATE SCHEMA first; CREATE TABLE first.t (a int)",
        "DROP TABLE first.t",
        "CREATE OPERATOR second.= (leftarg = int, rightarg = unknown, function = int4eq)",
    ] {
        let _ = db.session_with(&["pgss_rs.track=none"]).batch_execute(change);
        for _ in 0..2 {
            both_ways(&mut session, text);
            assert!(entries().1, "{change}: {:#?}", db.entries());
        }
    }
    // a role of another schema, without and with an identifier of the server's
    session.batch_execute(&format!("SET compute_query_id = auto; {text}; SET ROLE {role}")).unwrap();
    session.batch_execute(text).unwrap();
    session.batch_execute("RESET ROLE; SET compute_query_id = on").unwrap();
    session.batch_execute(&format!("{text}; SET ROLE {role}")).unwrap();
    session.batch_execute(text).unwrap();
    session.batch_execute("RESET ROLE").unwrap();
    assert!(entries().1, "{:#?}", db.entries());
    both_ways(&mut session, text);
    // from 18 on, tables of one name are the same to an identifier
    assert!(entries().0 >= since(18, 4, 8), "{:#?}", db.entries());
}

#[test]
fn what_was_analysed_while_the_catalogues_changed_is_not_remembered() {
    let db = ALONE.database();
    db.prepare(
        "CREATE SCHEMA first; CREATE SCHEMA second; CREATE TABLE second.t (a int);
         CREATE FUNCTION second.f(int) RETURNS int LANGUAGE sql AS 'SELECT 2'",
    );
    let text = "SELECT f FROM f(1) LEFT JOIN t ON true";
    let mut session = db.session();
    session.batch_execute("SET search_path = first, second").unwrap();
    (0..3).for_each(|_| session.batch_execute(text).unwrap());
    let mut other = db.session_with(&["pgss_rs.track=none"]);
    other
        .batch_execute(
            "BEGIN; LOCK TABLE second.t IN ACCESS EXCLUSIVE MODE;
             CREATE FUNCTION first.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        )
        .unwrap();
    // the function's name is looked up before the table's lock is waited for
    let waiting = std::thread::spawn(move || (value(&mut session, text), session));
    while number(
        &mut other,
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'second.t'::regclass",
    ) == 0.0
    {}
    other.batch_execute("COMMIT").unwrap();
    let (found, mut session) = waiting.join().unwrap();
    assert_eq!(found, "2");
    (0..3).for_each(|_| assert_eq!(value(&mut session, text), "1"));
    let calls = format!(
        "SELECT string_agg(calls::text, ' ' ORDER BY calls) FROM pgss_rs_stats
         WHERE dbid = {} AND query LIKE '%LEFT JOIN t ON%'",
        db.oid
    );
    assert_eq!(db.ask(&calls)[0][0].as_deref(), Some("3 4"));
}

#[test]
fn texts_within_one_string_keep_their_own_identifiers() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let strings = [
        "SELECT 1; SELECT 1, 2; SELECT 1",
        "EXPLAIN SELECT 1; EXPLAIN SELECT 1, 2; EXPLAIN SELECT 1, 2, 3",
        "PREPARE p AS SELECT 1, 2; EXECUTE p; DEALLOCATE p",
        "COPY (SELECT 1, 2) TO '/dev/null'; SELECT 1, 2",
        "CREATE TEMP TABLE x AS SELECT 1 AS a, 2 AS b; DROP TABLE x",
    ];
    let mut counted: Vec<Vec<Vec<Option<String>>>> = Vec::new();
    for computed in ["on", "auto"] {
        db.reset();
        session.batch_execute(&format!("SET compute_query_id = {computed}")).unwrap();
        for string in strings.iter().chain(&strings).chain(&strings) {
            session.simple_query(string).map(drop).unwrap_or_else(|e| panic!("{string}: {e}"));
        }
        let sql = format!(
            "SELECT queryid, toplevel, calls FROM pgss_rs_stats
             WHERE dbid = {} AND query NOT LIKE 'SET %' ORDER BY queryid, toplevel",
            db.oid
        );
        counted.push(db.ask(&sql));
    }
    assert!(counted[0].len() > 5);
    assert_eq!(counted[0], counted[1]);
}

#[test]
fn a_text_that_came_before_is_recorded_normalised_after_resets_and_evictions() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "100")]);
    let mut session = connect(&cluster, "postgres");
    let text = "SELECT 5, 'literal', now() IS NULL";
    let normalised = "SELECT $1, $2, now() IS NULL";
    for round in 1..=5 {
        session.batch_execute(text).unwrap();
        session.batch_execute(text).unwrap();
        let calls = format!("SELECT calls FROM pgss_rs_stats WHERE query = '{normalised}'");
        assert_eq!(value(&mut session, &calls), "2", "{round}");
        match round % 2 {
            0 => session.batch_execute("SELECT pgss_rs_reset()").unwrap(),
            _ => {
                // another session's flood
                let mut other = connect(&cluster, "postgres");
                (0..400).for_each(|n| other.batch_execute(&distinct(n)).unwrap());
                session.batch_execute("SELECT pgss_rs_reset(queryid => queryid) FROM pgss_rs_stats").unwrap();
            }
        }
    }
    let leaks =
        "SELECT count(*) FROM pgss_rs_stats WHERE query LIKE '%literal%' AND query NOT LIKE '%leaks%'";
    assert_eq!(value(&mut session, leaks), "0");
}
