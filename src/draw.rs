//! Which statements are looked at: a draw per top-level statement, and the weight a drawn one carries.
//!
//! With probability p each, independently. Instead of a random number per statement the generator gives the gap to
//! the next drawn one, which is geometric: floor(ln U / ln(1 - p)) for U uniform in (0, 1] (Devroye, Non-Uniform
//! Random Variate Generation, X.2), so a statement that is not drawn costs a decrement. The geometric distribution
//! has no memory, so a gap may be thrown away and drawn anew whenever p changes.
//!
//! A drawn statement stands for w = 1/p statements (Horvitz and Thompson 1952): adding w*x keeps every total
//! unbiased whatever p was when.

/// A source of 64 random bits.
pub trait Random {
    fn bits(&mut self) -> u64;
}

/// The gap generator of one backend.
pub struct Draw<R> {
    random: R,
    rate: f64,
}

/// What a draw gave.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drawn {
    /// At least 1, or 0 when the statement is not looked at.
    pub weight: f64,
    /// So many of the next statements are not looked at, without a draw.
    pub skip: u64,
}

impl<R: Random> Draw<R> {
    pub const fn new(random: R) -> Self {
        Draw { random, rate: f64::NAN }
    }

    /// Draws anew at the next draw, whatever the rate: the last gap was not waited for.
    pub fn forget(&mut self) {
        self.rate = f64::NAN;
    }

    /// Draws for one statement at `rate` (0..=1), after as many as the last draw said have been skipped.
    pub fn draw(&mut self, rate: f64) -> Drawn {
        if rate >= 1.0 {
            return Drawn { weight: 1.0, skip: 0 };
        }
        if rate.is_nan() || rate <= 0.0 {
            return Drawn { weight: 0.0, skip: 0 };
        }
        if rate != self.rate {
            self.rate = rate;
            let gap = self.next_gap();
            if gap > 0 {
                return Drawn { weight: 0.0, skip: gap - 1 };
            }
        }
        Drawn { weight: 1.0 / rate, skip: self.next_gap() }
    }

    /// Whether something with this probability comes to pass, apart from all gaps.
    pub fn happens(&mut self, probability: f64) -> bool {
        // 53 bits in [0, 1)
        ((self.random.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    fn next_gap(&mut self) -> u64 {
        // 53 bits in (0, 1]; ln_1p keeps small rates exact. The cast saturates.
        let u = ((self.random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (u.ln() / (-self.rate).ln_1p()) as u64
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Draws statement by statement, as a backend does.
    pub struct Backend {
        draw: Draw<Seeded>,
        skip: u64,
        rate: f64,
    }

    impl Backend {
        pub fn new(seed: u64) -> Self {
            Backend { draw: Draw::new(Seeded(seed)), skip: 0, rate: f64::NAN }
        }

        pub fn weight(&mut self, rate: f64) -> f64 {
            if rate != self.rate {
                (self.rate, self.skip) = (rate, 0);
                self.draw.forget();
            }
            if self.skip > 0 {
                self.skip -= 1;
                return 0.0;
            }
            let drawn = self.draw.draw(rate);
            self.skip = drawn.skip;
            drawn.weight
        }
    }

    /// splitmix64
    pub struct Seeded(pub u64);
    impl Random for Seeded {
        fn bits(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }
    }

    #[test]
    fn rate_one_draws_all_with_weight_one_and_rate_zero_none() {
        let mut d = Backend::new(1);
        assert!((0..1000).all(|_| d.weight(1.0) == 1.0));
        assert!((0..1000).all(|_| d.weight(0.0) == 0.0));
    }

    #[test]
    fn weighted_total_is_unbiased_at_every_rate() {
        for rate in [0.9, 0.5, 0.1, 0.01] {
            let n = 400_000;
            let mut d = Backend::new(42);
            let total: f64 = (0..n).map(|_| d.weight(rate)).sum();
            let stderr = (n as f64 * (1.0 - rate) / rate).sqrt();
            assert!((total - n as f64).abs() < 4.0 * stderr, "rate {rate}: {total}");
        }
    }

    #[test]
    fn draws_do_not_depend_on_each_other() {
        let mut d = Backend::new(9);
        let hit: Vec<bool> = (0..400_000).map(|_| d.weight(0.3) > 0.0).collect();
        let both = hit.windows(2).filter(|w| w[0] && w[1]).count() as f64 / hit.len() as f64;
        assert!((both - 0.09).abs() < 0.003, "{both}");
    }

    #[test]
    fn changing_the_rate_midway_stays_unbiased() {
        let mut d = Backend::new(3);
        let n = 400_000u32;
        let total: f64 = (0..n).map(|i| d.weight(if i % 7 < 3 { 0.5 } else { 0.05 })).sum();
        let var = f64::from(n) * (3.0 / 7.0 * 1.0 + 4.0 / 7.0 * 19.0);
        assert!((total - f64::from(n)).abs() < 4.0 * var.sqrt(), "{total}");
    }

    #[test]
    fn a_gap_that_is_thrown_away_biases_nothing() {
        let mut d = Backend::new(11);
        let n = 400_000u32;
        // there and back again, with draws at the other rate or without
        let total: f64 = (0..n)
            .map(|i| {
                if i % 3 == 0 {
                    d.weight(0.0);
                    d.draw.forget();
                    d.skip = 0;
                }
                d.weight(0.2)
            })
            .sum();
        assert!((total - f64::from(n)).abs() < 4.0 * (f64::from(n) * 4.0).sqrt(), "{total}");
    }

    #[test]
    fn the_smallest_rate_never_overflows() {
        let mut d = Backend::new(5);
        assert!((0..1000).all(|_| d.weight(f64::MIN_POSITIVE) == 0.0));
    }
}
