//! Figures: each a chart and the table of what it shows, made from the JSON. HTML and SVG files show them.

mod cost;
mod latency;
mod plane;
mod rows;
mod svg;
mod throughput;

use super::document::{Document, Finding, Interval, Results};

pub use svg::escape;

use svg::{Look, Shape, Svg};

/// Colours and fonts, for light and dark. The contrasts are checked by a test in a browser.
pub const STYLE: &str = include_str!("chart.css");

/// Of a chart; the page scales it.
const WIDTH: f64 = 760.0;

#[derive(Debug)]
pub struct Figure {
    /// Its own in the document; also its file's name.
    pub id: String,
    pub title: String,
    /// How to read it.
    pub caption: String,
    pub table: Table,
    /// The table is long, and of parts of the run rather than of all of it.
    pub detail: bool,
    svg: Svg,
}

impl Figure {
    /// For a page that has [`STYLE`].
    pub fn inline(&self) -> String {
        self.svg.inline(&self.id, &self.title, &self.caption)
    }

    /// A file of its own.
    pub fn standalone(&self) -> String {
        self.svg.standalone(&self.id, &self.title, &self.caption, STYLE)
    }
}

/// Of the run with this index.
pub fn figures(document: &Document, run: usize) -> Vec<Figure> {
    let place = |results: &str| Place { run, pointer: format!("/runs/{run}/results/{results}") };
    let of_run = &document.runs[run];
    match &of_run.results {
        Results::Cost(cost) => cost::figures(cost, &place("cost")),
        Results::Throughput(throughput) => throughput::figures(throughput, &place("throughput")),
        Results::Latency(latency) => latency::figures(latency, &place("latency")),
        Results::Calibration(_) | Results::Efficiency(_) => Vec::new(),
    }
}

/// Where in the JSON the results lie.
#[derive(Clone, Debug)]
pub struct Place {
    run: usize,
    /// Of the results.
    pointer: String,
}

impl Place {
    fn id(&self, name: &str) -> String {
        format!("run{}-{name}", self.run + 1)
    }

    fn pointer(&self, rest: std::fmt::Arguments<'_>) -> String {
        format!("{}/{rest}", self.pointer)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(header: &[&str]) -> Self {
        Table { header: header.iter().map(|h| (*h).to_owned()).collect(), rows: Vec::new() }
    }
}

#[derive(Clone, Debug)]
pub struct Cell {
    /// As a person reads it.
    pub text: String,
    /// The number itself, as the JSON has it, and the JSON pointer to it.
    pub raw: Option<(f64, String)>,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Cell { text: text.into(), raw: None }
    }

    /// `factor`: of the unit shown, such as 100 where a fraction is shown in percent.
    pub fn number(value: f64, factor: f64, digits: usize, pointer: String) -> Self {
        Cell { text: number(value * factor, digits), raw: Some((value, pointer)) }
    }

    /// The same with its sign.
    pub fn change(value: f64, factor: f64, digits: usize, pointer: String) -> Self {
        Cell { text: signed(value * factor, digits), raw: Some((value, pointer)) }
    }

    /// Nothing where there is no value.
    pub fn optional(value: Option<f64>, cell: impl FnOnce(f64) -> Cell) -> Self {
        value.map_or_else(|| Cell::text(""), cell)
    }
}

/// The cells of an estimate, its interval's ends, the noise's reach, and what follows.
fn change_cells(
    change: Option<Interval>,
    noise: Interval,
    finding: Option<Finding>,
    factor: f64,
    digits: usize,
    pointer: &str,
) -> Vec<Cell> {
    let Some(change) = change else { return ["", "", "", "", "baseline"].map(Cell::text).to_vec() };
    let cell = |name: &str, value| Cell::change(value, factor, digits, format!("{pointer}/{name}"));
    vec![
        cell("estimate", change.estimate),
        Cell::optional(change.low, |low| cell("low", low)),
        Cell::optional(change.high, |high| cell("high", high)),
        Cell::text(
            noise
                .reach()
                .map_or_else(|| "unknown".to_owned(), |reach| format!("±{}", number(reach * factor, digits))),
        ),
        Cell::text(match finding {
            Some(Finding::Difference) => "difference".to_owned(),
            Some(Finding::NoDifference { smallest: Some(smallest) }) => {
                format!("none seen from {} on", number(smallest * factor, digits))
            }
            _ => "not enough data".to_owned(),
        }),
    ]
}

/// With thousands grouped.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, fraction) = text.split_once('.').map_or((&*text, None), |(w, f)| (w, Some(f)));
    let mut shown = String::new();
    // Of what rounds to zero the sign says nothing.
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        shown.push('−');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if let Some(fraction) = fraction {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

/// The same, with a plus sign above zero.
pub fn signed(value: f64, digits: usize) -> String {
    let text = number(value, digits);
    let zero = !text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if value > 0.0 && !zero { format!("+{text}") } else { text }
}

/// With three significant digits.
pub fn significant(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    number(value, (2.0 - magnitude).clamp(0.0, 6.0) as usize)
}

/// An arm looks alike in every chart of a document.
fn looks<'a>(arms: impl IntoIterator<Item = &'a String>) -> Vec<Look> {
    /// Of the style's.
    const COLOURS: usize = 7;
    const OTHERS: [Shape; 3] = [Shape::Diamond, Shape::Triangle, Shape::Square];
    let mut others = 0;
    let mut look = |(index, arm): (usize, &String)| match arm.as_str() {
        _ if index == 0 => Look { colour: 0, shape: Shape::Circle },
        "pgss_rs" => Look { colour: 1, shape: Shape::Circle },
        "pg_stat_statements" => Look { colour: 2, shape: Shape::Square },
        _ => {
            others += 1;
            Look { colour: 3 + (others - 1) % (COLOURS - 3), shape: OTHERS[(others - 1) % OTHERS.len()] }
        }
    };
    arms.into_iter().enumerate().map(&mut look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_signed() {
        assert_eq!(number(1_234_567.0, 0), "1,234,567");
        assert_eq!(number(-999.949, 1), "−999.9");
        assert_eq!(number(-0.04, 1), "0.0");
        assert_eq!(signed(0.04, 1), "0.0");
        assert_eq!(signed(12_345.6, 1), "+12,345.6");
        assert_eq!(signed(-5.94, 1), "−5.9");
        assert_eq!(
            [0.04567, 4.56789, 271.828, 27182.8].map(significant),
            ["0.0457", "4.57", "272", "27,183"]
        );
    }

    #[test]
    fn an_arm_looks_alike_whatever_stands_beside_it() {
        let of = |arms: &[&str]| {
            let arms: Vec<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
            looks(&arms).iter().map(|look| look.colour).collect::<Vec<_>>()
        };
        assert_eq!(of(&["off", "pgss_rs", "pg_stat_statements"]), [0, 1, 2]);
        assert_eq!(of(&["off", "pg_stat_statements", "pgss_rs@0.5", "pgss_rs"]), [0, 2, 3, 1]);
        assert_eq!(of(&["off", "off", "a", "b", "c", "d"]), [0, 3, 4, 5, 6, 3]);
    }
}
