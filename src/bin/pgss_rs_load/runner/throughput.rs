//! `throughput`: a server per arm, all up at once, the load on one at a time in short slices by turns.
//!
//! The sessions stay open throughout. Each round has every arm once and the baseline a second time: what the two slices
//! of the baseline differ by is the noise of this box.

use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::conservation::Ledger;
use super::cpu::CpuClock;
use super::latency::distribution;
use super::watch::Watch;
use super::{LoadSession, Server};
use crate::arm::{Arm, Installation};
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::{ArmThroughput, HotLatency, Progress, Throughput, ThroughputSlice};
use crate::schedule;
use crate::stats::{Effect, Finding, Moments, judge};
use crate::workload::Popularity;

/// Rounds aimed at, and the least: an interval needs pairs.
const ROUNDS: f64 = 20.0;
const MIN_ROUNDS: f64 = 8.0;
/// Limits of a slice, in seconds: long against a switch of servers, short against the moods of the box.
const SLICE: (f64, f64) = (0.25, 1.5);
/// Share of a slice's length that runs before it unmeasured.
const WARM_UP: f64 = 0.25;
/// Load on each server before the first slice.
const FIRST_WARM_UP: Duration = Duration::from_millis(500);
/// The same for workloads of many distinct statements, which have a table to fill.
const FILLING: Duration = Duration::from_secs(3);
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
    let (mut servers, mut watches, mut ledgers, mut arms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for arm in &plan.arms {
        progress.say(format!("starting a server for {arm}"));
        let server = Server::start(plan, installation, *arm)?;
        watches.push(Watch::open(&server)?);
        ledgers.push(Ledger::open(plan, &server)?);
        servers.push(server);
    }
    progress.say("warming up");
    for (server, watch) in servers.iter().zip(&mut watches) {
        let sessions = ArmSessions::new(plan, server)?;
        watch.begin(&sessions.backends())?;
        arms.push(sessions);
    }
    // The entry after the last arm is the baseline again.
    let division = Division::new(plan.duration, arms.len() + 1);
    let slices = measure(plan, division, &mut arms, &mut watches, progress)?;

    progress.say("computing");
    let tps = Compared::new(TPS, &slices, plan.seed);
    let hot_p99 = plan.workload.has_hot_statements().then(|| Compared::new(HOT_P99, &slices, plan.seed));
    let mut results = Vec::new();
    for (index, ((sessions, ledger), watch)) in arms.iter().zip(&mut ledgers).zip(watches).enumerate() {
        let mut result = sessions.result(plan.arms[index], division, tps.change(index));
        result.hot = hot_p99.as_ref().map(|compared| sessions.hot_latency(compared.change(index)));
        result.conservation = ledger.as_mut().map(|ledger| ledger.read(sessions.sent())).transpose()?;
        result.watched = Some(watch.end()?);
        results.push(result);
    }
    drop(arms);
    let throughput = Throughput {
        rounds: division.rounds,
        slice: division.slice.as_secs_f64(),
        warm_up: division.warm_up.as_secs_f64(),
        arms: results,
        noise: tps.noise,
        hot_noise: hot_p99.map(|compared| compared.noise),
        slices,
    };
    Ok((throughput, servers))
}

/// The slices in the order in which they ran.
fn measure(
    plan: &Plan,
    division: Division,
    arms: &mut [ArmSessions],
    watches: &mut [Watch],
    progress: &Progress,
) -> Result<Vec<ThroughputSlice>> {
    progress.say(format!("measuring throughput, {}", plan.workload.name()));
    let mut slices = Vec::new();
    for (round, order) in schedule::rounds(arms.len() + 1, division.rounds, plan.seed).iter().enumerate() {
        for entry in order {
            let again = *entry == arms.len();
            let arm = if again { 0 } else { *entry };
            let sessions = &mut arms[arm];
            let sample = watches[arm].during(|| sessions.slice(division.warm_up, division.slice, !again))?;
            slices.push(sample.raw(round, arm, again, division.slice));
            progress.at(division.slice * slices.len() as u32);
        }
    }
    Ok(slices)
}

/// What a slice is judged by; `None` or 0: it gave nothing to judge.
type Figure = fn(&ThroughputSlice) -> Option<f64>;

const TPS: Figure = |slice| Some(slice.tps);
const HOT_P99: Figure = |slice| slice.hot_p99;

/// A figure of the arms against the baseline's in the same round.
struct Compared<'a> {
    figure: Figure,
    slices: &'a [ThroughputSlice],
    seed: u64,
    /// The baseline against itself.
    noise: Effect,
}

