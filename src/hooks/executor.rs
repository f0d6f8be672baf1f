//! Plannable statements, from the executor's start to its end.

use super::{Beginning, draw_at, draw_for_commit, key, no_draw_is_kept, not_drawn, run_under};
use crate::counters::{Event, Jit, Kind, Usage};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::exec::{self, Execution, ExecutorHooks, Passes};
use crate::pg::server;
use crate::store::{self, TextOf};
use crate::{nesting, variance};

/// What is gathered of an execution that is looked at.
#[derive(Default)]
pub struct Record {
    key: Key,
    /// Where its entry was when it started.
    place: Option<u32>,
    weight: f64,
    /// When the client's message came that started it.
    at: i64,
    nanoseconds: u64,
    rows: u64,
    usage: Option<Usage>,
    /// Of the run or finish that is going on.
    beginning: Beginning,
}

struct Hooks;

impl ExecutorHooks for Hooks {
    type Record = Record;
    /// The level.
    type Started = i32;
    /// The level.
    type Span = i32;

    #[inline(always)]
    fn start_passes() -> Passes {
        if !nesting::is_certain() {
            return Passes::No;
        }
        if nesting::is_top() {
            return match guc::drawing() {
                Drawing::All => Passes::No,
                Drawing::Nothing if no_draw_is_kept() => Passes::Yes,
                Drawing::Nothing => Passes::No,
                Drawing::Some => Passes::Perhaps,
            };
        }
        if nesting::weight() == 0.0 { Passes::Yes } else { Passes::No }
    }

    #[inline(always)]
    fn start_passes_then(execution: Execution) -> bool {
        no_draw_is_kept() && not_drawn(|| execution.statement())
    }

    #[inline(always)]
    fn run_passes() -> bool {
        nesting::is_certain()
    }

    #[inline(always)]
    fn passing() -> i32 {
        let level = nesting::level();
        if level == 0 {
            run_under(0.0);
        }
        nesting::enter(level);
        level
    }

    #[inline(always)]
    fn passed(level: i32) {
        nesting::leave(level);
    }

    #[inline(always)]
    fn starting(execution: Execution) -> i32 {
        let level = nesting::level_of_statement(draw_for_commit);
        draw_at(level, true, || execution.statement());
        nesting::enter(level);
        level
    }

    #[inline(always)]
    fn started(execution: Execution, level: i32) -> bool {
        nesting::leave(level);
        // without an identifier it is not counted, but what is nested in its runs still has its weight
        nesting::weight() > 0.0
            && guc::tracks(level)
            && (execution.queryid() != 0 || level == 0 && guc::tracks(1))
    }

    #[inline(always)]
    fn opened(execution: Execution, level: i32, record: &mut Record) {
        record.key = key(execution.queryid(), level);
        record.place = store::expect(&record.key);
        record.weight = nesting::weight();
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
            run_under(record.as_ref().map_or(0.0, |r| r.weight));
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

    fn finishing(record: Option<&mut Record>) -> i32 {
        Self::running(record)
    }

    fn finished(level: i32, record: Option<&mut Record>) {
        nesting::leave(level);
        if let Some(record) = record {
            record.add_since_beginning();
        }
    }

    #[inline(always)]
    fn waits_for_end() -> bool {
        variance::is_open()
    }

    #[inline(always)]
    fn ending(execution: Execution, record: Option<&mut Record>) {
        if let Some(record) = record
            && record.key.queryid != 0
        {
            record.store(execution);
        }
        if variance::is_open() && nesting::level() == 0 {
            variance::close();
        }
    }
}

impl Record {
    #[inline(always)]
    fn add_since_beginning(&mut self) {
        self.nanoseconds = self.nanoseconds.saturating_add(self.beginning.elapsed());
        self.beginning.usage.add_since(&mut self.usage);
    }

    #[inline(never)]
    fn store(&self, execution: Execution) {
        let jit = execution.jit();
        let event = self.event(execution, jit.as_ref());
        let place = self.place.filter(|place| store::record_at_once(*place, &self.key, &event));
        let place = place.or_else(|| self.store_slowly(execution));
        if self.weight > 1.0
            && !self.key.toplevel
            && let Some(place) = place
        {
            variance::note(place, &self.key, self.weight, self.nanoseconds);
        }
    }

    #[inline(never)]
    fn store_slowly(&self, execution: Execution) -> Option<u32> {
        let jit = execution.jit();
        let event = self.event(execution, jit.as_ref());
        store::record(&self.key, &event, TextOf::Carried, || execution.statement())
    }

    #[inline(always)]
    fn event<'a>(&'a self, execution: Execution, jit: Option<&'a Jit>) -> Event<'a> {
        Event {
            kind: Kind::Exec,
            weight: self.weight,
            nanoseconds: self.nanoseconds,
            rows: self.rows,
            usage: self.usage.as_ref(),
            jit,
            workers: execution.workers(),
            at: self.at,
            own_draw: self.key.toplevel,
        }
    }
}

pub fn init() {
    exec::install::<Hooks>();
}
