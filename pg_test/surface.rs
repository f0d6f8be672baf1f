//! What the extension shows in SQL.

use pgrx::prelude::*;

/// contrib 1.13's columns, then ours.
const COLUMNS: &str = "userid oid, dbid oid, toplevel boolean, queryid bigint, query text, plans bigint, \
    total_plan_time double precision, min_plan_time double precision, max_plan_time double precision, \
    mean_plan_time double precision, stddev_plan_time double precision, calls bigint, \
    total_exec_time double precision, min_exec_time double precision, max_exec_time double precision, \
    mean_exec_time double precision, stddev_exec_time double precision, rows bigint, shared_blks_hit bigint, \
    shared_blks_read bigint, shared_blks_dirtied bigint, shared_blks_written bigint, local_blks_hit bigint, \
    local_blks_read bigint, local_blks_dirtied bigint, local_blks_written bigint, temp_blks_read bigint, \
    temp_blks_written bigint, shared_blk_read_time double precision, shared_blk_write_time double precision, \
    local_blk_read_time double precision, local_blk_write_time double precision, \
    temp_blk_read_time double precision, temp_blk_write_time double precision, wal_records bigint, \
    wal_fpi bigint, wal_bytes numeric, wal_buffers_full bigint, jit_functions bigint, \
    jit_generation_time double precision, jit_inlining_count bigint, jit_inlining_time double precision, \
    jit_optimization_count bigint, jit_optimization_time double precision, jit_emission_count bigint, \
    jit_emission_time double precision, jit_deform_count bigint, jit_deform_time double precision, \
    parallel_workers_to_launch bigint, parallel_workers_launched bigint, generic_plan_calls bigint, \
    custom_plan_calls bigint, stats_since timestamp with time zone, minmax_stats_since timestamp with time zone, \
    sampled_calls bigint, calls_stderr double precision, total_exec_time_stderr double precision, \
    p50_exec_time double precision, p90_exec_time double precision, p95_exec_time double precision, \
    p99_exec_time double precision, \
    errors bigint, cancels bigint, total_error_time double precision, \
    first_exec timestamp with time zone, last_exec timestamp with time zone, query_truncated boolean";

#[pg_schema]
mod tests {
    use super::*;