impl<'a> Compared<'a> {
    fn new(figure: Figure, slices: &'a [ThroughputSlice], seed: u64) -> Self {
        let noise = Effect::of_differences(&noise(slices, figure), seed);
        Compared { figure, slices, seed, noise }
    }

    /// `None` for the baseline.
    fn change(&self, arm: usize) -> Option<(Effect, Finding)> {
        (arm > 0).then(|| {
            let change = Effect::of_differences(&changes(self.slices, arm, self.figure), self.seed);
            (change, judge(&change, &self.noise))
        })
    }
}

/// Per round, an arm's figure against the mean of the baseline's two slices, minus 1.
fn changes(slices: &[ThroughputSlice], arm: usize, figure: Figure) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.arm == arm).filter_map(|slice| {
        let baseline: f64 = baseline_of(slices, slice.round).map(figure).sum::<Option<f64>>()?;
        Some(figure(slice)? / (baseline / 2.0) - 1.0)
    });
    pairs.filter(|change| change.is_finite()).collect()
}

/// Per round, the baseline's second slice against its first, minus 1.
fn noise(slices: &[ThroughputSlice], figure: Figure) -> Vec<f64> {
    let pairs = slices.iter().filter(|s| s.again).filter_map(|again| {
        let first = baseline_of(slices, again.round).find(|s| !s.again)?;
        Some(figure(again)? / figure(first)? - 1.0)
    });
    pairs.filter(|change| change.is_finite()).collect()
}

fn baseline_of(slices: &[ThroughputSlice], round: usize) -> impl Iterator<Item = &ThroughputSlice> {
    slices.iter().filter(move |s| s.arm == 0 && s.round == round)
}

/// An arm's sessions and what they have measured so far.
struct ArmSessions {
    sessions: Vec<TimedSession>,
    /// Of the slices that count for the arm's own figures.
    kept: Sample,
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
    /// Latencies of the hot statements in ns.
    hot: Histogram<u64>,
    cpu_ns: Option<u64>,
}

impl ArmSessions {
    fn new(plan: &Plan, server: &Server) -> Result<Self> {
        let mut sessions = Vec::new();
        for number in 0..plan.clients {
            sessions
                .push(TimedSession { session: server.load_session(plan, number)?, latencies: latencies()? });
        }
        let mut sessions = ArmSessions { sessions, kept: Sample::empty()? };
        let warm_up = if plan.workload.is_of_distinct_statements() { FILLING } else { FIRST_WARM_UP };
        sessions.slice(warm_up, Duration::ZERO, false)?;
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
        let mut whole = Sample::empty()?;
        for sample in samples {
            whole.merge(&sample?);
        }
        if keep {
            self.kept.merge(&whole);
        }
        Ok(whole)
    }

    /// The server processes.
    fn backends(&self) -> Vec<i32> {
        self.sessions.iter().map(|timed| timed.session.connection.backend_pid()).collect()
    }

    /// Statements that have ended on this server, unmeasured ones included.
    fn sent(&self) -> u64 {
        self.sessions.iter().map(|timed| timed.session.player.sent()).sum()
    }

    fn result(&self, arm: Arm, division: Division, change: Option<(Effect, Finding)>) -> ArmThroughput {
        let mut latencies = Histogram::<u64>::new_from(&self.sessions[0].latencies);
        for session in &self.sessions {
            // All have the same bounds.
            let _ = latencies.add(&session.latencies);
        }
        let Sample { moments, cpu_ns, .. } = &self.kept;
        let transactions = moments.count();
        let (change, finding) = change.unzip();
        ArmThroughput {
            arm,
            tps: transactions as f64 / (division.slice.as_secs_f64() * division.rounds as f64),
            transactions,
            latency_mean: moments.mean() / NS_PER_MS,
            latency_stddev: moments.stddev() / NS_PER_MS,
            latency_p50: quantile(&latencies, 0.50),
            latency_p95: quantile(&latencies, 0.95),
            latency_p99: quantile(&latencies, 0.99),
            client_cpu: cpu_ns.map(|ns| ns as f64 / 1000.0 / transactions.max(1) as f64),
            change,
            finding,
            hot: None,
            conservation: None,
            distribution: distribution(&latencies),
            watched: None,
        }
    }

    fn hot_latency(&self, change: Option<(Effect, Finding)>) -> HotLatency {
        let hot = &self.kept.hot;
        let (change, finding) = change.unzip();
        HotLatency {
            transactions: hot.len(),
            p50: quantile(hot, 0.50),
            p99: quantile(hot, 0.99),
            p999: quantile(hot, 0.999),
            change,
            finding,
        }
    }
}

