//! The SQL functions: what was counted, the state of the table, and resetting both.

use crate::counters::{Class, Counters, Timing};
use crate::histogram::{self, Histogram};
use crate::key::Key;
use crate::persist;
use crate::pg::srf::{Rows, Value};
use crate::pg::{catalog, clock, privs, server};
use crate::store::{self, SharedTable};
use crate::table::Body;
use crate::{columns, compat};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// The library's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const COLUMNS: usize = columns::COLUMNS.len();

/// The table, or an error that says how to get one.
pub fn loaded() -> &'static SharedTable {
    store::table().unwrap_or_else(|| {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "pgss_rs must be loaded via \"shared_preload_libraries\"",
            function_name!(),
        )
        .set_hint("Add pgss_rs to shared_preload_libraries in postgresql.conf and restart the server.")
        .report(PgLogLevel::ERROR);
        unreachable!()
    })
}

#[pg_extern(sql = false)]
fn pgss_rs_stats(showtext: bool, mut rows: Rows) {
    add_rows(showtext, |_| true, &mut rows);
}

/// Adds one row for each entry that `shows` picks, in the columns that the function was declared with, found by name: so the library
/// serves every version of the SQL. Others' texts and identifiers are shown to roles with the privileges of
/// `pg_read_all_stats`. Entries are copied one by one, each as a consistent whole, without stopping anyone.
pub fn add_rows(showtext: bool, shows: impl Fn(&Body) -> bool, rows: &mut Rows) {
    let table = loaded();
    let sees_all = privs::reads_all_stats();
    let user = server::user();
    let known = |n: &usize| columns::COLUMNS[*n].is_known(server::MAJOR);
    let places = rows.columns(|name| columns::place(name).filter(known));
    let tells_percentiles = places.contains(&columns::place("p50_exec_time"));
    let mut text = Vec::new();
    let mut add = |slot: u32, body: &Body| {
        check_for_interrupts!();
        if !shows(body) {
            return;
        }
        let visible = sees_all || body.key.userid == user;
        if showtext && visible {
            text.clear();
            table.texts.read(body.text, |part| text.extend_from_slice(part));
            if !table.unchanged(slot, body) {
                return; // gone while its text was being read
            }
        }
        let values = stats_row(body, visible, showtext.then_some(&text), tells_percentiles);
        rows.push(places.iter().map(|place| place.map_or(Value::Null, |n| values[n])));
    };
    if tells_percentiles {
        table.bodies().for_each(|(slot, body)| add(slot, &body));
    } else {
        table.bodies_in_brief().for_each(|(slot, body)| add(slot, &body));
    }
}

fn stats_row<'a>(
    body: &Body,
    visible: bool,
    text: Option<&'a Vec<u8>>,
    tells_percentiles: bool,
) -> [Value<'a>; COLUMNS] {
    let c = &body.counters;
    let mut row = Row { values: [Value::Null; COLUMNS], next: 0 };
    row.add([
        Value::Oid(body.key.userid),
        Value::Oid(body.key.dbid),
        Value::Bool(body.key.toplevel),
        if visible { Value::Int8(body.key.queryid as i64) } else { Value::Null },
        match text {
            None => Value::Null,
            Some(text) if visible => Value::Text(text, body.encoding),
            Some(_) => Value::Text(b"<insufficient privilege>", body.encoding),
        },
    ]);
    row.add(timing(&c.plan));
    row.add(timing(&c.exec));
    row.add([int(c.rows)]);
    row.add(c.blocks.map(int));
    row.add(c.timers.map(Value::Float8));
    row.add([int(c.wal[0]), int(c.wal[1]), Value::Numeric(c.wal[2]), int(c.wal[3])]);
    row.add(jit(c));
    row.add(c.workers.map(int));
    row.add([Value::Null; 2]); // plan kinds: from 19 on
    row.add([Value::Timestamptz(body.stats_since), Value::Timestamptz(body.minmax_stats_since)]);
    let executed = |at: i64| if at != 0 { Value::Timestamptz(at) } else { Value::Null };
    row.add([
        Value::Int8(c.sampled_calls as i64),
        Value::Float8(c.calls_stderr()),
        Value::Float8(c.time_stderr()),
    ]);
    row.add(if tells_percentiles { percentiles(body) } else { [Value::Null; 4] });
    row.add([int(c.failures.errors), int(c.failures.cancels), Value::Float8(c.failures.time)]);
    row.add([executed(c.first_exec), executed(c.last_exec), Value::Bool(body.text.truncated)]);
    row.values
}

