//! What a reader looks for first, in words: titles, the plan, each arm's answer, the box. HTML and Markdown share it.

use serde_json::Value;

use super::chart::{number, signed};
use super::document::{ArmLatency, Document, Finding, Interval, Latency, Machine, Plan, Results, Run};
use super::grid::counted;

/// An arm's answer.
#[derive(Debug, PartialEq)]
pub struct Tile {
    pub arm: String,
    pub headline: String,
    pub range: String,
}

pub fn title(plan: &Plan) -> String {
    let what = match plan.mode.as_str() {
        "cost" => "Cost per statement",
        "throughput" => "Throughput",
        "sweep" => "Throughput over sample rates",
        "latency" => "Latency at a set rate",
        "restart" => "Throughput of a server started anew for each slice",
        "calibrate" => "Calibration",
        "pgbench" => "The driver against pgbench",
        other => other,
    };
    format!("{what}: {}", plan.workload_name())
}

pub fn plan(plan: &Plan) -> String {
    let member = |name: &str| plan.rest.get(name).filter(|value| !value.is_null()).map(plain);
    let mut parts = vec![
        format!("{} protocol", plan.protocol),
        counted(plan.clients.into(), "client"),
        format!("{} s measured", number(plan.duration, 0)),
    ];
    parts.extend(member("scale").map(|scale| format!("scale {scale}")));
    if let Some(rate) = plan.rest.get("rate_per_second").and_then(Value::as_f64) {
        let arrivals = member("arrivals").unwrap_or_default();
        parts.push(format!("{} a second due, {arrivals} arrivals", number(rate, 0)));
    }
    if let Some(pinned) = plan.rest.get("pinned").and_then(Value::as_bool) {
        parts.push(if pinned { "sessions tied to CPUs" } else { "sessions free to move" }.to_owned());
    }
    parts.extend(member("max_entries").map(|entries| format!("{entries} entries at most")));
    parts.push(format!("seed {}", plan.seed));
    parts.join(", ")
}

pub fn tiles(run: &Run) -> Vec<Tile> {
    match &run.results {
        Results::Calibration(_) | Results::Efficiency(_) => Vec::new(),
        Results::Cost(cost) => cost
            .comparisons
            .iter()
            .map(|comparison| {
                let (time, measure) = match &comparison.cpu {
                    Some(cpu) => ("server CPU", cpu),
                    None => ("elapsed", &comparison.wall),
                };
                let unit = format!("ns {time} a statement");
                tile(&comparison.arm, measure.change, measure.finding, 0, "ns", &unit)
            })
            .collect(),
        Results::Throughput(throughput) => throughput
            .arms
            .iter()
            .filter_map(|arm| {
                Some(tile(&arm.arm, arm.change?.scaled(100.0), scaled(arm.finding?), 1, "%", "% of TPS"))
            })
            .collect(),
        Results::Latency(latency) => latency
            .arms
            .iter()
            .filter_map(|arm| {
                let p99 = arm.percentiles.iter().find(|p| p.percentile == 99.0)?;
                Some(tile(&arm.arm, p99.change?.scaled(100.0), scaled(p99.finding?), 1, "%", "% of p99"))
            })
            .collect(),
    }
}

/// Each arm's answer in one sentence; of `latency`, too, whether each of the machines held the rate. An arm that did not
/// has no other answer.
pub fn verdict(run: &Run) -> String {
    let latency = match &run.results {
        Results::Latency(latency) => Some(latency),
        _ => None,
    };
    let mut answers = latency.map_or_else(Vec::new, rates_held);
    let missed = |arm: &str| latency.is_some_and(|l| l.arms.iter().any(|a| a.arm == arm && !a.held));
    let compared = tiles(run).into_iter().filter(|tile| !missed(&tile.arm));
    answers.extend(compared.map(|tile| format!("{} {} ({})", tile.arm, tile.headline, tile.range)));
    if answers.is_empty() {
        return "Verdict: nothing was compared.".to_owned();
    }
    format!("Verdict: {}.", answers.join("; "))
}

/// Of several machines' arms: those that did not hold the rate on all of them; or that all did.
fn rates_held(latency: &Latency) -> Vec<String> {
    let rate = format!("{} a second on each machine", number(latency.rate, 0));
    if latency.arms.iter().all(|arm| arm.held) {
        return vec![format!("the rate of {rate} was held by every arm")];
    }
    let missed = latency.arms.iter().filter(|arm| !arm.held);
    let said = |arm: &ArmLatency| {
        let achieved = number(arm.achieved, 0);
        format!("{} did not hold the rate of {rate} (on average {achieved} completed)", arm.arm)
    };
    missed.map(said).collect()
}

