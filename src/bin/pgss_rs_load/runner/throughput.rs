//! `throughput`: a server per arm, all up at once, the load on one at a time in short slices by turns.
//!
//! The sessions stay open throughout. Each round has every arm once and the baseline a second time: what the two slices
//! of the baseline differ by is the noise of this box.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cpu::CpuClock;
use super::{LoadSession, Server};
use crate::arm::Installation;
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::{ArmThroughput, Progress, Throughput, ThroughputSlice};
use crate::schedule;
use crate::stats::{Effect, Moments, judge};

/// Rounds aimed at, and the least: an interval needs pairs.
const ROUNDS: f64 = 20.0;
const MIN_ROUNDS: f64 = 8.0;
/// Limits of a slice, in seconds: long against a switch of servers, short against the moods of the box.
const SLICE: (f64, f64) = (0.25, 1.5);
/// Share of a slice's length that runs before it unmeasured.
const WARM_UP: f64 = 0.25;
/// Load on each server before the first slice.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
/// Latencies are kept to three digits, up to this many ns.
const MAX_LATENCY: u64 = 600_000_000_000;
const LATENCY_DIGITS: u8 = 3;
const NS_PER_MS: f64 = 1e6;

/// How the duration is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Division {
    rounds: usize,
    slice: Duration,
    warm_up: Duration,
}

impl Division {
    /// `entries`: slices per round.
    fn new(duration: Duration, entries: usize) -> Self {
        let per_entry = duration.as_secs_f64() / entries as f64;
        let slice = (per_entry / ROUNDS).clamp(SLICE.0, SLICE.1);
        let rounds = (per_entry / slice).round().max(MIN_ROUNDS) as usize;
        Division {
            rounds,
            slice: Duration::from_secs_f64(slice),
            warm_up: Duration::from_secs_f64(slice * WARM_UP),
        }
    }
}

pub fn run(
    plan: &Plan,
    installation: &Installation,
    progress: &Progress,
) -> Result<(Throughput, Vec<Server>)> {
    let mut servers = Vec::new();
    for arm in &plan.arms {
        progress.say(format!("starting a server for {arm}"));
        servers.push(Server::start(plan, installation, *arm)?);
    }
    progress.say("warming up");
    let mut arms = servers.iter().map(|server| ArmSessions::new(plan, server)).collect::<Result<Vec<_>>>()?;

    progress.say(format!("measuring throughput, {}", plan.workload.name()));
    // The entry after the last arm is the baseline again.
    let entries = arms.len() + 1;
    let division = Division::new(plan.duration, entries);
    let mut slices = Vec::new();
    for (round, order) in schedule::rounds(entries, division.rounds, plan.seed).iter().enumerate() {
        for entry in order {
            let again = *entry == arms.len();
            let arm = if again { 0 } else { *entry };
            let sample = arms[arm].slice(division.warm_up, division.slice, !again)?;
            slices.push(sample.raw(round, arm, again, division.slice));
            progress.at(division.slice * slices.len() as u32);
        }
    }

    let noise = Effect::of_differences(&noise(&slices), plan.seed);
    let mut results = Vec::new();
    for (index, sessions) in arms.iter().enumerate() {
        let change = (index > 0).then(|| Effect::of_differences(&changes(&slices, index), plan.seed));
        results.push(sessions.result(plan, index, division, change, &noise));
    }
    drop(arms);
    let throughput = Throughput {
        rounds: division.rounds,
        slice: division.slice.as_secs_f64(),
        warm_up: division.warm_up.as_secs_f64(),
        arms: results,
        noise,
        slices,
    };
    Ok((throughput, servers))
}

/// Per round, an arm's TPS against the mean of the baseline's two slices, minus 1.
fn changes(slices: &[ThroughputSlice], arm: usize) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.arm == arm).map(|slice| {
        let baseline: f64 = baseline_of(slices, slice.round).map(|s| s.tps).sum();
        slice.tps / (baseline / 2.0) - 1.0
    });
    pairs.filter(|change| change.is_finite()).collect()
}

/// Per round, the baseline's second slice against its first, minus 1.
fn noise(slices: &[ThroughputSlice]) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.again).filter_map(|again| {
        let first = baseline_of(slices, again.round).find(|s| !s.again)?;
        Some(again.tps / first.tps - 1.0)
    });
    pairs.filter(|change| change.is_finite()).collect()
}

fn baseline_of(slices: &[ThroughputSlice], round: usize) -> impl Iterator<Item = &ThroughputSlice> {
    slices.iter().filter(move |s| s.arm == 0 && s.round == round)
}

/// An arm's sessions and what they have measured so far.
struct ArmSessions {
    sessions: Vec<TimedSession>,
    moments: Moments,
    cpu_ns: Option<u64>,
}

/// One session, with a thread of its own while its server's slice lasts.
struct TimedSession {
    session: LoadSession,
    /// ns
    latencies: Histogram<u64>,
}

/// What one slice gave.
struct Sample {
    /// Latencies in ns.
    moments: Moments,
    cpu_ns: Option<u64>,
}

