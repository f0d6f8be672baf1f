//! Planning: nested in nothing, but what it runs (immutable functions that are folded) is nested in it.

use super::{Beginning, PLANNED, PLANNED_IN, draw_at, draw_for_commit, key};
use crate::counters::{Event, Kind};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::nesting;
use crate::pg::planner::{self, PlannerHooks};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::store::{self, TextOf};

struct Planner;

#[derive(Clone, Copy)]
pub struct Span {
    key: Key,
    weight: f64,
    beginning: Beginning,
}

impl PlannerHooks for Planner {
    type Span = Span;

    #[inline(always)]
    fn passing() -> Option<i32> {
        let drawing = guc::drawing();
        if drawing == Drawing::Some || guc::tracks_planning() || !nesting::is_certain() {
            return None;
        }
        let level = nesting::level();
        if level == 0 {
            nesting::set_weight(f64::from(u8::from(drawing == Drawing::All)));
        }
        nesting::enter(level);
        Some(level)
    }

    fn starting(statement: Statement) -> i32 {
        let level = nesting::level_of_statement(draw_for_commit);
        draw_at(level, false, || statement);
        if level == 0 && guc::drawing() == Drawing::Some {
            PLANNED.set(statement.queryid);
            PLANNED_IN.set(server::statement_start());
        }
        nesting::enter(level);
        level
    }

    #[inline(always)]
    fn ended(level: i32) {
        nesting::leave(level);
    }

    #[inline(always)]
    fn records(level: i32, queryid: u64) -> bool {
        guc::tracks_planning() && guc::tracks(level) && nesting::weight() > 0.0 && queryid != 0
    }

    fn recording(statement: Statement, level: i32) -> Span {
        Span { key: key(statement.queryid, level), weight: nesting::weight(), beginning: Beginning::now() }
    }

    fn recorded(statement: Statement, Span { key, weight, beginning }: Span) {
        let nanoseconds = beginning.elapsed();
        let mut usage = None;
        beginning.usage.add_since(&mut usage);
        let event = Event {
            kind: Kind::Plan,
            weight,
            nanoseconds,
            rows: 0,
            usage: usage.as_ref(),
            jit: None,
            workers: [0; 2],
            at: server::statement_start(),
            own_draw: true,
        };
        store::record(&key, &event, TextOf::Carried, || statement);
    }
}

pub fn init() {
    planner::install::<Planner>();
}
