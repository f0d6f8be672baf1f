//! What several machines measured of one plan, put together. Each on servers of its own: the pairs of all of them decide. All
//! on one server, in step (`--start-at`): what they did in a slice is added up, and the sums are compared.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::compare;
use super::document::{
    ArmLatency, ArmThroughput, Comparison, Cost, Distribution, Document, Latency, Plan, Results, Run,
    Throughput, ThroughputSlice, Watched, percentile_of,
};
use super::summary;
use crate::error::{Error, Result};

const NOTE: &str = "the intervals are about these machines together: pairs of all of them decide alike";

const IN_STEP: &str = "these machines loaded one server at the same time: throughput is their sum";

/// Documents with the names of their files. `Err` says which of them does not belong to the first, and why.
pub fn merge(documents: Vec<(String, Document)>) -> Result<Document> {
    let [(first_name, first), others @ ..] = &documents[..] else {
        return Err(Error::Request("there is nothing to merge".to_owned()));
    };
    let mut seen = vec![serde_json::to_value(&first.runs).unwrap_or_default()];
    for (name, other) in others {
        mergeable(first, other)
            .map_err(|why| Error::Request(format!("{name} cannot be merged with {first_name}: {why}")))?;
        let runs = serde_json::to_value(&other.runs).unwrap_or_default();
        if seen.contains(&runs) {
            return Err(Error::Request(format!("{name} is the same measurement as another of the files")));
        }
        seen.push(runs);
    }
    let documents: Vec<&Document> = documents.iter().map(|(_, document)| document).collect();
    let runs = (0..first.runs.len())
        .map(|index| run(&documents.iter().map(|d| &d.runs[index]).collect::<Vec<_>>()))
        .collect::<Result<Vec<Run>>>()?;
    let machines = documents
        .iter()
        .flat_map(|d| if d.machines.is_empty() { vec![d.machine.clone()] } else { d.machines.clone() });
    Ok(Document { machines: machines.collect(), runs, ..first.clone() })
}

/// `Err`: what differs.
fn mergeable(first: &Document, other: &Document) -> std::result::Result<(), String> {
    let same = |what: &str, a: &str, b: &str| {
        if a == b { Ok(()) } else { Err(format!("its {what} is {b}, not {a}")) }
    };
    same("format", &first.format.to_string(), &other.format.to_string())?;
    same("driver's version", &first.driver_version, &other.driver_version)?;
    same("server", &first.server_version, &other.server_version)?;
    same("number of runs", &first.runs.len().to_string(), &other.runs.len().to_string())?;
    for (number, (a, b)) in first.runs.iter().zip(&other.runs).enumerate() {
        same_plan(&a.plan, &b.plan).map_err(|what| format!("in run {}, {what}", number + 1))?;
        for (name, value) in &a.server {
            let there = b.server.get(name).map_or_else(|| "not there".to_owned(), summary::plain);
            same(name, &summary::plain(value), &there)?;
        }
        same("division into slices", &division(&a.results), &division(&b.results))?;
    }
    Ok(())
}

/// Whether it is one of several machines that load one server at the same time.
fn is_in_step(plan: &Plan) -> bool {
    plan.rest.get("request").and_then(|request| request.get("start_at")).is_some_and(|at| !at.is_null())
}

/// All but the seed has to be the same, and that, too, where it decides which arm runs when on the one server.
fn same_plan(a: &Plan, b: &Plan) -> std::result::Result<(), String> {
    let members = |plan: &Plan| -> Map<String, Value> {
        match serde_json::to_value(plan) {
            Ok(Value::Object(mut members)) => {
                if !is_in_step(plan) {
                    members.remove("seed");
                }
                members
            }
            _ => Map::new(),
        }
    };
    let (a, b) = (members(a), members(b));
    let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
    for name in names {
        let value =
            |plan: &Map<String, Value>| plan.get(name).map_or_else(|| "none".to_owned(), summary::plain);
        if value(&a) != value(&b) {
            return Err(format!("its {} is {}, not {}", name.replace('_', " "), value(&b), value(&a)));
        }
    }
    Ok(())
}

