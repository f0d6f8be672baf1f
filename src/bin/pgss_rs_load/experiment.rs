//! Published measurements as presets, and our table beside theirs.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::arm::Arm;
use crate::cli::{Mode, Plan};
use crate::env::Machine;
use crate::error::Result;
use crate::report::grid::{Grid, counted, wrapped};
use crate::report::{ArmThroughput, Results, Run, Throughput, table};
use crate::stats::{Effect, Finding};
use crate::workload::Workload;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// pgbench's select-only and TPC-B-like transactions from two clients, the module off against on
    ThinClient,
    /// Four tiny EXPLAINs, where planning is all there is, in three runs an arm
    PlannerMail,
    /// SELECT now() at the sample rates 1.0, 0.8, 0.5, 0.2, 0.0 and off
    SampleRate,
}

/// Change of TPS with the module on, in percent.
const THIN_CLIENT: [(Workload, f64); 2] = [(Workload::SelectOnly, -2.5), (Workload::Tpcb, -1.4)];

const PLANNER_MAIL: [Workload; 4] = [
    Workload::ExplainSelect,
    Workload::ExplainInnerConst,
    Workload::ExplainLeftConst,
    Workload::ExplainSelfJoin,
];

/// Rates and thousands of transactions per second; without a rate: off.
const SAMPLE_RATE: [(Option<f64>, f64); 6] = [
    (Some(1.0), 1207.0),
    (Some(0.8), 1404.0),
    (Some(0.5), 1659.0),
    (Some(0.2), 1758.0),
    (Some(0.0), 1760.0),
    (None, 1829.0),
];

/// Of the planner experiment.
const RUNS_PER_ARM: usize = 3;

/// Our figures beside the published ones.
#[derive(Debug, Serialize)]
pub struct Beside {
    pub experiment: Experiment,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// What to keep in mind when comparing, a sentence each.
    pub differs: Vec<String>,
}

impl Experiment {
    /// Sessions where the user does not say how many.
    pub fn clients(self) -> usize {
        match self {
            Experiment::PlannerMail => 1,
            Experiment::ThinClient | Experiment::SampleRate => 2,
        }
    }

    /// Of pgbench's tables where the user does not say: with fewer branches than clients they wait for each other.
    pub fn scale(self) -> u32 {
        if self == Experiment::ThinClient { 10 } else { 1 }
    }

    /// `duration`: of the whole, if the user says so. `plan` makes one run's plan.
    pub fn plans(
        self,
        duration: Option<Duration>,
        plan: impl Fn(Mode, Workload, Duration) -> Result<Plan>,
    ) -> Result<Vec<Plan>> {
        let (workloads, seconds): (Vec<Workload>, u64) = match self {
            Experiment::ThinClient => (THIN_CLIENT.map(|(workload, _)| workload).to_vec(), 120),
            Experiment::PlannerMail => (PLANNER_MAIL.to_vec(), 120),
            Experiment::SampleRate => (vec![Workload::Now], 60),
        };
        let each = duration.unwrap_or(Duration::from_secs(seconds)) / workloads.len() as u32;
        workloads.into_iter().map(|workload| plan(Mode::Throughput, workload, each)).collect()
    }

    /// `runs`: those of this experiment.
    pub fn beside(self, runs: &[&Run], machine: &Machine, server: &str) -> Beside {
        let of_runs = |rows: fn(&Run, &Throughput) -> Vec<Vec<String>>| {
            let of_run = |run: &&Run| match &run.results {
                Results::Throughput(throughput) => rows(run, throughput),
                _ => Vec::new(),
            };
            runs.iter().flat_map(of_run).collect::<Vec<_>>()
        };
        let here = format!("Here: {server}, {} ({})", counted(machine.cpus as u64, "CPU"), machine.cpu_model);
        let (columns, rows, differs): (Vec<_>, _, Vec<String>) = match self {
            Experiment::ThinClient => (
                vec![
                    "workload",
                    "arm",
                    "TPS",
                    "change %",
                    "95 % interval %",
                    "published %",
                    "latency ms",
                    "stddev",
                    "transactions",
                ],
                of_runs(thin_client_rows),
                vec![
                    "Published: pgbench from a thin client with 2 cores, module off against on, one run each".to_owned(),
                    "Its server, its version and its intervals are not told".to_owned(),
                ],
            ),
            Experiment::PlannerMail => (
                vec!["script", "arm", "TPS", "run 1 %", "run 2 %", "run 3 %", "change %", "95 % interval %"],
                of_runs(planner_rows),
                vec![
                    "Published: a server with and without a patch to the planner, by pgbench, three runs each".to_owned(),
                    "Its figures are the patch's, so there is nothing to put beside ours; measure a patch of a module \
                     with --library A.so --library B.so"
                        .to_owned(),
                ],
            ),
            Experiment::SampleRate => (
                vec![
                    "sample_rate",
                    "TPS",
                    "change %",
                    "95 % interval %",
                    "published thousand TPS",
                    "published change %",
                ],
                of_runs(sample_rate_rows),
                vec![
                    "Published: 48 CPUs, a single spinlock for the one hot statement".to_owned(),
                    "What sampling saved there is mostly waiting for that lock, which few CPUs do not show, and which \
                     pgss_rs does not have (docs/scaling.md)"
                        .to_owned(),
                ],
            ),
        };
        let differs = differs.into_iter().chain([here]).map(|sentence| sentence + ".").collect();
        Beside { experiment: self, columns, rows, differs }
    }
}

