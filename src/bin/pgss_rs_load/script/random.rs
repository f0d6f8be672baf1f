//! pgbench's random and hash functions. Its values are reproduced where they are functions of their arguments (`hash_*`,
//! `permute`); what is drawn follows the same distributions from another generator.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, StandardNormal};

pub const MIN_GAUSSIAN: f64 = 2.0;
pub const ZIPFIAN: (f64, f64) = (1.001, 1000.0);

/// A share of the range, 0 to below 1, as a value of it. `low <= high`, and the range has at most 2^63 - 1 values.
fn at(low: i64, high: i64, share: f64) -> i64 {
    let size = (high - low + 1) as f64;
    low.saturating_add((size * share) as i64).min(high)
}

pub fn uniform(rng: &mut Xoshiro256PlusPlus, low: i64, high: i64) -> i64 {
    rng.random_range(low..=high)
}

/// A normal distribution whose middle is that of the range, cut off `parameter` standard deviations from it at both ends.
pub fn gaussian(rng: &mut Xoshiro256PlusPlus, low: i64, high: i64, parameter: f64) -> i64 {
    let deviations = loop {
        let drawn: f64 = StandardNormal.sample(rng);
        if (-parameter..parameter).contains(&drawn) {
            break drawn;
        }
    };
    at(low, high, (deviations + parameter) / (2.0 * parameter))
}

/// An exponential distribution over the range, cut off where it has fallen to exp(-parameter).
pub fn exponential(rng: &mut Xoshiro256PlusPlus, low: i64, high: i64, parameter: f64) -> i64 {
    let end = (-parameter).exp();
    let uniform = 1.0 - rng.random::<f64>();
    at(low, high, -(end + (1.0 - end) * uniform).ln() / parameter)
}

/// Rank k of the range in proportion to 1/k^parameter, by rejection (Devroye, Non-Uniform Random Variate Generation,
/// 1986, X.6.1).
pub fn zipfian(rng: &mut Xoshiro256PlusPlus, low: i64, high: i64, parameter: f64) -> i64 {
    let size = (high - low + 1) as f64;
    if size <= 1.0 {
        return low;
    }
    let less_one = parameter - 1.0;
    let b = 2f64.powf(less_one);
    loop {
        let (u, v): (f64, f64) = (rng.random(), rng.random());
        let rank = u.powf(-1.0 / less_one).floor();
        let t = (1.0 + 1.0 / rank).powf(less_one);
        if v * rank * (t - 1.0) / (b - 1.0) <= t / b && rank <= size {
            return low.saturating_add(rank as i64 - 1).min(high);
        }
    }
}

/// 64-bit FNV-1a over the value's bytes, the lowest first.
pub fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let start = BASIS ^ seed as u64;
    value.to_le_bytes().iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)) as i64
}

/// 64-bit MurmurHash2 of eight bytes.
pub fn hash_murmur2(value: i64, seed: i64) -> i64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut key = (value as u64).wrapping_mul(MULTIPLIER);
    key = (key ^ key >> SHIFT).wrapping_mul(MULTIPLIER);
    let mut hash = seed as u64 ^ 8u64.wrapping_mul(MULTIPLIER);
    hash = (hash ^ key).wrapping_mul(MULTIPLIER);
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    (hash ^ hash >> SHIFT) as i64
}

/// A pseudorandom permutation of 0 to `size` - 1, chosen by the seed: six rounds of an odd multiplication, an exclusive
/// or and a rotation within the largest power of two, of the lower and of the upper half in turn, and an offset.
pub fn permute(value: i64, size: i64, seed: i64) -> i64 {
    const ROUNDS: u32 = 6;
    if size < 2 {
        return 0;
    }
    let mut generator = Xoroshiro::new(seed as u64);
    let size = size as u64;
    let mut place = (value as u64) % size;
    let bits = size.ilog2();
    let mask = (1u64 << bits) - 1;
    let scramble = |place: u64, multiplier: u64, flip: u64| {
        let mixed = (place.wrapping_mul(multiplier) ^ flip) & mask;
        ((mixed << 1) & mask) | (mixed >> (bits - 1))
    };
    for _ in 0..ROUNDS {
        let (multiplier, flip) = ((generator.next() & mask) | 1, generator.next() & mask);
        if place <= mask {
            place = scramble(place, multiplier, flip);
        }
        let (multiplier, flip) = ((generator.next() & mask) | 1, generator.next() & mask);
        let from_end = size - 1 - place;
        if from_end <= mask {
            place = size - 1 - scramble(from_end, multiplier, flip);
        }
        place = (place + generator.up_to(size - 1)) % size;
    }
    place as i64
}

