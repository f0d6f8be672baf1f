//! What a transaction has taken out of the table to show it (`pgss_rs_stats_and_reset`), kept until it is certain that it
//! was not in vain: an error, a cancelled statement or a ROLLBACK gives it back, of a subtransaction too.
//!
//! Only backends that call that function know of any of this.

use crate::key::Key;
use crate::persist;
use crate::pg::local::LocalRef;
use crate::pg::server;
use crate::pg::xact::{self, TransactionEnd};
use crate::store;
use crate::table::Body;
use std::collections::HashMap;

/// What was taken in one subtransaction, or in one that was committed into it.
struct Level {
    subtransaction: u32,
    /// The last full reset before it: what was taken before another is given back to nobody.
    stats_reset: i64,
    entries: HashMap<Key, Body>,
}

static TAKEN: LocalRef<Vec<Level>> = LocalRef::new(Vec::new());

/// Makes room for one more entry; whether there is memory for it.
pub fn reserve() -> bool {
    xact::watch::<Ends>();
    let subtransaction = server::subtransaction();
    let Some(stats_reset) = store::table().map(|table| table.stats_reset()) else { return false };
    let reserved = TAKEN.with(|levels| {
        let there =
            levels.last().is_some_and(|l| (l.subtransaction, l.stats_reset) == (subtransaction, stats_reset));
        if !there {
            levels.try_reserve(1).ok()?;
            levels.push(Level { subtransaction, stats_reset, entries: HashMap::new() });
        }
        levels.last_mut()?.entries.try_reserve(1).ok()
    });
    reserved.flatten().is_some()
}

/// Keeps what was taken of an entry, in the room that was made for it.
pub fn keep(taken: &Body) {
    TAKEN.with(|levels| {
        let Some(level) = levels.last_mut() else { return };
        let kept = level.entries.entry(taken.key);
        kept.and_modify(|before| before.merge(&taken.counters, taken.touched)).or_insert(*taken);
    });
}

fn give_back(level: &Level) {
    if let Some(table) = store::table()
        && table.stats_reset() == level.stats_reset
    {
        level.entries.values().for_each(|taken| table.give_back(taken));
    }
}

struct Ends;

impl TransactionEnd for Ends {
    fn committed() {
        let any = TAKEN.with(|levels| levels.drain(..).any(|level| !level.entries.is_empty()));
        if any == Some(true) {
            // after a crash it would bring back what was shown already
            persist::forget();
        }
    }

    fn aborted() {
        TAKEN.with(|levels| levels.drain(..).for_each(|level| give_back(&level)));
    }

    fn subtransaction_committed(id: u32, parent: u32) {
        TAKEN.with(|levels| {
            levels.iter_mut().filter(|l| l.subtransaction == id).for_each(|l| l.subtransaction = parent);
        });
    }

    fn subtransaction_aborted(id: u32) {
        TAKEN.with(|levels| {
            levels.retain(|level| {
                let stays = level.subtransaction != id;
                if !stays {
                    give_back(level);
                }
                stays
            });
        });
    }
}
