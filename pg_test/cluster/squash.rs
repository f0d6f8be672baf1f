//! What counts as one statement: lists of constants, values of SET, names of savepoints. The texts asserted are 18's own,
//! and the same on every major.

use crate::servers::{ALONE, BESIDE, Database, Shared, lacks, rows, since, start_with_pgss_rs, value};
use crate::servers::{connect, major, observe};

const TABLE: &str = "CREATE TABLE t (a int, b text, c numeric(5, 2), d bigint, e float, f int[], g jsonb)";

/// Groups of statements, each with the text of the one entry they have.
const GROUPS: &[(&str, &[&str])] = &[
    ("SELECT b FROM t WHERE a IN ($1)", &["SELECT b FROM t WHERE a IN (1)"]),
    (
        "SELECT b FROM t WHERE a IN ($1 /*, ... */)",
        &[
            "SELECT b FROM t WHERE a IN (1, 2)",
            "SELECT b FROM t WHERE a IN (1, 2, 3)",
            "SELECT b FROM t WHERE a IN ( -1, 2, 3,\n 4)",
            "SELECT b FROM t WHERE a IN /* ( */ (1, '2', 3::int, int4(4), NULL)",
        ],
    ),
    (
        "SELECT a FROM t WHERE b NOT IN ($1 /*, ... */) AND a = $2",
        &[
            "SELECT a FROM t WHERE b NOT IN ('a', 'b') AND a = 1",
            "SELECT a FROM t WHERE b NOT /* '( */ IN ('a)', $$b'$$, E'\\'') AND a = 2",
        ],
    ),
    ("SELECT ARRAY[$1]", &["SELECT ARRAY[1]"]),
    (
        "SELECT ARRAY[$1 /*, ... */]",
        &["SELECT ARRAY[1, 2]", "SELECT ARRAY[1, 2, 3]", "SELECT ARRAY['a', 'b']"],
    ),
    (
        "SELECT ARRAY[[$1 /*, ... */], [$2 /*, ... */]]",
        &["SELECT ARRAY[[1, 2], [3, 4]]", "SELECT ARRAY[[1, 2, 3], [3, 4, 5]]"],
    ),
    ("SELECT ARRAY[]::int[] || $1", &["SELECT ARRAY[]::int[] || 1"]),
    (
        "SELECT ARRAY[$1 /*, ... */]::int[] || $2",
        &["SELECT ARRAY[1, 2]::int[] || 1", "SELECT ARRAY['1', 2, 3]::int[] || 2"],
    ),
    (
        "SELECT d FROM t WHERE d = ANY (ARRAY[$1 /*, ... */]) AND $2 IN ($3 /*, ... */) OR a = $4",
        &[
            "SELECT d FROM t WHERE d = ANY (ARRAY[1, 2]) AND 3 IN (4, 5) OR a = 6",
            "SELECT d FROM t WHERE d = ANY (ARRAY[1, 2, 3]) AND 3 IN (4, 5, 6) OR a = 7",
        ],
    ),
    // operators, functions and columns do not count as one
    ("SELECT a FROM t WHERE a IN ($1, $2 + $3)", &["SELECT a FROM t WHERE a IN (1, 2 + 3)"]),
    ("SELECT a FROM t WHERE a IN (abs($1), abs($2))", &["SELECT a FROM t WHERE a IN (abs(1), abs(2))"]),
    (
        "SELECT a FROM t WHERE a IN ($1, $2, d)",
        &["SELECT a FROM t WHERE a IN (1, 2, d)", "SELECT a FROM t WHERE a IN (3, 4, d)"],
    ),
    ("SELECT a FROM t WHERE a IN ($1, $2, $3, d)", &["SELECT a FROM t WHERE a IN (1, 2, 3, d)"]),
    ("SELECT a FROM t WHERE a NOT IN ($1, $2, d, a)", &["SELECT a FROM t WHERE a NOT IN (1, 2, d, a)"]),
    (
        "SELECT a FROM t WHERE (a, b) IN (($1, $2), ($3, $4))",
        &["SELECT a FROM t WHERE (a, b) IN ((1, 'x'), (2, 'y'))"],
    ),
    (
        "SELECT a FROM t WHERE a IN ($1 /*, ... */) OR a = d",
        &["SELECT a FROM t WHERE a IN (1, 2) OR a = d", "SELECT a FROM t WHERE a IN (1, 2, 3) OR a = d"],
    ),
    // nor do rows, arguments of functions, values
    ("SELECT jsonb_extract_path(g, $1, $2) FROM t", &["SELECT jsonb_extract_path(g, 'a', 'b') FROM t"]),
    (
        "SELECT jsonb_extract_path(g, $1, $2, $3) FROM t",
        &["SELECT jsonb_extract_path(g, 'a', 'b', 'c') FROM t"],
    ),
    (
        "SELECT jsonb_extract_path(g, VARIADIC ARRAY[$1 /*, ... */]) FROM t",
        &[
            "SELECT jsonb_extract_path(g, VARIADIC ARRAY['a', 'b']) FROM t",
            "SELECT jsonb_extract_path(g, VARIADIC ARRAY['a', 'b', 'c']) FROM t",
        ],
    ),
    (
        "SELECT ROW($1, $2), GREATEST($3, $4), COALESCE($5, $6)",
        &["SELECT ROW(1, 2), GREATEST(3, 4), COALESCE(5, 6)"],
    ),
    // casts do
    (
        "SELECT e FROM t WHERE c IN ($1 /*, ... */)",
        &["SELECT e FROM t WHERE c IN (1, 2)", "SELECT e FROM t WHERE c IN (1, 2.5, '3')"],
    ),
    (
        "SELECT e FROM t WHERE d IN ($1 /*, ... */)",
        &[
            "SELECT e FROM t WHERE d IN (1::bigint, 2::bigint)",
            "SELECT e FROM t WHERE d IN (1::int::bigint, '2'::bigint, 3)",
        ],
    ),
    (
        "SELECT e FROM t WHERE b IN ($1 /*, ... */)",
        &[
            "SELECT e FROM t WHERE b IN ('a'::varchar, 'b'::varchar)",
            "SELECT e FROM t WHERE b IN ('a'::varchar::text, 'b', 1::text)",
        ],
    ),
    // anywhere in a statement
    (
        "WITH w AS (SELECT a FROM t WHERE a IN ($1 /*, ... */)) SELECT (SELECT max(a) FROM w WHERE a IN ($2 /*, ... */)) FROM w JOIN t ON w.a IN ($3 /*, ... */) ORDER BY w.a IN ($4 /*, ... */)",
        &[
            "WITH w AS (SELECT a FROM t WHERE a IN (1, 2)) SELECT (SELECT max(a) FROM w WHERE a IN (3, 4)) FROM w JOIN t ON w.a IN (5, 6) ORDER BY w.a IN (7, 8)",
            "WITH w AS (SELECT a FROM t WHERE a IN (1, 2, 3)) SELECT (SELECT max(a) FROM w WHERE a IN (3, 4, 5)) FROM w JOIN t ON w.a IN (5, 6, 7) ORDER BY w.a IN (7, 8, 9)",
        ],
    ),
    (
        "UPDATE t SET f = ARRAY[$1 /*, ... */] WHERE a IN ($2 /*, ... */) RETURNING a IN ($3 /*, ... */)",
        &[
            "UPDATE t SET f = ARRAY[1, 2] WHERE a IN (1, 2) RETURNING a IN (3, 4)",
            "UPDATE t SET f = ARRAY[1, 2, 3] WHERE a IN (1, 2, 3) RETURNING a IN (3, 4, 5)",
        ],
    ),
    (
        "INSERT INTO t (f, a) VALUES (ARRAY[$1 /*, ... */], $2), (ARRAY[$3 /*, ... */], $4)",
        &[
            "INSERT INTO t (f, a) VALUES (ARRAY[1, 2], 3), (ARRAY[4, 5], 6)",
            "INSERT INTO t (f, a) VALUES (ARRAY[1, 2, 3], 3), (ARRAY[4, 5, 6], 6)",
        ],
    ),
    (
        "DELETE FROM t WHERE a IN ($1 /*, ... */)",
        &["DELETE FROM t WHERE a IN (91, 92)", "DELETE FROM t WHERE a IN (91, 92, 93)"],
    ),
];

