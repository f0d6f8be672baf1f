//! Drawing: scales, ticks and marks of one SVG. Colours and fonts are classes only; [`super::STYLE`] gives them, so that
//! a chart follows the reader's colour scheme.

use std::fmt::Write as _;

use super::number;

/// Maps values to places along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    domain: (f64, f64),
    range: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// Over the values, and a little further, so that none lies on the frame.
    pub fn linear(values: impl IntoIterator<Item = f64>, range: (f64, f64)) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let margin = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.05 };
        Scale { domain: (low - margin, high + margin), range, logarithmic: false }
    }

    /// The same over orders of magnitude; values of 0 and below are left out.
    pub fn logarithmic(values: impl IntoIterator<Item = f64>, range: (f64, f64)) -> Self {
        let (low, high) = extent(values.into_iter().filter(|v| *v > 0.0)).unwrap_or((1.0, 10.0));
        let margin = (high / low).powf(0.06).max(1.1);
        Scale { domain: (low / margin, high * margin), range, logarithmic: true }
    }

    /// Of exactly this domain.
    pub fn exact(domain: (f64, f64), range: (f64, f64)) -> Self {
        Scale { domain, range, logarithmic: false }
    }

    /// Values outside are put on the edge.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.domain;
        let share = if self.logarithmic {
            (value.max(low).ln() - low.ln()) / (high.ln() - low.ln())
        } else {
            (value - low) / (high - low)
        };
        self.range.0 + share.clamp(0.0, 1.0) * (self.range.1 - self.range.0)
    }

    pub fn contains(&self, value: f64) -> bool {
        (self.domain.0..=self.domain.1).contains(&value)
    }

    /// Round values to be named along the axis, about `wanted` of them, and their names.
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let ticks = if self.logarithmic { self.logarithmic_ticks(wanted) } else { self.linear_ticks(wanted) };
        let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min);
        // As many digits as it takes to tell one from the next: along a logarithmic axis each has its own.
        let digits = |tick: f64| {
            let needed = if self.logarithmic { tick } else { step };
            (-needed.log10()).ceil().clamp(0.0, 6.0) as usize
        };
        ticks.into_iter().map(|tick| (tick, number(tick, digits(tick)))).collect()
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let step = round_step((high - low) / wanted as f64);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn logarithmic_ticks(&self, wanted: usize) -> Vec<f64> {
        let (low, high) = self.domain;
        let decades = (high / low).log10();
        let steps: &[f64] = match wanted as f64 / decades {
            per_decade if per_decade >= 6.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
            per_decade if per_decade >= 1.5 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let decade = |exponent: i32| steps.iter().map(move |step| step * 10f64.powi(exponent));
        let ticks: Vec<f64> = (low.log10().floor() as i32..=high.log10().ceil() as i32)
            .flat_map(decade)
            .filter(|tick| self.contains(*tick))
            .collect();
        if ticks.len() >= 2 { ticks } else { self.linear_ticks(wanted) }
    }
}

/// Finite values only.
fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values.into_iter().filter(|v| v.is_finite()).fold(None, |extent, v| match extent {
        None => Some((v, v)),
        Some((low, high)) => Some((f64::min(low, v), f64::max(high, v))),
    })
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(steps[3])
}

/// Where a text lies from its point.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// What the marks of a series look like; told apart by more than colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Selects the colour: class `s0`, `s1` and so on.
    pub colour: usize,
    pub shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Circle,
    Square,
    Diamond,
    Triangle,
}

impl Look {
    pub fn class(self) -> String {
        format!("s{}", self.colour)
    }
}

