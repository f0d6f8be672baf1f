//! Executions that fail: noted when a message is raised in them, counted when it turns out to have been an ERROR that
//! ended them.
//!
//! While a hook lets the server work on a statement with an identifier, it waits on the server's stack of error contexts
//! ([`crate::pg::context`]). What is noted there is settled when a transaction or subtransaction is aborted, or when a hook
//! further out returns: whoever has returned did not fail, whoever no longer waits did. Nothing of it costs a statement
//! that raises nothing more than putting the context there.

use crate::counters::Failure;
use crate::key::Key;
use crate::pg::context::{self, Id};
use crate::pg::local::{Local, LocalRef};
use crate::pg::server;
use crate::pg::statement::Statement;
use crate::store::{self, TextOf};

/// Statements nested deeper than this when one error ends them all are not counted: a bound on memory.
const MOST: usize = 1024;

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

/// Counts the failures of what no longer waits, after an ERROR was caught or `returned` came back all the same. What
/// still waits stays where it is, as there may be no memory to put it anywhere else.
#[cold]
pub fn settle(returned: Option<Id>) {
    let mut noted = NOTED.with(core::mem::take).unwrap_or_default();
    noted.retain(|n| {
        if Some(n.context) == returned {
            return false;
        }
        let waits = context::is_waiting(n.context);
        if !waits {
            store::record_failure(&n.key, &n.failure, n.text.as_deref());
        }
        waits
    });
    ANY.set(!noted.is_empty());
    NOTED.with(|place| *place = noted);
}
