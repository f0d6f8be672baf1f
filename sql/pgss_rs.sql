CREATE FUNCTION pgss_rs_stats(
    showtext boolean DEFAULT true,
    OUT userid oid,
    OUT dbid oid,
    OUT toplevel boolean,
    OUT queryid bigint,
    OUT query text,
    OUT plans bigint,
    OUT total_plan_time double precision,
    OUT min_plan_time double precision,
    OUT max_plan_time double precision,
    OUT mean_plan_time double precision,
    OUT stddev_plan_time double precision,
    OUT calls bigint,
    OUT total_exec_time double precision,
    OUT min_exec_time double precision,
    OUT max_exec_time double precision,
    OUT mean_exec_time double precision,
    OUT stddev_exec_time double precision,
    OUT rows bigint,
    OUT shared_blks_hit bigint,
    OUT shared_blks_read bigint,
    OUT shared_blks_dirtied bigint,
    OUT shared_blks_written bigint,
    OUT local_blks_hit bigint,
    OUT local_blks_read bigint,
    OUT local_blks_dirtied bigint,
    OUT local_blks_written bigint,
    OUT temp_blks_read bigint,
    OUT temp_blks_written bigint,
    OUT shared_blk_read_time double precision,
    OUT shared_blk_write_time double precision,
    OUT local_blk_read_time double precision,
    OUT local_blk_write_time double precision,
    OUT temp_blk_read_time double precision,
    OUT temp_blk_write_time double precision,
    OUT wal_records bigint,
    OUT wal_fpi bigint,
    OUT wal_bytes numeric,
    OUT wal_buffers_full bigint,
    OUT jit_functions bigint,
    OUT jit_generation_time double precision,
    OUT jit_inlining_count bigint,
    OUT jit_inlining_time double precision,
    OUT jit_optimization_count bigint,
    OUT jit_optimization_time double precision,
    OUT jit_emission_count bigint,
    OUT jit_emission_time double precision,
    OUT jit_deform_count bigint,
    OUT jit_deform_time double precision,
    OUT parallel_workers_to_launch bigint,
    OUT parallel_workers_launched bigint,
    OUT generic_plan_calls bigint,
    OUT custom_plan_calls bigint,
    OUT stats_since timestamp with time zone,
    OUT minmax_stats_since timestamp with time zone,
    OUT sampled_calls bigint,
    OUT calls_stderr double precision,
    OUT total_exec_time_stderr double precision,
    OUT p50_exec_time double precision,
    OUT p90_exec_time double precision,
    OUT p95_exec_time double precision,
    OUT p99_exec_time double precision,
    OUT errors bigint,
    OUT cancels bigint,
    OUT total_error_time double precision,
    OUT first_exec timestamp with time zone,
    OUT last_exec timestamp with time zone,
    OUT query_truncated boolean
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgss_rs_stats_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_stats(boolean) IS
    'statistics of all statements: one row for each user, database, level and normalised statement';

CREATE VIEW pgss_rs_stats AS
    SELECT * FROM pgss_rs_stats(true);

CREATE FUNCTION pgss_rs_histogram(
    queryid bigint DEFAULT 0,
    userid oid DEFAULT 0,
    dbid oid DEFAULT 0,
    OUT lower double precision,
    OUT upper double precision,
    OUT calls bigint
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgss_rs_histogram_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE ROWS 30;

COMMENT ON FUNCTION pgss_rs_histogram(bigint, oid, oid) IS
    'calls by execution time in ms, of a statement, user and database (0: of all)';

CREATE FUNCTION pgss_rs_percentile(
    queryid bigint,
    fraction double precision,
    userid oid DEFAULT 0,
    dbid oid DEFAULT 0
)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgss_rs_percentile_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_percentile(bigint, double precision, oid, oid) IS
    'execution time in ms that a fraction of the calls of a statement, user and database (0: of all) did not exceed';

CREATE FUNCTION pgss_rs_errors(
    OUT userid oid,
    OUT dbid oid,
    OUT toplevel boolean,
    OUT queryid bigint,
    OUT sqlstate_class text,
    OUT errors bigint
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgss_rs_errors_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_errors() IS
    'failed executions of each statement by the class of their SQLSTATE, its first two characters (null: other classes)';

CREATE FUNCTION pgss_rs_info(
    OUT dealloc bigint,
    OUT stats_reset timestamp with time zone,
    OUT entries bigint,
    OUT max_entries bigint,
    OUT striped_entries bigint,
    OUT text_bytes_used bigint,
    OUT text_bytes_total bigint,
    OUT lock_waits bigint,
    OUT index_lock_waits bigint,
    OUT text_lock_waits bigint,
    OUT skipped bigint,
    OUT evicted_calls bigint,
    OUT evicted_total_exec_time double precision,
    OUT evicted_errors bigint,
    OUT recording_ns double precision,
    OUT recording_share double precision,
    OUT thinned_calls bigint,
    OUT last_thinned timestamp with time zone,
    OUT clock_source text,
    OUT library_version text,
    OUT sql_version text,
    OUT compat_current boolean
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgss_rs_info_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE ROWS 1;

COMMENT ON FUNCTION pgss_rs_info() IS
    'how full the statistics are, what was given up or skipped, and since when';

CREATE VIEW pgss_rs_info AS
    SELECT * FROM pgss_rs_info();

CREATE FUNCTION pgss_rs_reset(
    userid oid DEFAULT 0,
    dbid oid DEFAULT 0,
    queryid bigint DEFAULT 0,
    minmax_only boolean DEFAULT false
)
RETURNS timestamp with time zone
AS 'MODULE_PATHNAME', 'pgss_rs_reset_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_reset(oid, oid, bigint, boolean) IS
    'removes the statistics of a user, database and statement (0: of all), or starts only their minima and maxima anew';

REVOKE ALL ON FUNCTION pgss_rs_reset(oid, oid, bigint, boolean) FROM PUBLIC;

GRANT SELECT ON pgss_rs_stats TO PUBLIC;
GRANT SELECT ON pgss_rs_info TO PUBLIC;

-- pg_stat_statements' own names, for dashboards: SET search_path = ..., pgss_compat
CREATE SCHEMA pgss_compat;
GRANT USAGE ON SCHEMA pgss_compat TO PUBLIC;

CREATE FUNCTION pgss_rs_refresh_compat()
RETURNS void
AS 'MODULE_PATHNAME', 'pgss_rs_refresh_compat_wrapper'
LANGUAGE C STRICT VOLATILE SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION pgss_rs_refresh_compat() IS
    'makes the objects of schema pgss_compat as pg_stat_statements of this server major has them';

REVOKE ALL ON FUNCTION pgss_rs_refresh_compat() FROM PUBLIC;

SELECT pgss_rs_refresh_compat();
