//! What a run found. These structures are the JSON; the terminal's tables are a view of them. Every other view is made
//! from the JSON itself, as [`document`] reads it.

mod cause;
mod chart;
pub mod compare;
mod csv;
mod document;
pub mod grid;
mod html;
mod markdown;
mod merge;
mod output;
mod progress;
mod summary;
pub mod table;
mod verdict;

use std::collections::BTreeMap;

use serde::Serialize;

pub use document::{ArmLatency, Distribution, Latency, LatencySlice, PercentileOf, Watched};
pub use output::{Command, Output};
pub use progress::Progress;

use crate::arm::Arm;
use crate::calibration::Calibration;
use crate::cli::Plan;
use crate::efficiency::Efficiency;
use crate::env::Machine;
use crate::error::{Error, Result};
use crate::experiment::Beside;
use crate::judgement::{self, Advice};
use crate::schedule::Order;
use crate::stats::{Answer, Details, Effect, Finding};

/// Of the JSON's structure; raised when a reader of the old one would stumble.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize)]
pub struct Report {
    format: u32,
    driver_version: &'static str,
    pub machine: Machine,
    /// As pg_config says.
    pub server_version: String,
    pub runs: Vec<Run>,
    /// Ours and the published figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

#[derive(Debug, Serialize)]
pub struct Run {
    pub plan: Plan,
    /// What the reader should know, such as an arm left out.
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub conditions: Conditions,
    pub results: Results,
    /// One sentence.
    pub verdict: String,
    /// To `--at-most`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// To `--budget`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
    /// The top of `pgss_rs_stats` after the load, from the server that ran pgss_rs at its highest rate.
    pub seen: Option<Vec<SeenStatement>>,
}

/// Under which a run was made.
#[derive(Debug, Serialize)]
pub struct Conditions {
    /// Settings of one of the servers that matter to the result.
    pub server: BTreeMap<String, String>,
    /// Of all CPU time while it ran, the fraction that the hypervisor gave to others; `None`: unknown.
    pub steal: Option<f64>,
    /// What may have spoilt the measurement.
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Results {
    Cost(Cost),
    Throughput(Throughput),
    Calibration(Calibration),
    Efficiency(Efficiency),
    Latency(Latency),
}

#[derive(Debug, Serialize)]
pub struct Cost {
    /// What the baseline is, in words.
    pub off: String,
    /// Cut off at the start, of all clients' blocks.
    pub warm_up_blocks: usize,
    pub comparisons: Vec<Comparison>,
    pub blocks: Vec<CostBlock>,
}

/// An arm against `off`, from the blocks of all clients.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub arm: Arm,
    pub blocks: usize,
    /// Measured, of both sides.
    pub statements: u64,
    /// Elapsed time as the client sees it.
    pub wall: Measure,
    /// The server process's own CPU time; unknown where there is no /proc/PID/schedstat.
    pub cpu: Option<Measure>,
    /// More about the primary measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// What the module of the arm's server counted meanwhile, over all arms on that server; no states of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
}

impl Comparison {
    /// What is judged: server CPU where it is known.
    pub fn primary(&self) -> &Measure {
        self.cpu.as_ref().unwrap_or(&self.wall)
    }
}

/// All in ns per statement.
#[derive(Debug, Serialize)]
pub struct Measure {
    /// Of the baseline.
    pub off: f64,
    /// The arm minus the baseline.
    pub change: Effect,
    /// The baseline minus itself, in the same run on the same server.
    pub noise: Effect,
    pub finding: Finding,
}

/// One ABBA or BAAB block, raw.
#[derive(Debug, Serialize)]
pub struct CostBlock {
    pub client: u32,
    /// Index into the comparisons; `None`: the baseline against itself.
    pub comparison: Option<usize>,
    /// Which module's server, for the blocks of the baseline against itself.
    pub server: &'static str,
    pub order: Order,
    /// In each of the four slices.
    pub statements: u32,
    /// Of the four slices, in the order in which they ran.
    pub wall_ns: [u64; 4],
    pub cpu_ns: Option<[u64; 4]>,
}

#[derive(Debug, Serialize)]
pub struct Throughput {
    /// What the baseline is, in words.
    pub off: String,
    pub rounds: usize,
    /// Seconds.
    pub slice: f64,
    /// Seconds cut off before each slice.
    pub warm_up: f64,
    /// Rounds at the start that were found to be warm-up and left out of everything but `slices`.
    pub warm_up_rounds: usize,
    /// The first is the baseline.
    pub arms: Vec<ArmThroughput>,
    /// The baseline against itself, as a fraction of its TPS.
    pub noise: Effect,
    /// The baseline's 99th percentile of hot statements against itself, as a fraction; `None`: no statement is hot.
    pub hot_noise: Option<Effect>,
    pub slices: Vec<ThroughputSlice>,
}

#[derive(Debug, Serialize)]
pub struct ArmThroughput {
    pub arm: Arm,
    /// Per second.
    pub tps: f64,
    pub transactions: u64,
    /// Transactions beside these that met a deadlock or a conflict and were rolled back.
    pub conflicts: u64,
    /// ms
    pub latency_mean: f64,
    /// ms
    pub latency_stddev: f64,
    /// ms
    pub latency_p50: f64,
    /// ms
    pub latency_p95: f64,
    /// ms
    pub latency_p99: f64,
    /// What the driver itself needs, CPU microseconds per transaction.
    pub client_cpu: Option<f64>,
    /// Of TPS against the baseline, as a fraction; `None` for the baseline.
    pub change: Option<Effect>,
    pub finding: Option<Finding>,
    /// More about the change; `None` for the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// `None`: the workload has no hot statements.
    pub hot: Option<HotLatency>,
    /// `None` for arms that count nothing, or not everything.
    pub conservation: Option<Conservation>,
    pub distribution: Distribution,
    pub watched: Option<Watched>,
}

/// Latencies of the hot statements alone.
#[derive(Debug, Serialize)]
pub struct HotLatency {
    pub transactions: u64,
    /// ms
    pub p50: f64,
    /// ms
    pub p99: f64,
    /// ms
    pub p999: f64,
    /// Of the 99th percentile of a slice against the baseline, as a fraction; `None` for the baseline.
    pub change: Option<Effect>,
    pub finding: Option<Finding>,
}

/// Where the calls are that were sent to a server, warm-up included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Conservation {
    /// Statements the driver sent.
    pub sent: u64,
    /// Calls in the module's view.
    pub kept: u64,
    /// Calls of entries given up; `None`: the module does not tell.
    pub evicted: Option<u64>,
    /// Calls that could not be recorded; `None`: the module does not tell.
    pub skipped: Option<u64>,
    /// As the module's info view says: in pgss_rs entries given up, in pg_stat_statements how often some were.
    pub dealloc: u64,
}