/// xoroshiro128** seeded through SplitMix64, as the server's and its programs' generator is.
struct Xoroshiro {
    state: [u64; 2],
}

impl Xoroshiro {
    fn new(mut seed: u64) -> Self {
        let mut split_mix = || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        Xoroshiro { state: [split_mix(), split_mix()] }
    }

    fn next(&mut self) -> u64 {
        let [first, second] = self.state;
        let mixed = second ^ first;
        self.state = [first.rotate_left(24) ^ mixed ^ mixed << 16, mixed.rotate_left(37)];
        first.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// 0 to `last`, which is at least 1.
    fn up_to(&mut self, last: u64) -> u64 {
        loop {
            let drawn = self.next() >> (63 - last.ilog2());
            if drawn <= last {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(low: i64, high: i64, draw: impl Fn(&mut Xoshiro256PlusPlus) -> i64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut counts = vec![0.0; (high - low + 1) as usize];
        for _ in 0..DRAWS {
            counts[(draw(&mut rng) - low) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    #[test]
    fn ranks_begin_at_the_lowest_number_there_is() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let drawn: Vec<i64> = (0..200).map(|_| zipfian(&mut rng, i64::MIN, i64::MIN + 2, 1.5)).collect();
        assert!((0..3).all(|rank| drawn.contains(&(i64::MIN + rank))));
        assert!(drawn.iter().all(|n| *n <= i64::MIN + 2));
    }

    #[test]
    fn a_gaussian_has_the_documented_middle() {
        let counts = counts(1, 100, |rng| gaussian(rng, 1, 100, 4.0));
        // With the parameter 4, as documented: 67 % from the middle quarter of the range, 95 % from its middle half.
        let middle: f64 = counts[37..63].iter().sum();
        let half: f64 = counts[25..75].iter().sum();
        assert!((0.66..0.72).contains(&middle), "{middle}");
        assert!((0.94..0.965).contains(&half), "{half}");
    }

    #[test]
    fn an_exponential_falls_as_documented() {
        // P(i) = (exp(-p * (i - min) / n) - exp(-p * (i - min + 1) / n)) / (1 - exp(-p))
        let counts = counts(1, 10, |rng| exponential(rng, 1, 10, 5.0));
        for (i, share) in counts.iter().enumerate() {
            let at = |i: usize| (-5.0 * i as f64 / 10.0).exp();
            let expected = (at(i) - at(i + 1)) / (1.0 - (-5f64).exp());
            assert!((share - expected).abs() < 0.004, "{i}: {share} for {expected}");
        }
    }

    #[test]
    fn by_zipfs_law_1_comes_as_often_as_documented() {
        // "random_zipfian(1, ..., 2.5): 1 is drawn 2^2.5 = 5.66 times as often as 2, 2 is drawn 1.5^2.5 = 2.76 times as 3."
        let counts = counts(1, 1000, |rng| zipfian(rng, 1, 1000, 2.5));
        assert!((counts[0] / counts[1] - 5.66).abs() < 0.2, "{}", counts[0] / counts[1]);
        assert!((counts[1] / counts[2] - 2.76).abs() < 0.2, "{}", counts[1] / counts[2]);
    }

    #[test]
    fn ranges_of_one_and_the_whole_of_i64_are_fine() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        assert_eq!(uniform(&mut rng, 5, 5), 5);
        assert_eq!(zipfian(&mut rng, 5, 5, 2.0), 5);
        for _ in 0..1000 {
            let high = i64::MAX;
            assert!(gaussian(&mut rng, 1, high, 2.0) >= 1);
            assert!(exponential(&mut rng, 1, high, 0.5) >= 1);
        }
    }

    #[test]
    fn a_permutation_meets_every_place_once() {
        for size in [1, 2, 3, 7, 8, 100, 1000] {
            let mut seen: Vec<i64> = (0..size).map(|i| permute(i, size, 42)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..size).collect::<Vec<_>>());
        }
        assert_eq!(permute(5, 0, 1), 0);
    }
}
