//! Time from a counter of the processor, checked against the system's clock.
//!
//! Reading the time stamp counter takes a fraction of what `clock_gettime` does. It is worth that only while it runs as
//! the system's monotonic clock does, so the two are compared again and again ([`Ticks::check`]): the rate is taken anew
//! from the time since the last comparison, and a counter that went astray (a suspended machine, a virtual one that was
//! moved) is given up. Durations are then those of the system's clock from the last comparison on, never negative and
//! never longer than what really passed since then.

/// Both clocks read at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    pub ticks: u64,
    /// Nanoseconds of the system's monotonic clock.
    pub ns: u64,
}

/// How ticks relate to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticks {
    /// Nanoseconds a tick.
    pub rate: f64,
    /// Of the last comparison; `None` before the first.
    pub last: Option<Moment>,
}

/// The rates from 100 MHz to 100 GHz that a counter may have.
const SANE: std::ops::RangeInclusive<f64> = 0.01..=10.0;
/// No counter goes so far: a higher reading is a mistake, and leaves room for a mark.
pub const MOST: u64 = 1 << 62;
/// Binary places of a factor: with the rates above it fits, and is exact to 2 in a billion.
const SHIFT: u32 = 32;
/// What the clocks may differ by between two comparisons: 1 %, far more than a clock is ever slewed, and the time that a
/// pair of readings may be apart.
const TOLERANCE: f64 = 0.01;
const APART: f64 = 50_000.0;

impl Ticks {
    /// The rate between two moments; `None` if that is no counter's.
    pub fn calibrate(from: Moment, to: Moment) -> Option<Self> {
        let (ticks, ns) = (to.ticks.checked_sub(from.ticks)?, to.ns.checked_sub(from.ns)?);
        if to.ticks > MOST {
            return None;
        }
        let rate = ns as f64 / ticks as f64;
        SANE.contains(&rate).then_some(Ticks { rate, last: None })
    }

    /// Compares the clocks. `None`: the counter is not to be trusted any more.
    pub fn check(&self, now: Moment) -> Option<Self> {
        let Some(last) = self.last else {
            return Some(Ticks { last: Some(now), ..*self });
        };
        if now.ticks > MOST {
            return None;
        }
        let ticks = now.ticks.checked_sub(last.ticks)?;
        let ns = now.ns.checked_sub(last.ns)? as f64;
        let off = (ticks as f64 * self.rate - ns).abs();
        if off > APART + TOLERANCE * ns {
            return None;
        }
        // where the readings' being apart would matter the rate stays
        let rate = if ns > 1000.0 * APART { ns / ticks as f64 } else { self.rate };
        Some(Ticks { rate, last: Some(now) })
    }

    /// The rate as [`nanoseconds`] takes it.
    pub fn factor(&self) -> u64 {
        (self.rate * (1u64 << SHIFT) as f64) as u64
    }

    /// The system's time at a reading of the counter; not before the readings began, nor after `now`.
    pub fn system(&self, ticks: u64, now: u64) -> u64 {
        let Some(last) = self.last else { return now };
        let since = ticks.wrapping_sub(last.ticks) as i64 as f64 * self.rate;
        let ns = (last.ns as f64 + since).max(0.0) as u64;
        ns.min(now)
    }
}

/// A number of ticks in nanoseconds; `factor` as [`Ticks::factor`] has it.
#[inline(always)]
pub fn nanoseconds(factor: u64, ticks: u64) -> u64 {
    ((u128::from(ticks) * u128::from(factor)) >> SHIFT) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Moment = Moment { ticks: 7_000_000_000, ns: 1_000_000 };

    /// `seconds` later, on a counter of 2.5 GHz.
    fn later(from: Moment, seconds: f64) -> Moment {
        Moment { ticks: from.ticks + (seconds * 2.5e9) as u64, ns: from.ns + (seconds * 1e9) as u64 }
    }

    fn ticking() -> Ticks {
        Ticks::calibrate(START, later(START, 0.002)).unwrap().check(later(START, 1.0)).unwrap()
    }

    #[test]
    fn a_counter_is_calibrated_and_measures() {
        let ticks = ticking();
        assert_eq!(ticks.rate, 0.4);
        assert!(nanoseconds(ticks.factor(), 2500).abs_diff(1000) <= 1);
        let year = 365 * 86400 * 1_000_000_000;
        assert!(nanoseconds(ticks.factor(), year / 2 * 5).abs_diff(year) < year / 100_000_000);
    }

    #[test]
    fn what_is_no_counter_is_not_calibrated() {
        let stopped = Moment { ns: START.ns + 1_000_000, ..START };
        let backwards = Moment { ticks: START.ticks - 1, ns: START.ns + 1_000_000 };
        let slow = Moment { ticks: START.ticks + 1000, ns: START.ns + 1_000_000 };
        for to in [START, stopped, backwards, slow] {
            assert_eq!(Ticks::calibrate(START, to), None, "{to:?}");
        }
    }

    #[test]
    fn comparisons_sharpen_the_rate_and_bear_a_slewed_clock() {
        let mut ticks = Ticks { rate: 0.4001, ..ticking() };
        let mut now = ticks.last.unwrap();
        for _ in 0..10 {
            now = later(now, 0.1);
            now.ns += 50_000; // 500 ppm
            ticks = ticks.check(now).unwrap();
        }
        assert!((ticks.rate - 0.4002).abs() < 1e-6, "{}", ticks.rate);
        // after a while without comparisons
        assert!(ticks.check(later(now, 86400.0)).is_some());
    }

    #[test]
    fn a_counter_that_went_astray_is_given_up() {
        let ticks = ticking();
        let (last, next) = (ticks.last.unwrap(), later(ticks.last.unwrap(), 1.0));
        // suspended: the counter went on, or began anew; moved to a machine with another rate; set back
        for astray in [
            Moment { ticks: next.ticks + 25_000_000_000, ..next },
            Moment { ticks: 5, ..next },
            Moment { ticks: last.ticks + 2_000_000_000, ..next },
            Moment { ticks: last.ticks - 1, ..next },
            Moment { ticks: u64::MAX, ..next },
            Moment { ns: last.ns - 1, ..next },
        ] {
            assert_eq!(ticks.check(astray), None, "{astray:?}");
        }
    }

    #[test]
    fn a_reading_of_the_counter_is_told_in_the_systems_time() {
        let ticks = ticking();
        let last = ticks.last.unwrap();
        let now = last.ns + 5_000_000;
        assert_eq!(ticks.system(last.ticks + 2500, now), last.ns + 1000);
        assert_eq!(ticks.system(last.ticks - 2500, now), last.ns - 1000);
        assert_eq!(ticks.system(last.ticks + 25_000_000_000, now), now);
        assert_eq!(Ticks { last: None, ..ticks }.system(5, now), now);
    }

    proptest! {
        #[test]
        fn no_time_is_negative_or_longer_than_what_passed(begin in any::<u64>(), ns in any::<u64>(), passed in 0u64..1 << 50) {
            let ticks = Ticks { rate: 0.4, last: Some(Moment { ticks: 1 << 40, ns: ns >> 10 }) };
            let now = (ns >> 10) + passed;
            prop_assert!(ticks.system(begin, now) <= now);
        }
    }
}