fn division(results: &Results) -> String {
    match results {
        Results::Cost(_) => "cost".to_owned(),
        Results::Throughput(t) => format!("{} rounds of {} s after {} s", t.rounds, t.slice, t.warm_up),
        Results::Latency(l) => format!("{} rounds of {} s after {} s", l.rounds, l.slice, l.warm_up),
        Results::Calibration(_) | Results::Efficiency(_) => "of one machine".to_owned(),
    }
}

fn run(runs: &[&Run]) -> Result<Run> {
    let (first, seed) = (runs[0], runs[0].plan.seed);
    let results = match &first.results {
        Results::Calibration(_) | Results::Efficiency(_) => {
            return Err(Error::Request(format!("what {} finds is of one machine", first.plan.mode)));
        }
        Results::Cost(_) => Results::Cost(cost(
            &each(runs, |r| match r {
                Results::Cost(cost) => Some(cost),
                _ => None,
            })?,
            first.plan.clients,
            seed,
        )?),
        Results::Throughput(_) => Results::Throughput(throughput(
            &each(runs, |r| match r {
                Results::Throughput(throughput) => Some(throughput),
                _ => None,
            })?,
            seed,
            is_in_step(&first.plan),
        )?),
        Results::Latency(_) => Results::Latency(latency(
            &each(runs, |r| match r {
                Results::Latency(latency) => Some(latency),
                _ => None,
            })?,
            seed,
        )),
    };
    let numbered = |of: fn(&Run) -> &Vec<String>| {
        let lines = runs
            .iter()
            .enumerate()
            .flat_map(move |(n, run)| of(run).iter().map(move |line| format!("machine {}: {line}", n + 1)));
        lines.collect::<Vec<String>>()
    };
    let mut merged = Run {
        plan: first.plan.clone(),
        notes: numbered(|run| &run.notes),
        warnings: numbered(|run| &run.warnings),
        server: first.server.clone(),
        steal: runs.iter().filter_map(|run| run.steal).reduce(f64::max),
        results,
        verdict: String::new(),
        seen: None,
    };
    let note = if is_in_step(&first.plan) { IN_STEP } else { NOTE };
    merged.notes.insert(0, note.to_owned());
    merged.verdict = summary::verdict(&merged);
    Ok(merged)
}

fn each<'a, T>(runs: &[&'a Run], of: impl Fn(&'a Results) -> Option<&'a T>) -> Result<Vec<&'a T>> {
    let all: Option<Vec<&T>> = runs.iter().map(|run| of(&run.results)).collect();
    all.ok_or_else(|| Error::Request("the files hold results of different modes".to_owned()))
}

/// `clients`: of each machine.
fn cost(costs: &[&Cost], clients: u32, seed: u64) -> Result<Cost> {
    let mut blocks = Vec::new();
    for (machine, cost) in costs.iter().enumerate() {
        let renumbered = cost.blocks.iter().cloned().map(|mut block| {
            block.client += machine as u32 * clients;
            block
        });
        blocks.extend(renumbered);
    }
    let mut comparisons = Vec::new();
    for (index, comparison) in costs[0].comparisons.iter().enumerate() {
        let of = costs.iter().filter_map(|cost| cost.comparisons.get(index));
        let wall = compare::cost(&blocks, index, |block| Some(block.wall_ns), seed).ok_or_else(|| {
            Error::Request("the raw blocks, from which to compare, are not in the files".to_owned())
        })?;
        comparisons.push(Comparison {
            arm: comparison.arm.clone(),
            blocks: of.clone().map(|c| c.blocks).sum(),
            statements: of.map(|c| c.statements).sum(),
            wall,
            cpu: compare::cost(&blocks, index, |block| block.cpu_ns, seed),
            watched: sum_watched(
                costs.iter().map(|cost| cost.comparisons.get(index).and_then(|c| c.watched.as_ref())),
            ),
        });
    }
    Ok(Cost { off: costs[0].off.clone(), comparisons, blocks })
}

