//! How long executions took: calls by classes of time, four to each doubling from a microsecond to over an hour.
//!
//! A class's upper bound is 2^(1/4) times its lower one. A percentile is told as the value that is at most 8.7 % off
//! whatever the true one in the class is: 2ab/(a + b) for the bounds a and b. Classes are sums of weights, so histograms
//! of sampled statements, of several entries or of several servers are added class by class.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::mem::offset_of;

pub const CLASSES: usize = 128;
const PER_DOUBLING: usize = 4;
/// The first class ends a quarter of a doubling above 2^10 nanoseconds; all shorter times are in it too.
const FIRST_EXPONENT: u32 = 10;
/// 2^(1/4), 2^(1/2) and 2^(3/4) as the first 32 of a double's bits after the leading one.
const QUARTERS: [u32; 3] = [0x306f_e0a4, 0x6a09_e668, 0xae89_f996];
const NS_PER_MS: f64 = 1e6;

/// Calls by class.
///
/// As long as all calls are of one class, which is so of most entries that are soon evicted, this is all that is written:
/// the classes' array is many cache lines, and what is in it does not count yet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Histogram {
    /// The class that has calls, or [`NO_CLASS`], or [`MANY`].
    only: u32,
    /// The calls of that class.
    calls: f64,
    classes: [f64; CLASSES],
}

const NO_CLASS: u32 = u32::MAX;
const MANY: u32 = NO_CLASS - 1;

impl Default for Histogram {
    fn default() -> Self {
        Histogram { only: NO_CLASS, calls: 0.0, classes: [0.0; CLASSES] }
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        self.filled().eq(other.filled())
    }
}

/// The class of a time in nanoseconds, from the bits of the number itself.
#[inline(always)]
fn class(nanoseconds: f64) -> usize {
    let bits = nanoseconds.to_bits();
    let doublings = (bits >> 52) as i32 - (1023 + FIRST_EXPONENT as i32);
    if doublings < 0 {
        return 0;
    }
    let rest = (bits >> 20) as u32;
    let [a, b, c] = QUARTERS.map(|q| u32::from(rest >= q));
    let class = doublings as u32 * PER_DOUBLING as u32 + a + b + c;
    (class as usize).min(CLASSES - 1)
}

/// Bounds of a class in ms: from the first, up to but without the second.
pub fn bounds(class: usize) -> (f64, f64) {
    let bound = |n: usize| (f64::from(FIRST_EXPONENT) + n as f64 / PER_DOUBLING as f64).exp2() / NS_PER_MS;
    let lower = if class == 0 { 0.0 } else { bound(class) };
    let upper = if class + 1 == CLASSES { f64::INFINITY } else { bound(class + 1) };
    (lower, upper)
}

/// The value in ms that stands for all of a class.
fn middle(class: usize) -> f64 {
    /// Of the first classes, in ns: 2^10 and the next three quarters of a doubling, times 2r/(1 + r) for r = 2^(1/4).
    const MIDDLES: [f64; PER_DOUBLING] =
        [1112.5014873353111, 1322.9946841902615, 1573.314691549837, 1870.9970253293777];
    MIDDLES[class % PER_DOUBLING] * (1u64 << (class / PER_DOUBLING)) as f64 / NS_PER_MS
}

impl Histogram {
    /// Bytes up to the classes' array.
    pub const HEAD: usize = offset_of!(Histogram, classes);

    #[inline(always)]
    pub fn add(&mut self, weight: f64, nanoseconds: f64) {
        let class = class(nanoseconds);
        if self.only == MANY {
            self.classes[class] += weight;
        } else if self.only == class as u32 {
            self.calls += weight;
        } else {
            self.add_to(class, weight);
        }
    }

    #[inline(never)]
    fn add_to(&mut self, class: usize, calls: f64) {
        if self.only == NO_CLASS {
            (self.only, self.calls) = (class as u32, 0.0);
        }
        if self.only == class as u32 {
            self.calls += calls;
        } else {
            self.spread()[class] += calls;
        }
    }

    /// The array, which is what counts from now on.
    fn spread(&mut self) -> &mut [f64; CLASSES] {
        if self.only != MANY {
            self.classes = [0.0; CLASSES];
            if let Some(only) = self.classes.get_mut(self.only as usize) {
                *only = self.calls;
            }
            self.only = MANY;
        }
        &mut self.classes
    }

    /// Begins anew with no calls.
    pub fn clear(&mut self) {
        self.only = NO_CLASS;
    }

    pub fn merge(&mut self, other: &Histogram) {
        if other.only == MANY {
            self.spread().iter_mut().zip(&other.classes).for_each(|(sum, x)| *sum += x);
        } else {
            other.filled().for_each(|(class, calls)| self.add_to(class, calls));
        }
    }

    /// Classes that have calls, with these.
    pub fn filled(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let only = (self.only < CLASSES as u32).then_some((self.only as usize, self.calls));
        let many = if self.only == MANY { &self.classes[..] } else { &[] };
        only.into_iter().chain(many.iter().copied().enumerate()).filter(|(_, calls)| *calls > 0.0)
    }

    pub fn calls(&self) -> f64 {
        if self.only != MANY {
            return if self.only == NO_CLASS { 0.0 } else { self.calls };
        }
        // side by side: one addition would have to wait for the other
        let mut sums = [0.0; 8];
        for classes in self.classes.chunks_exact(sums.len()) {
            sums.iter_mut().zip(classes).for_each(|(sum, calls)| *sum += calls);
        }
        sums.iter().sum()
    }

    /// The time in ms that the given fraction of the calls (0 to 1) did not exceed, at most 8.7 % off from a microsecond
    /// to an hour; `None` if there are no calls.
    pub fn percentile(&self, fraction: f64) -> Option<f64> {
        self.percentiles([fraction])[0]
    }

