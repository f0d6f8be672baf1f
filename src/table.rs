//! The entries: an array of slots that never moves, an index over it, and the rules for making and giving up entries.
//!
//! Who may touch what:
//! - a slot's [`Body`] only under the slot's spinlock;
//! - a slot's identity as the index sees it (`queryid`, `who`, `toplevel`) and its place in a bucket's chain ([`Link`]) are
//!   changed under the partition's lock held exclusively, and read under it held in either way, or else as a hint; the link
//!   of a slot that is in no chain is the free list's, or whoever's who has the slot;
//! - the text pool's free list under the text lock.
//!
//! The order is partition lock, then spinlock; never two partition locks, two spinlocks, or the text lock together
//! with any other. Nobody waits for a spinlock longer than [`PATIENCE`]: its holder may have been stopped. A backend may use a slot number it remembers without any partition lock: it takes the spinlock,
//! compares the key stored under it, and goes through the index when that is another ([`Table::update`]).
//!
//! An entry whose lock is contended has stripes ([`crate::stripes`]): then its counters are those in the slot and those in
//! its stripes together, and only the stripes are added to. Who has a set is written in the slot's body, under its lock;
//! a set is taken from the pool before, and given back after, when no one can find it any more. A place, as backends
//! remember it, is a slot's number or, from the number of slots on, a stripe's.
//!
//! Whatever is added to an entry marks it with the time that the table was last told ([`Table::tell_time`]), read under
//! the lock it is added under. A reader tells the table its own time before it looks at the first entry. So what it does
//! not find in an entry yet is added later, and marks that with its time or a later one: no change falls between two
//! readings, however long ago the statement began, and recording reads no clock for it.
//!
//! The locks that sleep are the caller's, handed in as [`Locks`]: the server's LWLocks in production, the standard
//! library's in tests.

use crate::counters::{CALL_MS, Counters, Evicted};
use crate::key::Key;
use crate::pg::spin::{Mutex, prefetch};
use crate::primitives::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::stripes::Stripes;
use crate::textpool::{TextPool, TextRef};
use std::mem::offset_of;
use std::ops::Range;
use std::time::Duration;

/// The index is cut into this many partitions, each with a lock of its own.
pub const PARTITIONS: usize = 32;
/// How long a backend waits for one slot before it skips the record. A holder needs well under a microsecond; only
/// one that lost its processor for this long is given up on; or one that is no more, for whoever reads after an immediate
/// stop of the server.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Slots an eviction looks at to find its victim.
const SAMPLE: u32 = 8;
/// Slots that a part takes from the clock hand at a time.
const BATCH: u32 = 8;
/// How much more than the least that was evicted lately an entry may be worth to go without a look at others, and what more
/// the least may then be: see [`Table::victim`].
const NEAR: f64 = 1.5;
const RISE: f64 = 2.0;
/// What new entries are worth is an average in which each has this part.
const FRESH: f64 = 8.0;
/// Bytes of a slot: those that an update changes, with the histogram's of an entry whose calls are of one class.
const UPDATED: Range<usize> = 0..of_counters(Counters::UPDATED.end);
const HISTOGRAM: Range<usize> = of_counters(Counters::HISTOGRAM.start)..of_counters(Counters::HISTOGRAM.end);
/// Those that tell how much it is worth keeping.
const SCORED: Range<usize> = 0..of_counters(offset_of!(Counters, calls_variance));
/// All but the histogram's classes of an entry that used nothing; and the others that one has that did.
const BRIEF: Range<usize> = 0..HISTOGRAM.end;
const USED: Range<usize> = of_counters(offset_of!(Counters, blocks))..size_of::<Slot>();

const fn of_counters(at: usize) -> usize {
    let lock = size_of::<Mutex<Body>>() - size_of::<Body>();
    offset_of!(Slot, body) + lock + offset_of!(Body, counters) + at
}

/// Rounds before an eviction, or an insertion that loses every race, gives up.
const ROUNDS: usize = 8;
const NONE: u32 = u32::MAX;
/// When an entry was touched that has counted nothing.
pub const NEVER: i64 = i64::MIN;
/// All times that something was touched at.
pub const EVER: i64 = NEVER + 1;

/// Locks that may put the caller to sleep. While one is held nothing may raise, allocate or come back here.
pub trait Locks {
    fn shared<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R;
    fn exclusive<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R;
    fn texts<R>(&self, f: impl FnOnce() -> R) -> R;
    /// The partition's lock will soon be taken.
    fn prefetch(&self, partition: usize);
    /// A number of this process, small and different from other processes'.
    fn process(&self) -> usize;
}

/// What a slot's spinlock guards.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Body {
    pub key: Key,
    /// The table's time when something was last added or changed; [`NEVER`] since what was counted was taken.
    pub touched: i64,
    /// Whether the slot is an entry that readers may see.
    pub used: bool,
    /// Times that the lock was found held, since `contended_from` calls.
    pub contended: u8,
    /// Number of its set of stripes plus 1; 0 for none.
    pub stripes: u8,
    /// In units of 64 calls.
    pub contended_from: u8,
    /// The server's number of the text's encoding.
    pub encoding: i32,
    /// Changes whenever the slot becomes, or ceases to be, an entry.
    pub generation: u32,
    pub text: TextRef,
    /// When the entry was made and when its min and max were last reset; microseconds of the server's epoch.
    pub stats_since: i64,
    pub minmax_stats_since: i64,
    pub counters: Counters,
}

/// One place for an entry, on cache lines of its own.
#[repr(C, align(64))]
pub struct Slot {
    queryid: AtomicU64,
    who: AtomicU64,
    toplevel: AtomicU32,
    body: Mutex<Body>,
}

// what the documentation says an entry takes
const _: () = assert!(cfg!(loom) || size_of::<Slot>() == 1664);

impl Default for Slot {
    fn default() -> Self {
        Slot {
            queryid: AtomicU64::new(0),
            who: AtomicU64::new(0),
            toplevel: AtomicU32::new(0),
            body: Mutex::new(Body::default()),
        }
    }
}

impl Slot {
    fn is(&self, key: &Key) -> bool {
        self.queryid.load(Relaxed) == key.queryid
            && self.who.load(Relaxed) == who(key)
            && self.toplevel.load(Relaxed) == u32::from(key.toplevel)
    }

    /// What the index takes it for, as a hint.
    fn named(&self) -> Key {
        let who = self.who.load(Relaxed);
        Key {
            queryid: self.queryid.load(Relaxed),
            userid: (who >> 32) as u32,
            dbid: who as u32,
            toplevel: self.toplevel.load(Relaxed) != 0,
        }
    }

    fn name(&self, key: &Key) {
        self.queryid.store(key.queryid, Relaxed);
        self.who.store(who(key), Relaxed);
        self.toplevel.store(u32::from(key.toplevel), Relaxed);
    }

    /// Reads of it, so that a process that meets this page for the first time gets its neighbours too: the kernel maps
    /// several at a read, but one at a write, as taking the lock is.
    #[inline(always)]
    fn map(&self) {
        std::hint::black_box(self.queryid.load(Relaxed));
    }
}

/// Where a slot's bucket, or the free list, goes on. Apart from the slots, so that whoever follows a chain touches none but
/// those that may be what it is looking for.
#[derive(Default)]
#[repr(C)]
pub struct Link {
    next: AtomicU32,
    /// Of the hash that the slot is in its bucket for, the half that does not choose the bucket.
    tag: AtomicU32,
}

fn tag(hash: u64) -> u32 {
    hash as u32
}

fn who(key: &Key) -> u64 {
    u64::from(key.userid) << 32 | u64::from(key.dbid)
}

/// Microseconds that a reader's look at the clock may be old.
const AHEAD: i64 = 60_000_000;

impl Body {
    /// The lock was found held; whether that happens often: 8 times in some 512 calls.
    fn is_contended(&mut self) -> bool {
        const OFTEN: u8 = 8;
        const UNIT: u64 = 64;
        const AMONG: u8 = 8;
        let units = (self.counters.sampled_calls / UNIT) as u8;
        if self.contended == 0 || units.wrapping_sub(self.contended_from) > AMONG {
            (self.contended, self.contended_from) = (0, units);
        }
        self.contended = self.contended.saturating_add(1);
        self.contended >= OFTEN
    }

    /// Whether it is `key`'s entry and has no stripes, so that its counters may be added to.
    #[inline(always)]
    fn is_plain(&self, key: &Key) -> bool {
        self.key == *key && self.used && self.stripes == 0
    }

    /// Begins an entry that has counted nothing, and that readers may not see yet. Of the histogram, most of an entry, next
    /// to nothing is written.
    fn begin(&mut self, key: &Key, new: &NewEntry, text: TextRef) {
        (self.key, self.touched, self.used) = (*key, 0, false);
        (self.contended, self.stripes, self.contended_from) = (0, 0, 0);
        (self.encoding, self.text) = (new.encoding, text);
        self.generation = self.generation.wrapping_add(1);
        (self.stats_since, self.minmax_stats_since) = (new.now, new.now);
        self.counters.clear();
    }

    /// Copies all but the histogram; the other's stays what it is.
    #[inline(always)]
    fn copy_in_brief(&self, to: &mut Body) {
        to.counters.copy_in_brief(&self.counters);
        // field by field, as the counters would be copied twice
        #[rustfmt::skip]
        let Body {
            key, touched, used, contended, stripes, contended_from, encoding, generation, text, stats_since,
            minmax_stats_since, counters: _,
        } = *self;
        (to.key, to.touched, to.used, to.contended, to.stripes) = (key, touched, used, contended, stripes);
        (to.contended_from, to.encoding, to.generation) = (contended_from, encoding, generation);
        (to.text, to.stats_since, to.minmax_stats_since) = (text, stats_since, minmax_stats_since);
    }

    /// Adds what was counted of the entry elsewhere.
    pub fn merge(&mut self, counters: &Counters, touched: i64) {
        self.counters.merge(counters);
        self.touched = self.touched.max(touched);
    }

    /// Whether any of its times lies further ahead of `now` than a reading takes: a clock ran ahead then, or does not now.
    #[inline(always)]
    pub fn is_ahead(&self, now: i64) -> bool {
        let Counters { first_exec, last_exec, .. } = self.counters;
        let ahead = now.saturating_add(AHEAD);
        [self.stats_since, self.minmax_stats_since, first_exec, last_exec].iter().any(|time| *time > ahead)
    }

