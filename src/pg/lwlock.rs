//! The server's lightweight locks, in named tranches (their names are what `pg_stat_activity` shows as wait events).

use super::raw;
use super::spin::prefetch;
use crate::lock_rules::{self, Lock};
use core::ffi::CStr;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The locks of one tranche.
#[derive(Clone, Copy)]
pub struct Tranche {
    locks: *mut pg_sys::LWLockPadded,
    count: usize,
    kind: Lock,
    /// Counts the times that one of them was found held.
    waits: &'static AtomicU64,
}

/// Asks for `count` locks under `name`. From the shared memory request hook.
pub fn request(name: &'static CStr, count: usize) {
    // SAFETY: a constant C string, at the one time the server takes requests.
    unsafe { pg_sys::RequestNamedLWLockTranche(name.as_ptr(), count as i32) };
}

impl Tranche {
    /// The locks that were requested under `name`. From the shared memory start-up hook.
    pub fn get(name: &'static CStr, count: usize, kind: Lock, waits: &'static AtomicU64) -> Self {
        // SAFETY: raises when the tranche was not requested.
        Tranche { locks: unsafe { pg_sys::GetNamedLWLockTranche(name.as_ptr()) }, count, kind, waits }
    }

    /// Calls `f` with lock `n` held shared. `f` must not raise, allocate or take another of these locks.
    pub fn shared<R>(&self, n: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.acquire(n, pg_sys::LWLockMode::LW_SHARED);
        f()
    }

    /// Calls `f` with lock `n` held exclusively, under the same conditions.
    pub fn exclusive<R>(&self, n: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.acquire(n, pg_sys::LWLockMode::LW_EXCLUSIVE);
        f()
    }

    /// Has the processor fetch lock `n`.
    pub fn prefetch(&self, n: usize) {
        prefetch(self.locks.wrapping_add(n % self.count), 0..1);
    }

    fn acquire(&self, n: usize, mode: pg_sys::LWLockMode::Type) -> Held {
        // SAFETY: within the tranche, which lies in shared memory for the life of the server.
        let lock = unsafe { &raw mut (*self.locks.add(n % self.count)).lock };
        lock_rules::take(self.kind, || {
            // SAFETY: a lock of the tranche; see `raw` for why its acquisition does not raise.
            unsafe {
                if !raw::LWLockConditionalAcquire(lock, mode) {
                    self.waits.fetch_add(1, Relaxed);
                    raw::LWLockAcquire(lock, mode);
                }
            }
            true
        });
        Held { lock, kind: self.kind }
    }
}

/// A lock that is held until this goes, a panic included.
struct Held {
    lock: *mut pg_sys::LWLock,
    kind: Lock,
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: acquired when this was made, by this process.
        unsafe { raw::LWLockRelease(self.lock) };
        lock_rules::released(self.kind);
    }
}
