//! What follows from a run's results for the user: the answer to `--at-most`, the advice for `--budget`, and how the figures
//! came about. Pure.

use serde::Serialize;

use crate::arm::Arm;
use crate::cli::{Arguments, Mode, Plan};
use crate::invocation::Invocation;
use crate::options::Percent;
use crate::report::grid::counted;
use crate::report::{Cost, Results, Run, Throughput};
use crate::stats::{Answer, Details, Effect, at_most};

/// What an arm loses against the baseline, as a fraction; `noise`: the baseline against itself.
#[derive(Clone, Copy, Debug)]
struct Loss {
    arm: Arm,
    loss: Effect,
    noise: Effect,
}

/// `--budget`, answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub budget: Percent,
    /// The highest sample rate that was shown to stay within; `None`: none was.
    pub rate: Option<f64>,
    /// The statements that set it.
    pub sql: Vec<String>,
}

/// Of each arm but the baseline.
fn losses(results: &Results) -> Vec<Loss> {
    match results {
        Results::Cost(cost) => {
            let of_comparison = |comparison: &crate::report::Comparison| {
                let measure = comparison.primary();
                let share = |effect: Effect| effect.scaled(1.0 / measure.off);
                Loss { arm: comparison.arm, loss: share(measure.change), noise: share(measure.noise) }
            };
            cost.comparisons.iter().map(of_comparison).collect()
        }
        Results::Throughput(throughput) => {
            let of_arm = |arm: &crate::report::ArmThroughput| {
                let change = arm.change?;
                let loss = Effect { estimate: -change.estimate, low: -change.high, high: -change.low };
                Some(Loss { arm: arm.arm, loss, noise: throughput.noise })
            };
            throughput.arms.iter().filter_map(of_arm).collect()
        }
        Results::Latency(_) | Results::Calibration(_) | Results::Efficiency(_) => Vec::new(),
    }
}

/// `None`: nobody asked. Every arm has to stay within the limit.
pub fn answer(plan: &Plan, results: &Results) -> Option<Answer> {
    let limit = plan.request.at_most?.fraction();
    let of_arm = |loss: Loss| at_most(&loss.loss, &loss.noise, limit);
    Some(losses(results).into_iter().map(of_arm).reduce(Answer::and).unwrap_or(Answer::NotEnoughData))
}

/// `None`: nobody asked, or no sample rates were compared.
pub fn advise(plan: &Plan, results: &Results) -> Option<Advice> {
    let budget = plan.request.budget?;
    let rate_of = |loss: &Loss| match loss.arm {
        Arm::PgssRs { rate } => Some((rate, *loss)),
        _ => None,
    };
    let losses: Vec<(f64, Loss)> = losses(results).iter().filter_map(rate_of).collect();
    (!losses.is_empty()).then(|| advice(budget, losses))
}

/// Rates are tried from the lowest up, to the first that is not shown to be within: tested in this order, fixed before,
/// the chance of going too high is that of one test, however many rates there are.
fn advice(budget: Percent, mut losses: Vec<(f64, Loss)>) -> Advice {
    losses.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let within =
        |(_, loss): &&(f64, Loss)| at_most(&loss.loss, &loss.noise, budget.fraction()) == Answer::Yes;
    let rate = losses.iter().take_while(within).last().map(|(rate, _)| *rate);
    let sql = match rate {
        Some(rate) => vec![
            format!("ALTER SYSTEM SET pgss_rs.sample_rate = {rate};"),
            "SELECT pg_reload_conf();".to_owned(),
        ],
        None => Vec::new(),
    };
    Advice { budget, rate, sql }
}

