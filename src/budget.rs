//! Keeps what recording costs a backend under a share of the time that its statements take (`pgss_rs.max_overhead`).
//!
//! Time goes by in windows of [`WINDOW`] executions. What one window saw tells the probabilities of the next: how often
//! each statement came, how long all took together, and what recording one costs. If recording all would cost more than the
//! share, hot statements are thinned first: all have the same limit of recordings per window, and a statement that comes
//! less often than that keeps the full rate. (The limit is a water level: the largest L with sum of min(n, L) at most what
//! may be recorded.) So each probability is certain before its draw, and its inverse is the weight.
//!
//! Statements are told apart by some bits of a hash: those that fall together are thinned together, which costs precision
//! and biases nothing. Client statements without an identifier before their draw are one statement here.

use crate::draw::Random;

/// Executions in a window.
const WINDOW: u32 = 1024;
const PLACES: usize = 256;
/// The place of statements without an identifier.
const UNNAMED: usize = PLACES;
/// Recordings that a statement is allowed in any window: without them nothing would be known of it.
const LEAST: f64 = 1.0;

/// One backend's.
pub struct Budget {
    /// Executions in this window, estimated where they were drawn without being counted.
    seen: [f32; PLACES + 1],
    /// Probabilities in this window, as fractions of the sample rate.
    kept: [f32; PLACES + 1],
    left: u32,
    /// Executions that were thinned out in this window.
    thinned: f64,
    /// Time of the client's statements in this window, estimated, ns.
    time: f64,
}

/// What a window came to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Window {
    /// Executions that were not looked at for the budget's sake.
    pub thinned: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { seen: [0.0; PLACES + 1], kept: [1.0; PLACES + 1], left: WINDOW, thinned: 0.0, time: 0.0 }
    }
}

impl Budget {
    /// The probability with which the statement with this hash is to be looked at now, at a sample rate. It came once more.
    pub fn probability(&mut self, hash: u64, rate: f64) -> f64 {
        let place = hash as usize % PLACES;
        self.seen[place] += 1.0;
        self.left = self.left.saturating_sub(1);
        rate * f64::from(self.kept[place])
    }

    /// That of statements without an identifier. They are drawn by gaps, so this is asked once for many.
    pub fn probability_unnamed(&self, rate: f64) -> f64 {
        rate * f64::from(self.kept[UNNAMED])
    }

    /// So many of these came, as far as the draws tell.
    pub fn saw_unnamed(&mut self, executions: f64) {
        self.seen[UNNAMED] += executions as f32;
        self.left = self.left.saturating_sub(executions as u32);
    }

    /// An execution was thinned out.
    pub fn thinned(&mut self) {
        self.thinned += 1.0;
    }

    /// A client's statement was recorded that took so long and stands for `weight`.
    pub fn took(&mut self, weight: f64, nanoseconds: u64) {
        self.time += weight * nanoseconds as f64;
    }

    /// Whether the window is over.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Ends the window: what it came to, and other probabilities from now on. Recording a statement costs `cost` ns, and
    /// all of it may take `share` of the statements' time.
    pub fn next(&mut self, rate: f64, cost: f64, share: f64) -> Window {
        let window = Window { thinned: self.thinned };
        let may = self.time * share / cost;
        let level = level(&self.seen.map(|n| f64::from(n) * rate), may).max(LEAST);
        for (kept, seen) in self.kept.iter_mut().zip(&self.seen) {
            let wanted = f64::from(*seen) * rate;
            *kept = if wanted > level { (level / wanted) as f32 } else { 1.0 };
        }
        (self.seen, self.left, self.thinned, self.time) = ([0.0; PLACES + 1], WINDOW, 0.0, 0.0);
        window
    }
}

/// The largest L with the sum of min(n, L) at most `most`.
fn level(wanted: &[f64], most: f64) -> f64 {
    let mut sorted: Vec<f64> = Vec::new();
    if sorted.try_reserve_exact(wanted.len()).is_err() {
        return f64::INFINITY;
    }
    sorted.extend(wanted.iter().filter(|n| **n > 0.0));
    sorted.sort_unstable_by(f64::total_cmp);
    let (mut left, mut count) = (most.max(0.0), sorted.len());
    for n in sorted {
        if n * count as f64 > left {
            return left / count as f64;
        }
        left -= n;
        count -= 1;
    }
    f64::INFINITY
}

