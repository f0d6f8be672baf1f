//! Rounds of slices: each has every arm once and the baseline a second time. What they say about the arms.

use std::time::Duration;

use super::latency::distribution;
use super::timed::{NS_PER_MS, Sample, quantile};
use crate::cli::Plan;
use crate::error::Result;
use crate::report::{ArmThroughput, Conservation, HotLatency, Throughput, ThroughputSlice};
use crate::stats::{self, Details, Effect, Finding, judge};

/// Rounds aimed at, and the least: an interval needs pairs.
const ROUNDS: f64 = 20.0;
const MIN_ROUNDS: usize = 8;
/// The share of a run's rounds, one in so many, among which a warm-up is looked for.
const WARM_UP_WITHIN: usize = 3;

/// How the duration is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    pub rounds: usize,
    pub slice: Duration,
    pub warm_up: Duration,
}

impl Division {
    /// `entries`: slices per round. `limits` of a slice, in seconds. `warm_up`: as a share of the slice before each.
    pub fn new(duration: Duration, entries: usize, limits: (f64, f64), warm_up: f64) -> Self {
        let per_entry = duration.as_secs_f64() / entries as f64;
        let slice = (per_entry / ROUNDS).clamp(limits.0, limits.1);
        let rounds = ((per_entry / slice).round() as usize).max(MIN_ROUNDS);
        Division {
            rounds,
            slice: Duration::from_secs_f64(slice),
            warm_up: Duration::from_secs_f64(slice * warm_up),
        }
    }

    /// How long it takes, which is longer than was asked for where that is too little for the least rounds and slices.
    pub fn said(&self, entries: usize) -> String {
        let slices = (self.rounds * entries) as f64;
        let [slice, warm_up] = [self.slice, self.warm_up].map(|length| length.as_secs_f64());
        format!(
            "{slices} slices of {slice:.1} s ({} rounds), each after a start of the server and {warm_up:.1} s of warm-up: \
             {:.0} s are measured, and it takes {:.0} s and the starts",
            self.rounds,
            slices * slice,
            slices * (slice + warm_up)
        )
    }
}

/// What has been measured so far.
pub struct Rounds {
    division: Division,
    /// In the order in which they ran.
    pub slices: Vec<ThroughputSlice>,
    /// For each arm: of each of the first rounds, and of all later ones together.
    samples: Vec<(Vec<Sample>, Sample)>,
}

impl Rounds {
    pub fn new(arms: usize, division: Division) -> Result<Self> {
        let samples = (0..arms).map(|_| Ok((Vec::new(), Sample::empty()?))).collect::<Result<_>>()?;
        Ok(Rounds { division, slices: Vec::new(), samples })
    }

    /// `again`: the baseline's second slice, there for the noise.
    pub fn push(&mut self, round: usize, arm: usize, again: bool, sample: Sample) {
        self.slices.push(sample.raw(round, arm, again, self.division.slice));
        if again {
            return;
        }
        let (first, later) = &mut self.samples[arm];
        if round < self.division.rounds / WARM_UP_WITHIN {
            first.push(sample);
        } else {
            later.merge(&sample);
        }
    }

    fn count(&self) -> usize {
        self.slices.iter().map(|slice| slice.round + 1).max().unwrap_or(0)
    }

    /// Whether every change's interval, in a whole number of rounds, is as narrow as asked for.
    pub fn are_precise(&self, plan: &Plan) -> bool {
        let Some(width) = plan.request.until_width else { return false };
        let cut = self.warm_up();
        if self.count() - cut < MIN_ROUNDS {
            return false;
        }
        let tps = Compared::new(TPS, &self.slices, cut, plan.seed);
        let narrow = |effect: &Effect| effect.width() <= width.fraction();
        narrow(&tps.noise) && (1..self.samples.len()).all(|arm| narrow(&tps.effect(arm)))
    }

    /// Rounds at the start in which the servers were still warming up, as all arms' throughput together tells.
    fn warm_up(&self) -> usize {
        let arms = self.samples.len();
        let means: Vec<f64> =
            (0..arms).map(|arm| mean(self.slices.iter().filter(|s| s.arm == arm).map(|s| s.tps))).collect();
        let of_round = |round: usize| {
            let slices = self.slices.iter().filter(|s| s.round == round);
            mean(slices.map(|s| (s.tps.max(f64::MIN_POSITIVE) / means[s.arm]).ln()))
        };
        let series: Vec<f64> = (0..self.count()).map(of_round).collect();
        stats::warm_up(&series).min(self.division.rounds / WARM_UP_WITHIN)
    }