fn throughput(parts: &[&Throughput], seed: u64, in_step: bool) -> Result<Throughput> {
    let first = parts[0];
    let slices = if in_step { sums_of_slices(parts)? } else { all_slices(parts) };
    let mut arms = Vec::new();
    for index in 0..first.arms.len() {
        let of: Vec<&ArmThroughput> = parts.iter().filter_map(|part| part.arms.get(index)).collect();
        let compared = compare::tps(&slices, index, seed);
        let mut arm = throughput_of(&of)?;
        if in_step {
            arm.tps *= of.len() as f64;
        }
        (arm.change, arm.finding) = (compared.change, compared.finding);
        arms.push(arm);
    }
    Ok(Throughput {
        rounds: if in_step { first.rounds } else { first.rounds * parts.len() },
        slice: first.slice,
        warm_up: first.warm_up,
        warm_up_rounds: if in_step { warm_up_rounds(parts) } else { 0 },
        arms,
        noise: compare::tps(&slices, 0, seed).noise,
        hot_noise: None,
        slices,
    })
}

/// One machine's rounds after the other's.
fn all_slices(parts: &[&Throughput]) -> Vec<ThroughputSlice> {
    let of_machine = |(machine, part): (usize, &&Throughput)| {
        let (before, cut) = (machine * parts[0].rounds, part.warm_up_rounds);
        let counting = part.slices.iter().filter(move |slice| slice.round >= cut).cloned();
        counting
            .map(move |slice| ThroughputSlice { round: slice.round + before, ..slice })
            .collect::<Vec<_>>()
    };
    parts.iter().enumerate().flat_map(of_machine).collect()
}

/// The server is warm when it is for all of them.
fn warm_up_rounds(parts: &[&Throughput]) -> usize {
    parts.iter().map(|part| part.warm_up_rounds).max().unwrap_or(0)
}

/// Of each slice, what all machines did in it.
fn sums_of_slices(parts: &[&Throughput]) -> Result<Vec<ThroughputSlice>> {
    let cut = warm_up_rounds(parts);
    let place = |slice: &ThroughputSlice| (slice.round, slice.arm, slice.again);
    let mut sums = Vec::new();
    for (number, slice) in parts[0].slices.iter().enumerate().filter(|(_, slice)| slice.round >= cut) {
        let same: Option<Vec<&ThroughputSlice>> = parts.iter().map(|part| part.slices.get(number)).collect();
        let same = same.filter(|same| same.iter().all(|other| place(other) == place(slice)));
        let Some(same) = same else {
            return Err(Error::Request(format!("the machines were not on the same arm in slice {number}")));
        };
        sums.push(sum_of_slices(&same));
    }
    Ok(sums)
}

fn sum_of_slices(same: &[&ThroughputSlice]) -> ThroughputSlice {
    let transactions: u64 = same.iter().map(|slice| slice.transactions).sum();
    let weighted = |of: &dyn Fn(&ThroughputSlice) -> f64| {
        let sum: f64 = same.iter().map(|slice| of(slice) * slice.transactions as f64).sum();
        sum / transactions.max(1) as f64
    };
    let mean = weighted(&|slice| slice.latency_mean);
    let square = weighted(&|slice| slice.latency_stddev.powi(2) + (slice.latency_mean - mean).powi(2));
    ThroughputSlice {
        transactions,
        tps: same.iter().map(|slice| slice.tps).sum(),
        latency_mean: mean,
        latency_stddev: square.sqrt(),
        hot_p99: None,
        ..same[0].clone()
    }
}

