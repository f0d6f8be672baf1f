//! Reports as text: Markdown tables, so that they can be pasted where they are discussed.

use super::grid::{Grid, counted, wrapped};
use super::{
    ArmLatency, ArmThroughput, Comparison, Conservation, Cost, HotLatency, Latency, Measure, Results, Run,
    SeenStatement, Throughput, document,
};
use crate::cli::Mode;
use crate::env::Machine;
use crate::judgement;
use crate::stats::{Effect, Finding};

/// Characters of a statement's text shown.
const QUERY_WIDTH: usize = 50;

/// `seed`: of all runs.
pub fn machine(machine: &Machine, server_version: &str, seed: u64) -> String {
    let virtual_machine = if machine.virtual_machine { ", virtual machine" } else { "" };
    wrapped(&format!(
        "{server_version} on {} ({}){virtual_machine}, {:.0} GiB, kernel {}, clock source {} ({:.0} ns), load average \
         {:.2}\nOrder and random values: --seed {seed} repeats them",
        counted(machine.cpus as u64, "CPU"),
        machine.cpu_model,
        machine.memory as f64 / f64::from(1u32 << 30),
        machine.kernel,
        machine.clock_source,
        machine.clock_cost_ns,
        machine.load_average,
    ))
}

/// `causes`: of losses.
pub fn run(run: &Run, causes: &[String]) -> String {
    let plan = &run.plan;
    let title = match plan.mode {
        Mode::Cost => "Cost per statement",
        Mode::Throughput => "Throughput",
        Mode::Sweep => "Throughput over sample rates",
        Mode::Restart => "Throughput of a server started anew for each slice",
        Mode::Calibrate => "Calibration",
        Mode::Pgbench => "The driver against pgbench",
        Mode::Latency => "Latency at a set rate",
    };
    let clients = counted(plan.clients.into(), "client");
    let mut text = format!(
        "{title}: {}, {} protocol, {clients}, scale {}, {:.0} s measured, {}{}\n",
        plan.workload_name(),
        plan.protocol.name(),
        plan.scale,
        plan.duration.as_secs_f64(),
        if plan.pinned { "sessions tied to CPUs" } else { "sessions free to move" },
        plan.max_entries.map_or_else(String::new, |n| format!(", {} entries at most", grouped(n.into()))),
    );
    for warning in &run.conditions.warnings {
        text += &format!("Warning: {warning}.\n");
    }
    for note in &run.notes {
        text += &format!("Note: {note}.\n");
    }
    text += "\n";
    text += &match &run.results {
        Results::Cost(cost) => cost_table(cost),
        Results::Throughput(throughput) => {
            throughput_table(throughput) + &hot_table(throughput) + &conservation_text(throughput)
        }
        Results::Latency(latency) => latency_table(latency),
        Results::Calibration(calibration) => calibration.text(),
        Results::Efficiency(efficiency) => efficiency.text(),
    };
    text += &format!("\n{}\n", run.verdict);
    for cause in causes {
        text += &format!("Cause: {cause}\n");
    }
    text += &judgement::text(run);
    if let Some(seen) = &run.seen {
        text += &format!(
            "\nWhat pgss_rs_stats saw (server of pgss_rs, most calls first):\n\n{}",
            seen_table(seen)
        );
    }
    wrapped(&text)
}

fn cost_table(cost: &Cost) -> String {
    let mut table = Grid::new(
        2,
        &[
            "arm",
            "time",
            "off ns",
            "change ns",
            "95 % interval ns",
            "A/A noise ns",
            "statements",
            "change %",
            "95 % interval %",
        ],
    );
    for comparison in &cost.comparisons {
        if let Some(cpu) = &comparison.cpu {
            table.push(cost_row(comparison, "server CPU", cpu));
        }
        table.push(cost_row(comparison, "elapsed", &comparison.wall));
    }
    let table = table.text();
    format!(
        "{table}\n\nTimes are ns per statement, interquartile means over blocks of four slices. off: {}. A/A noise: off against \
         itself in the same run; no smaller change is shown. \"none seen, from X on\": a change of X would have been \
         seen in four of five such runs.\n{}",
        cost.off,
        judgement::details_of_cost(cost)
    )
}

