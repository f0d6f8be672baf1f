//! Shares of hot entries: what keeps one hot statement from being a bottleneck on many cores.
//!
//! An entry whose lock is found held again and again gets a set of stripes. Each stripe is a lock and counters on cache
//! lines of its own, and a backend uses the one that its number picks, so backends on different cores do not meet.
//! Readers add the stripes up; when the entry goes, they go back to the pool.
//!
//! A stripe says whose it is under its own lock, so a backend that remembers one may use it without looking at the entry.
//! Who has a set, and when, is the table's business ([`crate::table`]).

use crate::counters::Counters;
use crate::key::Key;
use crate::pg::spin::{Mutex, prefetch};
use crate::primitives::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::table::{NEVER, PATIENCE};
use std::mem::offset_of;

/// Entries that can have stripes at a time: one bit each.
pub const SETS: usize = if cfg!(loom) { 2 } else { 64 };

/// What a stripe's lock guards.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Share {
    pub key: Key,
    /// Whether it is a share of `key`'s entry.
    pub used: bool,
    /// As the entry's own, for what was added here.
    pub touched: i64,
    pub counters: Counters,
}

impl Share {
    fn nothing(key: Key, used: bool) -> Self {
        Share { key, used, touched: NEVER, counters: Counters::default() }
    }

    fn merge(&mut self, other: &Share) {
        self.counters.merge(&other.counters);
        self.touched = self.touched.max(other.touched);
    }
}

/// One share, on cache lines of its own (processors fetch them in pairs).
#[derive(Default)]
#[repr(C, align(128))]
pub struct Stripe(pub Mutex<Share>);

const _: () = assert!(cfg!(loom) || size_of::<Stripe>() == 1664);

impl Stripe {
    /// Has the processor fetch what an update will change.
    #[inline(always)]
    pub fn prefetch(&self) {
        let lock = size_of::<Mutex<Share>>() - size_of::<Share>();
        let counters = lock + offset_of!(Share, counters);
        prefetch(self, 0..counters + Counters::UPDATED.end);
        prefetch(self, counters + Counters::HISTOGRAM.start..counters + Counters::HISTOGRAM.end);
    }
}

/// Which sets are nobody's.
#[derive(Default)]
#[repr(C, align(128))]
pub struct StripesState {
    free: AtomicU64,
}

/// The pool, over its parts in shared memory: [`SETS`] sets of equal width, a power of two.
#[derive(Clone, Copy)]
pub struct Stripes<'a> {
    pub state: &'a StripesState,
    pub all: &'a [Stripe],
}

/// Stripes in a set, for so many processors: enough that backends that run at the same time seldom have the same.
pub fn width(processors: usize) -> usize {
    (2 * processors).next_power_of_two().clamp(2, 256)
}

/// Makes the stripe `key`'s, unless it is held.
fn make_ready(stripe: &Stripe, key: &Key, found: &mut impl FnMut(&Key, &Counters)) -> bool {
    let Some(mut share) = stripe.0.try_lock() else { return false };
    let before = *share;
    *share = Share::nothing(*key, true);
    drop(share);
    // it was held when its set was given back
    if before.used {
        found(&before.key, &before.counters);
    }
    true
}

/// Makes the stripe nobody's, and takes what is in it; `None` if that is so already or it is held beyond all patience.
fn take_back(stripe: &Stripe) -> Option<Share> {
    let mut share = stripe.0.try_lock_for(PATIENCE).filter(|share| share.used)?;
    share.used = false;
    Some(*share)
}

impl Stripes<'_> {
    /// Makes all sets free. Once, before anyone else looks.
    pub fn init(&self) {
        self.state.free.store(u64::MAX >> (64 - SETS), Relaxed);
    }

    /// Sets that entries have.
    pub fn sets_used(&self) -> u32 {
        SETS as u32 - self.state.free.load(Relaxed).count_ones()
    }

    fn width(&self) -> usize {
        self.all.len() / SETS
    }

    /// Number of the stripe that a process uses of a set.
    pub fn place(&self, set: u32, process: usize) -> u32 {
        let width = self.width();
        (set as usize * width + process % width) as u32
    }

    fn of(&self, set: u32) -> &[Stripe] {
        let width = self.width();
        self.all.get(set as usize * width..).and_then(|rest| rest.get(..width)).unwrap_or(&[])
    }

    /// Whether the set of the stripe at `place` is some entry's, or about to become one's.
    #[inline(always)]
    pub fn is_taken(&self, place: usize) -> bool {
        let set = place >> self.width().trailing_zeros();
        self.state.free.load(Relaxed) & 1 << set == 0
    }

    /// A free set, made ready for `key`'s entry; nobody knows of it yet. Waits for no lock: who has one reads, or was
    /// stopped, and then another set will do. `found` is told what was counted in stripes that are nobody's.
    pub fn claim(&self, key: &Key, mut found: impl FnMut(&Key, &Counters)) -> Option<u32> {
        let mut tried = 0;
        loop {
            let lowest = |free: u64| {
                let left = free & !tried;
                (left != 0).then(|| free & !(left & left.wrapping_neg()))
            };
            let before = self.state.free.fetch_update(AcqRel, Acquire, lowest).ok()?;
            let set = (before & !tried).trailing_zeros();
            let stuck = self.of(set).iter().position(|stripe| !make_ready(stripe, key, &mut found));
            let Some(stuck) = stuck else { return Some(set) };
            for stripe in &self.of(set)[..stuck] {
                if let Some(share) = take_back(stripe) {
                    found(key, &share.counters);
                }
            }
            self.state.free.fetch_or(1 << set, AcqRel);
            tried |= 1 << set;
        }
    }

    /// Gives the set back; what its stripes had counted. A stripe that is held beyond all patience keeps what is in it
    /// until the set is claimed again.
    pub fn release(&self, set: u32) -> Counters {
        let mut sum = Counters::default();
        for share in self.of(set).iter().filter_map(take_back) {
            sum.merge(&share.counters);
        }
        self.state.free.fetch_or(1 << set, AcqRel);
        sum
    }

    /// What the stripes have counted so far; `None` if they are not, or not all, `key`'s any more, or one is held beyond
    /// all patience.
    pub fn sum(&self, set: u32, key: &Key) -> Option<Share> {
        let mut sum = Share::nothing(*key, true);
        for stripe in self.of(set) {
            let share = *stripe.0.try_lock_for(PATIENCE)?;
            if !share.used || share.key != *key {
                return None;
            }
            sum.merge(&share);
        }
        Some(sum)
    }

    /// Takes what those stripes that are `key`'s have counted; they go on from nothing. What is in one that is held
    /// beyond all patience stays.
    pub fn take(&self, set: u32, key: &Key) -> Share {
        let mut sum = Share::nothing(*key, true);
        for stripe in self.of(set) {
            let Some(mut share) = stripe.0.try_lock_for(PATIENCE) else { continue };
            if !share.used || share.key != *key || share.touched == NEVER {
                continue;
            }
            let taken = *share;
            *share = Share::nothing(*key, true);
            drop(share);
            sum.merge(&taken);
        }
        sum
    }

    /// Starts min and max of `key`'s stripes anew.
    pub fn reset_minmax(&self, set: u32, key: &Key) {
        for stripe in self.of(set) {
            let Some(mut share) = stripe.0.try_lock_for(PATIENCE) else { continue };
            if share.used && share.key == *key {
                share.counters.reset_minmax();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_twice_as_many_stripes_as_processors_or_up_to_twice_that() {
        // docs/scaling.md counts with the last two
        assert_eq!([1, 2, 48, 192].map(width), [2, 4, 128, 256]);
    }
}
