//! Utility statements, except EXECUTE, PREPARE and, before 17 without `squash_lists`, DEALLOCATE. What one executes is nested
//! in it.
//!
//! Before 17 that is so only while `track_utility` is on, as it is with pg_stat_statements: with it off, the statements
//! of a DO block at the top are top-level ones themselves.

use super::{Beginning, draw_at, draw_for_commit, is_watched, key, looks, note, weight_of, worked};
use crate::counters::{Event, Kind};
use crate::key::Key;
use crate::nesting::{self, Executing};
use crate::normalize::Value;
use crate::pg::context::{Id, Watched};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::pg::utility::{self, Identity, Utility, UtilityHooks};
use crate::store::{self, TextOf};
use crate::{guc, sampling};

struct Hooks;

#[derive(Clone, Copy)]
pub struct Recorded {
    key: Key,
    value: Option<Value>,
    weight: f64,
    /// Number of the draw.
    cluster: u64,
    at: i64,
    beginning: Beginning,
}

#[derive(Clone, Copy)]
pub struct Span {
    level: i32,
    nests: bool,
    recorded: Option<Recorded>,
    before: Option<Executing>,
}

fn text_without(value: Option<Value>) -> TextOf {
    value.map_or(TextOf::Utility, TextOf::UtilityWithout)
}

/// A utility statement while it is executed, under the user who said it.
pub struct Watch {
    statement: Statement,
    key: Key,
    value: Option<Value>,
    timed: Option<(f64, Beginning)>,
}

impl Watched for Watch {
    #[cold]
    fn raised(&self, id: Id) {
        let timed = self.timed.map(|(weight, beginning)| {
            let nanoseconds = beginning.elapsed();
            (weight_of(weight, nanoseconds), nanoseconds)
        });
        note(id, &self.key, &self.statement, text_without(self.value), timed);
    }

    #[inline(always)]
    fn done(id: Id) {
        worked(id);
    }
}

impl UtilityHooks for Hooks {
    type Span = Span;
    type Watch = Watch;

    #[inline(always)]
    fn squashes() -> bool {
        guc::squashes_lists()
    }

    #[inline]
    fn starting(utility: Utility, identify: impl FnOnce() -> Identity) -> Span {
        let level = nesting::level_of_statement(&utility.statement, draw_for_commit);
        if utility.transaction {
            sampling::hold()
        } else {
            nesting::may_defer()
        }
        let counts = server::MAJOR >= 17 || guc::tracks_utility();
        if counts {
            draw_at(level, false, || utility.statement);
        }
        let weight = nesting::weight();
        let looks = looks() && guc::tracks_utility() && guc::tracks(level);
        let Identity { queryid, value } =
            if looks { identify() } else { Identity { queryid: 0, value: None } };
        let before = nesting::execute(utility.statement.with_queryid(queryid));
        let nests = counts && !utility.transaction;
        if nests {
            nesting::enter(level);
        }
        let recorded = (queryid != 0).then(|| Recorded {
            key: key(queryid, level),
            value,
            weight,
            cluster: sampling::cluster(),
            at: server::statement_start(),
            beginning: Beginning::now(),
        });
        Span { level, nests, recorded, before }
    }

    #[inline]
    fn watched(utility: Utility, span: &Span, identify: impl FnOnce() -> Identity) -> Option<Watch> {
        let (key, value) = match &span.recorded {
            Some(recorded) => (recorded.key, recorded.value),
            None if is_watched(utility.statement.queryid, span.level) && guc::tracks_utility() => {
                (key(utility.statement.queryid, span.level), identify().value)
            }
            None => return None,
        };
        let timed = span.recorded.map(|r| (r.weight, r.beginning));
        Some(Watch { statement: utility.statement.with_queryid(key.queryid), key, value, timed })
    }

    #[inline]
    fn ended(utility: Utility, span: Span, rows: u64) {
        nesting::set_executing(span.before);
        if span.nests {
            nesting::leave(span.level);
        } else if !utility.transaction {
            nesting::leave_uncounted(span.level);
        }
        if let Some(recorded) = span.recorded {
            recorded.store(utility, rows);
        }
    }
}

impl Recorded {
    #[inline(never)]
    fn store(mut self, utility: Utility, rows: u64) {
        let nanoseconds = self.beginning.elapsed();
        let weight = weight_of(self.weight, nanoseconds);
        if weight == 0.0 {
            return;
        }
        if self.key.toplevel {
            sampling::took(weight, nanoseconds);
        }
        let mut usage = None;
        self.beginning.usage.add_since(&mut usage);
        let mut text = text_without(self.value);
        if utility.sets && self.key.userid != server::user() {
            // as pg_stat_statements: SET ROLE is charged to the role it sets, RESET ROLE to the one it returns to, and the
            // role's name, which is all there is in them, stays
            self.key.userid = server::user();
            text = TextOf::Written;
        }
        let event = Event {
            kind: Kind::Exec,
            weight,
            nanoseconds,
            rows,
            usage: usage.as_ref(),
            jit: None,
            workers: [0; 2],
            at: self.at,
            shared: sampling::shared(self.cluster, self.weight, &self.key, weight, nanoseconds),
        };
        let statement = || utility.statement.with_queryid(self.key.queryid);
        store::record(&self.key, &event, text, statement);
    }
}

pub fn init() {
    utility::install::<Hooks>();
}
