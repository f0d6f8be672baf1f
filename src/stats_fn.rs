//! The SQL functions: what was counted, the state of the table, and resetting both.
//!
//! They may raise anywhere but under a lock: nothing in here has anything to drop, and memory is the server's.

use crate::counters::{Class, Counters, Timing};
use crate::histogram::{self, Histogram};
use crate::key::Key;
use crate::persist;
use crate::pg::palloced::Palloced;
use crate::pg::server::check_for_interrupts;
use crate::pg::srf::{Row, Rows, Shown, Text, Value};
use crate::pg::{catalog, clock, message, privs, server};
use crate::store::{self, SharedTable};
use crate::table::{Body, EVER};
use crate::{columns, compat, taken};
use pgrx::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// The library's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const COLUMNS: usize = columns::COLUMNS.len();

/// For the texts of others.
const HIDDEN: &[u8] = b"<insufficient privilege>";

/// The table, or an error that says how to get one.
pub fn loaded() -> &'static SharedTable {
    store::table().unwrap_or_else(|| {
        message::error(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format_args!("pgss_rs must be loaded via \"shared_preload_libraries\""),
            c"Add pgss_rs to shared_preload_libraries in postgresql.conf and restart the server.",
        )
    })
}

/// What a reader wants of the statistics.
#[derive(Clone, Copy)]
pub struct Wanted {
    texts: bool,
    /// Bytes of a text, in its encoding.
    text_limit: Option<usize>,
    /// Entries that were touched at this time or later.
    since: i64,
    /// Not those that only failed.
    executed: bool,
    /// Of long texts the beginning, and what [`pgss_rs_entry_text`] finds the whole by.
    late: bool,
}

/// Bytes of a text up to which a view has it at once, so that only an entry with a longer one can lose it by going while
/// the view is read.
const AT_ONCE: usize = 512;

/// Bytes that a view has at once of a longer one, to show where the entry has gone.
const BEGINNING: usize = 100;
const CUT: &[u8] = b"...";

/// What is told of the time at which something was counted may be so much too early, in microseconds, unless there was a
/// reader at that time (see [`clock::tell_time_to`]).
const TOLD_WITHIN: i64 = 200_000;

impl Wanted {
    /// Every entry.
    pub fn all(texts: bool) -> Self {
        Wanted { texts, text_limit: None, since: EVER, executed: false, late: false }
    }

    /// What pg_stat_statements has: it has no entries of statements that were never executed to their end, nor planned.
    pub fn executed(texts: bool) -> Self {
        Wanted { executed: true, ..Wanted::all(texts) }
    }

    /// For a view.
    pub fn late(self) -> Self {
        Wanted { late: true, ..self }
    }

    fn wants(&self, body: &Body) -> bool {
        !self.executed || body.counters.exec.calls > 0.0 || body.counters.plan.calls > 0.0
    }

    fn limited(texts: bool, query_len: Option<i32>) -> Self {
        let limit = query_len.map(|len| {
            usize::try_from(len).unwrap_or_else(|_| {
                message::error(
                    PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                    format_args!("query_len must not be negative, and is {len}"),
                    c"It is in bytes. NULL stands for whole texts, showtext => false for none.",
                )
            })
        });
        Wanted { text_limit: limit, ..Wanted::all(texts) }
    }
}

/// As it was before there were texts of limited length.
#[pg_extern(sql = false)]
fn pgss_rs_stats(showtext: bool, mut rows: Rows) {
    add_rows(Wanted::all(showtext), &mut rows);
}

/// No rows without `showtext`: the first argument was strict.
#[pg_extern(sql = false)]
fn pgss_rs_stats_0_2(
    showtext: Option<bool>,
    query_len: Option<i32>,
    changed_since: Option<TimestampWithTimeZone>,
    mut rows: Rows,
) {
    let Some(showtext) = showtext else { return };
    let since = changed_since.map_or(EVER, |t| i64::from(t).saturating_sub(TOLD_WITHIN).max(EVER));
    add_rows(Wanted { since, ..Wanted::limited(showtext, query_len) }, &mut rows);
}