/// Likewise, of utility statements.
const UTILITY_GROUPS: &[(&str, &[&str])] = &[
    (
        "SET work_mem = $1",
        &[
            "SET work_mem = '1MB'",
            "SET work_mem TO '2MB'",
            "set WORK_MEM = 2048",
            "SET SESSION work_mem = '3MB'",
        ],
    ),
    ("SET work_mem = DEFAULT", &["SET work_mem = DEFAULT"]),
    ("SET search_path = $1, b", &["SET search_path = a, b", "SET search_path = 'c'", "SET SCHEMA 'x'"]),
    ("SET my.own = $1", &["SET my.own = on", "SET my.own = -5", "SET my.own = 'x'"]),
    ("SET TIME ZONE 'Asia/Tokyo'", &["SET TIME ZONE 'Asia/Tokyo'"]),
    ("SET TIME ZONE 'UTC'", &["SET TIME ZONE 'UTC'"]),
    ("SET timezone = $1", &["SET timezone = 'UTC'", "SET timezone = 'Asia/Tokyo'"]),
    ("BEGIN", &["BEGIN"]),
    ("SET LOCAL work_mem = $1", &["SET LOCAL work_mem = '1MB'", "SET LOCAL work_mem = '2MB'"]),
    ("SAVEPOINT $1", &["SAVEPOINT a", "SAVEPOINT \"b c\"", "SAVEPOINT c"]),
    ("ROLLBACK TO $1", &["ROLLBACK TO c", "ROLLBACK TO SAVEPOINT a"]),
    ("RELEASE $1", &["RELEASE a", "RELEASE SAVEPOINT a"]),
    ("COMMIT", &["COMMIT"]),
    ("DEALLOCATE $1", &["DEALLOCATE p", "DEALLOCATE PREPARE q"]),
    ("DEALLOCATE ALL", &["DEALLOCATE ALL"]),
    (
        "ALTER DATABASE {db} SET my.own = $1",
        &["ALTER DATABASE {db} SET my.own = 'a'", "ALTER DATABASE {db} SET my.own TO 'b'"],
    ),
    (
        "ALTER ROLE postgres IN DATABASE {db} SET my.own = $1",
        &[
            "ALTER ROLE postgres IN DATABASE {db} SET my.own = 'a'",
            "ALTER ROLE postgres IN DATABASE {db} SET my.own = 'b'",
        ],
    ),
];

