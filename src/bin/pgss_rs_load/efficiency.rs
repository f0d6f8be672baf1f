//! What the driver itself costs: its throughput against pgbench's, by turns on one server without modules.

use serde::Serialize;

use crate::stats::Effect;

#[derive(Debug, Serialize)]
pub struct Efficiency {
    /// As pgbench says.
    pub pgbench_version: String,
    /// Transactions per second: pgbench's and the driver's.
    pub pairs: Vec<[f64; 2]>,
    /// The driver's against pgbench's, minus 1.
    pub change: Effect,
}

impl Efficiency {
    pub fn of_pairs(pgbench_version: String, pairs: Vec<[f64; 2]>, seed: u64) -> Self {
        let changes: Vec<f64> = pairs.iter().map(|[pgbench, driver]| driver / pgbench - 1.0).collect();
        Efficiency { pgbench_version, change: Effect::of_differences(&changes, seed), pairs }
    }

    pub fn verdict(&self) -> String {
        let Effect { estimate, low, high } = self.change;
        format!(
            "the driver reaches {:.3} of pgbench's throughput (95 % interval {:.3} to {:.3})",
            1.0 + estimate,
            1.0 + low,
            1.0 + high
        )
    }

    /// For the terminal, as Markdown.
    pub fn text(&self) -> String {
        let mut text = "| pair | pgbench TPS | driver TPS | ratio |\n|---:|---:|---:|---:|\n".to_owned();
        for (number, [pgbench, driver]) in self.pairs.iter().enumerate() {
            text += &format!("| {} | {pgbench:.0} | {driver:.0} | {:.3} |\n", number + 1, driver / pgbench);
        }
        text + &format!("\n{}\n", self.pgbench_version)
    }
}

/// The throughput in pgbench's output.
pub fn tps_of(output: &str) -> Option<f64> {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_is_found_in_pgbenchs_output() {
        let output = "latency average = 0.043 ms\ninitial connection time = 2.6 ms\ntps = 46123.25 (without initial connection time)\n";
        assert_eq!(tps_of(output), Some(46123.25));
        assert_eq!(tps_of("pgbench: error"), None);
    }

    #[test]
    fn the_ratio_is_of_pairs() {
        let efficiency =
            Efficiency::of_pairs("pgbench".to_owned(), vec![[100.0, 110.0], [50.0, 55.0], [200.0, 220.0]], 1);
        assert!(efficiency.verdict().contains("1.100 of pgbench's"), "{}", efficiency.verdict());
    }
}