/// What the views are made of: a long text is fetched where, and only if, it is used, rather than copied into the set of
/// all rows.
#[pg_extern(sql = false)]
fn pgss_rs_entries(mut rows: Rows) {
    add_rows(Wanted::all(true).late(), &mut rows);
}

/// Adds one row for each entry, in the columns that the function was declared with, found by name: so the library
/// serves every version of the SQL. Entries are copied one by one, each as a consistent whole, without stopping anyone.
pub fn add_rows(wanted: Wanted, rows: &mut Rows) {
    let mut reader = Reader::new(wanted, rows);
    reader.table.visit_since(wanted.since, reader.tells_percentiles, |slot, body| {
        check_for_interrupts();
        // not if it has gone while its text was being read
        if wanted.wants(body) && reader.read_text(slot, body) {
            reader.add_row(body);
        }
    });
}

/// Adds a row for each entry that has counted something, and starts its counters anew, entry by entry in one step. If
/// the transaction fails, now or later, what was taken is given back.
#[pg_extern(sql = false)]
fn pgss_rs_stats_and_reset(showtext: Option<bool>, query_len: Option<i32>, mut rows: Rows) {
    let Some(showtext) = showtext else { return };
    let table = loaded();
    let mut reader = Reader::new(Wanted::limited(showtext, query_len), &mut rows);
    table.visit_since(EVER, false, |slot, seen| {
        check_for_interrupts();
        if !taken::reserve() {
            message::error(
                PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY,
                format_args!("out of memory"),
                c"What is reset is kept until the transaction ends. Nothing was reset.",
            );
        }
        // the text first: what was taken is shown in any case
        if reader.read_text(slot, seen)
            && let Some(body) = table.take(slot, seen, server::now())
        {
            taken::keep(&body);
            reader.add_row(&body);
        }
    });
}

/// Makes rows of entries for one caller. Others' texts and identifiers are shown to roles with the privileges of
/// `pg_read_all_stats`.
struct Reader<'a> {
    table: &'static SharedTable,
    rows: &'a mut Rows,
    wanted: Wanted,
    /// Which of [`columns::COLUMNS`] the function has.
    shown: Shown<COLUMNS>,
    tells_percentiles: bool,
    sees_all: bool,
    user: u32,
    /// When the reading began, microseconds of the server's epoch.
    now: i64,
    /// Of the entry at hand.
    text: Palloced<u8>,
    clipped: bool,
    text_of: Option<i64>,
}

impl<'a> Reader<'a> {
    fn new(wanted: Wanted, rows: &'a mut Rows) -> Self {
        let table = loaded();
        // before the first entry is looked at, so that what is not seen now will count as changed after it
        let now = server::now();
        table.tell_time(now);
        let unknown = |n: usize| !columns::COLUMNS[n].is_known(server::MAJOR);
        Reader {
            table,
            wanted,
            tells_percentiles: rows.columns(|name| name == "p50_exec_time").contains(&true),
            shown: rows.shows(columns::place, unknown),
            rows,
            sees_all: privs::reads_all_stats(),
            user: server::user(),
            now,
            text: Palloced::empty(),
            clipped: false,
            text_of: None,
        }
    }

    fn may_see(&self, body: &Body) -> bool {
        self.sees_all || body.key.userid == self.user
    }

    /// Reads as much of the entry's text as is wanted; false if the entry has gone.
    fn read_text(&mut self, slot: u32, body: &Body) -> bool {
        (self.clipped, self.text_of) = (false, None);
        if !self.wanted.texts || !self.may_see(body) {
            return true;
        }
        if self.wanted.late && body.text.len as usize > AT_ONCE {
            read_text(self.table, body, Some(BEGINNING), &mut self.text);
            self.text.extend_from_slice(CUT);
            self.text_of = Some(text_of(slot, body));
        } else {
            self.clipped = read_text(self.table, body, self.wanted.text_limit, &mut self.text);
        }
        self.table.unchanged(slot, body)
    }