fn thin_client_rows(run: &Run, throughput: &Throughput) -> Vec<Vec<String>> {
    let published = THIN_CLIENT.iter().find(|(workload, _)| *workload == run.plan.workload);
    let row = |arm: &ArmThroughput| {
        let (change, range) = cells(arm);
        let published = match (published, arm.arm) {
            (Some((_, percent)), on) if on != Arm::Off => format!("{percent:+.1}"),
            _ => String::new(),
        };
        vec![
            run.plan.workload_name(),
            arm.arm.to_string(),
            format!("{:.0}", arm.tps),
            change,
            range,
            published,
            format!("{:.3}", arm.latency_mean),
            format!("{:.3}", arm.latency_stddev),
            arm.transactions.to_string(),
        ]
    };
    throughput.arms.iter().map(row).collect()
}

fn planner_rows(run: &Run, throughput: &Throughput) -> Vec<Vec<String>> {
    let row = |(index, arm): (usize, &ArmThroughput)| {
        let (change, range) = cells(arm);
        let mut row = vec![run.plan.workload_name(), arm.arm.to_string(), format!("{:.0}", arm.tps)];
        row.extend(changes_by_run(throughput, index).map(|change| match change {
            Some(change) if index > 0 => format!("{:+.2}", change * 100.0),
            _ => String::new(),
        }));
        row.extend([change, range]);
        row
    };
    throughput.arms.iter().enumerate().map(row).collect()
}

/// An arm's transactions against the baseline's in each third of the rounds, minus 1.
fn changes_by_run(throughput: &Throughput, arm: usize) -> [Option<f64>; RUNS_PER_ARM] {
    let (first, rounds) = (throughput.warm_up_rounds, throughput.rounds - throughput.warm_up_rounds);
    std::array::from_fn(|run| {
        let within = (first + rounds * run / RUNS_PER_ARM)..(first + rounds * (run + 1) / RUNS_PER_ARM);
        let mean = |arm: usize| {
            let slices = throughput.slices.iter().filter(|s| s.arm == arm && within.contains(&s.round));
            let tps: Vec<f64> = slices.map(|s| s.tps).collect();
            (!tps.is_empty()).then(|| tps.iter().sum::<f64>() / tps.len() as f64)
        };
        Some(mean(arm)? / mean(0)? - 1.0)
    })
}

fn sample_rate_rows(_: &Run, throughput: &Throughput) -> Vec<Vec<String>> {
    let off = SAMPLE_RATE[SAMPLE_RATE.len() - 1].1;
    let row = |arm: &ArmThroughput| {
        let (change, range) = cells(arm);
        let rate = match arm.arm {
            Arm::PgssRs { rate } => Some(rate),
            _ => None,
        };
        let published =
            SAMPLE_RATE.iter().find(|(r, _)| *r == rate && (rate.is_some() || arm.arm == Arm::Off));
        let (thousands, published_change) = match published {
            Some((rate, tps)) => {
                let change = rate.map_or_else(String::new, |_| format!("{:+.1}", (tps / off - 1.0) * 100.0));
                (format!("{tps:.0}"), change)
            }
            None => (String::new(), String::new()),
        };
        let name = rate.map_or_else(|| arm.arm.to_string(), |rate| format!("{rate:.1}"));
        vec![name, format!("{:.0}", arm.tps), change, range, thousands, published_change]
    };
    // As published: from all to nothing.
    throughput.arms.iter().skip(1).chain(throughput.arms.first()).map(row).collect()
}

/// The change and its interval, both in %; empty for the baseline.
fn cells(arm: &ArmThroughput) -> (String, String) {
    let range = |change: Effect| format!("{:+.2} to {:+.2}", change.low, change.high);
    match (arm.change.map(|change| change.scaled(100.0)), arm.finding) {
        (Some(change), Some(Finding::Difference)) => (format!("{:+.2}", change.estimate), range(change)),
        (Some(_), Some(Finding::NoDifference { smallest })) => {
            ("none seen".to_owned(), table::from_on(Some(smallest * 100.0), 2))
        }
        _ => (String::new(), String::new()),
    }
}

