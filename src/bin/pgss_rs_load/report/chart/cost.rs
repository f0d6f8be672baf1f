//! Of `cost`: what each arm adds to a statement, and the blocks it was found from.

use super::plane::{Series, over_time};
use super::rows::{Change, changes};
use super::svg::Look;
use super::{Cell, Figure, Place, Table, change_cells, looks, number, signed};
use crate::report::compare::sides;
use crate::report::document::{Comparison, Cost, CostBlock, Finding, Measure};

/// Points of the chart over time: each stands for the median of so many blocks as it takes.
const POINTS: usize = 60;

pub fn figures(cost: &Cost, place: &Place) -> Vec<Figure> {
    // As if the baseline stood first, as elsewhere.
    let baseline = "off".to_owned();
    let arms: Vec<&String> =
        std::iter::once(&baseline).chain(cost.comparisons.iter().map(|c| &c.arm)).collect();
    let looks = looks(arms)[1..].to_vec();
    if cost.comparisons.is_empty() {
        return Vec::new();
    }
    let mut figures = vec![change(cost, &looks, place)];
    if !cost.blocks.is_empty() {
        figures.push(time(cost, &looks, place));
    }
    figures
}

/// The one that says most: server CPU where it is known.
fn main_measure(comparison: &Comparison) -> (&'static str, &Measure) {
    comparison.cpu.as_ref().map_or(("wall", &comparison.wall), |cpu| ("cpu", cpu))
}

fn change(cost: &Cost, looks: &[Look], place: &Place) -> Figure {
    let mut rows = Vec::new();
    let mut table = Table::new(&[
        "arm",
        "time",
        "off, ns",
        "change, ns",
        "from",
        "to",
        "A/A noise",
        "finding",
        "statements",
    ]);
    for (index, (comparison, look)) in cost.comparisons.iter().zip(looks).enumerate() {
        let measures =
            [("cpu", "server CPU", comparison.cpu.as_ref()), ("wall", "elapsed", Some(&comparison.wall))];
        for (member, name, measure) in measures {
            let Some(measure) = measure else { continue };
            rows.push(row(&comparison.arm, name, *look, measure));
            let pointer = place.pointer(format_args!("comparisons/{index}"));
            let mut cells = vec![
                Cell::text(&comparison.arm),
                Cell::text(name),
                Cell::number(measure.off, 1.0, 0, format!("{pointer}/{member}/off")),
            ];
            let change = format!("{pointer}/{member}/change");
            cells.extend(change_cells(
                Some(measure.change),
                measure.noise,
                Some(measure.finding),
                1.0,
                1,
                &change,
            ));
            cells.push(Cell::number(comparison.statements as f64, 1.0, 0, format!("{pointer}/statements")));
            table.rows.push(cells);
        }
    }
    Figure {
        id: place.id("cost"),
        title: "Time added to one statement".to_owned(),
        caption: "Nanoseconds per statement against off, with 95 % intervals. The shaded band is what off against itself \
                  gave in the same run: nothing inside it is called a difference (hollow marks)."
            .to_owned(),
        svg: changes(&rows, "ns per statement, against off"),
        table,
        detail: false,
    }
}

fn row(arm: &str, time: &str, look: Look, measure: &Measure) -> Change {
    let said = match (measure.finding, measure.change.low, measure.change.high) {
        (Finding::Difference, Some(low), Some(high)) => {
            format!("{} ns ({} to {})", signed(measure.change.estimate, 0), signed(low, 0), signed(high, 0))
        }
        (Finding::NoDifference { smallest: Some(smallest) }, ..) => {
            format!("none seen from {} ns on", number(smallest, 0))
        }
        _ => "not enough data".to_owned(),
    };
    Change {
        label: arm.to_owned(),
        of: time.to_owned(),
        look,
        change: measure.change,
        noise: measure.noise,
        finding: measure.finding,
        said,
    }
}