    /// `conservation`: of each arm, where it is known.
    pub fn result(self, plan: &Plan, conservation: Vec<Option<Conservation>>) -> Result<Throughput> {
        let cut = self.warm_up();
        let rounds = self.count();
        let tps = Compared::new(TPS, &self.slices, cut, plan.seed);
        let hot = plan.workload.has_hot_statements();
        let hot_p99 = hot.then(|| Compared::new(HOT_P99, &self.slices, cut, plan.seed));
        let seconds = self.division.slice.as_secs_f64() * (rounds - cut) as f64;
        let mut arms = Vec::new();
        for (index, conservation) in conservation.into_iter().enumerate() {
            let (first, later) = &self.samples[index];
            let mut kept = Sample::empty()?;
            first.iter().skip(cut).chain([later]).for_each(|sample| kept.merge(sample));
            let hot = hot_p99.as_ref().map(|compared| hot_latency(&kept, compared.change(index)));
            let (change, finding) = tps.change(index).unzip();
            arms.push(ArmThroughput {
                arm: plan.arms[index],
                tps: kept.moments.count() as f64 / seconds,
                transactions: kept.moments.count(),
                conflicts: kept.conflicts,
                latency_mean: kept.moments.mean() / NS_PER_MS,
                latency_stddev: kept.moments.stddev() / NS_PER_MS,
                latency_p50: quantile(&kept.latencies, 0.50),
                latency_p95: quantile(&kept.latencies, 0.95),
                latency_p99: quantile(&kept.latencies, 0.99),
                client_cpu: kept.cpu_ns.map(|ns| ns as f64 / 1000.0 / kept.moments.count().max(1) as f64),
                change,
                finding,
                details: (index > 0).then(|| Details::of_differences(&tps.changes(index))),
                hot,
                conservation,
                distribution: distribution(&kept.latencies),
                watched: None,
            });
        }
        let (noise, hot_noise) = (tps.noise, hot_p99.map(|compared| compared.noise));
        Ok(Throughput {
            off: super::off_of(plan),
            rounds,
            slice: self.division.slice.as_secs_f64(),
            warm_up: self.division.warm_up.as_secs_f64(),
            warm_up_rounds: cut,
            arms,
            noise,
            hot_noise,
            slices: self.slices,
        })
    }
}

fn hot_latency(kept: &Sample, change: Option<(Effect, Finding)>) -> HotLatency {
    let (change, finding) = change.unzip();
    HotLatency {
        transactions: kept.hot.len(),
        p50: quantile(&kept.hot, 0.50),
        p99: quantile(&kept.hot, 0.99),
        p999: quantile(&kept.hot, 0.999),
        change,
        finding,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// What a slice is judged by; `None` or 0: it gave nothing to judge.
type Figure = fn(&ThroughputSlice) -> Option<f64>;

const TPS: Figure = |slice| Some(slice.tps);
const HOT_P99: Figure = |slice| slice.hot_p99;

/// A figure of the arms against the baseline's in the same round, without the rounds of the warm-up.
struct Compared<'a> {
    figure: Figure,
    slices: Vec<&'a ThroughputSlice>,
    seed: u64,
    /// The baseline against itself.
    noise: Effect,
}

impl<'a> Compared<'a> {
    fn new(figure: Figure, slices: &'a [ThroughputSlice], cut: usize, seed: u64) -> Self {
        let slices: Vec<&ThroughputSlice> = slices.iter().filter(|slice| slice.round >= cut).collect();
        let noise = Effect::of_differences(&noise(&slices, figure), seed);
        Compared { figure, slices, seed, noise }
    }

    fn changes(&self, arm: usize) -> Vec<f64> {
        changes(&self.slices, arm, self.figure)
    }

    fn effect(&self, arm: usize) -> Effect {
        Effect::of_differences(&self.changes(arm), self.seed)
    }

    /// `None` for the baseline.
    fn change(&self, arm: usize) -> Option<(Effect, Finding)> {
        (arm > 0).then(|| {
            let change = self.effect(arm);
            (change, judge(&change, &self.noise))
        })
    }
}

/// Per round, an arm's figure against the mean of the baseline's two slices, minus 1.
fn changes(slices: &[&ThroughputSlice], arm: usize, figure: Figure) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.arm == arm).filter_map(|slice| {
        let baseline: f64 = baseline_of(slices, slice.round).map(figure).sum::<Option<f64>>()?;
        Some(figure(slice)? / (baseline / 2.0) - 1.0)
    });
    pairs.filter(|change| change.is_finite()).collect()
}