impl Beside {
    /// For the terminal.
    pub fn text(&self) -> String {
        let names = ["workload", "script", "arm", "sample_rate"];
        let mut table =
            Grid::new(self.columns.iter().take_while(|column| names.contains(column)).count(), &self.columns);
        self.rows.iter().for_each(|row| table.push(row.clone()));
        let table = table.text();
        let name = self.experiment.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let differs = wrapped(&self.differs.join("\n"));
        format!("Experiment {name}, beside what was published:\n\n{table}\n\n{differs}\n")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;
    use crate::report::{Conditions, ThroughputSlice};
    use crate::stats::judge;

    fn plans(experiment: &str) -> Vec<Plan> {
        Arguments::parse_from(["pgss_rs_load", "--experiment", experiment]).plans(48).unwrap()
    }

    #[test]
    fn each_experiment_is_what_was_published() {
        let shape = |experiment: &str| {
            let plans = plans(experiment);
            let names = plans.iter().map(|p| p.workload.name()).collect::<Vec<_>>().join(",");
            let arms = plans[0].arms.iter().map(Arm::to_string).collect::<Vec<_>>().join(",");
            (names, arms, plans[0].clients, plans[0].scale, plans[0].protocol.name())
        };
        let shape_of = |names: &str, arms: &str, clients, scale| {
            (names.to_owned(), arms.to_owned(), clients, scale, "prepared".to_owned())
        };
        assert_eq!(
            shape("thin-client"),
            shape_of("select-only,tpcb", "off,pgss_rs,pg_stat_statements", 2, 10)
        );
        let scripts = "explain-select,explain-inner-const,explain-left-const,explain-self-join";
        assert_eq!(shape("planner-mail").0, scripts);
        let rates = "off,pgss_rs,pgss_rs@0.8,pgss_rs@0.5,pgss_rs@0.2,pgss_rs@0";
        assert_eq!(shape("sample-rate"), shape_of("now", rates, 2, 1));
        let clash = ["pgss_rs_load", "cost", "--experiment", "sample-rate"];
        assert!(Arguments::try_parse_from(clash).is_err());
    }

    /// One arm besides off, at a rate, in two rounds of the warm-up and six more.
    fn throughput(rate: f64) -> Throughput {
        let slices = (0..8).flat_map(|round| {
            let of_arm = |arm: usize| {
                let tps = if arm == 0 { 1000.0 } else { 900.0 + 10.0 * (round / 2) as f64 };
                let (latency_mean, latency_stddev, hot_p99) = (1.0, 0.1, None);
                ThroughputSlice {
                    round,
                    arm,
                    again: false,
                    transactions: 100,
                    tps,
                    latency_mean,
                    latency_stddev,
                    hot_p99,
                }
            };
            [of_arm(0), of_arm(1)]
        });
        let noise = Effect { estimate: 0.0, low: -0.01, high: 0.01 };
        let change = Effect { estimate: -0.08, low: -0.09, high: -0.07 };
        let arm = |arm: Arm, change: Option<Effect>| ArmThroughput {
            arm,
            tps: 1000.0,
            transactions: 800,
            conflicts: 0,
            latency_mean: 1.0,
            latency_stddev: 0.1,
            latency_p50: 1.0,
            latency_p95: 1.1,
            latency_p99: 1.2,
            client_cpu: None,
            finding: change.map(|change| judge(&change, &noise)),
            change,
            details: None,
            hot: None,
            conservation: None,
            distribution: Vec::new(),
            watched: None,
        };
        Throughput {
            off: String::new(),
            rounds: 8,
            slice: 1.0,
            warm_up: 0.2,
            warm_up_rounds: 2,
            arms: vec![arm(Arm::Off, None), arm(Arm::PgssRs { rate }, Some(change))],
            noise,
            hot_noise: None,
            slices: slices.collect(),
        }
    }

    fn beside(experiment: Experiment, name: &str) -> Beside {
        let results = Results::Throughput(throughput(0.5));
        let conditions = Conditions { server: Default::default(), steal: None, warnings: Vec::new() };
        let run = Run::new(plans(name).remove(0), Vec::new(), results, None, conditions);
        experiment.beside(&[&run], &Machine::here(), "PostgreSQL 15")
    }

    #[test]
    fn a_rate_stands_beside_its_published_throughput() {
        let beside = beside(Experiment::SampleRate, "sample-rate");
        assert_eq!(beside.rows[0], ["0.5", "1000", "-8.00", "-9.00 to -7.00", "1659", "-9.3"]);
        assert_eq!(beside.rows[1][4..], ["1829", ""]);
        assert!(beside.text().contains("48 CPUs") && beside.text().contains("PostgreSQL 15"));
    }

    #[test]
    fn the_thin_clients_loss_stands_beside_ours() {
        let beside = beside(Experiment::ThinClient, "thin-client");
        assert_eq!(
            beside.rows[1][..6],
            ["select-only", "pgss_rs@0.5", "1000", "-8.00", "-9.00 to -7.00", "-2.5"]
        );
        assert_eq!(beside.rows[0][5], "");
    }

    #[test]
    fn three_runs_of_the_planner_are_thirds_of_what_was_kept() {
        let beside = beside(Experiment::PlannerMail, "planner-mail");
        assert_eq!(beside.rows[1][3..6], ["-9.00", "-8.00", "-7.00"]);
    }
}
