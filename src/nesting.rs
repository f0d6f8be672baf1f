//! How deep in other statements the current one is: 0 is a statement from the client.
//!
//! The hooks raise the level before they let the server work and put it back afterwards. An ERROR jumps over the
//! second half. Two things make up for it, so that no hook needs a `sigsetjmp`:
//! - an ERROR that is caught (a PL/pgSQL exception block) is caught by rolling back a subtransaction: the level is
//!   noted when one begins, and put back when it is aborted;
//! - an ERROR that is not caught aborts the transaction and ends the client's message. An abort makes the level
//!   suspect. It may still be right: a procedure may ROLLBACK while its CALL runs on. But the time of the message
//!   (`statement_timestamp()`) changes with the next message and never in the middle of one, so a suspect level left
//!   over from another message is known to be 0.
//!
//! Transaction statements neither have a level (nothing is nested in them) nor change it, as they are the only ones
//! that can fail in a transaction that is aborted already, where no callback would tell.
//!
//! Deferred triggers run at the commit, which is in no hook. What they execute is nested in the commit all the same: a
//! statement at level 0 within a trigger makes the level 1, until the transaction's callback says that they have run.
//! (pg_stat_statements takes it for statements of the client's.) The statements of one commit share one draw.
//!
//! The module also holds what else is known of the surroundings: the weight of the top-level statement that is running,
//! which everything nested inherits, and the utility statement that is being executed, which what EXPLAIN explains is
//! analysed in.

use crate::failures;
use crate::pg::context;
use crate::pg::local::{Local, LocalRef};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::pg::xact::{self, TransactionHooks};
use crate::sampling;

static LEVEL: Local<i32> = Local::new(0);
/// How the transaction will end, as far as that is not simple: [`COMMITTING`] and [`DEFERS`].
static ENDING: Local<u8> = Local::new(0);
/// The level is 1 for the deferred triggers of a commit.
const COMMITTING: u8 = 1;
/// Triggers may have been deferred to the commit.
const DEFERS: u8 = 2;
/// In one byte, as one look at it tells most statements all they need: [`SUSPECT`] and [`WATCHING`].
static STATE: Local<u8> = Local::new(0);
/// The level may be left over from what failed.
const SUSPECT: u8 = 1;
/// Failures are counted.
const WATCHING: u8 = 2;
/// The message in which the level became suspect.
static ABORTED_IN: Local<i64> = Local::new(0);
static WEIGHT: Local<f64> = Local::new(0.0);
static EXECUTING: Local<Option<Executing>> = Local::new(None);
/// Whether there may be one: all that is asked otherwise.
static ANY_EXECUTING: Local<bool> = Local::new(false);
static SUBTRANSACTIONS: LocalRef<Vec<Subtransaction>> = LocalRef::new(Vec::new());

/// A utility statement and the message it is executed in.
#[derive(Clone, Copy)]
pub struct Executing {
    statement: Statement,
    message: i64,
}

/// What was so when a subtransaction began, and will be again when it is aborted.
struct Subtransaction {
    id: u32,
    level: i32,
    executing: Option<Executing>,
}

/// The level of what runs now.
#[inline(always)]
pub fn level() -> i32 {
    let level = LEVEL.get();
    if level != 0 && !is_certain() { checked(level) } else { level }
}

/// The level of a statement that starts now: as [`level`], but never that of the client's statements in a trigger. The
/// statements that a commit executes are under the draw that `draw` makes, at the first. None of them is in the message's
/// own string.
#[inline(always)]
pub fn level_of_statement(statement: &Statement, draw: impl FnOnce() -> f64) -> i32 {
    let level = level();
    let in_commit = level == 0 && !statement.is_messages() && server::trigger_depth() > 0;
    if in_commit { nest_in_commit(draw) } else { level }
}

/// Back at `level` after a utility statement that counts as none, hence did not [`enter`]: what triggers execute in it
/// is nested all the same.
pub fn leave_uncounted(level: i32) {
    ENDING.set(ENDING.get() & !COMMITTING);
    LEVEL.set(level);
}

#[cold]
#[inline(never)]
fn nest_in_commit(draw: impl FnOnce() -> f64) -> i32 {
    enter(0);
    // level 0 again: a block failed before it had executed anything
    if ENDING.get() & COMMITTING == 0 {
        ENDING.set(ENDING.get() | COMMITTING);
        set_weight(draw());
    }
    1
}

/// Whether the level needs no check.
#[inline(always)]
pub fn is_certain() -> bool {
    STATE.get() & SUSPECT == 0
}

/// Whether the level needs no check and no failure is counted, or only those of statements with an identifier.
#[inline(always)]
pub fn is_at_ease(identified: impl FnOnce() -> bool) -> bool {
    let state = STATE.get();
    state == 0 || state == WATCHING && !identified()
}

