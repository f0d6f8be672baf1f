//! The schema `pgss_compat`: pg_stat_statements' view and functions under their own names, with exactly the columns
//! and types they have on this server major, over our statistics.
//!
//! Which columns those are depends on the server, so the objects are made by a function, when the extension is
//! created and again (`pgss_rs_refresh_compat`) in a database that was carried over from an older major.

use crate::columns;
use crate::pg::srf::{Record, Rows, Value};
use crate::pg::{catalog, message, privs, server, spi};
use crate::stats_fn::{self, Wanted};
use pgrx::prelude::*;
use std::fmt::{self, Display};

/// What the schema holds, in the order of making.
const OBJECTS: [&str; 6] = [
    "FUNCTION pgss_compat.pg_stat_statements(boolean)",
    ENTRIES,
    "VIEW pgss_compat.pg_stat_statements",
    "FUNCTION pgss_compat.pg_stat_statements_info()",
    "VIEW pgss_compat.pg_stat_statements_info",
    "FUNCTION pgss_compat.pg_stat_statements_reset",
];

/// Since 0.2.0.
const ENTRIES: &str = "FUNCTION pgss_compat.pgss_rs_entries()";

fn create_function(signature: impl Display, returns: &str, symbol: &str) {
    spi::run(format_args!(
        "CREATE FUNCTION pgss_compat.{signature} RETURNS {returns} AS 'pgss_rs', '{symbol}_wrapper' \
         LANGUAGE C STRICT VOLATILE PARALLEL SAFE"
    ));
}

/// The view, and before it what it is made of. `schema` is the extension's, quoted where need be.
fn create_view(major: u16, schema: &str) {
    let declared =
        fmt::from_fn(|f| columns::contrib(major).try_for_each(|(name, sql)| write!(f, "OUT {name} {sql}, ")));
    create_function(
        format_args!("pgss_rs_entries({declared}OUT text_of bigint)"),
        "SETOF record",
        "pgss_compat_entries",
    );
    // whatever the privileges are that functions have by default: the right to pg_stat_statements(boolean) is what it checks
    spi::run(format_args!("GRANT EXECUTE ON {ENTRIES} TO PUBLIC"));
    let selected = fmt::from_fn(|f| {
        columns::contrib(major).enumerate().try_for_each(|(n, (name, _))| {
            f.write_str(if n == 0 { "" } else { ", " })?;
            match name {
                "query" => write!(f, "coalesce({schema}.pgss_rs_entry_text(text_of), query) AS query"),
                name => f.write_str(name),
            }
        })
    });
    spi::run(format_args!(
        "CREATE OR REPLACE VIEW pgss_compat.pg_stat_statements AS SELECT {selected} FROM pgss_compat.pgss_rs_entries()"
    ));
}

/// The view as it was before texts were fetched late.
fn create_view_0_1() {
    spi::run(format_args!(
        "CREATE VIEW pgss_compat.pg_stat_statements AS SELECT * FROM pgss_compat.pg_stat_statements(true)"
    ));
}

fn create(major: u16, create_view: impl FnOnce()) {
    let columns =
        fmt::from_fn(|f| columns::contrib(major).try_for_each(|(name, sql)| write!(f, ", OUT {name} {sql}")));
    let show_everybody = |view: &str| spi::run(format_args!("GRANT SELECT ON pgss_compat.{view} TO PUBLIC"));
    create_function(
        format_args!("pg_stat_statements(IN showtext boolean{columns})"),
        "SETOF record",
        "pgss_compat_stats",
    );
    create_view();
    show_everybody("pg_stat_statements");
    create_function(
        "pg_stat_statements_info(OUT dealloc bigint, OUT stats_reset timestamp with time zone)",
        "record",
        "pgss_compat_info",
    );
    spi::run(format_args!(
        "CREATE VIEW pgss_compat.pg_stat_statements_info AS SELECT * FROM pgss_compat.pg_stat_statements_info()"
    ));
    show_everybody("pg_stat_statements_info");
    let (minmax_only, returned, symbol) = if major < 17 {
        ("", "void", "pgss_compat_reset_1_7")
    } else {
        (", minmax_only boolean DEFAULT false", "timestamp with time zone", "pgss_rs_reset")
    };
    create_function(
        format_args!(
            "pg_stat_statements_reset(userid oid DEFAULT 0, dbid oid DEFAULT 0, queryid bigint DEFAULT 0{minmax_only})"
        ),
        returned,
        symbol,
    );
    spi::run(format_args!("REVOKE ALL ON FUNCTION pgss_compat.pg_stat_statements_reset FROM PUBLIC"));
}