impl TimedSession {
    /// Transaction after transaction until `end`; those that end between `start` and `end` count.
    fn run(&mut self, start: Instant, end: Instant, keep: bool) -> Result<Sample> {
        self.session.settle_here()?;
        let cpu = CpuClock::of_this_thread();
        let mut sample = Sample::empty()?;
        let mut last = Instant::now();
        let mut cpu_before = None;
        loop {
            let popularity = self.session.play()?;
            let now = Instant::now();
            if now >= end {
                break;
            }
            if last >= start {
                let latency = (now - last).as_nanos() as u64;
                sample.moments.push(latency as f64);
                if popularity == Popularity::Hot {
                    sample.hot.saturating_record(latency);
                }
                if keep {
                    self.latencies.saturating_record(latency);
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
}

impl Sample {
    fn empty() -> Result<Self> {
        Ok(Sample { moments: Moments::default(), hot: latencies()?, cpu_ns: Some(0) })
    }

    fn merge(&mut self, other: &Sample) {
        self.moments.merge(&other.moments);
        // All have the same bounds.
        let _ = self.hot.add(&other.hot);
        self.cpu_ns = self.cpu_ns.zip(other.cpu_ns).map(|(a, b)| a + b);
    }

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
            hot_p99: (!self.hot.is_empty()).then(|| quantile(&self.hot, 0.99)),
        }
    }
}

/// Of ns.
fn latencies() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, MAX_LATENCY, LATENCY_DIGITS)
        .map_err(|e| Error::Failed(format!("no histogram: {e:?}")))
}

/// In ms.
fn quantile(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / NS_PER_MS
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;

    fn slice(round: usize, arm: usize, again: bool, tps: f64) -> ThroughputSlice {
        let (transactions, latency_mean, latency_stddev) = (0, 0.0, 0.0);
        ThroughputSlice { round, arm, again, transactions, tps, latency_mean, latency_stddev, hot_p99: None }
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
        assert_eq!(rounded(changes(&slices, 1, TPS)), [-100.0, -200.0]);
        assert_eq!(rounded(noise(&slices, TPS)), [0.0, 100.0]);
    }

    #[test]
    fn a_round_without_hot_statements_says_nothing_about_them() {
        let mut slices = [
            slice(0, 0, false, 100.0),
            slice(0, 0, true, 100.0),
            slice(0, 1, false, 100.0),
            slice(1, 0, false, 100.0),
            slice(1, 0, true, 100.0),
            slice(1, 1, false, 100.0),
        ];
        for (slice, p99) in
            slices.iter_mut().zip([Some(2.0), Some(3.0), Some(5.0), Some(2.0), None, Some(9.0)])
        {
            slice.hot_p99 = p99;
        }
        assert_eq!(changes(&slices, 1, HOT_P99), [1.0]);
        assert_eq!(noise(&slices, HOT_P99), [0.5]);
    }

    #[test]
    fn a_short_churn_loses_no_call() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let arguments = [
            "pgss_rs_load",
            "throughput",
            "--workload=churn",
            "--clients=3",
            "--duration=1",
            "--arms=off,pgss_rs,pg_stat_statements",
            "--max-entries=200",
        ];
        let plan = Arguments::parse_from(arguments).plans(2).unwrap().remove(0);
        let installation = Installation::of(pg_config.as_ref()).unwrap();
        let (throughput, servers) = run(&plan, &installation, &Progress::new(plan.duration)).unwrap();
        assert_eq!(servers.len(), 3);

        let [off, pgss_rs, pg_stat_statements] = &throughput.arms[..] else { panic!("three arms") };
        assert!(off.conservation.is_none());
        let ours = pgss_rs.conservation.unwrap();
        assert_eq!((ours.lost(), ours.skipped), (Some(0), Some(0)), "{ours:?}");
        assert!(ours.kept > 0 && ours.evicted > Some(0) && ours.dealloc > 0, "{ours:?}");
        let theirs = pg_stat_statements.conservation.unwrap();
        assert!(theirs.kept < theirs.sent && theirs.dealloc > 0 && theirs.lost().is_none(), "{theirs:?}");

        for arm in &throughput.arms {
            let hot = arm.hot.as_ref().unwrap();
            let share = hot.transactions as f64 / arm.transactions as f64;
            assert!((0.7..0.9).contains(&share), "{share}");
            assert!(hot.p50 <= hot.p99 && hot.p99 <= hot.p999, "{hot:?}");
        }
    }
}
