//! The only folder that talks to the server, holds unsafe code and knows server majors apart.
//!
//! What it offers upwards is safe: hooks are installed by handing in a type whose plain functions are called before
//! and after the server's own work ([`exec`], [`utility`], [`planner`], [`parse`]); shared memory and locks come as
//! references and closures. Nothing here decides what is recorded.
//!
//! Two ways of calling the server are used, never mixed. In code for the start, pgrx's guarded `pg_sys` functions. In hooks,
//! SQL functions and the background worker the unguarded ones of [`raw`]: there, nothing that may be refused is asked of
//! Rust's allocator but by `try_reserve`; a refusal would end the process, and the server with it.

#[cfg(all(debug_assertions, not(loom)))]
mod allocator;
#[cfg(all(test, not(loom)))]
mod audit;
#[cfg(feature = "server")]
pub mod catalog;
#[cfg(feature = "server")]
pub mod clock;
#[cfg(feature = "server")]
pub mod context;
#[cfg(feature = "server")]
pub mod exec;
#[cfg(feature = "server")]
pub mod exit;
#[cfg(feature = "server")]
pub mod gucs;
#[cfg(feature = "server")]
pub mod lists;
#[cfg(feature = "server")]
pub mod local;
#[cfg(feature = "server")]
pub mod lwlock;
#[cfg(feature = "server")]
pub mod message;
#[cfg(feature = "server")]
pub mod palloced;
#[cfg(feature = "server")]
pub mod parse;
#[cfg(feature = "server")]
pub mod planner;
#[cfg(feature = "server")]
pub mod privs;
#[cfg(feature = "server")]
pub mod raw;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod shmem;
#[cfg(feature = "server")]
pub mod spi;
pub mod spin;
#[cfg(feature = "server")]
pub mod srf;
#[cfg(feature = "server")]
pub mod statement;
#[cfg(feature = "server")]
mod tuple;
#[cfg(feature = "server")]
pub mod usage;
#[cfg(feature = "server")]
pub mod utility;
#[cfg(feature = "server")]
pub mod values;
#[cfg(feature = "server")]
pub mod worker;
#[cfg(feature = "server")]
pub mod xact;