/// Runs the groups' statements; the texts and calls of the entries they have then.
fn run_groups(db: &Database, groups: &[(&str, &[&str])], settings: &[&str]) -> Vec<(String, i64)> {
    let mut session = db.session_with(settings);
    for sql in groups.iter().flat_map(|(_, statements)| *statements) {
        let sql = sql.replace("{db}", &db.name);
        let before = match sql.as_str() {
            "DEALLOCATE p" => "PREPARE p AS SELECT",
            "DEALLOCATE PREPARE q" => "PREPARE q AS SELECT",
            "RELEASE SAVEPOINT a" => "SAVEPOINT a",
            _ => "",
        };
        session.batch_execute(&format!("SET pgss_rs.track = none; {before}")).unwrap();
        session.batch_execute("SET pgss_rs.track = top").unwrap();
        session.batch_execute(&sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    let found = db.entries().into_iter().filter(|e| !e.query.contains("pgss_rs.track"));
    found.map(|e| (e.query, e.calls)).collect()
}

fn expected(db: &Database, groups: &[(&str, &[&str])]) -> Vec<(String, i64)> {
    let named =
        groups.iter().map(|(text, statements)| (text.replace("{db}", &db.name), statements.len() as i64));
    let mut expected: Vec<_> = named.collect();
    expected.sort();
    expected
}

#[test]
fn lists_of_constants_count_as_one() {
    let db = ALONE.database();
    db.prepare(TABLE);
    let found = run_groups(&db, GROUPS, &["pgss_rs.track_utility=off"]);
    assert_eq!(found, expected(&db, GROUPS));
}

#[test]
fn values_of_settings_and_names_of_savepoints_do_not_count() {
    let db = ALONE.database();
    let found = run_groups(&db, UTILITY_GROUPS, &[]);
    assert_eq!(found, expected(&db, UTILITY_GROUPS));
}

#[test]
fn a_statement_with_lists_does_what_it_says() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 9)");
    let mut session = db.session();
    let sql = "SELECT array_agg(a ORDER BY a), ARRAY[7, 8], (SELECT count(*) FROM t WHERE a NOT IN (1, 2, 3)) FROM t
               WHERE a IN (4, 2, 6) AND a = ANY (ARRAY[2, 3, 4]) OR a BETWEEN SYMMETRIC (ARRAY[9, 8])[1] AND 9";
    for _ in 0..3 {
        assert_eq!(rows(&mut session, sql), [["{2,4,9}", "{7,8}", "6"].map(|s| Some(s.to_owned()))]);
    }
    let explain = "EXPLAIN (COSTS OFF, VERBOSE) SELECT 1 FROM t WHERE a IN (4, 2, 6)";
    let plan = rows(&mut session, explain);
    assert!(plan.iter().any(|line| line[0].as_deref().unwrap().contains("'{4,2,6}'")), "{plan:?}");
    session.batch_execute("CREATE VIEW v AS SELECT a FROM t WHERE a IN (4, 2, 6)").unwrap();
    assert_eq!(rows(&mut session, "SELECT count(*) FROM v"), [[Some("3".to_owned())]]);
}

