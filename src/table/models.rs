//! The hand-over between an entry and its stripes under the model checker: the real table, of one slot and two sets of
//! two stripes, in every order of its steps up to a number of preemptions.
//!
//! What must hold in all of them: each call is counted once, in the entry it belongs to or in what was evicted; and what
//! is read of an entry is what it had counted at some time.

use super::*;
use crate::counters::{Event, Kind};
use crate::stripes::{SETS, Stripe, StripesState};
use crate::textpool::PoolState;
use crate::variance::Shared;
use loom::sync::{Arc, RwLock};
use loom::thread;

/// One process's view of the locks.
#[derive(Clone, Copy)]
struct Process<'a> {
    index: &'a RwLock<()>,
    texts: &'a RwLock<()>,
    number: usize,
}

impl Locks for Process<'_> {
    fn shared<R>(&self, _partition: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.index.read().unwrap();
        f()
    }
    fn exclusive<R>(&self, _partition: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.index.write().unwrap();
        f()
    }
    fn texts<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.texts.write().unwrap();
        f()
    }
    fn prefetch(&self, _: usize) {}
    fn process(&self) -> usize {
        self.number
    }
}

impl Table<'_, Process<'_>> {
    /// As a backend that has no place in mind.
    fn update_or_insert(
        &self,
        key: &Key,
        new: NewEntry,
        change: impl Fn(&mut Counters) + Copy,
    ) -> Option<u32> {
        let place = self.glance(key).and_then(|n| self.settle(n, key, change).ok());
        place.or_else(|| self.insert_or_update(key, new, change))
    }
}

/// One bucket, one slot, no room for texts.
struct Small {
    state: State,
    bucket: AtomicU32,
    link: Link,
    slot: Slot,
    stripes_state: StripesState,
    stripes: Vec<Stripe>,
    pool: PoolState,
    index: RwLock<()>,
    texts: RwLock<()>,
}

impl Small {
    fn new() -> Arc<Self> {
        let s = Small {
            state: State::default(),
            bucket: AtomicU32::new(0),
            link: Link::default(),
            slot: Slot::default(),
            stripes_state: StripesState::default(),
            stripes: (0..SETS * 2).map(|_| Stripe::default()).collect(),
            pool: PoolState::default(),
            index: RwLock::new(()),
            texts: RwLock::new(()),
        };
        s.of(0).init(7);
        Arc::new(s)
    }

    /// As the process with that number sees it.
    fn of(&self, number: usize) -> Table<'_, Process<'_>> {
        Table {
            state: &self.state,
            buckets: std::slice::from_ref(&self.bucket),
            links: std::slice::from_ref(&self.link),
            slots: std::slice::from_ref(&self.slot),
            stripes: Stripes { state: &self.stripes_state, all: &self.stripes },
            texts: TextPool { state: &self.pool, links: &[], blocks: &[] },
            locks: Process { index: &self.index, texts: &self.texts, number },
            clip: |_, n| n,
        }
    }

    /// Has an entry with stripes, and calls in both.
    fn with_stripes(k: &Key, in_slot: u32, in_stripe: u32) -> (Arc<Self>, u32) {
        let s = Small::new();
        let t = s.of(1);
        (0..in_slot).for_each(|_| assert!(t.update_or_insert(k, NEW, call).is_some()));
        t.spread(0, k);
        let place = t.settle(0, k, |_| ()).unwrap();
        (0..in_stripe).for_each(|_| assert_eq!(t.update(place, k, call), Update::Done));
        (s, place)
    }
}

const A: Key = Key { queryid: 1, userid: 10, dbid: 5, toplevel: true };
const B: Key = Key { queryid: 2, ..A };
const NEW: NewEntry = NewEntry { text: b"", encoding: 6, now: 100 };

fn call(c: &mut Counters) {
    rows(c, 1);
}

fn rows(c: &mut Counters, rows: u64) {
    c.add(&Event {
        kind: Kind::Exec,
        weight: 1.0,
        nanoseconds: 1_000_000,
        rows,
        usage: None,
        jit: None,
        workers: [0; 2],
        at: 1,
        shared: Shared::NOTHING,
    })
}

