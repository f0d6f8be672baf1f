//! The answer in one sentence.

use super::{ArmLatency, ArmThroughput, Comparison, Cost, Latency, Results, Throughput, document};
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
        Finding::NoDifference { smallest } => {
            format!("{arm}: change of {time} per statement {}", none_seen(Some(smallest), 0, "ns"))
        }
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
    let rate = format!("the rate of {:.0} a second", latency.rate);
    let of_arm = |arm: &ArmLatency| {
        if arm.held {
            percentile_of(arm)
        } else {
            Some(format!("{} did not hold {rate} ({:.0} completed)", arm.arm, arm.achieved))
        }
    };
    let held = latency.arms.iter().all(|arm| arm.held);
    let all_held = held.then(|| match &latency.arms[..] {
        [_] => format!("{rate} was held; nothing was compared"),
        _ => format!("{rate} was held by every arm"),
    });
    all_held.into_iter().chain(latency.arms.iter().filter_map(of_arm)).collect()
}

/// `None` for the baseline.
fn percentile_of(arm: &ArmLatency) -> Option<String> {
    let of = arm.percentiles.iter().rev().find(|of| of.percentile <= 99.0)?;
    let change = of.change?.scaled(100.0);
    let what = format!("p{}", of.percentile);
    Some(match (of.finding, change.low, change.high) {
        (Some(document::Finding::Difference), Some(low), Some(high)) => format!(
            "{} changes {what} by {:+.1} % (95 % interval {low:+.1} to {high:+.1} %)",
            arm.arm, change.estimate
        ),
        (Some(document::Finding::NoDifference { smallest }), ..) => {
            format!("{}: change of {what} {}", arm.arm, none_seen(smallest.map(|s| s * 100.0), 1, "%"))
        }
        _ => format!("{}: change of {what} {}", arm.arm, none_seen(None, 1, "%")),
    })
}

fn change_of(arm: &Arm, what: &str, change: Effect, finding: Finding) -> String {
    let change = change.scaled(100.0);
    match finding {
        Finding::Difference => format!(
            "{arm} changes {what} by {:+.1} % (95 % interval {:+.1} to {:+.1} %)",
            change.estimate, change.low, change.high
        ),
        Finding::NoDifference { smallest } => {
            format!("{arm}: change of {what} {}", none_seen(Some(smallest * 100.0), 1, "%"))
        }
    }
}

/// `smallest`: what the run would have seen; `None` or infinite: it cannot be told.
fn none_seen(smallest: Option<f64>, digits: usize, unit: &str) -> String {
    match smallest {
        Some(smallest) if smallest.is_finite() => format!("none seen from {smallest:.digits$} {unit} on"),
        _ => "unknown, there is not enough data".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::Interval;
    use super::super::{Measure, PercentileOf};
    use super::*;
    use crate::stats::judge;

    fn comparison(estimate: f64) -> Comparison {
        let change = Effect { estimate, low: estimate - 20.0, high: estimate + 20.0 };
        let noise = Effect { estimate: 0.0, low: -30.0, high: 25.0 };
        let measure = || Measure { off: 10_000.0, change, noise, finding: judge(&change, &noise) };
        let arm = Arm::PgssRs { rate: 1.0 };
        Comparison {
            arm,
            blocks: 9,
            statements: 5400,
            wall: measure(),
            cpu: Some(measure()),
            details: None,
            watched: None,
        }
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
    fn within_the_noise_none_is_seen_and_the_size_that_would_have_been_is_told() {
        let said = of_comparison(&comparison(25.0));
        assert_eq!(said, "pgss_rs: change of server CPU per statement none seen from 30 ns on");
        assert_eq!(none_seen(Some(f64::INFINITY), 1, "%"), "unknown, there is not enough data");
    }

    fn latency(held: [bool; 2]) -> Latency {
        let interval = |estimate, width| Interval {
            estimate,
            low: Some(estimate - width),
            high: Some(estimate + width),
        };
        let percentile = |compared: bool| PercentileOf {
            percentile: 99.0,
            ms: 1.0,
            change: compared.then(|| interval(0.01, 0.02)),
            noise: interval(0.0, 0.03),
            finding: compared.then_some(document::Finding::NoDifference { smallest: Some(0.035) }),
        };
        let arm = |(name, held, compared): (&str, bool, bool)| {
            ArmLatency::example(name, held, vec![percentile(compared)])
        };
        let arms = vec![arm(("off", held[0], false)), arm(("pgss_rs", held[1], true))];
        Latency {
            rate: 100.0,
            arrivals: "poisson".to_owned(),
            rounds: 8,
            slice: 1.0,
            warm_up: 0.2,
            percentiles: vec![99.0],
            arms,
            slices: Vec::new(),
        }
    }

    #[test]
    fn whether_the_rate_was_held_is_said_either_way() {
        let held = of_latency(&latency([true, true]));
        assert_eq!(held[0], "the rate of 100 a second was held by every arm");
        assert_eq!(held[1..], ["pgss_rs: change of p99 none seen from 3.5 % on"]);
        let missed = of_latency(&latency([true, false]));
        assert_eq!(missed, ["pgss_rs did not hold the rate of 100 a second (99 completed)"]);
    }
}