/// Analysis needs less stack for such a statement than a walk for lists does.
#[test]
fn a_statement_that_is_too_deep_to_look_for_lists_does_not_fail() {
    let mut session = ALONE.database().session();
    let mut fails = |depth: usize, squash: &str| {
        let sql = format!("PREPARE p AS SELECT 1 WHERE 1 IN (1, 2) AND 0 < 1{}", "+1".repeat(depth));
        session.batch_execute(&format!("SET pgss_rs.squash_lists = {squash}")).unwrap();
        let failed = session.batch_execute(&sql).is_err();
        session.batch_execute("DEALLOCATE ALL").unwrap();
        failed
    };
    let (mut works, mut too_deep) = (1, 100_000);
    while too_deep - works > 1 {
        let depth = (works + too_deep) / 2;
        *(if fails(depth, "off") { &mut too_deep } else { &mut works }) = depth;
    }
    assert!(works > 1000, "{works}");
    for depth in [works, works * 7 / 8, works * 3 / 4] {
        assert!(!fails(depth, "on"), "{depth} of {works}");
    }
}

#[test]
fn off_each_length_of_a_list_and_each_value_counts_as_before_18() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.squash_lists=off"]);
    session.batch_execute("SELECT 1 IN (1, 2); SELECT 1 IN (1, 2, 3); SELECT ARRAY[1, 2]").unwrap();
    session
        .batch_execute("SET work_mem = '1MB'; SET work_mem = '2MB'; BEGIN; SAVEPOINT a; SAVEPOINT b; COMMIT")
        .unwrap();
    session.batch_execute("PREPARE p AS SELECT; DEALLOCATE p").unwrap();
    let set = ["SET work_mem = '1MB'", "SET work_mem = '2MB'"];
    let savepoints = since(17, &["SAVEPOINT $1"][..], &["SAVEPOINT a", "SAVEPOINT b"]);
    let lists = ["SELECT $1 IN ($2, $3)", "SELECT $1 IN ($2, $3, $4)", "SELECT ARRAY[$1, $2]"];
    let lists_18 = ["SELECT $1 IN ($2 /*, ... */)", "SELECT ARRAY[$1 /*, ... */]"];
    let expected = [
        &["BEGIN", "COMMIT"][..],
        since(17, &["DEALLOCATE $1"], &[]),
        savepoints,
        since(18, &lists_18, &lists),
        since(18, &["SET work_mem = $1"], &set),
    ];
    assert_eq!(db.texts(), expected.concat());
}