    /// The same with none of its times after `now`.
    pub fn told_until(&self, now: i64) -> Body {
        let mut told = *self;
        let Counters { first_exec, last_exec, .. } = &mut told.counters;
        for time in [&mut told.stats_since, &mut told.minmax_stats_since, first_exec, last_exec] {
            *time = now.min(*time);
        }
        told
    }

    #[inline(always)]
    fn add(&mut self, now: i64, change: impl FnOnce(&mut Counters)) {
        self.touched = now;
        change(&mut self.counters);
    }

    fn set(&self) -> Option<u32> {
        self.stripes.checked_sub(1).map(u32::from)
    }
}

/// State of the table as a whole.
#[repr(C, align(64))]
pub struct State {
    /// Free list: a counter against ABA in the upper half, the first slot in the lower.
    free: AtomicU64,
    stats_reset: AtomicI64,
    /// The clock hand: where the next [`BATCH`] of slots begins that a part takes to look at.
    hand: AtomicU32,
    /// About the least that an entry was worth that was evicted lately, as a double's bits.
    least: AtomicU64,
    /// About what new entries are worth lately, likewise.
    fresh: AtomicU64,
    /// What every statement reads is apart from what waiting and inserting backends write.
    apart: Apart,
    /// Times that a lock was found held: an entry's or a stripe's spinlock, an index partition's lock, the text lock.
    pub lock_waits: AtomicU64,
    pub index_waits: AtomicU64,
    pub text_waits: AtomicU64,
    /// Records that could not be kept: a slot busy beyond patience, no room, or no memory.
    pub skipped: AtomicU64,
    /// Counts the times that what was saved became out of date for good.
    pub forgotten: AtomicU64,
    pub saving: Saving,
    pub cost: Cost,
    parts: [Part; PARTS],
}

/// Parts of what backends write that make and evict entries. Each uses the one that its number picks, so that those on
/// different processors seldom meet there.
const PARTS: usize = if cfg!(loom) { 2 } else { 16 };

#[derive(Default)]
#[repr(C, align(128))]
struct Part {
    /// Entries made, less those given up.
    entries: AtomicI64,
    dealloc: AtomicU64,
    /// The slot to look at next for one to evict, modulo the number of slots.
    next: AtomicU32,
    evicted: Mutex<Evicted>,
}

/// What backends and the process that saves tell each other: see `persist.rs`.
#[derive(Default)]
pub struct Saving {
    /// Counts the resets that the file knows nothing of, once they are made.
    pub wanted: AtomicU64,
    /// As [`Self::wanted`] was before the last save.
    pub done: AtomicU64,
    /// The saving process's place among all processes; and 1, as 0 is for none.
    pub process: AtomicU32,
    /// The time that the file is of, microseconds of the server's epoch; 0 where it was not written since the start.
    pub saved_at: AtomicI64,
}

/// What measured recordings cost: see `cost.rs`.
#[derive(Default)]
pub struct Cost {
    /// How many were measured.
    pub measured: AtomicU64,
    /// What they took together, with the analyses.
    pub nanoseconds: AtomicU64,
    /// What the statements took that they stand for, ns.
    pub statements: AtomicU64,
    /// Executions that were not looked at for the sake of `max_overhead`, and when that was so for the last time,
    /// microseconds of the server's epoch.
    pub thinned: AtomicU64,
    pub thinned_at: AtomicI64,
}

#[derive(Default)]
#[repr(C, align(128))]
struct Apart {
    /// Counts the times that entries were removed on request.
    resets: AtomicU32,
    /// The latest time that the table was told, microseconds of the server's epoch.
    time: AtomicI64,
}

impl State {
    /// A new entry is worth so much. Of two at once one may count for nothing.
    fn note_fresh(&self, worth: f64) {
        let fresh = f64::from_bits(self.fresh.load(Relaxed));
        let fresh = fresh + (worth - fresh) / FRESH;
        self.fresh.store(fresh.to_bits(), Relaxed);
    }

    fn set_least(&self, from: f64, to: f64) {
        if to != from {
            self.least.store(to.to_bits(), Relaxed);
        }
    }

    /// Which slot a part looks at next, modulo their number. In a turn of the hand each comes once, but for two processes of
    /// one part that get in each other's way.
    fn next_slot(&self, part: &Part) -> u32 {
        let next = part.next.fetch_add(1, Relaxed);
        if next % BATCH == BATCH - 1 {
            part.next.store(self.hand.fetch_add(BATCH, Relaxed), Relaxed);
        }
        next
    }

    /// Where the time is kept, for whoever tells it as [`Table::tell_time`] does.
    pub fn time(&self) -> &AtomicI64 {
        &self.apart.time
    }
}

impl Default for State {
    fn default() -> Self {
        State {
            free: AtomicU64::new(u64::from(NONE)),
            stats_reset: AtomicI64::new(0),
            hand: AtomicU32::new(0),
            least: AtomicU64::new(0),
            fresh: AtomicU64::new(0),
            apart: Apart::default(),
            lock_waits: AtomicU64::new(0),
            index_waits: AtomicU64::new(0),
            text_waits: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            saving: Saving::default(),
            cost: Cost::default(),
            parts: Default::default(),
        }
    }
}

/// Outcome of [`Table::update`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    Done,
    /// The slot holds no entry, or another one.
    OtherKey,
    /// Its lock was held beyond all patience.
    Busy,
    /// It has stripes; this is the place to go.
    Moved(u32),
}

/// What a new entry starts with.
#[derive(Clone, Copy)]
pub struct NewEntry<'a> {
    pub text: &'a [u8],
    pub encoding: i32,
    /// Now, microseconds of the server's epoch.
    pub now: i64,
}

/// The table over its parts in shared memory. `clip` cuts a text of the backend's encoding (see
/// [`TextPool::store`]).
#[derive(Clone, Copy)]
pub struct Table<'a, L> {
    pub state: &'a State,
    pub buckets: &'a [AtomicU32],
    /// As many as slots.
    pub links: &'a [Link],
    pub slots: &'a [Slot],
    pub stripes: Stripes<'a>,
    pub texts: TextPool<'a>,
    pub locks: L,
    pub clip: fn(&[u8], usize) -> usize,
}

/// How many buckets an index over `slots` slots has.
pub fn bucket_count(slots: usize) -> usize {
    slots.next_power_of_two().max(PARTITIONS)
}