/// p50, p90, p95 and p99 in ms. Within the least and the greatest time, where these are of all calls.
fn percentiles<'a>(body: &Body) -> [Value<'a>; 4] {
    let exec = &body.counters.exec;
    let within = exec.seen && body.minmax_stats_since == body.stats_since;
    body.counters.histogram.percentiles([0.5, 0.9, 0.95, 0.99]).map(|told| match told {
        None => Value::Null,
        Some(ms) if within => Value::Float8(ms.max(exec.min).min(exec.max)),
        Some(ms) => Value::Float8(ms),
    })
}

struct Row<'a> {
    values: [Value<'a>; COLUMNS],
    next: usize,
}

impl<'a> Row<'a> {
    fn add<const N: usize>(&mut self, values: [Value<'a>; N]) {
        self.values[self.next..self.next + N].copy_from_slice(&values);
        self.next += N;
    }
}

/// A weighted sum of whole numbers, to the nearest whole.
fn int<'a>(sum: f64) -> Value<'a> {
    // a half is lost on the large ones, which are whole as they are
    Value::Int8(if sum < 4e15 { (sum + 0.5) as i64 } else { sum as i64 })
}

fn timing<'a>(t: &Timing) -> [Value<'a>; 6] {
    let [total, min, max, mean, stddev] = [t.total, t.min, t.max, t.mean, t.stddev()].map(Value::Float8);
    [int(t.calls), total, min, max, mean, stddev]
}

fn jit<'a>(c: &Counters) -> [Value<'a>; 10] {
    let j = &c.jit;
    [
        int(j.functions),
        Value::Float8(j.generation_time),
        int(j.inlining_count),
        Value::Float8(j.inlining_time),
        int(j.optimization_count),
        Value::Float8(j.optimization_time),
        int(j.emission_count),
        Value::Float8(j.emission_time),
        int(j.deform_count),
        Value::Float8(j.deform_time),
    ]
}

/// The histograms, added up, of the entries of a statement, user and database (0: all) that the caller may see.
fn histogram_of(queryid: i64, userid: pg_sys::Oid, dbid: pg_sys::Oid) -> Histogram {
    let table = loaded();
    let (sees_all, caller) = (privs::reads_all_stats(), server::user());
    let picked = picking(userid, dbid, queryid);
    let mut sum = Histogram::default();
    for (_, body) in table.bodies() {
        check_for_interrupts!();
        if picked(&body.key) && (sees_all || body.key.userid == caller) {
            sum.merge(&body.counters.histogram);
        }
    }
    sum
}

/// One row for each class of times that has calls.
#[pg_extern(sql = false)]
fn pgss_rs_histogram(queryid: i64, userid: pg_sys::Oid, dbid: pg_sys::Oid, mut rows: Rows) {
    for (class, calls) in histogram_of(queryid, userid, dbid).filled() {
        let (lower, upper) = histogram::bounds(class);
        rows.push([Value::Float8(lower), Value::Float8(upper), int(calls)]);
    }
}

/// The time in ms that a fraction of the calls did not exceed; NULL where there are none.
#[pg_extern(sql = false)]
fn pgss_rs_percentile(queryid: i64, fraction: f64, userid: pg_sys::Oid, dbid: pg_sys::Oid) -> Option<f64> {
    if !(0.0..=1.0).contains(&fraction) {
        ErrorReport::new(
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format!("percentile value {fraction} is not between 0 and 1"),
            function_name!(),
        )
        .set_hint("The median is 0.5, and the 99th percentile 0.99.")
        .report(PgLogLevel::ERROR);
    }
    histogram_of(queryid, userid, dbid).percentile(fraction)
}

/// Failed executions by the class of their SQLSTATE.
#[pg_extern(sql = false)]
fn pgss_rs_errors(mut rows: Rows) {
    let (sees_all, caller) = (privs::reads_all_stats(), server::user());
    for (_, Body { key, counters, .. }) in loaded().bodies_in_brief() {
        check_for_interrupts!();
        let visible = sees_all || key.userid == caller;
        for (class, errors) in counters.failures.by_class() {
            let name = class.map(Class::name);
            rows.push([
                Value::Oid(key.userid),
                Value::Oid(key.dbid),
                Value::Bool(key.toplevel),
                if visible { Value::Int8(key.queryid as i64) } else { Value::Null },
                name.as_ref().map_or(Value::Null, |name| Value::Text(name, server::encoding())),
                int(errors),
            ]);
        }
    }
}

/// Picks the entries of a user, database and statement, 0 meaning all.
fn picking(userid: pg_sys::Oid, dbid: pg_sys::Oid, queryid: i64) -> impl Fn(&Key) -> bool {
    let (user, database, queryid) = (userid.to_u32(), dbid.to_u32(), queryid as u64);
    move |k| {
        (user == 0 || k.userid == user)
            && (database == 0 || k.dbid == database)
            && (queryid == 0 || k.queryid == queryid)
    }
}