#[test]
fn the_setting_works_at_once_and_for_texts_that_came_before() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    for (set, squashed, apart) in [("on", 2, 0), ("off", 2, 2), ("on", 4, 2), ("off", 4, 4)] {
        session.batch_execute(&format!("SET pgss_rs.squash_lists = {set}")).unwrap();
        session.batch_execute("SELECT 1 IN (1, 2)").unwrap();
        session.batch_execute("SELECT 1 IN (1, 2)").unwrap();
        let calls = [db.calls("SELECT $1 IN ($2 /*, ... */)").0, db.calls("SELECT $1 IN ($2, $3)").0];
        assert_eq!(calls, since(18, [squashed + apart, 0], [squashed, apart]), "{set}");
    }
}

/// On 16 and 17 an identifier takes more stack than analysis does.
#[test]
fn after_a_statement_that_is_too_deep_for_an_identifier_all_are_grouped_as_before() {
    let db = ALONE.database();
    let mut session = db.session();
    let (mut works, mut too_deep) = (1, 100_000);
    while too_deep - works > 1 {
        let depth = (works + too_deep) / 2;
        let casts = "::int::numeric(5, 2)".repeat(depth);
        let failed = session.batch_execute(&format!("PREPARE p AS SELECT 0{casts}; DEALLOCATE p")).is_err();
        *(if failed { &mut too_deep } else { &mut works }) = depth;
    }
    assert!(works > 500, "{works}");
    for list in ["1, 2", "1, 2, 3"] {
        session.batch_execute(&format!("SELECT 1 IN ({list})")).unwrap();
    }
    assert_eq!(db.calls("SELECT $1 IN ($2 /*, ... */)"), (2, 0));
}

#[test]
fn parameters_are_numbered_anew_beside_lists() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int, b int)");
    let mut session = db.session();
    let params: &[&(dyn postgres::types::ToSql + Sync)] = &[&1i32, &2i32, &3i32];
    for sql in [
        "SELECT a FROM t WHERE b = $3 AND a IN ($1, $2)",
        "SELECT b FROM t WHERE b = $3 AND a IN (4, $1, $2, 5) AND a = 7",
        "SELECT a, b FROM t WHERE b = $3 AND a IN (4, $1::int + $2::int)",
    ] {
        session.query(sql, params).unwrap();
    }
    assert_eq!(
        db.texts(),
        [
            "SELECT a FROM t WHERE b = $1 AND a IN ($2 /*, ... */)",
            "SELECT a, b FROM t WHERE b = $3 AND a IN ($4, $1::int + $2::int)",
            "SELECT b FROM t WHERE b = $1 AND a IN ($2 /*, ... */) AND a = $3",
        ]
    );
}

#[test]
fn what_is_prepared_nested_or_explained_is_grouped_alike() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (a int);
         CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$
         DECLARE v int := 5; BEGIN PERFORM a FROM t WHERE a IN (1, v, 3) AND a = v; PERFORM a FROM t WHERE a IN (1, 2) AND a = v; END $$",
    );
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.track_utility=off"]);
    session.batch_execute("SELECT f()").unwrap();
    assert_eq!(db.calls("SELECT a FROM t WHERE a IN ($1 /*, ... */) AND a = $2"), (0, 2));
    for n in ["p", "q"] {
        let list = if n == "p" { "1, 2" } else { "1, 2, 3" };
        session.batch_execute(&format!("PREPARE {n} AS SELECT 1 FROM t WHERE a IN ({list})")).unwrap();
        // analysed again
        session.batch_execute(&format!("EXECUTE {n}; ANALYZE t; EXECUTE {n}")).unwrap();
    }
    assert_eq!(db.calls("PREPARE p AS SELECT $1 FROM t WHERE a IN ($2 /*, ... */)"), (4, 0));
    session.batch_execute("EXPLAIN SELECT now() FROM t WHERE a IN (1, 2, 3)").unwrap();
    session.batch_execute("EXPLAIN SELECT now() FROM t WHERE a IN (1, 2)").unwrap();
    let explained = db.entries().into_iter().filter(|e| e.query.contains("now()")).collect::<Vec<_>>();
    assert!(
        matches!(&explained[..], [e] if e.calls == 2 && e.query.ends_with("IN ($1 /*, ... */)")),
        "{explained:#?}"
    );
}