/// What stands below the verdict.
pub fn text(run: &Run) -> String {
    let mut text = String::new();
    if let (Some(answer), Some(limit)) = (run.answer, run.plan.request.at_most) {
        let answer = match answer {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::NotEnoughData => "not enough data; a longer --duration narrows the intervals",
        };
        text += &format!("At most {limit}? {answer}.\n");
    }
    if let Some(advice) = &run.advice {
        text += &match advice.rate {
            Some(rate) => format!(
                "Within {}, with 95 % confidence: sample_rate up to {rate}. To set it:\n\n    {}\n",
                advice.budget,
                advice.sql.join("\n    ")
            ),
            None => format!(
                "No sample rate was shown to stay within {}; a longer --duration narrows the intervals.\n",
                advice.budget
            ),
        };
    }
    text
}

/// What a reader might want to do now, as a command to be pasted. `None`: the question was answered, or nothing follows.
pub fn next_step(runs: &[Run], arguments: &Arguments, invocation: &Invocation) -> Option<String> {
    let run = runs.iter().find(|run| run.plan.request.experiment.is_none())?;
    let of_builds = !run.plan.request.libraries.is_empty();
    if run.answer.is_some() || run.advice.is_some() || of_builds || arguments.tells_a_password() {
        return None;
    }
    let mut load = arguments.clone();
    let (what, more): (_, &[&str]) = match run.plan.mode {
        // A load that nobody chose is none of interest; one that writes is not for servers that are there already.
        Mode::Cost
            if arguments.workloads.is_empty()
                && arguments.measuring.dsn.is_none()
                && arguments.measuring.scripts.is_empty() =>
        {
            (load.scale, load.protocol) = (None, None);
            ("what it does to throughput", &["throughput", "--workload", "tpcb", "--scale", "10"])
        }
        Mode::Cost => ("what it does to throughput", &["throughput"]),
        Mode::Throughput | Mode::Sweep => {
            load.arms.clear();
            ("the sample rate that keeps within a budget", &["sweep", "--budget", "1%"])
        }
        Mode::Restart => ("more precise in the same time, servers side by side", &["throughput"]),
        Mode::Latency | Mode::Calibrate | Mode::Pgbench => return None,
    };
    Some(format!("Next, {what}:\n\n{}", invocation.command(&load, more)))
}

/// How much was cut and how alike neighbours were, where there is something to say.
pub fn details_of_cost(cost: &Cost) -> String {
    let blocks = cost.blocks.len() + cost.warm_up_blocks;
    let details = cost.comparisons.iter().filter_map(|c| Some((c.arm, c.details?)));
    let median = |details: &Details| format!("{:+.0} ns", details.median);
    warm_up_text(cost.warm_up_blocks, blocks, "blocks") + &details_text(details, median)
}

pub fn details_of_throughput(throughput: &Throughput) -> String {
    let details = throughput.arms.iter().filter_map(|arm| Some((arm.arm, arm.details?)));
    let median = |details: &Details| format!("{:+.2} %", details.median * 100.0);
    let met = throughput.arms.iter().filter(|arm| arm.conflicts > 0);
    let conflicts: Vec<String> = met.map(|arm| format!("{} {}", arm.arm, arm.conflicts)).collect();
    let mut text =
        warm_up_text(throughput.warm_up_rounds, throughput.rounds, "rounds") + &details_text(details, median);
    if !conflicts.is_empty() {
        text += &format!("Rolled back for deadlocks and conflicts, not counted: {}.\n", conflicts.join(", "));
    }
    text
}

fn warm_up_text(cut: usize, of: usize, what: &str) -> String {
    match cut {
        0 => format!("Warm-up: none found in the {of} {what}.\n"),
        1 => format!("Warm-up: the first of {of} {what} was left out.\n"),
        _ => format!("Warm-up: the first {cut} of {of} {what} were left out.\n"),
    }
}