fn calls<L: Locks>(t: &Table<L>) -> f64 {
    t.bodies().map(|(_, body)| body.counters.exec.calls).sum()
}

/// Every call made and where it has gone: to an entry, to what was evicted, or to what found no room.
fn accounted<L: Locks>(t: &Table<L>) -> f64 {
    calls(t) + t.evicted().exec.calls + t.state.skipped.load(Relaxed) as f64
}

/// As a backend adds to the place that it remembers, or wherever the entry is by now. Its place; the same if another
/// process held the only slot.
fn record(t: &Table<Process>, place: u32, k: &Key) -> u32 {
    t.settle(place, k, call).unwrap_or_else(|_| t.update_or_insert(k, NEW, call).unwrap_or(place))
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = checker.preemption_bound.or(Some(preemptions));
    checker.max_branches = 10_000;
    checker.check(model);
}

#[test]
fn no_call_is_lost_while_an_entry_gets_stripes() {
    check(3, || {
        let s = Small::new();
        s.of(0).update_or_insert(&A, NEW, call).unwrap();
        let adding = thread::spawn({
            let s = s.clone();
            move || {
                let place = record(&s.of(1), 0, &A);
                record(&s.of(1), place, &A);
            }
        });
        let spreading = thread::spawn({
            let s = s.clone();
            move || s.of(0).spread(0, &A)
        });
        let read = calls(&s.of(0));
        assert!((1.0..=3.0).contains(&read));
        adding.join().unwrap();
        spreading.join().unwrap();
        assert!(read <= calls(&s.of(0)));
        assert_eq!((calls(&s.of(0)), s.of(0).stripes.sets_used()), (3.0, 1));
    });
}

#[test]
fn an_entry_that_two_give_stripes_has_one_set_and_the_other_is_free() {
    check(3, || {
        let s = Small::new();
        s.of(0).update_or_insert(&A, NEW, call).unwrap();
        let spreading = thread::spawn({
            let s = s.clone();
            move || {
                s.of(1).spread(0, &A);
                record(&s.of(1), 0, &A);
            }
        });
        s.of(0).spread(0, &A);
        record(&s.of(0), 0, &A);
        spreading.join().unwrap();
        assert_eq!((calls(&s.of(0)), s.of(0).stripes.sets_used()), (3.0, 1));
    });
}

#[test]
fn no_call_is_lost_when_an_entry_with_stripes_goes() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 1);
        let adding = thread::spawn({
            let s = s.clone();
            move || {
                let place = record(&s.of(1), place, &A);
                record(&s.of(1), place, &A);
            }
        });
        // drives the other out
        record(&s.of(0), 0, &B);
        adding.join().unwrap();
        let t = s.of(0);
        assert_eq!(accounted(&t), 5.0);
        t.remove_where(|_| true);
        assert_eq!((t.entries(), t.stripes.sets_used()), (0, 0));
    });
}

#[test]
fn an_entry_that_goes_while_it_gets_stripes_takes_them_with_it() {
    check(3, || {
        let s = Small::new();
        s.of(0).update_or_insert(&A, NEW, call).unwrap();
        let spreading = thread::spawn({
            let s = s.clone();
            move || {
                s.of(1).spread(0, &A);
                record(&s.of(1), 0, &A);
            }
        });
        let t = s.of(0);
        record(&t, 0, &B);
        spreading.join().unwrap();
        assert_eq!(accounted(&t), 3.0);
        t.remove_where(|_| true);
        assert_eq!((t.entries(), t.stripes.sets_used()), (0, 0));
    });
}

#[test]
fn a_remembered_stripe_that_is_another_entrys_by_now_is_left_alone() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 1);
        let adding = thread::spawn({
            let s = s.clone();
            move || s.of(1).update(place, &A, |c| rows(c, 1000)) == Update::Done
        });
        let t = s.of(0);
        let (gone, _) = t.remove(0, &A).unwrap();
        t.put_free(0);
        t.update_or_insert(&B, NEW, call).unwrap();
        t.spread(0, &B);
        record(&t, 0, &B);
        let added = adding.join().unwrap();
        assert_eq!(gone.rows, if added { 1002.0 } else { 2.0 });
        let (_, body) = t.bodies().next().unwrap();
        assert_eq!((body.key, body.counters.rows), (B, 2.0));
    });
}