fn cost_row(comparison: &Comparison, time: &str, measure: &Measure) -> Vec<String> {
    let (ns, percent) = match measure.finding {
        Finding::Difference => {
            let percent = measure.change.scaled(100.0 / measure.off);
            (
                [format!("{:+.0}", measure.change.estimate), interval(&measure.change, 0)],
                [format!("{:+.2}", percent.estimate), interval(&percent, 2)],
            )
        }
        Finding::NoDifference { smallest } => {
            let none_seen = |smallest, digits| ["none seen".to_owned(), from_on(Some(smallest), digits)];
            (none_seen(smallest, 0), none_seen(smallest * 100.0 / measure.off, 2))
        }
    };
    let mut row = vec![comparison.arm.to_string(), time.to_owned(), format!("{:.0}", measure.off)];
    row.extend(ns);
    row.extend([format!("±{:.0}", measure.noise.reach()), comparison.statements.to_string()]);
    row.extend(percent);
    row
}

fn throughput_table(throughput: &Throughput) -> String {
    let mut table = Grid::new(
        1,
        &[
            "arm",
            "TPS",
            "change %",
            "95 % interval %",
            "transactions",
            "client CPU µs",
            "latency ms",
            "stddev",
            "p50",
            "p95",
            "p99",
        ],
    );
    for arm in &throughput.arms {
        table.push(throughput_row(arm));
    }
    let table = table.text();
    let baseline = throughput.arms.first().map_or_else(String::new, |arm| arm.arm.to_string());
    format!(
        "{table}\n\n{} rounds, a slice of {:.2} s per arm after {:.2} s of warm-up, in random order. Change of TPS against \
         {baseline} in the same round. {baseline}: {}. A/A noise: ±{:.2} % ({baseline} against itself in the same run); no smaller \
         change is shown. \"none seen, from X on\": a change of X would have been seen in four of five such runs. \
         client CPU: per transaction.\n{}",
        throughput.rounds,
        throughput.slice,
        throughput.warm_up,
        throughput.off,
        throughput.noise.scaled(100.0).reach(),
        judgement::details_of_throughput(throughput)
    )
}

fn throughput_row(arm: &ArmThroughput) -> Vec<String> {
    let (change, range) = change_cells(arm.change, arm.finding);
    let mut row = vec![arm.arm.to_string(), format!("{:.0}", arm.tps), change, range];
    let latencies = [arm.latency_mean, arm.latency_stddev, arm.latency_p50, arm.latency_p95, arm.latency_p99];
    row.push(arm.transactions.to_string());
    row.push(arm.client_cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("{cpu:.1}")));
    row.extend(latencies.map(|ms| format!("{ms:.3}")));
    row
}

fn latency_table(latency: &Latency) -> String {
    let mut table = Grid::new(2, &["arm", "", "ms", "change %", "95 % interval %", "A/A noise %"]);
    let mut held = String::new();
    for arm in &latency.arms {
        for of in &arm.percentiles {
            let (change, range) = match (of.change, of.finding) {
                (Some(change), Some(document::Finding::Difference)) => {
                    let change = change.scaled(100.0);
                    (format!("{:+.2}", change.estimate), optional_interval(change))
                }
                (Some(_), Some(document::Finding::NoDifference { smallest })) => {
                    ("none seen".to_owned(), from_on(smallest.map(|s| s * 100.0), 2))
                }
                _ => (String::new(), String::new()),
            };
            let noise = of.noise.scaled(100.0).reach().map_or("unknown".to_owned(), |n| format!("±{n:.2}"));
            let percentile = format!("p{}", of.percentile);
            table.push(vec![arm.arm.clone(), percentile, format!("{:.3}", of.ms), change, range, noise]);
        }
        held += &held_line(arm);
    }
    let table = table.text();
    format!(
        "{table}\n\n{:.0} transactions a second due ({} arrivals), {} rounds, a slice of {:.2} s per arm after {:.2} s of \
         warm-up, in random order. Latency from the moment a transaction was due. Changes are of slices' percentiles \
         against off in the same round; no smaller change than the noise is shown.\n\n{held}",
        latency.rate, latency.arrivals, latency.rounds, latency.slice, latency.warm_up,
    )
}

