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
//! The module also holds the weight of the top-level statement that is running, which everything nested inherits.

use crate::pg::local::{Local, LocalRef};
use crate::pg::server;
use crate::pg::xact::{self, TransactionHooks};

static LEVEL: Local<i32> = Local::new(0);
static SUSPECT: Local<bool> = Local::new(false);
/// The message in which the level became suspect.
static ABORTED_IN: Local<i64> = Local::new(0);
static WEIGHT: Local<f64> = Local::new(0.0);
static SUBTRANSACTIONS: LocalRef<Vec<(u32, i32)>> = LocalRef::new(Vec::new());

/// The level of what runs now.
#[inline(always)]
pub fn level() -> i32 {
    let level = LEVEL.get();
    if level != 0 && SUSPECT.get() { checked(level) } else { level }
}

/// Whether the level needs no check.
#[inline(always)]
pub fn is_certain() -> bool {
    !SUSPECT.get()
}

/// Whether the level is 0, where it [`is_certain`].
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
    SUSPECT.set(false);
    LEVEL.set(0);
    0
}

/// What runs from now on is nested in something at `level`, as [`level`] told it.
#[inline(always)]
pub fn enter(level: i32) {
    if level == 0 {
        SUSPECT.set(false);
    }
    LEVEL.set(level + 1);
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

struct Hooks;

impl TransactionHooks for Hooks {
    fn aborted() {
        if LEVEL.get() != 0 {
            SUSPECT.set(true);
            ABORTED_IN.set(server::statement_start());
        }
    }

    fn subtransaction_begun(id: u32) {
        let level = level();
        SUBTRANSACTIONS.with(|s| {
            if s.try_reserve(1).is_ok() {
                s.push((id, level));
            }
        });
    }

    fn subtransaction_committed(id: u32) {
        forget(id);
    }

    fn subtransaction_aborted(id: u32) {
        if let Some(level) = forget(id) {
            LEVEL.set(level);
        }
    }
}

/// Takes the subtransaction and all within it off the list; the level at its begin.
fn forget(id: u32) -> Option<i32> {
    SUBTRANSACTIONS.with(|s| {
        let at = s.iter().rposition(|(known, _)| *known == id)?;
        let level = s[at].1;
        s.truncate(at);
        Some(level)
    })?
}

pub fn init() {
    xact::install::<Hooks>();
}
