//! Who may see what.

use super::{raw, server};
use pgrx::pg_sys;

/// Whether the current role may see all users' statements: it has the privileges of `pg_read_all_stats`.
pub fn reads_all_stats() -> bool {
    // SAFETY: a catalogue look-up from an SQL function, which may raise: plain frames.
    unsafe { raw::has_privs_of_role(server::user().into(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) }
}
