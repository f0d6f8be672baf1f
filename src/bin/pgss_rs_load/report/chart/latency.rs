//! Of `latency`: percentiles from the intended start, their changes, and whether the rate was held.

use super::plane::{Series, over_time};
use super::rows::{Strip, changes, strips};
use super::svg::Look;
use super::throughput::{distribution_figures, percent_row};
use super::{Cell, Figure, Place, Table, change_cells, looks, number, signed};
use crate::report::document::{Distribution, Latency, LatencySlice};

/// Of the percentiles compared, the one that is shown over time: the last of which a slice has enough.
const SHOWN: f64 = 99.0;

pub fn figures(latency: &Latency, place: &Place) -> Vec<Figure> {
    let looks = looks(latency.arms.iter().map(|arm| &arm.arm));
    let arms: Vec<(Look, String, &Distribution)> = latency
        .arms
        .iter()
        .zip(&looks)
        .map(|(arm, look)| (*look, arm.arm.clone(), &arm.distribution))
        .collect();
    let note = "Open loop: from the moment a transaction was due, whether or not a session was free to send it, so that a \
                stall counts for every transaction that it delayed.";
    let mut figures = vec![held(latency, &looks, place)];
    if latency.arms.len() > 1 {
        figures.push(change(latency, &looks, place));
        figures.extend(time(latency, &looks, place));
    }
    figures.extend(distribution_figures(&arms, note, place));
    figures
}

fn held(latency: &Latency, looks: &[Look], place: &Place) -> Figure {
    let mut table = Table::new(&[
        "arm",
        "achieved, 1/s",
        "due",
        "completed",
        "not served",
        "largest backlog",
        "mean, ms",
        "max, ms",
        "driver late, p99 ms",
        "rate held",
    ]);
    let mut rows = Vec::new();
    for (index, (arm, look)) in latency.arms.iter().zip(looks).enumerate() {
        let pointer = |name: &str| place.pointer(format_args!("arms/{index}/{name}"));
        let count = |value: u64, name: &str| Cell::number(value as f64, 1.0, 0, pointer(name));
        let ms = |value: f64, name: &str| Cell::number(value, 1.0, 3, pointer(name));
        table.rows.push(vec![
            Cell::text(&arm.arm),
            Cell::number(arm.achieved, 1.0, 1, pointer("achieved")),
            count(arm.intended, "intended"),
            count(arm.completed, "completed"),
            count(arm.unserved, "unserved"),
            count(arm.backlog, "backlog"),
            ms(arm.mean, "mean"),
            ms(arm.max, "max"),
            ms(arm.driver_late_p99, "driver_late_p99"),
            Cell::text(if arm.held { "yes" } else { "no" }),
        ]);
        let slices = latency.slices.iter().filter(|slice| slice.arm == index && !slice.again);
        rows.push(Strip {
            label: arm.arm.clone(),
            look: *look,
            values: slices.map(|slice| slice.completed as f64 / latency.slice).collect(),
            middle: arm.achieved,
            said: format!("{}/s{}", number(arm.achieved, 0), if arm.held { "" } else { ", not held" }),
        });
    }
    Figure {
        id: place.id("held"),
        title: format!("Whether {} a second could be held", number(latency.rate, 0)),
        caption: "Transactions completed per second of every slice, and the arm's mean. Where the rate is not held a \
                  backlog grows, and latencies say how long the run was rather than how fast the server is."
            .to_owned(),
        svg: strips(&rows, "completed per second"),
        table,
        detail: false,
    }
}

fn change(latency: &Latency, looks: &[Look], place: &Place) -> Figure {
    let mut rows = Vec::new();
    let mut table =
        Table::new(&["arm", "percentile", "ms", "change, %", "from", "to", "A/A noise", "finding"]);
    for (index, (arm, look)) in latency.arms.iter().zip(looks).enumerate() {
        for (which, of) in arm.percentiles.iter().enumerate() {
            let pointer = place.pointer(format_args!("arms/{index}/percentiles/{which}"));
            let mut cells = vec![
                Cell::text(&arm.arm),
                Cell::text(format!("p{}", of.percentile)),
                Cell::number(of.ms, 1.0, 4, format!("{pointer}/ms")),
            ];
            let change = format!("{pointer}/change");
            cells.extend(change_cells(of.change, of.noise, of.finding, 100.0, 2, &change));
            table.rows.push(cells);
            if let (Some(change), Some(finding)) = (of.change, of.finding) {
                let percentile = format!("p{}", of.percentile);
                rows.push(percent_row(&arm.arm, &percentile, *look, change, of.noise, finding));
            }
        }
    }
    Figure {
        id: place.id("latency-change"),
        title: "Change of latency against off".to_owned(),
        caption: "Percentiles of slices, paired within rounds, with 95 % intervals; each against the noise of the same \
                  percentile of off against itself."
            .to_owned(),
        svg: changes(&rows, "% of the percentile, against off"),
        table,
        detail: false,
    }
}

fn time(latency: &Latency, looks: &[Look], place: &Place) -> Option<Figure> {
    let which = latency.percentiles.iter().position(|p| *p == SHOWN)?;
    let mut table = Table::new(&["arm", "round", "p99, ms", "change, %"]);
    let mut series = Vec::new();
    for (index, (arm, look)) in latency.arms.iter().zip(looks).enumerate().skip(1) {
        let changes = paired_changes(&latency.slices, index, which);
        for (round, ms, change) in &changes {
            table.rows.push(vec![
                Cell::text(&arm.arm),
                Cell::text((round + 1).to_string()),
                Cell::text(number(*ms, 4)),
                Cell::text(signed(change * 100.0, 2)),
            ]);
        }
        let of = arm.percentiles.get(which)?;
        series.push(Series {
            label: arm.arm.clone(),
            look: *look,
            points: changes.iter().map(|(round, _, change)| (*round as f64 + 1.0, change * 100.0)).collect(),
            spread: None,
            change: of.change?.scaled(100.0),
            noise: of.noise.scaled(100.0),
        });
    }
    Some(Figure {
        id: place.id("latency-over-time"),
        title: "Paired differences of p99 over time".to_owned(),
        caption: "The 99th percentile of each round's slice against off in the same round; the line and its band are the \
                  estimate and its interval, the grey band the noise."
            .to_owned(),
        svg: over_time(&series, "%", "round"),
        table,
        detail: true,
    })
}

/// Round, the slice's percentile in ms, and its change against the geometric mean of the baseline's in that round.
fn paired_changes(slices: &[LatencySlice], arm: usize, which: usize) -> Vec<(usize, f64, f64)> {
    let ms = |slice: &LatencySlice| slice.percentiles.get(which).copied();
    let of_arm = slices.iter().filter(|slice| slice.arm == arm && !slice.again);
    of_arm
        .filter_map(|slice| {
            let baseline: Vec<f64> =
                slices.iter().filter(|s| s.arm == 0 && s.round == slice.round).filter_map(ms).collect();
            let mean = baseline.iter().map(|ms| ms.ln()).sum::<f64>() / baseline.len() as f64;
            let change = ms(slice)? / mean.exp() - 1.0;
            change.is_finite().then_some((slice.round, ms(slice)?, change))
        })
        .collect()
}