/// Whether something with this probability comes to pass.
pub fn happens(random: &mut impl Random, probability: f64) -> bool {
    // 53 bits in [0, 1)
    ((random.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seeded(u64);

    impl Random for Seeded {
        fn bits(&mut self) -> u64 {
            // splitmix64
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }
    }

    #[test]
    fn the_level_lets_through_what_is_allowed() {
        assert_eq!(level(&[10.0, 5.0, 1.0], 16.0), f64::INFINITY);
        assert_eq!(level(&[10.0, 5.0, 1.0], 11.0), 5.0);
        assert_eq!(level(&[10.0, 5.0, 1.0], 3.0), 1.0);
        assert_eq!(level(&[10.0, 0.0, 10.0], 4.0), 2.0);
        assert_eq!(level(&[1.0], 0.0), 0.0);
        assert_eq!(level(&[], 0.0), f64::INFINITY);
    }

    /// Runs windows of a workload: statements by hash, how many of 1,024 executions are theirs, and what each takes.
    /// What was recorded of each (weights), how many recordings there were, and the statements' time.
    fn run(workload: &[(u64, u32, u64)], windows: usize, cost: f64, share: f64) -> (Vec<Vec<f64>>, f64, f64) {
        let (mut budget, mut random) = (Budget::default(), Seeded(7));
        let mut recorded = vec![Vec::new(); workload.len()];
        let (mut recordings, mut time) = (0.0, 0.0);
        for window in 0..windows {
            for (which, (hash, count, ns)) in workload.iter().enumerate() {
                for _ in 0..*count {
                    let p = budget.probability(*hash, 1.0);
                    time += *ns as f64;
                    if happens(&mut random, p) {
                        recorded[which].push(1.0 / p);
                        budget.took(1.0 / p, *ns);
                        recordings += f64::from(u8::from(window > 0));
                    } else {
                        budget.thinned();
                    }
                    if budget.is_over() {
                        budget.next(1.0, cost, share);
                    }
                }
            }
        }
        (recorded, recordings * cost, time * (windows - 1) as f64 / windows as f64)
    }

    #[test]
    fn recording_stays_below_its_share_and_thins_what_is_hot_alone() {
        // 1,000 of 1 us, 20 of 2 us, 4 of 5 ms, of which recording costs 100 ns
        let workload = [(1, 1000, 1_000), (2, 20, 2_000), (3, 4, 5_000)];
        let (recorded, cost, time) = run(&workload, 400, 100.0, 0.01);
        assert!(cost / time < 0.0115 && cost / time > 0.008, "{}", cost / time);
        // what is rare is always looked at, but for the first windows
        assert!(recorded[2].iter().filter(|w| **w > 1.0).count() == 0);
        assert!(recorded[0].iter().filter(|w| **w > 5.0).count() > 1000);
        for (which, (_, count, _)) in workload.iter().enumerate() {
            let (truth, found) = (f64::from(*count) * 400.0, recorded[which].iter().sum::<f64>());
            let variance: f64 = recorded[which].iter().map(|w| w * (w - 1.0)).sum();
            assert!((found - truth).abs() <= 4.0 * variance.sqrt(), "{found} for {truth}");
        }
    }

    #[test]
    fn within_the_budget_nothing_is_thinned() {
        let (recorded, ..) = run(&[(1, 1024, 100_000)], 20, 100.0, 0.01);
        assert_eq!(recorded[0].len(), 20 * 1024);
        assert!(recorded[0].iter().all(|w| *w == 1.0));
    }

    #[test]
    fn what_has_no_identifier_is_thinned_together() {
        let mut budget = Budget::default();
        budget.saw_unnamed(2048.0);
        budget.took(1.0, 1_000_000);
        assert!(budget.is_over());
        budget.next(0.5, 100.0, 0.01);
        // 100 of 1,024 may be recorded
        let p = budget.probability_unnamed(0.5);
        assert!((p - 0.5 * 100.0 / 1024.0).abs() < 1e-6, "{p}");
        assert_eq!(budget.probability(5, 0.5), 0.5);
    }
}
