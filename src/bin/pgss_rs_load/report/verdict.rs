//! The answer in one sentence.

use super::{ArmThroughput, Comparison, Cost, Latency, Results, Throughput, document};
use crate::arm::Arm;
use crate::stats::{Effect, Finding};

pub fn of(results: &Results) -> String {
    let parts = match results {
        Results::Cost(cost) => of_cost(cost),
        Results::Throughput(throughput) => of_throughput(throughput),
        Results::Calibration(calibration) => vec![calibration.verdict()],
        Results::Efficiency(efficiency) => vec![efficiency.verdict()],
        Results::Latency(latency) => of_latency(latency),
    };
    match &parts[..] {
        [part] => format!("Verdict: {part}."),
        _ => format!("Verdict:\n- {}.", parts.join(";\n- ")),
    }
}

fn of_cost(cost: &Cost) -> Vec<String> {
    cost.comparisons.iter().map(of_comparison).collect()
}

fn of_comparison(comparison: &Comparison) -> String {
    let (measure, time) = match &comparison.cpu {
        Some(cpu) => (cpu, "server CPU"),
        None => (&comparison.wall, "elapsed time"),
    };
    let Comparison { arm, .. } = comparison;
    match measure.finding {
        Finding::Difference => {
            let change = measure.change;
            let verb = if change.estimate > 0.0 { "adds" } else { "saves" };
            let (low, high) =
                if change.estimate > 0.0 { (change.low, change.high) } else { (-change.high, -change.low) };
            let size = change.estimate.abs();
            let percent = 100.0 * size / measure.off;
            format!(
                "{arm} {verb} {size:.0} ns of {time} per statement ({percent:.1} %; 95 % interval {low:.0} to {high:.0} ns)"
            )
        }
        Finding::NoDifference { smallest } => format!(
            "{arm}: no change of {time} was seen (one of {smallest:.0} ns per statement would have been)"
        ),
    }
}

fn of_throughput(throughput: &Throughput) -> Vec<String> {
    let of_arm = |arm| [tps_of(arm), hot_p99_of(arm)].into_iter().flatten();
    let parts: Vec<String> = throughput.arms.iter().flat_map(of_arm).collect();
    if !parts.is_empty() {
        return parts;
    }
    let noise = throughput.noise.scaled(100.0).reach();
    vec![format!("nothing was compared; off against itself differs by up to {noise:.2} %")]
}

fn tps_of(row: &ArmThroughput) -> Option<String> {
    Some(change_of(&row.arm, "TPS", row.change?, row.finding?))
}

fn hot_p99_of(row: &ArmThroughput) -> Option<String> {
    let hot = row.hot.as_ref()?;
    Some(change_of(&row.arm, "the hot statements' p99", hot.change?, hot.finding?))
}

/// The highest percentile compared stands for all; an arm that did not hold the rate has no other verdict.
fn of_latency(latency: &Latency) -> Vec<String> {
    let mut parts = Vec::new();
    for arm in &latency.arms {
        if !arm.held {
            parts.push(format!(
                "{} does not hold {:.0} a second ({:.0} completed)",
                arm.arm, latency.rate, arm.achieved
            ));
            continue;
        }
        let compared = arm.percentiles.iter().rev().find(|of| of.percentile <= 99.0);
        let Some((of, change)) = compared.and_then(|of| Some((of, of.change?.scaled(100.0)))) else {
            continue;
        };
        let what = format!("{} changes p{}", arm.arm, of.percentile);
        parts.push(match (of.finding, change.low, change.high) {
            (Some(document::Finding::Difference), Some(low), Some(high)) => {
                format!("{what} by {:+.1} % (95 % interval {low:+.1} to {high:+.1} %)", change.estimate)
            }
            (Some(document::Finding::NoDifference { smallest: Some(smallest) }), ..) => format!(
                "{} makes no difference to p{} that this run could see (it would have seen {:.1} %)",
                arm.arm,
                of.percentile,
                smallest * 100.0
            ),
            _ => format!("of {}'s p{} nothing is known", arm.arm, of.percentile),
        });
    }
    if parts.is_empty() {
        parts.push("nothing was compared; the rate was held".to_owned());
    }
    parts
}

fn change_of(arm: &Arm, what: &str, change: Effect, finding: Finding) -> String {
    let change = change.scaled(100.0);
    match finding {
        Finding::Difference => format!(
            "{arm} changes {what} by {:+.1} % (95 % interval {:+.1} to {:+.1} %)",
            change.estimate, change.low, change.high
        ),
        Finding::NoDifference { smallest } => {
            format!("{arm}: no change of {what} was seen (one of {:.1} % would have been)", smallest * 100.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Measure;
    use super::*;
    use crate::stats::judge;

    fn comparison(estimate: f64) -> Comparison {
        let change = Effect { estimate, low: estimate - 20.0, high: estimate + 20.0 };
        let noise = Effect { estimate: 0.0, low: -30.0, high: 25.0 };
        let measure = || Measure { off: 10_000.0, change, noise, finding: judge(&change, &noise) };
        let arm = Arm::PgssRs { rate: 1.0 };
        Comparison { arm, blocks: 9, statements: 5400, wall: measure(), cpu: Some(measure()), details: None }
    }

    #[test]
    fn a_cost_is_said_with_its_interval() {
        let said = of_comparison(&comparison(300.0));
        assert_eq!(
            said,
            "pgss_rs adds 300 ns of server CPU per statement (3.0 %; 95 % interval 280 to 320 ns)"
        );
        assert!(of_comparison(&comparison(-300.0)).contains("saves 300 ns"));
        assert!(of_comparison(&comparison(-300.0)).contains("280 to 320"));
    }

    #[test]
    fn within_the_noise_there_is_no_difference() {
        let said = of_comparison(&comparison(25.0));
        assert!(said.contains("no change") && said.contains("30 ns"), "{said}");
    }
}
