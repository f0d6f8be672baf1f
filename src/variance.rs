//! Squares of what nested statements add up to within one draw.
//!
//! A draw decides over a top-level statement and everything nested in it. For the variance of an entry's totals, what
//! one draw added to the entry counts as one: it is squared once, at the end of the top-level statement, not per
//! execution. (Cluster sampling: the estimated variance of a Horvitz-Thompson total is the sum of w(w-1)Y^2 over
//! drawn clusters with totals Y.) At weight 1 there is nothing to do.

use crate::key::Key;
use crate::pg::local::{Local, LocalRef};
use crate::store;

struct Cluster {
    slot: u32,
    key: Key,
    weight: f64,
    calls: f64,
    ms: f64,
}

/// A bound on memory: more entries than this within one top-level statement are squared in portions, which makes their
/// error a little too small. So are those of a portal that is fetched in portions with other drawn statements between.
const MOST: usize = 1024;

static OPEN: LocalRef<Vec<Cluster>> = LocalRef::new(Vec::new());
static ANY: Local<bool> = Local::new(false);

/// Notes one nested execution with a weight above 1.
#[cold]
pub fn note(slot: u32, key: &Key, weight: f64, nanoseconds: u64) {
    let ms = nanoseconds as f64 * 1e-6;
    ANY.set(true);
    let full = OPEN.with(|open| {
        if let Some(c) = open.iter_mut().rev().find(|c| c.slot == slot && c.weight == weight && c.key == *key)
        {
            c.calls += 1.0;
            c.ms += ms;
        } else if open.try_reserve(1).is_ok() {
            open.push(Cluster { slot, key: *key, weight, calls: 1.0, ms });
        }
        open.len() >= MOST
    });
    if full == Some(true) {
        close();
    }
}

/// Whether [`close`] has anything to do.
#[inline(always)]
pub fn is_open() -> bool {
    ANY.get()
}

/// The top-level statement is over.
#[cold]
pub fn close() {
    ANY.set(false);
    OPEN.with(|open| {
        for c in open.drain(..) {
            if let Some(table) = store::table() {
                let _ =
                    table.settle(c.slot, &c.key, |counters| counters.add_variance(c.weight, c.calls, c.ms));
            }
        }
    });
}
