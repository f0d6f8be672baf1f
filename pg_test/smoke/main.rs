//! What must hold on every server major: load, record, read, restart. Runs on the server of `PG_CONFIG`; the rest of
//! the tests know PostgreSQL 15's texts and need contrib's modules beside.

#[path = "../../src/bin/pgss_rs_load/cluster.rs"]
mod cluster;

#[path = "../clients.rs"]
mod clients;

use cluster::{Cluster, SUPERUSER, Shutdown};
use postgres::{Client, Config, NoTls};

fn server() -> Cluster {
    let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
    let settings = [("shared_preload_libraries", "pgss_rs"), ("pgss_rs.track", "all")];
    let builder =
        settings.into_iter().fold(Cluster::builder(pg_config), |b, (name, value)| b.setting(name, value));
    let cluster = builder.start().unwrap();
    connect(&cluster).batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    cluster
}

fn connect(cluster: &Cluster) -> Client {
    let mut config = Config::new();
    config.host_path(cluster.socket_dir()).port(cluster.port()).user(SUPERUSER).dbname(SUPERUSER);
    config.connect(NoTls).unwrap()
}

fn major(client: &mut Client) -> i32 {
    let number: String = client.query_one("SHOW server_version_num", &[]).unwrap().get(0);
    number.parse::<i32>().unwrap() / 10_000
}

/// Calls and rows of a statement.
fn counted(client: &mut Client, query: &str, toplevel: bool) -> Option<(i64, i64)> {
    let sql = "SELECT calls, rows FROM pgss_rs_stats WHERE query = $1 AND toplevel = $2";
    client.query_opt(sql, &[&query, &toplevel]).unwrap().map(|row| (row.get(0), row.get(1)))
}

#[test]
fn statements_are_recorded_normalised_and_kept_over_a_restart() {
    let mut cluster = server();
    let mut client = connect(&cluster);
    client.batch_execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')").unwrap();
    for n in 1..=3 {
        client.batch_execute(&format!("SELECT a FROM t WHERE a <= {n} AND b <> 'secret'")).unwrap();
    }
    client.execute("INSERT INTO t VALUES ($1, 'z')", &[&5]).unwrap();
    client.batch_execute("DO 'BEGIN PERFORM a FROM t WHERE a = 1; END'").unwrap();
    client.batch_execute("BEGIN; SAVEPOINT s").unwrap();
    assert!(client.batch_execute("SELECT 1 / 0").is_err());
    client.batch_execute("ROLLBACK TO s; COMMIT; PREPARE p AS SELECT 1 + 2; EXECUTE p").unwrap();

    let check = |client: &mut Client| {
        assert_eq!(counted(client, "SELECT a FROM t WHERE a <= $1 AND b <> $2", true), Some((3, 5)));
        assert_eq!(counted(client, "INSERT INTO t VALUES ($1, $2)", true), Some((1, 1)));
        assert_eq!(counted(client, "SELECT a FROM t WHERE a = $1", false), Some((1, 1)));
        assert_eq!(counted(client, "PREPARE p AS SELECT $1 + $2", true), Some((1, 1)));
        let sane = "SELECT bool_and(min_exec_time <= mean_exec_time AND mean_exec_time <= max_exec_time
                      AND shared_blks_hit >= 0 AND wal_bytes >= 0 AND calls = sampled_calls) FROM pgss_rs_stats
                    WHERE calls > 0";
        assert!(client.query_one(sane, &[]).unwrap().get::<_, bool>(0));
        let leaks =
            "SELECT count(*) FROM pgss_rs_stats WHERE query LIKE '%secret%' AND query NOT LIKE '%pgss%'";
        assert_eq!(client.query_one(leaks, &[]).unwrap().get::<_, i64>(0), 0);
    };
    check(&mut client);
    cluster.restart(Shutdown::Fast).unwrap();
    check(&mut connect(&cluster));
}

#[test]
fn blocks_times_and_wal_are_counted() {
    let cluster = server();
    let mut client = connect(&cluster);
    client
        .batch_execute(
            "SET track_io_timing = on; CREATE TABLE big AS SELECT n FROM generate_series(1, 20000) AS n",
        )
        .unwrap();
    client.batch_execute("UPDATE big SET n = n + 1").unwrap();
    client.batch_execute("CREATE TEMP TABLE tmp AS SELECT * FROM big; SELECT count(*) FROM tmp").unwrap();
    let row = client
        .query_one(
            "SELECT sum(wal_records) > 20000, sum(shared_blks_hit) > 0, sum(local_blks_hit) > 0,
                    max(total_exec_time) > 0.1, max(total_exec_time) < 60000,
                    sum(shared_blk_read_time + shared_blk_write_time) BETWEEN 0 AND 60000
             FROM pgss_rs_stats",
            &[],
        )
        .unwrap();
    assert!((0..row.len()).all(|n| row.get::<_, bool>(n)), "{row:?}");
}

