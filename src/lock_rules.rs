//! The rules for our locks, checked in builds with debug assertions: by the pure layer's tests, by those inside a server,
//! and by whatever else runs on a server with such a build. A release build has nothing of it.
//!
//! Each thread keeps a record of the locks of ours that it holds; in a server that is the process. It is a breach to
//! - take a spinlock while another, or the text lock, is held;
//! - take a partition's lock or the text lock while any lock of ours is held;
//! - allocate or free memory of Rust's while any is held. A panic allocates, so it is found there;
//! - raise a message, or end a transaction, while any is held. An ERROR of the server's that jumped over the release of a
//!   lock is found so at the latest.
//!
//! A breach ends the process with a line and a back trace on standard error: a panic would be caught where the hooks
//! guard against bugs of ours, and be counted as skipped. What the server's own functions do under a lock is not seen;
//! `docs/unsafe.md` lists those that run there.

/// The locks of ours, by the place that each has in the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// Of a slot, a stripe, or what was evicted.
    Spin,
    /// Of a part of the index.
    Partition,
    /// Of the text pool's free list.
    Texts,
}

/// Takes a lock by `get`, which tells whether it was got.
#[inline(always)]
pub fn take(lock: Lock, get: impl FnOnce() -> bool) -> bool {
    record::taking(lock);
    let got = get();
    if got {
        record::took(lock);
    }
    got
}

#[cfg(test)]
pub fn holding<R>(lock: Lock, f: impl FnOnce() -> R) -> R {
    take(lock, || true);
    let result = f();
    released(lock);
    result
}

pub use record::*;

#[cfg(all(debug_assertions, not(loom)))]
mod record {
    use super::Lock;
    use std::backtrace::Backtrace;
    use std::cell::Cell;
    use std::io::Write;

    /// A bit for each lock that is held, and how often each was taken.
    #[derive(Clone, Copy)]
    struct Record {
        held: u8,
        taken: [u64; 3],
    }

    // without a destructor, as memory is freed at a thread's very end
    thread_local!(static RECORD: Cell<Record> = const { Cell::new(Record { held: 0, taken: [0; 3] }) });

    fn bit(lock: Lock) -> u8 {
        1 << lock as u8
    }

    fn change(f: impl FnOnce(&mut Record)) {
        let mut record = RECORD.get();
        f(&mut record);
        RECORD.set(record);
    }

    pub fn taking(lock: Lock) {
        let excluded = match lock {
            Lock::Spin => bit(Lock::Spin) | bit(Lock::Texts),
            Lock::Partition | Lock::Texts => u8::MAX,
        };
        if RECORD.get().held & excluded != 0 {
            breach(&format_args!("takes a lock ({lock:?})"));
        }
    }

    pub fn took(lock: Lock) {
        change(|record| {
            record.held |= bit(lock);
            record.taken[lock as usize] += 1;
        });
    }

    pub fn released(lock: Lock) {
        change(|record| record.held &= !bit(lock));
    }

    pub fn allocating() {
        assert_none_held("allocates, frees or panics");
    }

    /// A message is being raised.
    pub fn raising() {
        assert_none_held("raises a message");
    }

    /// A transaction, or one within it, begins or ends.
    pub fn ending() {
        assert_none_held("ends a transaction");
    }

    fn assert_none_held(what: &str) {
        if RECORD.get().held != 0 {
            breach(&format_args!("{what}"));
        }
    }

    /// What this thread holds is from now on another process's, that was stopped or is no more.
    #[cfg(any(test, feature = "pg_test"))]
    pub fn disown() {
        change(|record| record.held = 0);
    }

    /// How often this thread has taken locks of each kind.
    #[cfg(any(test, feature = "pg_test"))]
    pub fn taken(lock: Lock) -> u64 {
        RECORD.get().taken[lock as usize]
    }

