//! The texts that are stored: normalised as contrib's, and never with a literal in them.

use crate::servers::{ALONE, BESIDE, BESIDE_INNER, Database, Entry, Shared};
use crate::servers::{connect, distinct, lacks, number, rows, start_with_pgss_rs, value};
use postgres::types::Type;

/// What no stored text may contain.
const SECRET: &str = "s3cret";

/// More other statements than a backend carries texts of.
fn others() -> String {
    (0..3000).map(|n| distinct(n) + ";").collect()
}

fn assert_no_secret(db: &Database, calls: i64) {
    let entries = db.entries();
    assert!(entries.iter().all(|e| !e.query.contains(SECRET)), "{entries:#?}");
    assert_eq!(entries.iter().map(|e| e.calls).sum::<i64>(), calls, "{entries:#?}");
}

const TABLES: &str = "
    CREATE TABLE t (a int, b text, c numeric DEFAULT 7, d date, e int[], f jsonb);
    CREATE TABLE u (a int PRIMARY KEY, b text);
    CREATE FUNCTION add(x int, y int DEFAULT 5) RETURNS int LANGUAGE sql AS 'SELECT x + y';
    CREATE TYPE pair AS (x int, y int);
    INSERT INTO t SELECT i, 'b' || i FROM generate_series(1, 10) i;
    INSERT INTO u SELECT i, 'b' || i FROM generate_series(1, 10) i;
    CREATE PROCEDURE nothing(n int) LANGUAGE plpgsql AS 'BEGIN NULL; END';";