    fn add_row(&mut self, body: &Body) {
        if body.is_ahead(self.now) {
            return self.add_plain_row(&body.told_until(server::now()));
        }
        self.add_plain_row(body);
    }

    fn add_plain_row(&mut self, body: &Body) {
        let visible = self.may_see(body);
        let text = if visible { &self.text } else { HIDDEN };
        let text = self.wanted.texts.then_some(text);
        let truncated = body.text.truncated || self.clipped;
        let (text_of, tells_percentiles) = (self.text_of, self.tells_percentiles);
        self.rows.push_row(&mut self.shown, |row| {
            fill(row, body, visible, text, tells_percentiles);
            row.add([Value::Bool(truncated), text_of.map_or(Value::Null, Value::Int8)]);
        });
    }
}

/// Reads at most so many bytes of an entry's text, up to the end of a character; whether it goes on.
fn read_text(table: &SharedTable, body: &Body, limit: Option<usize>, text: &mut Palloced<u8>) -> bool {
    text.clear();
    let limit = limit.unwrap_or(usize::MAX);
    let clipped = body.text.len as usize > limit;
    let needed = body.text.first(limit.saturating_add(server::LONGEST_CHARACTER));
    // with room for what cutting off looks at, and for what shows it
    text.reserve(needed.len as usize + server::LONGEST_CHARACTER + CUT.len());
    table.texts.read(needed, |part| text.extend_from_slice(part));
    if clipped {
        server::clip_to(text, body.encoding, limit);
    }
    clipped
}

/// What an entry's text is found by.
fn text_of(slot: u32, body: &Body) -> i64 {
    i64::from(slot) << 32 | i64::from(body.generation)
}

/// The text of the entry that a row of a view shows. NULL if the entry has gone, or the caller may not see it.
#[pg_extern(sql = false)]
fn pgss_rs_entry_text(text_of: i64) -> Option<Text> {
    let table = loaded();
    let slot = u32::try_from(text_of >> 32).ok()?;
    let body = table.entry(slot, text_of as u32)?;
    if !privs::reads_all_stats() && body.key.userid != server::user() {
        return None;
    }
    let mut text = Palloced::empty();
    read_text(table, &body, None, &mut text);
    table.unchanged(slot, &body).then_some(Text(text, body.encoding))
}

/// The text of a statement, of a user and database (0: any), whole if there is one that is whole. NULL where there is
/// none that the caller may see: whether others run a statement is not told.
#[pg_extern(sql = false)]
fn pgss_rs_text(queryid: i64, userid: pg_sys::Oid, dbid: pg_sys::Oid) -> Option<Text> {
    let table = loaded();
    let (sees_all, caller) = (privs::reads_all_stats(), server::user());
    let picked = picking(userid, dbid, queryid);
    let mut cut_off = None;
    for (slot, body) in table.bodies_of(queryid as u64) {
        check_for_interrupts();
        if !picked(&body.key) || !sees_all && body.key.userid != caller {
            continue;
        }
        let mut text = Palloced::empty();
        read_text(table, &body, None, &mut text);
        match table.unchanged(slot, &body).then_some(Text(text, body.encoding)) {
            Some(text) if !body.text.truncated => return Some(text),
            text => cut_off = cut_off.or(text),
        }
    }
    cut_off
}

