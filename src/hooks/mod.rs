//! The hooks: what is recorded, when, under which key and weight.
//!
//! - [`parse`] carries a statement's normalised text from its analysis.
//! - [`planner`], [`utility`] and [`executor`] draw for top-level statements, keep the nesting level, and record.
//!
//! Level, user, database and weight are judged when a statement starts, and are its own until it ends.

pub mod executor;
pub mod parse;
pub mod planner;
pub mod utility;

use crate::counters::Failure;
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::clock::{self, Reading};
use crate::pg::context::{self, Id};
use crate::pg::local::Local;
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::pg::usage::Snapshot;
use crate::store::TextOf;
use crate::{failures, nesting, sampling};

/// The statement whose planning the last draw was for, until its execution takes the draw over, in the same message.
static PLANNED: Local<u64> = Local::new(0);
static PLANNED_IN: Local<i64> = Local::new(i64::MIN);

/// The message of the simple protocol in which the last draw was made for a statement's analysis, and what it gave. It
/// is the draw of everything that is executed at the top out of the message's string until the next statement in it is
/// analysed: a rule may make several statements of one. What else is executed there (prepared statements by EXECUTE, and
/// before 17 those of a DO block while utility statements do not count) draws for itself.
static PARSED_IN: Local<i64> = Local::new(i64::MIN);
static PARSED_WEIGHT: Local<f64> = Local::new(0.0);
static PARSED_CLUSTER: Local<u64> = Local::new(0);

/// Draws for a client's statement that is being analysed, to be executed in this message; whether it is looked at.
#[inline(never)]
fn draw_for_parsed() -> bool {
    if guc::drawing() == Drawing::Nothing {
        return false;
    }
    let weight = sampling::draw(|| 0);
    sampling::hold();
    PARSED_WEIGHT.set(weight);
    PARSED_CLUSTER.set(sampling::cluster());
    PARSED_IN.set(server::statement_start());
    weight > 0.0
}

/// What starts now is under the draw that was made for its statement's analysis. The weight.
fn weight_of_parsed() -> f64 {
    sampling::set_cluster(PARSED_CLUSTER.get());
    PARSED_WEIGHT.get()
}

/// The key of a statement that starts now.
#[inline]
fn key(queryid: u64, level: i32) -> Key {
    key_of(server::user(), queryid, level)
}

#[inline]
fn key_of(userid: u32, queryid: u64, level: i32) -> Key {
    Key { queryid, userid, dbid: server::database(), toplevel: level == 0 }
}

/// Weight of what a commit executes: that of the statement which commits, where that was drawn in this message.
#[cold]
fn draw_for_commit() -> f64 {
    if guc::drawing() == Drawing::Some && PARSED_IN.get() == server::statement_start() {
        return weight_of_parsed();
    }
    sampling::draw(|| 0)
}

/// Draws for a statement that starts at `level`, if that is the top; what is nested has the weight of the statement
/// around it. Where a statement `was_planned` it keeps the draw that was made for its planning.
#[inline(always)]
fn draw_at(level: i32, was_planned: bool, statement: impl Fn() -> Statement) {
    if level != 0 {
        return;
    }
    match guc::drawing() {
        Drawing::All if !server::is_parallel_worker() => return nesting::set_weight(1.0),
        Drawing::Some if PARSED_IN.get() == server::statement_start() && statement().is_messages() => {
            PLANNED.set(0);
            return nesting::set_weight(weight_of_parsed());
        }
        _ => {}
    }
    let for_planning = PLANNED.get();
    if for_planning != 0 {
        PLANNED.set(0);
        // a draw of another message is one whose statement failed: what has no identifier if it is not drawn leaves only
        // draws that were won
        let is_kept = was_planned && PLANNED_IN.get() == server::statement_start();
        if is_kept && statement().queryid == for_planning {
            return;
        }
    }
    nesting::set_weight(sampling::draw(|| statement().queryid));
}

/// A top-level start or run that is passed by begins. (Without a weight the draw's number does not matter.)
#[inline(always)]
fn run_undrawn() {
    PLANNED.set(0);
    nesting::set_weight(0.0);
}

/// A top-level run begins, under the draw that its own start made: a draw for planning that no execution took over is
/// void, as the weight it left is gone.
#[inline(always)]
fn run_under(weight: f64, cluster: u64) {
    PLANNED.set(0);
    nesting::set_weight(weight);
    sampling::set_cluster(cluster);
}

/// Whether no draw was made for planning that the execution may have to take over.
#[inline(always)]
fn no_draw_is_kept() -> bool {
    PLANNED.get() == 0
}

/// Where some are drawn: whether the top-level statement that is about to be executed certainly is not, by the draw for
/// its analysis or by one that this makes. If by the latter, nothing else need be asked of the statements that follow, until
/// there is again such a draw, or one for a planning, or triggers may have been deferred.
#[inline(always)]
fn not_drawn(statement: impl FnOnce() -> Statement) -> bool {
    if statement().is_messages() {
        if PARSED_IN.get() == server::statement_start() {
            return PARSED_WEIGHT.get() == 0.0;
        }
    } else if server::trigger_depth() > 0 {
        return false; // nested in a commit
    }
    let skips = !guc::is_bounded() && sampling::skips();
    if skips && !nesting::defers() {
        sampling::release();
    }
    skips
}

/// Whether what runs now is looked at, if only to see whether it is slow. Not in parallel workers.
#[inline(always)]
fn looks() -> bool {
    nesting::weight() > 0.0 || guc::drawing() == Drawing::Timed && !server::is_parallel_worker()
}

/// The weight of an execution that took so long: 1 for a slow one, and else what it was drawn with, if it was.
#[inline(always)]
fn weight_of(drawn: f64, nanoseconds: u64) -> f64 {
    if guc::is_slow(nanoseconds) { 1.0 } else { drawn }
}

/// Whether the failing of a statement is counted.
#[inline(always)]
fn is_watched(queryid: u64, level: i32) -> bool {
    queryid != 0 && guc::drawing() != Drawing::Nothing && guc::tracks(level)
}

/// A message is being raised while a statement is at work. `timed`: its weight and the time so far, if it is looked at.
///
/// A failure has weight 1 where it would be noticed without the statement being drawn, that is, where the statement
/// would have an identifier.
#[cold]
fn note(id: Id, key: &Key, statement: &Statement, text: TextOf, timed: Option<(f64, u64)>) {
    let identified_by_draw = key.toplevel
        && guc::drawing() == Drawing::Some
        && PARSED_IN.get() == server::statement_start()
        && statement.is_messages();
    let (time_weight, nanoseconds) = timed.unwrap_or_default();
    let failure = Failure {
        weight: if identified_by_draw { PARSED_WEIGHT.get() } else { 1.0 },
        time_weight,
        nanoseconds,
        sqlstate: context::sqlstate(),
        at: server::statement_start(),
    };
    failures::note(id, key, failure, text, statement);
}

/// The statement's work has come to its end.
#[inline(always)]
fn worked(id: Id) {
    if failures::are_noted() {
        failures::settle(Some(id));
    }
}

/// The beginning of something that is timed.
#[derive(Clone, Copy, Default)]
struct Beginning {
    clock: Reading,
    usage: Snapshot,
}

impl Beginning {
    #[inline(always)]
    fn now() -> Self {
        Beginning { usage: Snapshot::now(), clock: clock::now() }
    }

    #[inline(always)]
    fn set_now(&mut self) {
        self.usage.set_now();
        self.clock = clock::now();
    }

    #[inline(always)]
    fn elapsed(&self) -> u64 {
        clock::nanoseconds_since(self.clock)
    }
}