impl Conservation {
    /// Calls missing without a word, or below zero: counted too many. `None` where the module does not tell what it
    /// gave up.
    pub fn lost(&self) -> Option<i64> {
        let accounted = self.kept + self.evicted? + self.skipped?;
        Some(self.sent as i64 - accounted as i64)
    }
}

/// One slice, raw.
#[derive(Debug, Serialize)]
pub struct ThroughputSlice {
    pub round: usize,
    /// Index into the arms.
    pub arm: usize,
    /// The second slice of the baseline in its round, there for the noise.
    pub again: bool,
    pub transactions: u64,
    /// Per second.
    pub tps: f64,
    /// ms
    pub latency_mean: f64,
    /// ms
    pub latency_stddev: f64,
    /// ms; `None`: there were no hot statements.
    pub hot_p99: Option<f64>,
}

/// A row of `pgss_rs_stats`.
#[derive(Debug, Serialize)]
pub struct SeenStatement {
    pub query: String,
    pub calls: String,
    /// ms
    pub mean_exec_time: String,
    pub rows: String,
}

impl Report {
    pub fn new(machine: Machine, server_version: String) -> Self {
        Report {
            format: FORMAT,
            driver_version: env!("CARGO_PKG_VERSION"),
            machine,
            server_version,
            runs: Vec::new(),
            beside: None,
        }
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Failed(format!("cannot write JSON: {e}")))
    }

    /// At the end of an experiment.
    pub fn compare_with_published(&mut self) {
        let experiment = self.runs.iter().find_map(|run| run.plan.request.experiment);
        let of_experiment = |run: &&Run| run.plan.request.experiment.is_some();
        let runs: Vec<&Run> = self.runs.iter().filter(of_experiment).collect();
        self.beside = experiment.map(|e| e.beside(&runs, &self.machine, &self.server_version));
    }

    /// For the terminal.
    pub fn machine_text(&self, seed: u64) -> String {
        table::machine(&self.machine, &self.server_version, seed)
    }
}

impl Run {
    pub fn new(
        plan: Plan,
        notes: Vec<String>,
        results: Results,
        seen: Option<Vec<SeenStatement>>,
        conditions: Conditions,
    ) -> Self {
        let verdict = verdict::of(&results);
        let answer = judgement::answer(&plan, &results);
        let advice = judgement::advise(&plan, &results);
        Run { plan, notes, conditions, results, verdict, answer, advice, seen }
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        table::run(self, &self.causes())
    }

    /// What the report names as the causes of losses.
    fn causes(&self) -> Vec<String> {
        let read = |value| serde_json::from_value::<document::Run>(value).ok();
        serde_json::to_value(self).ok().and_then(read).map_or_else(Vec::new, |run| cause::of(&run))
    }
}