fn held_line(arm: &ArmLatency) -> String {
    let line = format!(
        "{} {} the rate: {:.0} a second completed, at most {} waiting for a session, mean {:.3} ms, the driver itself \
         late by up to {:.3} ms (p99).\n",
        arm.arm,
        if arm.held { "held" } else { "did not hold" },
        arm.achieved,
        arm.backlog,
        arm.mean,
        arm.driver_late_p99
    );
    if arm.held {
        return line;
    }
    format!(
        "{line}Warning: of {} transactions of {} {} were not served in time; its latencies grow with the slice.\n",
        arm.intended, arm.arm, arm.unserved
    )
}

fn optional_interval(interval: document::Interval) -> String {
    match (interval.low, interval.high) {
        (Some(low), Some(high)) => format!("{low:+.2} to {high:+.2}"),
        _ => "unknown".to_owned(),
    }
}

/// What stands in place of an interval where nothing was seen: the smallest change that would have been.
pub fn from_on(smallest: Option<f64>, digits: usize) -> String {
    match smallest {
        Some(smallest) if smallest.is_finite() => format!("from {smallest:.digits$} on"),
        _ => "not enough data".to_owned(),
    }
}

/// The change and its interval, both in %; empty for the baseline.
fn change_cells(change: Option<Effect>, finding: Option<Finding>) -> (String, String) {
    match (change, finding) {
        (Some(change), Some(Finding::Difference)) => {
            let percent = change.scaled(100.0);
            (format!("{:+.2}", percent.estimate), interval(&percent, 2))
        }
        (Some(_), Some(Finding::NoDifference { smallest })) => {
            ("none seen".to_owned(), from_on(Some(smallest * 100.0), 2))
        }
        _ => (String::new(), String::new()),
    }
}

/// Nothing where no statement is hot.
fn hot_table(throughput: &Throughput) -> String {
    let Some(noise) = throughput.hot_noise else { return String::new() };
    let mut table = Grid::new(
        1,
        &["arm", "hot p99 ms", "change %", "95 % interval %", "hot p50", "hot p99.9", "hot transactions"],
    );
    for arm in &throughput.arms {
        if let Some(hot) = &arm.hot {
            table.push(hot_row(arm, hot));
        }
    }
    let table = table.text();
    format!(
        "\n{table}\n\nLatencies of the hot statements alone. Change of a slice's p99 against off in the same round. A/A \
         noise: ±{:.2} %; no smaller change is shown.\n",
        noise.scaled(100.0).reach(),
    )
}

fn hot_row(arm: &ArmThroughput, hot: &HotLatency) -> Vec<String> {
    let (change, range) = change_cells(hot.change, hot.finding);
    let ms = |value: f64| format!("{value:.3}");
    let transactions = hot.transactions.to_string();
    vec![arm.arm.to_string(), ms(hot.p99), change, range, ms(hot.p50), ms(hot.p999), transactions]
}

/// A line for each arm whose calls were counted.
fn conservation_text(throughput: &Throughput) -> String {
    let lines: Vec<String> = throughput
        .arms
        .iter()
        .filter_map(|arm| Some(conservation_line(&arm.arm.to_string(), &arm.conservation?)))
        .collect();
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("\n")) }
}

fn conservation_line(arm: &str, calls: &Conservation) -> String {
    let (kept, sent) = (counted(calls.kept, "call"), grouped(calls.sent));
    let Some(evicted) = calls.evicted else {
        let dealloc = grouped(calls.dealloc);
        return format!(
            "{arm} kept {kept} in the view, of {sent} sent, warm-up included (dealloc: {dealloc})."
        );
    };
    let skipped = match calls.skipped {
        Some(skipped) if skipped > 0 => format!(", and skipped {}", grouped(skipped)),
        _ => String::new(),
    };
    let line = format!(
        "{arm} kept {kept} in the view and {} among the evicted{skipped}, of {sent} sent, warm-up included.",
        grouped(evicted)
    );
    match calls.lost() {
        Some(lost) if lost > 0 => format!("{line}\nWarning: {arm} lost {}.", counted(lost as u64, "call")),
        Some(lost) if lost < 0 => {
            format!("{line}\nWarning: {arm} counted {} too many.", counted(lost.unsigned_abs(), "call"))
        }
        _ => line,
    }
}

