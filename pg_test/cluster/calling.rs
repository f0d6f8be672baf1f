//! The SQL functions, called in every way that SQL allows.

use crate::servers::{
    ALONE, BESIDE, error_of, force_parallel, lacks, number, rows, since, sqlstate_of, value,
};

#[test]
fn the_functions_work_wherever_a_set_is_allowed() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs; SELECT 1, 2, 3").unwrap();
    let own = format!("dbid = {} AND query = 'SELECT $1, $2, $3'", db.oid);
    for sql in [
        format!("SELECT calls FROM pgss_rs_stats WHERE {own}"),
        format!("SELECT calls FROM pgss_rs_stats() WHERE {own}"),
        format!(
            "SELECT (s).calls FROM (SELECT pgss_rs_stats(true) AS s) x WHERE (s).dbid = {} AND (s).query = 'SELECT $1, $2, $3'",
            db.oid
        ),
        format!("SELECT calls FROM ROWS FROM (pgss_rs_stats(true)) WITH ORDINALITY WHERE {own}"),
        format!("SELECT s.calls FROM (VALUES (true)) v(show), LATERAL pgss_rs_stats(v.show) s WHERE {own}"),
        format!(
            "WITH s AS MATERIALIZED (SELECT * FROM pgss_rs_stats) SELECT a.calls FROM s a JOIN s b USING (userid, dbid, toplevel, queryid) WHERE a.{own}",
            own = own.replace("AND query", "AND a.query")
        ),
    ] {
        assert_eq!(value(&mut session, &sql), "1", "{sql}");
    }
    for sql in [
        "SELECT calls FROM pgss_rs_stats LIMIT 1",
        "SELECT pgss_rs_info()",
        "SELECT * FROM pgss_rs_info() LIMIT 1",
    ] {
        assert_eq!(rows(&mut session, sql).len(), 1, "{sql}");
    }
    assert_eq!(number(&mut session, "SELECT count(*) FROM pgss_rs_stats(NULL)"), 0.0);
    assert_eq!(rows(&mut session, "SELECT pgss_rs_stats(NULL)").len(), 0);
}

#[test]
fn where_no_set_is_allowed_the_error_says_so() {
    let mut session = ALONE.database().session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    for sql in ["SELECT 1 WHERE (pgss_rs_stats(true)).calls > 1", "SELECT 1 LIMIT (pgss_rs_info()).entries"] {
        assert_eq!(error_of(&mut session, sql).code().code(), "0A000", "{sql}");
    }
    assert_eq!(number(&mut session, "SELECT count(*) FROM pgss_rs_info"), 1.0);
}

#[test]
fn the_view_is_read_with_a_cursor_and_in_a_parallel_worker() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs; SELECT 1, 2, 3; SELECT 1, 2").unwrap();
    session.batch_execute("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT query FROM pgss_rs_stats").unwrap();
    let forward = rows(&mut session, "FETCH ALL FROM c");
    let mut backward = rows(&mut session, "FETCH BACKWARD ALL FROM c");
    backward.reverse();
    assert!(forward.len() >= 3 && forward == backward);
    session.batch_execute(&format!("COMMIT; SET {} = on", force_parallel())).unwrap();
    let calls =
        format!("SELECT calls FROM pgss_rs_stats WHERE dbid = {} AND query = 'SELECT $1, $2, $3'", db.oid);
    assert_eq!(value(&mut session, &calls), "1");
    session.batch_execute(&format!("SELECT pgss_rs_reset(0, {})", db.oid)).unwrap();
    assert_eq!(db.calls("SELECT $1, $2, $3"), (0, 0));
}

