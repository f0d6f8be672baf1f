//! Plannable statements, from the executor's start to its end.

use super::{
    Beginning, draw_at, draw_for_commit, is_watched, key_of, looks, no_draw_is_kept, not_drawn, note,
    run_under, run_undrawn, weight_of, worked,
};
use crate::cost::{self, Own, Turn};
use crate::counters::{Event, Jit, Kind, Usage};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::context::{self, Id, Watched};
use crate::pg::exec::{self, Execution, ExecutorHooks, Passes};
use crate::pg::local::Local;
use crate::pg::server;
use crate::store::{self, TextOf};
use crate::variance::Shared;
use crate::{nesting, sampling};

/// What is gathered of an execution that is looked at.
#[derive(Default)]
pub struct Record {
    key: Key,
    /// Where its entry was when it started.
    place: Option<u32>,
    weight: f64,
    /// Number and weight of the draw.
    cluster: u64,
    drawn: f64,
    /// When the client's message came that started it.
    at: i64,
    nanoseconds: u64,
    rows: u64,
    usage: Option<Usage>,
    /// Of the run or finish that is going on.
    beginning: Beginning,
}

static TURN: Turn = Turn::new();

/// Whose execution was passed by last that is watched as the outermost work; 0 while it starts, as nothing that a start
/// does changes the user.
static PASSED_FOR: Local<u32> = Local::new(0);

struct Hooks;

impl ExecutorHooks for Hooks {
    type Record = Record;
    type Started = Started;
    /// The level.
    type Span = i32;
    type Own = Own;
    type Watch<'a> = Unrecorded<'a>;

    #[inline(always)]
    fn is_skipped() -> bool {
        context::is_free() && sampling::skips_at_a_glance()
    }

    #[inline(always)]
    fn start_passes() -> Passes {
        if !nesting::is_certain() {
            return Passes::No;
        }
        if nesting::is_top() {
            return match guc::drawing() {
                Drawing::All | Drawing::Timed => Passes::No,
                Drawing::Nothing if no_draw_is_kept() => Passes::Yes,
                Drawing::Nothing => Passes::No,
                Drawing::Some => Passes::Undrawn,
            };
        }
        match guc::drawing() {
            _ if nesting::weight() > 0.0 => Passes::No,
            Drawing::Nothing => Passes::Yes,
            Drawing::Timed => Passes::No,
            _ => Passes::Watched,
        }
    }

    #[inline(always)]
    fn is_undrawn(execution: Execution) -> bool {
        no_draw_is_kept() && not_drawn(|| execution.statement())
    }

    #[inline(always)]
    fn is_top() -> bool {
        nesting::is_top()
    }

    #[inline(always)]
    fn run_passes(execution: Execution) -> Passes {
        if nesting::is_at_ease(|| execution.queryid() != 0) {
            Passes::Yes
        } else if nesting::is_certain() {
            Passes::Watched
        } else {
            Passes::No
        }
    }

    #[inline(always)]
    fn passing() -> i32 {
        let level = nesting::enter_next();
        if level == 0 {
            run_undrawn();
        }
        level
    }

    #[inline(always)]
    fn passed(level: i32) {
        nesting::leave(level);
    }

    #[inline(always)]
    fn passing_clients() {
        nesting::enter_top();
        run_undrawn();
    }

    #[inline(always)]
    fn passed_clients() {
        nesting::leave(0);
    }

    #[inline(always)]
    fn passing_start() {
        PASSED_FOR.set(0);
    }

    #[inline(always)]
    fn passed_start() {
        PASSED_FOR.set(server::user());
    }

    #[cold]
    fn raised_in_passed(execution: Execution, id: Id) {
        let userid = Some(PASSED_FOR.get()).filter(|user| *user != 0).unwrap_or_else(server::user);
        let started = Started { level: 0, userid, tracked: true, weight: 0.0 };
        Unrecorded { execution, started }.raised(id);
    }

    #[inline(always)]
    fn watched(execution: Execution, level: i32) -> Option<Started> {
        is_watched(execution.queryid(), level).then(|| Started {
            level,
            userid: server::user(),
            tracked: true,
            weight: 0.0,
        })
    }

