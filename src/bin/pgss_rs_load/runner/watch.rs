//! What a server's sessions wait for while it is under load, and what its module counts.
//!
//! A session of its own looks at pg_stat_activity ten times a second: a look takes the server some tenths of a
//! millisecond, in every arm alike. That session is not recorded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Server;
use crate::arm::{Arm, Module};
use crate::client::Session;
use crate::error::{Error, Result};
use crate::report::Watched;

const INTERVAL: Duration = Duration::from_millis(100);

/// The watch over one server.
#[derive(Debug)]
pub struct Watch {
    session: Session,
    module: Option<Module>,
    /// The query of a look.
    look: String,
    counted_before: Vec<(String, u64)>,
    looks: u64,
    states: BTreeMap<String, u64>,
    watched: Duration,
    counting_since: Option<Instant>,
}

impl Watch {
    /// To be called before any statistics are reset.
    pub fn open(server: &Server) -> Result<Self> {
        let mut session = server.connect()?;
        // On a server that is not ours nothing is created; its module's counters count what others do, too.
        let module = server.cluster().and_then(|_| server.module());
        if let Some(module) = module {
            session.execute(&module.flip(Arm::Off))?;
            session.execute(&format!("CREATE EXTENSION IF NOT EXISTS {}", module.name()))?;
        }
        let (look, states) = (String::new(), BTreeMap::new());
        Ok(Watch {
            session,
            module,
            look,
            counted_before: Vec::new(),
            looks: 0,
            states,
            watched: Duration::ZERO,
            counting_since: None,
        })
    }

    /// From here on, over these server processes.
    pub fn begin(&mut self, backends: &[i32]) -> Result<()> {
        let pids = backends.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        self.look = format!(
            "SELECT CASE WHEN state <> 'active' THEN 'idle'
                         ELSE coalesce(wait_event_type || ':' || wait_event, 'running') END, count(*)
             FROM pg_stat_activity WHERE pid = ANY ('{{{pids}}}') GROUP BY 1"
        );
        self.counted_before = self.counters()?;
        Ok(())
    }

    /// From here on, what the module counts alone: a look would disturb whom it looks at.
    pub fn begin_counting(&mut self) -> Result<()> {
        self.counted_before = self.counters()?;
        self.counting_since = Some(Instant::now());
        Ok(())
    }

    /// Looks as long as the work lasts.
    pub fn during<T: Send>(&mut self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let done = AtomicBool::new(false);
        let start = Instant::now();
        let result = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut looked = Ok(());
                while looked.is_ok() && !done.load(Ordering::Acquire) {
                    thread::park_timeout(INTERVAL);
                    looked = self.look();
                }
                looked
            });
            let result = work();
            done.store(true, Ordering::Release);
            watcher.thread().unpark();
            match watcher.join() {
                Ok(looked) => result.and_then(|value| looked.map(|()| value)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        self.watched += start.elapsed();
        result
    }

    fn look(&mut self) -> Result<()> {
        for row in self.session.query(&self.look)? {
            if let [Some(state), Some(count)] = &row[..] {
                *self.states.entry(state.clone()).or_default() += count.parse().unwrap_or(0);
            }
        }
        self.looks += 1;
        Ok(())
    }

    /// The module's own counters.
    fn counters(&mut self) -> Result<Vec<(String, u64)>> {
        let (names, sql): (&[&str], _) = match self.module {
            Some(Module::PgssRs) => (
                &["lock_waits", "index_lock_waits", "text_lock_waits", "evictions", "skipped"],
                "SELECT lock_waits, index_lock_waits, text_lock_waits, dealloc, skipped FROM pgss_rs_info",
            ),
            Some(Module::PgStatStatements) => (&["evictions"], "SELECT dealloc FROM pg_stat_statements_info"),
            None => return Ok(Vec::new()),
        };
        let rows = self.session.query(sql)?;
        let row = rows.first().ok_or_else(|| Error::Failed(format!("no row\n  in: {sql}")))?;
        let value = |field: &Option<String>| field.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(names.iter().map(|name| (*name).to_owned()).zip(row.iter().map(value)).collect())
    }

    /// Since [`Watch::begin`].
    pub fn end(mut self) -> Result<Watched> {
        let now = self.counters()?;
        let counters = now
            .into_iter()
            .zip(&self.counted_before)
            .map(|((name, now), (_, before))| (name, now.saturating_sub(*before)))
            .collect();
        Ok(Watched {
            looks: self.looks,
            states: self.states.into_iter().collect(),
            counters,
            seconds: self.counting_since.map_or(self.watched, |since| since.elapsed()).as_secs_f64(),
        })
    }
}
