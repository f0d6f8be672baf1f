//! The JSON as its readers see it: what `docs/load-report.md` promises, and nothing of how the driver measures.
//!
//! Every view but the terminal's is made from this, so that a saved JSON shows what the run itself would have shown, and
//! JSON of an older driver or with members unknown here can be read. `merge` writes it again.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::FORMAT;
use crate::error::{Error, Result};
use crate::stats::{self, Effect};

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Document {
    pub format: u32,
    #[serde(default)]
    pub driver_version: String,
    pub machine: Machine,
    pub server_version: String,
    /// The machines of a merged document; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    pub runs: Vec<Run>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    pub cpus: usize,
    #[serde(default)]
    pub virtual_machine: bool,
    /// Bytes; 0: unknown.
    #[serde(default)]
    pub memory: u64,
    #[serde(default)]
    pub kernel: String,
    #[serde(default)]
    pub clock_source: String,
    #[serde(default)]
    pub load_average: f64,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    pub plan: Plan,
    #[serde(default)]
    pub notes: Vec<String>,
    /// What may have spoilt the measurement.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Settings of the servers that matter to the result.
    #[serde(default)]
    pub server: Map<String, Value>,
    /// Of all CPU time while it ran, the fraction that the hypervisor gave to others.
    #[serde(default)]
    pub steal: Option<f64>,
    pub results: Results,
    pub verdict: String,
    #[serde(default)]
    pub seen: Option<Vec<SeenStatement>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Plan {
    pub mode: String,
    pub workload: Value,
    #[serde(default)]
    pub protocol: String,
    pub clients: u32,
    /// Seconds.
    pub duration: f64,
    pub arms: Vec<String>,
    pub seed: u64,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Results {
    Cost(Cost),
    Throughput(Throughput),
    Latency(Latency),
    /// Shown in the terminal alone.
    Calibration(Value),
    /// Shown in the terminal alone.
    Efficiency(Value),
}

/// An estimate and its interval at 95 %; an end that is not known (infinite) is null.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
pub struct Interval {
    pub estimate: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    Difference,
    NoDifference { smallest: Option<f64> },
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cost {
    #[serde(default)]
    pub off: String,
    pub comparisons: Vec<Comparison>,
    #[serde(default)]
    pub blocks: Vec<CostBlock>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    pub arm: String,
    pub blocks: usize,
    pub statements: u64,
    pub wall: Measure,
    pub cpu: Option<Measure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
}

/// ns per statement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Measure {
    pub off: f64,
    pub change: Interval,
    pub noise: Interval,
    pub finding: Finding,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CostBlock {
    pub client: u32,
    /// Index into the comparisons; `None`: the baseline against itself.
    pub comparison: Option<usize>,
    pub server: String,
    /// `ABBA` or `BAAB`.
    pub order: String,
    pub statements: u32,
    pub wall_ns: [u64; 4],
    pub cpu_ns: Option<[u64; 4]>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Throughput {
    pub rounds: usize,
    pub slice: f64,
    pub warm_up: f64,
    /// Of the rounds, those at the start that count for nothing.
    #[serde(default)]
    pub warm_up_rounds: usize,
    pub arms: Vec<ArmThroughput>,
    pub noise: Interval,
    #[serde(default)]
    pub hot_noise: Option<Interval>,
    pub slices: Vec<ThroughputSlice>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ArmThroughput {
    pub arm: String,
    pub tps: f64,
    pub transactions: u64,
    pub latency_mean: f64,
    pub latency_stddev: f64,
    pub latency_p50: f64,
    pub latency_p95: f64,
    pub latency_p99: f64,
    #[serde(default)]
    pub client_cpu: Option<f64>,
    pub change: Option<Interval>,
    pub finding: Option<Finding>,
    #[serde(default)]
    pub hot: Option<Value>,
    #[serde(default)]
    pub conservation: Option<Value>,
    #[serde(default)]
    pub distribution: Option<Distribution>,
    #[serde(default)]
    pub watched: Option<Watched>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ThroughputSlice {
    pub round: usize,
    pub arm: usize,
    pub again: bool,
    pub transactions: u64,
    pub tps: f64,
    pub latency_mean: f64,
    pub latency_stddev: f64,
    #[serde(default)]
    pub hot_p99: Option<f64>,
}

/// How many transactions took how long: pairs of ns, the upper end of a class of HdrHistogram's, and count.
pub type Distribution = Vec<(u64, u64)>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Latency {
    /// Intended transactions per second.
    pub rate: f64,
    /// `poisson` or `constant`.
    pub arrivals: String,
    pub rounds: usize,
    pub slice: f64,
    pub warm_up: f64,
    /// The percentiles that are compared, such as 99.0.
    pub percentiles: Vec<f64>,
    pub arms: Vec<ArmLatency>,
    pub slices: Vec<LatencySlice>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ArmLatency {
    pub arm: String,
    pub intended: u64,
    pub completed: u64,
    pub unserved: u64,
    pub achieved: f64,
    pub held: bool,
    pub backlog: u64,
    pub mean: f64,
    pub max: f64,
    pub percentiles: Vec<PercentileOf>,
    /// The driver's own: how late it sent what a free session was waiting to send, ms, 99th percentile.
    pub driver_late_p99: f64,
    pub distribution: Distribution,
    #[serde(default)]
    pub watched: Option<Watched>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PercentileOf {
    pub percentile: f64,
    pub ms: f64,
    pub change: Option<Interval>,
    /// The baseline against itself.
    pub noise: Interval,
    pub finding: Option<Finding>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LatencySlice {
    pub round: usize,
    pub arm: usize,
    pub again: bool,
    pub intended: u64,
    pub completed: u64,
    pub backlog: u64,
    /// ms, one for each of the percentiles.
    pub percentiles: Vec<f64>,
}

/// What was seen on an arm's server while it was under load.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Watched {
    /// Looks at all sessions of the load.
    pub looks: u64,
    /// Sessions found in each state: `running`, `ClientRead`, or a wait event such as `LWLock:WALWrite`.
    pub states: Vec<(String, u64)>,
    /// By how much the module's own counters went up.
    pub counters: Vec<(String, u64)>,
    /// Seconds over which they did.
    pub seconds: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SeenStatement {
    pub query: String,
    pub calls: String,
    pub mean_exec_time: String,
    pub rows: String,
}

impl Document {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .map_err(|e| Error::Request(format!("cannot read {}: {e}", path.display())))?;
        Self::parse(&text).map_err(|e| Error::Request(format!("{}: {e}", path.display())))
    }

    /// `Err`: what is wrong with it.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("this is no JSON ({e})"))?;
        let Some(format) = value.get("format").and_then(Value::as_u64) else {
            return Err("this is no report of pgss_rs_load: it has no format".to_owned());
        };
        if format > u64::from(FORMAT) {
            return Err(format!("format {format} is of a later pgss_rs_load; this one reads up to {FORMAT}"));
        }
        serde_json::from_value(value).map_err(|e| format!("a damaged report: {e}"))
    }
}

impl Plan {
    /// As it is said on the command line; scripts by their files.
    pub fn workload_name(&self) -> String {
        let scripts = self.rest.get("request").and_then(|request| request.get("scripts")?.as_array());
        let files = |scripts: &Vec<Value>| {
            let names: Vec<&str> = scripts.iter().filter_map(|script| script.get("file")?.as_str()).collect();
            names.join(", ")
        };
        match (&self.workload, scripts.map(files).filter(|names| !names.is_empty())) {
            (_, Some(names)) => names,
            (Value::String(name), None) => name.clone(),
            (other, None) => other.to_string(),
        }
    }
}

impl Interval {
    pub fn scaled(self, factor: f64) -> Self {
        let end = |end: Option<f64>| end.map(|e| e * factor);
        Interval { estimate: self.estimate * factor, low: end(self.low), high: end(self.high) }
    }

    /// The furthest from zero that it reaches; `None`: it has no end.
    pub fn reach(self) -> Option<f64> {
        Some(self.low?.abs().max(self.high?.abs()))
    }
}

impl From<Effect> for Interval {
    fn from(effect: Effect) -> Self {
        let known = |end: f64| end.is_finite().then_some(end);
        Interval { estimate: effect.estimate, low: known(effect.low), high: known(effect.high) }
    }
}

impl From<stats::Finding> for Finding {
    fn from(finding: stats::Finding) -> Self {
        match finding {
            stats::Finding::Difference => Finding::Difference,
            stats::Finding::NoDifference { smallest } => {
                Finding::NoDifference { smallest: smallest.is_finite().then_some(smallest) }
            }
        }
    }
}

/// In ms; `None` of nothing. `share`: 0.99 for the 99th percentile.
pub fn percentile_of(distribution: &[(u64, u64)], share: f64) -> Option<f64> {
    let total: u64 = distribution.iter().map(|(_, count)| count).sum();
    let rank = ((share * total as f64).ceil() as u64).max(1);
    let mut below = 0;
    let class = distribution.iter().find(|(_, count)| {
        below += count;
        below >= rank
    });
    class.or(distribution.last()).map(|(ns, _)| *ns as f64 / 1e6)
}

#[cfg(test)]
impl ArmLatency {
    /// An arm of a run at 100 a second, with these percentiles.
    pub fn example(name: &str, held: bool, percentiles: Vec<PercentileOf>) -> Self {
        ArmLatency {
            arm: name.to_owned(),
            intended: 1000,
            completed: 990,
            unserved: 0,
            achieved: 99.0,
            held,
            backlog: 0,
            mean: 0.5,
            max: 2.0,
            driver_late_p99: 0.01,
            percentiles,
            distribution: Vec::new(),
            watched: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_a_later_format_is_refused_and_so_is_anything_else() {
        let later = r#"{"format": 99, "machine": {}}"#;
        assert!(Document::parse(later).unwrap_err().contains("format 99 is of a later pgss_rs_load"));
        assert!(Document::parse("[1]").unwrap_err().contains("no report of pgss_rs_load"));
        assert!(Document::parse(r#"{"format": 1}"#).unwrap_err().contains("damaged report: missing field"));
    }

    #[test]
    fn an_end_that_is_not_known_is_null() {
        let interval: Interval = serde_json::from_str(r#"{"estimate":1.0,"low":null,"high":null}"#).unwrap();
        assert_eq!(interval.reach(), None);
        let known: Interval = serde_json::from_str(r#"{"estimate":1.0,"low":-3.0,"high":2.0}"#).unwrap();
        assert_eq!(known.scaled(2.0).reach(), Some(6.0));
    }

    #[test]
    fn scripts_are_named_by_their_files() {
        let plan = |more: &str| -> Plan {
            let rest = r#""mode":"throughput","clients":1,"duration":1.0,"arms":[],"seed":1"#;
            serde_json::from_str(&format!("{{{rest},{more}}}")).unwrap()
        };
        let scripts =
            r#""workload":"script","request":{"scripts":[{"file":"a.sql","weight":9},{"file":"b.sql"}]}"#;
        assert_eq!(plan(scripts).workload_name(), "a.sql, b.sql");
        assert_eq!(plan(r#""workload":"tpcb","request":{}"#).workload_name(), "tpcb");
    }

    #[test]
    fn percentiles_are_read_off_the_classes() {
        let distribution = [(1_000_000, 90), (2_000_000, 9), (50_000_000, 1)];
        let shown = [0.0, 0.5, 0.9, 0.91, 0.99, 0.991, 1.0].map(|p| percentile_of(&distribution, p).unwrap());
        assert_eq!(shown, [1.0, 1.0, 1.0, 2.0, 2.0, 50.0, 50.0]);
        assert_eq!(percentile_of(&[], 0.5), None);
    }
}