/// An SVG in the making.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Svg { width, height, body: String::new() }
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    pub fn rect(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    pub fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(r#"<polyline class="{class}" points="{}"/>"#, points.join(" ")));
    }

    /// A mark of a series; `hint`: shown where the pointer rests on it.
    pub fn mark(&mut self, look: Look, class: &str, at: (f64, f64), radius: f64, hint: &str) {
        let (x, y) = at;
        let class = format!("mark {} {class}", look.class());
        let class = class.trim_end();
        let hint = if hint.is_empty() { String::new() } else { format!("<title>{}</title>", escape(hint)) };
        match look.shape {
            Shape::Circle => self.push(format_args!(
                r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}">{hint}</circle>"#
            )),
            Shape::Square => {
                let r = radius * 0.9;
                self.polygon(class, &[(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)], &hint);
            }
            Shape::Diamond => {
                let r = radius * 1.25;
                self.polygon(class, &[(x, y - r), (x + r, y), (x, y + r), (x - r, y)], &hint);
            }
            Shape::Triangle => {
                let r = radius * 1.2;
                self.polygon(class, &[(x, y - r), (x + r, y + 0.8 * r), (x - r, y + 0.8 * r)], &hint);
            }
        }
    }

    fn polygon(&mut self, class: &str, points: &[(f64, f64)], hint: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!(r#"<polygon class="{class}" points="{}">{hint}</polygon>"#, points.join(" ")));
    }

    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let ((x, y), text) = (at, escape(text));
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// For a page that has the style. `id`: its own on the page.
    pub fn inline(&self, id: &str, title: &str, description: &str) -> String {
        self.element(id, title, description, "", "")
    }

    /// A file of its own.
    pub fn standalone(&self, id: &str, title: &str, description: &str, style: &str) -> String {
        let style =
            format!("<style>{style}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n");
        self.element(id, title, description, r#" xmlns="http://www.w3.org/2000/svg""#, &style)
    }

    fn element(&self, id: &str, title: &str, description: &str, namespace: &str, style: &str) -> String {
        let Svg { width, height, body } = self;
        let (title, description) = (escape(title), escape(description));
        format!(
            "<svg{namespace} class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n\
             <title id=\"{id}-title\">{title}</title>\n<desc id=\"{id}-desc\">{description}</desc>\n\
             {style}{body}</svg>\n"
        )
    }
}

/// For HTML and XML, in text and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no other control characters, not even escaped.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_maps_its_values_into_its_range() {
        let scale = Scale::linear([0.0, 100.0], (50.0, 162.0));
        assert_eq!([0.0, 50.0, 100.0].map(|v| scale.at(v).round()), [56.0, 106.0, 156.0]);
        assert_eq!((scale.at(-1e9), scale.at(1e9)), (50.0, 162.0));
        let upwards = Scale::exact((0.0, 10.0), (200.0, 0.0));
        assert_eq!(upwards.at(2.5), 150.0);
        let decades = Scale::logarithmic([1.0, 100.0], (0.0, 100.0));
        assert_eq!(decades.at(10.0).round(), 50.0);
    }

    #[test]
    fn a_scale_of_one_value_or_none_still_has_a_width() {
        for scale in [Scale::linear([7.0], (0.0, 10.0)), Scale::linear([f64::NAN], (0.0, 10.0))] {
            assert!(scale.at(7.0).is_finite() && scale.ticks(4).len() >= 2, "{scale:?}");
        }
        assert!(Scale::logarithmic([0.0], (0.0, 1.0)).at(0.0).is_finite());
    }

    #[test]
    fn ticks_are_round_and_within() {
        let names =
            |scale: Scale| scale.ticks(5).into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ");
        let ticks = |low: f64, high: f64| names(Scale::exact((low, high), (0.0, 1.0)));
        assert_eq!(ticks(0.0, 1.0), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(ticks(-7.0, 2.0), "−6 −4 −2 0 2");
        assert_eq!(ticks(0.0, 90_000.0), "0 20,000 40,000 60,000 80,000");
        assert_eq!(names(Scale::logarithmic([0.1, 1000.0], (0.0, 1.0))), "0.1 1 10 100 1,000");
        assert_eq!(names(Scale::logarithmic([0.03, 0.9], (0.0, 1.0))), "0.05 0.1 0.2 0.5 1");
    }

    #[test]
    fn whatever_is_written_stays_text() {
        assert_eq!(escape("a<b> & \"c\" 'd'\u{0}"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("t", (1.0, 2.0), Anchor::End, "</svg>");
        assert!(svg.inline("x", "<t>", "d").contains("&lt;/svg&gt;</text>"));
    }
}
