//! Sessions under load for a slice of time, and what they measure.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cpu::CpuClock;
use super::{LoadSession, Server};
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::ThroughputSlice;
use crate::stats::Moments;
use crate::workload::Popularity;

/// Load on each server before the first slice.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
/// The same for workloads of many distinct statements, which have a table to fill.
const FILLING: Duration = Duration::from_secs(3);
/// Latencies are kept to three digits; this many ns at first, more where they come.
const FIRST_BOUND: u64 = 10_000_000;
const LATENCY_DIGITS: u8 = 3;
pub const NS_PER_MS: f64 = 1e6;

/// The sessions of one arm. They stay open as long as this lives.
pub struct Sessions {
    sessions: Vec<LoadSession>,
}

/// What one slice gave.
pub struct Sample {
    /// Latencies in ns.
    pub moments: Moments,
    /// ns
    pub latencies: Histogram<u64>,
    /// Of the hot statements, ns.
    pub hot: Histogram<u64>,
    /// Transactions that were rolled back.
    pub conflicts: u64,
    pub cpu_ns: Option<u64>,
}

impl Sessions {
    /// Opens them and warms the server up.
    pub fn open(plan: &Plan, server: &Server) -> Result<Self> {
        let sessions = (0..plan.clients).map(|number| server.load_session(plan, number));
        let mut sessions = Sessions { sessions: sessions.collect::<Result<_>>()? };
        let warm_up = if plan.workload.is_of_distinct_statements() { FILLING } else { FIRST_WARM_UP };
        sessions.slice(warm_up, Duration::ZERO)?;
        Ok(sessions)
    }

    /// All sessions at once.
    pub fn slice(&mut self, warm_up: Duration, length: Duration) -> Result<Sample> {
        check_interrupted()?;
        let samples: Vec<Result<Sample>> = thread::scope(|scope| {
            let start = Instant::now() + warm_up;
            let threads: Vec<_> = self
                .sessions
                .iter_mut()
                .map(|session| scope.spawn(move || run(session, start, start + length)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(sample) => sample,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        let mut whole = Sample::empty()?;
        for sample in samples {
            whole.merge(&sample?);
        }
        Ok(whole)
    }

    /// The server processes.
    pub fn backends(&self) -> Vec<i32> {
        self.sessions.iter().map(|session| session.connection.backend_pid()).collect()
    }

    /// Statements that have ended on this server, unmeasured ones included.
    pub fn sent(&self) -> u64 {
        self.sessions.iter().map(|session| session.player.sent()).sum()
    }
}

/// Transaction after transaction until `end`; those that end between `start` and `end` count.
fn run(session: &mut LoadSession, start: Instant, end: Instant) -> Result<Sample> {
    session.settle_here()?;
    let cpu = CpuClock::of_this_thread();
    let mut sample = Sample::empty()?;
    let mut last = Instant::now();
    let mut cpu_before = None;
    loop {
        let popularity = session.play()?;
        let now = Instant::now();
        if now >= end {
            break;
        }
        if popularity == Popularity::None {
            sample.conflicts += u64::from(now >= start);
        } else if last >= start {
            let latency = (now - last).as_nanos() as u64;
            sample.moments.push(latency as f64);
            sample.latencies.saturating_record(latency);
            if popularity == Popularity::Hot {
                sample.hot.saturating_record(latency);
            }
        } else if now >= start {
            cpu_before = cpu.as_ref().and_then(CpuClock::now);
        }
        last = now;
    }
    let cpu_after = cpu.as_ref().and_then(CpuClock::now);
    sample.cpu_ns = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
    Ok(sample)
}

impl Sample {
    pub fn empty() -> Result<Self> {
        Ok(Sample {
            moments: Moments::default(),
            latencies: latencies()?,
            hot: latencies()?,
            conflicts: 0,
            cpu_ns: Some(0),
        })
    }

    pub fn merge(&mut self, other: &Sample) {
        self.moments.merge(&other.moments);
        // These grow as they have to.
        let _ = self.latencies.add(&other.latencies);
        let _ = self.hot.add(&other.hot);
        self.conflicts += other.conflicts;
        self.cpu_ns = self.cpu_ns.zip(other.cpu_ns).map(|(a, b)| a + b);
    }

    pub fn raw(&self, round: usize, arm: usize, again: bool, slice: Duration) -> ThroughputSlice {
        let transactions = self.moments.count();
        ThroughputSlice {
            round,
            arm,
            again,
            transactions,
            tps: transactions as f64 / slice.as_secs_f64(),
            latency_mean: self.moments.mean() / NS_PER_MS,
            latency_stddev: self.moments.stddev() / NS_PER_MS,
            hot_p99: (!self.hot.is_empty()).then(|| quantile(&self.hot, 0.99)),
        }
    }
}

/// Of ns.
fn latencies() -> Result<Histogram<u64>> {
    let mut histogram = Histogram::new_with_bounds(1, FIRST_BOUND, LATENCY_DIGITS)
        .map_err(|e| Error::Failed(format!("no histogram: {e:?}")))?;
    histogram.auto(true);
    Ok(histogram)
}

/// In ms.
pub fn quantile(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / NS_PER_MS
}
