//! Of `throughput` and `sweep`: TPS and its changes, over the sample rate, over time; latencies.

use super::plane::{Point, Series, over_rate, over_time, spectrum};
use super::rows::{Change, Group, Strip, changes, groups, strips};
use super::svg::{Look, Shape};
use super::{Cell, Figure, Place, Table, change_cells, looks, number, signed, significant};
use crate::report::document::{
    ArmThroughput, Distribution, Finding, Interval, Throughput, ThroughputSlice, percentile_of,
};

/// Of a distribution's table and chart.
const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

pub fn figures(throughput: &Throughput, place: &Place) -> Vec<Figure> {
    let looks = looks(throughput.arms.iter().map(|arm| &arm.arm));
    let compared = throughput.arms.len() > 1;
    [
        over_rates(throughput, place),
        Some(tps(throughput, &looks, place)),
        compared.then(|| change(throughput, &looks, place)),
        compared.then(|| time(throughput, &looks, place)),
    ]
    .into_iter()
    .flatten()
    .chain(latencies(throughput, &looks, place))
    .collect()
}

/// The rate of an arm of pgss_rs.
fn rate_of(arm: &str) -> Option<f64> {
    if arm == "pgss_rs" { Some(1.0) } else { arm.strip_prefix("pgss_rs@")?.parse().ok() }
}

/// `None` where there are too few rates for a line.
fn over_rates(throughput: &Throughput, place: &Place) -> Option<Figure> {
    let baseline = throughput.arms.first()?;
    let of_change = |change: Interval| Interval {
        estimate: baseline.tps * (1.0 + change.estimate),
        low: change.low.map(|low| baseline.tps * (1.0 + low)),
        high: change.high.map(|high| baseline.tps * (1.0 + high)),
    };
    let mut points = Vec::new();
    let mut table = Table::new(&["sample rate", "TPS", "change, %", "from", "to", "A/A noise", "finding"]);
    for (index, arm) in throughput.arms.iter().enumerate() {
        let (Some(rate), Some(change)) = (rate_of(&arm.arm), arm.change) else { continue };
        points.push(Point { x: rate, y: of_change(change) });
        let mut cells = vec![Cell::text(rate.to_string()), tps_cell(arm, index, place)];
        cells.extend(arm_change(arm, index, throughput, place));
        table.rows.push(cells);
    }
    if points.len() < 3 {
        return None;
    }
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let zero = Interval { estimate: 0.0, ..throughput.noise };
    let look = Look { colour: 1, shape: Shape::Circle };
    Some(Figure {
        id: place.id("tps-over-rate"),
        title: "TPS over the sample rate".to_owned(),
        caption: "Transactions per second: off's, changed by the paired difference of each rate, with 95 % intervals. The \
                  dashed line and its band are off and the noise of off against itself. The axis does not begin at 0."
            .to_owned(),
        svg: over_rate(&points, of_change(zero), look),
        table,
        detail: false,
    })
}

fn tps_cell(arm: &ArmThroughput, index: usize, place: &Place) -> Cell {
    Cell::number(arm.tps, 1.0, 0, place.pointer(format_args!("arms/{index}/tps")))
}

fn arm_change(arm: &ArmThroughput, index: usize, throughput: &Throughput, place: &Place) -> Vec<Cell> {
    let pointer = place.pointer(format_args!("arms/{index}/change"));
    change_cells(arm.change, throughput.noise, arm.finding, 100.0, 2, &pointer)
}

fn tps(throughput: &Throughput, looks: &[Look], place: &Place) -> Figure {
    let mut table = Table::new(&["arm", "TPS", "transactions", "mean, ms", "stddev, ms", "client CPU, µs"]);
    let mut rows = Vec::new();
    for (index, (arm, look)) in throughput.arms.iter().zip(looks).enumerate() {
        let slices = throughput.slices.iter().filter(|slice| slice.arm == index && !slice.again);
        rows.push(Strip {
            label: arm.arm.clone(),
            look: *look,
            values: slices.map(|slice| slice.tps).collect(),
            middle: arm.tps,
            said: format!("{} TPS", number(arm.tps, 0)),
        });
        let pointer = |name: &str| place.pointer(format_args!("arms/{index}/{name}"));
        let ms = |value: f64, name: &str| Cell::number(value, 1.0, 4, pointer(name));
        table.rows.push(vec![
            Cell::text(&arm.arm),
            tps_cell(arm, index, place),
            Cell::number(arm.transactions as f64, 1.0, 0, pointer("transactions")),
            ms(arm.latency_mean, "latency_mean"),
            ms(arm.latency_stddev, "latency_stddev"),
            Cell::optional(arm.client_cpu, |cpu| Cell::number(cpu, 1.0, 1, pointer("client_cpu"))),
        ]);
    }
    Figure {
        id: place.id("tps"),
        title: "Transactions per second".to_owned(),
        caption: "Every slice of every arm as a dot, the first at the top of its row; the line is the arm's TPS. How far \
                  the dots of one row lie apart is how unsteady this box was: arms are compared slice by slice, below."
            .to_owned(),
        svg: strips(&rows, "transactions per second"),
        table,
        detail: false,
    }
}