/// The values of [`columns::COLUMNS`], in their order, but for the last two.
#[inline(always)]
fn fill(row: &mut Row<COLUMNS>, body: &Body, visible: bool, text: Option<&[u8]>, tells_percentiles: bool) {
    let c = &body.counters;
    row.add([
        Value::Oid(body.key.userid),
        Value::Oid(body.key.dbid),
        Value::Bool(body.key.toplevel),
        if visible { Value::Int8(body.key.queryid as i64) } else { Value::Null },
        text.map_or(Value::Null, |text| Value::Text(text, body.encoding)),
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
    row.add([executed(c.first_exec), executed(c.last_exec)]);
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
    table.visit_since(EVER, true, |_, body| {
        check_for_interrupts();
        if picked(&body.key) && (sees_all || body.key.userid == caller) {
            sum.merge(&body.counters.histogram);
        }
    });
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
        message::error(
            PgSqlErrorCode::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE,
            format_args!("percentile value {fraction} is not between 0 and 1"),
            c"The median is 0.5, and the 99th percentile 0.99.",
        );
    }
    histogram_of(queryid, userid, dbid).percentile(fraction)
}

/// Failed executions by the class of their SQLSTATE, of the entries that the caller may see.
#[pg_extern(sql = false)]
fn pgss_rs_errors(mut rows: Rows) {
    let (sees_all, caller) = (privs::reads_all_stats(), server::user());
    loaded().visit_since(EVER, false, |_, Body { key, counters, .. }| {
        check_for_interrupts();
        if !sees_all && key.userid != caller {
            return;
        }
        for (class, errors) in counters.failures.by_class() {
            let name = class.map(Class::name);
            rows.push([
                Value::Oid(key.userid),
                Value::Oid(key.dbid),
                Value::Bool(key.toplevel),
                Value::Int8(key.queryid as i64),
                name.as_ref().map_or(Value::Null, |name| Value::Text(name, server::encoding())),
                int(errors),
            ]);
        }
    });
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
    let saved_at = state.saving.saved_at.load(Relaxed);
    let sql_version = catalog::extension_version(c"pgss_rs");
    let compat_current = compat::is_current();
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
        ("evicted_calls_stderr", Value::Float8(evicted.calls_variance.sqrt())),
        ("evicted_total_exec_time", Value::Float8(evicted.exec.total)),
        ("evicted_total_exec_time_stderr", Value::Float8(evicted.time_variance.sqrt())),
        ("evicted_rows", int(evicted.rows)),
        ("evicted_errors", int(evicted.errors)),
        ("evicted_plans", int(evicted.plan.calls)),
        ("evicted_total_plan_time", Value::Float8(evicted.plan.total)),
        ("recording_ns", recording_ns),
        ("recording_share", recording_share),
        ("thinned_calls", Value::Int8(state.cost.thinned.load(Relaxed) as i64)),
        ("last_thinned", if thinned_at == 0 { Value::Null } else { Value::Timestamptz(thinned_at) }),
        ("last_saved", if saved_at == 0 { Value::Null } else { Value::Timestamptz(saved_at) }),
        ("library_version", text(VERSION.as_bytes())),
        ("sql_version", sql_version.map_or(Value::Null, |v| text(v.to_bytes()))),
        ("clock_source", text(clock::source().as_bytes())),
        ("compat_current", Value::Bool(compat_current)),
    ];
    // by name, as an older version of the SQL may have fewer
    let row =
        rows.columns(|column| values.iter().find(|(name, _)| *name == column).map_or(Value::Null, |v| v.1));
    rows.push(row.iter().copied());
    warn(sql_version.and_then(|v| v.to_str().ok()), compat_current);
}

/// Of what keeps the statistics from being what is expected. Once for each call of `pgss_rs_info`, where somebody looks.
fn warn(sql_version: Option<&str>, compat_current: bool) {
    if let Some(version) = sql_version.filter(|v| *v != VERSION) {
        message::warning(
            format_args!(
                "pgss_rs's objects in this database are of version {version}, its library of {VERSION}"
            ),
            c"Run ALTER EXTENSION pgss_rs UPDATE.",
        );
    }
    if !compat_current {
        message::warning(
            format_args!(
                "the objects in schema pgss_compat are not those of this server's pg_stat_statements"
            ),
            c"Run SELECT pgss_rs_refresh_compat().",
        );
    }
    if !server::allows_query_ids() {
        message::warning(
            format_args!("nothing is recorded, as statements get no identifier with compute_query_id = off"),
            c"Set compute_query_id to auto, its default.",
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
        persist::save_soon();
    } else if table.remove_where(picked) || (userid.to_u32(), dbid.to_u32(), queryid) == (0, 0, 0) {
        table.reset_totals(now);
        persist::forget();
        store::emptied();
    } else {
        persist::save_soon();
    }
    now
}
