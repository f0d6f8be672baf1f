//! Values behind the spinlock, by lock_api.

use super::{FREE, RawSpin};
use crate::lock_rules::{self, Lock};
use crate::primitives::Instant;
use crate::primitives::atomic::AtomicU32;
use parking_lot::lock_api::{self, RawMutex, RawMutexTimed};
use std::time::Duration;

/// A value behind a [`RawSpin`].
pub type Mutex<T> = lock_api::Mutex<RawSpin, T>;

// SAFETY: `try_acquire` is a compare-and-swap from FREE to HELD with acquire ordering, so only one caller at a time
// gets true until `release` stores FREE with release ordering; `acquire` returns only after such a success.
unsafe impl RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = RawSpin(AtomicU32::new(FREE));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        lock_rules::take(Lock::Spin, || {
            self.acquire();
            true
        });
    }

    #[inline]
    fn try_lock(&self) -> bool {
        lock_rules::take(Lock::Spin, || self.try_acquire())
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.release();
        lock_rules::released(Lock::Spin);
    }
}

// SAFETY: both succeed only through `try_acquire`.
unsafe impl RawMutexTimed for RawSpin {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        lock_rules::take(Lock::Spin, || self.try_acquire_for(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        lock_rules::take(Lock::Spin, || self.try_acquire() || self.wait(Some(timeout)))
    }
}