    /// Several at a time; the fractions in order.
    pub fn percentiles<const N: usize>(&self, fractions: [f64; N]) -> [Option<f64>; N] {
        let calls = self.calls();
        let mut filled = self.filled().peekable();
        let (mut sum, mut at) = (0.0, None);
        fractions.map(|fraction| {
            while at.is_none() || sum < fraction * calls {
                let Some((class, calls)) = filled.next() else { break };
                sum += calls;
                at = Some(class);
            }
            at.map(middle)
        })
    }
}

/// Only the classes that have calls are written.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.filled())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut histogram = Histogram::default();
        for (class, calls) in Vec::<(usize, f64)>::deserialize(deserializer)? {
            if class < CLASSES {
                histogram.add_to(class, calls);
            }
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_time_is_within_its_class() {
        for exponent in 0..63u32 {
            for part in [1.0, 1.1, 1.1892, 1.1893, 1.414, 1.4143, 1.6817, 1.6818, 1.9999] {
                let ns = (f64::from(exponent).exp2() * part) as u64;
                let (lower, upper) = bounds(class(ns as f64));
                let ms = ns as f64 / NS_PER_MS;
                assert!(lower * (1.0 - 1e-9) <= ms && ms < upper * (1.0 + 1e-9), "{ns}: {lower} to {upper}");
            }
        }
        assert_eq!((class(0.0), class(1023.0), class(1e19)), (0, 0, CLASSES - 1));
    }

    #[test]
    fn classes_follow_on_each_other_up_to_more_than_an_hour() {
        assert!((0..CLASSES - 1).all(|n| bounds(n).1 == bounds(n + 1).0));
        assert_eq!((bounds(0).0, bounds(CLASSES - 1).1), (0.0, f64::INFINITY));
        assert!(bounds(CLASSES - 1).0 > 3_600_000.0);
        assert!(bounds(1).0 < 0.00125);
    }

    #[test]
    fn the_middle_is_as_far_from_both_bounds_in_proportion() {
        for class in 1..CLASSES - 1 {
            let ((a, b), m) = (bounds(class), middle(class));
            assert!((m / (2.0 * a * b / (a + b)) - 1.0).abs() < 1e-12, "{class}");
        }
        assert_eq!(middle(CLASSES - 1), middle(CLASSES - 5) * 2.0);
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Histogram::default().percentile(0.5), None);
    }

    #[test]
    fn merging_adds_class_by_class() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.add(1.0, 5e3);
        b.add(2.5, 5e3);
        b.add(4.0, 1e6);
        a.merge(&b);
        assert_eq!(a.filled().map(|(_, calls)| calls).collect::<Vec<_>>(), [3.5, 4.0]);
        assert_eq!(a.calls(), 7.5);
    }

    #[test]
    fn what_was_cleared_has_nothing_of_before() {
        let mut h = Histogram::default();
        let again = |h: &mut Histogram, times: &[f64]| {
            h.clear();
            assert_eq!((*h, h.calls(), h.percentile(0.5)), (Histogram::default(), 0.0, None));
            times.iter().for_each(|ns| h.add(2.0, *ns));
            let mut sum = Histogram::default();
            sum.merge(h);
            assert_eq!(sum, *h);
            h.filled().collect::<Vec<_>>()
        };
        assert_eq!(again(&mut h, &[5e3, 1e6, 5e3]), [(9, 4.0), (39, 2.0)]);
        assert_eq!(again(&mut h, &[2e3, 2e3]), [(3, 4.0)]);
        assert_eq!(again(&mut h, &[2e3, 1e6]), [(3, 2.0), (39, 2.0)]);
    }

    #[test]
    fn what_was_written_is_read_again_and_strange_classes_are_passed_over() {
        let mut h = Histogram::default();
        h.add(3.0, 5e3);
        h.add(0.5, 1e19);
        let json = serde_json::to_string(&h).unwrap();
        assert_eq!(json, "[[9,3.0],[127,0.5]]");
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), h);
        assert_eq!(serde_json::from_str::<Histogram>("[[500,3.0]]").unwrap(), Histogram::default());
    }

    proptest! {
        #[test]
        fn added_or_merged_in_any_order_it_is_the_sum_by_class(
            parts in prop::collection::vec(prop::collection::vec(0usize..6, 0..4), 0..6),
        ) {
            let (mut sum, mut model) = (Histogram::default(), [0.0; CLASSES]);
            for part in parts {
                let mut h = Histogram::default();
                for n in part {
                    h.add(1.0, [0.0, 900.0, 5e3, 1e6, 1e9, 1e19][n]);
                    model[class([0.0, 900.0, 5e3, 1e6, 1e9, 1e19][n])] += 1.0;
                }
                sum.merge(&h);
            }
            let filled = model.iter().copied().enumerate().filter(|(_, calls)| *calls > 0.0);
            prop_assert!(sum.filled().eq(filled));
            prop_assert_eq!(sum.calls(), model.iter().sum::<f64>());
        }

        #[test]
        fn percentiles_are_at_most_a_tenth_off(
            mut times in prop::collection::vec(1_000u64..3_600_000_000_000, 1..300),
            fraction in 0.0f64..=1.0,
        ) {
            let mut h = Histogram::default();
            times.iter().for_each(|t| h.add(1.0, *t as f64));
            times.sort_unstable();
            let rank = ((fraction * times.len() as f64).ceil() as usize).max(1) - 1;
            let (told, truth) = (h.percentile(fraction).unwrap(), times[rank] as f64 / NS_PER_MS);
            prop_assert!((told - truth).abs() <= 0.1 * truth, "{told} for {truth}");
        }
    }
}