/// With a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let (head, rest) = digits.split_at(first);
    let mut text = head.to_owned();
    for (place, digit) in rest.chars().enumerate() {
        if place % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn seen_table(seen: &[SeenStatement]) -> String {
    let mut table = Grid::new(1, &["query", "calls", "mean_exec_time ms", "rows"]);
    for statement in seen {
        let query: String = statement.query.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = match query.char_indices().nth(QUERY_WIDTH) {
            Some((end, _)) => format!("{}...", &query[..end]),
            None => query,
        };
        let (calls, rows) = (&statement.calls, &statement.rows);
        table.push(vec![shown, calls.clone(), statement.mean_exec_time.clone(), rows.clone()]);
    }
    let table = table.text();
    format!("{table}\n")
}

fn interval(effect: &Effect, digits: usize) -> String {
    format!("{:+.digits$} to {:+.digits$}", effect.low, effect.high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Arm;

    fn measure(finding: Finding) -> Measure {
        Measure {
            off: 20_000.0,
            change: Effect { estimate: 300.0, low: 280.0, high: 320.0 },
            noise: Effect { estimate: -2.0, low: -25.0, high: 20.0 },
            finding,
        }
    }

    fn comparison(wall: Measure) -> Comparison {
        Comparison {
            arm: Arm::PgssRs { rate: 1.0 },
            blocks: 10,
            statements: 6000,
            wall,
            cpu: None,
            details: None,
            watched: None,
        }
    }

    #[test]
    fn a_difference_shows_its_size_and_interval() {
        let measure = measure(Finding::Difference);
        let row = cost_row(&comparison(measure), "elapsed", &super::tests::measure(Finding::Difference));
        let shown =
            ["pgss_rs", "elapsed", "20000", "+300", "+280 to +320", "±25", "6000", "+1.50", "+1.40 to +1.60"];
        assert_eq!(row, shown);
    }

    #[test]
    fn no_difference_shows_no_size_but_what_could_have_been_seen() {
        let hidden = Finding::NoDifference { smallest: 40.0 };
        let row = cost_row(&comparison(measure(hidden)), "elapsed", &measure(hidden));
        assert_eq!(
            [&row[3..5], &row[7..]].concat(),
            ["none seen", "from 40 on", "none seen", "from 0.20 on"]
        );
    }

    fn calls(sent: u64, kept: u64, evicted: Option<u64>, skipped: Option<u64>) -> Conservation {
        Conservation { sent, kept, evicted, skipped, dealloc: 40_000 }
    }

    #[test]
    fn calls_that_are_all_there_are_said_in_one_line() {
        assert_eq!(
            conservation_line("pgss_rs", &calls(1_580_245, 1_234_567, Some(345_678), Some(0))),
            "pgss_rs kept 1,234,567 calls in the view and 345,678 among the evicted, of 1,580,245 sent, warm-up included."
        );
        assert_eq!(
            conservation_line("pgss_rs", &calls(1000, 990, Some(7), Some(3))),
            "pgss_rs kept 990 calls in the view and 7 among the evicted, and skipped 3, of 1,000 sent, warm-up included."
        );
        assert_eq!(
            conservation_line("pg_stat_statements", &calls(1000, 12, None, None)),
            "pg_stat_statements kept 12 calls in the view, of 1,000 sent, warm-up included (dealloc: 40,000)."
        );
    }

    #[test]
    fn calls_that_are_missing_or_too_many_are_warned_of() {
        let warning = |kept| {
            let line = conservation_line("pgss_rs", &calls(5000, kept, Some(3000), Some(1)));
            line.lines().nth(1).map(str::to_owned)
        };
        assert_eq!(warning(1999), None);
        assert_eq!(warning(500).unwrap(), "Warning: pgss_rs lost 1,499 calls.");
        assert_eq!(warning(2001).unwrap(), "Warning: pgss_rs counted 2 calls too many.");
    }

    #[test]
    fn thousands_are_grouped() {
        let shown = [0, 999, 1000, 12_345, 123_456, 1_000_000].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "123,456", "1,000,000"]);
    }

    #[test]
    fn long_statements_are_cut_on_a_character() {
        let query = format!("SELECT '{}'", "ä".repeat(100));
        let seen = SeenStatement { query, calls: "1".into(), mean_exec_time: "0.1".into(), rows: "1".into() };
        assert!(seen_table(&[seen]).contains("ä..."));
    }
}