const STATEMENTS: &[&str] = &[
    "SELECT 1",
    "SELECT 1 AS one, 'two' AS \"two\", 3.0, .4, 5e6, -7, - 8, +9",
    "SELECT 1   AS   spaces ;  ",
    "  SELECT 2 /* 'comment' */ + 3 -- and '4'\n",
    "/* leading 1 */ SELECT 5 AS leading",
    "SELECT 'it''s', E'\\'esc\\'', U&'\\0041', N'n', B'101', X'1F', $$dollar 'quoted'$$, $tag$ $$ $tag$",
    "SELECT 'continued'\n  'on the next line', 1",
    "SELECT 'a' 'b'",
    "SELECT TRUE, FALSE, NULL, 'x'::text, CAST('1' AS int), int '7', date '2020-01-01'",
    "SELECT INTERVAL '1' DAY, '1 day'::interval, interval(3) '1.5 s'",
    "SELECT a FROM t WHERE a IN (1, 2, 3) AND b = ANY ('{x,y}') OR b LIKE 'b%' ESCAPE '!'",
    "SELECT a FROM t WHERE a IN (1, 2)",
    "SELECT a FROM t WHERE a BETWEEN 1 AND 5 ORDER BY 1 LIMIT 3 OFFSET 1",
    "SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS ONLY",
    "SELECT a FROM t ORDER BY a FETCH FIRST ROW ONLY",
    "SELECT a % 2, count(*) FILTER (WHERE a > 3) FROM t GROUP BY 1 HAVING count(*) > 0 ORDER BY 2",
    "SELECT b, row_number() OVER (ORDER BY a ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t",
    "SELECT a[1], a[1:2], (ARRAY[1,2,3])[2], ROW(1,'x'), (ROW(1,2)::pair).x FROM (SELECT e AS a FROM t) s",
    "SELECT f -> 'k' ->> 0, f @> '{\"a\": 1}' FROM t",
    "SELECT a-1, a -1, a - 1, a*-1, 2-1, a@-1 FROM (SELECT 5 AS a) s WHERE 1=1",
    "SELECT CASE a WHEN 1 THEN 'one' ELSE 'many' END, COALESCE(b, 'none'), NULLIF(a, 3), GREATEST(a, 4) FROM t",
    "SELECT extract(year FROM now()) > 2000, substring('abc' FROM 2 FOR 1), overlay('abc' placing 'x' from 1)",
    "SELECT trim(both 'x' from 'xax'), position('b' in 'abc'), 'abc' ~ '^a', 'a' || 1",
    "SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g(x, y)",
    "SELECT * FROM t TABLESAMPLE SYSTEM (50) REPEATABLE (1) WHERE false",
    "SELECT 1 UNION SELECT 2 UNION ALL SELECT 3 EXCEPT SELECT 4 ORDER BY 1 LIMIT 2",
    "VALUES (1, 'a'), (2, 'b')",
    "TABLE u",
    "WITH w AS (SELECT 1 AS x), RECURSIVE AS (SELECT 2) SELECT w.x + 3 FROM w",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r",
    "SELECT EXISTS (SELECT 1 FROM t WHERE a = 3), (SELECT 4), 5 = ANY (SELECT a FROM t), 6 > ALL (SELECT 1)",
    "SELECT t.a, l.z FROM t LEFT JOIN u ON t.a = u.a AND u.b <> 'q' CROSS JOIN LATERAL (SELECT t.a + 1 AS z) l",
    "SELECT a, count(*) FROM t GROUP BY GROUPING SETS ((a), ()) ORDER BY 1 NULLS FIRST",
    "SELECT add(1), add(1, 2), add(y => 3, x => 4)",
    "SELECT 'größe', '日本', 1 AS \"ключ\"",
    "SELECT a FROM t WHERE a = 1 FOR UPDATE",
    "SELECT U&'d!0061t' UESCAPE '!', U&\"d!0061t\" UESCAPE '!' FROM (SELECT 1 AS dat) s",
    "SELECT -1::int, (-1), - - 1, -/*c*/5, 4 -- c\n - 5, -.5e-3, 1., +.5, 99999999999999999999",
    "SELECT -9223372036854775808, -2147483648, 1e400::numeric, '-1'::int",
    "SELECT 'a'\n--comment\n  'b', E'x'\n'y\\n'",
    "SELECT char(3) 'abc', bit '101', time with time zone '12:00+01', float8 '1.5', point '(1,2)', nchar 'n'",
    "SELECT interval '1-2' year to month, current_date + 1, localtime(0), 'now'::timestamp(3), 1::numeric(10,2)",
    "SELECT ARRAY[[1,2],[3,4]], '{1,2}'::int[], (1,2) = (3,4), (1, 2) IN ((1,2), (3,4)), 1 IS DISTINCT FROM 3",
    "SELECT 'a' COLLATE \"C\" < 'b', 1 OPERATOR(pg_catalog.+) 2, COLLATION FOR ('x'), 5 BETWEEN SYMMETRIC 9 AND 1",
    "SELECT count(*) OVER (PARTITION BY 1 ORDER BY 2), sum(1) FILTER (WHERE true), string_agg('x', ',') FROM t",
    "SELECT 'tab\there', 'semi;colon', '--no comment', '/* nor this */', 'dollar $1'",
    "SELECT \"weird;\"\"name 1\" FROM (SELECT 1) AS s(\"weird;\"\"name 1\") WHERE 'x' <> 'y'",
    "SELECT$$glued$$,1",
    "select\r\n1\t,\x0b2",
    "SELECT 1 WHERE 1 = 1 AND NOT 2 = 3 OR 4 IN (SELECT 5) IS NOT TRUE",
    "SELECT (SELECT max(a) FROM t WHERE a < 100), t.* FROM t WHERE t.a IN (SELECT a + 1 FROM u WHERE a > 0)",
    "SELECT xmlelement(name foo, 'x'), xmlparse(content '<a/>')",
    "SELECT to_tsvector('english', 'a text') , &[]);
 'text'::tsquery, '1 week'::interval * 2",
    "SELECT a FROM t WHERE CURRENT_USER = 'x' AND a::text || '' = '5' OFFSET 0 ROWS",
    "INSERT INTO t (a, b) VALUES (1, 'x'), (2, DEFAULT)",
    "INSERT INTO t VALUES (3, 'y')",
    "INSERT INTO t SELECT 4, 'z' FROM generate_series(1, 2)",
    "INSERT INTO u VALUES (1, 'dup') ON CONFLICT (a) DO UPDATE SET b = 'again' WHERE u.a = 1 RETURNING a, 'r'",
    "UPDATE t SET b = 'u', c = DEFAULT, (a, d) = (9, '2020-02-02') WHERE a = 2",
    "UPDATE t SET e[1] = 5 WHERE a = 9 RETURNING e[1], 1",
    "DELETE FROM t USING u WHERE t.a = u.a AND u.b = 'b3'",
    "MERGE INTO u USING (SELECT 99 AS a) s ON u.a = s.a WHEN NOT MATCHED THEN INSERT VALUES (99, 'm')
     WHEN MATCHED THEN UPDATE SET b = 'n'",
    "WITH d AS (DELETE FROM t WHERE a = 10 RETURNING a) INSERT INTO t SELECT a + 1 FROM d",
    // utility statements
    "BEGIN",
    "SAVEPOINT one",
    "ROLLBACK TO one",
    "RELEASE one",
    "COMMIT",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "ROLLBACK",
    "SET work_mem = '5MB'",
    "SHOW work_mem",
    "RESET work_mem",
    "CREATE TABLE v (a int PRIMARY KEY DEFAULT 1, b text UNIQUE CHECK (b <> 'no'))",
    "ALTER TABLE v ADD COLUMN c int DEFAULT 5",
    "CREATE INDEX ON v (b) WHERE c > 3",
    "CREATE VIEW w AS SELECT a + 1 AS a FROM v WHERE c = 2",
    "SELECT a + 4 FROM w",
    "CREATE TABLE x AS SELECT 1 AS a",
    "SELECT 1 AS a, 'b' AS b INTO y",
    "CREATE MATERIALIZED VIEW m AS SELECT 1 AS a",
    "REFRESH MATERIALIZED VIEW m",
    "TRUNCATE x",
    "DROP TABLE x, y",
    "EXPLAIN SELECT 1 + 2",
    "EXPLAIN (ANALYZE, COSTS OFF) SELECT a FROM t WHERE a = 77",
    "PREPARE p(int) AS SELECT $1 + 1, 'const'",
    "EXECUTE p(1)",
    "EXECUTE p(2)",
    "CREATE TABLE z AS EXECUTE p(3)",
    "DEALLOCATE p",
    "DO 'BEGIN PERFORM 1 + 1; END'",
    "COPY (SELECT 1, 'x') TO '/dev/null'",
    "CALL nothing(1)",
    "LISTEN a",
    "NOTIFY a, 'payload'",
    "UNLISTEN *",
    "ANALYZE t",
    "COMMENT ON TABLE t IS 'a comment'",
    "LOCK TABLE t",
    "SELECT 1/0",
    "SELECT nonsense",
    "GRANT SELECT ON t TO PUBLIC",
    "CHECKPOINT",
    "DISCARD PLANS",
    // one string, several statements
    "SELECT 11 AS m1; SELECT 'x' AS m2;; UPDATE t SET a = 1 WHERE false; SHOW work_mem ;  SELECT 12 AS m3  ",
    "SELECT 1 AS before_error; SELECT 1/(1-1); SELECT 2 AS after_error",
];

