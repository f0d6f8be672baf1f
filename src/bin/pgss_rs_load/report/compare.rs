//! Arms against the baseline, from raw slices and blocks as the JSON has them: for what is put together from several
//! machines, and for the open loop. Pure.

use super::document::{CostBlock, Finding, Interval, LatencySlice, Measure, ThroughputSlice};
use crate::stats::{self, Effect, judge, trimmed_mean};

/// An arm's change, and the baseline's against itself.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// `None` for the baseline.
    pub change: Option<Interval>,
    pub noise: Interval,
    pub finding: Option<Finding>,
}

/// Of TPS, as a fraction.
pub fn tps(slices: &[ThroughputSlice], arm: usize, seed: u64) -> Compared {
    let slices: Vec<Slice> =
        slices.iter().map(|s| Slice { round: s.round, arm: s.arm, again: s.again, value: s.tps }).collect();
    let noise = Effect::of_differences(&noise(&slices, |again, first| again / first - 1.0), seed);
    let against = |value: f64, baseline: &[f64]| value / mean(baseline) - 1.0;
    let change = (arm > 0).then(|| Effect::of_differences(&changes(&slices, arm, against), seed));
    Compared {
        change: change.map(Into::into),
        noise: noise.into(),
        finding: change.map(|change| judge(&change, &noise).into()),
    }
}

/// Of a percentile of latency, as a fraction. Ratios are compared by their logarithms, which a stall in either slice
/// pulls as far up as down. `which`: index into the slices' percentiles.
pub fn percentile(slices: &[LatencySlice], arm: usize, which: usize, seed: u64) -> Compared {
    let slices: Vec<Slice> = slices
        .iter()
        .map(|s| Slice { round: s.round, arm: s.arm, again: s.again, value: s.percentiles[which].ln() })
        .collect();
    let noise = Effect::of_differences(&noise(&slices, |again, first| again - first), seed);
    let against = |value: f64, baseline: &[f64]| value - mean(baseline);
    let change = (arm > 0).then(|| Effect::of_differences(&changes(&slices, arm, against), seed));
    let as_fraction = |effect: Effect| Effect {
        estimate: effect.estimate.exp_m1(),
        low: effect.low.exp_m1(),
        high: effect.high.exp_m1(),
    };
    let finding = change.map(|change| match judge(&change, &noise) {
        stats::Finding::NoDifference { smallest } => {
            stats::Finding::NoDifference { smallest: smallest.exp_m1() }
        }
        difference => difference,
    });
    Compared {
        change: change.map(|change| as_fraction(change).into()),
        noise: as_fraction(noise).into(),
        finding: finding.map(Into::into),
    }
}

/// Of a statement's time, ns: the blocks of one comparison, and those of the baseline against itself on the same server.
pub fn cost(
    blocks: &[CostBlock],
    comparison: usize,
    slices: fn(&CostBlock) -> Option<[u64; 4]>,
    seed: u64,
) -> Option<Measure> {
    let sides = |block: &CostBlock| Some(sides(&block.order, slices(block)?, block.statements));
    let of = |wanted: Option<usize>, server: Option<&str>| -> Option<Vec<[f64; 2]>> {
        let here = |block: &&CostBlock| server.is_none_or(|server| block.server == server);
        blocks.iter().filter(|block| block.comparison == wanted).filter(here).map(sides).collect()
    };
    let server = &blocks.iter().find(|block| block.comparison == Some(comparison))?.server;
    let differences = |blocks: &[[f64; 2]]| blocks.iter().map(|[a, b]| b - a).collect::<Vec<f64>>();
    let pairs = of(Some(comparison), None)?;
    let change = Effect::of_differences(&differences(&pairs), seed);
    let noise = Effect::of_differences(&differences(&of(None, Some(server))?), seed);
    let off = trimmed_mean(&mut pairs.iter().map(|[a, _]| *a).collect::<Vec<f64>>());
    Some(Measure { off, change: change.into(), noise: noise.into(), finding: judge(&change, &noise).into() })
}

/// ns per statement of the baseline's slices and of the other arm's. `order`: ABBA or BAAB.
pub fn sides(order: &str, slices: [u64; 4], statements: u32) -> [f64; 2] {
    let mut sums = [0; 2];
    for (side, ns) in order.chars().zip(slices) {
        sums[usize::from(side == 'B')] += ns;
    }
    sums.map(|sum| sum as f64 / f64::from(2 * statements.max(1)))
}

struct Slice {
    round: usize,
    arm: usize,
    again: bool,
    value: f64,
}

