//! The spinlock that guards a slot's counters, one atomic word.
//!
//! For everything that lives in shared memory and is held for a handful of plain reads and writes. Never hold one
//! across a call into the server, an allocation, a log message or a clock. It knows nothing of PostgreSQL (so the
//! pure layer is tested without a server) and stands in `pg/` only because implementing `RawMutex` is unsafe.
//!
//! A waiter first spins, then sleeps ever longer, as the holder may have lost its processor. The bounded form
//! ([`Mutex::try_lock_for`]) gives up after a time; callers count what they skipped because of it. It leaves word of that
//! in the lock: until the holder lets go, nobody else gives it any time. A process that
//! dies while it holds one makes the postmaster re-initialise all shared memory, so no lock outlives its holder.

use crate::primitives::atomic::{AtomicU32, Ordering};
use crate::primitives::{Instant, sleep, spin_loop};
use std::ops::Range;
use std::time::Duration;

#[cfg(loom)]
#[path = "spin/checked.rs"]
mod mutex;
#[cfg(not(loom))]
#[path = "spin/mutex.rs"]
mod mutex;

pub use mutex::Mutex;

/// Asks the processor to have these bytes of a value at hand soon.
#[inline(always)]
pub fn prefetch<T>(value: *const T, bytes: Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for at in (bytes.start & !63..bytes.end.min(size_of::<T>())).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint that changes nothing wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(value.cast::<i8>().wrapping_add(at)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, bytes);
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, for longer than somebody would wait: the holder was stopped.
const STUCK: u32 = 2;
/// Looks at the lock word before the first sleep: some microseconds, many times what a holder needs.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };
const FIRST_SLEEP: Duration = Duration::from_micros(20);
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// One word: free, held or stuck.
pub struct RawSpin(AtomicU32);

impl RawSpin {
    #[inline]
    fn acquire(&self) {
        if !self.try_acquire() {
            self.wait(None);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn try_acquire_for(&self, timeout: Duration) -> bool {
        self.try_acquire() || self.wait(Instant::now().checked_add(timeout))
    }

    /// By whoever holds it.
    #[inline]
    fn release(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    /// Waits until the lock is got, or `until` has passed (`None`: for ever) or had for somebody else.
    #[cold]
    fn wait(&self, until: Option<Instant>) -> bool {
        let (mut pause, mut moved) = (FIRST_SLEEP, false);
        loop {
            for _ in 0..SPINS {
                match self.0.load(Ordering::Relaxed) {
                    FREE if self.try_acquire() => return true,
                    FREE => moved = true,
                    STUCK if until.is_some() => return false,
                    _ => spin_loop(),
                }
            }
            if until.is_some_and(|t| Instant::now() >= t) {
                if moved {
                    return false; // its holders change
                }
                let _ = self.0.compare_exchange(HELD, STUCK, Ordering::Relaxed, Ordering::Relaxed);
                return false;
            }
            sleep(pause);
            pause = (pause * 2).min(LONGEST_SLEEP);
        }
    }
}

#[cfg(all(test, loom))]
mod models;

/// The lock of a holder that was stopped, until the guard goes.
#[cfg(test)]
pub fn held_elsewhere<T>(m: &Mutex<T>) -> impl Drop + use<'_, T> {
    let held = m.lock();
    crate::lock_rules::disown();
    held
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
        let held = held_elsewhere(&m);
        assert!(m.try_lock_for(Duration::from_millis(1)).is_none());
        drop(held);
        assert!(m.try_lock_for(Duration::from_millis(1)).is_some());
    }

    #[test]
    fn after_one_has_given_up_nobody_waits_until_the_holder_lets_go() {
        let m = Mutex::new(());
        let held = held_elsewhere(&m);
        assert!(m.try_lock_for(Duration::from_millis(1)).is_none());
        let long = Duration::from_hours(1000);
        assert!(m.try_lock_for(long).is_none() && m.try_lock_for(long).is_none() && m.try_lock().is_none());
        drop(held);
        drop(m.try_lock().unwrap());
        let _held = held_elsewhere(&m);
        // for the next holder it is as if nothing had been
        assert!(m.try_lock_for(Duration::from_millis(1)).is_none());
    }
}
