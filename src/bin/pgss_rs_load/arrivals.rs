//! When transactions are due in an open loop. Pure: the seed decides.

use std::time::Duration;

use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Exp1};
use serde::Serialize;

/// An open loop: transactions are due whether or not those before have ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OpenLoop {
    /// Transactions, of all clients together.
    pub rate_per_second: f64,
    pub arrivals: Arrivals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At random, as those of many users who know nothing of each other
    Poisson,
    /// One every so often
    Constant,
}

impl OpenLoop {
    /// When transactions are due within `length`, from its beginning, in order.
    pub fn due(&self, length: Duration, seed: u64) -> Vec<Duration> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut due = Vec::with_capacity((self.rate_per_second * length.as_secs_f64() * 1.1) as usize);
        let mut at = 0.0;
        loop {
            let gap: f64 = match self.arrivals {
                Arrivals::Poisson => Exp1.sample(&mut rng),
                Arrivals::Constant => 1.0,
            };
            at += gap / self.rate_per_second;
            if at >= length.as_secs_f64() {
                return due;
            }
            due.push(Duration::from_secs_f64(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(arrivals: Arrivals, seed: u64) -> Vec<f64> {
        let open_loop = OpenLoop { rate_per_second: 1000.0, arrivals };
        open_loop.due(Duration::from_secs(20), seed).iter().map(Duration::as_secs_f64).collect()
    }

    fn gaps(due: &[f64]) -> Vec<f64> {
        due.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn constant_arrivals_are_equally_far_apart() {
        let due = due(Arrivals::Constant, 1);
        assert!((19_999..=20_000).contains(&due.len()), "{}", due.len());
        assert!(gaps(&due).iter().all(|gap| (gap - 0.001).abs() < 1e-8));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let due = due(Arrivals::Poisson, 1);
        // 20,000 of them, with a standard deviation of 141.
        assert!((19_300..20_700).contains(&due.len()), "{}", due.len());
        let gaps = gaps(&due);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Those of an exponential distribution have the same mean and standard deviation.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{mean} {variance}");
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(due(Arrivals::Poisson, 3), due(Arrivals::Poisson, 3));
        assert_ne!(due(Arrivals::Poisson, 3), due(Arrivals::Poisson, 4));
    }
}
