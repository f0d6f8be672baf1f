//! The columns of the statistics, and which of them pg_stat_statements has on which server major.

/// A column of `pgss_rs_stats`.
pub struct Column {
    pub name: &'static str,
    /// SQL type.
    pub sql: &'static str,
    /// The first server major whose pg_stat_statements has it; [`OURS`] if none has.
    since: u16,
}

impl Column {
    /// Whether a server of this major can tell the value: those that its own pg_stat_statements has, and ours. The
    /// times that min and max are from we know on every major.
    pub fn is_known(&self, major: u16) -> bool {
        self.since <= major || self.since == OURS || self.sql == TIME
    }
}

/// No server's.
const OURS: u16 = u16::MAX;

const fn column(name: &'static str, sql: &'static str, since: u16) -> Column {
    Column { name, sql, since }
}

const INT: &str = "bigint";
const REAL: &str = "double precision";
const TIME: &str = "timestamp with time zone";
/// The oldest major there is.
const ALWAYS: u16 = 15;

/// In order: contrib 1.13's, then ours; the last is for the views alone.
pub const COLUMNS: [Column; 68] = [
    column("userid", "oid", ALWAYS),
    column("dbid", "oid", ALWAYS),
    column("toplevel", "boolean", ALWAYS),
    column("queryid", INT, ALWAYS),
    column("query", "text", ALWAYS),
    column("plans", INT, ALWAYS),
    column("total_plan_time", REAL, ALWAYS),
    column("min_plan_time", REAL, ALWAYS),
    column("max_plan_time", REAL, ALWAYS),
    column("mean_plan_time", REAL, ALWAYS),
    column("stddev_plan_time", REAL, ALWAYS),
    column("calls", INT, ALWAYS),
    column("total_exec_time", REAL, ALWAYS),
    column("min_exec_time", REAL, ALWAYS),
    column("max_exec_time", REAL, ALWAYS),
    column("mean_exec_time", REAL, ALWAYS),
    column("stddev_exec_time", REAL, ALWAYS),
    column("rows", INT, ALWAYS),
    column("shared_blks_hit", INT, ALWAYS),
    column("shared_blks_read", INT, ALWAYS),
    column("shared_blks_dirtied", INT, ALWAYS),
    column("shared_blks_written", INT, ALWAYS),
    column("local_blks_hit", INT, ALWAYS),
    column("local_blks_read", INT, ALWAYS),
    column("local_blks_dirtied", INT, ALWAYS),
    column("local_blks_written", INT, ALWAYS),
    column("temp_blks_read", INT, ALWAYS),
    column("temp_blks_written", INT, ALWAYS),
    column("shared_blk_read_time", REAL, ALWAYS),
    column("shared_blk_write_time", REAL, ALWAYS),
    column("local_blk_read_time", REAL, 17),
    column("local_blk_write_time", REAL, 17),
    column("temp_blk_read_time", REAL, ALWAYS),
    column("temp_blk_write_time", REAL, ALWAYS),
    column("wal_records", INT, ALWAYS),
    column("wal_fpi", INT, ALWAYS),
    column("wal_bytes", "numeric", ALWAYS),
    column("wal_buffers_full", INT, 18),
    column("jit_functions", INT, ALWAYS),
    column("jit_generation_time", REAL, ALWAYS),
    column("jit_inlining_count", INT, ALWAYS),
    column("jit_inlining_time", REAL, ALWAYS),
    column("jit_optimization_count", INT, ALWAYS),
    column("jit_optimization_time", REAL, ALWAYS),
    column("jit_emission_count", INT, ALWAYS),
    column("jit_emission_time", REAL, ALWAYS),
    column("jit_deform_count", INT, 17),
    column("jit_deform_time", REAL, 17),
    column("parallel_workers_to_launch", INT, 18),
    column("parallel_workers_launched", INT, 18),
    column("generic_plan_calls", INT, 19),
    column("custom_plan_calls", INT, 19),
    column("stats_since", TIME, 17),
    column("minmax_stats_since", TIME, 17),
    column("sampled_calls", INT, OURS),
    column("calls_stderr", REAL, OURS),
    column("total_exec_time_stderr", REAL, OURS),
    column("p50_exec_time", REAL, OURS),
    column("p90_exec_time", REAL, OURS),
    column("p95_exec_time", REAL, OURS),
    column("p99_exec_time", REAL, OURS),
    column("errors", INT, OURS),
    column("cancels", INT, OURS),
    column("total_error_time", REAL, OURS),
    column("first_exec", TIME, OURS),
    column("last_exec", TIME, OURS),
    column("query_truncated", "boolean", OURS),
    column("text_of", INT, OURS),
];

/// Two columns had other names before 17, when local blocks were not yet timed apart.
const RENAMED: [(&str, &str); 2] =
    [("blk_read_time", "shared_blk_read_time"), ("blk_write_time", "shared_blk_write_time")];

/// The place in [`COLUMNS`] of a column with this name on any major.
pub fn place(name: &str) -> Option<usize> {
    let name = RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new);
    COLUMNS.iter().position(|c| c.name == name)
}

/// Name and SQL type of each column of pg_stat_statements on a server major.
pub fn contrib(major: u16) -> impl Iterator<Item = (&'static str, &'static str)> {
    COLUMNS.iter().filter(move |c| c.since <= major).map(move |c| {
        let old = RENAMED.iter().find(|(_, new)| major < 17 && *new == c.name);
        (old.map_or(c.name, |(old, _)| old), c.sql)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrib_has_as_many_columns_as_its_versions() {
        let counts = [15, 16, 17, 18, 19].map(|major| contrib(major).count());
        assert_eq!(counts, [43, 43, 49, 52, 54]);
    }

    #[test]
    fn block_timers_have_their_names_of_the_major() {
        let names = |major| contrib(major).map(|c| c.0).collect::<Vec<_>>();
        assert!(names(16).contains(&"blk_read_time") && !names(16).contains(&"shared_blk_read_time"));
        assert!(names(17).contains(&"shared_blk_read_time") && !names(17).contains(&"blk_read_time"));
    }

    #[test]
    fn every_contrib_column_has_a_place() {
        for major in 15..=19 {
            assert!(contrib(major).all(|(name, _)| place(name).is_some()));
        }
        assert_eq!(place("blk_write_time"), place("shared_blk_write_time"));
        assert_eq!(place("no_such_column"), None);
    }
}
