//! Charts of one quantity over another: TPS over the sample rate, changes over time, latency over its percentile.

use super::svg::{Anchor, Look, Scale, Shape, Svg};
use super::{WIDTH, number, signed};
use crate::report::document::{Distribution, Interval};

const LEFT: f64 = 78.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 46.0;
const HEIGHT: f64 = 300.0;

/// Marks and names in a line.
pub fn legend(svg: &mut Svg, series: &[(Look, String)], from: (f64, f64)) {
    let (mut x, y) = from;
    for (look, name) in series {
        svg.mark(*look, "", (x + 6.0, y), 5.0, "");
        svg.text("", (x + 17.0, y + 4.5), Anchor::Start, name);
        x += 36.0 + 7.4 * name.chars().count() as f64;
    }
}

/// A point with an interval.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub x: f64,
    pub y: Interval,
}

/// TPS over the sample rate, beside the baseline and its noise.
pub fn over_rate(points: &[Point], baseline: Interval, look: Look) -> Svg {
    let mut svg = Svg::new(WIDTH, TOP + HEIGHT + BOTTOM);
    let ends = |y: Interval| [y.low, Some(y.estimate), y.high];
    let values = points.iter().flat_map(|point| ends(point.y)).chain(ends(baseline)).flatten();
    let y = Scale::linear(values, (TOP + HEIGHT, TOP));
    let x = Scale::exact((-0.04, 1.04), (LEFT, WIDTH - RIGHT));
    horizontal_grid(&mut svg, &y, "transactions per second");
    let rates: Vec<f64> = points.iter().map(|point| point.x).collect();
    for rate in &rates {
        svg.text("tick", (x.at(*rate), TOP + HEIGHT + 18.0), Anchor::Middle, &format!("{rate}"));
        svg.line("grid", (x.at(*rate), TOP), (x.at(*rate), TOP + HEIGHT));
    }
    svg.text("axis-title", (middle_x(), TOP + HEIGHT + 38.0), Anchor::Middle, "sample rate");

    let off = Look { colour: 0, shape: Shape::Circle };
    let (low, high) = (baseline.low.unwrap_or(f64::MIN), baseline.high.unwrap_or(f64::MAX));
    svg.rect("s0 band", (LEFT, y.at(low)), (WIDTH - RIGHT, y.at(high)));
    let at = y.at(baseline.estimate);
    svg.line("interval s0 dashed", (LEFT, at), (WIDTH - RIGHT, at));

    let class = look.class();
    let places: Vec<(f64, f64)> = points.iter().map(|p| (x.at(p.x), y.at(p.y.estimate))).collect();
    svg.polyline(&format!("curve thin {class}"), &places);
    for (point, place) in points.iter().zip(&places) {
        let (low, high) = (point.y.low.unwrap_or(f64::MIN), point.y.high.unwrap_or(f64::MAX));
        svg.line(&format!("interval {class}"), (place.0, y.at(low)), (place.0, y.at(high)));
        for end in [low, high] {
            svg.line(&format!("interval {class}"), (place.0 - 5.0, y.at(end)), (place.0 + 5.0, y.at(end)));
        }
        let hint = format!("rate {}: {} TPS", point.x, number(point.y.estimate, 0));
        svg.mark(look, "", *place, 5.5, &hint);
    }
    let names = [(off, "off, with its noise".to_owned()), (look, "pgss_rs".to_owned())];
    legend(&mut svg, &names, (LEFT, 16.0));
    svg
}

/// An arm's paired differences in the order of time.
#[derive(Debug)]
pub struct Series {
    pub label: String,
    pub look: Look,
    /// Time or round, and difference.
    pub points: Vec<(f64, f64)>,
    /// Half of the differences around each point lie within, where a point stands for many.
    pub spread: Option<Vec<(f64, f64)>>,
    pub change: Interval,
    pub noise: Interval,
}