    fn columns_of(view: &str) -> String {
        Spi::get_one::<String>(&format!(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) \
             FROM pg_attribute WHERE attrelid = '{view}'::regclass AND attnum > 0"
        ))
        .unwrap()
        .unwrap()
    }

    #[pg_test]
    fn view_has_the_contrib_columns_then_ours() {
        assert_eq!(columns_of("pgss_rs_stats"), COLUMNS);
    }

    #[pg_test]
    fn info_tells_fill_levels_and_what_was_given_up() {
        assert_eq!(
            columns_of("pgss_rs_info"),
            "dealloc bigint, stats_reset timestamp with time zone, entries bigint, max_entries bigint, \
             striped_entries bigint, text_bytes_used bigint, text_bytes_total bigint, lock_waits bigint, \
             index_lock_waits bigint, text_lock_waits bigint, skipped bigint, evicted_calls bigint, \
             evicted_calls_stderr double precision, evicted_total_exec_time double precision, \
             evicted_total_exec_time_stderr double precision, evicted_rows bigint, evicted_errors bigint, \
             evicted_plans bigint, evicted_total_plan_time double precision, recording_ns double precision, \
             recording_share double precision, thinned_calls bigint, last_thinned timestamp with time zone, \
             last_saved timestamp with time zone, clock_source text, library_version text, \
             sql_version text, compat_current boolean"
        );
        let row = Spi::get_one::<bool>(
            "SELECT max_entries = 500 AND entries BETWEEN 0 AND 500 AND text_bytes_total = 32 * 1024 * 1024 \
             AND text_bytes_used BETWEEN 0 AND text_bytes_total AND skipped = 0 FROM pgss_rs_info",
        );
        assert_eq!(row, Ok(Some(true)));
    }

    #[pg_test]
    fn values_that_this_server_cannot_know_are_null() {
        Spi::run("SELECT 'known' AS a, 1 AS b").unwrap();
        for (first_major, columns) in [
            (
                15,
                "shared_blk_read_time, temp_blk_read_time, wal_bytes, jit_functions, stats_since, sampled_calls",
            ),
            (15, "minmax_stats_since, query_truncated"),
            (17, "local_blk_read_time, local_blk_write_time, jit_deform_count, jit_deform_time"),
            (18, "wal_buffers_full, parallel_workers_to_launch, parallel_workers_launched"),
            (19, "generic_plan_calls, custom_plan_calls"),
        ] {
            let none = if crate::pg::server::MAJOR >= first_major { "num_nulls" } else { "num_nonnulls" };
            let right = format!("SELECT count(*) > 0 AND bool_and({none}({columns}) = 0) FROM pgss_rs_stats");
            assert_eq!(Spi::get_one::<bool>(&right), Ok(Some(true)), "{columns}");
        }
    }

    /// In this build each tuple is compared with the server's.
    #[pg_test]
    fn rows_are_formed_right_whatever_their_texts_lengths() {
        let lengths = [60, 125, 126, 127, 128, 300, 1000, 1024, 1100, 5000];
        for length in lengths {
            let name = format!("formed{length}");
            let text = format!("WITH {name} AS (SELECT) SELECT FROM {name} --");
            Spi::run(&format!("{text}{}", "x".repeat(length - text.len()))).unwrap();
        }
        Spi::run("CREATE TABLE formed (n int)").unwrap();
        for call in ["pgss_rs_stats(true)", "pgss_rs_stats", "pgss_compat.pg_stat_statements(true)"] {
            let found = "string_agg(length(query)::text, ',' ORDER BY length(query))";
            let sql = format!("SELECT {found} FROM {call} WHERE query LIKE 'WITH formed%'");
            let expected = lengths.map(|length| length.to_string()).join(",");
            assert_eq!(Spi::get_one::<String>(&sql), Ok(Some(expected)), "{call}");
            let sql = format!(
                "SELECT bool_and(wal_bytes > 100 AND wal_bytes::text::numeric = wal_bytes AND calls = 1) FROM {call} \
                 WHERE query = 'CREATE TABLE formed (n int)'"
            );
            assert_eq!(Spi::get_one::<bool>(&sql), Ok(Some(true)), "{call}");
        }
    }

    #[pg_test]
    fn without_text_the_query_is_null_and_the_rest_is_there() {
        Spi::run("SELECT 'counted' AS a").unwrap();
        let row = Spi::get_one::<bool>(
            "SELECT count(*) > 0 AND count(query) = 0 AND count(queryid) = count(*) FROM pgss_rs_stats(false)",
        );
        assert_eq!(row, Ok(Some(true)));
    }

    /// Of one statement only: the other tests share the server.
    #[pg_test]
    fn reset_tells_its_time_and_is_strict() {
        Spi::run("SELECT 'to be', 'reset' WHERE true").unwrap();
        const MINE: &str = "FROM pgss_rs_stats WHERE query = 'SELECT $1, $2 WHERE $3'";
        let queryid = Spi::get_one::<i64>(&format!("SELECT queryid {MINE}")).unwrap().unwrap();
        let reset = |arguments: &str| Spi::get_one::<bool>(&format!("SELECT pgss_rs_reset({arguments})"));
        assert_eq!(reset(&format!("NULL, 0, {queryid}) IS NULL AND (true")), Ok(Some(true)));
        assert_eq!(Spi::get_one::<i64>(&format!("SELECT count(*) {MINE}")), Ok(Some(1)));
        let now = "BETWEEN now() AND clock_timestamp() AND (true";
        assert_eq!(reset(&format!("0, 0, {queryid}) {now}")), Ok(Some(true)));
        assert_eq!(Spi::get_one::<i64>(&format!("SELECT count(*) {MINE}")), Ok(Some(0)));
    }
}