/// Runs every statement that `which` picks twice, in the simple and the extended protocol, whether it fails or not.
fn run(server: &Shared, settings: &[&str], which: impl Fn(&str) -> bool) -> (Vec<Entry>, Vec<Entry>) {
    let db = server.database();
    db.prepare(TABLES);
    let mut session = db.session_with(settings);
    let statements = || STATEMENTS.iter().filter(|s| which(s));
    for statement in statements() {
        let _ = session.batch_execute(statement);
    }
    for statement in statements() {
        let _ = session.execute(*statement, &[]);
    }
    (db.entries(), db.entries_in("pg_stat_statements"))
}

#[test]
fn statements_are_stored_as_contrib_stores_them() {
    if lacks("pg_stat_statements") {
        return;
    }
    for server in [&BESIDE, &BESIDE_INNER] {
        let (ours, contribs) = run(server, &[], |_| true);
        assert!(contribs.len() > 70, "{contribs:#?}");
        assert_same(&ours, &contribs);
    }
}

#[test]
fn without_utility_statements_the_rest_is_stored_as_contrib_stores_it() {
    if lacks("pg_stat_statements") {
        return;
    }
    let off = ["pgss_rs.track_utility=off", "pg_stat_statements.track_utility=off"];
    // contrib takes what these execute for top-level statements
    let executes = |sql: &str| ["EXPLAIN", "COPY", "DO"].iter().any(|s| sql.starts_with(s));
    let (ours, contribs) = run(&BESIDE, &off, |sql| !executes(sql));
    assert!(contribs.len() > 30, "{contribs:#?}");
    assert!(ours.iter().all(|e| !e.query.starts_with("CREATE")), "{ours:#?}");
    assert_same(&ours, &contribs);
}

