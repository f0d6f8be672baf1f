CREATE FUNCTION pgss_rs_stats(
    showtext boolean DEFAULT true,
    query_len integer DEFAULT NULL,
    changed_since timestamp with time zone DEFAULT NULL,
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
AS 'MODULE_PATHNAME', 'pgss_rs_stats_0_2_wrapper'
LANGUAGE C VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_stats(boolean, integer, timestamp with time zone) IS
    'statistics of all statements: one row for each user, database, level and normalised statement';

-- What the views are made of; text_of is NULL where query is the whole text.
CREATE FUNCTION pgss_rs_entries(
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
    OUT query_truncated boolean,
    OUT text_of bigint
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgss_rs_entries_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_entries() IS
    'for the view: statistics with the beginnings of long texts';

CREATE FUNCTION pgss_rs_entry_text(text_of bigint)
RETURNS text
AS 'MODULE_PATHNAME', 'pgss_rs_entry_text_wrapper'
LANGUAGE C STRICT STABLE PARALLEL SAFE COST 1000;

COMMENT ON FUNCTION pgss_rs_entry_text(bigint) IS
    'for the views: the whole text of an entry, if it is still there';

CREATE VIEW pgss_rs_stats AS
    SELECT
        userid, dbid, toplevel, queryid, coalesce(pgss_rs_entry_text(text_of), query) AS query, plans,
        total_plan_time, min_plan_time, max_plan_time, mean_plan_time, stddev_plan_time, calls, total_exec_time,
        min_exec_time, max_exec_time, mean_exec_time, stddev_exec_time, rows, shared_blks_hit, shared_blks_read,
        shared_blks_dirtied, shared_blks_written, local_blks_hit, local_blks_read, local_blks_dirtied,
        local_blks_written, temp_blks_read, temp_blks_written, shared_blk_read_time, shared_blk_write_time,
        local_blk_read_time, local_blk_write_time, temp_blk_read_time, temp_blk_write_time, wal_records, wal_fpi,
        wal_bytes, wal_buffers_full, jit_functions, jit_generation_time, jit_inlining_count, jit_inlining_time,
        jit_optimization_count, jit_optimization_time, jit_emission_count, jit_emission_time, jit_deform_count,
        jit_deform_time, parallel_workers_to_launch, parallel_workers_launched, generic_plan_calls, custom_plan_calls,
        stats_since, minmax_stats_since, sampled_calls, calls_stderr, total_exec_time_stderr, p50_exec_time,
        p90_exec_time, p95_exec_time, p99_exec_time, errors, cancels, total_error_time, first_exec, last_exec,
        query_truncated
    FROM pgss_rs_entries();

CREATE FUNCTION pgss_rs_stats_and_reset(
    showtext boolean DEFAULT true,
    query_len integer DEFAULT NULL
)
RETURNS SETOF pgss_rs_stats
AS 'MODULE_PATHNAME', 'pgss_rs_stats_and_reset_wrapper'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION pgss_rs_stats_and_reset(boolean, integer) IS
    'statistics of all statements, which start anew; if the transaction fails, they go on as if not read';

REVOKE ALL ON FUNCTION pgss_rs_stats_and_reset(boolean, integer) FROM PUBLIC;

CREATE FUNCTION pgss_rs_text(
    queryid bigint,
    userid oid DEFAULT 0,
    dbid oid DEFAULT 0
)
RETURNS text
AS 'MODULE_PATHNAME', 'pgss_rs_text_wrapper'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

COMMENT ON FUNCTION pgss_rs_text(bigint, oid, oid) IS
    'text of a statement, of a user and database (0: any)';

-- Operators and functions by the server's own names alone: somebody else may have made some that fit better in the
-- extension's schema.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE VIEW @extschema@.pgss_rs_top AS
    WITH s AS (
        SELECT *,
            total_plan_time + total_exec_time AS time,
            sum(total_plan_time + total_exec_time) FILTER (WHERE toplevel) OVER () AS all_time
        FROM @extschema@.pgss_rs_stats(true, 200)
        ORDER BY time DESC
        LIMIT 20
    )
    SELECT
        format('%6s', round((100 * time / nullif(all_time, 0))::numeric, 1) || '%') AS share,
        format('%16s', CASE
            WHEN calls_stderr = 0 THEN calls::text
            ELSE format('%s%s +/- %s%s', round(calls / unit), letter, round(margin, (margin < 10)::int), letter)
        END) AS calls,
        round(mean_exec_time::numeric, CASE WHEN mean_exec_time < 1 THEN 4 WHEN mean_exec_time < 100 THEN 2 ELSE 0 END)
            AS mean_ms,
        round(p95_exec_time::numeric, CASE WHEN p95_exec_time < 1 THEN 4 WHEN p95_exec_time < 100 THEN 2 ELSE 0 END)
            AS p95_ms,
        format('%6s', errors) AS errors,
        format('%8s', replace(pg_size_pretty(current_setting('block_size')::numeric * (
            shared_blks_read + shared_blks_written + local_blks_read + local_blks_written
            + temp_blks_read + temp_blks_written)), 'bytes', 'B')) AS io,
        queryid,
        CASE
            WHEN length(line) <= width AND NOT query_truncated THEN line
            ELSE left(line, width - 3) || '...'
        END AS query
    FROM s
        CROSS JOIN LATERAL (
            SELECT CASE WHEN toplevel THEN '' ELSE '> ' END
                || btrim(regexp_replace(query, '[[:space:][:cntrl:]]+', ' ', 'g')) AS line
        ) AS l
        -- characters may be two columns wide
        CROSS JOIN LATERAL (SELECT CASE WHEN octet_length(line) = length(line) THEN 25 ELSE 13 END AS width) AS w
        CROSS JOIN LATERAL (
            SELECT unit, letter FROM (VALUES (1, ''), (1e3, 'k'), (1e6, 'M'), (1e9, 'G'), (1e12, 'T')) AS u (unit, letter)
            WHERE calls < 1e4 * unit OR unit = 1e12 ORDER BY unit LIMIT 1
        ) AS u
        CROSS JOIN LATERAL (SELECT (1.96 * calls_stderr)::numeric / unit AS margin) AS m
    ORDER BY time DESC;

SET LOCAL search_path = @extschema@, pg_temp;

COMMENT ON VIEW pgss_rs_top IS
    'the statements that most time was spent on, in 120 columns; io is what was read and written, +/- is at 95 %, > is nested';

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
    OUT evicted_calls_stderr double precision,
    OUT evicted_total_exec_time double precision,
    OUT evicted_total_exec_time_stderr double precision,
    OUT evicted_rows bigint,
    OUT evicted_errors bigint,
    OUT evicted_plans bigint,
    OUT evicted_total_plan_time double precision,
    OUT recording_ns double precision,
    OUT recording_share double precision,
    OUT thinned_calls bigint,
    OUT last_thinned timestamp with time zone,
    OUT last_saved timestamp with time zone,
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

GRANT EXECUTE ON FUNCTION pgss_rs_entry_text(bigint) TO PUBLIC;
GRANT SELECT ON pgss_rs_stats TO PUBLIC;
GRANT SELECT ON pgss_rs_top TO PUBLIC;
GRANT SELECT ON pgss_rs_info TO PUBLIC;

-- pg_stat_statements' own names, for dashboards: SET search_path = ..., pgss_compat
CREATE SCHEMA pgss_compat;
GRANT USAGE ON SCHEMA pgss_compat TO PUBLIC;

CREATE FUNCTION pgss_rs_refresh_compat()
RETURNS void
AS 'MODULE_PATHNAME', 'pgss_rs_refresh_compat_0_2_wrapper'
LANGUAGE C STRICT VOLATILE SET search_path = pg_catalog, pg_temp;

COMMENT ON FUNCTION pgss_rs_refresh_compat() IS
    'makes the objects of schema pgss_compat as pg_stat_statements of this server major has them';

REVOKE ALL ON FUNCTION pgss_rs_refresh_compat() FROM PUBLIC;

SELECT pgss_rs_refresh_compat();

COMMENT ON VIEW pgss_rs_stats IS
    'statistics of all statements: one row for each user, database, level and normalised statement';
COMMENT ON VIEW pgss_rs_info IS
    'how full the statistics are, what was given up or skipped, and since when';
COMMENT ON SCHEMA pgss_compat IS
    'pg_stat_statements'' view and functions under their own names, over the statistics of pgss_rs';

COMMENT ON COLUMN pgss_rs_stats.userid IS 'user who ran the statement';
COMMENT ON COLUMN pgss_rs_stats.dbid IS 'database it ran in';
COMMENT ON COLUMN pgss_rs_stats.toplevel IS 'false: nested in another statement, as in a function';
COMMENT ON COLUMN pgss_rs_stats.queryid IS 'identifier of the normalised statement';
COMMENT ON COLUMN pgss_rs_stats.query IS 'normalised text of the statement';
COMMENT ON COLUMN pgss_rs_stats.plans IS 'times it was planned, with track_planning';
COMMENT ON COLUMN pgss_rs_stats.total_plan_time IS 'time spent planning, ms';
COMMENT ON COLUMN pgss_rs_stats.min_plan_time IS 'least time of a planning looked at, ms';
COMMENT ON COLUMN pgss_rs_stats.max_plan_time IS 'greatest time of a planning looked at, ms';
COMMENT ON COLUMN pgss_rs_stats.mean_plan_time IS 'mean time of a planning, ms';
COMMENT ON COLUMN pgss_rs_stats.stddev_plan_time IS 'standard deviation of the time of plannings, ms';
COMMENT ON COLUMN pgss_rs_stats.calls IS 'executions; an estimate where sampled_calls is less';
COMMENT ON COLUMN pgss_rs_stats.total_exec_time IS 'time spent executing, ms';
COMMENT ON COLUMN pgss_rs_stats.min_exec_time IS 'least time of an execution looked at, ms';
COMMENT ON COLUMN pgss_rs_stats.max_exec_time IS 'greatest time of an execution looked at, ms';
COMMENT ON COLUMN pgss_rs_stats.mean_exec_time IS 'mean time of an execution, ms';
COMMENT ON COLUMN pgss_rs_stats.stddev_exec_time IS 'standard deviation of the time of executions, ms';
COMMENT ON COLUMN pgss_rs_stats.rows IS 'rows retrieved or affected';
COMMENT ON COLUMN pgss_rs_stats.shared_blks_hit IS 'shared blocks found in cache';
COMMENT ON COLUMN pgss_rs_stats.shared_blks_read IS 'shared blocks read';
COMMENT ON COLUMN pgss_rs_stats.shared_blks_dirtied IS 'shared blocks dirtied';
COMMENT ON COLUMN pgss_rs_stats.shared_blks_written IS 'shared blocks written';
COMMENT ON COLUMN pgss_rs_stats.local_blks_hit IS 'local blocks found in cache';
COMMENT ON COLUMN pgss_rs_stats.local_blks_read IS 'local blocks read';
COMMENT ON COLUMN pgss_rs_stats.local_blks_dirtied IS 'local blocks dirtied';
COMMENT ON COLUMN pgss_rs_stats.local_blks_written IS 'local blocks written';
COMMENT ON COLUMN pgss_rs_stats.temp_blks_read IS 'temporary blocks read';
COMMENT ON COLUMN pgss_rs_stats.temp_blks_written IS 'temporary blocks written';
COMMENT ON COLUMN pgss_rs_stats.shared_blk_read_time IS 'time spent reading shared blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.shared_blk_write_time IS 'time spent writing shared blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.local_blk_read_time IS 'time spent reading local blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.local_blk_write_time IS 'time spent writing local blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.temp_blk_read_time IS 'time spent reading temporary blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.temp_blk_write_time IS 'time spent writing temporary blocks, with track_io_timing, ms';
COMMENT ON COLUMN pgss_rs_stats.wal_records IS 'WAL records made';
COMMENT ON COLUMN pgss_rs_stats.wal_fpi IS 'full page images made in WAL';
COMMENT ON COLUMN pgss_rs_stats.wal_bytes IS 'WAL made, bytes';
COMMENT ON COLUMN pgss_rs_stats.wal_buffers_full IS 'times the WAL buffers became full; from 18 on';
COMMENT ON COLUMN pgss_rs_stats.jit_functions IS 'functions compiled by JIT';
COMMENT ON COLUMN pgss_rs_stats.jit_generation_time IS 'time spent generating JIT code, ms';
COMMENT ON COLUMN pgss_rs_stats.jit_inlining_count IS 'times functions were inlined';
COMMENT ON COLUMN pgss_rs_stats.jit_inlining_time IS 'time spent inlining functions, ms';
COMMENT ON COLUMN pgss_rs_stats.jit_optimization_count IS 'times JIT code was optimised';
COMMENT ON COLUMN pgss_rs_stats.jit_optimization_time IS 'time spent optimising JIT code, ms';
COMMENT ON COLUMN pgss_rs_stats.jit_emission_count IS 'times JIT code was emitted';
COMMENT ON COLUMN pgss_rs_stats.jit_emission_time IS 'time spent emitting JIT code, ms';
COMMENT ON COLUMN pgss_rs_stats.jit_deform_count IS 'tuple deform functions compiled; from 17 on';
COMMENT ON COLUMN pgss_rs_stats.jit_deform_time IS 'time spent compiling tuple deform functions, ms; from 17 on';
COMMENT ON COLUMN pgss_rs_stats.parallel_workers_to_launch IS 'parallel workers planned; from 18 on';
COMMENT ON COLUMN pgss_rs_stats.parallel_workers_launched IS 'parallel workers launched; from 18 on';
COMMENT ON COLUMN pgss_rs_stats.generic_plan_calls IS 'executions with a generic plan; from 19 on';
COMMENT ON COLUMN pgss_rs_stats.custom_plan_calls IS 'executions with a custom plan; from 19 on';
COMMENT ON COLUMN pgss_rs_stats.stats_since IS 'when the entry was made';
COMMENT ON COLUMN pgss_rs_stats.minmax_stats_since IS 'since when minima and maxima are taken';
COMMENT ON COLUMN pgss_rs_stats.sampled_calls IS 'executions really looked at';
COMMENT ON COLUMN pgss_rs_stats.calls_stderr IS 'standard error of calls; 0: exact';
COMMENT ON COLUMN pgss_rs_stats.total_exec_time_stderr IS 'standard error of total_exec_time, ms; 0: exact';
COMMENT ON COLUMN pgss_rs_stats.p50_exec_time IS 'time that 50 % of the calls did not exceed, ms';
COMMENT ON COLUMN pgss_rs_stats.p90_exec_time IS 'time that 90 % of the calls did not exceed, ms';
COMMENT ON COLUMN pgss_rs_stats.p95_exec_time IS 'time that 95 % of the calls did not exceed, ms';
COMMENT ON COLUMN pgss_rs_stats.p99_exec_time IS 'time that 99 % of the calls did not exceed, ms';
COMMENT ON COLUMN pgss_rs_stats.errors IS 'executions that an error ended; in no other column';
COMMENT ON COLUMN pgss_rs_stats.cancels IS 'those among the errors that were canceled';
COMMENT ON COLUMN pgss_rs_stats.total_error_time IS 'time they took until they failed, ms';
COMMENT ON COLUMN pgss_rs_stats.first_exec IS 'begin of the first execution counted';
COMMENT ON COLUMN pgss_rs_stats.last_exec IS 'begin of the last execution counted';
COMMENT ON COLUMN pgss_rs_stats.query_truncated IS 'whether the text is cut off';

COMMENT ON COLUMN pgss_rs_top.share IS 'of the time of all statements of clients';
COMMENT ON COLUMN pgss_rs_top.calls IS 'executions, +/- half their interval at 95 % if sampled';
COMMENT ON COLUMN pgss_rs_top.mean_ms IS 'mean time of an execution';
COMMENT ON COLUMN pgss_rs_top.p95_ms IS 'time that 95 % of the calls did not exceed';
COMMENT ON COLUMN pgss_rs_top.errors IS 'executions that an error ended';
COMMENT ON COLUMN pgss_rs_top.io IS 'what was read and written, in blocks not found in shared buffers';
COMMENT ON COLUMN pgss_rs_top.queryid IS 'identifier, as in pgss_rs_stats';
COMMENT ON COLUMN pgss_rs_top.query IS 'begin of the text; > before it: nested in another statement';

COMMENT ON COLUMN pgss_rs_info.dealloc IS 'entries given up for want of room';
COMMENT ON COLUMN pgss_rs_info.stats_reset IS 'when everything was reset last';
COMMENT ON COLUMN pgss_rs_info.entries IS 'statements there are entries for';
COMMENT ON COLUMN pgss_rs_info.max_entries IS 'entries there is room for (pgss_rs.max)';
COMMENT ON COLUMN pgss_rs_info.striped_entries IS 'hot entries that are counted in several places';
COMMENT ON COLUMN pgss_rs_info.text_bytes_used IS 'memory taken by texts, bytes';
COMMENT ON COLUMN pgss_rs_info.text_bytes_total IS 'memory for texts, bytes (pgss_rs.text_memory)';
COMMENT ON COLUMN pgss_rs_info.lock_waits IS 'times the lock of an entry was held by another';
COMMENT ON COLUMN pgss_rs_info.index_lock_waits IS 'times a lock of the index was held by another';
COMMENT ON COLUMN pgss_rs_info.text_lock_waits IS 'times the lock for texts was held by another';
COMMENT ON COLUMN pgss_rs_info.skipped IS 'executions that could not be recorded';
COMMENT ON COLUMN pgss_rs_info.evicted_calls IS 'calls of entries given up';
COMMENT ON COLUMN pgss_rs_info.evicted_calls_stderr IS 'standard error of evicted_calls';
COMMENT ON COLUMN pgss_rs_info.evicted_total_exec_time IS 'execution time of entries given up, ms';
COMMENT ON COLUMN pgss_rs_info.evicted_total_exec_time_stderr IS 'standard error of evicted_total_exec_time, ms';
COMMENT ON COLUMN pgss_rs_info.evicted_rows IS 'rows of entries given up';
COMMENT ON COLUMN pgss_rs_info.evicted_errors IS 'errors of entries given up';
COMMENT ON COLUMN pgss_rs_info.evicted_plans IS 'plannings of entries given up';
COMMENT ON COLUMN pgss_rs_info.evicted_total_plan_time IS 'planning time of entries given up, ms';
COMMENT ON COLUMN pgss_rs_info.recording_ns IS 'what recording an execution takes, as measured here, ns';
COMMENT ON COLUMN pgss_rs_info.recording_share IS 'percent of the statements'' time that recording took';
COMMENT ON COLUMN pgss_rs_info.thinned_calls IS 'calls not looked at for max_overhead';
COMMENT ON COLUMN pgss_rs_info.last_thinned IS 'when that was so last';
COMMENT ON COLUMN pgss_rs_info.last_saved IS 'time that the file was saved of, since the server started';
COMMENT ON COLUMN pgss_rs_info.clock_source IS 'clock that times statements';
COMMENT ON COLUMN pgss_rs_info.library_version IS 'version of the library';
COMMENT ON COLUMN pgss_rs_info.sql_version IS 'version of the objects in this database; another one: ALTER EXTENSION pgss_rs UPDATE';
COMMENT ON COLUMN pgss_rs_info.compat_current IS 'false: pgss_compat is of another server major; run pgss_rs_refresh_compat()';