/// Per round, the baseline's second slice against its first, minus 1.
fn noise(slices: &[&ThroughputSlice], figure: Figure) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.again).filter_map(|again| {
        let first = baseline_of(slices, again.round).find(|s| !s.again)?;
        Some(figure(again)? / figure(first)? - 1.0)
    });
    pairs.filter(|change| change.is_finite()).collect()
}

fn baseline_of<'a>(
    slices: &[&'a ThroughputSlice],
    round: usize,
) -> impl Iterator<Item = &'a ThroughputSlice> {
    slices.iter().copied().filter(move |s| s.arm == 0 && s.round == round)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(round: usize, arm: usize, again: bool, tps: f64) -> ThroughputSlice {
        let (transactions, latency_mean, latency_stddev) = (0, 0.0, 0.0);
        ThroughputSlice { round, arm, again, transactions, tps, latency_mean, latency_stddev, hot_p99: None }
    }

    fn rounded(changes: Vec<f64>) -> Vec<f64> {
        changes.iter().map(|change| (change * 1000.0).round()).collect()
    }

    #[test]
    fn what_takes_longer_than_was_asked_for_is_said_to() {
        let said = Division::new(Duration::from_secs(10), 4, (1.0, 10.0), 0.5).said(4);
        assert!(said.starts_with("32 slices of 1.0 s (8 rounds)"), "{said}");
        assert!(said.ends_with("32 s are measured, and it takes 48 s and the starts"), "{said}");
    }

    #[test]
    fn a_long_run_has_longer_slices_and_more_rounds() {
        let division =
            |seconds, entries| Division::new(Duration::from_secs(seconds), entries, (0.25, 1.5), 0.25);
        let short = division(50, 5);
        assert_eq!((short.rounds, short.slice), (20, Duration::from_millis(500)));
        let long = division(600, 5);
        assert_eq!((long.rounds, long.slice), (80, Duration::from_millis(1500)));
        assert_eq!(division(1, 5).rounds, 8);
    }

    #[test]
    fn a_change_is_against_the_baseline_of_its_round() {
        let slices = [
            slice(0, 1, false, 90.0),
            slice(0, 0, true, 100.0),
            slice(0, 0, false, 100.0),
            slice(1, 0, false, 200.0),
            slice(1, 0, true, 220.0),
            slice(1, 1, false, 168.0),
        ];
        let all: Vec<&ThroughputSlice> = slices.iter().collect();
        assert_eq!(rounded(changes(&all, 1, TPS)), [-100.0, -200.0]);
        assert_eq!(rounded(noise(&all, TPS)), [0.0, 100.0]);
        let compared = Compared::new(TPS, &slices, 1, 1);
        assert_eq!(rounded(compared.changes(1)), [-200.0]);
    }

    #[test]
    fn a_round_without_hot_statements_says_nothing_about_them() {
        let mut slices = [
            slice(0, 0, false, 100.0),
            slice(0, 0, true, 100.0),
            slice(0, 1, false, 100.0),
            slice(1, 0, false, 100.0),
            slice(1, 0, true, 100.0),
            slice(1, 1, false, 100.0),
        ];
        for (slice, p99) in
            slices.iter_mut().zip([Some(2.0), Some(3.0), Some(5.0), Some(2.0), None, Some(9.0)])
        {
            slice.hot_p99 = p99;
        }
        let all: Vec<&ThroughputSlice> = slices.iter().collect();
        assert_eq!(changes(&all, 1, HOT_P99), [1.0]);
        assert_eq!(noise(&all, HOT_P99), [0.5]);
    }

    #[test]
    fn rounds_of_the_warm_up_are_cut_and_said_to_be() {
        let division = Division { rounds: 30, slice: Duration::from_secs(1), warm_up: Duration::ZERO };
        let mut rounds = Rounds::new(2, division).unwrap();
        for round in 0..30 {
            let wobble = (round * 7 % 5) as f64;
            let warming = if round < 4 { 0.5 } else { 1.0 };
            for (arm, again, tps) in [(0, false, 1000.0), (1, false, 900.0), (0, true, 1000.0)] {
                rounds.slices.push(slice(round, arm, again, (tps + wobble) * warming));
            }
        }
        assert_eq!(rounds.warm_up(), 4);
    }
}
