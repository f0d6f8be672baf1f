//! The schema `pgss_compat`: pg_stat_statements' view and functions under their own names, with exactly the columns
//! and types they have on this server major, over our statistics.
//!
//! Which columns those are depends on the server, so the objects are made by a function, when the extension is
//! created and again (`pgss_rs_refresh_compat`) in a database that was carried over from an older major.

use crate::columns;
use crate::pg::srf::{Record, Rows, Value};
use crate::pg::{catalog, server};
use crate::stats_fn::{self, Wanted};
use pgrx::prelude::*;

/// What the schema holds, in the order of making.
const OBJECTS: [&str; 5] = [
    "FUNCTION pgss_compat.pg_stat_statements(boolean)",
    "VIEW pgss_compat.pg_stat_statements",
    "FUNCTION pgss_compat.pg_stat_statements_info()",
    "VIEW pgss_compat.pg_stat_statements_info",
    "FUNCTION pgss_compat.pg_stat_statements_reset",
];

fn definitions(major: u16) -> Vec<String> {
    let columns: Vec<String> =
        columns::contrib(major).map(|(name, sql)| format!(", OUT {name} {sql}")).collect();
    let function = |signature: &str, returns: &str, symbol: &str| {
        format!(
            "CREATE FUNCTION pgss_compat.{signature} RETURNS {returns} AS 'pgss_rs', '{symbol}_wrapper' \
             LANGUAGE C STRICT VOLATILE PARALLEL SAFE"
        )
    };
    let view = |name: &str, call: &str| {
        format!("CREATE VIEW pgss_compat.{name} AS SELECT * FROM pgss_compat.{call}")
    };
    let everybody = |view: &str| format!("GRANT SELECT ON pgss_compat.{view} TO PUBLIC");
    let (reset, returned, symbol) = if major < 17 {
        ("", "void", "pgss_compat_reset_1_7")
    } else {
        (", minmax_only boolean DEFAULT false", "timestamp with time zone", "pgss_rs_reset")
    };
    let reset = format!(
        "pg_stat_statements_reset(userid oid DEFAULT 0, dbid oid DEFAULT 0, queryid bigint DEFAULT 0{reset})"
    );
    vec![
        function(
            &format!("pg_stat_statements(IN showtext boolean{})", columns.concat()),
            "SETOF record",
            "pgss_compat_stats",
        ),
        view("pg_stat_statements", "pg_stat_statements(true)"),
        everybody("pg_stat_statements"),
        function(
            "pg_stat_statements_info(OUT dealloc bigint, OUT stats_reset timestamp with time zone)",
            "record",
            "pgss_compat_info",
        ),
        view("pg_stat_statements_info", "pg_stat_statements_info()"),
        everybody("pg_stat_statements_info"),
        function(&reset, returned, symbol),
        "REVOKE ALL ON FUNCTION pgss_compat.pg_stat_statements_reset FROM PUBLIC".to_owned(),
    ]
}

fn columns_there() -> Option<Vec<String>> {
    catalog::columns_of(c"pgss_compat", c"pg_stat_statements")
}

/// Whether the schema's objects are this server major's.
pub fn is_current() -> bool {
    let right = columns::contrib(server::MAJOR).map(|(name, _)| name);
    columns_there().is_some_and(|there| right.eq(there.iter().map(String::as_str)))
}

/// Makes the schema's objects as this server major has them, anew if they are another's; those that are right stay as
/// they are, with their grants. Runs with `search_path = pg_catalog`, as its declaration says.
#[pg_extern(sql = false)]
fn pgss_rs_refresh_compat() -> Result<(), pgrx::spi::Error> {
    let again = columns_there().is_some();
    if again && is_current() {
        return Ok(());
    }
    if again {
        for object in OBJECTS.iter().rev() {
            Spi::run(&format!("ALTER EXTENSION pgss_rs DROP {object}"))?;
            Spi::run(&format!("DROP {object}"))?;
        }
    }
    for definition in definitions(server::MAJOR) {
        Spi::run(&definition)?;
    }
    if again {
        for object in OBJECTS {
            Spi::run(&format!("ALTER EXTENSION pgss_rs ADD {object}"))?;
        }
    }
    Ok(())
}

/// The statistics in the columns that the function was declared with.
#[pg_extern(sql = false)]
fn pgss_compat_stats(showtext: bool, mut rows: Rows) {
    stats_fn::add_rows(Wanted::executed(showtext), &mut rows);
}

#[pg_extern(sql = false)]
fn pgss_compat_info(record: Record) -> Record {
    let table = stats_fn::loaded();
    record.fill([Value::Int8(table.dealloc() as i64), Value::Timestamptz(table.stats_reset())])
}

/// The reset function before 17.
#[pg_extern(sql = false)]
fn pgss_compat_reset_1_7(userid: pg_sys::Oid, dbid: pg_sys::Oid, queryid: i64) {
    stats_fn::reset(userid, dbid, queryid, false);
}
