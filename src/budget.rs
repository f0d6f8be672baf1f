//! Keeps what recording costs a backend under a share of the time that its statements take (`pgss_rs.max_overhead`).
//!
//! Time goes by in windows of [`LAST`] executions; the first ones are shorter, as they are let through whole, and many
//! sessions are short. What one window saw tells the probabilities of the next: how often
//! each statement came, how long all took together, and what recording one costs. If recording all that the sample rate
//! wants would cost more than the share, hot statements are thinned first: all have the same limit of recordings per
//! window, and a statement that comes less often keeps the full rate. (The limit is a water level: the largest L with sum
//! of min(n, L) at most what may be recorded.) So each probability is certain before its draw, and its inverse is the
//! weight.
//!
//! Statements are told apart by some bits of a hash: those that fall together are thinned together, which costs precision
//! and biases nothing. Client's statements that have no identifier before their draw are one statement here.

/// Executions in the first window. Each is twice as long as the one before, up to the last.
const FIRST: u32 = 64;
const LAST: u32 = 1024;
const PLACES: usize = 256;
/// The place of statements without an identifier.
const UNNAMED: usize = PLACES;
/// Recordings that a statement is allowed in any window: without them nothing would be known of it.
const LEAST: f64 = 1.0;

/// One backend's.
pub struct Budget {
    /// Recordings in this window if nothing were thinned.
    wanted: [f32; PLACES + 1],
    /// Probabilities in this window, as fractions of the sample rate.
    kept: [f32; PLACES + 1],
    /// Executions in this window, and until its end.
    length: u32,
    left: u32,
    /// Recordings that were done without, as expected of the probabilities.
    thinned: f64,
    /// Time of the client's statements in this window, estimated, ns.
    time: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            wanted: [0.0; PLACES + 1],
            kept: [1.0; PLACES + 1],
            length: FIRST,
            left: FIRST,
            thinned: 0.0,
            time: 0.0,
        }
    }
}

impl Budget {
    /// The statement with this hash is to be drawn for, where the sample rate is `rate`: with this probability.
    pub fn probability(&mut self, hash: u64, rate: f64) -> f64 {
        let place = hash as usize % PLACES;
        self.saw(place, 1.0, rate);
        rate * f64::from(self.kept[place])
    }

    /// Likewise for statements without an identifier. They are drawn by gaps, so what is seen of them is told apart.
    pub fn probability_unnamed(&self, rate: f64) -> f64 {
        rate * f64::from(self.kept[UNNAMED])
    }

    /// One of these was drawn, and stands for so many.
    pub fn saw_unnamed(&mut self, executions: f64, rate: f64) {
        self.saw(UNNAMED, executions, rate);
    }

    fn saw(&mut self, place: usize, executions: f64, rate: f64) {
        let wanted = executions * rate;
        self.wanted[place] += wanted as f32;
        self.thinned += wanted * (1.0 - f64::from(self.kept[place]));
        self.left = self.left.saturating_sub(executions as u32);
    }

    /// A client's statement was recorded that took so long and stands for `weight`.
    pub fn took(&mut self, weight: f64, nanoseconds: u64) {
        self.time += weight * nanoseconds as f64;
    }

    /// Whether the window is over.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Ends the window. Recording a statement costs `cost` ns, and all of it may take `share` of the statements' time from
    /// now on. How many recordings were done without in the window.
    pub fn next(&mut self, cost: f64, share: f64) -> f64 {
        let next = (2 * self.length).min(LAST);
        // what is allowed in the next window, as if that were as long as this
        let least = LEAST * f64::from(self.length) / f64::from(next);
        let level = level(&self.wanted, self.time * share / cost).max(least);
        for (kept, wanted) in self.kept.iter_mut().zip(self.wanted) {
            let wanted = f64::from(wanted);
            *kept = if wanted > level { (level / wanted) as f32 } else { 1.0 };
        }
        let thinned = self.thinned;
        (self.wanted, self.thinned, self.time) = ([0.0; PLACES + 1], 0.0, 0.0);
        (self.length, self.left) = (next, next);
        thinned
    }
}