    #[cold]
    fn breach(what: &std::fmt::Arguments) -> ! {
        let held = RECORD.get().held;
        change(|record| record.held = 0); // the report allocates
        let held: Vec<_> =
            [Lock::Spin, Lock::Partition, Lock::Texts].into_iter().filter(|l| held & bit(*l) != 0).collect();
        let back_trace = Backtrace::force_capture();
        // not by `eprintln`, which the tests' harness keeps to itself until there is a result
        let _ = writeln!(
            std::io::stderr(),
            "pgss_rs: broken lock rule: {what} while it holds {held:?}\n{back_trace}"
        );
        std::process::abort();
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod record {
    use super::Lock;

    #[inline(always)]
    pub fn taking(_lock: Lock) {}
    #[inline(always)]
    pub fn took(_lock: Lock) {}
    #[inline(always)]
    pub fn released(_lock: Lock) {}
    #[inline(always)]
    pub fn raising() {}
    #[inline(always)]
    pub fn ending() {}
    #[cfg(test)]
    pub fn disown() {}
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use crate::pg::spin::Mutex;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;

    /// What breaks a rule, by the word that its child process is told.
    const BREACHES: &[(&str, fn(), &str)] = &[
        ("two", two_spinlocks, "takes a lock (Spin) while it holds [Spin]"),
        ("itself", the_same_twice, "takes a lock (Spin) while it holds [Spin]"),
        ("partition", partition_under_spinlock, "takes a lock (Partition) while it holds [Spin]"),
        ("partitions", two_partitions, "takes a lock (Partition) while it holds [Partition]"),
        ("texts", texts_under_partition, "takes a lock (Texts) while it holds [Partition]"),
        ("spin", spinlock_under_texts, "takes a lock (Spin) while it holds [Texts]"),
        ("allocate", allocation_under_spinlock, "allocates, frees or panics while it holds [Spin]"),
        ("free", freeing_under_partition, "allocates, frees or panics while it holds [Partition]"),
        ("panic", panic_under_spinlock, "allocates, frees or panics while it holds [Spin, Partition]"),
        ("raise", message_under_spinlock, "raises a message while it holds [Spin]"),
        ("end", end_under_texts, "ends a transaction while it holds [Texts]"),
    ];

    fn two_spinlocks() {
        let (one, other) = (Mutex::new(0), Mutex::new(0));
        let _held = (one.lock(), other.try_lock());
    }

    /// Would else wait for ever.
    fn the_same_twice() {
        let one = Mutex::new(0);
        let _held = (one.lock(), one.lock());
    }

    fn partition_under_spinlock() {
        let one = Mutex::new(0);
        let _held = one.lock();
        holding(Lock::Partition, || ());
    }

    fn two_partitions() {
        holding(Lock::Partition, || holding(Lock::Partition, || ()));
    }

    fn texts_under_partition() {
        holding(Lock::Partition, || holding(Lock::Texts, || ()));
    }

    fn spinlock_under_texts() {
        let one = Mutex::new(0);
        holding(Lock::Texts, || *one.lock() += 1);
    }

    fn allocation_under_spinlock() {
        let one = Mutex::new(Vec::new());
        one.lock().push(1);
    }

    fn freeing_under_partition() {
        let bytes = vec![1u8; 10];
        holding(Lock::Partition, || drop(bytes));
    }

    fn panic_under_spinlock() {
        let one = Mutex::new(0);
        let _ = catch_unwind(AssertUnwindSafe(|| holding(Lock::Partition, || assert_eq!(*one.lock(), 1))));
    }

    fn message_under_spinlock() {
        let one = Mutex::new(0);
        let _held = one.lock();
        raising();
    }

    fn end_under_texts() {
        holding(Lock::Texts, ending);
    }

    /// Each in a process of its own, which is this very test.
    #[test]
    fn every_breach_ends_the_process_and_says_why() {
        const BREACH: &str = "PGSS_RS_BREACH";
        if let Ok(name) = std::env::var(BREACH) {
            let (_, breach, _) = BREACHES.iter().find(|(n, ..)| *n == name).unwrap();
            return breach();
        }
        let this = "lock_rules::tests::every_breach_ends_the_process_and_says_why";
        for (name, _, said) in BREACHES {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args([this, "--exact", "--nocapture"]).env(BREACH, name);
            let output = child.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(6), "{name}: {stderr}");
            assert!(stderr.contains(&format!("pgss_rs: broken lock rule: {said}")), "{name}: {stderr}");
        }
    }

    #[test]
    fn what_the_rules_allow_is_no_breach() {
        let (one, other) = (Mutex::new(1), Mutex::new(2));
        let before = [Lock::Spin, Lock::Partition, Lock::Texts].map(taken);
        *one.lock() += 1;
        assert!(other.try_lock().is_some_and(|n| *n == 2));
        holding(Lock::Partition, || *one.lock() += 2);
        holding(Lock::Texts, || ());
        let sum = *one.lock();
        assert_eq!(vec![sum], [4]);
        raising();
        ending();
        let after = [Lock::Spin, Lock::Partition, Lock::Texts].map(taken);
        assert_eq!(after, [before[0] + 4, before[1] + 1, before[2] + 1]);
    }

    #[test]
    fn a_lock_that_was_not_got_is_not_held() {
        let one = Mutex::new(0);
        std::thread::scope(|s| {
            let held = one.lock();
            disown(); // by another process, as far as the rules go
            s.spawn(|| {
                assert!(one.try_lock().is_none());
                raising();
            })
            .join()
            .unwrap();
            drop(held);
        });
    }
}