/// Whether the view's columns are this server major's; `None` where there is no view.
fn has_columns() -> Option<bool> {
    let right = columns::contrib(server::MAJOR).map(|(name, _)| name);
    catalog::has_columns(c"pgss_compat", c"pg_stat_statements", right)
}

/// Whether the schema's objects are this server major's.
pub fn is_current() -> bool {
    has_columns() == Some(true)
}

/// Of objects that are 0.1.0's.
#[pg_extern(sql = false)]
fn pgss_rs_refresh_compat() {
    if !is_current() {
        create_anew(create_view_0_1);
    }
}

/// Makes the schema's objects as this server major has them, anew if they are another's; those that are right stay as
/// they are, with their grants. Runs with `search_path = pg_catalog`, as its declaration says.
#[pg_extern(sql = false)]
fn pgss_rs_refresh_compat_0_2() {
    let schema = spi::value(format_args!(
        "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pgss_rs'"
    ));
    let Some(schema) = schema.as_deref().and_then(|name| str::from_utf8(name).ok()) else {
        message::error(
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format_args!("pgss_compat cannot be made for an extension in a schema with such a name"),
            c"Create pgss_rs in a schema whose name is of ASCII characters.",
        );
    };
    match (is_current(), exists(ENTRIES)) {
        (true, true) => {}
        // in an update from 0.1.0: the function joins the extension of itself
        (true, false) => create_view(server::MAJOR, schema),
        (false, _) => create_anew(|| create_view(server::MAJOR, schema)),
    }
}

fn exists(object: &str) -> bool {
    match object.split_once(' ') {
        Some(("VIEW", name)) => spi::is_true(format_args!("SELECT to_regclass('{name}') IS NOT NULL")),
        Some((_, name)) if name.ends_with(')') => {
            spi::is_true(format_args!("SELECT to_regprocedure('{name}') IS NOT NULL"))
        }
        Some((_, name)) => spi::is_true(format_args!("SELECT to_regproc('{name}') IS NOT NULL")),
        None => unreachable!("objects are named with their kind"),
    }
}

/// Makes the objects, after those that are there are dropped. What an extension's script makes or drops is in the
/// extension, or out of it, of itself.
fn create_anew(create_view: impl FnOnce()) {
    let by_hand = !catalog::in_extension_script();
    for object in OBJECTS.iter().rev().filter(|object| exists(object)) {
        if by_hand {
            spi::run(format_args!("ALTER EXTENSION pgss_rs DROP {object}"));
        }
        spi::run(format_args!("DROP {object}"));
    }
    create(server::MAJOR, create_view);
    if by_hand {
        for object in OBJECTS.iter().filter(|object| exists(object)) {
            spi::run(format_args!("ALTER EXTENSION pgss_rs ADD {object}"));
        }
    }
}

/// The statistics in the columns that the function was declared with.
#[pg_extern(sql = false)]
fn pgss_compat_stats(showtext: bool, mut rows: Rows) {
    stats_fn::add_rows(Wanted::executed(showtext), &mut rows);
}

/// Likewise, for the view: for those who may execute the function that pg_stat_statements has its view made of.
#[pg_extern(sql = false)]
fn pgss_compat_entries(mut rows: Rows) {
    privs::require_execute(c"pgss_compat", c"pg_stat_statements", pg_sys::BOOLOID);
    stats_fn::add_rows(Wanted::executed(true).late(), &mut rows);
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
