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

fn function(signature: &str, returns: &str, symbol: &str) -> String {
    format!(
        "CREATE FUNCTION pgss_compat.{signature} RETURNS {returns} AS 'pgss_rs', '{symbol}_wrapper' \
         LANGUAGE C STRICT VOLATILE PARALLEL SAFE"
    )
}

/// The view, and before it what it is made of. `schema` is the extension's, quoted where need be.
fn view(major: u16, schema: &str) -> [String; 2] {
    let declared: String = columns::contrib(major).map(|(name, sql)| format!("OUT {name} {sql}, ")).collect();
    let selected: Vec<String> = columns::contrib(major)
        .map(|(name, _)| match name {
            "query" => format!("coalesce({schema}.pgss_rs_entry_text(text_of), query) AS query"),
            name => name.to_owned(),
        })
        .collect();
    [
        function(
            &format!("pgss_rs_entries({declared}OUT text_of bigint)"),
            "SETOF record",
            "pgss_compat_entries",
        ),
        format!(
            "CREATE OR REPLACE VIEW pgss_compat.pg_stat_statements AS SELECT {} FROM pgss_compat.pgss_rs_entries()",
            selected.join(", ")
        ),
    ]
}

/// The view as it was before texts were fetched late.
const VIEW_0_1: &str =
    "CREATE VIEW pgss_compat.pg_stat_statements AS SELECT * FROM pgss_compat.pg_stat_statements(true)";

fn definitions(major: u16, view: impl IntoIterator<Item = String>) -> Vec<String> {
    let columns: String = columns::contrib(major).map(|(name, sql)| format!(", OUT {name} {sql}")).collect();
    let everybody = |view: &str| format!("GRANT SELECT ON pgss_compat.{view} TO PUBLIC");
    let (reset, returned, symbol) = if major < 17 {
        ("", "void", "pgss_compat_reset_1_7")
    } else {
        (", minmax_only boolean DEFAULT false", "timestamp with time zone", "pgss_rs_reset")
    };
    let reset = format!(
        "pg_stat_statements_reset(userid oid DEFAULT 0, dbid oid DEFAULT 0, queryid bigint DEFAULT 0{reset})"
    );
    let mut all = vec![function(
        &format!("pg_stat_statements(IN showtext boolean{columns})"),
        "SETOF record",
        "pgss_compat_stats",
    )];
    all.extend(view);
    all.extend([
        everybody("pg_stat_statements"),
        function(
            "pg_stat_statements_info(OUT dealloc bigint, OUT stats_reset timestamp with time zone)",
            "record",
            "pgss_compat_info",
        ),
        "CREATE VIEW pgss_compat.pg_stat_statements_info AS SELECT * FROM pgss_compat.pg_stat_statements_info()"
            .to_owned(),
        everybody("pg_stat_statements_info"),
        function(&reset, returned, symbol),
        "REVOKE ALL ON FUNCTION pgss_compat.pg_stat_statements_reset FROM PUBLIC".to_owned(),
    ]);
    all
}

fn columns_there() -> Option<Vec<String>> {
    catalog::columns_of(c"pgss_compat", c"pg_stat_statements")
}

/// Whether the schema's objects are this server major's.
pub fn is_current() -> bool {
    let right = columns::contrib(server::MAJOR).map(|(name, _)| name);
    columns_there().is_some_and(|there| right.eq(there.iter().map(String::as_str)))
}

/// Of objects that are 0.1.0's.
#[pg_extern(sql = false)]
fn pgss_rs_refresh_compat() -> Result<(), pgrx::spi::Error> {
    if columns_there().is_some() && is_current() {
        return Ok(());
    }
    make(&definitions(server::MAJOR, [VIEW_0_1.to_owned()]))
}

/// Makes the schema's objects as this server major has them, anew if they are another's; those that are right stay as
/// they are, with their grants. Runs with `search_path = pg_catalog`, as its declaration says.
#[pg_extern(sql = false)]
fn pgss_rs_refresh_compat_0_2() -> Result<(), pgrx::spi::Error> {
    let schema = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pgss_rs'";
    let schema: String = Spi::get_one(schema)?.expect("the extension that this function belongs to is there");
    let view = view(server::MAJOR, &schema);
    match (is_current(), exists(ENTRIES)?) {
        (true, true) => Ok(()),
        // in an update from 0.1.0: the function joins the extension of itself
        (true, false) => view.iter().try_for_each(|definition| Spi::run(definition)),
        (false, _) => make(&definitions(server::MAJOR, view)),
    }
}

fn exists(object: &str) -> Result<bool, pgrx::spi::Error> {
    let there = match object.split_once(' ') {
        Some(("VIEW", name)) => format!("SELECT to_regclass('{name}') IS NOT NULL"),
        Some((_, name)) if name.ends_with(')') => format!("SELECT to_regprocedure('{name}') IS NOT NULL"),
        Some((_, name)) => format!("SELECT to_regproc('{name}') IS NOT NULL"),
        None => unreachable!("objects are named with their kind"),
    };
    Ok(Spi::get_one(&there)? == Some(true))
}

/// Makes the objects, after those that are there are dropped. What an extension's script makes or drops is in the
/// extension, or out of it, of itself.
fn make(definitions: &[String]) -> Result<(), pgrx::spi::Error> {
    let by_hand = !catalog::in_extension_script();
    for object in OBJECTS.iter().rev() {
        if exists(object)? {
            if by_hand {
                Spi::run(&format!("ALTER EXTENSION pgss_rs DROP {object}"))?;
            }
            Spi::run(&format!("DROP {object}"))?;
        }
    }
    definitions.iter().try_for_each(|definition| Spi::run(definition))?;
    for object in OBJECTS {
        if by_hand && exists(object)? {
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

/// Likewise, for the view.
#[pg_extern(sql = false)]
fn pgss_compat_entries(mut rows: Rows) {
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
