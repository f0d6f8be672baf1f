//! Loading: not preloaded, beside other modules, without identifiers, and after restarts and crashes.

use postgres::Client;

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{
    ALONE, BARE, BESIDE, BESIDE_INNER, Database, Shared, connect, error_of, lacks, number, rows, sqlstate_of,
    start, start_with_pgss_rs, value,
};

const FUNCTIONS: &[&str] = &[
    "SELECT * FROM pgss_rs_stats",
    "SELECT * FROM pgss_rs_stats(false)",
    "SELECT * FROM pgss_rs_stats(true, 10, now())",
    "SELECT * FROM pgss_rs_stats_and_reset()",
    "SELECT pgss_rs_text(1)",
    "SELECT * FROM pgss_rs_top",
    "SELECT * FROM pgss_rs_info",
    "SELECT * FROM pgss_rs_info()",
    "SELECT pgss_rs_reset()",
    "SELECT pgss_rs_reset(1, 2, 3, true)",
];

fn assert_not_loaded(session: &mut Client) {
    for sql in FUNCTIONS {
        let e = error_of(session, sql);
        assert_eq!(e.code().code(), "55000", "{sql}");
        assert_eq!(e.message(), "pgss_rs must be loaded via \"shared_preload_libraries\"");
        assert!(e.hint().is_some_and(|h| h.contains("shared_preload_libraries")), "{:?}", e.hint());
    }
    // the session goes on as if nothing had been
    for setting in ["sample_rate", "track", "track_utility", "track_planning", "max", "text_memory", "save"] {
        assert_eq!(sqlstate_of(session, &format!("SHOW pgss_rs.{setting}")), "42704");
    }
    assert_eq!(number(session, "SELECT count(*) FROM pg_settings WHERE name LIKE 'pgss_rs.%'"), 0.0);
    session.batch_execute("DO 'BEGIN PERFORM 1; EXCEPTION WHEN OTHERS THEN NULL; END'; SELECT 1").unwrap();
}

#[test]
fn without_preloading_the_functions_say_what_is_missing() {
    let db = BARE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    assert_not_loaded(&mut session);
    session.batch_execute("LOAD 'pgss_rs'").unwrap();
    assert_not_loaded(&mut session);
    let mut preloading = db.session_with(&["session_preload_libraries=pgss_rs"]);
    assert_not_loaded(&mut preloading);
    session.batch_execute("DROP EXTENSION pgss_rs").unwrap();
}

#[test]
fn without_preloading_other_modules_work_as_ever() {
    if lacks("pg_stat_statements") {
        return;
    }
    let cluster = start(&[
        ("shared_preload_libraries", "pg_stat_statements"),
        ("session_preload_libraries", "pgss_rs"),
    ]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute("CREATE EXTENSION pg_stat_statements; CREATE EXTENSION pgss_rs").unwrap();
    assert_not_loaded(&mut session);
    session.batch_execute("SELECT 1, 2, 3").unwrap();
    let calls = "SELECT calls FROM pg_stat_statements WHERE query = 'SELECT $1, $2, $3'";
    assert_eq!(number(&mut session, calls), 1.0);
}

#[test]
fn the_extension_is_dropped_and_created_again_without_a_loss() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs; SELECT 1, 2; DROP EXTENSION pgss_rs").unwrap();
    session.batch_execute("SELECT 3, 4; CREATE EXTENSION pgss_rs").unwrap();
    assert_eq!(db.calls_and_rows("SELECT $1, $2", true), (2, 2));
}

const STATEMENTS: &[&str] = &[
    "CREATE TABLE t (a int)",
    "INSERT INTO t VALUES (1), (2)",
    "SELECT a FROM t WHERE a = 1",
    "UPDATE t SET a = 5",
    "COPY t TO '/dev/null'",
    "PREPARE p AS SELECT a + 1 FROM t",
    "EXECUTE p",
    "DO 'BEGIN PERFORM 1 + 1; END'",
    "SELECT 1/0",
    "DELETE FROM t",
    "BEGIN",
    "ROLLBACK",
    "DROP TABLE t",
];