    #[inline(always)]
    fn watch(execution: Execution<'_>, started: Started) -> Unrecorded<'_> {
        Unrecorded { execution, started }
    }

    #[inline(always)]
    fn is_measured() -> bool {
        TURN.has_come()
    }

    #[cold]
    fn begin(own: &mut Own) {
        own.begin();
    }

    #[cold]
    fn end(own: &mut Own) {
        own.end();
    }

    #[cold]
    fn measured(own: Own, record: &Record) {
        cost::recorded(own, (record.weight * record.nanoseconds as f64) as u64);
    }

    #[inline(always)]
    fn starting(execution: Execution) -> Started {
        let level = nesting::level_of_statement(&execution.statement(), draw_for_commit);
        draw_at(level, true, || execution.statement());
        nesting::enter(level);
        Started::now(level)
    }

    #[inline(always)]
    fn started(execution: Execution, started: &mut Started) -> bool {
        nesting::leave(started.level);
        // without an identifier it is not counted, but what is nested in its runs still has its weight
        looks()
            && started.tracked
            && (execution.queryid() != 0 || started.level == 0 && guc::tracks(1))
            && (started.level == 0 || started.is_kept(execution.queryid()))
    }

    #[inline(always)]
    fn opened(execution: Execution, started: Started, record: &mut Record) {
        record.key = started.key(execution.queryid());
        record.place = store::expect(&record.key);
        record.weight = if started.level == 0 { nesting::weight() } else { started.weight };
        record.drawn = nesting::weight();
        record.cluster = sampling::cluster();
        record.at = server::statement_start();
        record.nanoseconds = 0;
        record.rows = 0;
        record.usage = None;
    }

    #[cold]
    fn not_opened() {
        if let Some(table) = store::table() {
            table.skip();
        }
    }

    #[inline(always)]
    fn running(record: Option<&mut Record>) -> i32 {
        let level = nesting::level();
        if level == 0 {
            let (weight, cluster) = record.as_ref().map_or((0.0, 0), |r| (r.weight, r.cluster));
            run_under(weight, cluster);
        }
        nesting::enter(level);
        if let Some(record) = record {
            record.beginning.set_now();
        }
        level
    }

    #[inline(always)]
    fn ran(execution: Execution, level: i32, record: Option<&mut Record>) {
        nesting::leave(level);
        if let Some(record) = record {
            record.add_since_beginning();
            record.rows = record.rows.wrapping_add(execution.rows());
        }
    }

    #[cold]
    fn raised(execution: Execution, record: &Record, id: Id) {
        if record.key.queryid == 0 {
            return;
        }
        let nanoseconds = record.nanoseconds.saturating_add(record.beginning.elapsed());
        let timed = Some((weight_of(record.weight, nanoseconds), nanoseconds));
        note(id, &record.key, &execution.statement(), TextOf::Carried, timed);
    }

    #[inline(always)]
    fn done(id: Id) {
        worked(id);
    }

    fn finishing(record: Option<&mut Record>) -> i32 {
        nesting::may_defer();
        Self::running(record)
    }

    fn finished(level: i32, record: Option<&mut Record>) {
        nesting::leave(level);
        if let Some(record) = record {
            record.add_since_beginning();
        }
    }

    #[inline(always)]
    fn ending(execution: Execution, record: Option<&mut Record>) {
        if let Some(record) = record
            && record.key.queryid != 0
            && record.is_kept()
        {
            record.store(execution);
        }
    }
}

/// What is judged of an execution when it starts.
#[derive(Clone, Copy)]
pub struct Started {
    level: i32,
    userid: u32,
    tracked: bool,
    /// Of a nested one that is looked at.
    weight: f64,
}

impl Started {
    #[inline(always)]
    fn now(level: i32) -> Self {
        Started { level, userid: server::user(), tracked: guc::tracks(level), weight: 0.0 }
    }

    /// Whether a nested one is looked at whose draw was won, or which is timed whatever was drawn.
    #[inline(always)]
    fn is_kept(&mut self, queryid: u64) -> bool {
        self.weight = sampling::weight_of_nested(queryid, nesting::weight());
        self.weight > 0.0 || guc::drawing() == Drawing::Timed
    }

    #[inline(always)]
    fn key(&self, queryid: u64) -> Key {
        key_of(self.userid, queryid, self.level)
    }
}

/// An execution without a record: not looked at, or still starting.
pub struct Unrecorded<'a> {
    execution: Execution<'a>,
    started: Started,
}

impl Watched for Unrecorded<'_> {
    #[cold]
    fn raised(&self, id: Id) {
        let statement = self.execution.statement();
        if self.started.tracked && is_watched(statement.queryid, self.started.level) {
            note(id, &self.started.key(statement.queryid), &statement, TextOf::Carried, None);
        }
    }

    #[inline(always)]
    fn done(id: Id) {
        worked(id);
    }
}

impl Record {
    #[inline(always)]
    fn add_since_beginning(&mut self) {
        self.nanoseconds = self.nanoseconds.saturating_add(self.beginning.elapsed());
        self.beginning.usage.add_since(&mut self.usage);
    }

    /// Whether it is kept; its weight is certain then.
    #[inline(always)]
    fn is_kept(&mut self) -> bool {
        if self.weight != 1.0 {
            self.weight = weight_of(self.weight, self.nanoseconds);
        }
        self.weight > 0.0
    }

    #[inline(never)]
    fn store(&self, execution: Execution) {
        let jit = execution.jit();
        let shared = sampling::shared(self.cluster, self.drawn, &self.key, self.weight, self.nanoseconds);
        let event = self.event(execution, jit.as_ref(), shared);
        if self.key.toplevel {
            sampling::took(self.weight, self.nanoseconds);
        }
        if !self.place.is_some_and(|place| store::record_at_once(place, &self.key, &event)) {
            self.store_slowly(execution, shared);
        }
    }

    #[inline(never)]
    fn store_slowly(&self, execution: Execution, shared: Shared) {
        let jit = execution.jit();
        let event = self.event(execution, jit.as_ref(), shared);
        store::record(&self.key, &event, TextOf::Carried, || execution.statement());
    }

    #[inline(always)]
    fn event<'a>(&'a self, execution: Execution, jit: Option<&'a Jit>, shared: Shared) -> Event<'a> {
        Event {
            kind: Kind::Exec,
            weight: self.weight,
            nanoseconds: self.nanoseconds,
            rows: self.rows,
            usage: self.usage.as_ref(),
            jit,
            workers: execution.workers(),
            at: self.at,
            shared,
        }
    }
}

pub fn init() {
    exec::install::<Hooks>();
}
