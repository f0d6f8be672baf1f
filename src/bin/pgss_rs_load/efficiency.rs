//! What the driver itself costs: its throughput and CPU time against pgbench's, by turns on one server without modules.

use serde::Serialize;

use crate::stats::Effect;

#[derive(Debug, Serialize)]
pub struct Efficiency {
    /// As pgbench says.
    pub pgbench_version: String,
    pub pairs: Vec<Pair>,
    /// The driver's throughput against pgbench's, minus 1.
    pub tps: Effect,
    /// The driver's own CPU time per transaction against pgbench's, minus 1; `None`: it is not known.
    pub cpu: Option<Effect>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    pub pgbench: Turn,
    pub driver: Turn,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Turn {
    /// Transactions per second.
    pub tps: f64,
    /// Of the client, microseconds per transaction.
    pub cpu: Option<f64>,
}

impl Efficiency {
    pub fn of_pairs(pgbench_version: String, pairs: Vec<Pair>, seed: u64) -> Self {
        let changes = |figure: fn(&Turn) -> Option<f64>| {
            let change = |pair: &Pair| Some(figure(&pair.driver)? / figure(&pair.pgbench)? - 1.0);
            let changes = pairs.iter().map(change).collect::<Option<Vec<f64>>>()?;
            Some(Effect::of_differences(&changes, seed))
        };
        let tps = changes(|turn| Some(turn.tps));
        let unknown = Effect { estimate: 0.0, low: f64::NEG_INFINITY, high: f64::INFINITY };
        Efficiency { pgbench_version, tps: tps.unwrap_or(unknown), cpu: changes(|turn| turn.cpu), pairs }
    }

    pub fn verdict(&self) -> String {
        let of = |effect: &Effect| {
            let Effect { estimate, low, high } = effect;
            format!("{:.2} (95 % interval {:.2} to {:.2})", 1.0 + estimate, 1.0 + low, 1.0 + high)
        };
        let cpu = self.cpu.map(|cpu| format!(", with {} of its CPU time per transaction", of(&cpu)));
        format!("the driver reaches {} of pgbench's throughput{}", of(&self.tps), cpu.unwrap_or_default())
    }

    /// For the terminal, as Markdown.
    pub fn text(&self) -> String {
        let mut text = "| pair | pgbench TPS | driver TPS | ratio | pgbench CPU µs | driver CPU µs |\n\
                        |---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
        let cpu = |turn: &Turn| turn.cpu.map_or_else(|| "unknown".to_owned(), |cpu| format!("{cpu:.2}"));
        for (number, Pair { pgbench, driver }) in self.pairs.iter().enumerate() {
            text += &format!(
                "| {} | {:.0} | {:.0} | {:.2} | {} | {} |\n",
                number + 1,
                pgbench.tps,
                driver.tps,
                driver.tps / pgbench.tps,
                cpu(pgbench),
                cpu(driver)
            );
        }
        text + &format!("\n{}. CPU: of the client alone, per transaction.\n", self.pgbench_version)
    }
}

/// The throughput in pgbench's output, and how many transactions it counted.
pub fn figures_of(output: &str) -> Option<(f64, f64)> {
    let number = |prefix: &str| {
        let rest = output.lines().find_map(|line| line.strip_prefix(prefix))?;
        rest.split([' ', '/']).next()?.parse().ok()
    };
    Some((number("tps = ")?, number("number of transactions actually processed: ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_is_found_in_pgbenchs_output() {
        let output = "number of transactions actually processed: 138368\nlatency average = 0.043 ms\n\
                      initial connection time = 2.6 ms\ntps = 46123.25 (without initial connection time)\n";
        assert_eq!(figures_of(output), Some((46123.25, 138368.0)));
        assert_eq!(
            figures_of("number of transactions actually processed: 10/10\ntps = 5 (x)"),
            Some((5.0, 10.0))
        );
        assert_eq!(figures_of("pgbench: error"), None);
    }

    #[test]
    fn the_ratios_are_of_pairs() {
        let turn = |tps| Turn { tps, cpu: Some(1000.0 / tps) };
        let pair = |tps| Pair { pgbench: turn(tps), driver: turn(tps * 1.25) };
        let verdict =
            Efficiency::of_pairs("pgbench".to_owned(), [100.0, 50.0, 200.0].map(pair).to_vec(), 1).verdict();
        assert!(
            verdict.starts_with("the driver reaches 1.25 (") && verdict.contains("with 0.80 ("),
            "{verdict}"
        );
    }
}