/// On 15 the identifiers of other utility statements are hashes of their texts.
#[test]
fn lists_in_utility_statements_count_as_one_from_16_on() {
    let db = ALONE.database();
    db.prepare("CREATE TABLE t (a int); CREATE PROCEDURE p(n int[]) LANGUAGE plpgsql AS 'BEGIN END'");
    let mut session = db.session();
    for list in ["1, 2", "1, 2, 3"] {
        session.batch_execute(&format!("EXPLAIN SELECT a FROM t WHERE a IN ({list})")).unwrap();
        session.batch_execute(&format!("CALL p(ARRAY[{list}])")).unwrap();
        session
            .batch_execute(&format!(
                "BEGIN; DECLARE c CURSOR FOR SELECT a FROM t WHERE a IN ({list}); COMMIT"
            ))
            .unwrap();
    }
    if major() >= 16 {
        let (call, others): (Vec<_>, Vec<_>) = db.texts().into_iter().partition(|t| t.starts_with("CALL"));
        // in 16's identifiers the arguments count
        let apart = &["CALL p(ARRAY[1, 2, 3])", "CALL p(ARRAY[1, 2])"];
        assert_eq!(call, since(17, &["CALL p(ARRAY[$1 /*, ... */])"][..], apart));
        assert_eq!(
            others,
            [
                "BEGIN",
                "COMMIT",
                "DECLARE c CURSOR FOR SELECT a FROM t WHERE a IN ($1 /*, ... */)",
                "EXPLAIN SELECT a FROM t WHERE a IN ($1 /*, ... */)",
            ]
        );
    } else {
        assert_eq!(db.number("count(*)", "query LIKE '%(%1, 2%'"), 6.0, "{:#?}", db.entries());
    }
}

const SAME_ID: &str = "SELECT a.query_id = s.queryid FROM pg_stat_activity a, pgss_rs_stats s
                       WHERE a.pid = {pid} AND s.query = '{query}'";

#[test]
fn with_the_servers_identifiers_on_everybody_sees_the_same() {
    let cluster = start_with_pgss_rs(&[("compute_query_id", "on")]);
    let (mut session, mut observer) = (connect(&cluster, "postgres"), observe(&cluster));
    let pid = value(&mut session, "SELECT pg_backend_pid()");
    session.batch_execute("CREATE TABLE t (a int)").unwrap();
    for (first, second, query) in [
        (
            "SELECT a FROM t WHERE a IN (1, 2)",
            "SELECT a FROM t WHERE a IN (1, 2, 3)",
            "SELECT a FROM t WHERE a IN ($1 /*, ... */)",
        ),
        ("SET work_mem = '1MB'", "SET work_mem = '2MB'", "SET work_mem = $1"),
        ("SELECT 1", "SELECT 2", "SELECT $1"),
    ] {
        for (sql, calls) in [(first, 1.0), (second, 2.0)] {
            session.batch_execute(sql).unwrap();
            let same = SAME_ID.replace("{pid}", &pid).replace("{query}", query);
            assert_eq!(value(&mut observer, &same), "t", "{sql}");
            let counted = format!("SELECT calls FROM pgss_rs_stats WHERE query = '{query}'");
            assert_eq!(crate::servers::number(&mut observer, &counted), calls, "{sql}");
        }
    }
    let explain = "EXPLAIN (VERBOSE, COSTS OFF) SELECT a FROM t WHERE a IN (1, 2, 3, 4)";
    let plan = rows(&mut session, explain);
    let shown =
        plan.iter().find_map(|line| line[0].as_deref().unwrap().strip_prefix("Query Identifier: ")).unwrap();
    let ours = "SELECT queryid FROM pgss_rs_stats WHERE query = 'SELECT a FROM t WHERE a IN ($1 /*, ... */)'";
    assert_eq!(value(&mut observer, ours), shown);
}