#[test]
fn beside_other_modules_in_any_order_all_see_every_statement() {
    if lacks("pg_stat_statements") || lacks("auto_explain") {
        return;
    }
    for order in [
        "auto_explain,pg_stat_statements,pgss_rs",
        "pgss_rs,pg_stat_statements,auto_explain",
        "pg_stat_statements,pgss_rs,auto_explain",
    ] {
        let cluster = start(&[
            ("shared_preload_libraries", order),
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_nested_statements", "on"),
            ("pgss_rs.track", "all"),
            ("pg_stat_statements.track", "all"),
        ]);
        let mut session = connect(&cluster, SUPERUSER);
        session.batch_execute("CREATE EXTENSION pgss_rs; CREATE EXTENSION pg_stat_statements").unwrap();
        session.batch_execute("SELECT pgss_rs_reset(); SELECT pg_stat_statements_reset()").unwrap();
        for sql in STATEMENTS {
            let _ = session.batch_execute(sql);
            let _ = session.execute(*sql, &[]);
        }
        session.batch_execute("SET pgss_rs.track = 'none'; SET pg_stat_statements.track = 'none'").unwrap();
        let mut seen = |view: &str| {
            let columns = "query, toplevel, calls, rows, userid, dbid, queryid";
            let ours = "calls > 0 AND query NOT LIKE '%pg_stat_statements%' AND query NOT LIKE '%pgss_rs%'";
            rows(&mut session, &format!("SELECT {columns} FROM {view} WHERE {ours} ORDER BY query, toplevel"))
        };
        let (ours, contribs) = (seen("pgss_rs_stats"), seen("pg_stat_statements"));
        assert_eq!(ours, contribs, "{order}");
        assert!(ours.len() > 10, "{ours:#?}");
        let log = cluster.log();
        for text in [
            "Query Text: INSERT INTO t VALUES (1), (2)",
            "Query Text: SELECT a FROM t WHERE a = 1",
            "Query Text: UPDATE t SET a = 5",
            "Query Text: PREPARE p AS SELECT a + 1 FROM t",
            "Query Text: SELECT 1 + 1",
            "Query Text: DELETE FROM t",
        ] {
            assert!(log.contains(text), "{order}: no {text} in the log");
        }
    }
}

#[test]
fn contrib_sees_every_statement_that_pgss_rs_leaves_out() {
    if lacks("pg_stat_statements") {
        return;
    }
    for server in [&BESIDE, &BESIDE_INNER] {
        for out in ["pgss_rs.sample_rate=0", "pgss_rs.track=none", "pgss_rs.sample_rate=1e-9"] {
            let (with, without) = (server.database(), server.database());
            let seen = |db: &Database, pgss_rs: &str| {
                let mut session = db.session_with(&[pgss_rs, "pg_stat_statements.track=all"]);
                for sql in STATEMENTS {
                    let _ = session.batch_execute(sql);
                    let _ = session.execute(*sql, &[]);
                }
                db.entries_in("pg_stat_statements")
            };
            let expected = seen(&without, "pgss_rs.track=all");
            assert!(expected.len() > 10, "{expected:#?}");
            assert_eq!(seen(&with, out), expected, "{out}");
            assert_eq!(with.entries(), [], "{out}");
        }
    }
}

#[test]
fn without_identifiers_nothing_is_recorded_and_nothing_breaks() {
    let cluster = start_with_pgss_rs(&[
        ("compute_query_id", "off"),
        ("pgss_rs.track", "all"),
        ("pgss_rs.track_planning", "on"),
    ]);
    let mut session = connect(&cluster, SUPERUSER);
    for sql in STATEMENTS {
        let _ = session.batch_execute(sql);
        let _ = session.execute(*sql, &[]);
    }
    assert_eq!(number(&mut session, "SELECT count(*) FROM pgss_rs_stats"), 0.0);
    assert_eq!(number(&mut session, "SELECT skipped FROM pgss_rs_info"), 0.0);
    // and from one statement to the next they come back
    session.batch_execute("SET compute_query_id = on; SELECT 1, 2").unwrap();
    let calls = "SELECT calls FROM pgss_rs_stats WHERE query = 'SELECT $1, $2'";
    assert_eq!(number(&mut session, calls), 1.0);
}

#[test]
fn identifiers_computed_only_on_request_are_requested() {
    let db = ALONE.database();
    let mut session = db.session();
    assert_eq!(value(&mut session, "SHOW compute_query_id"), "auto");
    session.batch_execute("SELECT 1, 2").unwrap();
    assert_eq!(db.calls_and_rows("SELECT $1, $2", true), (1, 1));
}

