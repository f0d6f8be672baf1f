//! The statistics of a run. Pure: numbers in, numbers out, random only through the seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// The share cut off at each end by [`trimmed_mean`], which makes it the interquartile mean. Beside a process that keeps
/// one of two CPUs busy, half the blocks of `cost` are hit: an interval of 690 ns with a tenth cut off had 40 ns with a
/// quarter; on a quiet box both had 20 ns. The price: what is rare, such as a stall in one block of ten, does not show.
const TRIM: f64 = 0.25;

/// Enough for the 2.5 % and 97.5 % quantiles to be steady in their second digit.
const RESAMPLES: usize = 2000;

/// Running mean and standard deviation, by Welford's method, which keeps its precision over millions of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared distances from the mean.
    squares: f64,
}

impl Moments {
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Adds what another has seen (Chan, Golub and LeVeque's update).
    pub fn merge(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.count += other.count;
        self.mean += distance * m / (n + m);
        self.squares += other.squares + distance * distance * n * m / (n + m);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Of the sample (divided by n - 1); 0 of fewer than two values.
    pub fn stddev(&self) -> f64 {
        if self.count < 2 { 0.0 } else { (self.squares / (self.count - 1) as f64).sqrt() }
    }
}

/// The mean without the lowest and the highest quarter; 0 of nothing. Reorders the values.
pub fn trimmed_mean(values: &mut [f64]) -> f64 {
    let cut = (values.len() as f64 * TRIM) as usize;
    let kept = if cut == 0 {
        values
    } else {
        let (_, _, upper) = values.select_nth_unstable_by(cut - 1, f64::total_cmp);
        let keep = upper.len() - cut;
        upper.select_nth_unstable_by(keep, f64::total_cmp);
        &mut upper[..keep]
    };
    if kept.is_empty() { 0.0 } else { kept.iter().sum::<f64>() / kept.len() as f64 }
}

/// An estimate and the interval that covers the truth in 95 of 100 runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Effect {
    /// The trimmed mean of paired differences, with a percentile bootstrap over the pairs, expanded for few of them. Of
    /// fewer than two pairs nothing is known.
    pub fn of_differences(differences: &[f64], seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut resample = differences.to_vec();
        let estimate = trimmed_mean(&mut resample);
        if differences.len() < 2 {
            return Effect { estimate, low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                resample.fill_with(|| differences[rng.random_range(0..differences.len())]);
                trimmed_mean(&mut resample)
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let cut = RESAMPLES / 40;
        let expanded = |end: f64| estimate + (end - estimate) * small_sample_factor(differences.len());
        Effect { estimate, low: expanded(means[cut]), high: expanded(means[RESAMPLES - 1 - cut]) }
    }

    /// In another unit.
    pub fn scaled(self, factor: f64) -> Self {
        Effect { estimate: self.estimate * factor, low: self.low * factor, high: self.high * factor }
    }

    fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The furthest from zero that the interval reaches.
    pub fn reach(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// By how much a percentile bootstrap interval of n values is too narrow: it takes the normal distribution's quantile for
/// Student's, and n for n - 1 (Hesterberg, What Teachers Should Know About the Bootstrap, 2015). The quantile is
/// Cornish and Fisher's expansion, good to 1 % from n = 5.
fn small_sample_factor(n: usize) -> f64 {
    /// Of the normal distribution, for 95 %.
    const Z: f64 = 1.959964;
    let freedom = n as f64 - 1.0;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let student = Z + first / freedom + second / freedom.powi(2);
    student / Z * (n as f64 / freedom).sqrt()
}

/// What a run may say about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Difference,
    /// With the smallest effect that would have been called a difference, in the effect's unit.
    NoDifference {
        smallest: f64,
    },
}

/// A difference is one whose interval leaves out zero and that is larger than what comparing the same with the same
/// gave in the same run.
pub fn judge(effect: &Effect, noise: &Effect) -> Finding {
    let excludes_zero = effect.low > 0.0 || effect.high < 0.0;
    if excludes_zero && effect.estimate.abs() > noise.reach() {
        Finding::Difference
    } else {
        Finding::NoDifference { smallest: noise.reach().max(effect.half_width()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn moments_of_a_known_sample() {
        let mut moments = Moments::default();
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().for_each(|v| moments.push(v));
        assert!(close(moments.mean(), 5.0));
        assert!(close(moments.stddev(), (32.0f64 / 7.0).sqrt()));
    }

    #[test]
    fn merged_moments_equal_those_of_all_values() {
        let values: Vec<f64> = (0..100).map(|i| 1e6 + (i * i % 37) as f64).collect();
        let moments = |values: &[f64]| {
            let mut m = Moments::default();
            values.iter().for_each(|v| m.push(*v));
            m
        };
        let (mut part, whole) = (moments(&values[..31]), moments(&values));
        part.merge(&moments(&values[31..]));
        part.merge(&Moments::default());
        assert_eq!(part.count(), 100);
        assert!(close(part.mean(), whole.mean()));
        assert!(close(part.stddev(), whole.stddev()));
    }

    #[test]
    fn a_trimmed_mean_forgets_the_outliers() {
        let mut values: Vec<f64> = (1..=20).map(f64::from).collect();
        values[19] = 1e12;
        values[0] = -1e12;
        assert!(close(trimmed_mean(&mut values), 10.5));
        assert!(close(trimmed_mean(&mut [1.0, 2.0, 6.0]), 3.0));
        assert!(close(trimmed_mean(&mut [9.0, 2.0, 4.0, 1.0]), 3.0));
        assert!(close(trimmed_mean(&mut []), 0.0));
    }

    #[test]
    fn a_bootstrap_interval_is_of_the_right_width_and_repeatable() {
        // Uniform over 0..1000: sqrt(variance of the values winsorised at the quartiles / n) / 0.5 = 12.9, so that the
        // interval is about 51 wide.
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i * 617 % 1000)).collect();
        let effect = Effect::of_differences(&values, 7);
        assert!(close(effect.estimate, 499.5));
        assert!(effect.low < effect.estimate && effect.estimate < effect.high);
        let width = effect.high - effect.low;
        assert!((40.0..60.0).contains(&width), "{width}");
        assert_eq!(effect, Effect::of_differences(&values, 7));
        assert_ne!(effect, Effect::of_differences(&values, 8));
    }

    #[test]
    fn of_fewer_than_two_pairs_nothing_is_known() {
        for differences in [&[][..], &[5.0]] {
            let effect = Effect::of_differences(differences, 1);
            assert_eq!((effect.low, effect.high), (f64::NEG_INFINITY, f64::INFINITY));
        }
    }

    #[test]
    fn few_pairs_widen_the_interval() {
        // Student's 97.5 % quantiles with 7 and 19 degrees of freedom, from the usual table.
        for (n, student) in [(8, 2.365), (20, 2.093)] {
            let expected = student / 1.960 * (f64::from(n) / f64::from(n - 1)).sqrt();
            assert!((small_sample_factor(n as usize) / expected - 1.0).abs() < 0.01);
        }
        assert!((small_sample_factor(1_000_000) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn an_effect_within_the_noise_is_no_difference() {
        let noise = Effect { estimate: 1.0, low: -8.0, high: 10.0 };
        let clear = Effect { estimate: 50.0, low: 40.0, high: 60.0 };
        assert_eq!(judge(&clear, &noise), Finding::Difference);
        assert_eq!(judge(&clear.scaled(-1.0), &noise), Finding::Difference);

        let small = Effect { estimate: 9.0, low: 5.0, high: 13.0 };
        assert_eq!(judge(&small, &noise), Finding::NoDifference { smallest: 10.0 });

        let vague = Effect { estimate: 50.0, low: -5.0, high: 105.0 };
        assert_eq!(judge(&vague, &noise), Finding::NoDifference { smallest: 55.0 });
    }
}