/// Entries that only one of the two has, or has otherwise.
pub fn differences<'a>(ours: &'a [Entry], contribs: &'a [Entry]) -> Vec<(&'static str, &'a Entry)> {
    let only = |who, these: &'a [Entry], those: &'a [Entry]| {
        these.iter().filter(|e| !those.contains(e)).map(move |e| (who, e)).collect::<Vec<_>>()
    };
    [only("only contrib", contribs, ours), only("only pgss_rs", ours, contribs)].concat()
}

fn assert_same(ours: &[Entry], contribs: &[Entry]) {
    assert_eq!(differences(ours, contribs), []);
    assert_eq!(ours, contribs);
}

#[test]
fn escapes_in_plain_strings_are_understood_as_contrib_does() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    let settings = ["standard_conforming_strings=off", "escape_string_warning=off", "backslash_quote=on"];
    let mut session = db.session_with(&settings);
    for sql in [
        r"SELECT 'it\'s', 1",
        r"SELECT 'a\\' || 'b', 2",
        r"SELECT E'\\', 'x\n', 'y''z', 1",
        r"SELECT N'\'', $$\$$, 1, 2.5",
    ] {
        session.batch_execute(sql).unwrap();
        session.execute(sql, &[]).unwrap();
    }
    let texts = ["SELECT $1 || $2, $3", "SELECT $1, $2", "SELECT $1, $2, $3, $4", "SELECT N$1, $2, $3, $4"];
    assert_eq!(db.texts(), texts);
    assert_same(&db.entries(), &db.entries_in("pg_stat_statements"));
}

#[test]
fn parameters_keep_their_numbers_and_constants_count_on_from_them() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    let mut session = db.session();
    let params: &[&(dyn postgres::types::ToSql + Sync)] = &[&1i32, &2i32];
    for sql in ["SELECT $1::int + 5, $2::int, 'x'", "SELECT $2::int + 6, $1::int + 7 WHERE 8 = 8"] {
        session.query(sql, params).unwrap();
    }
    let texts = db.texts();
    assert_eq!(
        texts,
        ["SELECT $1::int + $3, $2::int, $4", "SELECT $2::int + $3, $1::int + $4 WHERE $5 = $6"]
    );
    assert_same(&db.entries(), &db.entries_in("pg_stat_statements"));
}

#[test]
fn each_statement_of_a_string_has_its_own_text() {
    let db = ALONE.database();
    db.session().batch_execute("SELECT 1 AS a ; SELECT 'é' AS b, 2 AS c;SELECT 3.0 AS d").unwrap();
    assert_eq!(db.texts(), ["SELECT $1 AS a", "SELECT $1 AS b, $2 AS c", "SELECT $1 AS d"]);
}

#[test]
fn no_literal_is_stored_when_the_entry_goes_between_prepare_and_execute() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute(&format!("PREPARE p AS SELECT '{SECRET}', E'{SECRET}', $${SECRET}$$")).unwrap();
    for _ in 0..3 {
        db.reset();
        session.batch_execute("EXECUTE p").unwrap();
        assert_no_secret(&db, 1);
    }
}