#[test]
fn the_columns_begin_with_those_of_contrib() {
    let mut session = ALONE.database().session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let columns = |from: &str| {
        format!(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
             FROM pg_attribute WHERE attrelid = '{from}'::regclass AND attnum > 0"
        )
    };
    let stats = value(&mut session, &columns("pgss_rs_stats"));
    let timing = |kind: &str| {
        ["total", "min", "max", "mean", "stddev"]
            .map(|t| format!("{t}_{kind}_time double precision"))
            .join(", ")
    };
    let blocks = ["shared", "local"]
        .map(|k| ["hit", "read", "dirtied", "written"].map(|w| format!("{k}_blks_{w} bigint")).join(", "));
    let times = ["shared", "local", "temp"]
        .map(|k| format!("{k}_blk_read_time double precision, {k}_blk_write_time double precision"));
    let expected = [
        "userid oid, dbid oid, toplevel boolean, queryid bigint, query text, plans bigint",
        &timing("plan"),
        "calls bigint",
        &timing("exec"),
        "rows bigint",
        &blocks.join(", "),
        "temp_blks_read bigint, temp_blks_written bigint",
        &times.join(", "),
        "wal_records bigint, wal_fpi bigint, wal_bytes numeric, wal_buffers_full bigint",
        "jit_functions bigint, jit_generation_time double precision",
        "jit_inlining_count bigint, jit_inlining_time double precision",
        "jit_optimization_count bigint, jit_optimization_time double precision",
        "jit_emission_count bigint, jit_emission_time double precision",
        "jit_deform_count bigint, jit_deform_time double precision",
        "parallel_workers_to_launch bigint, parallel_workers_launched bigint",
        "generic_plan_calls bigint, custom_plan_calls bigint",
        "stats_since timestamp with time zone, minmax_stats_since timestamp with time zone",
        "sampled_calls bigint, calls_stderr double precision, total_exec_time_stderr double precision",
        "p50_exec_time double precision, p90_exec_time double precision",
        "p95_exec_time double precision, p99_exec_time double precision",
        "errors bigint, cancels bigint, total_error_time double precision",
        "first_exec timestamp with time zone, last_exec timestamp with time zone, query_truncated boolean",
    ]
    .join(", ");
    assert!(stats.starts_with(&expected), "{stats}\nnot\n{expected}");
    let info = value(&mut session, &columns("pgss_rs_info"));
    for column in
        ["dealloc bigint", "stats_reset timestamp with time zone", "skipped bigint", "lock_waits bigint"]
    {
        assert!(info.contains(column), "{info}");
    }
}

#[test]
fn the_compatible_objects_are_declared_and_answer_as_contribs() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    let role = format!("compat_{}", db.name);
    db.prepare(&format!(
        "CREATE EXTENSION pgss_rs; CREATE EXTENSION pg_stat_statements; CREATE ROLE {role} LOGIN"
    ));
    let mut session = db.session();
    session
        .batch_execute("SELECT 1; SELECT 1, 2; CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")
        .unwrap();
    let mut session = db.session_with(&["pgss_rs.track=none", "pg_stat_statements.track=none"]);
    let mut same = |sql: &dyn Fn(&str) -> String| {
        let (ours, contribs) = (rows(&mut session, &sql("pgss_compat")), rows(&mut session, &sql("public")));
        assert!(!contribs.is_empty());
        assert_eq!(ours, contribs, "{}", sql("pgss_compat"));
    };
    same(&|schema| {
        format!(
            "SELECT c.relname, attname, attnum, format_type(atttypid, atttypmod) FROM pg_attribute a
             JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'v'
             AND relname LIKE 'pg_stat_statements%' AND attnum > 0 ORDER BY relname, attnum"
        )
    });
    same(&|schema| {
        format!(
            "SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid), proisstrict, provolatile,
                    proparallel FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
             AND proname LIKE 'pg_stat_statements%' ORDER BY proname"
        )
    });
    let columns = "userid, toplevel, queryid, query, plans, calls, rows, wal_records, jit_functions";
    same(&|schema| {
        format!("SELECT {columns} FROM {schema}.pg_stat_statements WHERE dbid = {} ORDER BY query", db.oid)
    });
    let mut plain = db.session_as(&role);
    assert_eq!(sqlstate_of(&mut plain, "SELECT pgss_compat.pg_stat_statements_reset()"), "42501");
    let hidden = "SELECT count(*) FROM pgss_compat.pg_stat_statements
                  WHERE userid = 10 AND query <> '<insufficient privilege>'";
    assert_eq!(number(&mut plain, hidden), 0.0);
    // from 17 on it tells its time
    let told = since(17, "at BETWEEN now() AND clock_timestamp()", "at::text = ''");
    let reset = format!("SELECT {told} FROM pgss_compat.pg_stat_statements_reset(0, {}, 0) AS at", db.oid);
    assert_eq!(value(&mut session, &reset), "t");
    assert_eq!(db.entries(), []);
}