/// Statistics are empty but for what is done here, and recording works.
fn assert_records_anew(cluster: &Cluster, name: &str) {
    let mut session = connect(cluster, SUPERUSER);
    let old = number(&mut session, "SELECT count(*) FROM pgss_rs_stats WHERE query LIKE '%before%'");
    assert_eq!(old, 0.0, "{name}");
    session.batch_execute("SELECT 1, 2; SELECT 3, 4; CREATE TEMP TABLE after_start (a int)").unwrap();
    let calls =
        "SELECT sum(calls) FROM pgss_rs_stats WHERE query = 'SELECT $1, $2' OR query LIKE '%after_start%'";
    assert_eq!(number(&mut session, calls), 3.0, "{name}");
    assert_eq!(number(&mut session, "SELECT skipped FROM pgss_rs_info"), 0.0, "{name}");
    let since = "SELECT bool_and(stats_since >= stats_reset AND stats_reset > pg_postmaster_start_time() - interval '1 s')
                 FROM pgss_rs_stats, pgss_rs_info";
    assert_eq!(value(&mut session, since), "t", "{name}");
}

#[test]
fn recording_works_again_after_every_kind_of_restart() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save", "off")]);
    let before = "SELECT 1 AS before, 2, 3";
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(before).unwrap();
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        cluster.restart(how).unwrap();
        assert_records_anew(&cluster, &format!("{how:?}"));
        connect(&cluster, SUPERUSER).batch_execute(before).unwrap();
    }
    cluster.kill().unwrap();
    cluster.start().unwrap();
    assert_records_anew(&cluster, "postmaster killed");
}

#[test]
fn after_the_crash_of_a_backend_recording_starts_anew() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.max", "100")]);
    for round in 0..3 {
        let mut session = connect(&cluster, SUPERUSER);
        // the table is full and busy when the backend goes
        let many: String = (0..300).map(|n| crate::servers::distinct(n) + ";").collect();
        session.batch_execute(&many).unwrap();
        session.batch_execute("SELECT 1 AS before, 2, 3").unwrap();
        let pid: i32 = value(&mut session, "SELECT pg_backend_pid()").parse().unwrap();
        let mut busy = connect(&cluster, SUPERUSER);
        let thread = std::thread::spawn(move || while busy.batch_execute(&many).is_ok() {});
        cluster.crash(pid).unwrap();
        thread.join().unwrap();
        assert!(session.batch_execute("SELECT 1").is_err());
        assert_records_anew(&cluster, &format!("crash {round}"));
        let mut session = connect(&cluster, SUPERUSER);
        assert_eq!(number(&mut session, "SELECT dealloc FROM pgss_rs_info"), 0.0);
        assert_eq!(number(&mut session, "SELECT max_entries FROM pgss_rs_info"), 100.0);
    }
}

#[test]
fn every_database_sees_the_same_statistics() {
    fn count(server: &Shared, db: &Database) -> String {
        let mut session = connect(server.cluster(), &db.name);
        session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
        let of = "FROM pgss_rs_stats WHERE dbid =";
        value(&mut session, &format!("SELECT sum(calls) {of} {} AND query = 'SELECT $1, $2'", db.oid))
    }
    let (one, two) = (ALONE.database(), ALONE.database());
    one.session().batch_execute("SELECT 1, 2").unwrap();
    two.session().batch_execute("SELECT 1, 2; SELECT 3, 4").unwrap();
    assert_eq!((count(&ALONE, &one), count(&ALONE, &two)), ("1".to_owned(), "2".to_owned()));
}

#[test]
fn a_server_without_room_for_the_saver_starts_and_records() {
    let mut cluster = start_with_pgss_rs(&[("max_worker_processes", "0")]);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1, 2, 3").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    let mut session = connect(&cluster, SUPERUSER);
    let calls = "SELECT calls FROM pgss_rs_stats WHERE query = 'SELECT $1, $2, $3'";
    assert_eq!(number(&mut session, calls), 1.0);
}

#[test]
fn contribs_extension_is_created_beside_ours_where_its_schema_is_said() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let mut session = db.session_with(&["search_path=pgss_compat,public"]);
    // it would go where our names are
    assert_eq!(sqlstate_of(&mut session, "CREATE EXTENSION pg_stat_statements"), "42723");
    session.batch_execute("CREATE EXTENSION pg_stat_statements SCHEMA public").unwrap();
    let schema = |session: &mut Client, name: &str| {
        let sql = format!("SELECT relnamespace::regnamespace FROM pg_class WHERE oid = '{name}'::regclass");
        value(session, &sql)
    };
    assert_eq!(schema(&mut session, "pg_stat_statements"), "pgss_compat");
    assert_eq!(schema(&mut session, "public.pg_stat_statements"), "public");
}