fn details_text(
    details: impl Iterator<Item = (Arm, Details)>,
    median: impl Fn(&Details) -> String,
) -> String {
    let of_arm = |(arm, details): (Arm, Details)| {
        let alike = match details.block_length {
            1 => String::new(),
            n => format!(", {n} neighbours drawn at once (alike by {:.2})", details.autocorrelation),
        };
        format!("{arm} {} over {}{alike}", median(&details), counted(details.pairs as u64, "pair"))
    };
    let parts: Vec<String> = details.map(of_arm).collect();
    if parts.is_empty() { String::new() } else { format!("Median differences: {}.\n", parts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(rate: f64, low: f64, high: f64) -> (f64, Loss) {
        let loss = Effect { estimate: (low + high) / 2.0, low, high };
        let noise = Effect { estimate: 0.0, low: -0.002, high: 0.003 };
        (rate, Loss { arm: Arm::PgssRs { rate }, loss, noise })
    }

    #[test]
    fn the_advice_is_the_highest_rate_up_to_which_all_are_within() {
        let budget = Percent(1.0);
        let losses = vec![
            loss(1.0, 0.011, 0.02),
            loss(0.0, -0.001, 0.004),
            loss(0.5, 0.002, 0.008),
            loss(0.2, 0.001, 0.006),
            loss(0.8, 0.004, 0.012),
        ];
        let advice = advice(budget, losses);
        assert_eq!(advice.rate, Some(0.5));
        assert_eq!(advice.sql[0], "ALTER SYSTEM SET pgss_rs.sample_rate = 0.5;");
    }

    fn run_of(arguments: &Arguments) -> Run {
        let plan = arguments.plans(2).unwrap().remove(0);
        let noise = Effect { estimate: 0.0, low: -0.01, high: 0.01 };
        let results = Results::Throughput(Throughput {
            off: String::new(),
            rounds: 8,
            slice: 1.0,
            warm_up: 0.2,
            warm_up_rounds: 0,
            arms: Vec::new(),
            noise,
            hot_noise: None,
            slices: Vec::new(),
        });
        let conditions =
            crate::report::Conditions { server: Default::default(), steal: None, warnings: Vec::new() };
        Run::new(plan, Vec::new(), results, None, conditions)
    }

    fn next(arguments: &str) -> Option<String> {
        use clap::Parser;
        let words = ["pgss_rs_load"].into_iter().chain(arguments.split_whitespace());
        let arguments = Arguments::parse_from(words);
        next_step(&[run_of(&arguments)], &arguments, &Invocation::of("pgss_rs_load", true))
    }

    #[test]
    fn what_comes_next_is_a_whole_command_on_a_line_of_its_own() {
        assert_eq!(
            next("--pg-config /x/pg_config").unwrap(),
            "Next, what it does to throughput:\n\n    cargo load -- throughput --workload tpcb --scale 10 --pg-config \
             /x/pg_config"
        );
        let sweep =
            next("throughput --workload select-only --clients 4 --arms off,pgss_rs --json x").unwrap();
        assert!(
            sweep.ends_with("cargo load -- sweep --budget 1% --workload select-only --clients 4"),
            "{sweep}"
        );
        let restart = next("restart --arms off,pgss_rs@0.5").unwrap();
        assert!(restart.ends_with("cargo load -- throughput --arms off,pgss_rs@0.5"), "{restart}");
        let existing = next("cost --dsn host=/tmp").unwrap();
        assert!(existing.ends_with("cargo load -- throughput --dsn host=/tmp"), "{existing}");
    }

    #[test]
    fn nothing_comes_next_after_an_experiment_or_where_a_password_would_be_shown() {
        assert_eq!(next("--experiment sample-rate"), None);
        assert_eq!(next("cost --dsn postgresql://me:secret@db/app"), None);
        assert_eq!(next("pgbench"), None);
    }

    #[test]
    fn a_rate_above_one_that_is_not_within_does_not_count() {
        let losses = vec![loss(0.0, -0.001, 0.02), loss(1.0, 0.0, 0.001)];
        assert_eq!(advice(Percent(1.0), losses).rate, None);
    }

    #[test]
    fn a_noisy_box_gives_no_advice() {
        let mut losses = vec![loss(0.0, -0.001, 0.004)];
        losses[0].1.noise = Effect { estimate: 0.0, low: -0.02, high: 0.02 };
        let advice = advice(Percent(1.0), losses);
        assert_eq!((advice.rate, advice.sql), (None, vec![]));
    }
}