/// TPS is the machines' mean; latencies are of all transactions.
fn throughput_of(arms: &[&ArmThroughput]) -> Result<ArmThroughput> {
    let distributions: Option<Vec<&Distribution>> =
        arms.iter().map(|arm| arm.distribution.as_ref()).collect();
    let distribution = sum_distributions(&distributions.ok_or_else(|| {
        Error::Request(
            "the latency distributions are not in the files: measure with this pgss_rs_load".to_owned(),
        )
    })?);
    let transactions: u64 = arms.iter().map(|arm| arm.transactions).sum();
    let weighted = |of: &dyn Fn(&ArmThroughput) -> f64| {
        let sum: f64 = arms.iter().map(|arm| of(arm) * arm.transactions as f64).sum();
        sum / transactions.max(1) as f64
    };
    let mean = weighted(&|arm| arm.latency_mean);
    let square = weighted(&|arm| arm.latency_stddev.powi(2) + (arm.latency_mean - mean).powi(2));
    let cpu: Option<Vec<f64>> = arms.iter().map(|arm| arm.client_cpu).collect();
    let percentile = |share| percentile_of(&distribution, share).unwrap_or(0.0);
    Ok(ArmThroughput {
        arm: arms[0].arm.clone(),
        tps: arms.iter().map(|arm| arm.tps).sum::<f64>() / arms.len() as f64,
        transactions,
        latency_mean: mean,
        latency_stddev: square.sqrt(),
        latency_p50: percentile(0.50),
        latency_p95: percentile(0.95),
        latency_p99: percentile(0.99),
        client_cpu: cpu.map(|_| weighted(&|arm| arm.client_cpu.unwrap_or(0.0))),
        change: None,
        finding: None,
        hot: None,
        conservation: sum_members(arms.iter().map(|arm| arm.conservation.as_ref())),
        distribution: Some(distribution),
        watched: sum_watched(arms.iter().map(|arm| arm.watched.as_ref())),
    })
}

fn latency(parts: &[&Latency], seed: u64) -> Latency {
    let first = parts[0];
    let mut slices = Vec::new();
    for (machine, part) in parts.iter().enumerate() {
        let renumbered = part.slices.iter().cloned().map(|mut slice| {
            slice.round += machine * first.rounds;
            slice
        });
        slices.extend(renumbered);
    }
    let mut arms = Vec::new();
    for index in 0..first.arms.len() {
        let of: Vec<&ArmLatency> = parts.iter().filter_map(|part| part.arms.get(index)).collect();
        let mut arm = latency_of(&of);
        for (which, percentile) in arm.percentiles.iter_mut().enumerate() {
            let compared = compare::percentile(&slices, index, which, seed);
            percentile.ms = percentile_of(&arm.distribution, percentile.percentile / 100.0).unwrap_or(0.0);
            (percentile.change, percentile.noise, percentile.finding) =
                (compared.change, compared.noise, compared.finding);
        }
        arms.push(arm);
    }
    Latency { rounds: first.rounds * parts.len(), arms, slices, ..first.clone() }
}

/// The rate is that of each machine.
fn latency_of(arms: &[&ArmLatency]) -> ArmLatency {
    let sum = |of: fn(&ArmLatency) -> u64| arms.iter().map(|arm| of(arm)).sum::<u64>();
    let largest = |of: fn(&ArmLatency) -> f64| arms.iter().map(|arm| of(arm)).fold(0.0, f64::max);
    let intended = sum(|arm| arm.intended);
    let mean = arms.iter().map(|arm| arm.mean * arm.intended as f64).sum::<f64>() / intended.max(1) as f64;
    ArmLatency {
        intended,
        completed: sum(|arm| arm.completed),
        unserved: sum(|arm| arm.unserved),
        achieved: arms.iter().map(|arm| arm.achieved).sum::<f64>() / arms.len() as f64,
        held: arms.iter().all(|arm| arm.held),
        backlog: arms.iter().map(|arm| arm.backlog).max().unwrap_or(0),
        mean,
        max: largest(|arm| arm.max),
        driver_late_p99: largest(|arm| arm.driver_late_p99),
        distribution: sum_distributions(&arms.iter().map(|arm| &arm.distribution).collect::<Vec<_>>()),
        watched: sum_watched(arms.iter().map(|arm| arm.watched.as_ref())),
        ..arms[0].clone()
    }
}

fn sum_distributions(distributions: &[&Distribution]) -> Distribution {
    let mut sums = BTreeMap::new();
    for (ns, count) in distributions.iter().flat_map(|distribution| distribution.iter()) {
        *sums.entry(*ns).or_insert(0) += count;
    }
    sums.into_iter().collect()
}

/// `None` unless all were watched.
fn sum_watched<'a>(parts: impl Iterator<Item = Option<&'a Watched>>) -> Option<Watched> {
    let add = |sums: &mut Vec<(String, u64)>, more: &[(String, u64)]| {
        for (name, count) in more {
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name.clone(), *count)),
            }
        }
    };
    let mut sum = Watched::default();
    for part in parts {
        let part = part?;
        sum.looks += part.looks;
        sum.seconds += part.seconds;
        add(&mut sum.states, &part.states);
        add(&mut sum.counters, &part.counters);
    }
    Some(sum)
}

