//! What the locks, the table and its stripes are built on: the standard library's atomics, pause and clock.
//!
//! Under `--cfg loom` (`make loom`) they are the model checker's, which runs a test in every order of steps that the
//! memory model allows, and whose clock moves only by sleeping.

#[cfg(not(loom))]
mod chosen {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic;
    pub use std::thread::sleep;
    pub use std::time::Instant;
}

#[cfg(loom)]
mod chosen {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    loom::lazy_static! {
        /// Nanoseconds slept by all threads of the present execution.
        static ref SLEPT: AtomicU64 = AtomicU64::new(0);
    }

    pub fn sleep(time: Duration) {
        SLEPT.fetch_add(time.as_nanos() as u64, Relaxed);
        loom::thread::yield_now();
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Instant(Duration);

    impl Instant {
        pub fn now() -> Self {
            Instant(Duration::from_nanos(SLEPT.load(Relaxed)))
        }

        pub fn checked_add(self, time: Duration) -> Option<Self> {
            self.0.checked_add(time).map(Instant)
        }
    }
}

pub use chosen::*;