#[test]
fn contribs_view_has_this_majors_columns_and_what_the_server_cannot_know_is_null() {
    let cluster = server();
    let mut client = connect(&cluster);
    client.batch_execute("SELECT 1").unwrap();
    let major = major(&mut client);
    let columns = "SELECT count(*) FROM pg_attribute
                   WHERE attrelid = 'pgss_compat.pg_stat_statements'::regclass AND attnum > 0";
    let expected = match major {
        15 | 16 => 43,
        17 => 49,
        18 => 52,
        other => panic!("PostgreSQL {other} is not supported"),
    };
    assert_eq!(client.query_one(columns, &[]).unwrap().get::<_, i64>(0), expected);
    let unknown = "SELECT num_nulls(local_blk_read_time, jit_deform_count, wal_buffers_full,
                     parallel_workers_to_launch, generic_plan_calls) FROM pgss_rs_stats LIMIT 1";
    let nulls = client.query_one(unknown, &[]).unwrap().get::<_, i32>(0);
    assert_eq!(
        nulls,
        match major {
            15 | 16 => 5,
            17 => 3,
            _ => 1,
        }
    );
    client
        .batch_execute("SELECT pgss_compat.pg_stat_statements_reset(); SELECT pgss_rs_refresh_compat()")
        .unwrap();
    assert_eq!(client.query_one(columns, &[]).unwrap().get::<_, i64>(0), expected);
}

/// The load driver makes statements distinct by it.
#[test]
fn statements_that_differ_in_the_name_of_a_cte_have_entries_of_their_own() {
    let cluster = server();
    let mut client = connect(&cluster);
    for n in (0..50).chain(0..50) {
        client.batch_execute(&format!("WITH c{n} AS (SELECT 1 AS n) SELECT n FROM c{n}")).unwrap();
    }
    let counts = "SELECT count(*), count(DISTINCT queryid), min(calls), max(calls) FROM pgss_rs_stats
                  WHERE query LIKE 'WITH c% AS (SELECT $1 AS n) SELECT n FROM c%'";
    let row = client.query_one(counts, &[]).unwrap();
    assert_eq!([0, 1, 2, 3].map(|column| row.get::<_, i64>(column)), [50, 50, 2, 2]);
}

/// From 16 on the server looks for constants in utility statements, from 18 on it takes lists of constants as one itself.
#[test]
fn texts_are_normalised_and_grouped_on_every_major() {
    let cluster = server();
    let mut client = connect(&cluster);
    let major = major(&mut client);
    client.batch_execute("EXPLAIN (COSTS OFF) SELECT 'secret'").unwrap();
    let explain =
        if major == 15 { "EXPLAIN (COSTS OFF) SELECT 'secret'" } else { "EXPLAIN (COSTS OFF) SELECT $1" };
    assert_eq!(counted(&mut client, explain, true), Some((1, 0)));
    for list in ["1, 2", "1, 2, 3"] {
        client.batch_execute(&format!("SELECT count(*) FROM pg_class WHERE relpages IN ({list})")).unwrap();
        client.batch_execute("ALTER ROLE postgres PASSWORD 'secret'; SET work_mem = '1MB'").unwrap();
    }
    let list = "SELECT count(*) FROM pg_class WHERE relpages IN ($1 /*, ... */)";
    assert_eq!(counted(&mut client, list, true), Some((2, 2)));
    assert_eq!(counted(&mut client, "ALTER ROLE postgres PASSWORD $1", true), Some((2, 0)));
    assert_eq!(counted(&mut client, "SET work_mem = $1", true), Some((2, 0)));
}

#[test]
fn a_parallel_plan_counts_once() {
    let cluster = server();
    let mut client = connect(&cluster);
    let major = major(&mut client);
    let force = if major == 15 { "force_parallel_mode" } else { "debug_parallel_query" };
    client.batch_execute(&format!("SET {force} = on; SET max_parallel_workers_per_gather = 2")).unwrap();
    client.batch_execute("SELECT sum(relpages) FROM pg_class").unwrap();
    assert_eq!(counted(&mut client, "SELECT sum(relpages) FROM pg_class", true), Some((1, 1)));
    let launched = "SELECT parallel_workers_launched FROM pgss_rs_stats
                    WHERE query = 'SELECT sum(relpages) FROM pg_class'";
    let launched: Option<i64> = client.query_one(launched, &[]).unwrap().get(0);
    assert_eq!(launched.is_some_and(|n| n >= 1), major >= 18);
}
