//! Planning: nested in nothing, but what it runs (immutable functions that are folded) is nested in it.

use super::{
    Beginning, PLANNED, PLANNED_IN, draw_at, draw_for_commit, is_watched, key, key_of, note, worked,
};
use crate::counters::{Event, Kind};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::context::{Id, Watched};
use crate::pg::planner::{self, Passes, PlannerHooks, Planning};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::store::{self, TextOf};
use crate::variance::Shared;
use crate::{nesting, sampling};

struct Planner;

#[derive(Clone, Copy)]
pub struct Span {
    key: Key,
    weight: f64,
    beginning: Beginning,
}

/// A statement that is being planned.
pub struct Planned<'a> {
    planning: Planning<'a>,
    level: i32,
    /// Functions that are folded may run as other users.
    userid: u32,
}

impl Watched for Planned<'_> {
    #[cold]
    fn raised(&self, id: Id) {
        let statement = self.planning.statement();
        if is_watched(statement.queryid, self.level) {
            let key = key_of(self.userid, statement.queryid, self.level);
            note(id, &key, &statement, TextOf::Carried, None);
        }
    }

    #[inline(always)]
    fn done(id: Id) {
        worked(id);
    }
}

/// The level of what is planned, which has this weight if it is the client's; it is entered.
#[inline(always)]
fn enter_with(weight: f64) -> i32 {
    let level = nesting::enter_next();
    if level == 0 {
        nesting::set_weight(weight);
    }
    level
}

impl PlannerHooks for Planner {
    type Span = Span;
    type Watch<'a> = Planned<'a>;

    #[inline(always)]
    fn passes() -> Passes {
        let certain = nesting::is_certain();
        match guc::drawing() {
            Drawing::Nothing if certain => Passes::Yes(enter_with(0.0)),
            // where triggers may be deferred, it may be the commit's
            Drawing::All if certain && !guc::tracks_planning() && !nesting::defers() => {
                Passes::Watched(enter_with(1.0))
            }
            _ => Passes::No,
        }
    }

    fn starting(statement: Statement) -> i32 {
        let level = nesting::level_of_statement(&statement, draw_for_commit);
        draw_at(level, false, || statement);
        if level == 0 && matches!(guc::drawing(), Drawing::Some | Drawing::Timed) {
            sampling::hold();
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
    fn watch(planning: Planning<'_>, level: i32) -> Planned<'_> {
        Planned { planning, level, userid: server::user() }
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
            shared: Shared::NOTHING,
        };
        store::record(&key, &event, TextOf::Carried, || statement);
    }
}

pub fn init() {
    planner::install::<Planner>();
}
