//! Executions that fail: noted when a message is raised in them, counted when it turns out to have been an ERROR that
//! ended them.
//!
//! While a hook lets the server work on a statement with an identifier, it waits on the server's stack of error contexts
//! ([`crate::pg::context`]). What is noted there is settled when a transaction or subtransaction is aborted, or when a hook
//! further out returns: whoever has returned did not fail, whoever no longer waits did. Nothing of it costs a statement
//! that raises nothing more than putting the context there.

use crate::counters::Failure;
use crate::key::Key;
use crate::lock_rules;
use crate::pg::context::{self, Id};
use crate::pg::local::{Local, LocalRef};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::store::{self, TextOf};

/// Statements nested deeper than this when one error ends them all are not counted: a bound on memory.
const MOST: usize = 1024;
/// Room for more is given back when it is no longer needed.
const FEW: usize = 64;

struct Noted {
    context: Id,
    key: Key,
    failure: Failure,
    /// Of a statement that may have no entry yet: its source will be gone.
    text: Option<Vec<u8>>,
}

static NOTED: LocalRef<Vec<Noted>> = LocalRef::new(Vec::new());
static ANY: Local<bool> = Local::new(false);

/// Whether [`settle`] has anything to do.
#[inline(always)]
pub fn are_noted() -> bool {
    ANY.get()
}

/// A message with this failure's SQLSTATE is being raised while the statement is at work.
#[cold]
pub fn note(context: Id, key: &Key, failure: Failure, text: TextOf, statement: &Statement) {
    lock_rules::raising();
    if !failure.is_error() || server::is_parallel_worker() {
        return;
    }
    let text = store::text_if_new(key, text, statement);
    let kept = NOTED.with(|noted| {
        noted.retain(|n| n.context != context);
        let room = noted.len() < MOST && noted.try_reserve(1).is_ok();
        if room {
            noted.push(Noted { context, key: *key, failure, text });
        }
        room
    });
    ANY.set(true);
    if kept != Some(true)
        && let Some(table) = store::table()
    {
        table.skip();
    }
}

/// Counts the failures of what no longer waits, after an ERROR was caught or `returned` came back all the same.
///
/// Takes no memory: the ERROR may have been for want of it.
#[cold]
pub fn settle(returned: Option<Id>) {
    let mut waiting = 0;
    while let Some(n) = NOTED.with(|noted| take_next(noted, &mut waiting, returned)).flatten() {
        store::record_failure(&n.key, &n.failure, n.text.as_deref());
    }
    ANY.set(waiting > 0);
}

/// The next one that failed. Those before `waiting` still wait, and what has returned is dropped.
fn take_next(noted: &mut Vec<Noted>, waiting: &mut usize, returned: Option<Id>) -> Option<Noted> {
    while let Some(n) = noted.get(*waiting) {
        if Some(n.context) == returned {
            noted.swap_remove(*waiting);
        } else if context::is_waiting(n.context) {
            *waiting += 1;
        } else {
            return Some(noted.swap_remove(*waiting));
        }
    }
    if noted.is_empty() && noted.capacity() > FEW {
        *noted = Vec::new();
    }
    None
}
