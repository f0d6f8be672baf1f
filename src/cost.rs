//! What recording costs, as the hooks themselves measure it: on one in [`EVERY`] recordings of plannable statements, and
//! on as many analyses of client's statements, they time their own work, without the server's in between.
//!
//! Both kinds are measured equally often, so the sum of all measured, divided by the number of recordings measured, is the
//! mean for a recording with what its identifier took. Begun at a random one, so that a session's first statements, which
//! find nothing in the caches, count no more than they are.

use crate::pg::clock::{self, Reading};
use crate::pg::local::Local;
use crate::pg::server;
use crate::store;
use std::sync::atomic::Ordering::Relaxed;

const EVERY: u32 = 1024;

/// Tells which one of [`EVERY`] is measured.
pub struct Turn {
    left: Local<u32>,
    begun: Local<bool>,
}

impl Turn {
    pub const fn new() -> Self {
        Turn { left: Local::new(0), begun: Local::new(false) }
    }

    #[inline(always)]
    pub fn has_come(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        left == 0 && self.comes_now()
    }

    #[cold]
    #[inline(never)]
    fn comes_now(&self) -> bool {
        let left = if self.begun.replace(true) { 0 } else { clock::now().noise() % EVERY };
        self.left.set(left.checked_sub(1).unwrap_or(EVERY - 1));
        left == 0
    }
}

/// The hooks' own work in a measured recording so far.
#[derive(Clone, Copy, Default)]
pub struct Own {
    nanoseconds: u64,
    since: Reading,
}

impl Own {
    pub fn begin(&mut self) {
        self.since = clock::now();
    }

    pub fn end(&mut self) {
        let elapsed = clock::nanoseconds_since(self.since);
        self.nanoseconds += elapsed.saturating_sub(clock::overhead());
    }
}

/// A measured recording is complete. `statements`: what it adds to the statements' total time, ns.
pub fn recorded(own: Own, statements: u64) {
    if let Some(table) = store::table() {
        let cost = &table.state.cost;
        cost.measured.fetch_add(1, Relaxed);
        cost.nanoseconds.fetch_add(own.nanoseconds, Relaxed);
        cost.statements.fetch_add(statements, Relaxed);
    }
}

/// Measures an analysis.
#[cold]
pub fn of_analysis(analyse: impl FnOnce()) {
    let mut own = Own::default();
    own.begin();
    analyse();
    own.end();
    if let Some(table) = store::table() {
        table.state.cost.nanoseconds.fetch_add(own.nanoseconds, Relaxed);
    }
}

/// Mean cost of a recording in ns, or a guess where none was measured yet.
pub fn per_recording() -> f64 {
    const GUESS: f64 = 200.0;
    let told = store::table().map(|table| {
        let cost = &table.state.cost;
        (cost.nanoseconds.load(Relaxed) as f64, cost.measured.load(Relaxed))
    });
    // an analysis may be measured before the first recording
    told.filter(|(ns, measured)| *ns > 0.0 && *measured > 0).map_or(GUESS, |(ns, n)| ns / n as f64)
}

/// So many recordings were done without for the sake of `max_overhead`.
pub fn thinned(recordings: f64) {
    if let Some(table) = store::table()
        && recordings >= 0.5
    {
        table.state.cost.thinned.fetch_add(recordings.round() as u64, Relaxed);
        table.state.cost.thinned_at.store(server::now(), Relaxed);
    }
}
