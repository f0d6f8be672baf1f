//! What else is counted of a statement: planning, parallel workers, compiled expressions, blocks and WAL.

use std::time::Instant;

use crate::cluster::SUPERUSER;
use crate::servers::{
    ALONE, BESIDE, Database, connect, force_parallel, lacks, major, observe, since, start_with_pgss_rs, value,
};

const BIG: &str = "
    CREATE TABLE big AS SELECT i AS a, repeat('x', 100) AS b FROM generate_series(1, 20000) i;
    ANALYZE big;
    CREATE FUNCTION safe(n int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS
      'BEGIN PERFORM count(*) FROM pg_am; RETURN n; END';";

/// Makes every table worth two workers.
const PARALLEL: [&str; 6] = [
    "pgss_rs.track=all",
    "pgss_rs.track_utility=off",
    "parallel_setup_cost=0",
    "parallel_tuple_cost=0",
    "min_parallel_table_scan_size=0",
    "max_parallel_workers_per_gather=2",
];

fn plan(db: &Database, settings: &[&str], sql: &str) -> String {
    let mut session = db.session_with(&[settings, &["pgss_rs.track=none"]].concat());
    session
        .query(&format!("EXPLAIN {sql}"), &[])
        .unwrap()
        .iter()
        .map(|r| r.get::<_, String>(0) + "\n")
        .collect()
}

#[test]
fn a_parallel_query_is_one_call_that_includes_its_workers() {
    let db = ALONE.database();
    db.prepare(BIG);
    let sql = "SELECT count(b) FROM big";
    assert!(plan(&db, &PARALLEL, sql).contains("Workers Planned: 2"));
    let mut session = db.session_with(&PARALLEL);
    for _ in 0..3 {
        session.batch_execute(sql).unwrap();
    }
    assert_eq!(db.calls_and_rows(sql, true), (3, 3));
    assert_eq!(db.entries().len(), 1, "{:#?}", db.entries());
    // every page was read three times, mostly by the workers
    let pages: f64 =
        value(&mut db.session_with(&["pgss_rs.track=none"]), "SELECT pg_relation_size('big') / 8192")
            .parse()
            .unwrap();
    assert!(db.number("sum(shared_blks_hit + shared_blks_read)", "true") >= 3.0 * pages);
}

/// On a server of its own, whose one worker no other test takes.
#[test]
fn workers_that_a_plan_wanted_and_got_are_counted_from_18_on() {
    let cluster = start_with_pgss_rs(&[("max_parallel_workers", "1")]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(BIG).unwrap();
    for (name, value) in PARALLEL.iter().filter_map(|setting| setting.split_once('=')) {
        session.batch_execute(&format!("SET {name} = '{value}'")).unwrap();
    }
    session.batch_execute(&"SELECT a FROM big WHERE a <= 100;".repeat(3)).unwrap();
    let counted = "SELECT (calls, rows, parallel_workers_to_launch, parallel_workers_launched)::text
                   FROM pgss_rs_stats WHERE query = 'SELECT a FROM big WHERE a <= $1'";
    assert_eq!(value(&mut observe(&cluster), counted), since(18, "(3,300,6,3)", "(3,300,,)"));
    session.batch_execute("SET max_parallel_workers_per_gather = 0; SELECT a, b FROM big").unwrap();
    let counted = counted.replace("SELECT a FROM big WHERE a <= $1", "SELECT a, b FROM big");
    assert_eq!(value(&mut observe(&cluster), &counted), since(18, "(1,20000,0,0)", "(1,20000,,)"));
}

#[test]
fn a_parallel_index_build_includes_its_workers() {
    let db = ALONE.database();
    db.prepare(&format!("{BIG} ALTER TABLE big SET (parallel_workers = 2)"));
    let settings = ["max_parallel_maintenance_workers=2", "min_parallel_table_scan_size=0"];
    db.session_with(&settings).batch_execute("CREATE INDEX ON big (b, a)").unwrap();
    assert_eq!(db.calls_and_rows("CREATE INDEX ON big (b, a)", true), (1, 0));
    let pages: f64 =
        value(&mut db.session_with(&["pgss_rs.track=none"]), "SELECT pg_relation_size('big') / 8192")
            .parse()
            .unwrap();
    assert!(db.number("shared_blks_hit + shared_blks_read", "true") >= pages);
}

#[test]
fn workers_record_nothing_of_their_own() {
    let db = ALONE.database();
    db.prepare(BIG);
    // the whole plan runs in a worker
    let force = format!("{}=on", force_parallel());
    let settings = [&PARALLEL[..], &[&force]].concat();
    let sql = "SELECT safe(7)";
    assert!(plan(&db, &settings, sql).contains("Single Copy: true"));
    db.session_with(&settings).batch_execute(sql).unwrap();
    assert_eq!(db.calls_and_rows("SELECT safe($1)", true), (1, 1));
    assert_eq!(db.entries().len(), 1, "{:#?}", db.entries());
    // where it runs in the leader, what it executes is recorded
    db.session_with(&PARALLEL).batch_execute(sql).unwrap();
    assert_eq!(db.calls("SELECT count(*) FROM pg_am"), (0, 1));
}

#[test]
fn plannings_are_counted_when_asked_for() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_planning=on", "plan_cache_mode=force_generic_plan"]);
    session.batch_execute("SELECT 1; SELECT 1; SELECT 1").unwrap();
    let of = "query = 'SELECT $1'";
    let shown = "plans = 3 AND calls = 3 AND total_plan_time > 0 AND min_plan_time > 0
                 AND min_plan_time <= mean_plan_time AND mean_plan_time <= max_plan_time
                 AND abs(total_plan_time - 3 * mean_plan_time) < 1e-6 AND stddev_plan_time >= 0";
    assert_eq!(db.value(shown, of), "t");
    // planned once, executed four times
    let statement = session.prepare("SELECT $1::int + 1").unwrap();
    for _ in 0..4 {
        session.query(&statement, &[&1i32]).unwrap();
    }
    assert_eq!(db.value("plans || ' ' || calls", "query = 'SELECT $1::int + $2'"), "1 4");
    // planned but never executed
    session.batch_execute("PREPARE p AS SELECT 1, 2; EXPLAIN EXECUTE p").unwrap();
    session.batch_execute("SET pgss_rs.track_planning = off; SELECT 1").unwrap();
    assert_eq!(db.value("plans || ' ' || calls", of), "3 4");
}

#[test]
fn without_track_planning_nothing_is_shown_of_it() {
    let db = ALONE.database();
    db.session().batch_execute("SELECT 1").unwrap();
    let none = "plans = 0 AND total_plan_time = 0 AND min_plan_time = 0 AND max_plan_time = 0
                AND mean_plan_time = 0 AND stddev_plan_time = 0 AND calls = 1";
    assert_eq!(db.value(none, "true"), "t");
}

#[test]
fn compiled_expressions_are_counted_where_the_server_can_compile() {
    let db = ALONE.database();
    let jit = ["jit=on", "jit_above_cost=0", "jit_inline_above_cost=0", "jit_optimize_above_cost=0"];
    db.session_with(&[&jit[..], &["jit_expressions=on"]].concat())
        .batch_execute("SELECT pg_backend_pid() > 1")
        .unwrap();
    let available =
        value(&mut db.session_with(&["pgss_rs.track=none", "jit=on"]), "SELECT pg_jit_available()");
    let counted =
        "jit_functions > 0 AND jit_generation_time > 0 AND jit_inlining_count = 1 AND jit_inlining_time > 0
                   AND jit_optimization_count = 1 AND jit_optimization_time > 0 AND jit_emission_count = 1
                   AND jit_emission_time > 0";
    let of = "query = 'SELECT pg_backend_pid() > $1'";
    assert_eq!(db.value(counted, of), available);
    // nothing was deformed, and before 17 that is not told apart
    let deformed = since(
        17,
        "jit_deform_count = 0 AND jit_deform_time = 0",
        "num_nulls(jit_deform_count, jit_deform_time) = 2",
    );
    assert_eq!(db.value(deformed, of), "t");
    db.reset();
    db.session_with(&["jit=off"]).batch_execute("SELECT pg_backend_pid() > 1").unwrap();
    assert_eq!(
        db.value("jit_functions + jit_inlining_count + jit_optimization_count + jit_emission_count", of),
        "0"
    );
}

/// 15 of Debian has LLVM; the servers of 16, 17 and 18 that `.ci/setup` makes have none, and count nothing.
#[test]
fn deforming_that_was_compiled_is_counted_from_17_on() {
    let db = ALONE.database();
    db.prepare(BIG);
    let jit = ["jit=on", "jit_above_cost=0", "jit_tuple_deforming=on", "max_parallel_workers_per_gather=0"];
    db.session_with(&jit).batch_execute("SELECT sum(a) FROM big WHERE b > 'w'").unwrap();
    let available =
        value(&mut db.session_with(&["pgss_rs.track=none", "jit=on"]), "SELECT pg_jit_available()");
    let deformed = since(
        17,
        "jit_deform_count = 1 AND jit_deform_time > 0 AND jit_deform_time <= total_exec_time",
        "num_nulls(jit_deform_count, jit_deform_time) = 2 AND jit_functions > 0",
    );
    assert_eq!(db.value(deformed, "query LIKE 'SELECT sum(a)%'"), available);
}

/// Buffers so small that every statement has to read and write.
#[test]
fn times_of_reading_and_writing_are_counted_while_the_server_takes_them() {
    let small = [("shared_buffers", "1MB"), ("wal_buffers", "32kB"), ("bgwriter_lru_maxpages", "0")];
    let cluster = start_with_pgss_rs(&small);
    let mut observer = observe(&cluster);
    let settings =
        "SET temp_buffers = '800kB'; SET work_mem = '64kB'; SET max_parallel_workers_per_gather = 0";
    connect(&cluster, SUPERUSER).batch_execute(BIG).unwrap();
    for timed in ["on", "off"] {
        let mut session = connect(&cluster, SUPERUSER);
        session.batch_execute(&format!("{settings}; SET track_io_timing = {timed}")).unwrap();
        // hint bits are set before the checkpoint: with checksums, 18's default, they too make full page images
        session.batch_execute("VACUUM big").unwrap();
        session.batch_execute("CHECKPOINT").unwrap();
        observer.batch_execute("SELECT pgss_rs_reset()").unwrap();
        session
            .batch_execute(
                "SELECT count(b) FROM big; UPDATE big SET a = a; CREATE TEMP TABLE local AS SELECT * FROM big;
                 SELECT count(b) FROM local; SELECT b FROM big ORDER BY b, a DESC OFFSET 30000",
            )
            .unwrap();
        let mut holds = |query: &str, condition: &str| {
            let sql = format!("SELECT {condition} FROM pgss_rs_stats WHERE query LIKE '{query}%'");
            assert_eq!(value(&mut observer, &sql), "t", "{query}: {condition}, track_io_timing = {timed}");
        };
        let when_timed =
            |time: &str| if timed == "on" { format!("{time} > 0") } else { format!("{time} = 0") };
        // on 15 the times of local blocks are part of the shared blocks', and 16 takes none
        let local = |time: &str| match major() {
            15 => when_timed(&time.replace("local", "shared")),
            16 => format!("{time} IS NULL"),
            _ => when_timed(time),
        };
        for (query, blocks, time) in [
            ("SELECT count(b) FROM big", "shared_blks_read", when_timed("shared_blk_read_time")),
            ("UPDATE big", "shared_blks_written", when_timed("shared_blk_write_time")),
            ("CREATE TEMP TABLE", "local_blks_written", local("local_blk_write_time")),
            ("SELECT count(b) FROM local", "local_blks_read", local("local_blk_read_time")),
            ("SELECT b FROM big", "temp_blks_read", when_timed("temp_blk_read_time")),
            ("SELECT b FROM big", "temp_blks_written", when_timed("temp_blk_write_time")),
        ] {
            holds(query, &format!("{blocks} > 0 AND {time}"));
        }
        // of the statement's time, as far as there is one
        holds("UPDATE big", "shared_blk_read_time + shared_blk_write_time < total_exec_time");
        // the first change of a page after a checkpoint is a full image; more of them than the buffers hold
        let full = since(18, "wal_buffers_full > 0", "wal_buffers_full IS NULL");
        let wal = "wal_records >= 20000 AND wal_fpi > 100 AND wal_bytes > 100 * 4096";
        holds("UPDATE big", &format!("{wal} AND {full}"));
        holds("SELECT count(b) FROM local", &format!("wal_records = 0 AND {}", full.replace("> 0", "= 0")));
    }
}

#[test]
fn blocks_and_wal_are_those_the_statement_used() {
    let db = ALONE.database();
    db.prepare(BIG);
    let mut session = db.session_with(&["work_mem=64kB", "track_io_timing=on"]);
    session
        .batch_execute(
            "CREATE TEMP TABLE local AS SELECT * FROM big; SELECT count(*) FROM local; INSERT INTO big VALUES (1, 'y');
             SELECT b FROM big ORDER BY b, a DESC OFFSET 30000; SELECT 1, 2, 3",
        )
        .unwrap();
    let holds = |condition: &str, query: &str| {
        assert_eq!(db.value(condition, &format!("query LIKE '{query}'")), "t", "{query}: {condition}");
    };
    holds("local_blks_dirtied > 0 AND local_blks_written > 0", "CREATE TEMP TABLE%");
    holds("local_blks_hit + local_blks_read > 0", "SELECT count(*) FROM local");
    holds("wal_records > 0 AND wal_bytes > 0 AND shared_blks_hit > 0", "INSERT INTO big%");
    holds("temp_blks_read > 0 AND temp_blks_written > 0 AND temp_blk_write_time > 0", "SELECT b FROM big%");
    let none =
        "shared_blks_hit + shared_blks_read + local_blks_hit + temp_blks_read + wal_records + wal_bytes = 0";
    holds(none, "SELECT $1, $2, $3");
}

#[test]
fn what_this_major_does_not_know_is_null() {
    let db = ALONE.database();
    db.session().batch_execute("SELECT 1, 2, 3").unwrap();
    let known = |columns: &str, first_major: u32| {
        let expected = if major() >= first_major { "num_nulls" } else { "num_nonnulls" };
        assert_eq!(
            db.value(&format!("{expected}({columns})"), "query = 'SELECT $1, $2, $3'"),
            "0",
            "{columns}"
        );
    };
    known("local_blk_read_time, local_blk_write_time, jit_deform_count, jit_deform_time", 17);
    known("wal_buffers_full, parallel_workers_to_launch, parallel_workers_launched", 18);
    known("generic_plan_calls, custom_plan_calls", 19);
    // what contrib has from 17 on is known everywhere
    known("stats_since, minmax_stats_since", 15);
}

#[test]
fn plannings_and_usage_are_those_that_contrib_counts() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    db.prepare(BIG);
    let settings =
        ["pgss_rs.track_planning=on", "pg_stat_statements.track_planning=on", "work_mem=64kB", "jit=off"];
    let parallel = PARALLEL.iter().filter(|s| !s.starts_with("pgss_rs"));
    let mut session = db.session_with(&settings.iter().chain(parallel).copied().collect::<Vec<_>>());
    for sql in [
        "SELECT count(*) FROM big",
        "SELECT a FROM big ORDER BY b, a DESC OFFSET 19999",
        "CREATE TEMP TABLE local AS SELECT * FROM big",
        "SELECT count(*) FROM local",
        "UPDATE local SET a = a + 1",
        "INSERT INTO big SELECT a, b FROM big WHERE a <= 100",
        "UPDATE big SET a = a WHERE a <= 50",
        "DELETE FROM big WHERE a > 19990",
        "CREATE INDEX ON big (a)",
        "SELECT a FROM big WHERE a = 7",
        "WITH d AS (DELETE FROM big WHERE a = 8 RETURNING a) SELECT a FROM d",
        "CREATE TABLE parent (a int PRIMARY KEY)",
        "CREATE TABLE child (a int REFERENCES parent DEFERRABLE)",
        "INSERT INTO parent SELECT generate_series(1, 100)",
        "INSERT INTO child SELECT generate_series(1, 100)",
        "PREPARE p(int) AS SELECT a FROM big WHERE a = $1",
        "EXECUTE p(1)",
        "EXECUTE p(2)",
        "EXPLAIN EXECUTE p(3)",
        "COPY child TO '/dev/null'",
        "TRUNCATE child",
    ] {
        session.batch_execute(sql).unwrap();
    }
    let statement = session.prepare("SELECT b FROM big WHERE a = $1").unwrap();
    for n in 0..8i32 {
        session.query(&statement, &[&n]).unwrap();
    }
    let newer = since(18, ", wal_buffers_full, parallel_workers_to_launch, parallel_workers_launched", "");
    let counted = |view: &str| {
        db.ask(&format!(
            "SELECT query, plans, calls, rows, shared_blks_hit, shared_blks_read, shared_blks_dirtied,
                    local_blks_hit, local_blks_read, local_blks_dirtied, local_blks_written, temp_blks_read,
                    temp_blks_written, wal_records, wal_fpi, wal_bytes{newer}
             FROM {view} WHERE dbid = {} ORDER BY query",
            db.oid
        ))
    };
    let (ours, contribs) = (counted("pgss_rs_stats"), counted("pg_stat_statements"));
    assert!(contribs.len() > 15, "{contribs:#?}");
    for (ours, contribs) in ours.iter().zip(&contribs) {
        assert_eq!(ours, contribs);
    }
    assert_eq!(ours.len(), contribs.len());
}

#[test]
fn times_are_milliseconds() {
    let db = ALONE.database();
    let mut session = db.session();
    let begun = Instant::now();
    session
        .batch_execute("SELECT pg_sleep(0.02); SELECT pg_sleep(0.02); DO 'BEGIN PERFORM pg_sleep(0.02); END'")
        .unwrap();
    let elapsed = begun.elapsed().as_secs_f64() * 1000.0;
    for (condition, least) in [("query = 'SELECT pg_sleep($1)'", 40.0), ("query LIKE 'DO%'", 20.0)] {
        let total = db.number("sum(total_exec_time)", condition);
        assert!(least <= total && total <= elapsed, "{total} of {elapsed}");
    }
}