#[test]
fn no_literal_is_stored_when_a_known_statement_is_reset_after_its_analysis() {
    let db = ALONE.database();
    let mut session = db.session();
    // known, hence perhaps not carried again, when it is prepared
    session.batch_execute("SELECT 'a' AS known, TRUE").unwrap();
    session.batch_execute(&others()).unwrap();
    session.batch_execute(&format!("PREPARE p AS SELECT '{SECRET}' AS known, TRUE")).unwrap();
    let extended = session.prepare(&format!("SELECT '{SECRET}' AS known, TRUE")).unwrap();
    db.reset();
    session.batch_execute("EXECUTE p").unwrap();
    assert_no_secret(&db, 1);
    db.reset();
    session.query(&extended, &[]).unwrap();
    assert_no_secret(&db, 1);
}

#[test]
fn no_literal_is_stored_after_many_other_statements() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    session.batch_execute(&format!("PREPARE p AS SELECT '{SECRET}'")).unwrap();
    let extended = session.prepare(&format!("SELECT '{SECRET}' || now()")).unwrap();
    session.batch_execute(&others()).unwrap();
    db.reset();
    session.batch_execute("EXECUTE p").unwrap();
    session.query(&extended, &[]).unwrap();
    assert_eq!(db.texts(), ["PREPARE p AS SELECT $1", "SELECT $1 || now()"]);
    assert_no_secret(&db, 2);
}

#[test]
fn no_literal_is_stored_of_a_statement_analysed_at_another_setting() {
    for (at_analysis, at_execution) in [
        ("pgss_rs.sample_rate = 0", "pgss_rs.sample_rate = 1"),
        ("pgss_rs.track = 'none'", "pgss_rs.track = 'top'"),
        ("pgss_rs.track = 'none'", "pgss_rs.track = 'all'"),
    ] {
        let db = ALONE.database();
        let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
        session
            .batch_execute(&format!("SET {at_analysis}; PREPARE p AS SELECT '{SECRET}' AS first, 1"))
            .unwrap();
        let extended = session.prepare(&format!("SELECT '{SECRET}' AS second")).unwrap();
        session.batch_execute("EXECUTE p").unwrap();
        session.query(&extended, &[]).unwrap();
        assert_no_secret(&db, 0);
        session.batch_execute(&format!("SET {at_execution}; EXECUTE p")).unwrap();
        session.query(&extended, &[]).unwrap();
        assert_eq!(
            db.texts(),
            ["PREPARE p AS SELECT $1 AS first, $2", "SELECT $1 AS second"],
            "{at_analysis}, {at_execution}"
        );
    }
}

#[test]
fn no_literal_is_stored_of_a_nested_statement_analysed_when_only_the_top_was_tracked() {
    let db = ALONE.database();
    db.prepare(&format!(
        "CREATE FUNCTION f() RETURNS text LANGUAGE plpgsql AS $f$
         DECLARE r text; BEGIN SELECT '{SECRET}' || now() INTO r; RETURN r; END $f$"
    ));
    let mut session = db.session_with(&["pgss_rs.track=top"]);
    session.batch_execute("SELECT f()").unwrap();
    session.batch_execute("SET pgss_rs.track = 'all'; SELECT f()").unwrap();
    assert_eq!(db.calls("SELECT $1 || now()"), (0, 1));
    assert!(db.texts().iter().all(|t| !t.contains(SECRET)), "{:?}", db.texts());
}

#[test]
fn no_literal_is_stored_when_an_equal_statement_had_none() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    let mut session = db.session();
    // the count that FETCH FIRST ROW leaves out stands nowhere in the text, and is a constant all the same
    session.batch_execute("SELECT a FROM t FETCH FIRST ROW ONLY").unwrap();
    db.reset();
    session.batch_execute("SELECT a FROM t LIMIT 73517").unwrap();
    assert_eq!(db.texts(), ["SELECT a FROM t LIMIT $1"]);
}

#[test]
fn no_literal_is_stored_when_the_meaning_of_a_backslash_changed_meanwhile() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    session.batch_execute(&format!(r"PREPARE p AS SELECT 'a\' AS known, '{SECRET}'")).unwrap();
    session.batch_execute(&others()).unwrap();
    session.batch_execute("SET standard_conforming_strings = off").unwrap();
    db.reset();
    session.batch_execute("EXECUTE p").unwrap();
    assert_no_secret(&db, 1);
}