/// Whether failures are counted from now on.
pub fn set_watching(on: bool) {
    STATE.set(STATE.get() & SUSPECT | if on { WATCHING } else { 0 });
}

#[inline(always)]
fn set_certain() {
    STATE.set(STATE.get() & WATCHING);
}

/// Whether the level is 0, which is certain; that it is not may be left over from what failed.
#[inline(always)]
pub fn is_top() -> bool {
    LEVEL.get() == 0
}

#[cold]
#[inline(never)]
fn checked(level: i32) -> i32 {
    if ABORTED_IN.get() == server::statement_start() {
        return level;
    }
    set_certain();
    LEVEL.set(0);
    0
}

/// What runs from now on is nested in something at `level`, as [`level`] told it.
#[inline(always)]
pub fn enter(level: i32) {
    if level == 0 {
        set_certain();
    }
    LEVEL.set(level + 1);
}

/// [`level`] and [`enter`] in one, where the level [`is_certain`].
#[inline(always)]
pub fn enter_next() -> i32 {
    let level = LEVEL.get();
    LEVEL.set(level + 1);
    level
}

/// The same where the level [`is_top`].
#[inline(always)]
pub fn enter_top() {
    set_certain();
    LEVEL.set(1);
}

/// Back at `level`, as it was before [`enter`].
#[inline(always)]
pub fn leave(level: i32) {
    LEVEL.set(level);
}

/// Weight of the running top-level statement; 0 when it is not looked at.
#[inline(always)]
pub fn weight() -> f64 {
    WEIGHT.get()
}

#[inline(always)]
pub fn set_weight(weight: f64) {
    WEIGHT.set(weight);
}

/// The utility statement is being executed from now on; what was before, for [`set_executing`] afterwards.
pub fn execute(statement: Statement) -> Option<Executing> {
    let before = EXECUTING.get();
    set_executing(Some(Executing { statement, message: server::statement_start() }));
    before
}

pub fn set_executing(executing: Option<Executing>) {
    EXECUTING.set(executing);
    ANY_EXECUTING.set(executing.is_some());
}

/// Whether a utility statement is being executed, which may be one that does not count and hence has no level.
#[inline(always)]
pub fn is_in_utility() -> bool {
    ANY_EXECUTING.get() && EXECUTING.get().is_some_and(|around| around.message == server::statement_start())
}

/// The statement at the place of the utility statement it is analysed in, if it has no place of its own.
#[inline(always)]
pub fn placed(statement: &Statement) -> Option<Statement> {
    if ANY_EXECUTING.get() && statement.has_no_place() { placed_in_executing(statement) } else { None }
}

#[cold]
#[inline(never)]
fn placed_in_executing(statement: &Statement) -> Option<Statement> {
    let around = EXECUTING.get()?;
    if around.message == server::statement_start() {
        return statement.within(&around.statement);
    }
    set_executing(None); // left over from one that failed
    None
}

#[cold]
#[inline(never)]
fn triggers_have_run() {
    if ENDING.replace(0) & COMMITTING != 0 {
        LEVEL.set(0);
    }
}

/// Triggers may have been deferred to the end of the transaction.
#[inline(always)]
pub fn may_defer() {
    sampling::hold();
    ENDING.set(ENDING.get() | DEFERS);
}

/// Whether the transaction may end with statements that are not the client's.
#[inline(always)]
pub fn defers() -> bool {
    ENDING.get() & DEFERS != 0
}

fn settle_failures() {
    if failures::are_noted() {
        failures::settle(None);
    }
}

struct Hooks;

impl TransactionHooks for Hooks {
    #[inline(always)]
    fn committing() {
        if ENDING.get() != 0 {
            triggers_have_run();
        }
    }

    #[cold]
    #[inline(never)]
    fn aborted() {
        Self::committing();
        settle_failures();
        context::caught();
        if LEVEL.get() != 0 {
            STATE.set(STATE.get() | SUSPECT);
            ABORTED_IN.set(server::statement_start());
        }
    }

    fn subtransaction_begun(id: u32) {
        let (level, executing) = (level(), EXECUTING.get());
        SUBTRANSACTIONS.with(|s| {
            if s.try_reserve(1).is_ok() {
                s.push(Subtransaction { id, level, executing });
            }
        });
    }

    fn subtransaction_committed(id: u32) {
        forget(id);
    }

    fn subtransaction_aborted(id: u32) {
        settle_failures();
        context::caught();
        let begun = forget(id);
        set_executing(begun.as_ref().and_then(|s| s.executing));
        if let Some(begun) = begun {
            LEVEL.set(begun.level);
        }
    }
}

/// Takes the subtransaction and all within it off the list.
fn forget(id: u32) -> Option<Subtransaction> {
    SUBTRANSACTIONS.with(|s| {
        let at = s.iter().rposition(|known| known.id == id)?;
        s.truncate(at + 1);
        s.pop()
    })?
}

pub fn init() {
    xact::install::<Hooks>();
}