/// The state of the table as a whole, in one row.
#[pg_extern(sql = false)]
fn pgss_rs_info(mut rows: Rows) {
    let table = loaded();
    let state = table.state;
    let evicted = table.evicted();
    let text = |s| Value::Text(s, server::encoding());
    let [measured, recording, statements] =
        [&state.cost.measured, &state.cost.nanoseconds, &state.cost.statements]
            .map(|n| n.load(Relaxed) as f64);
    let ratio = |part: f64, of: f64| if of > 0.0 { Value::Float8(part / of) } else { Value::Null };
    let (recording_ns, recording_share) = (ratio(recording, measured), ratio(100.0 * recording, statements));
    let thinned_at = state.cost.thinned_at.load(Relaxed);
    let sql_version = catalog::extension_version(c"pgss_rs");
    let values = [
        ("dealloc", Value::Int8(table.dealloc() as i64)),
        ("stats_reset", Value::Timestamptz(table.stats_reset())),
        ("entries", Value::Int8(i64::from(table.entries()))),
        ("max_entries", Value::Int8(table.slots.len() as i64)),
        ("striped_entries", Value::Int8(i64::from(table.stripes.sets_used()))),
        ("text_bytes_used", Value::Int8(table.texts.used_bytes() as i64)),
        ("text_bytes_total", Value::Int8(table.texts.total_bytes() as i64)),
        ("lock_waits", Value::Int8(state.lock_waits.load(Relaxed) as i64)),
        ("index_lock_waits", Value::Int8(state.index_waits.load(Relaxed) as i64)),
        ("text_lock_waits", Value::Int8(state.text_waits.load(Relaxed) as i64)),
        ("skipped", Value::Int8(state.skipped.load(Relaxed) as i64)),
        ("evicted_calls", int(evicted.exec.calls)),
        ("evicted_total_exec_time", Value::Float8(evicted.exec.total)),
        ("evicted_errors", int(evicted.errors)),
        ("recording_ns", recording_ns),
        ("recording_share", recording_share),
        ("thinned_calls", Value::Int8(state.cost.thinned.load(Relaxed) as i64)),
        ("last_thinned", if thinned_at == 0 { Value::Null } else { Value::Timestamptz(thinned_at) }),
        ("library_version", text(VERSION.as_bytes())),
        ("sql_version", sql_version.as_ref().map_or(Value::Null, |v| text(v.as_bytes()))),
        ("clock_source", text(clock::source().as_bytes())),
        ("compat_current", Value::Bool(compat::is_current())),
    ];
    // by name, as an older version of the SQL may have fewer
    let row =
        rows.columns(|column| values.iter().find(|(name, _)| *name == column).map_or(Value::Null, |v| v.1));
    rows.push(row);
    warn_of_old_objects(sql_version.as_deref());
}

/// Once for each call of `pgss_rs_info`, where somebody looks.
fn warn_of_old_objects(sql_version: Option<&str>) {
    let warn = |message: String, hint: &'static str| {
        ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, message, function_name!())
            .set_hint(hint)
            .report(PgLogLevel::WARNING);
    };
    if let Some(version) = sql_version.filter(|v| *v != VERSION) {
        warn(
            format!("pgss_rs's objects in this database are of version {version}, its library of {VERSION}"),
            "Run ALTER EXTENSION pgss_rs UPDATE.",
        );
    }
    if !compat::is_current() {
        warn(
            "the objects in schema pgss_compat are not those of this server's pg_stat_statements".to_owned(),
            "Run SELECT pgss_rs_refresh_compat().",
        );
    }
}

/// Removes the entries of a user, database and statement, 0 meaning all, or starts only their min and max anew. The
/// time of the reset.
#[pg_extern(sql = false)]
fn pgss_rs_reset(
    userid: pg_sys::Oid,
    dbid: pg_sys::Oid,
    queryid: i64,
    minmax_only: bool,
) -> TimestampWithTimeZone {
    reset(userid, dbid, queryid, minmax_only).try_into().expect("the server's clock gives a time in range")
}

/// The time of the reset, microseconds of the server's epoch.
pub fn reset(userid: pg_sys::Oid, dbid: pg_sys::Oid, queryid: i64, minmax_only: bool) -> i64 {
    let table = loaded();
    let picked = picking(userid, dbid, queryid);
    let now = server::now();
    if minmax_only {
        table.reset_minmax_where(now, picked);
    } else if table.remove_where(picked) || (userid.to_u32(), dbid.to_u32(), queryid) == (0, 0, 0) {
        table.reset_totals(now);
        persist::forget();
        store::emptied();
    }
    now
}