#[test]
fn no_literal_of_another_statement_is_stored_with_what_explain_runs() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.track_utility=off"]);
    session.batch_execute(&format!("SELECT '{SECRET}'; EXPLAIN (ANALYZE) SELECT 5 AS explained")).unwrap();
    assert_no_secret(&db, 2);
}

#[test]
fn what_explain_explains_shows_the_whole_string_if_there_is_nothing_else_in_it() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    session.batch_execute("  EXPLAIN SELECT 5 AS alone;  ").unwrap();
    session.batch_execute(&format!("EXPLAIN SELECT 5, now(); EXPLAIN SELECT '{SECRET}', 6;")).unwrap();
    let nested: Vec<String> = db.entries().into_iter().filter(|e| !e.toplevel).map(|e| e.query).collect();
    assert_eq!(nested, ["EXPLAIN SELECT $1 AS alone;", "EXPLAIN SELECT $1, $2", "EXPLAIN SELECT $1, now()"]);
}

#[test]
fn the_statement_that_resets_everything_shows_what_it_was_given_and_no_other_constant() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, "postgres");
    session.batch_execute("SET search_path = public, pgss_compat").unwrap();
    let mut after = |sql: &str| {
        session.batch_execute(sql).unwrap();
        value(&mut session, "SELECT string_agg(query, '|') FROM pgss_rs_stats WHERE query ~ 'reset'")
    };
    assert_eq!(after("SELECT pg_stat_statements_reset(0, 0, 0)"), "SELECT pg_stat_statements_reset(0, 0, 0)");
    let with_secret = format!("SELECT pg_stat_statements_reset(0,0), '{SECRET}', 5");
    assert_eq!(after(&with_secret), "SELECT pg_stat_statements_reset(0,0), $1, $2");
    assert_eq!(after("SELECT pgss_rs_reset(0, 0)"), "SELECT pgss_rs_reset($1, $2)");
    after("SELECT pg_stat_statements_reset()");
    let both = after("SELECT pg_stat_statements_reset(10,0,5)");
    assert!(both.contains("SELECT pg_stat_statements_reset($1,$2,$3)"), "{both}"); // which removed nothing
}

#[test]
fn a_utility_statement_that_failed_does_not_tell_the_place_of_a_later_statement() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    // the later source may well stand where the failed one stood in memory
    let block = format!(
        "DO $$ BEGIN FOR i IN 1..20 LOOP
           BEGIN EXECUTE 'SELECT 1, 2, 3, 4; CREATE TABLE t (a int)'; EXCEPTION WHEN OTHERS THEN NULL; END;
           EXECUTE 'SELECT ''{SECRET} one'', ''{SECRET}'', now()';
           BEGIN EXECUTE 'SELECT 1, 2, 3, 4; EXPLAIN ANALYZE SELECT 1 / 0'; EXCEPTION WHEN OTHERS THEN NULL; END;
           EXECUTE 'SELECT ''{SECRET}'', ''{SECRET} two'', 1, now()';
         END LOOP; END $$"
    );
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.track_utility=off"]);
    session.batch_execute(&block).unwrap();
    let on = db.session_with(&["pgss_rs.track=all"]).batch_execute(&block);
    on.unwrap();
    let of = format!("query LIKE '%{SECRET}%' AND query NOT LIKE 'DO %'");
    assert_eq!(db.number("count(*)", &of), 0.0, "{:#?}", db.entries());
    for text in ["SELECT $1, $2, now()", "SELECT $1, $2, $3, now()"] {
        let (top, nested) = db.calls(text);
        assert_eq!(top + nested, 40, "{:#?}", db.entries());
    }
}