/// A panel for each arm, with the estimate and its interval across.
pub fn over_time(series: &[Series], unit: &str, axis: &str) -> Svg {
    const PANEL: f64 = 104.0;
    const GAP: f64 = 34.0;
    let panels = series.len() as f64;
    let bottom = 22.0 + panels * (PANEL + GAP) - GAP;
    let mut svg = Svg::new(WIDTH, bottom + BOTTOM);
    let spreads = |s: &Series| s.spread.iter().flatten().flat_map(|(l, h)| [*l, *h]).collect::<Vec<_>>();
    let values = series.iter().flat_map(|s| s.points.iter().map(|p| p.1).chain(spreads(s)));
    let (low, high) = without_outliers(values.collect());
    let x = Scale::linear(series.iter().flat_map(|s| s.points.iter().map(|p| p.0)), (LEFT, WIDTH - RIGHT));
    for (index, one) in series.iter().enumerate() {
        let top = 22.0 + index as f64 * (PANEL + GAP);
        let y = Scale::linear([low, high, 0.0], (top + PANEL, top));
        panel(&mut svg, one, &x, &y, unit);
    }
    for (tick, name) in x.ticks(8) {
        svg.text("tick", (x.at(tick), bottom + 18.0), Anchor::Middle, &name);
    }
    svg.text("axis-title", (middle_x(), bottom + 38.0), Anchor::Middle, axis);
    svg
}

fn panel(svg: &mut Svg, series: &Series, x: &Scale, y: &Scale, unit: &str) {
    let class = series.look.class();
    let across = |value: f64| ((LEFT, y.at(value)), (WIDTH - RIGHT, y.at(value)));
    let band = |interval: Interval| {
        let (low, high) = (interval.low.unwrap_or(f64::MIN), interval.high.unwrap_or(f64::MAX));
        (across(low).0, across(high).1)
    };
    let (from, to) = band(series.noise);
    svg.rect("noise", from, to);
    for (tick, name) in y.ticks(4) {
        let (from, to) = across(tick);
        svg.line(if tick == 0.0 { "zero" } else { "grid" }, from, to);
        svg.text("tick", (LEFT - 10.0, from.1 + 4.0), Anchor::End, &name);
    }
    if let Some(spread) = &series.spread {
        for ((at, _), (low, high)) in series.points.iter().zip(spread) {
            svg.line(&format!("interval {class} band"), (x.at(*at), y.at(*low)), (x.at(*at), y.at(*high)));
        }
    }
    let (from, to) = band(series.change);
    svg.rect(&format!("{class} band"), from, to);
    let (from, to) = across(series.change.estimate);
    svg.line(&format!("interval {class}"), from, to);
    for (at, value) in &series.points {
        svg.mark(series.look, "", (x.at(*at), y.at(*value)), 3.6, &format!("{} {unit}", signed(*value, 2)));
    }
    let top = y.at(f64::MAX) - 7.0;
    svg.text("strong", (LEFT, top), Anchor::Start, &series.label);
    svg.text("axis-title", (WIDTH - RIGHT, top), Anchor::End, unit);
}

/// The range that holds all but what lies far out.
fn without_outliers(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return (0.0, 0.0) };
    let at = |share: f64| values[(share * last as f64).round() as usize];
    let reach = 2.5 * (at(0.75) - at(0.25));
    (values[0].max(at(0.25) - reach), values[last].min(at(0.75) + reach))
}