/// The largest L with the sum of min(n, L) at most `most`.
fn level(wanted: &[f32; PLACES + 1], most: f64) -> f64 {
    let mut sorted = *wanted;
    sorted.sort_unstable_by(f32::total_cmp);
    let mut left = most.max(0.0);
    for (n, above) in sorted.iter().zip((1..=sorted.len()).rev()) {
        let n = f64::from(*n);
        if n * above as f64 > left {
            return left / above as f64;
        }
        left -= n;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Draw;
    use crate::draw::tests::Seeded;

    fn level_of(wanted: &[f32], most: f64) -> f64 {
        let mut all = [0.0; PLACES + 1];
        all[..wanted.len()].copy_from_slice(wanted);
        level(&all, most)
    }

    #[test]
    fn the_level_lets_through_what_is_allowed() {
        assert_eq!(level_of(&[10.0, 5.0, 1.0], 16.0), f64::INFINITY);
        assert_eq!(level_of(&[10.0, 5.0, 1.0], 11.0), 5.0);
        assert_eq!(level_of(&[10.0, 5.0, 1.0], 3.0), 1.0);
        assert_eq!(level_of(&[10.0, 0.0, 10.0], 4.0), 2.0);
        assert_eq!(level_of(&[1.0], 0.0), 0.0);
        assert_eq!(level_of(&[], 0.0), f64::INFINITY);
    }

    struct Run {
        /// Weights of what was recorded, by statement.
        recorded: Vec<Vec<f64>>,
        /// What recording cost, as a share of the statements' time.
        share: f64,
        thinned: f64,
    }

    /// Windows of a workload: statements by hash, how many of the executions are theirs, and what each takes.
    fn run(workload: &[(u64, u32, u64)], windows: usize, rate: f64, cost: f64, share: f64) -> Run {
        let (mut budget, mut draw) = (Budget::default(), Draw::new(Seeded(7)));
        let mut recorded = vec![Vec::new(); workload.len()];
        let (mut recordings, mut time, mut thinned) = (0.0, 0.0, 0.0);
        for window in 0..windows {
            for (which, (hash, count, ns)) in workload.iter().enumerate() {
                for _ in 0..*count {
                    let p = budget.probability(*hash, rate);
                    // the first one is let through whole
                    let counts = f64::from(u8::from(window > 0));
                    time += counts * *ns as f64;
                    if draw.happens(p) {
                        recorded[which].push(1.0 / p);
                        budget.took(1.0 / p, *ns);
                        recordings += counts;
                    }
                    if budget.is_over() {
                        thinned += budget.next(cost, share);
                    }
                }
            }
        }
        Run { recorded, share: recordings * cost / time, thinned }
    }

    #[test]
    fn recording_stays_below_its_share_and_thins_what_is_hot_alone() {
        let workload = [(1, 1000, 1_000), (2, 20, 2_000), (3, 4, 50_000)];
        for rate in [1.0, 0.5] {
            let run = run(&workload, 400, rate, 100.0, 0.01);
            assert!((0.008..0.0115).contains(&run.share), "{}", run.share);
            // what is rare is always looked at as often as the rate says
            assert!(run.recorded[2].iter().all(|w| (*w * rate - 1.0).abs() < 1e-6));
            assert!(run.recorded[0].iter().filter(|w| **w > 4.0).count() > 1000);
            for ((_, count, _), weights) in workload.iter().zip(&run.recorded) {
                let (truth, found) = (f64::from(*count) * 400.0, weights.iter().sum::<f64>());
                let variance: f64 = weights.iter().map(|w| w * (w - 1.0)).sum();
                assert!((found - truth).abs() <= 4.0 * variance.sqrt(), "{found} for {truth}");
            }
            let recordings = run.recorded.iter().flatten().count() as f64;
            let wanted = 1024.0 * 400.0 * rate;
            assert!((run.thinned / (wanted - recordings) - 1.0).abs() < 0.02, "{}", run.thinned);
        }
    }

    #[test]
    fn in_a_short_session_only_its_beginning_is_recorded_whole() {
        let run = run(&[(1, 1000, 1_000)], 1, 1.0, 100.0, 0.01);
        // 64, and a tenth of the rest
        let recorded = run.recorded[0].len();
        assert!((100..250).contains(&recorded), "{recorded}");
        assert_eq!(run.recorded[0][..64], [1.0; 64]);
    }

    #[test]
    fn within_the_budget_nothing_is_thinned() {
        let run = run(&[(1, 1024, 100_000)], 20, 1.0, 100.0, 0.01);
        assert_eq!((run.recorded[0].len(), run.thinned), (20 * 1024, 0.0));
        assert!(run.recorded[0].iter().all(|w| *w == 1.0));
    }

    #[test]
    fn something_of_every_statement_is_recorded_however_small_the_budget() {
        let run = run(&[(1, 1000, 1), (2, 24, 1)], 100, 1.0, 1e6, 1e-6);
        assert!(run.recorded.iter().all(|weights| weights.len() > 50));
    }

    #[test]
    fn what_has_no_identifier_is_thinned_together() {
        let mut budget = Budget::default();
        budget.saw_unnamed(2048.0, 0.5);
        budget.took(1.0, 1_000_000);
        assert!(budget.is_over());
        budget.next(100.0, 0.01);
        // 100 of 1,024 may be recorded
        let p = budget.probability_unnamed(0.5);
        assert!((p - 0.5 * 100.0 / 1024.0).abs() < 1e-6, "{p}");
        assert_eq!(budget.probability(5, 0.5), 0.5);
    }
}
