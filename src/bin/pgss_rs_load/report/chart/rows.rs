//! Charts with a row for each arm: changes with their intervals, slices, percentiles.

use super::svg::{Anchor, Look, Scale, Svg};
use super::{WIDTH, significant};
use crate::report::document::{Finding, Interval};

/// Room for the arms' names.
const LEFT: f64 = 172.0;
const ROW: f64 = 40.0;
const TOP: f64 = 28.0;
/// Room for the ticks and what they mean.
const BOTTOM: f64 = 46.0;
const TICKS: usize = 6;

/// A change against the baseline.
#[derive(Debug)]
pub struct Change {
    pub label: String,
    /// Below the label, such as which percentile it is.
    pub of: String,
    pub look: Look,
    pub change: Interval,
    /// The baseline against itself.
    pub noise: Interval,
    pub finding: Finding,
    /// Beside the row.
    pub said: String,
}

/// Changes with their intervals, zero, and the noise behind them.
pub fn changes(rows: &[Change], axis: &str) -> Svg {
    const RIGHT: f64 = 196.0;
    let ends = |interval: Interval| [interval.low, Some(interval.estimate), interval.high];
    let values = rows.iter().flat_map(|row| [ends(row.change), ends(row.noise)]).flatten().flatten();
    let scale = Scale::linear(values.chain([0.0]), (LEFT, WIDTH - RIGHT));
    let mut svg = frame(rows.len(), &scale, RIGHT, axis);
    for (index, row) in rows.iter().enumerate() {
        let y = middle(index);
        let (low, high) = (row.noise.low.unwrap_or(f64::MIN), row.noise.high.unwrap_or(f64::MAX));
        svg.rect("noise", (scale.at(low), y - 13.0), (scale.at(high), y + 13.0));
    }
    let bottom = TOP + ROW * rows.len() as f64;
    svg.line("zero", (scale.at(0.0), TOP), (scale.at(0.0), bottom));
    for (index, row) in rows.iter().enumerate() {
        let (y, class) = (middle(index), row.look.class());
        let (low, high) = (row.change.low.unwrap_or(f64::MIN), row.change.high.unwrap_or(f64::MAX));
        svg.line(&format!("interval {class}"), (scale.at(low), y), (scale.at(high), y));
        for end in [low, high] {
            svg.line(&format!("interval {class}"), (scale.at(end), y - 5.0), (scale.at(end), y + 5.0));
        }
        let seen = row.finding == Finding::Difference;
        let mark = if seen { "" } else { "hollow" };
        svg.mark(row.look, mark, (scale.at(row.change.estimate), y), 5.5, &row.said);
        let up = if row.of.is_empty() { 0.0 } else { 7.5 };
        svg.text("strong", (LEFT - 14.0, y + 4.5 - up), Anchor::End, &row.label);
        svg.text("tick", (LEFT - 14.0, y + 11.5), Anchor::End, &row.of);
        let said = if seen { "" } else { "quiet" };
        svg.text(said, (WIDTH - RIGHT + 14.0, y + 4.5), Anchor::Start, &row.said);
    }
    svg
}

/// Single values and what stands for all of them.
#[derive(Debug)]
pub struct Strip {
    pub label: String,
    pub look: Look,
    /// In the order in which they came.
    pub values: Vec<f64>,
    pub middle: f64,
    pub said: String,
}

/// Every value as a dot; within a row, earlier ones lie higher.
pub fn strips(rows: &[Strip], axis: &str) -> Svg {
    const RIGHT: f64 = 116.0;
    let values = rows.iter().flat_map(|row| row.values.iter().copied().chain([row.middle]));
    let scale = Scale::linear(values, (LEFT, WIDTH - RIGHT));
    let mut svg = frame(rows.len(), &scale, RIGHT, axis);
    for (index, row) in rows.iter().enumerate() {
        let y = middle(index);
        let count = row.values.len().max(2) as f64 - 1.0;
        for (n, value) in row.values.iter().enumerate() {
            let at = (scale.at(*value), y - 11.0 + 22.0 * n as f64 / count);
            svg.mark(row.look, "faint", at, 2.6, &significant(*value));
        }
        let x = scale.at(row.middle);
        svg.line(&format!("interval {}", row.look.class()), (x, y - 15.0), (x, y + 15.0));
        svg.text("strong", (LEFT - 14.0, y + 4.5), Anchor::End, &row.label);
        svg.text("", (WIDTH - RIGHT + 14.0, y + 4.5), Anchor::Start, &row.said);
    }
    svg
}

/// Values of several series in one row, such as the arms' 99th percentiles.
#[derive(Debug)]
pub struct Group {
    pub label: String,
    pub values: Vec<(Look, f64, String)>,
}

/// Over orders of magnitude. `legend`: the series.
pub fn groups(rows: &[Group], legend: &[(Look, String)], axis: &str) -> Svg {
    const RIGHT: f64 = 30.0;
    let values = rows.iter().flat_map(|row| row.values.iter().map(|(_, value, _)| *value));
    let scale = Scale::logarithmic(values, (LEFT, WIDTH - RIGHT));
    let mut svg = frame(rows.len(), &scale, RIGHT, axis);
    super::plane::legend(&mut svg, legend, (LEFT, TOP - 14.0));
    for (index, row) in rows.iter().enumerate() {
        let y = middle(index);
        svg.text("strong", (LEFT - 14.0, y + 4.5), Anchor::End, &row.label);
        let xs = row.values.iter().map(|(_, value, _)| scale.at(*value));
        let (low, high) = xs.fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
        svg.line("axis", (low, y), (high, y));
        let spread = row.values.len().max(2) as f64 - 1.0;
        for (n, (look, value, hint)) in row.values.iter().enumerate() {
            // A little apart, so that equal values do not hide each other.
            svg.mark(*look, "", (scale.at(*value), y - 6.0 + 12.0 * n as f64 / spread), 5.0, hint);
        }
    }
    svg
}

/// Grid, ticks and the axis's meaning.
fn frame(rows: usize, scale: &Scale, right: f64, axis: &str) -> Svg {
    let bottom = TOP + ROW * rows as f64;
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM);
    for (tick, name) in scale.ticks(TICKS) {
        let x = scale.at(tick);
        svg.line("grid", (x, TOP), (x, bottom));
        svg.text("tick", (x, bottom + 18.0), Anchor::Middle, &name);
    }
    svg.line("axis", (LEFT, bottom), (WIDTH - right, bottom));
    svg.text("axis-title", ((LEFT + WIDTH - right) / 2.0, bottom + 38.0), Anchor::Middle, axis);
    svg
}

fn middle(row: usize) -> f64 {
    TOP + ROW * (row as f64 + 0.5)
}