#[test]
fn no_call_is_lost_where_a_remembered_set_becomes_the_same_entrys_again() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 0);
        let adding = thread::spawn({
            let s = s.clone();
            move || record(&s.of(1), place, &A)
        });
        let spreading = thread::spawn({
            let s = s.clone();
            move || s.of(0).spread(0, &A)
        });
        let t = s.of(0);
        let (gone, _) = t.remove(0, &A).unwrap();
        t.put_free(0);
        record(&t, 0, &A);
        t.spread(0, &A);
        adding.join().unwrap();
        spreading.join().unwrap();
        assert_eq!(accounted(&t) + gone.exec.calls, 3.0);
        assert!(t.stripes.sets_used() <= 1);
    });
}

#[test]
fn what_is_read_is_of_one_entry_though_it_goes_and_comes_again() {
    check(3, || {
        let (s, _) = Small::with_stripes(&A, 10, 5);
        let making_anew = thread::spawn({
            let s = s.clone();
            move || {
                let t = s.of(1);
                t.remove(0, &A).unwrap();
                t.put_free(0);
                t.update_or_insert(&A, NEW, call).unwrap();
                t.spread(0, &A);
                record(&t, 0, &A);
            }
        });
        let read = calls(&s.of(0));
        assert!([15.0, 0.0, 1.0, 2.0].contains(&read), "{read} calls");
        making_anew.join().unwrap();
        assert_eq!(calls(&s.of(0)), 2.0);
    });
}

/// Two readings, at the times 10 and 20, the second of what was touched since the first; the calls that are known then.
fn read_twice(t: &Table<Process>) -> f64 {
    let mut known = 0.0;
    t.tell_time(10);
    t.visit_since(EVER, false, |_, body| known = body.counters.exec.calls);
    t.tell_time(20);
    t.visit_since(10, false, |_, body| known = body.counters.exec.calls);
    known
}

#[test]
fn what_one_reading_did_not_see_is_touched_for_the_next() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 0);
        let adding = thread::spawn({
            let s = s.clone();
            move || record(&s.of(1), place, &A)
        });
        let known = read_twice(&s.of(0));
        adding.join().unwrap();
        let mut later = None;
        s.of(0).visit_since(20, false, |_, body| later = Some(body.counters.exec.calls));
        assert!(later == Some(2.0) || known == 2.0);
    });
}

#[test]
fn an_entry_that_one_reading_did_not_see_made_is_touched_for_the_next() {
    check(3, || {
        let s = Small::new();
        let adding = thread::spawn({
            let s = s.clone();
            move || s.of(1).update_or_insert(&A, NEW, call).unwrap()
        });
        let known = read_twice(&s.of(0));
        adding.join().unwrap();
        let mut later = None;
        s.of(0).visit_since(20, false, |_, body| later = Some(body.counters.exec.calls));
        assert!(later == Some(1.0) || known == 1.0);
    });
}

#[test]
fn no_call_is_lost_while_an_entry_is_taken() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 1);
        let adding = thread::spawn({
            let s = s.clone();
            move || record(&s.of(1), place, &A)
        });
        let t = s.of(0);
        let (n, seen) = t.bodies().next().unwrap();
        let taken = t.take(n, &seen, 500).map_or(0.0, |taken| taken.counters.exec.calls);
        adding.join().unwrap();
        assert!(taken >= 2.0);
        assert_eq!(taken + accounted(&t), 3.0);
    });
}

#[test]
fn no_call_is_lost_while_an_entry_is_taken_that_another_drives_out() {
    check(3, || {
        let (s, place) = Small::with_stripes(&A, 1, 1);
        let evicting = thread::spawn({
            let s = s.clone();
            move || record(&s.of(1), place, &B)
        });
        let t = s.of(0);
        let taken = t.bodies().next().and_then(|(n, seen)| t.take(n, &seen, 500));
        evicting.join().unwrap();
        assert_eq!(taken.map_or(0.0, |taken| taken.counters.exec.calls) + accounted(&t), 3.0);
    });
}
