//! Planning: nested in nothing, but what it runs (immutable functions that are folded) is nested in it.

use super::{Beginning, PLANNED, PLANNED_IN, draw_at, key};
use crate::counters::{Event, Kind};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::planner::{self, PlannerHooks};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::store::{self, TextOf};
use crate::{nesting, sampling};

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
    fn starting(statement: Statement) -> i32 {
        let level = if guc::tracks_planning() {
            nesting::level_of_statement(sampling::draw)
        } else {
            nesting::level()
        };
        if level == 0 {
            match guc::drawing() {
                Drawing::Nothing => {}
                Drawing::All => nesting::set_weight(1.0),
                Drawing::Some => {
                    draw_at(0, false, || statement);
                    PLANNED.set(statement.queryid);
                    PLANNED_IN.set(server::statement_start());
                }
            }
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