/// Latency over its percentile, which is drawn so that 90, 99 and 99.9 % are equally far apart.
pub fn spectrum(series: &[(Look, String, &Distribution)]) -> Svg {
    let mut svg = Svg::new(WIDTH, TOP + HEIGHT + BOTTOM);
    let curves: Vec<Vec<(f64, f64)>> = series.iter().map(|(_, _, d)| curve(d)).collect();
    let furthest = curves.iter().flatten().map(|(nines, _)| *nines).fold(1.0, f64::max);
    let x = Scale::exact((0.0, furthest * 1.02), (LEFT, WIDTH - RIGHT));
    let y = Scale::logarithmic(curves.iter().flatten().map(|(_, ms)| *ms), (TOP + HEIGHT, TOP));
    horizontal_grid(&mut svg, &y, "ms");
    for share in [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999] {
        let at = nines(share);
        if x.contains(at) {
            svg.line("grid", (x.at(at), TOP), (x.at(at), TOP + HEIGHT));
            let text = format!("{} %", (share * 1e8).round() / 1e6);
            svg.text("tick", (x.at(at), TOP + HEIGHT + 18.0), Anchor::Middle, &text);
        }
    }
    svg.text(
        "axis-title",
        (middle_x(), TOP + HEIGHT + 38.0),
        Anchor::Middle,
        "of the transactions took at most",
    );
    for ((look, _, _), points) in series.iter().zip(&curves) {
        let places: Vec<(f64, f64)> = points.iter().map(|(n, ms)| (x.at(*n), y.at(*ms))).collect();
        svg.polyline(&format!("curve {}", look.class()), &places);
    }
    for ((look, name, distribution), _) in series.iter().zip(&curves) {
        for share in [0.5, 0.9, 0.99, 0.999, 0.9999] {
            let enough = distribution.iter().map(|(_, n)| *n).sum::<u64>() as f64 * (1.0 - share) >= 1.0;
            let value = crate::report::document::percentile_of(distribution, share).filter(|_| enough);
            if let Some(ms) = value {
                let hint = format!("{name}: {} % within {} ms", share * 100.0, super::significant(ms));
                svg.mark(*look, "", (x.at(nines(share)), y.at(ms)), 4.2, &hint);
            }
        }
    }
    let names: Vec<(Look, String)> = series.iter().map(|(look, name, _)| (*look, name.clone())).collect();
    legend(&mut svg, &names, (LEFT, 16.0));
    svg
}

/// 90 % is 1, 99 % is 2 and so on.
fn nines(share: f64) -> f64 {
    -(1.0 - share).log10()
}

/// Nines and ms, as many as can be told apart.
fn curve(distribution: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let total = distribution.iter().map(|(_, count)| count).sum::<u64>() as f64;
    let mut below = 0;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (ns, count) in distribution {
        below += count;
        // The last class is as far out as one transaction more would put it.
        let at = nines((below as f64 / total).min(1.0 - 0.5 / total));
        if points.last().is_none_or(|(last, _)| at - last >= 0.01) {
            points.push((at, *ns as f64 / 1e6));
        }
    }
    points
}

fn horizontal_grid(svg: &mut Svg, y: &Scale, title: &str) {
    for (tick, name) in y.ticks(6) {
        svg.line("grid", (LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)));
        svg.text("tick", (LEFT - 10.0, y.at(tick) + 4.0), Anchor::End, &name);
    }
    svg.line("axis", (LEFT, TOP + HEIGHT), (WIDTH - RIGHT, TOP + HEIGHT));
    svg.text("axis-title", (WIDTH - RIGHT, 20.0), Anchor::End, title);
}

fn middle_x() -> f64 {
    (LEFT + WIDTH - RIGHT) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_every_class_that_can_be_told_apart() {
        let curve = curve(&[(1_000_000, 900), (2_000_000, 90), (3_000_000, 9), (4_000_000, 1)]);
        let rounded: Vec<(f64, f64)> =
            curve.iter().map(|(n, ms)| ((n * 100.0).round() / 100.0, *ms)).collect();
        assert_eq!(rounded, [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (3.3, 4.0)]);
    }

    #[test]
    fn what_lies_far_out_does_not_set_the_scale() {
        let mut values: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(without_outliers(values.clone()), (0.0, 99.0));
        values.push(1e9);
        assert!(without_outliers(values).1 < 300.0);
        assert_eq!(without_outliers(vec![]), (0.0, 0.0));
    }
}
