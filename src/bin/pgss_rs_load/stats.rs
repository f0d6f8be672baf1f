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

/// The middle value; of an even number the mean of the two; 0 of nothing. Reorders the values.
pub fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let (middle, even) = (values.len() / 2, values.len().is_multiple_of(2));
    let (lower, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    match lower.iter().copied().max_by(f64::total_cmp) {
        Some(lower) if even => (lower + upper) / 2.0,
        _ => upper,
    }
}

/// An estimate and the interval that covers the truth in 95 of 100 runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

impl Effect {
    /// The trimmed mean of paired differences, in the order in which they were measured, with a percentile bootstrap,
    /// expanded for few of them. Where neighbours are alike, runs of them are drawn and not single ones (circular block
    /// bootstrap): else the interval would be too narrow. Of fewer than two pairs nothing is known.
    pub fn of_differences(differences: &[f64], seed: u64) -> Self {
        Self::bootstrap(differences, seed, RESAMPLES)
    }

    fn bootstrap(differences: &[f64], seed: u64, resamples: usize) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut resample = differences.to_vec();
        let estimate = trimmed_mean(&mut resample);
        let count = differences.len();
        if count < 2 {
            return Effect { estimate, low: f64::NEG_INFINITY, high: f64::INFINITY };
        }
        let block = block_length(differences);
        let mut means: Vec<f64> = (0..resamples)
            .map(|_| {
                for run in resample.chunks_mut(block) {
                    let start = rng.random_range(0..count);
                    run.iter_mut().enumerate().for_each(|(n, v)| *v = differences[(start + n) % count]);
                }
                trimmed_mean(&mut resample)
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let cut = resamples / 40;
        let expanded =
            |end: f64| estimate + (end - estimate) * small_sample_factor(count.div_ceil(block).max(2));
        Effect { estimate, low: expanded(means[cut]), high: expanded(means[resamples - 1 - cut]) }
    }

    /// In another unit.
    pub fn scaled(self, factor: f64) -> Self {
        Effect { estimate: self.estimate * factor, low: self.low * factor, high: self.high * factor }
    }

    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// The furthest from zero that the interval reaches.
    pub fn reach(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// The smallest true effect whose interval leaves out zero in four of five runs of this precision: the half-width
    /// counts 1.96 standard errors, and 0.84 more are needed for the four of five.
    fn smallest_seen(&self) -> f64 {
        const FOUR_OF_FIVE: f64 = 0.841621;
        self.width() / 2.0 * (Z + FOUR_OF_FIVE) / Z
    }
}

/// Of the normal distribution, for 95 %.
const Z: f64 = 1.959964;

/// By how much a percentile bootstrap interval of n values is too narrow: it takes the normal distribution's quantile for
/// Student's, and n for n - 1 (Hesterberg, What Teachers Should Know About the Bootstrap, 2015). The quantile is
/// Cornish and Fisher's expansion, good to 1 % from n = 5.
fn small_sample_factor(n: usize) -> f64 {
    let freedom = n as f64 - 1.0;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let student = Z + first / freedom + second / freedom.powi(2);
    student / Z * (n as f64 / freedom).sqrt()
}

/// How alike neighbours are, from -1 to 1: the correlation of each value's rank with the next one's. Ranks, so that
/// single stalls do not decide.
pub fn autocorrelation(values: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mut ranks = vec![0.0; values.len()];
    for (rank, place) in order.into_iter().enumerate() {
        ranks[place] = rank as f64 - middle;
    }
    let squares: f64 = ranks.iter().map(|rank| rank * rank).sum();
    let products: f64 = ranks.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares > 0.0 { products / squares } else { 0.0 }
}

/// An interval rests on no more independent pieces than this. A processor's pace drifts by some tenths of a percent within
/// seconds and minutes: of 1400 blocks of 10 microseconds more in one arm neighbours were alike by 0.19 only, those five
/// apart by 0.13 still, and intervals from single blocks were less than half as wide as the estimates of parts of the run
/// differed. With twenty pieces Student's quantile makes an interval wider by 10 % than it had to be.
const MAX_PIECES: usize = 20;

/// How many neighbours to draw at once: Carlstein's rule (1986), as if each value followed the one before with the
/// correlation seen, and at least one in [`MAX_PIECES`] of the values; fewer than one in eight in any case.
pub fn block_length(values: &[f64]) -> usize {
    let least = (values.len() / MAX_PIECES).max(1);
    let count = values.len() as f64;
    let correlation = autocorrelation(values).min(0.95);
    if count < 16.0 || correlation < 2.0 / count.sqrt() {
        return least;
    }
    let length = (2.0 * correlation / (1.0 - correlation * correlation)).powf(2.0 / 3.0) * count.cbrt();
    (length.ceil() as usize).clamp(least, values.len() / 8)
}

/// How many values at the start, given in the order of time, belong to the warm-up: the cut that makes the standard error
/// of the rest's mean the smallest (MSER: White, An Effective Truncation Heuristic, 1997), at most a third; none where
/// what would be cut lies within the scatter of the rest.
pub fn warm_up(values: &[f64]) -> usize {
    /// Standard errors by which the cut part has to differ from the rest.
    const CLEARLY: f64 = 3.0;
    let moments = |values: &[f64]| {
        let mut moments = Moments::default();
        values.iter().for_each(|value| moments.push(*value));
        moments
    };
    let error = |cut: usize| {
        let rest = moments(&values[cut..]);
        rest.squares / (rest.count as f64).powi(2)
    };
    let Some(cut) = (0..=values.len() / 3).min_by(|a, b| error(*a).total_cmp(&error(*b))) else { return 0 };
    if cut == 0 || values.len() - cut < 3 {
        return 0;
    }
    let (start, rest) = (moments(&values[..cut]), moments(&values[cut..]));
    let scatter = rest.stddev() * (1.0 / cut as f64 + 1.0 / rest.count as f64).sqrt();
    if (start.mean() - rest.mean()).abs() > CLEARLY * scatter { cut } else { 0 }
}

/// More about a comparison than its effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Details {
    /// Of the paired differences, in the effect's unit.
    pub median: f64,
    pub pairs: usize,
    pub autocorrelation: f64,
    /// Neighbours drawn at once by the bootstrap.
    pub block_length: usize,
}

impl Details {
    pub fn of_differences(differences: &[f64]) -> Self {
        Details {
            median: median(&mut differences.to_vec()),
            pairs: differences.len(),
            autocorrelation: autocorrelation(differences),
            block_length: block_length(differences),
        }
    }
}

/// What a run may say about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Difference,
    /// None seen, with the smallest effect that would have been called a difference in four of five such runs, in the
    /// effect's unit.
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
        Finding::NoDifference { smallest: noise.reach().max(effect.smallest_seen()) }
    }
}