/// Of a fraction, in percent.
fn scaled(finding: Finding) -> Finding {
    match finding {
        Finding::NoDifference { smallest } => Finding::NoDifference { smallest: smallest.map(|s| s * 100.0) },
        Finding::Difference => Finding::Difference,
    }
}

fn tile(arm: &str, change: Interval, finding: Finding, digits: usize, short: &str, unit: &str) -> Tile {
    let (headline, range) = match (finding, change.low, change.high) {
        (Finding::Difference, Some(low), Some(high)) => (
            format!("{} {short}", signed(change.estimate, digits)),
            format!("{} to {} {unit}", signed(low, digits), signed(high, digits)),
        ),
        (Finding::NoDifference { smallest: Some(smallest) }, ..) => {
            ("none seen".to_owned(), format!("from {} {unit} on", number(smallest, digits)))
        }
        _ => ("unknown".to_owned(), "not enough data".to_owned()),
    };
    Tile { arm: arm.to_owned(), headline, range }
}

/// In one line.
pub fn machine(document: &Document) -> String {
    let Document { machine, machines, server_version, .. } = document;
    if machines.len() > 1 {
        return format!("{server_version}; merged from {} machines", machines.len());
    }
    format!("{server_version} on {} ({})", counted(machine.cpus as u64, "CPU"), machine.cpu_model)
}

/// Name and value of what is known of a box.
pub fn facts(machine: &Machine) -> Vec<(String, String)> {
    let gib = machine.memory as f64 / f64::from(1u32 << 30);
    let mut facts = vec![
        ("CPU".to_owned(), machine.cpu_model.clone()),
        ("CPUs".to_owned(), machine.cpus.to_string()),
        ("Virtual machine".to_owned(), if machine.virtual_machine { "yes" } else { "no" }.to_owned()),
        (
            "Memory".to_owned(),
            if machine.memory == 0 { "unknown".to_owned() } else { format!("{gib:.0} GiB") },
        ),
        ("Kernel".to_owned(), machine.kernel.clone()),
        ("Clock source".to_owned(), machine.clock_source.clone()),
        ("Load average before".to_owned(), format!("{:.2}", machine.load_average)),
    ];
    let more = machine.rest.iter().filter(|(_, value)| !value.is_null());
    facts.extend(more.map(|(name, value)| fact(name, value)));
    facts
}

fn fact(name: &str, value: &Value) -> (String, String) {
    let yes_or_no = |value: &Value| if *value == Value::Bool(true) { "yes" } else { "no" }.to_owned();
    match (name, value.as_f64()) {
        ("clock_cost_ns", Some(ns)) => ("One reading of the clock".to_owned(), format!("{ns:.0} ns")),
        ("busy_before", Some(share)) => {
            ("CPU time used by others before".to_owned(), format!("{:.0} %", 100.0 * share))
        }
        ("governor", _) => ("Frequency governor".to_owned(), plain(value)),
        ("hypervisor", _) => ("Hypervisor".to_owned(), plain(value)),
        ("smt", _) => ("CPUs share cores".to_owned(), yes_or_no(value)),
        ("transparent_huge_pages", _) => ("Transparent huge pages".to_owned(), plain(value)),
        _ => (name.replace('_', " "), plain(value)),
    }
}

/// A JSON value as a person reads it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_no_larger_than_what_the_run_could_see() {
        let change = Interval { estimate: -5.94, low: Some(-6.7), high: Some(-5.2) };
        let seen = tile("pgss_rs", change, Finding::Difference, 1, "%", "% of TPS");
        assert_eq!((&*seen.headline, &*seen.range), ("−5.9 %", "−6.7 to −5.2 % of TPS"));
        let hidden =
            tile("pgss_rs", change, Finding::NoDifference { smallest: Some(7.0) }, 1, "%", "% of TPS");
        assert_eq!((&*hidden.headline, &*hidden.range), ("none seen", "from 7.0 % of TPS on"));
    }

    #[test]
    fn whether_all_machines_held_the_rate_is_said() {
        let arm = |name: &str, held| ArmLatency::example(name, held, Vec::new());
        let latency = |held| Latency {
            rate: 100.0,
            arrivals: "poisson".to_owned(),
            rounds: 8,
            slice: 1.0,
            warm_up: 0.2,
            percentiles: Vec::new(),
            arms: vec![arm("off", true), arm("pgss_rs", held)],
            slices: Vec::new(),
        };
        assert_eq!(
            rates_held(&latency(true)),
            ["the rate of 100 a second on each machine was held by every arm"]
        );
        assert_eq!(
            rates_held(&latency(false)),
            ["pgss_rs did not hold the rate of 100 a second on each machine (on average 99 completed)"]
        );
    }
}