/// Sums of members that are whole numbers everywhere; the others are null. `None` unless all have members.
fn sum_members<'a>(parts: impl Iterator<Item = Option<&'a Value>>) -> Option<Value> {
    let parts: Vec<&Map<String, Value>> = parts.map(|part| part?.as_object()).collect::<Option<_>>()?;
    let sum = |name: &String| parts.iter().map(|part| part.get(name)?.as_u64()).sum::<Option<u64>>();
    Some(parts.first()?.keys().map(|name| (name.clone(), sum(name).into())).collect::<Map<_, _>>().into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A document of two arms; the second has this share of the baseline's TPS.
    fn document(share: f64, seed: u64, workload: &str) -> Document {
        let slice = |round: usize, arm: usize, again: bool| {
            let base = 1000.0 + (round * 7 % 5) as f64;
            json!({"round": round, "arm": arm, "again": again, "transactions": 100, "latency_mean": 1.0,
                "latency_stddev": 0.1, "tps": if arm == 1 { base * share } else { base + f64::from(u8::from(again)) }})
        };
        let arm = |name: &str, tps: f64, ns: u64| {
            json!({"arm": name, "tps": tps, "transactions": 1000, "latency_mean": ns as f64 / 1e6, "latency_stddev": 0.5,
                "latency_p50": 1.0, "latency_p95": 1.0, "latency_p99": 1.0, "client_cpu": 4.0, "change": null,
                "finding": null, "distribution": [[ns, 990], [9_000_000, 10]],
                "conservation": {"sent": 5, "kept": 3, "evicted": null},
                "watched": {"looks": 10, "states": [["running", 8], ["LWLock:x", 2]], "counters": [["skipped", 1]],
                    "seconds": 2.0}})
        };
        let slices: Vec<Value> =
            (0..10).flat_map(|r| [slice(r, 0, false), slice(r, 0, true), slice(r, 1, false)]).collect();
        let text = json!({"format": 1, "driver_version": "1", "server_version": "PostgreSQL 15",
            "machine": {"cpu_model": "x", "cpus": 2},
            "runs": [{"plan": {"mode": "throughput", "workload": workload, "protocol": "simple", "clients": 2,
                    "duration": 10.0, "arms": ["off", "pgss_rs"], "seed": seed, "scale": 1},
                "warnings": ["busy"], "steal": share / 128.0, "server": {"fsync": "off"}, "verdict": "",
                "results": {"throughput": {"rounds": 10, "slice": 0.5, "warm_up": 0.1,
                    "noise": {"estimate": 0.0, "low": 0.0, "high": 0.0}, "slices": slices,
                    "arms": [arm("off", 1000.0, 1_000_000), arm("pgss_rs", 1000.0 * share, 2_000_000)]}}}]});
        Document::parse(&text.to_string()).unwrap()
    }

    fn merged(documents: &[Document]) -> Result<Document> {
        let name = |(n, document): (usize, &Document)| (format!("{n}.json"), document.clone());
        merge(documents.iter().enumerate().map(name).collect())
    }

    #[test]
    fn two_machines_give_twice_the_pairs_and_the_sums() {
        let whole = merged(&[document(0.8, 1, "now"), document(0.9, 2, "now")]).unwrap();
        assert_eq!(whole.machines.len(), 2);
        let Results::Throughput(throughput) = &whole.runs[0].results else { panic!("no throughput") };
        assert_eq!((throughput.rounds, throughput.slices.len()), (20, 60));
        let [off, arm] = &throughput.arms[..] else { panic!("two arms") };
        assert!(off.change.is_none());
        let change = arm.change.unwrap();
        assert!((change.estimate + 0.15).abs() < 0.01 && change.low < Some(-0.15), "{change:?}");
        assert_eq!(arm.finding, Some(super::super::document::Finding::Difference));
        assert_eq!((arm.transactions, arm.tps), (2000, 850.0));
        assert_eq!((arm.latency_mean, arm.latency_p50, arm.latency_p99), (2.0, 2.0, 2.0));
        assert_eq!(arm.distribution.as_ref().unwrap()[..], [(2_000_000, 1980), (9_000_000, 20)]);
        let watched = arm.watched.as_ref().unwrap();
        assert_eq!(
            (watched.looks, watched.seconds, watched.states[1].1, watched.counters[0].1),
            (20, 4.0, 4, 2)
        );
        assert_eq!(arm.conservation, Some(json!({"sent": 10, "kept": 6, "evicted": null})));
        assert_eq!(whole.runs[0].warnings, ["machine 1: busy", "machine 2: busy"]);
        assert_eq!(whole.runs[0].steal, Some(0.9 / 128.0));
        assert!(whole.runs[0].verdict.starts_with("Verdict: pgss_rs −1"), "{}", whole.runs[0].verdict);
    }

    #[test]
    fn what_machines_did_to_one_server_in_a_slice_is_added_up() {
        let in_step = |share: f64, seed: u64| {
            let mut document = document(share, seed, "now");
            document.runs[0].plan.rest.insert("request".to_owned(), json!({"start_at": 5}));
            document
        };
        let whole = merged(&[in_step(0.8, 1), in_step(0.9, 1)]).unwrap();
        let Results::Throughput(throughput) = &whole.runs[0].results else { panic!("no throughput") };
        assert_eq!((throughput.rounds, throughput.slices.len()), (10, 30));
        let [off, arm] = &throughput.arms[..] else { panic!("two arms") };
        assert_eq!((off.tps, arm.tps, arm.transactions), (2000.0, 1700.0, 2000));
        assert!((arm.change.unwrap().estimate + 0.15).abs() < 0.01, "{:?}", arm.change);
        let slice = &throughput.slices[0];
        assert_eq!((slice.transactions, slice.latency_mean), (200, 1.0));
        assert!((slice.latency_stddev - 0.1).abs() < 1e-9);
        assert_eq!(whole.runs[0].notes[0], IN_STEP);

        let refused = |other| merged(&[in_step(0.8, 1), other]).unwrap_err().to_string();
        assert!(refused(in_step(0.9, 2)).ends_with("its seed is 2, not 1"));
        let mut other = in_step(0.9, 1);
        if let Results::Throughput(throughput) = &mut other.runs[0].results {
            throughput.slices.swap(0, 1);
        }
        assert!(refused(other).ends_with("not on the same arm in slice 0"));
    }

    #[test]
    fn what_was_measured_otherwise_is_refused_by_name() {
        let refused = |other: Document| merged(&[document(0.8, 1, "now"), other]).unwrap_err().to_string();
        let workload = refused(document(0.9, 2, "tpcb"));
        assert_eq!(workload, "1.json cannot be merged with 0.json: in run 1, its workload is tpcb, not now");
        assert_eq!(
            refused(document(0.8, 1, "now")),
            "1.json is the same measurement as another of the files"
        );
        let change = |change: fn(&mut Document)| {
            let mut other = document(0.9, 2, "now");
            change(&mut other);
            refused(other)
        };
        assert!(
            change(|d| d.server_version = "PostgreSQL 16".to_owned())
                .ends_with("its server is PostgreSQL 16, not PostgreSQL 15")
        );
        assert!(change(|d| d.driver_version = "2".to_owned()).contains("driver's version is 2"));
        assert!(change(|d| d.runs[0].plan.arms.push("x".to_owned())).contains("its arms is off, pgss_rs, x"));
        assert!(change(|d| d.runs[0].plan.clients = 3).contains("its clients is 3, not 2"));
        assert!(
            change(|d| {
                d.runs[0].server.insert("fsync".to_owned(), "on".into());
            })
            .ends_with("its fsync is on, not off")
        );
        assert!(change(|d| d.runs.clear()).contains("number of runs is 0"));
        let slices = change(|d| {
            if let Results::Throughput(t) = &mut d.runs[0].results {
                t.slice = 1.0
            }
        });
        assert!(slices.contains("10 rounds of 1 s"), "{slices}");
    }
}