#[test]
fn beside_pg_stat_statements_both_group_alike() {
    if lacks("pg_stat_statements") {
        return;
    }
    let servers: [&Shared; 1] = [&BESIDE];
    for db in servers.map(Shared::database) {
        let mut session = db.session();
        session
            .batch_execute(
                "SELECT 1 IN (1, 2); SELECT 1 IN (1, 2, 3); SET work_mem = '1MB'; SET work_mem = '2MB'",
            )
            .unwrap();
        session
            .batch_execute("BEGIN; SAVEPOINT a; SAVEPOINT b; COMMIT; PREPARE p AS SELECT; DEALLOCATE p")
            .unwrap();
        let ours = db.entries();
        assert!(ours.len() >= since(18, 6, 8), "{ours:#?}");
        assert_eq!(ours, db.entries_in("pg_stat_statements"));
        let same = format!(
            "SELECT count(*) FROM pgss_rs_stats a JOIN pg_stat_statements b USING (userid, dbid, queryid, toplevel)
             WHERE dbid = {} AND a.query = b.query",
            db.oid
        );
        assert_eq!(db.ask(&same), [[Some(ours.len().to_string())]]);
    }
}

/// Statements with secrets in them, and what is stored of each.
const SECRETS: &[(&str, &str)] = &[
    ("CREATE ROLE {db}_r PASSWORD 's3cret'", "CREATE ROLE {db}_r PASSWORD $1"),
    (
        "CREATE USER {db}_u WITH ENCRYPTED PASSWORD $p$s3cret$p$ VALID UNTIL '2090-01-01'",
        "CREATE USER {db}_u WITH ENCRYPTED PASSWORD $1 VALID UNTIL $2",
    ),
    (
        "alter role {db}_r -- 's3cret'\n PASSWORD /* s3cret */ U&'s3!0063ret' UESCAPE '!'",
        "alter role {db}_r  \n PASSWORD   $1 UESCAPE $2",
    ),
    ("ALTER USER {db}_u PASSWORD E's3cret\\'s3cret'", "ALTER USER {db}_u PASSWORD $1"),
    ("ALTER GROUP {db}_r ADD USER {db}_u", "ALTER GROUP {db}_r ADD USER {db}_u"),
    ("ALTER ROLE {db}_r SET my.key = 's3cret'", "ALTER ROLE {db}_r SET my.key = $1"),
    (
        "ALTER ROLE {db}_r IN DATABASE {db} SET my.key TO s3cret",
        "ALTER ROLE {db}_r IN DATABASE {db} SET my.key TO $1",
    ),
    ("ALTER DATABASE {db} SET my.key = \"s3cret\"", "ALTER DATABASE {db} SET my.key = $1"),
    ("ALTER SYSTEM SET primary_conninfo = 'password=s3cret'", "ALTER SYSTEM SET primary_conninfo = $1"),
    (
        "CREATE FOREIGN DATA WRAPPER {db}_w OPTIONS (a 's3cret')",
        "CREATE FOREIGN DATA WRAPPER {db}_w OPTIONS (a $1)",
    ),
    (
        "ALTER FOREIGN DATA WRAPPER {db}_w OPTIONS (SET a 's3cret')",
        "ALTER FOREIGN DATA WRAPPER {db}_w OPTIONS (SET a $1)",
    ),
    (
        "CREATE SERVER {db}_s FOREIGN DATA WRAPPER {db}_w OPTIONS (password 's3cret')",
        "CREATE SERVER {db}_s FOREIGN DATA WRAPPER {db}_w OPTIONS (password $1)",
    ),
    ("ALTER SERVER {db}_s OPTIONS (SET password 's3cret')", "ALTER SERVER {db}_s OPTIONS (SET password $1)"),
    (
        "CREATE USER MAPPING FOR {db}_r SERVER {db}_s OPTIONS (password 's3cret')",
        "CREATE USER MAPPING FOR {db}_r SERVER {db}_s OPTIONS (password $1)",
    ),
    (
        "ALTER USER MAPPING FOR {db}_r SERVER {db}_s OPTIONS (SET password 's3cret')",
        "ALTER USER MAPPING FOR {db}_r SERVER {db}_s OPTIONS (SET password $1)",
    ),
    (
        "CREATE FOREIGN TABLE {db}_f (a int OPTIONS (a 's3cret')) SERVER {db}_s OPTIONS (b 's3cret')",
        "CREATE FOREIGN TABLE {db}_f (a int OPTIONS (a $1)) SERVER {db}_s OPTIONS (b $2)",
    ),
    (
        "CREATE SUBSCRIPTION {db}_s CONNECTION 'host=h password=s3cret' PUBLICATION p WITH (connect = false, slot_name = NONE)",
        "CREATE SUBSCRIPTION {db}_s CONNECTION $1 PUBLICATION p WITH (connect = false, slot_name = NONE)",
    ),
    (
        "ALTER SUBSCRIPTION {db}_s CONNECTION 'host=h password=s3cret'",
        "ALTER SUBSCRIPTION {db}_s CONNECTION $1",
    ),
    ("COPY (SELECT 1) TO PROGRAM 'cat > /dev/null # s3cret'", "COPY (SELECT 1) TO PROGRAM $1"),
    ("DO $$ BEGIN ALTER ROLE {db}_r PASSWORD 's3cret'; END $$", "DO $1"),
    ("DO 'BEGIN EXECUTE ''ALTER ROLE {db}_r PASSWORD ''''s3cret''''''; END'", "DO $1"),
    (
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN ALTER ROLE {db}_u PASSWORD 's3cret'; END $$",
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $1",
    ),
];

