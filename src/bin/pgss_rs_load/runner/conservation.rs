//! Whether a module still has every call that was sent: in its view, or where it adds up what it gave up.

use super::Server;
use crate::arm::{Arm, Module};
use crate::cli::Plan;
use crate::client::Session;
use crate::error::{Error, Result};
use crate::report::Conservation;
use crate::workload::Workload;

/// With other values of these, not every statement sent is to be counted, or not as one.
const DECIDING: [&str; 3] = ["pgss_rs.track", "pgss_rs.track_utility", "pgss_rs.sample_rate"];

/// The statistics of one server, from a reset before the load on. Its session records nothing of its own.
#[derive(Debug)]
pub struct Ledger {
    session: Session,
    module: Module,
}

impl Ledger {
    /// To be called before any load. `None` where there is nothing to compare: without a module, where not every
    /// statement is looked at, where others may send some, too, and for scripts, some of whose statements may fail.
    pub fn open(plan: &Plan, server: &Server) -> Result<Option<Self>> {
        if server.cluster().is_none() || plan.workload == Workload::Script {
            return Ok(None);
        }
        let module = match server.arm {
            Arm::Off | Arm::Build(_) => return Ok(None),
            Arm::PgssRs { rate: 1.0 } if !decided_by(&plan.settings) => Module::PgssRs,
            Arm::PgssRs { .. } => return Ok(None),
            Arm::PgStatStatements => Module::PgStatStatements,
        };
        let mut session = server.connect()?;
        session.execute(&module.flip(Arm::Off))?;
        session.execute(&format!("CREATE EXTENSION IF NOT EXISTS {}", module.name()))?;
        session.execute(&format!("SELECT {}_reset()", module.name()))?;
        let mut ledger = Ledger { session, module };
        // Found out now rather than after the load: a version that does not tell what it gave up.
        ledger.read(0)?;
        Ok(Some(ledger))
    }

    /// `sent`: statements since the ledger was opened, all of which have ended.
    pub fn read(&mut self, sent: u64) -> Result<Conservation> {
        let sql = match self.module {
            Module::PgssRs => {
                "SELECT (SELECT coalesce(sum(calls), 0) FROM pgss_rs_stats(false)), dealloc, evicted_calls, skipped
                 FROM pgss_rs_info"
            }
            Module::PgStatStatements => {
                "SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements(false)), dealloc, NULL, NULL
                 FROM pg_stat_statements_info"
            }
        };
        let rows = self.session.query(sql)?;
        let count = |column: usize| rows.first()?.get(column)?.as_ref()?.parse::<u64>().ok();
        let needed = |column| {
            count(column).ok_or_else(|| {
                Error::Failed(format!("the statistics of {} make no sense: {rows:?}", self.module.name()))
            })
        };
        Ok(Conservation { sent, kept: needed(0)?, dealloc: needed(1)?, evicted: count(2), skipped: count(3) })
    }
}

fn decided_by(settings: &[(String, String)]) -> bool {
    settings.iter().any(|(name, _)| DECIDING.contains(&name.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_decides_what_counts_leaves_nothing_to_compare() {
        let decided = |name: &str| decided_by(&[(name.to_owned(), "x".to_owned())]);
        assert!(decided("pgss_rs.track") && decided("PGSS_RS.Sample_Rate"));
        assert!(!decided("pgss_rs.max") && !decided("work_mem"));
    }
}
