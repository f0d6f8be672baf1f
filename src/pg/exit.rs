//! The server's end.

use super::local::Local;
use pgrx::pg_sys;
use pgrx::prelude::*;

static AT_EXIT: Local<fn()> = Local::new(|| ());

/// Whether this process is the postmaster: not one of its children, and not a stand-alone backend.
pub fn is_postmaster() -> bool {
    // SAFETY: plain reads of variables.
    unsafe { pg_sys::IsPostmasterEnvironment && !pg_sys::IsUnderPostmaster }
}

/// Has `f` called when this process, the postmaster, ends in good order, with shared memory still there. To be asked
/// anew each time shared memory is laid out.
pub fn at_clean_exit(f: fn()) {
    AT_EXIT.set(f);
    // SAFETY: registers a function with no argument. A forked child drops the list.
    unsafe { pg_sys::on_shmem_exit(Some(exit), pg_sys::Datum::from(0usize)) };
}

/// A code other than 0 is a crash, after which the counters are not to be trusted. After an immediate stop it is 0 too,
/// though processes were killed: whatever one of them was changing is still locked, so `f` must wait for no lock for ever.
#[pg_guard]
unsafe extern "C-unwind" fn exit(code: i32, _arg: pg_sys::Datum) {
    if code == 0 {
        AT_EXIT.get()();
    }
}