#[test]
fn no_secret_is_stored_however_it_is_written() {
    for squash in ["on", "off"] {
        let db = ALONE.database();
        let settings = [&format!("pgss_rs.squash_lists={squash}"), "pgss_rs.track=all"];
        let named = |sql: &str| sql.replace("{db}", &db.name);
        let mut session = db.session_with(&settings);
        for (sql, _) in SECRETS {
            session.batch_execute(&named(sql)).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        }
        session.batch_execute(&named("SELECT f(), 's3cret'")).unwrap();
        // in a string of several statements, and once more in the extended protocol, where they may fail
        session
            .batch_execute(&named(
                "SELECT 's3cret'; ALTER ROLE {db}_r PASSWORD 's3cret' ; CREATE ROLE {db}_x PASSWORD 's3cret'",
            ))
            .unwrap();
        for (sql, _) in SECRETS {
            let _ = session.execute(&named(sql), &[]);
        }
        let entries = db.entries();
        for e in &entries {
            let text = e.query.to_lowercase();
            assert!(!text.contains("s3cret") && !text.contains("s3!0063ret"), "{e:?}");
        }
        for (sql, text) in SECRETS {
            assert!(entries.iter().any(|e| e.toplevel && e.query == named(text)), "{sql}: {entries:#?}");
        }
        // from 16 on one statement, however it is written
        let password = named(r"query ILIKE 'alter role {db}\_r%password%$1%'");
        let calls =
            ["toplevel", "NOT toplevel"].map(|l| db.number("sum(calls)", &format!("{l} AND {password}")));
        assert_eq!(calls, [3.0, 4.0], "{entries:#?}");
        assert_eq!(db.calls(&named("ALTER ROLE {db}_u PASSWORD $1")), (0, 1), "{entries:#?}");
        for undo in ["DROP SUBSCRIPTION {db}_s", "ALTER SYSTEM RESET primary_conninfo"] {
            db.prepare(&named(undo));
        }
    }
}

#[test]
fn no_secret_is_stored_of_a_setting_that_does_not_count() {
    let db = ALONE.database();
    let mut session = db.session();
    session
        .batch_execute(
            "SET my.key = 's3cret'; SET LOCAL my.key TO s3cret; SELECT set_config('my.key', 's3cret', false)",
        )
        .unwrap();
    assert_eq!(db.texts(), ["SELECT set_config($1, $2, $3)", "SET LOCAL my.key TO $1", "SET my.key = $1"]);
}
