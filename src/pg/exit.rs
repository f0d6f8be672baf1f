//! The server's end.

use super::local::Local;
use pgrx::pg_sys;
use pgrx::prelude::*;

static AT_EXIT: Local<fn()> = Local::new(|| ());

/// Has `f` called when this process, the postmaster or a stand-alone backend, ends in good order, with shared memory
/// still there. To be asked anew each time shared memory is laid out.
pub fn at_clean_exit(f: fn()) {
    // SAFETY: plain read of a variable; registers a function with no argument. A forked child drops the list.
    unsafe {
        if !pg_sys::IsUnderPostmaster {
            AT_EXIT.set(f);
            pg_sys::on_shmem_exit(Some(exit), pg_sys::Datum::from(0usize));
        }
    }
}

/// A code other than 0 is a crash, after which the counters are not to be trusted.
#[pg_guard]
unsafe extern "C-unwind" fn exit(code: i32, _arg: pg_sys::Datum) {
    if code == 0 {
        AT_EXIT.get()();
    }
}