impl<L: Locks> Table<'_, L> {
    /// Makes all slots free. Once, before anyone else looks.
    pub fn init(&self, now: i64) {
        self.buckets.iter().for_each(|b| b.store(NONE, Relaxed));
        self.texts.init();
        self.stripes.init();
        self.state.stats_reset.store(now, Relaxed);
        self.tell_time(now);
        (0..self.slots.len() as u32).rev().for_each(|n| self.put_free(n));
        for part in &self.state.parts {
            part.next.store(self.state.hand.fetch_add(BATCH, Relaxed), Relaxed);
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        let entries: i64 = self.state.parts.iter().map(|part| part.entries.load(Relaxed)).sum();
        // of those that come in one part and go in another while they are added up, half may be missed
        entries.clamp(0, self.slots.len() as i64) as u32
    }

    /// Entries given up for want of room since the last full reset.
    pub fn dealloc(&self) -> u64 {
        self.state.parts.iter().map(|part| part.dealloc.load(Relaxed)).sum()
    }

    /// This process's part.
    fn part(&self) -> &Part {
        &self.state.parts[self.locks.process() % PARTS]
    }

    /// Time of the last full reset, microseconds of the server's epoch.
    pub fn stats_reset(&self) -> i64 {
        self.state.stats_reset.load(Relaxed)
    }

    /// A number that changes whenever entries are removed on request.
    #[inline(always)]
    pub fn resets(&self) -> u32 {
        self.state.apart.resets.load(Relaxed)
    }

    /// Tells the table the time; what is added from now on is marked with this or a later one.
    pub fn tell_time(&self, now: i64) {
        self.state.apart.time.fetch_max(now, Relaxed);
    }

    /// What is added now is marked with; to be read under the lock that it is added under.
    #[inline(always)]
    fn told(&self) -> i64 {
        self.state.apart.time.load(Relaxed)
    }

    /// What evicted entries had counted since the last full reset, without what is held beyond all patience.
    pub fn evicted(&self) -> Evicted {
        let mut sum = Evicted::default();
        for part in &self.state.parts {
            let evicted = part.evicted.try_lock_for(PATIENCE).map(|evicted| *evicted);
            sum.merge(&evicted.unwrap_or_default());
        }
        sum
    }

    /// Has the processor fetch what an update at `place` will change.
    #[inline(always)]
    pub fn prefetch(&self, place: u32) {
        match self.slots.get(place as usize) {
            Some(slot) => {
                prefetch(slot, UPDATED);
                prefetch(slot, HISTOGRAM);
            }
            None => self.prefetch_stripe(place),
        }
    }

    #[inline(never)]
    fn prefetch_stripe(&self, place: u32) {
        if let Some(stripe) = self.stripes.all.get(place as usize - self.slots.len()) {
            stripe.prefetch();
        }
    }

    /// `key`'s entry may soon have to be made: has the processor fetch its bucket, and the slot that an eviction would look
    /// at first.
    pub fn prefetch_insertion(&self, key: &Key) {
        prefetch(&self.buckets[self.bucket_number(key.hash())], 0..size_of::<AtomicU32>());
        if self.is_full() {
            prefetch(self.at_hand(), BRIEF);
        }
    }

    /// `key` will soon be looked for: has the processor fetch the first link in its bucket, and what else takes an insertion
    /// time that evicts.
    pub fn prefetch_lookup(&self, key: &Key) {
        let hash = key.hash();
        self.prefetch_chain(hash);
        if self.is_full() {
            self.locks.prefetch(self.partition(hash));
            let gone = self.at_hand().named().hash();
            self.locks.prefetch(self.partition(gone));
            self.prefetch_chain(gone);
        }
    }

    fn prefetch_chain(&self, hash: u64) {
        let first = self.buckets[self.bucket_number(hash)].load(Relaxed);
        if let Some(link) = self.links.get(first as usize) {
            prefetch(link, 0..size_of::<Link>());
        }
    }

    fn is_full(&self) -> bool {
        self.state.free.load(Relaxed) as u32 == NONE
    }

    /// The slot that this process would look at first if it evicted now.
    fn at_hand(&self) -> &Slot {
        &self.slots[self.slot_number(self.part().next.load(Relaxed))]
    }

    fn slot_number(&self, hand: u32) -> usize {
        hand as usize % self.slots.len()
    }

    /// Changes the counters of the entry at `place` if it is `key`'s. Takes only one spinlock: `change` is plain
    /// arithmetic.
    pub fn update(&self, place: u32, key: &Key, change: impl FnOnce(&mut Counters)) -> Update {
        let Some(slot) = self.slots.get(place as usize) else {
            return self.update_stripe(place, key, change);
        };
        let Some(mut body) = slot.body.try_lock() else { return self.update_contended(place, key, change) };
        if !body.is_plain(key) {
            return if body.used && body.key == *key { self.moved(&body) } else { Update::OtherKey };
        }
        body.add(self.told(), change);
        Update::Done
    }

    /// Whether `key`'s entry is at `place`, or in its stripes.
    pub fn has(&self, place: u32, key: &Key) -> bool {
        if let Some(slot) = self.slots.get(place as usize) {
            return slot.body.try_lock_for(PATIENCE).is_some_and(|body| body.used && body.key == *key);
        }
        let stripe = self.stripes.all.get(place as usize - self.slots.len());
        stripe.and_then(|s| s.0.try_lock_for(PATIENCE)).is_some_and(|share| share.used && share.key == *key)
    }

    /// [`Self::update`] for the common case: whether the place is the entry's slot, and its lock was free.
    #[inline(always)]
    pub fn update_at_once(&self, place: u32, key: &Key, change: impl FnOnce(&mut Counters)) -> bool {
        let Some(mut body) = self.slots.get(place as usize).and_then(|slot| slot.body.try_lock()) else {
            return false;
        };
        let plain = body.is_plain(key);
        if plain {
            body.add(self.told(), change);
        }
        plain
    }

    #[inline(never)]
    fn update_contended(&self, n: u32, key: &Key, change: impl FnOnce(&mut Counters)) -> Update {
        self.state.lock_waits.fetch_add(1, Relaxed);
        let Some(mut body) = self.slots[n as usize].body.try_lock_for(PATIENCE) else { return Update::Busy };
        if !body.is_plain(key) {
            return if body.used && body.key == *key { self.moved(&body) } else { Update::OtherKey };
        }
        body.add(self.told(), change);
        let contended = body.is_contended();
        drop(body);
        if contended {
            self.spread(n, key);
        }
        Update::Done
    }

    fn update_stripe(&self, place: u32, key: &Key, change: impl FnOnce(&mut Counters)) -> Update {
        let place = place as usize - self.slots.len();
        let Some(stripe) = self.stripes.all.get(place).filter(|_| self.stripes.is_taken(place)) else {
            return Update::OtherKey;
        };
        let share = stripe.0.try_lock().or_else(|| {
            self.state.lock_waits.fetch_add(1, Relaxed);
            stripe.0.try_lock_for(PATIENCE)
        });
        let Some(mut share) = share else { return Update::Busy };
        if share.key != *key || !share.used {
            return Update::OtherKey;
        }
        share.touched = self.told();
        change(&mut share.counters);
        Update::Done
    }

    #[cold]
    fn moved(&self, body: &Body) -> Update {
        let stripe = body.set().map_or(0, |set| self.stripes.place(set, self.locks.process()));
        Update::Moved(self.slots.len() as u32 + stripe)
    }

    /// Gives `key`'s entry in slot `n` stripes, if it is still there, has none, and there are some to be had.
    #[cold]
    fn spread(&self, n: u32, key: &Key) {
        if let Some(set) = self.stripes.claim(key, |key, found| self.count(key, found)) {
            self.give(n, key, set);
        }
    }

    fn give(&self, n: u32, key: &Key, set: u32) {
        let body = self.slots[n as usize].body.try_lock_for(PATIENCE);
        let given = body.is_some_and(|mut body| {
            let alone = body.is_plain(key);
            if alone {
                body.stripes = set as u8 + 1;
            }
            alone
        });
        if !given {
            self.count(key, &self.stripes.release(set));
        }
    }

    /// Counts what was added to a set that did not become `key`'s entry's: a backend may have remembered a stripe of it
    /// from an earlier time.
    fn count(&self, key: &Key, found: &Counters) {
        if *found == Counters::default() {
            return;
        }
        let entry = self.lookup(key);
        if entry.is_none_or(|n| self.settle(n, key, |c| c.merge(found)).is_err()) {
            self.count_evicted(&Evicted::of(found));
        }
    }

    /// Adds to what evicted entries had counted.
    fn count_evicted(&self, gone: &Evicted) {
        match self.part().evicted.try_lock_for(PATIENCE) {
            Some(mut evicted) => evicted.merge(gone),
            None => self.skip(),
        }
    }

    /// As [`Self::update`], and follows the entry where it has gone. The place, or what came of it.
    pub fn settle(
        &self,
        mut place: u32,
        key: &Key,
        change: impl Fn(&mut Counters) + Copy,
    ) -> Result<u32, Update> {
        for _ in 0..ROUNDS {
            match self.update(place, key, change) {
                Update::Done => return Ok(place),
                Update::Moved(to) => place = to,
                other => return Err(other),
            }
        }
        Err(Update::OtherKey)
    }

    /// The slot of `key`'s entry. Takes the partition's lock shared.
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        let hash = key.hash();
        self.locks.shared(self.partition(hash), || self.find(key, hash))
    }

    /// Where `key`'s entry seems to be, which whoever changes it finds out. Takes no lock: a slot that goes into another chain
    /// meanwhile leads astray, and then an entry may seem to be missing that is not.
    pub fn glance(&self, key: &Key) -> Option<u32> {
        const FAR: usize = 64;
        let hash = key.hash();
        self.find_among(self.chain(hash).take(FAR), key, hash)
    }

    /// Makes `key`'s entry, as there seemed to be none when the caller looked; or changes it, if there is one by now. Its place.
    /// `None`, and one more skipped, when that cannot be done.
    pub fn insert_or_update(
        &self,
        key: &Key,
        new: NewEntry,
        change: impl Fn(&mut Counters) + Copy,
    ) -> Option<u32> {
        for round in 0..ROUNDS {
            let known = if round == 0 { None } else { self.lookup(key) };
            let n = match known {
                Some(n) => n,
                None => match self.insert(key, new, change) {
                    Inserted::New(n) => return Some(n),
                    Inserted::Other(n) => n,
                    Inserted::NoRoom => break,
                },
            };
            match self.settle(n, key, change) {
                Ok(place) => return Some(place),
                Err(Update::Busy) => break,
                Err(_) => {}
            }
        }
        self.skip();
        None
    }

    /// Makes the entry that was saved from another table: its key, encoding, times and counters, and its text. What
    /// there is no room for is evicted. False when there is an entry with its key already.
    pub fn restore(&self, saved: &Body, text: &[u8], now: i64) -> bool {
        let taken = self.lookup(&saved.key).is_some();
        let Some(room) = (if taken { None } else { self.room(now) }) else { return false };
        let new = NewEntry { text, encoding: saved.encoding, now: saved.stats_since };
        let made = self.publish(room, &saved.key, new, |body| {
            body.minmax_stats_since = saved.minmax_stats_since;
            body.counters = saved.counters;
            body.text.truncated |= saved.text.truncated;
        });
        matches!(made, Inserted::New(_))
    }

    /// The totals over the whole table as they were saved from another one.
    pub fn restore_totals(&self, stats_reset: i64, dealloc: u64, evicted: Evicted) {
        self.state.stats_reset.store(stats_reset, Relaxed);
        self.part().dealloc.store(dealloc, Relaxed);
        *self.part().evicted.lock() = evicted;
    }

    /// Counts a record that could not be kept.
    #[cold]
    pub fn skip(&self) {
        self.state.skipped.fetch_add(1, Relaxed);
    }

    fn insert(&self, key: &Key, new: NewEntry, change: impl FnOnce(&mut Counters)) -> Inserted {
        match self.room(new.now) {
            Some(room) => self.publish(room, key, new, |body| change(&mut body.counters)),
            None => Inserted::NoRoom,
        }
    }

    /// Room for a new entry: a free slot, else an evicted entry's. A free one that a reader is just looking at, or was
    /// stopped while it did, is the last choice.
    fn room(&self, now: i64) -> Option<Room> {
        let Some(n) = self.take_free() else { return self.evict(now) };
        let free = Room { slot: n, gone: TextRef::EMPTY };
        if self.slots[n as usize].body.try_lock().is_some() {
            return Some(free);
        }
        let Some(other) = self.room(now) else { return Some(free) };
        self.put_free(n);
        Some(other)
    }

    /// Makes room, which is the caller's, the entry of `key`; or frees it, if another slot is by now, or a reader holds
    /// it beyond all patience.
    fn publish(&self, room: Room, key: &Key, new: NewEntry, fill: impl FnOnce(&mut Body)) -> Inserted {
        let (n, text) = (room.slot, self.renew(room.gone, new.text));
        self.texts.fill(text, new.text);
        let mut worth = 0.0;
        let filled = self.slots[n as usize].body.try_lock_for(PATIENCE).is_some_and(|mut body| {
            body.begin(key, &new, text);
            fill(&mut body);
            worth = body.counters.score(new.now);
            true
        });
        self.state.note_fresh(worth);
        let made = if filled { self.show(n, key) } else { Inserted::NoRoom };
        if !matches!(made, Inserted::New(_)) {
            // the slot was never seen by anyone
            self.free_text(text);
            self.put_free(n);
        }
        made
    }

    /// Blocks for a text, in place of those of one that is no longer any slot's.
    fn renew(&self, gone: TextRef, text: &[u8]) -> TextRef {
        self.texts.reuse(gone, text).unwrap_or_else(|| {
            let last = self.texts.last(gone);
            self.locks.texts(|| {
                if let Some(last) = last {
                    self.texts.give_back(gone, last);
                }
                self.texts.take(text, self.clip)
            })
        })
    }

    /// Has everybody see the entry of `key` in slot `n`, unless there is another.
    fn show(&self, n: u32, key: &Key) -> Inserted {
        let hash = key.hash();
        self.locks.exclusive(self.partition(hash), || {
            if let Some(other) = self.find(key, hash) {
                return Inserted::Other(other);
            }
            let Some(mut body) = self.slots[n as usize].body.try_lock_for(PATIENCE) else {
                return Inserted::NoRoom;
            };
            self.link(n, key, hash);
            // readers begin to see it now, one that passed before will not
            (body.used, body.touched) = (true, self.told());
            Inserted::New(n)
        })
    }

    /// Gives up an entry that is worth little, and hands its slot and its text's blocks to the caller.
    fn evict(&self, now: i64) -> Option<Room> {
        for _ in 0..ROUNDS {
            let Some((n, key)) = self.victim(now) else { continue };
            prefetch(&self.slots[n as usize], BRIEF);
            if let Some((gone, text)) = self.remove(n, &key) {
                // one whose counts were taken, and that was not used since, is no loss
                if gone != Evicted::default() {
                    self.count_evicted(&gone);
                    self.part().dealloc.fetch_add(1, Relaxed);
                }
                return Some(Room { slot: n, gone: text });
            }
        }
        None
    }

    /// The entry worth least among a few that the hand comes to; or the first that is worth about as little as the least
    /// that went lately, without a look at the others, which take a cache miss each.
    ///
    /// That least falls at once and rises by steps, each after a few with none so low among them, but never above what new
    /// entries are worth: so entries that are worth more than those go only as the least of a few, however many there are
    /// side by side.
    fn victim(&self, now: i64) -> Option<(u32, Key)> {
        let part = self.part();
        let least = f64::from_bits(self.state.least.load(Relaxed));
        let mut found: Option<(f64, u32, Key)> = None;
        for _ in 0..SAMPLE.min(self.slots.len() as u32) {
            let n = self.slot_number(self.state.next_slot(part)) as u32;
            prefetch(self.at_hand(), SCORED);
            let Some((score, key)) = self.scored(n, now) else { continue };
            if score <= NEAR * least {
                self.state.set_least(least, score.min(least));
                return Some((n, key));
            }
            if found.is_none_or(|(lowest, ..)| score < lowest) {
                found = Some((score, n, key));
            }
        }
        let (score, n, key) = found?;
        let fresh = f64::from_bits(self.state.fresh.load(Relaxed));
        self.state.set_least(least, score.min(RISE * least + CALL_MS).min(fresh));
        Some((n, key))
    }

    /// What the entry in slot `n` is worth, if there is one that can be had.
    fn scored(&self, n: u32, now: i64) -> Option<(f64, Key)> {
        let body = self.slots[n as usize].body.try_lock().filter(|body| body.used)?;
        let (key, set, score) = (body.key, body.set(), body.counters.score(now));
        drop(body);
        match set {
            Some(set) => Some((score + self.stripes.sum(set, &key)?.counters.score(now), key)),
            None => Some((score, key)),
        }
    }

    /// Ends `key`'s entry in slot `n`, if that is still what it holds; the slot is then the caller's, and its text. What it
    /// had counted, as far as it is kept, and the text.
    fn remove(&self, n: u32, key: &Key) -> Option<(Evicted, TextRef)> {
        let hash = key.hash();
        let slot = &self.slots[n as usize];
        let (mut gone, text, set) = self.locks.exclusive(self.partition(hash), || {
            let gone = {
                let mut body = slot.body.try_lock_for(PATIENCE)?;
                if !body.used || body.key != *key {
                    return None;
                }
                let gone = (Evicted::of(&body.counters), body.text, body.set());
                (body.used, body.stripes) = (false, 0);
                body.generation = body.generation.wrapping_add(1);
                body.text = TextRef::EMPTY;
                gone
            };
            self.unlink(n, hash);
            Some(gone)
        })?;
        self.texts.prefetch(text);
        if let Some(set) = set {
            gone.merge(&Evicted::of(&self.stripes.release(set)));
        }
        Some((gone, text))
    }

    /// Gives the blocks of a text back that is no longer any slot's.
    fn free_text(&self, text: TextRef) {
        if let Some(last) = self.texts.last(text) {
            self.locks.texts(|| self.texts.give_back(text, last));
        }
    }

    /// Removes the entries that `which` picks; whether that left none.
    pub fn remove_where(&self, which: impl Fn(&Key) -> bool) -> bool {
        self.state.apart.resets.fetch_add(1, Relaxed);
        self.visit_since(NEVER, false, |n, body| {
            if which(&body.key)
                && let Some((_, text)) = self.remove(n, &body.key)
            {
                self.free_text(text);
                self.put_free(n);
            }
        });
        self.entries() == 0 && self.buckets.iter().all(|bucket| bucket.load(Relaxed) == NONE)
    }

    /// Starts everything that is counted over the whole table anew.
    pub fn reset_totals(&self, now: i64) {
        for part in &self.state.parts {
            if let Some(mut evicted) = part.evicted.try_lock_for(PATIENCE) {
                *evicted = Evicted::default();
            }
            part.dealloc.store(0, Relaxed);
        }
        let s = self.state;
        let waits = [&s.lock_waits, &s.index_waits, &s.text_waits, &s.skipped];
        let costs = [&s.cost.measured, &s.cost.nanoseconds, &s.cost.statements, &s.cost.thinned];
        waits.iter().chain(&costs).for_each(|n| n.store(0, Relaxed));
        s.cost.thinned_at.store(0, Relaxed);
        self.state.stats_reset.store(now, Relaxed);
    }

    /// Starts min and max of the entries that `which` picks anew.
    pub fn reset_minmax_where(&self, now: i64, which: impl Fn(&Key) -> bool) {
        for slot in self.slots {
            let Some(mut body) = slot.body.try_lock_for(PATIENCE) else { continue };
            if !body.used || !which(&body.key) {
                continue;
            }
            body.counters.reset_minmax();
            // the entry may be newer than the request
            body.minmax_stats_since = now.max(body.stats_since + 1);
            if body.touched != NEVER {
                body.touched = self.told();
            }
            let (key, set) = (body.key, body.set());
            drop(body);
            if let Some(set) = set {
                self.stripes.reset_minmax(set, &key);
            }
        }
    }

    /// Shows every entry that was touched at this time or later, one after the other, as a copy: with its histogram or, as
    /// that is most of an entry, without. The others are not copied. Takes one spinlock at a time, and leaves out a slot
    /// that is held beyond all patience.
    pub fn visit_since(&self, since: i64, histograms: bool, mut show: impl FnMut(u32, &Body)) {
        let mut body = Body::default();
        for (n, slot) in (0..).zip(self.slots) {
            slot.map();
            let read = if histograms {
                self.read(n, since, |from, to| *to = *from, &mut body)
            } else {
                self.read(n, since, Body::copy_in_brief, &mut body)
            };
            if read {
                // the next one comes from memory while this is made a row of
                if let Some(next) = self.slots.get(n as usize + 1) {
                    prefetch(next, if histograms { 0..size_of::<Slot>() } else { BRIEF });
                    if body.counters.is_used() && !histograms {
                        prefetch(next, USED);
                    }
                }
                show(n, &body);
            }
        }
    }

    /// Likewise copies of all that have counted something, with histograms.
    pub fn bodies(&self) -> impl Iterator<Item = (u32, Body)> + '_ {
        (0..self.slots.len() as u32).filter_map(|n| {
            let mut body = Body::default();
            self.read(n, EVER, |from, to| *to = *from, &mut body).then_some((n, body))
        })
    }

    /// The entries of a statement, those that have counted nothing too, without histograms.
    pub fn bodies_of(&self, queryid: u64) -> impl Iterator<Item = (u32, Body)> + '_ {
        let named = move |n: &u32| self.slots[*n as usize].queryid.load(Relaxed) == queryid;
        let brief = |n| {
            let mut body = Body::default();
            self.read(n, NEVER, Body::copy_in_brief, &mut body).then_some((n, body))
        };
        let entries = (0..self.slots.len() as u32).filter(named).filter_map(brief);
        entries.filter(move |(_, body)| body.key.queryid == queryid)
    }

    /// The entry in slot `n`, without its histogram and what is in its stripes, if it is still the one of that generation.
    pub fn entry(&self, n: u32, generation: u32) -> Option<Body> {
        let there = self.slots.get(n as usize)?.body.try_lock_for(PATIENCE)?;
        let mut body = Body::default();
        let same = there.used && there.generation == generation;
        same.then(|| there.copy_in_brief(&mut body)).map(|()| body)
    }

    /// Copies the entry in slot `n`, with what its stripes have counted, if any was touched at this time or later.
    #[inline(always)]
    fn read(&self, n: u32, since: i64, copy: impl Fn(&Body, &mut Body), to: &mut Body) -> bool {
        for _ in 0..ROUNDS {
            let Some(body) = self.slots[n as usize].body.try_lock_for(PATIENCE) else { return false };
            if !body.used || body.touched < since && body.stripes == 0 {
                return false;
            }
            copy(&body, to);
            drop(body);
            let Some(set) = to.set() else { return true };
            let sum = self.stripes.sum(set, &to.key);
            // the entry may have gone, come again, and got the same set
            if self.unchanged(n, to) {
                // else a stripe is held beyond all patience
                let Some(sum) = sum else { return false };
                to.merge(&sum.counters, sum.touched);
                return to.touched >= since;
            }
        }
        false
    }

    /// Takes what the entry in slot `n`, that `seen` is a copy of, has counted: it goes on from nothing, with its text.
    /// `None` if that is nothing, or the slot holds another entry by now.
    ///
    /// Every call is either in what is taken or stays. An entry that goes while its stripes are being emptied takes
    /// along what is in those that are left.
    pub fn take(&self, n: u32, seen: &Body, now: i64) -> Option<Body> {
        let mut taken = {
            let mut body = self.slots[n as usize].body.try_lock_for(PATIENCE)?;
            if !body.used || body.generation != seen.generation {
                return None;
            }
            let taken = *body;
            body.counters.clear();
            body.touched = NEVER;
            (body.stats_since, body.minmax_stats_since) = (now, now);
            taken
        };
        if let Some(set) = taken.set() {
            let share = self.stripes.take(set, &taken.key);
            taken.merge(&share.counters, share.touched);
        }
        (taken.touched != NEVER).then_some(taken)
    }

    /// Gives back what was taken. Where the entry has gone meanwhile it is counted among the evicted.
    pub fn give_back(&self, taken: &Body) {
        let body = self.lookup(&taken.key).and_then(|n| self.slots[n as usize].body.try_lock_for(PATIENCE));
        match body.filter(|body| body.used && body.key == taken.key) {
            Some(mut body) => {
                let now = self.told();
                body.merge(&taken.counters, now);
                body.stats_since = body.stats_since.min(taken.stats_since);
                body.minmax_stats_since = body.minmax_stats_since.min(taken.minmax_stats_since);
            }
            None => self.count_evicted(&Evicted::of(&taken.counters)),
        }
    }

    /// Whether slot `n` still holds the entry that `body` is a copy of, hence the text read meanwhile was its text.
    pub fn unchanged(&self, n: u32, body: &Body) -> bool {
        let now = self.slots.get(n as usize).and_then(|slot| slot.body.try_lock_for(PATIENCE));
        now.is_some_and(|now| now.generation == body.generation)
    }

    fn partition(&self, hash: u64) -> usize {
        self.bucket_number(hash) * PARTITIONS / self.buckets.len()
    }

    fn bucket_number(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.buckets.len() - 1)
    }

    /// The slots in the bucket of this hash, with their links. Under the partition's lock, or as a hint.
    fn chain(&self, hash: u64) -> impl Iterator<Item = (u32, &Link)> {
        let at = |next: &AtomicU32| {
            let n = next.load(Relaxed);
            self.links.get(n as usize).map(|link| (n, link))
        };
        std::iter::successors(at(&self.buckets[self.bucket_number(hash)]), move |(_, link)| at(&link.next))
    }

    /// Under the partition's lock, or as a hint.
    fn find_among<'b>(
        &self,
        mut chain: impl Iterator<Item = (u32, &'b Link)>,
        key: &Key,
        hash: u64,
    ) -> Option<u32> {
        let is = |n: u32, link: &Link| link.tag.load(Relaxed) == tag(hash) && self.slots[n as usize].is(key);
        chain.find(|(n, link)| is(*n, link)).map(|(n, _)| n)
    }

    /// Under the partition's lock.
    fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        self.find_among(self.chain(hash), key, hash)
    }

    /// Under the partition's lock, exclusive.
    fn link(&self, n: u32, key: &Key, hash: u64) {
        let bucket = &self.buckets[self.bucket_number(hash)];
        self.slots[n as usize].name(key);
        let link = &self.links[n as usize];
        link.tag.store(tag(hash), Relaxed);
        link.next.store(bucket.load(Relaxed), Relaxed);
        bucket.store(n, Relaxed);
        self.part().entries.fetch_add(1, Relaxed);
    }

    /// Under the partition's lock, exclusive.
    fn unlink(&self, n: u32, hash: u64) {
        let mut next = &self.buckets[self.bucket_number(hash)];
        while next.load(Relaxed) != n {
            let Some(link) = self.links.get(next.load(Relaxed) as usize) else { return };
            next = &link.next;
        }
        next.store(self.links[n as usize].next.load(Relaxed), Relaxed);
        self.part().entries.fetch_sub(1, Relaxed);
    }

    fn take_free(&self) -> Option<u32> {
        use crate::primitives::atomic::Ordering::{AcqRel, Acquire};
        let free = &self.state.free;
        let taken = free.fetch_update(AcqRel, Acquire, |head| {
            let link = self.links.get(head as u32 as usize)?;
            Some(next_count(head) | u64::from(link.next.load(Relaxed)))
        });
        taken.ok().map(|head| head as u32)
    }

    fn put_free(&self, n: u32) {
        use crate::primitives::atomic::Ordering::{Acquire, Release};
        let free = &self.state.free;
        let mut head = free.load(Acquire);
        loop {
            self.links[n as usize].next.store(head as u32, Relaxed);
            match free.compare_exchange_weak(head, next_count(head) | u64::from(n), Release, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

fn next_count(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}

/// A slot that nobody else may use, and the blocks of a text that it had.
struct Room {
    slot: u32,
    gone: TextRef,
}

enum Inserted {
    New(u32),
    /// The key has an entry already, in this slot.
    Other(u32),
    NoRoom,
}

#[cfg(all(test, loom))]
#[path = "table/models.rs"]
mod models;

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::counters::{Event, Failure, Jit, Kind, Usage};
    use crate::lock_rules::{Lock, holding};
    use crate::pg::spin::held_elsewhere;
    use crate::stripes::{SETS, Stripe, StripesState};
    use crate::textpool::{BLOCK, Block, PoolState};
    use crate::variance::Shared;
    use std::cell::Cell;
    use std::sync::RwLock;
    use std::sync::atomic::AtomicBool;

    pub struct StdLocks {
        partitions: Vec<RwLock<()>>,
        texts: RwLock<()>,
    }

    impl Locks for &StdLocks {
        fn shared<R>(&self, p: usize, f: impl FnOnce() -> R) -> R {
            let _guard = self.partitions[p].read().unwrap();
            holding(Lock::Partition, f)
        }
        fn exclusive<R>(&self, p: usize, f: impl FnOnce() -> R) -> R {
            let _guard = self.partitions[p].write().unwrap();
            holding(Lock::Partition, f)
        }
        fn texts<R>(&self, f: impl FnOnce() -> R) -> R {
            let _guard = self.texts.write().unwrap();
            holding(Lock::Texts, f)
        }
        fn prefetch(&self, _: usize) {}
        fn process(&self) -> usize {
            PROCESS.get()
        }
    }

    static NEXT_PROCESS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local!(static PROCESS: Cell<usize> = Cell::new(NEXT_PROCESS.fetch_add(1, Relaxed)));

    pub struct Owned {
        state: State,
        buckets: Vec<AtomicU32>,
        index_links: Vec<Link>,
        slots: Vec<Slot>,
        stripes_state: StripesState,
        stripes: Vec<Stripe>,
        pool: PoolState,
        links: Vec<AtomicU32>,
        blocks: Vec<Block>,
        locks: StdLocks,
    }

    impl Owned {
        pub fn new(max: usize) -> Self {
            let o = Owned {
                state: State::default(),
                buckets: (0..bucket_count(max)).map(|_| AtomicU32::new(0)).collect(),
                index_links: (0..max).map(|_| Link::default()).collect(),
                slots: (0..max).map(|_| Slot::default()).collect(),
                stripes_state: StripesState::default(),
                stripes: (0..SETS * 4).map(|_| Stripe::default()).collect(),
                pool: PoolState::default(),
                links: (0..1000).map(|_| AtomicU32::new(0)).collect(),
                blocks: (0..1000).map(|_| Block::default()).collect(),
                locks: StdLocks {
                    partitions: (0..PARTITIONS).map(|_| RwLock::new(())).collect(),
                    texts: RwLock::new(()),
                },
            };
            o.table().init(7);
            o
        }

        pub fn table(&self) -> Table<'_, &StdLocks> {
            Table {
                state: &self.state,
                buckets: &self.buckets,
                links: &self.index_links,
                slots: &self.slots,
                stripes: Stripes { state: &self.stripes_state, all: &self.stripes },
                texts: TextPool { state: &self.pool, links: &self.links, blocks: &self.blocks },
                locks: &self.locks,
                clip: |_, n| n,
            }
        }
    }

    impl Table<'_, &StdLocks> {
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

    fn key(queryid: u64) -> Key {
        Key { queryid, userid: 10, dbid: 5, toplevel: true }
    }

    fn call(c: &mut Counters) {
        call_of(1_000_000, 1)(c);
    }

    fn call_of(nanoseconds: u64, at: i64) -> impl Fn(&mut Counters) + Copy {
        move |c| {
            c.add(&Event {
                kind: Kind::Exec,
                weight: 1.0,
                nanoseconds,
                rows: 1,
                usage: None,
                jit: None,
                workers: [0; 2],
                at,
                shared: Shared::NOTHING,
            })
        }
    }

    const NEW: NewEntry = NewEntry { text: b"SELECT $1", encoding: 6, now: 100 };

    fn calls<L: Locks>(t: &Table<L>) -> f64 {
        t.bodies().map(|(_, b)| b.counters.exec.calls).sum()
    }

    /// Of the only entry.
    fn times(t: &Table<&StdLocks>) -> [i64; 4] {
        let (_, b) = t.bodies().next().unwrap();
        [b.stats_since, b.minmax_stats_since, b.counters.first_exec, b.counters.last_exec]
    }

    const MINUTE: i64 = 60_000_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    #[test]
    fn a_clock_that_ran_ahead_is_forgotten_at_the_next_execution_and_told_as_now_until_then() {
        let o = Owned::new(10);
        let t = o.table();
        let (now, ahead) = (5 * MINUTE, 2 * DAY);
        t.update_or_insert(&key(1), NewEntry { now: ahead, ..NEW }, call_of(1, ahead)).unwrap();
        let told = || t.bodies().next().unwrap().1.told_until(now);
        assert!(t.bodies().next().unwrap().1.is_ahead(now));
        let Body { stats_since, minmax_stats_since, counters, .. } = told();
        assert_eq!(
            [stats_since, minmax_stats_since, counters.first_exec, counters.last_exec],
            [now; 4],
            "told, and not changed, as it may be this clock that is wrong"
        );
        assert_eq!(times(&t), [ahead; 4]);
        t.update_or_insert(&key(1), NEW, call_of(1, now)).unwrap();
        assert_eq!(times(&t), [ahead, ahead, now, now]);
        // a statement that took an hour was not the last that began
        t.update_or_insert(&key(1), NEW, call_of(1, now + 2 * MINUTE)).unwrap();
        t.update_or_insert(&key(1), NEW, call_of(1, now + 1 - 60 * MINUTE)).unwrap();
        assert_eq!(times(&t)[3], now + 2 * MINUTE);
        // what passes while a reader reads is not ahead
        let (_, body) = t.bodies().next().unwrap();
        assert!(!Body { stats_since: now, minmax_stats_since: now, ..body }.is_ahead(now + MINUTE));
    }

    #[test]
    fn an_entry_is_made_once_and_counted_into() {
        let o = Owned::new(100);
        let t = o.table();
        let n = t.update_or_insert(&key(1), NEW, call).unwrap();
        assert_eq!(t.update_or_insert(&key(1), NEW, call), Some(n));
        assert_eq!(t.update(n, &key(1), call), Update::Done);
        assert_eq!(t.update(n, &key(2), call), Update::OtherKey);
        assert_eq!((t.entries(), t.lookup(&key(1)), t.lookup(&key(2))), (1, Some(n), None));
        let (_, body) = t.bodies().next().unwrap();
        assert_eq!((body.counters.exec.calls, body.stats_since, body.encoding), (3.0, 100, 6));
        let mut text = Vec::new();
        t.texts.read(body.text, |b| text.extend_from_slice(b));
        assert_eq!(text, b"SELECT $1");
    }

    #[test]
    fn a_full_table_evicts_and_keeps_the_sums() {
        let o = Owned::new(100);
        let t = o.table();
        for q in 1..=1000 {
            assert!(t.update_or_insert(&key(q), NEW, call).is_some());
        }
        assert_eq!(t.entries(), 100);
        assert_eq!(t.dealloc(), 900);
        assert_eq!(calls(&t) + t.evicted().exec.calls, 1000.0);
        assert_eq!(t.evicted().rows, 900.0);
        assert_eq!(t.state.skipped.load(Relaxed), 0);
        assert_eq!(t.texts.used_bytes(), 100 * 128);
    }

    #[test]
    fn a_costly_entry_outlives_a_flood_of_a_million() {
        let o = Owned::new(1000);
        let t = o.table();
        t.update_or_insert(&key(u64::MAX), NEW, call_of(5_000_000_000, 1)).unwrap();
        for q in 1..=1_000_000 {
            t.update_or_insert(&key(q), NEW, call_of(50_000, 1)).unwrap();
        }
        assert!(t.lookup(&key(u64::MAX)).is_some());
        assert_eq!(calls(&t) + t.evicted().exec.calls, 1_000_001.0);
    }

    #[test]
    fn an_eviction_looks_no_further_than_the_first_worth_little() {
        let o = Owned::new(100);
        let t = o.table();
        (1..=2_000).for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call_of(50_000, 1)).is_some()));
        let evictions = t.dealloc();
        let looks = t.state.hand.load(Relaxed) - BATCH * PARTS as u32;
        assert_eq!(evictions, 1_900);
        assert!(u64::from(looks) < evictions + evictions / 10, "{looks}");
    }

    /// Numbers of processes that have a part each, or share some.
    const PROCESSES: [usize; 4] = [1, 2, PARTS, 3 * PARTS + 8];

    #[test]
    fn a_new_entry_is_left_until_the_hand_has_been_at_most_others_whoever_moves_it() {
        for processes in PROCESSES {
            let o = Owned::new(1_000);
            let t = o.table();
            for q in 1..=10_000 {
                PROCESS.set(q as usize % processes);
                assert!(t.update_or_insert(&key(q), NEW, call_of(50_000, 1)).is_some());
                assert!(q < 2_000 || t.lookup(&key(q - 700)).is_some(), "{q} by {processes}");
            }
        }
    }

    #[test]
    fn as_many_worth_much_as_not_outlive_a_flood() {
        for processes in PROCESSES {
            let o = Owned::new(200);
            let t = o.table();
            let much = |q: u64| q.is_multiple_of(2);
            for q in 1..=200 {
                let nanoseconds = if much(q) { 1_000_000 * q } else { 50_000 };
                t.update_or_insert(&key(q), NEW, call_of(nanoseconds, 1)).unwrap();
            }
            for q in 1_000..100_000 {
                PROCESS.set(q as usize % processes);
                assert!(t.update_or_insert(&key(q), NEW, call_of(50_000, 1)).is_some());
            }
            assert!((1..=200).all(|q| t.lookup(&key(q)).is_some() == much(q)), "by {processes}");
        }
    }

    #[test]
    fn those_worth_the_same_that_were_made_one_after_the_other_outlive_a_flood() {
        for (worth_much, processes) in [500, 1_000].into_iter().flat_map(|much| PROCESSES.map(|n| (much, n)))
        {
            let o = Owned::new(1_000);
            let t = o.table();
            for q in 1..=20_000 {
                PROCESS.set(q as usize % processes);
                let nanoseconds = if q <= worth_much { 100_000_000 } else { 50_000 };
                assert!(t.update_or_insert(&key(q), NEW, call_of(nanoseconds, 1)).is_some());
            }
            let left = (1..=worth_much).filter(|q| t.lookup(&key(*q)).is_some()).count() as u64;
            assert!(left >= worth_much - worth_much / 5, "{left} of {worth_much} by {processes}");
        }
    }

    #[test]
    fn where_all_is_worth_much_the_new_takes_the_place_of_about_the_least() {
        let o = Owned::new(64);
        let t = o.table();
        (1..=64)
            .for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call_of(1_000_000_000 * q, 1)).is_some()));
        // one after the other, each worth as much as those in the middle
        (100..200)
            .for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call_of(32_000_000_000, 1)).is_some()));
        assert!((50..=64).filter(|q| t.lookup(&key(*q)).is_some()).count() > 10);
        assert!((1..=15).all(|q| t.lookup(&key(q)).is_none()));
    }

    #[test]
    fn texts_of_all_lengths_take_the_places_of_those_that_went() {
        let o = Owned::new(50);
        let t = o.table();
        let text = |q: u64| vec![q as u8; (q * 37 % 700) as usize];
        for q in 1..=5_000 {
            t.update_or_insert(&key(q), NewEntry { text: &text(q), ..NEW }, call).unwrap();
        }
        let mut blocks = 0;
        for (_, body) in t.bodies() {
            let mut stored = Vec::new();
            t.texts.read(body.text, |b| stored.extend_from_slice(b));
            assert_eq!(stored, text(body.key.queryid));
            blocks += stored.len().div_ceil(BLOCK) as u64;
        }
        assert_eq!(t.texts.used_bytes(), blocks * BLOCK as u64);
    }

    #[test]
    fn a_new_entry_has_nothing_of_the_one_whose_slot_it_takes() {
        let o = Owned::new(1);
        let t = o.table();
        let usage = Usage { blocks: [1; 10], timers: [2; 6], wal: [3; 4] };
        let jit = Jit { functions: 1.0, ..Jit::default() };
        let much = |c: &mut Counters| {
            for (kind, nanoseconds) in [(Kind::Plan, 5), (Kind::Exec, 7_000), (Kind::Exec, 9_000_000)] {
                let (usage, jit, workers) = (Some(&usage), Some(&jit), [1, 2]);
                let (weight, rows, at, shared) = (2.0, 4, 1, Shared::NOTHING);
                c.add(&Event { kind, weight, nanoseconds, rows, usage, jit, workers, at, shared });
            }
            c.add_failure(&Failure {
                weight: 1.0,
                time_weight: 1.0,
                nanoseconds: 1,
                sqlstate: Failure::packed(*b"22012"),
                at: 1,
            });
        };
        t.update_or_insert(&key(1), NEW, much).unwrap();
        t.update_or_insert(&key(2), NEW, call).unwrap();
        let mut expected = Counters::default();
        call(&mut expected);
        let (_, body) = t.bodies().next().unwrap();
        assert_eq!((body.key, body.counters), (key(2), expected));
    }

    #[test]
    fn removed_entries_free_their_slots_and_texts() {
        let o = Owned::new(100);
        let t = o.table();
        for q in 1..=50 {
            t.update_or_insert(&key(q), NEW, call).unwrap();
        }
        assert!(!t.remove_where(|k| k.queryid <= 20));
        assert_eq!((t.entries(), t.texts.used_bytes()), (30, 30 * 128));
        assert!(t.remove_where(|_| true));
        assert_eq!((t.entries(), t.texts.used_bytes(), calls(&t)), (0, 0, 0.0));
        for q in 1..=100 {
            t.update_or_insert(&key(q), NEW, call).unwrap();
        }
        assert_eq!((t.entries(), t.dealloc()), (100, 0));
    }

    #[test]
    fn a_remembered_slot_is_not_believed_after_its_entry_went() {
        let o = Owned::new(100);
        let t = o.table();
        let n = t.update_or_insert(&key(1), NEW, call).unwrap();
        let (_, before) = t.bodies().next().unwrap();
        t.remove_where(|_| true);
        assert_eq!(t.update(n, &key(1), call), Update::OtherKey);
        assert!(!t.unchanged(n, &before));
    }

    #[test]
    fn counts_are_exact_while_threads_insert_evict_and_read() {
        let o = Owned::new(100);
        let t = o.table();
        let (threads, each) = (4u64, 20_000u64);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            let writers: Vec<_> = (0..threads)
                .map(|id| {
                    s.spawn(move || {
                        for i in 0..each {
                            // half on five shared statements, half spread over more than there is room for
                            let q = if i % 2 == 0 { i % 10 } else { 1000 + (i * 7919 + id) % 300 };
                            t.update_or_insert(&key(q + 1), NEW, call).unwrap();
                        }
                    })
                })
                .collect();
            s.spawn(|| {
                while !done.load(Relaxed) {
                    for (n, body) in t.bodies() {
                        let c = &body.counters.exec;
                        assert!(c.min <= c.mean && c.mean <= c.max && c.calls >= 1.0);
                        let mut text = Vec::new();
                        t.texts.read(body.text, |b| text.extend_from_slice(b));
                        assert!(!t.unchanged(n, &body) || text == b"SELECT $1");
                    }
                }
            });
            writers.into_iter().for_each(|w| w.join().unwrap());
            done.store(true, Relaxed);
        });
        assert_eq!(calls(&t) + t.evicted().exec.calls, (threads * each) as f64);
        let mut keys: Vec<u64> = t.bodies().map(|(_, b)| b.key.queryid).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), t.entries() as usize);
    }

    #[test]
    fn threads_that_meet_at_a_new_statement_make_one_entry() {
        for round in 0..200 {
            let o = Owned::new(100);
            let t = o.table();
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|s| {
                for _ in 0..4 {
                    s.spawn(|| {
                        barrier.wait();
                        t.update_or_insert(&key(round), NEW, call).unwrap();
                    });
                }
            });
            assert_eq!((t.entries(), calls(&t)), (1, 4.0));
            assert_eq!(t.texts.used_bytes(), 128);
        }
    }

    /// Gives the entry stripes as contention would.
    fn spread(t: &Table<&StdLocks>, k: &Key) -> u32 {
        let n = t.lookup(k).unwrap();
        t.spread(n, k);
        n
    }

    #[test]
    fn an_entry_with_stripes_is_added_to_there_and_read_as_one() {
        let o = Owned::new(100);
        let t = o.table();
        let k = key(1);
        t.update_or_insert(&k, NEW, call).unwrap();
        let n = spread(&t, &k);
        let Update::Moved(place) = t.update(n, &k, call) else { panic!("no stripes") };
        assert!(place as usize >= t.slots.len());
        assert_eq!(t.settle(n, &k, call), Ok(place));
        assert_eq!(t.update(place, &k, call), Update::Done);
        assert_eq!(t.update_or_insert(&k, NEW, call), Some(place));
        assert_eq!((calls(&t), t.entries(), t.stripes.sets_used()), (4.0, 1, 1));
        assert_eq!(t.update(place, &key(2), call), Update::OtherKey);
    }

    #[test]
    fn a_removed_entry_gives_its_stripes_back_with_what_they_counted() {
        let o = Owned::new(100);
        let t = o.table();
        let k = key(1);
        t.update_or_insert(&k, NEW, call).unwrap();
        let n = spread(&t, &k);
        let place = t.settle(n, &k, call).unwrap();
        let gone = t.remove(n, &k).unwrap();
        assert_eq!((gone.0.exec.calls, t.stripes.sets_used()), (2.0, 0));
        t.put_free(n);
        assert_eq!(t.update(place, &k, call), Update::OtherKey);
        t.update_or_insert(&k, NEW, call).unwrap();
        assert_eq!(calls(&t), 1.0);
    }

    #[test]
    fn what_was_added_to_a_set_that_no_entry_got_is_counted_all_the_same() {
        let o = Owned::new(100);
        let t = o.table();
        let k = key(1);
        let n = t.update_or_insert(&k, NEW, call).unwrap();
        let place = |set| t.slots.len() as u32 + t.stripes.place(set, 0);
        // another backend was quicker
        let set = t.stripes.claim(&k, |_, _| unreachable!()).unwrap();
        assert_eq!(t.update(place(set), &k, call), Update::Done);
        t.spread(n, &k);
        t.give(n, &k, set);
        assert_eq!((calls(&t), t.stripes.sets_used()), (2.0, 1));
        // the entry has gone
        let set = t.stripes.claim(&k, |_, _| unreachable!()).unwrap();
        assert_eq!(t.update(place(set), &k, call), Update::Done);
        t.remove_where(|_| true);
        t.give(n, &k, set);
        assert_eq!((calls(&t), t.evicted().exec.calls, t.stripes.sets_used()), (0.0, 1.0, 0));
    }

    #[test]
    fn a_reset_of_minima_reaches_the_stripes() {
        let o = Owned::new(100);
        let t = o.table();
        let k = key(1);
        t.update_or_insert(&k, NEW, call).unwrap();
        let n = spread(&t, &k);
        t.settle(n, &k, call).unwrap();
        t.reset_minmax_where(900, |_| true);
        let (_, body) = t.bodies().next().unwrap();
        assert!(!body.counters.exec.seen);
        assert_eq!((body.counters.exec.calls, body.minmax_stats_since), (2.0, 900));
    }

    #[test]
    fn minima_of_an_entry_that_is_newer_than_the_request_start_anew_with_it() {
        let o = Owned::new(100);
        let t = o.table();
        t.insert_or_update(&key(1), NewEntry { now: 30, ..NEW }, call).unwrap();
        t.reset_minmax_where(29, |_| true);
        let (_, body) = t.bodies().next().unwrap();
        assert_eq!((body.counters.exec.seen, body.minmax_stats_since), (false, 31));
        assert!(body.minmax_stats_since > body.stats_since, "not of all calls");
    }

    fn read_since(t: &Table<&StdLocks>, since: i64) -> Vec<(u64, f64)> {
        let mut read = Vec::new();
        t.visit_since(since, true, |_, b| read.push((b.key.queryid, b.counters.exec.calls)));
        read
    }

    #[test]
    fn only_what_was_touched_since_is_read() {
        let o = Owned::new(100);
        let t = o.table();
        (1..=3).for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call).is_some()));
        t.tell_time(1000);
        t.update_or_insert(&key(2), NEW, call).unwrap();
        assert_eq!(read_since(&t, 1000), [(2, 2.0)]);
        assert_eq!((read_since(&t, 7).len(), read_since(&t, 1001).len()), (3, 0));
        // in a stripe
        let n = spread(&t, &key(1));
        assert_eq!(read_since(&t, 1000), [(2, 2.0)]);
        t.tell_time(2000);
        t.settle(n, &key(1), call).unwrap();
        assert_eq!(read_since(&t, 2000), [(1, 2.0)]);
        // looking whether it is there is no change, a reset of minima is one
        t.tell_time(3000);
        assert!(t.has(t.lookup(&key(3)).unwrap(), &key(3)) && !t.has(0, &key(9)));
        assert_eq!(read_since(&t, 3000), []);
        t.reset_minmax_where(3000, |k| k.queryid == 3);
        assert_eq!(read_since(&t, 3000), [(3, 1.0)]);
        // time never goes back
        t.tell_time(5);
        t.update_or_insert(&key(2), NEW, call).unwrap();
        assert_eq!(read_since(&t, 3000).len(), 2);
    }

    /// Who reads everything once, and then only what was touched since his last reading began, knows everything: no
    /// change falls between two readings. The time is the reader's own alone, one tick a reading.
    #[test]
    fn a_reader_of_changes_misses_none() {
        let o = Owned::new(50);
        let (threads, each) = (3u64, 30_000u64);
        let done = AtomicBool::new(false);
        let mut known = std::collections::HashMap::new();
        std::thread::scope(|s| {
            let adding: Vec<_> = (0..threads)
                .map(|thread| {
                    s.spawn({
                        let t = o.table();
                        move || {
                            for i in 0..each {
                                let k =
                                    key(if i % 8 == 0 { 100 + (i * threads + thread) % 300 } else { i % 2 });
                                t.update_or_insert(&k, NEW, call).unwrap();
                            }
                        }
                    })
                })
                .collect();
            s.spawn(|| {
                let t = o.table();
                let (mut last, mut now) = (EVER, 8);
                let mut read = |finally: bool| {
                    t.tell_time(now);
                    known.extend(read_since(&t, last));
                    (last, now) = (now, now + 1);
                    if !finally && let Some(n) = t.lookup(&key(now as u64 % 2)) {
                        t.spread(n, &key(now as u64 % 2));
                    }
                };
                while !done.load(Relaxed) {
                    read(false);
                }
                read(true);
            });
            adding.into_iter().for_each(|a| a.join().unwrap());
            done.store(true, Relaxed);
        });
        let entries = read_since(&o.table(), EVER);
        assert_eq!(entries.len(), 50);
        for (queryid, calls) in entries {
            assert_eq!(known.get(&queryid), Some(&calls), "{queryid}");
        }
    }

    #[test]
    fn an_entry_that_was_taken_goes_on_from_nothing_with_its_text() {
        let o = Owned::new(8);
        let t = o.table();
        let (k, n) = (key(1), t.update_or_insert(&key(1), NEW, call).unwrap());
        spread(&t, &k);
        t.settle(n, &k, call).unwrap();
        let (_, seen) = t.bodies().next().unwrap();
        let taken = t.take(n, &seen, 500).unwrap();
        assert_eq!((taken.counters.exec.calls, taken.stats_since), (2.0, 100));
        // it is there, but shows nothing, and there is nothing more to take
        assert_eq!((t.entries(), t.bodies().count(), t.take(n, &seen, 501).is_none()), (1, 0, true));
        assert_eq!(t.bodies_of(1).next().unwrap().1.text, seen.text);
        t.reset_minmax_where(600, |_| true);
        assert_eq!(t.bodies().count(), 0);
        t.settle(n, &k, call_of(7, 1000)).unwrap();
        let (_, again) = t.bodies().next().unwrap();
        assert_eq!(
            (again.counters.exec.calls, again.counters.first_exec, again.text),
            (1.0, 1000, seen.text)
        );
        t.give_back(&taken);
        let (_, whole) = t.bodies().next().unwrap();
        assert_eq!((whole.counters.exec.calls, whole.stats_since), (3.0, 100));
        // of another entry nothing is taken
        t.remove_where(|_| true);
        t.update_or_insert(&k, NEW, call).unwrap();
        assert!((0..8).all(|n| t.take(n, &seen, 502).is_none()));
        // what has no entry any more is evicted
        t.remove_where(|_| true);
        t.give_back(&taken);
        assert_eq!((t.evicted().exec.calls, t.bodies().count()), (2.0, 0));
    }

    #[test]
    fn to_give_up_an_entry_that_was_taken_and_not_used_since_is_no_loss() {
        let o = Owned::new(8);
        let t = o.table();
        (1..=8).for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call).is_some()));
        t.bodies().for_each(|(n, seen)| assert!(t.take(n, &seen, 500).is_some()));
        t.update_or_insert(&key(9), NEW, call).unwrap();
        assert_eq!((t.entries(), t.dealloc(), calls(&t)), (8, 0, 1.0));
    }

    #[test]
    fn no_call_is_lost_while_entries_are_taken_given_back_and_evicted() {
        let o = Owned::new(16);
        let (threads, each) = (3, 20_000u64);
        let done = AtomicBool::new(false);
        let mut delivered = 0.0;
        std::thread::scope(|s| {
            let adding: Vec<_> = (0..threads)
                .map(|thread| {
                    s.spawn({
                        let t = o.table();
                        move || {
                            for i in 0..each {
                                let k = key(if i % 16 == 0 { 100 + i * threads + thread } else { i % 2 });
                                t.update_or_insert(&k, NEW, call).unwrap();
                            }
                        }
                    })
                })
                .collect();
            s.spawn(|| {
                let t = o.table();
                let mut round = 0;
                while !done.load(Relaxed) {
                    for (n, seen) in t.bodies() {
                        round += 1;
                        match t.take(n, &seen, 500) {
                            Some(taken) if round % 3 == 0 => t.give_back(&taken),
                            Some(taken) => delivered += taken.counters.exec.calls,
                            None => {}
                        }
                    }
                    [key(0), key(1)].iter().for_each(|k| {
                        if let Some(n) = t.lookup(k) {
                            t.spread(n, k);
                        }
                    });
                }
            });
            adding.into_iter().for_each(|a| a.join().unwrap());
            done.store(true, Relaxed);
        });
        let t = o.table();
        assert!(delivered > 0.0 && t.evicted().exec.calls > 0.0);
        assert_eq!(delivered + calls(&t) + t.evicted().exec.calls, (threads * each) as f64);
    }

    #[test]
    fn a_reader_waits_for_ever_for_nobody() {
        let o = Owned::new(100);
        let t = o.table();
        t.update_or_insert(&key(1), NEW, call).unwrap();
        t.update_or_insert(&key(2), NEW, call).unwrap();
        spread(&t, &key(1));
        let _held = (held_elsewhere(&t.stripes.all[0].0), held_elsewhere(&t.part().evicted));
        assert_eq!(t.bodies().map(|(_, body)| body.key.queryid).collect::<Vec<_>>(), [2]);
        assert_eq!(t.evicted(), Evicted::default());
    }

    /// A process that was stopped with the entry's lock held costs the others those calls, and nothing else.
    #[test]
    fn calls_of_an_entry_that_is_stuck_are_skipped_until_its_holder_goes_on() {
        let o = Owned::new(8);
        let t = o.table();
        let k = key(1);
        let n = t.update_or_insert(&k, NEW, call).unwrap();
        let held = held_elsewhere(&t.slots[n as usize].body);
        assert_eq!(t.update(n, &k, call), Update::Busy);
        assert_eq!(t.insert_or_update(&k, NEW, call), None);
        assert_eq!(t.state.skipped.load(Relaxed), 1);
        assert!(!t.has(n, &k) && t.bodies().count() == 0 && t.take(n, &Body::default(), 9).is_none());
        // others come, and one after the other drives the last one out, but not it
        (2..100).for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call).is_some()));
        assert_eq!((t.remove_where(|_| true), t.entries()), (false, 1));
        drop(held);
        assert_eq!(t.settle(n, &k, call), Ok(n));
        assert_eq!((calls(&t), t.state.skipped.load(Relaxed)), (2.0, 1));
    }

    /// It was stopped while it looked whether the slot is an entry.
    #[test]
    fn a_free_slot_that_is_stuck_is_passed_over() {
        let o = Owned::new(8);
        let t = o.table();
        let _held = (held_elsewhere(&t.slots[0].body), held_elsewhere(&t.slots[3].body));
        for q in 1..=20 {
            assert!(!matches!(t.update_or_insert(&key(q), NEW, call), None | Some(0 | 3)));
        }
        assert_eq!((t.entries(), calls(&t) + t.evicted().exec.calls), (6, 20.0));
        assert_eq!(t.texts.used_bytes(), 6 * 128);
    }

    #[test]
    fn when_every_slot_is_stuck_calls_are_skipped_and_texts_are_given_back() {
        let o = Owned::new(2);
        let t = o.table();
        let held = (held_elsewhere(&t.slots[0].body), held_elsewhere(&t.slots[1].body));
        assert_eq!(t.update_or_insert(&key(1), NEW, call), None);
        assert_eq!((t.entries(), t.texts.used_bytes(), t.state.skipped.load(Relaxed)), (0, 0, 1));
        drop(held);
        assert!((1..=2).all(|q| t.update_or_insert(&key(q), NEW, call).is_some()));
        assert_eq!(calls(&t), 2.0);
    }

    #[test]
    fn a_stripe_that_is_stuck_costs_its_set_for_as_long_and_nothing_in_the_end() {
        let o = Owned::new(8);
        let t = o.table();
        let k = key(1);
        let n = t.update_or_insert(&k, NEW, call).unwrap();
        let set = spread(&t, &k);
        let place = t.settle(set, &k, call).unwrap();
        let held = held_elsewhere(&t.stripes.all[place as usize - t.slots.len()].0);
        assert_eq!(t.settle(n, &k, call), Err(Update::Busy));
        t.reset_minmax_where(9, |_| true);
        assert_eq!(t.remove(n, &k).map(|(gone, _)| gone.exec.calls), Some(1.0));
        t.put_free(n);
        // another set will do
        t.update_or_insert(&key(2), NEW, call).unwrap();
        spread(&t, &key(2));
        assert_eq!((t.stripes.sets_used(), calls(&t)), (1, 1.0));
        drop(held);
        // who remembers the place does not count where nobody reads
        assert_eq!(t.settle(place, &k, call), Err(Update::OtherKey));
        // what is in it is found where its set is needed
        t.update_or_insert(&key(3), NEW, call).unwrap();
        let n = spread(&t, &key(3));
        assert_eq!(t.settle(n, &key(3), call), Ok(place));
        assert_eq!((t.stripes.sets_used(), calls(&t), t.evicted().exec.calls), (2, 3.0, 1.0));
    }

    #[test]
    fn what_is_added_to_a_set_that_is_being_claimed_in_vain_is_counted() {
        let o = Owned::new(8);
        let t = o.table();
        let k = key(1);
        let n = t.update_or_insert(&k, NEW, call).unwrap();
        let width = t.stripes.all.len() / SETS;
        let held: Vec<_> = (0..SETS).map(|set| held_elsewhere(&t.stripes.all[set * width + 1].0)).collect();
        // as by a backend that remembers the first stripe of each set
        let mut found = 0.0;
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            let adding = s.spawn(|| {
                let mut added = 0.0;
                while !done.load(Relaxed) {
                    let places = (0..SETS).map(|set| (t.slots.len() + set * width) as u32);
                    added += places.filter(|place| t.update(*place, &k, call) == Update::Done).count() as f64;
                }
                added
            });
            // until the other has been there in time, too
            for round in 0..1_000_000 {
                assert_eq!(t.stripes.claim(&k, |_, c| found += c.exec.calls), None);
                if round >= 2000 && found > 0.0 {
                    break;
                }
            }
            done.store(true, Relaxed);
            let added = adding.join().unwrap();
            assert!(added > 0.0 && added == found, "{added} {found}");
        });
        drop(held);
        t.spread(n, &k);
        assert_eq!((t.stripes.sets_used(), calls(&t)), (1, 1.0));
    }

    #[test]
    fn what_is_evicted_while_the_totals_are_stuck_is_skipped() {
        let o = Owned::new(2);
        let t = o.table();
        let held = held_elsewhere(&t.part().evicted);
        (1..=3).for_each(|q| assert!(t.update_or_insert(&key(q), NEW, call).is_some()));
        t.reset_totals(5);
        assert_eq!((calls(&t), t.evicted(), t.dealloc()), (2.0, Evicted::default(), 0));
        drop(held);
        t.update_or_insert(&key(4), NEW, call).unwrap();
        assert_eq!((t.evicted().exec.calls, t.dealloc()), (1.0, 1));
    }

    #[test]
    fn when_all_sets_are_taken_entries_do_without() {
        let o = Owned::new(100);
        let t = o.table();
        for id in 1..=SETS as u64 + 5 {
            t.update_or_insert(&key(id), NEW, call).unwrap();
            spread(&t, &key(id));
        }
        assert_eq!(t.stripes.sets_used(), SETS as u32);
        for id in 1..=SETS as u64 + 5 {
            t.update_or_insert(&key(id), NEW, call).unwrap();
        }
        assert_eq!(calls(&t), 2.0 * (SETS as f64 + 5.0));
    }

    #[test]
    fn contention_brings_stripes_and_loses_no_call() {
        let o = Owned::new(100);
        let t = o.table();
        let k = key(1);
        let n = t.update_or_insert(&k, NEW, call).unwrap();
        for _ in 0..8 {
            let held = held_elsewhere(&t.slots[n as usize].body);
            std::thread::scope(|s| {
                let waits = t.state.lock_waits.load(Relaxed);
                s.spawn(|| t.settle(n, &k, call).unwrap());
                while t.state.lock_waits.load(Relaxed) == waits {
                    std::thread::yield_now();
                }
                drop(held);
            });
        }
        assert_eq!((calls(&t), t.stripes.sets_used()), (9.0, 1));
    }

    #[test]
    fn no_call_is_lost_while_entries_get_stripes_and_go() {
        let o = Owned::new(8);
        let (threads, each) = (4, 20_000u64);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            let adding: Vec<_> = (0..threads)
                .map(|thread| {
                    s.spawn({
                        let t = o.table();
                        move || {
                            let mut place = 0;
                            for i in 0..each {
                                // two hot statements, and now and then one that drives others out
                                let k = key(if i % 64 == 0 { 100 + i * threads + thread } else { i % 2 });
                                place = match t.settle(place, &k, call) {
                                    Ok(place) => place,
                                    Err(_) => t.update_or_insert(&k, NEW, call).unwrap(),
                                };
                            }
                        }
                    })
                })
                .collect();
            s.spawn(|| {
                let t = o.table();
                while !done.load(Relaxed) {
                    for k in [key(0), key(1)] {
                        if let Some(n) = t.lookup(&k) {
                            t.spread(n, &k);
                        }
                    }
                    t.bodies().for_each(|(_, b)| assert!(b.counters.exec.calls > 0.0));
                }
            });
            adding.into_iter().for_each(|a| a.join().unwrap());
            done.store(true, Relaxed);
        });
        let t = o.table();
        assert_eq!(calls(&t) + t.evicted().exec.calls, (threads * each) as f64);
        let (_, removed) = (t.remove_where(|_| true), t.stripes.sets_used());
        assert_eq!(removed, 0);
    }
}