#[test]
fn no_literal_is_stored_of_a_text_too_long_to_carry() {
    let db = ALONE.database();
    let long = "x".repeat(100_000);
    db.session().batch_execute(&format!("SELECT '{SECRET}' AS long, '{long}', 1")).unwrap();
    assert_eq!(db.texts(), ["SELECT $1 AS long, $2, $3"]);
    let columns: String = (0..20_000).map(|n| format!(", {n}")).collect();
    let sql = format!("SELECT FROM (VALUES ('{SECRET}'{columns})) v");
    // more columns than a row may have, as a list instead; of constants alone, 18 would keep only the first
    let sql = sql
        .replace("VALUES (", "SELECT ARRAY[now(), ")
        .replace(")) v", "]::text[]) v")
        .replace(", ", "::text, ");
    db.session().batch_execute(&sql).unwrap();
    let long = db.texts().into_iter().find(|t| t.starts_with("SELECT FROM")).unwrap();
    assert!(long.len() > 64 * 1024 && !long.contains(SECRET), "{}", long.len());
    assert!(
        long.starts_with("SELECT FROM (SELECT ARRAY[now()::text, $1::text, $2::text, $3"),
        "{}",
        &long[..80]
    );
}

#[test]
fn a_text_of_a_latin1_database_is_read_in_utf8() {
    let db = ALONE.database_with("ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    let mut session = db.session();
    session.batch_execute("SELECT 1 AS \"größe\", 'ß'").unwrap();
    // not carried any more: the other way to normalise
    session.batch_execute("PREPARE p AS SELECT 2 AS \"größe\", 'ß'").unwrap();
    assert_eq!(db.texts(), ["SELECT $1 AS \"größe\", $2"]);
    db.reset();
    session.batch_execute("EXECUTE p").unwrap();
    assert_eq!(db.texts(), ["SELECT $1 AS \"größe\", $2"]);
    // the other way round, what LATIN1 does not have is shown as question marks, and keeps nothing from being read
    let utf8 = ALONE.database();
    utf8.session().batch_execute("SELECT 1 AS \"ключ\"").unwrap();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let sql = format!("SELECT query FROM pgss_rs_stats WHERE dbid = {}", utf8.oid);
    assert_eq!(value(&mut session, &sql), "SELECT $1 AS \"????????\"");
}

#[test]
fn a_text_longer_than_the_pool_is_cut_at_a_character_and_marked() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.text_memory", "64kB")]);
    let mut session = connect(&cluster, "postgres");
    let entries = "SELECT query, query_truncated, calls FROM pgss_rs_stats WHERE query LIKE";
    // three bytes a character, at each of the three ways to meet the end
    for prefix in ["c", "cc", "ccc"] {
        let names: String = (0..5000).map(|n| format!(", 1 AS \"{}{n}\"", "語".repeat(10))).collect();
        // a list of columns may not be so long
        let from = names.replace(", 1 AS ", ", now() AS ").replacen(", ", "", 1);
        let chunks: Vec<&str> = from.split(", ").collect();
        let selects: Vec<String> =
            chunks.chunks(1000).map(|c| format!("SELECT FROM (SELECT {}) s", c.join(", "))).collect();
        // from 18 on a comment before the statement is not part of it
        let sql = selects.join(" UNION ALL ").replacen("SELECT", &format!("SELECT/*{prefix}*/"), 1);
        session.batch_execute(&sql).unwrap();
        let stored = rows(&mut session, &format!("{entries} 'SELECT/*{prefix}*/%'"));
        let [row] = stored.as_slice() else { panic!("{stored:?}") };
        let text = row[0].as_deref().unwrap();
        assert_eq!(row[1..], [Some("t".to_owned()), Some("1".to_owned())]);
        assert!(!text.is_empty() && sql.starts_with(text), "{text}");
        assert!(text.len() < 64 * 1024, "{}", text.len());
        session.batch_execute("SELECT pgss_rs_reset()").unwrap();
    }
    // more texts than there is room for: no statement is lost
    let filler = "語".repeat(20);
    let many: String = (0..1500).map(|n| format!("{} AS \"{filler}\";", distinct(n))).collect();
    session.batch_execute(&many).unwrap();
    session.batch_execute(&many).unwrap();
    let sum = |client: &mut _, what| number(client, &format!("SELECT {what} FROM pgss_rs_stats"));
    assert_eq!(sum(&mut session, "count(*) FILTER (WHERE calls = 2)"), 1500.0);
    assert!(sum(&mut session, "count(*) FILTER (WHERE query_truncated)") > 500.0);
    let wrong =
        "count(*) FILTER (WHERE NOT query_truncated AND query LIKE 'SELECT $1+%' AND query NOT LIKE '%\"')";
    assert_eq!(sum(&mut session, wrong), 0.0);
    // room again after a reset
    session.batch_execute("SELECT pgss_rs_reset(); SELECT 1 AS whole_again").unwrap();
    let again = rows(&mut session, &format!("{entries} '%whole_again'"));
    assert_eq!(again, [["SELECT $1 AS whole_again", "f", "1"].map(|s| Some(s.to_owned()))]);
}

