//! The spinlock under the model checker: every order of its steps, with every value that the memory model lets a load
//! see. At most one thread spins at a time: the checker would let two that do hand over to each other for ever.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A number behind the spinlock; the checker fails a test in which two accesses to it are not ordered.
struct Number {
    lock: RawSpin,
    value: UnsafeCell<i32>,
}

// SAFETY: as every access is made with the lock held, which is what is being checked.
unsafe impl Sync for Number {}

impl Number {
    fn new() -> Arc<Self> {
        Arc::new(Number { lock: RawSpin(AtomicU32::new(FREE)), value: UnsafeCell::new(0) })
    }

    /// With the lock held, which is released.
    fn add(&self) {
        // SAFETY: the lock is held, and no reference leaves the closure.
        self.value.with_mut(|value| unsafe { *value += 1 });
        self.lock.release();
    }

    fn get(&self) -> i32 {
        self.lock.acquire();
        let value = self.get_alone();
        self.lock.release();
        value
    }

    /// With the lock held, or when the other threads have ended.
    fn get_alone(&self) -> i32 {
        // SAFETY: likewise.
        self.value.with(|value| unsafe { *value })
    }
}

#[test]
fn a_holder_is_alone_and_sees_what_the_last_one_did() {
    loom::model(|| {
        let n = Number::new();
        let other = {
            let n = n.clone();
            thread::spawn(move || {
                n.lock.acquire();
                n.add();
            })
        };
        n.lock.acquire();
        n.add();
        other.join().unwrap();
        assert_eq!(n.get(), 2);
    });
}

#[test]
fn whoever_tries_gets_the_lock_alone_or_not_at_all() {
    loom::model(|| {
        let n = Number::new();
        let try_to_add = |n: &Number| {
            let got = n.lock.try_acquire();
            if got {
                n.add();
            }
            i32::from(got)
        };
        let others: Vec<_> = (0..2)
            .map(|_| {
                let n = n.clone();
                thread::spawn(move || try_to_add(&n))
            })
            .collect();
        let here = try_to_add(&n);
        let got: i32 = here + others.into_iter().map(|other| other.join().unwrap()).sum::<i32>();
        assert!(got >= 1);
        assert_eq!(n.get(), got);
    });
}

#[test]
fn a_bounded_wait_ends_with_the_lock_or_without() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    static GOT: AtomicBool = AtomicBool::new(false);
    static GAVE_UP: AtomicBool = AtomicBool::new(false);
    loom::model(|| {
        let n = Number::new();
        let holding = {
            let n = n.clone();
            thread::spawn(move || {
                n.lock.acquire();
                sleep(FIRST_SLEEP);
                sleep(FIRST_SLEEP);
                n.add();
            })
        };
        let got = n.lock.try_acquire_for(FIRST_SLEEP);
        if got {
            n.add();
        }
        (if got { &GOT } else { &GAVE_UP }).store(true, Relaxed);
        holding.join().unwrap();
        // without the lock: to the checker what was given up on may stay stuck for ever, as it does not know that a store
        // cannot come between a read-modify-write's load and its store, hence that the holder's comes after both
        assert_eq!(n.get_alone(), 1 + i32::from(got));
    });
    assert!(GOT.load(Relaxed) && GAVE_UP.load(Relaxed));
}