fn time(cost: &Cost, looks: &[Look], place: &Place) -> Figure {
    let mut table = Table::new(&["arm", "seconds measured", "median, ns", "quartiles, ns", "blocks"]);
    let mut series = Vec::new();
    for (index, (comparison, look)) in cost.comparisons.iter().zip(looks).enumerate() {
        let (_, measure) = main_measure(comparison);
        let points = summed_up(differences(&cost.blocks, index, comparison.cpu.is_some()));
        for point in &points {
            table.rows.push(vec![
                Cell::text(&comparison.arm),
                Cell::text(number(point.at, 1)),
                Cell::text(signed(point.median, 1)),
                Cell::text(format!("{} to {}", signed(point.quartiles.0, 1), signed(point.quartiles.1, 1))),
                Cell::text(point.blocks.to_string()),
            ]);
        }
        series.push(Series {
            label: comparison.arm.clone(),
            look: *look,
            points: points.iter().map(|p| (p.at, p.median)).collect(),
            spread: Some(points.iter().map(|p| p.quartiles).collect()),
            change: measure.change,
            noise: measure.noise,
        });
    }
    Figure {
        id: place.id("cost-over-time"),
        title: "Paired differences over time".to_owned(),
        caption: "Each mark is the median of the ABBA blocks of a stretch of the run, arm less off, with the quartiles of \
                  its blocks; the line and its band are the whole run's estimate and interval, the grey band the noise. A \
                  run to be trusted looks alike from its beginning to its end."
            .to_owned(),
        svg: over_time(&series, "ns per statement", "seconds measured"),
        table,
        detail: true,
    }
}

/// Seconds measured by the block's client so far, and ns per statement that the other arm took longer.
fn differences(blocks: &[CostBlock], comparison: usize, cpu: bool) -> Vec<(f64, f64)> {
    let clients = blocks.iter().map(|b| b.client + 1).max().unwrap_or(0);
    let mut elapsed = vec![0; clients as usize];
    let mut differences = Vec::new();
    for block in blocks {
        let so_far = &mut elapsed[block.client as usize];
        *so_far += block.wall_ns.iter().sum::<u64>();
        let slices = if cpu { block.cpu_ns } else { Some(block.wall_ns) };
        if let Some(slices) = slices.filter(|_| block.comparison == Some(comparison)) {
            differences.push((*so_far as f64 / 1e9, {
                let [off, arm] = sides(&block.order, slices, block.statements);
                arm - off
            }));
        }
    }
    differences.sort_by(|a, b| a.0.total_cmp(&b.0));
    differences
}

#[derive(Debug, PartialEq)]
struct Stretch {
    /// Seconds, of its middle.
    at: f64,
    median: f64,
    quartiles: (f64, f64),
    blocks: usize,
}

fn summed_up(differences: Vec<(f64, f64)>) -> Vec<Stretch> {
    let per_point = differences.len().div_ceil(POINTS).max(1);
    let stretch = |part: &[(f64, f64)]| {
        let mut values: Vec<f64> = part.iter().map(|(_, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[(share * (values.len() - 1) as f64).round() as usize];
        Stretch {
            at: part[part.len() / 2].0,
            median: at(0.5),
            quartiles: (at(0.25), at(0.75)),
            blocks: part.len(),
        }
    };
    differences.chunks(per_point).map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_blocks_are_summed_up_in_few_points() {
        let few = summed_up(vec![(1.0, 5.0), (2.0, 7.0)]);
        assert_eq!((few.len(), few[1].median, few[1].blocks), (2, 7.0, 1));
        let many = summed_up((0..6001).map(|i| (f64::from(i), f64::from(i % 101))).collect());
        assert!(many.len() <= POINTS && many.len() > POINTS / 2, "{}", many.len());
        assert_eq!(many.iter().map(|s| s.blocks).sum::<usize>(), 6001);
        assert!((many[0].median - 50.0).abs() <= 1.0);
    }
}
