DROP VIEW pgss_rs_info;
DROP FUNCTION pgss_rs_info();

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

GRANT SELECT ON pgss_rs_info TO PUBLIC;

SELECT pgss_rs_refresh_compat();