/// Per round, an arm's value against the baseline's two.
fn changes(slices: &[Slice], arm: usize, against: impl Fn(f64, &[f64]) -> f64) -> Vec<f64> {
    let of_arm = slices.iter().filter(|slice| slice.arm == arm && !slice.again);
    let change = |slice: &Slice| {
        let baseline: Vec<f64> = baseline_of(slices, slice.round).map(|s| s.value).collect();
        against(slice.value, &baseline)
    };
    of_arm.map(change).filter(|change| change.is_finite()).collect()
}

/// Per round, the baseline's second value against its first.
fn noise(slices: &[Slice], against: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let change = |again: &Slice| {
        let first = baseline_of(slices, again.round).find(|slice| !slice.again)?;
        Some(against(again.value, first.value))
    };
    let again = slices.iter().filter(|slice| slice.again);
    again.filter_map(change).filter(|change| change.is_finite()).collect()
}

fn baseline_of(slices: &[Slice], round: usize) -> impl Iterator<Item = &Slice> {
    slices.iter().filter(move |slice| slice.arm == 0 && slice.round == round)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(round: usize, arm: usize, again: bool, p50: f64) -> LatencySlice {
        LatencySlice { round, arm, again, intended: 1, completed: 1, backlog: 0, percentiles: vec![p50] }
    }

    #[test]
    fn a_percentile_that_always_doubles_is_a_change_by_one() {
        let mut slices = Vec::new();
        for round in 0..12 {
            let base = 1.0 + round as f64;
            slices.push(latency(round, 0, false, base * 1.01));
            slices.push(latency(round, 0, true, base / 1.01));
            slices.push(latency(round, 1, false, base * 2.0));
        }
        let compared = percentile(&slices, 1, 0, 1);
        assert!((compared.change.unwrap().estimate - 1.0).abs() < 1e-9, "{compared:?}");
        assert!((compared.noise.estimate - (1.0 / 1.0201 - 1.0)).abs() < 1e-9, "{compared:?}");
        assert_eq!(compared.finding, Some(Finding::Difference));
        let baseline = percentile(&slices, 0, 0, 1);
        assert!(baseline.change.is_none() && baseline.finding.is_none());
    }

    #[test]
    fn each_arm_is_against_the_baseline_of_its_own_round() {
        let slices = [
            (0, 1, false, 90.0),
            (0, 0, false, 100.0),
            (0, 0, true, 100.0),
            (1, 0, false, 200.0),
            (1, 0, true, 220.0),
            (1, 1, false, 168.0),
        ]
        .map(|(round, arm, again, value)| Slice { round, arm, again, value });
        let rounded = |changes: Vec<f64>| changes.iter().map(|c| (c * 1000.0).round()).collect::<Vec<_>>();
        let against = |value: f64, baseline: &[f64]| value / mean(baseline) - 1.0;
        assert_eq!(rounded(changes(&slices, 1, against)), [-100.0, -200.0]);
        assert_eq!(rounded(noise(&slices, |again, first| again / first - 1.0)), [0.0, 100.0]);
    }

    #[test]
    fn a_blocks_sides_follow_its_order() {
        assert_eq!(sides("ABBA", [1000, 2000, 4000, 3000], 50), [40.0, 60.0]);
        assert_eq!(sides("BAAB", [1000, 2000, 4000, 3000], 50), [60.0, 40.0]);
    }

    #[test]
    fn a_cost_is_against_the_noise_of_its_own_server() {
        let block = |comparison, server: &str, order: &str, added: u64| CostBlock {
            client: 0,
            comparison,
            server: server.to_owned(),
            order: order.to_owned(),
            statements: 10,
            wall_ns: order
                .chars()
                .map(|side| if side == 'B' { 1000 + added } else { 1000 })
                .collect::<Vec<_>>()
                .try_into()
                .unwrap(),
            cpu_ns: None,
        };
        let mut blocks = Vec::new();
        for n in 0..20 {
            let order = if n % 2 == 0 { "ABBA" } else { "BAAB" };
            blocks.push(block(Some(0), "a", order, 300));
            blocks.push(block(None, "a", order, n % 3));
            blocks.push(block(None, "b", order, 5000));
        }
        let measure = cost(&blocks, 0, |b| Some(b.wall_ns), 1).unwrap();
        assert_eq!(
            (measure.off, measure.change.estimate, measure.finding),
            (100.0, 30.0, Finding::Difference)
        );
        assert!(measure.noise.reach().unwrap() < 1.0);
        assert!(
            cost(&blocks, 0, |b| b.cpu_ns, 1).is_none() && cost(&blocks, 1, |b| Some(b.wall_ns), 1).is_none()
        );
    }
}