/// Whether a loss is at most so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Yes,
    No,
    NotEnoughData,
}

impl Answer {
    /// Of several questions that all have to be answered by yes.
    pub fn and(self, other: Answer) -> Answer {
        match (self, other) {
            (Answer::No, _) | (_, Answer::No) => Answer::No,
            (Answer::Yes, Answer::Yes) => Answer::Yes,
            _ => Answer::NotEnoughData,
        }
    }
}

/// An equivalence test: yes if the loss's whole interval lies below the limit, no if it lies above, and neither if what
/// the same against the same shows reaches the limit. Either answer is wrong in at most 2.5 of 100 runs.
pub fn at_most(loss: &Effect, noise: &Effect, limit: f64) -> Answer {
    if loss.high < limit && noise.reach() < limit {
        Answer::Yes
    } else if loss.low > limit && loss.estimate > noise.reach() {
        Answer::No
    } else {
        Answer::NotEnoughData
    }
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom;

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
        // interval is about 51 wide, and a tenth more for resting on twenty pieces, from which its width is known to a sixth.
        let mut values: Vec<f64> = (0..1000).map(f64::from).collect();
        values.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(1));
        let effect = Effect::of_differences(&values, 7);
        assert!(close(effect.estimate, 499.5));
        assert!(effect.low < effect.estimate && effect.estimate < effect.high);
        let width = effect.high - effect.low;
        assert!((37.0..75.0).contains(&width), "{width}");
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
        assert_eq!(judge(&vague, &noise), Finding::NoDifference { smallest: vague.smallest_seen() });
        assert!((vague.smallest_seen() / 55.0 - 1.43).abs() < 0.01);
    }

    #[test]
    fn a_median_is_the_middle_of_the_sorted_values() {
        assert!(close(median(&mut [9.0, 1.0, 3.0]), 3.0));
        assert!(close(median(&mut [9.0, 1.0, 3.0, 4.0]), 3.5));
        assert!(close(median(&mut []), 0.0));
    }

    /// `count` values, each following the one before with this correlation, their mean 0 and variance 1.
    fn series(count: usize, correlation: f64, seed: u64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut last = 0.0;
        // The sum of twelve uniform values is as good as normal here.
        let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        (0..count)
            .map(|n| {
                let innovation = normal();
                let scale = if n == 0 { 1.0 } else { (1.0 - correlation * correlation).sqrt() };
                last = last * correlation + innovation * scale;
                last
            })
            .collect()
    }

    #[test]
    fn neighbours_that_are_alike_are_noticed() {
        assert!((autocorrelation(&series(5000, 0.6, 1)) - 0.6).abs() < 0.05);
        assert!(autocorrelation(&series(5000, 0.0, 2)).abs() < 0.04);
        assert_eq!(block_length(&series(30, 0.0, 2)), 1);
        assert_eq!(block_length(&series(5000, 0.0, 2)), 250);
        // (2 * 0.6 / 0.64)^(2/3) * 200^(1/3) = 8.9, and at least 200 / 20
        assert!((8..=11).contains(&block_length(&series(200, 0.6, 3))));
        assert_eq!(block_length(&[1.0; 3]), 1);
        assert!(close(autocorrelation(&[]), 0.0));
    }

    /// How many of 300 intervals contain the truth.
    fn covered(count: usize, correlation: f64) -> usize {
        covered_of(|seed| series(count, correlation, 1000 + seed))
    }

    fn covered_of(values: impl Fn(u64) -> Vec<f64>) -> usize {
        let covers = |seed: &u64| {
            let effect = Effect::bootstrap(&values(*seed), *seed, 200);
            effect.low <= 0.0 && 0.0 <= effect.high
        };
        (0..300).filter(covers).count()
    }

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        // 95 % of 300 with four standard deviations, and as much again at the lower end for 200 resamples.
        for count in [12, 100] {
            let covered = covered(count, 0.0);
            assert!((268..=300).contains(&covered), "{count} values: {covered}");
        }
        // Without blocks it would be about 200.
        let covered = covered(300, 0.6);
        assert!((258..=300).contains(&covered), "correlated: {covered}");
    }

    #[test]
    fn a_slow_drift_that_neighbours_hardly_show_widens_the_interval() {
        // As measured: neighbours alike by 0.15, those five apart by 0.1.
        let drifting = |seed: u64| {
            let (noise, drift) = (series(600, 0.0, 1000 + seed), series(600, 0.9, 2000 + seed));
            noise.into_iter().zip(drift).map(|(noise, drift)| noise + 0.45 * drift).collect()
        };
        let covered = covered_of(drifting);
        assert!((252..=300).contains(&covered), "{covered}");
    }

    #[test]
    fn a_warm_up_is_found_and_chance_is_none() {
        let mut values = series(60, 0.0, 4);
        assert_eq!(warm_up(&values), 0);
        values.iter_mut().take(7).for_each(|value| *value -= 8.0);
        assert!((7..=14).contains(&warm_up(&values)), "{}", warm_up(&values));
        let false_alarms = (0..200).filter(|seed| warm_up(&series(30, 0.0, *seed)) > 0).count();
        assert!(false_alarms <= 6, "{false_alarms}");
        assert_eq!(warm_up(&[]), 0);
        assert_eq!(warm_up(&[1.0, 2.0]), 0);
    }

    #[test]
    fn at_most_needs_an_interval_on_one_side_of_the_limit_and_quiet() {
        let effect = |low, high| Effect { estimate: (low + high) / 2.0, low, high };
        let quiet = effect(-0.2, 0.2);
        assert_eq!(at_most(&effect(0.1, 0.9), &quiet, 1.0), Answer::Yes);
        assert_eq!(at_most(&effect(-3.0, -1.0), &quiet, 1.0), Answer::Yes);
        assert_eq!(at_most(&effect(0.5, 1.5), &quiet, 1.0), Answer::NotEnoughData);
        assert_eq!(at_most(&effect(1.1, 2.5), &quiet, 1.0), Answer::No);
        let noisy = effect(-2.0, 1.0);
        assert_eq!(at_most(&effect(0.1, 0.9), &noisy, 1.0), Answer::NotEnoughData);
        assert_eq!(at_most(&effect(1.1, 2.5), &noisy, 1.0), Answer::NotEnoughData);
        assert_eq!(Answer::Yes.and(Answer::NotEnoughData), Answer::NotEnoughData);
        assert_eq!(Answer::NotEnoughData.and(Answer::No), Answer::No);
    }
}