impl ArmSessions {
    fn new(plan: &Plan, server: &Server) -> Result<Self> {
        let mut sessions = Vec::new();
        for number in 0..plan.clients {
            let latencies = Histogram::new_with_bounds(1, MAX_LATENCY, LATENCY_DIGITS)
                .map_err(|e| Error::Failed(format!("no histogram: {e:?}")))?;
            sessions.push(TimedSession { session: server.load_session(plan, number)?, latencies });
        }
        let mut sessions = ArmSessions { sessions, moments: Moments::default(), cpu_ns: Some(0) };
        sessions.slice(FIRST_WARM_UP, Duration::ZERO, false)?;
        Ok(sessions)
    }

    /// All sessions at once. `keep`: whether the slice counts for the arm's own figures.
    fn slice(&mut self, warm_up: Duration, length: Duration, keep: bool) -> Result<Sample> {
        check_interrupted()?;
        let samples: Vec<Result<Sample>> = thread::scope(|scope| {
            let start = Instant::now() + warm_up;
            let threads: Vec<_> = self
                .sessions
                .iter_mut()
                .map(|session| scope.spawn(move || session.run(start, start + length, keep)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(sample) => sample,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect()
        });
        let mut whole = Sample { moments: Moments::default(), cpu_ns: Some(0) };
        for sample in samples {
            let sample = sample?;
            whole.moments.merge(&sample.moments);
            whole.cpu_ns = whole.cpu_ns.zip(sample.cpu_ns).map(|(a, b)| a + b);
        }
        if keep {
            self.moments.merge(&whole.moments);
            self.cpu_ns = self.cpu_ns.zip(whole.cpu_ns).map(|(a, b)| a + b);
        }
        Ok(whole)
    }

    fn result(
        &self,
        plan: &Plan,
        index: usize,
        division: Division,
        change: Option<Effect>,
        noise: &Effect,
    ) -> ArmThroughput {
        let mut latencies = Histogram::<u64>::new_from(&self.sessions[0].latencies);
        for session in &self.sessions {
            // All have the same bounds.
            let _ = latencies.add(&session.latencies);
        }
        let quantile = |q| latencies.value_at_quantile(q) as f64 / NS_PER_MS;
        let transactions = self.moments.count();
        ArmThroughput {
            arm: plan.arms[index],
            tps: transactions as f64 / (division.slice.as_secs_f64() * division.rounds as f64),
            transactions,
            latency_mean: self.moments.mean() / NS_PER_MS,
            latency_stddev: self.moments.stddev() / NS_PER_MS,
            latency_p50: quantile(0.50),
            latency_p95: quantile(0.95),
            latency_p99: quantile(0.99),
            client_cpu: self.cpu_ns.map(|ns| ns as f64 / 1000.0 / transactions.max(1) as f64),
            change,
            finding: change.map(|change| judge(&change, noise)),
        }
    }
}

impl TimedSession {
    /// Transaction after transaction until `end`; those that end between `start` and `end` count.
    fn run(&mut self, start: Instant, end: Instant, keep: bool) -> Result<Sample> {
        self.session.settle_here()?;
        let cpu = CpuClock::of_this_thread();
        let mut moments = Moments::default();
        let mut last = Instant::now();
        let mut cpu_before = None;
        loop {
            self.session.play()?;
            let now = Instant::now();
            if now >= end {
                break;
            }
            if last >= start {
                let latency = now - last;
                moments.push(latency.as_nanos() as f64);
                if keep {
                    self.latencies.saturating_record(latency.as_nanos() as u64);
                }
            } else if now >= start {
                cpu_before = cpu.as_ref().and_then(CpuClock::now);
            }
            last = now;
        }
        let cpu_after = cpu.as_ref().and_then(CpuClock::now);
        Ok(Sample { moments, cpu_ns: cpu_after.zip(cpu_before).map(|(after, before)| after - before) })
    }
}

impl Sample {
    fn raw(&self, round: usize, arm: usize, again: bool, slice: Duration) -> ThroughputSlice {
        let transactions = self.moments.count();
        ThroughputSlice {
            round,
            arm,
            again,
            transactions,
            tps: transactions as f64 / slice.as_secs_f64(),
            latency_mean: self.moments.mean() / NS_PER_MS,
            latency_stddev: self.moments.stddev() / NS_PER_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(round: usize, arm: usize, again: bool, tps: f64) -> ThroughputSlice {
        ThroughputSlice { round, arm, again, transactions: 0, tps, latency_mean: 0.0, latency_stddev: 0.0 }
    }

    #[test]
    fn a_long_run_has_longer_slices_and_more_rounds() {
        let division = |seconds, entries| Division::new(Duration::from_secs(seconds), entries);
        let short = division(50, 5);
        assert_eq!((short.rounds, short.slice), (20, Duration::from_millis(500)));
        let long = division(600, 5);
        assert_eq!((long.rounds, long.slice), (80, Duration::from_millis(1500)));
        assert_eq!(division(1, 5).rounds, 8);
    }

    #[test]
    fn a_change_is_against_the_baseline_of_its_round() {
        let slices = [
            slice(0, 1, false, 90.0),
            slice(0, 0, true, 100.0),
            slice(0, 0, false, 100.0),
            slice(1, 0, false, 200.0),
            slice(1, 0, true, 220.0),
            slice(1, 1, false, 168.0),
        ];
        let rounded = |changes: Vec<f64>| changes.iter().map(|c| (c * 1000.0).round()).collect::<Vec<_>>();
        assert_eq!(rounded(changes(&slices, 1)), [-100.0, -200.0]);
        assert_eq!(rounded(noise(&slices)), [0.0, 100.0]);
    }
}
