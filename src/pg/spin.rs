//! The spinlock that guards a slot's counters, as a [`lock_api`] raw mutex over one atomic word.
//!
//! For everything that lives in shared memory and is held for a handful of plain reads and writes. Never hold one
//! across a call into the server, an allocation, a log message or a clock. It knows nothing of PostgreSQL (so the
//! pure layer is tested without a server) and stands in `pg/` only because implementing `RawMutex` is unsafe.
//!
//! A waiter first spins, then sleeps ever longer, as the holder may have lost its processor. The bounded form
//! ([`Mutex::try_lock_for`]) gives up after a time; callers count what they skipped because of it. A process that
//! dies while it holds one makes the postmaster re-initialise all shared memory, so no lock outlives its holder.

use parking_lot::lock_api::{self, RawMutex, RawMutexTimed};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Asks the processor to have the first bytes of a value at hand soon.
#[inline(always)]
pub fn prefetch<T>(value: &T, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..bytes.min(size_of::<T>())).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: within the value, and a hint that changes nothing wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast::<i8>().add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes);
}

/// A value behind a [`RawSpin`].
pub type Mutex<T> = lock_api::Mutex<RawSpin, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Looks at the lock word before the first sleep: some microseconds, many times what a holder needs.
const SPINS: u32 = 200;
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// One word: free or held.
pub struct RawSpin(AtomicU32);

impl RawSpin {
    /// Waits until the lock is got or `until` has passed (`None`: for ever).
    #[cold]
    fn wait(&self, until: Option<Instant>) -> bool {
        let mut sleep = FIRST_SLEEP;
        loop {
            for _ in 0..SPINS {
                if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                    return true;
                }
                spin_loop();
            }
            if until.is_some_and(|t| Instant::now() >= t) {
                return false;
            }
            std::thread::sleep(sleep);
            sleep = (sleep * 2).min(LONGEST_SLEEP);
        }
    }
}

// SAFETY: `try_lock` is a compare-and-swap from FREE to HELD with acquire ordering, so only one caller at a time
// gets true until `unlock` stores FREE with release ordering; `lock` returns only after such a success.
unsafe impl RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const)] // what the trait asks for
    const INIT: Self = RawSpin(AtomicU32::new(FREE));
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait(None);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

// SAFETY: both succeed only through `try_lock`.
unsafe impl RawMutexTimed for RawSpin {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.try_lock() || self.wait(Instant::now().checked_add(timeout))
    }

    fn try_lock_until(&self, timeout: Instant) -> bool {
        self.try_lock() || self.wait(Some(timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_is_lost_between_threads() {
        let m = Mutex::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..50_000).for_each(|_| *m.lock() += 1));
            }
        });
        assert_eq!(*m.lock(), 200_000);
    }

    #[test]
    fn a_bounded_wait_gives_up_while_held_and_succeeds_after() {
        let m = Mutex::new(());
        let held = m.lock();
        assert!(m.try_lock_for(Duration::from_millis(1)).is_none());
        drop(held);
        assert!(m.try_lock_for(Duration::from_millis(1)).is_some());
    }
}
