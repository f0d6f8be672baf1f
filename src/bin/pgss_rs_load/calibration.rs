//! What `calibrate` found: whether this driver, on this box, sees what is there and nothing else.

use serde::Serialize;

use crate::stats::Effect;

/// Of so many comparisons of the same with the same ...
pub const COMPARISONS: usize = 20;
/// ... at least this many intervals have to contain 0. With intervals of 95 % fewer do in 1.6 of 100 calibrations.
pub const CONTAINING: usize = 17;

/// All in ns per statement.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// Of what: "server CPU" or "elapsed time".
    pub time: &'static str,
    /// The same against the same.
    pub against_itself: Vec<Effect>,
    pub injected: Vec<Injected>,
}

/// A busy loop in one arm.
#[derive(Debug, Serialize)]
pub struct Injected {
    /// ns
    pub asked: u32,
    /// What it took in the server, as read around it in the measured statements themselves: the mean of the same blocks. An
    /// interrupt hits the loop in few of them and the rest of the statements in the others, so that without the extremes it
    /// would be missing here, but not in what is measured.
    pub took: f64,
    pub measured: Effect,
    /// The same of elapsed time.
    pub elapsed: Effect,
}

impl Injected {
    /// Whether the interval contains what it took.
    pub fn is_recovered(&self) -> bool {
        self.measured.low <= self.took && self.took <= self.measured.high
    }
}

impl Calibration {
    fn containing(&self) -> usize {
        self.against_itself.iter().filter(|effect| effect.low <= 0.0 && 0.0 <= effect.high).count()
    }

    pub fn passed(&self) -> bool {
        self.containing() >= CONTAINING && self.injected.iter().all(Injected::is_recovered)
    }

    pub fn verdict(&self) -> String {
        let passed =
            if self.passed() { "the driver measures rightly here" } else { "the driver is off here" };
        format!(
            "{passed}: {} of {} intervals of nothing contain 0 (at least {CONTAINING} have to), and {} of {} injected costs \
             were recovered",
            self.containing(),
            self.against_itself.len(),
            self.injected.iter().filter(|injected| injected.is_recovered()).count(),
            self.injected.len()
        )
    }

    /// For the terminal, as Markdown, in ns; no line of the table is wider than 100 columns.
    pub fn text(&self) -> String {
        let mut text =
            "| injected | took | measured | 95 % interval | recovered | elapsed | 95 % interval |\n\
             |---:|---:|---:|---:|---|---:|---:|\n"
                .to_owned();
        for injected in &self.injected {
            let Effect { estimate, low: from, high: to } = injected.measured;
            let recovered = if injected.is_recovered() { "yes" } else { "no" };
            let elapsed = injected.elapsed;
            text += &format!(
                "| {} | {:.0} | {estimate:.0} | {from:.0} to {to:.0} | {recovered} | {:.0} | {:.0} to {:.0} |\n",
                injected.asked, injected.took, elapsed.estimate, elapsed.low, elapsed.high
            );
        }
        let widths: Vec<f64> = self.against_itself.iter().map(Effect::width).collect();
        let mean = widths.iter().sum::<f64>() / widths.len().max(1) as f64;
        text += &format!(
            "\nIn ns of {} per statement. The costs are loops of a known number of steps in a module that was compiled for \
             this; \"took\" is the CPU time read around them in the same statements. Nothing against nothing: {} intervals, on average \
             {mean:.0} ns wide.\n",
            self.time,
            self.against_itself.len()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(low: f64, high: f64) -> Effect {
        Effect { estimate: (low + high) / 2.0, low, high }
    }

    fn calibration(off: usize, measured: Effect) -> Calibration {
        let against_itself =
            (0..COMPARISONS).map(|n| if n < off { effect(1.0, 2.0) } else { effect(-5.0, 5.0) }).collect();
        let injected = vec![Injected { asked: 300, took: 300.0, measured, elapsed: measured }];
        Calibration { time: "server CPU", against_itself, injected }
    }

    #[test]
    fn three_of_twenty_may_be_off_and_no_injected_cost() {
        assert!(calibration(3, effect(280.0, 320.0)).passed());
        assert!(!calibration(4, effect(280.0, 320.0)).passed());
        assert!(!calibration(0, effect(302.0, 320.0)).passed());
        assert!(
            calibration(0, effect(299.0, 320.0))
                .verdict()
                .starts_with("the driver measures rightly here: 20 of 20")
        );
    }

    #[test]
    fn the_table_fits_a_hundred_columns() {
        let mut wide = calibration(0, effect(10_130.4, 10_189.4));
        wide.injected[0].asked = 10_000;
        let text = wide.text();
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert_eq!(table.len(), 3);
        assert!(table.iter().all(|line| line.chars().count() <= 100), "{text}");
    }
}
