//! pgss_rs: statement statistics for PostgreSQL.
//!
//! What a statement did is added to its entry in shared memory when it ends. `README.md` is the user's page,
//! `docs/architecture.md` the carrier-on's. Three layers, each using only those below it:
//!
//! - glue: [`hooks`] decide what is recorded, [`nesting`] keeps the level, [`sampling`] draws, [`store`] finds the
//!   entry, [`failures`] tells what failed, [`stats_fn`] and [`compat`] are the SQL functions, [`taken`] keeps what they
//!   reset until the commit, [`persist`] saves and restores, [`guc`] the settings;
//! - [`pg`]: everything unsafe and everything that differs between server majors;
//! - the pure layer, which knows no PostgreSQL: [`table`], [`textpool`], [`counters`], [`draw`], [`variance`], [`key`],
//!   [`carried`], [`normalize`], [`columns`], [`snapshot`], [`ticks`], [`stripes`],
//!   [`histogram`], [`memo`], [`budget`], [`secrets`], [`primitives`], [`lock_rules`].
//!
//! # Locks
//!
//! - A slot's spinlock guards its body: key, counters, text reference. Held for plain reads and writes only.
//! - A partition's LWLock guards which slots its buckets lead to. While it is held: no error, no allocation, no hook.
//! - The text LWLock guards the free list of text blocks; likewise.
//! - Order: partition lock, then spinlock. Never two of a kind, never the text lock with another.
//! - Everything else shared is atomic and right in any order; a reader takes one spinlock at a time and no LWLock.
//! - A build with debug assertions checks all of this ([`lock_rules`]).
//!
//! # Errors
//!
//! Hooks never raise, never unwind, and call on whatever happens to us. An ERROR of the server's jumps over our
//! frames, so no hook holds anything across the call: no lock, no borrow, nothing to drop. What the jump leaves
//! behind, [`nesting`] and the executions' memory callbacks put right. SQL functions raise with SQLSTATE and HINT.

pub mod budget;
pub mod carried;
pub mod columns;
pub mod counters;
pub mod draw;
pub mod histogram;
pub mod key;
pub mod lock_rules;
pub mod memo;
pub mod normalize;
pub mod primitives;
pub mod secrets;
pub mod snapshot;
pub mod stripes;
pub mod table;
pub mod textpool;
pub mod ticks;
pub mod variance;

// not once more inside a server
#[cfg(all(test, not(loom), not(feature = "server")))]
mod simulation;

#[allow(unsafe_code)]
pub mod pg;

#[cfg(feature = "server")]
mod compat;
#[cfg(feature = "server")]
mod cost;
#[cfg(feature = "server")]
mod failures;
#[cfg(feature = "server")]
mod guc;
#[cfg(feature = "server")]
mod hooks;
#[cfg(feature = "server")]
mod nesting;
#[cfg(feature = "server")]
mod persist;
#[cfg(feature = "server")]
mod sampling;
#[cfg(feature = "server")]
mod stats_fn;
#[cfg(feature = "server")]
mod store;
#[cfg(feature = "server")]
mod taken;

#[cfg(all(test, not(loom), not(feature = "server")))]
#[path = "../pg_test/fuzz/mod.rs"]
mod fuzz;

#[cfg(feature = "pg_test")]
#[path = "../pg_test/mod.rs"]
mod pg_test;

#[cfg(feature = "server")]
mod module {
    use pgrx::prelude::*;

    ::pgrx::pg_module_magic!(name, version);

    extension_sql_file!("../sql/pgss_rs.sql", name = "pgss_rs");

    /// Called by the server when it loads the library. Unless it is being preloaded there is no shared memory to be
    /// had, so nothing is hooked and no setting defined; the functions then say what is missing.
    #[pg_guard]
    extern "C-unwind" fn _PG_init() {
        if !crate::pg::server::is_preloading() {
            return;
        }
        crate::pg::clock::init();
        crate::guc::init();
        crate::memo::init();
        crate::store::init();
        crate::persist::init();
        crate::nesting::init();
        crate::hooks::parse::init();
        crate::hooks::planner::init();
        crate::hooks::utility::init();
        crate::hooks::executor::init();
    }
}