#[test]
fn a_typed_parameter_of_the_extended_protocol_is_not_a_constant() {
    let db = ALONE.database();
    let mut session = db.session();
    let statement = session.prepare_typed("SELECT $1, 'x'", &[Type::TEXT]).unwrap();
    for secret in [SECRET, "other"] {
        session.query(&statement, &[&secret]).unwrap();
    }
    assert_eq!(db.calls_and_rows("SELECT $1, $2", true), (2, 2));
}

/// A rule's NOTIFY has the identifier and the source of the statement that the rule is for, and runs first.
#[test]
fn no_literal_is_stored_by_a_utility_statement_of_a_rule() {
    let servers: &[&Shared] =
        if lacks("pg_stat_statements") { &[&ALONE] } else { &[&ALONE, &BESIDE, &BESIDE_INNER] };
    for db in servers.iter().map(|server| server.database()) {
        db.prepare("CREATE TABLE t (s text); CREATE RULE r AS ON DELETE TO t DO ALSO NOTIFY gone");
        let mut session = db.session();
        session
            .batch_execute(&format!(
                "SELECT '{SECRET}'; DELETE FROM t WHERE s = '{SECRET}'; SELECT 1, '{SECRET}'"
            ))
            .unwrap();
        session.execute(&format!("DELETE FROM t WHERE s = '{SECRET}'"), &[]).unwrap();
        assert_eq!(db.texts(), ["DELETE FROM t WHERE s = $1", "SELECT $1", "SELECT $1, $2"]);
    }
}

/// What a rule puts in a statement's stead has no place in the source.
#[test]
fn no_literal_of_another_statement_is_stored_by_a_rule() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (s text); CREATE TABLE log (s text);
         CREATE RULE r AS ON UPDATE TO t DO INSTEAD INSERT INTO log SELECT NEW.s",
    );
    let mut session = db.session();
    session.batch_execute(&format!("SELECT '{SECRET}'; UPDATE t SET s = s")).unwrap();
    assert_eq!(db.texts(), ["SELECT $1", "UPDATE t SET s = s"]);
    db.reset();
    session.batch_execute(&format!("PREPARE p AS UPDATE t SET s = s; SELECT '{SECRET}'")).unwrap();
    session.batch_execute(&others()).unwrap();
    db.reset();
    session.batch_execute("EXECUTE p").unwrap();
    assert_no_secret(&db, 1);
}

#[test]
fn a_statement_that_was_explained_has_its_own_text_when_it_is_executed() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int)");
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    session.batch_execute("EXPLAIN SELECT a, a FROM t WHERE a = 5").unwrap();
    session.batch_execute("SELECT a, a FROM t WHERE a = 6").unwrap();
    let texts: Vec<(String, bool)> = db.entries().into_iter().map(|e| (e.query, e.toplevel)).collect();
    assert!(texts.contains(&("SELECT a, a FROM t WHERE a = $1".to_owned(), true)), "{texts:?}");
    assert!(texts.contains(&("EXPLAIN SELECT a, a FROM t WHERE a = $1".to_owned(), false)), "{texts:?}");
}

#[test]
fn a_text_that_cannot_be_converted_does_not_keep_the_others_from_being_read() {
    let latin1 = ALONE.database_with("ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    let ascii = ALONE.database_with("ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    latin1.session().batch_execute("CREATE TABLE \"é\" (a int)").unwrap();
    let mut session = ascii.session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let found = "SELECT count(*) FROM pgss_rs_stats WHERE query = 'CREATE TABLE \"?\" (a int)'";
    assert_eq!(value(&mut session, found), "1");
}