fn change(throughput: &Throughput, looks: &[Look], place: &Place) -> Figure {
    let mut rows = Vec::new();
    let mut table = Table::new(&["arm", "change of TPS, %", "from", "to", "A/A noise", "finding"]);
    for (index, (arm, look)) in throughput.arms.iter().zip(looks).enumerate().skip(1) {
        let mut cells = vec![Cell::text(&arm.arm)];
        cells.extend(arm_change(arm, index, throughput, place));
        table.rows.push(cells);
        let (Some(change), Some(finding)) = (arm.change, arm.finding) else { continue };
        rows.push(percent_row(&arm.arm, "", *look, change, throughput.noise, finding));
    }
    Figure {
        id: place.id("change"),
        title: "Change of TPS against off".to_owned(),
        caption: "Paired within rounds, with 95 % intervals. The shaded band is what off against itself gave in the same \
                  run: nothing inside it is called a difference (hollow marks)."
            .to_owned(),
        svg: changes(&rows, "% of TPS, against off"),
        table,
        detail: false,
    }
}

/// Of a change that is a fraction.
pub fn percent_row(
    label: &str,
    of: &str,
    look: Look,
    change: Interval,
    noise: Interval,
    finding: Finding,
) -> Change {
    let (change, noise) = (change.scaled(100.0), noise.scaled(100.0));
    let said = match (finding, change.low, change.high) {
        (Finding::Difference, Some(low), Some(high)) => {
            format!("{} % ({} to {})", signed(change.estimate, 1), signed(low, 1), signed(high, 1))
        }
        (Finding::NoDifference { smallest: Some(smallest) }, ..) => {
            let percent = smallest * 100.0;
            format!("none seen from {} % on", number(percent, usize::from(percent < 100.0)))
        }
        _ => "not enough data".to_owned(),
    };
    Change { label: label.to_owned(), of: of.to_owned(), look, change, noise, finding, said }
}

fn time(throughput: &Throughput, looks: &[Look], place: &Place) -> Figure {
    let mut series = Vec::new();
    let arms: Vec<&str> = throughput.arms.iter().skip(1).map(|arm| &*arm.arm).collect();
    let mut table = Table::new(&[&["round"], &arms[..]].concat());
    let mut rows: Vec<Vec<Cell>> =
        (0..throughput.rounds).map(|n| vec![Cell::text((n + 1).to_string())]).collect();
    for (index, (arm, look)) in throughput.arms.iter().zip(looks).enumerate().skip(1) {
        let changes = paired_changes(&throughput.slices, index);
        for (round, row) in rows.iter_mut().enumerate() {
            let of_round = changes.iter().find(|(r, _)| *r == round);
            row.push(Cell::text(
                of_round.map_or_else(String::new, |(_, c)| format!("{} %", signed(c * 100.0, 2))),
            ));
        }
        let Some(change) = arm.change else { continue };
        series.push(Series {
            label: arm.arm.clone(),
            look: *look,
            points: changes.iter().map(|(round, change)| (*round as f64 + 1.0, change * 100.0)).collect(),
            spread: None,
            change: change.scaled(100.0),
            noise: throughput.noise.scaled(100.0),
        });
    }
    table.rows = rows;
    Figure {
        id: place.id("change-over-time"),
        title: "Paired differences over time".to_owned(),
        caption: "TPS of each round's slice against off in the same round. The line and its band are the estimate and its \
                  interval, the grey band the noise. A run to be trusted looks alike from its beginning to its end; far \
                  outliers lie on the edge."
            .to_owned(),
        svg: over_time(&series, "%", "round"),
        table,
        detail: true,
    }
}

/// Round, and the arm's TPS against the mean of the baseline's slices of that round, minus 1.
fn paired_changes(slices: &[ThroughputSlice], arm: usize) -> Vec<(usize, f64)> {
    let change = |slice: &ThroughputSlice| {
        let baseline: Vec<f64> =
            slices.iter().filter(|s| s.arm == 0 && s.round == slice.round).map(|s| s.tps).collect();
        let mean = baseline.iter().sum::<f64>() / baseline.len() as f64;
        (slice.round, slice.tps / mean - 1.0)
    };
    let of_arm = slices.iter().filter(|slice| slice.arm == arm && !slice.again);
    of_arm.map(change).filter(|(_, change)| change.is_finite()).collect()
}

fn latencies(throughput: &Throughput, looks: &[Look], place: &Place) -> Vec<Figure> {
    let arms: Vec<(Look, String, &Distribution)> = throughput
        .arms
        .iter()
        .zip(looks)
        .filter_map(|(arm, look)| Some((*look, arm.arm.clone(), arm.distribution.as_ref()?)))
        .collect();
    let note = "Closed loop: a session sends its next transaction when the last has ended, so that a stall is seen by one \
                transaction of each session; latency mode has an open loop.";
    distribution_figures(&arms, note, place)
}

/// The distribution, and the arms' percentiles.
pub fn distribution_figures(
    arms: &[(Look, String, &Distribution)],
    note: &str,
    place: &Place,
) -> Vec<Figure> {
    if arms.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new(&["arm"]);
    table.header.extend(PERCENTILES.map(|p| format!("p{p}, ms")));
    table.header.push("max, ms".to_owned());
    for (_, arm, distribution) in arms {
        let mut cells = vec![Cell::text(arm)];
        let shares = PERCENTILES.map(|p| p / 100.0).into_iter().chain([1.0]);
        cells.extend(shares.map(|share| {
            Cell::text(percentile_of(distribution, share).map_or_else(String::new, |ms| number(ms, 4)))
        }));
        table.rows.push(cells);
    }
    let rows: Vec<Group> = PERCENTILES
        .iter()
        .map(|p| Group {
            label: format!("p{p}"),
            values: arms
                .iter()
                .filter_map(|(look, arm, distribution)| {
                    let ms = percentile_of(distribution, p / 100.0)?;
                    Some((*look, ms, format!("{arm}: p{p} is {} ms", significant(ms))))
                })
                .collect(),
        })
        .collect();
    let legend: Vec<(Look, String)> = arms.iter().map(|(look, arm, _)| (*look, arm.clone())).collect();
    vec![
        Figure {
            id: place.id("latency-distribution"),
            title: "Latency distribution".to_owned(),
            caption: format!(
                "Latency over its percentile; further right is rarer, each step by a factor of ten. {note}"
            ),
            svg: spectrum(arms),
            table: table.clone(),
            detail: false,
        },
        Figure {
            id: place.id("percentiles"),
            title: "Percentiles by arm".to_owned(),
            caption: "The same at the usual percentiles; the axis goes by orders of magnitude.".to_owned(),
            svg: groups(&rows, &legend, "ms"),
            table,
            detail: false,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(round: usize, arm: usize, again: bool, tps: f64) -> ThroughputSlice {
        ThroughputSlice {
            round,
            arm,
            again,
            transactions: 0,
            tps,
            latency_mean: 0.0,
            latency_stddev: 0.0,
            hot_p99: None,
        }
    }

    #[test]
    fn a_slice_is_paired_with_the_baseline_of_its_round() {
        let slices = [
            slice(0, 0, false, 90.0),
            slice(0, 0, true, 110.0),
            slice(0, 1, false, 95.0),
            slice(1, 1, false, 300.0),
            slice(1, 0, false, 200.0),
            slice(2, 1, false, 300.0),
        ];
        let changes = paired_changes(&slices, 1);
        let rounded: Vec<(usize, f64)> = changes.iter().map(|(r, c)| (*r, (c * 1000.0).round())).collect();
        assert_eq!(rounded, [(0, -50.0), (1, 500.0)]);
    }

    #[test]
    fn only_arms_of_pgss_rs_have_a_rate() {
        let rates = ["pgss_rs", "pgss_rs@0.2", "off", "pg_stat_statements"].map(rate_of);
        assert_eq!(rates, [Some(1.0), Some(0.2), None, None]);
    }
}
