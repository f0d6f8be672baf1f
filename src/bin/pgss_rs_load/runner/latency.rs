//! `latency`: an open loop at a set rate, on a server per arm, by turns as in `throughput`.
//!
//! Transactions are due at times drawn beforehand, the same for all arms of a round. A session that is free takes the next
//! one, waits until it is due and sends it; where none is free it waits in the queue. Latency counts from when it was due
//! until its end, so that a stall counts for everything it delayed, and not only for what happened to be running
//! (coordinated omission).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::watch::Watch;
use super::{Host, LoadSession, Server};
use crate::arrivals::OpenLoop;
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::{ArmLatency, Distribution, Latency, LatencySlice, PercentileOf, Progress, compare};
use crate::schedule;
use crate::stats::Moments;

const ROUNDS: f64 = 20.0;
const MIN_ROUNDS: f64 = 8.0;
/// Limits of a slice, in seconds: longer than in `throughput`, as a percentile takes many transactions.
const SLICE: (f64, f64) = (0.25, 5.0);
/// Share of a slice's length that comes before it and does not count.
const WARM_UP: f64 = 0.25;
/// Share of a slice's length after which what was due within it is given up.
const GRACE: f64 = 0.1;
/// Compared where a slice has enough transactions above: [`ABOVE`].
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
const ABOVE: f64 = 5.0;
/// Of a slice's transactions, waiting at its end, with which the rate still counts as held.
const WAITING: f64 = 0.01;
/// Latencies are kept to three digits, up to this many ns.
const MAX_LATENCY: u64 = 600_000_000_000;
const DIGITS: u8 = 3;
const NS_PER_MS: f64 = 1e6;

/// How the duration is divided.
#[derive(Clone, Copy, Debug)]
struct Division {
    rounds: usize,
    slice: Duration,
    warm_up: Duration,
}

impl Division {
    fn new(duration: Duration, entries: usize) -> Self {
        let per_entry = duration.as_secs_f64() / entries as f64;
        let slice = (per_entry / ROUNDS).clamp(SLICE.0, SLICE.1);
        let rounds = (per_entry / slice).round().max(MIN_ROUNDS) as usize;
        let seconds = Duration::from_secs_f64;
        Division { rounds, slice: seconds(slice), warm_up: seconds(slice * WARM_UP) }
    }
}

pub fn run(plan: &Plan, host: &Host, progress: &Progress) -> Result<(Latency, Vec<Server>)> {
    let open_loop = plan.open_loop.ok_or_else(|| Error::Request("latency needs a rate".to_owned()))?;
    let (mut servers, mut arms) = (Vec::new(), Vec::new());
    for arm in &plan.arms {
        progress.say(format!("a server for {arm}"));
        servers.push(Server::on(host, plan, *arm)?);
    }
    progress.say("warming up");
    for server in &servers {
        arms.push(ArmSessions::new(plan, server)?);
    }
    // The entry after the last arm is the baseline again.
    let division = Division::new(plan.duration, arms.len() + 1);
    let percentiles = percentiles(open_loop.rate_per_second * division.slice.as_secs_f64());
    progress.say(format!("measuring latency, {}", plan.workload_name()));
    let mut slices = Vec::new();
    for (round, order) in schedule::rounds(arms.len() + 1, division.rounds, plan.seed).iter().enumerate() {
        let due = Due::new(&open_loop, division, plan.seed.wrapping_add(round as u64));
        for entry in order {
            let again = *entry == arms.len();
            let arm = if again { 0 } else { *entry };
            let slice = arms[arm].slice(&due, division, !again)?;
            slices.push(slice.raw(round, arm, again, &percentiles));
            progress.at(division.slice * slices.len() as u32);
        }
    }

    progress.say("computing");
    let mut results = Vec::new();
    for (index, sessions) in arms.into_iter().enumerate() {
        let compared = percentiles_of(&slices, index, &percentiles, &sessions.kept, plan.seed);
        results.push(sessions.result(plan.arms[index].to_string(), division, compared, index, &slices)?);
    }
    let latency = Latency {
        rate: open_loop.rate_per_second,
        arrivals: serde_name(&open_loop),
        rounds: division.rounds,
        slice: division.slice.as_secs_f64(),
        warm_up: division.warm_up.as_secs_f64(),
        percentiles,
        arms: results,
        slices,
    };
    Ok((latency, servers))
}

fn serde_name(open_loop: &OpenLoop) -> String {
    use clap::ValueEnum;
    open_loop.arrivals.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
}

/// Those of which a slice with so many transactions says something.
fn percentiles(transactions: f64) -> Vec<f64> {
    let enough = |p: &f64| *p <= 90.0 || transactions * (1.0 - p / 100.0) >= ABOVE;
    PERCENTILES.into_iter().filter(enough).collect()
}

/// When the transactions of a slice are due, from the beginning of its warm-up.
struct Due {
    at: Vec<Duration>,
    /// The first that counts.
    first: usize,
}

impl Due {
    fn new(open_loop: &OpenLoop, division: Division, seed: u64) -> Self {
        let at = open_loop.due(division.warm_up + division.slice, seed);
        let first = at.partition_point(|at| *at < division.warm_up);
        Due { at, first }
    }

    fn counted(&self) -> u64 {
        (self.at.len() - self.first) as u64
    }
}

/// An arm's sessions and what they have measured so far.
struct ArmSessions {
    sessions: Vec<LoadSession>,
    watch: Watch,
    /// Of the slices that count for the arm's own figures.
    kept: Sample,
}

/// What one slice gave, or several. Latencies and lateness in ns.
struct Sample {
    latencies: Histogram<u64>,
    moments: Moments,
    /// How late the driver itself sent what a free session waited for.
    late: Histogram<u64>,
    intended: u64,
    completed: u64,
    /// Given up. Their latencies, as far as they had come, are among the others.
    unserved: u64,
    /// The most that were due and not yet sent.
    backlog: u64,
    /// At the end.
    waiting: u64,
}

impl ArmSessions {
    fn new(plan: &Plan, server: &Server) -> Result<Self> {
        let mut watch = Watch::open(server)?;
        let mut sessions = Vec::new();
        for number in 0..plan.clients {
            sessions.push(server.load_session(plan, number)?);
        }
        for session in &mut sessions {
            // Caches fill, generic plans are chosen.
            for _ in 0..20 {
                session.play()?;
            }
        }
        watch.begin(&sessions.iter().map(|s| s.connection.backend_pid()).collect::<Vec<_>>())?;
        Ok(ArmSessions { sessions, watch, kept: Sample::empty()? })
    }

    /// All sessions at once. `keep`: whether the slice counts for the arm's own figures.
    fn slice(&mut self, due: &Due, division: Division, keep: bool) -> Result<Sample> {
        check_interrupted()?;
        let queue = Queue { due, division, next: AtomicUsize::new(0), start: Instant::now() };
        let ArmSessions { sessions, watch, kept } = self;
        let samples = watch.during(|| {
            thread::scope(|scope| {
                let threads: Vec<_> =
                    sessions.iter_mut().map(|session| scope.spawn(|| queue.serve(session))).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
                    Ok(sample) => sample,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                threads.into_iter().map(join).collect::<Result<Vec<Sample>>>()
            })
        })?;
        let mut whole = Sample::empty()?;
        samples.iter().for_each(|sample| whole.merge(sample));
        whole.intended = due.counted();
        if keep {
            kept.merge(&whole);
        }
        Ok(whole)
    }

    fn result(
        self,
        arm: String,
        division: Division,
        percentiles: Vec<PercentileOf>,
        index: usize,
        slices: &[LatencySlice],
    ) -> Result<ArmLatency> {
        let Sample { latencies, moments, late, intended, completed, unserved, backlog, .. } = &self.kept;
        let of_arm = slices.iter().filter(|slice| slice.arm == index && !slice.again);
        let waiting: u64 = of_arm.map(|slice| slice.backlog).sum();
        let allowed = (WAITING * *intended as f64).max((self.sessions.len() * division.rounds) as f64);
        Ok(ArmLatency {
            arm,
            intended: *intended,
            completed: *completed,
            unserved: *unserved,
            achieved: *completed as f64 / (division.slice.as_secs_f64() * division.rounds as f64),
            held: *unserved == 0 && waiting as f64 <= allowed,
            backlog: *backlog,
            mean: moments.mean() / NS_PER_MS,
            max: latencies.max() as f64 / NS_PER_MS,
            percentiles,
            driver_late_p99: quantile(late, 99.0),
            distribution: distribution(latencies),
            watched: Some(self.watch.end()?),
        })
    }
}

/// The transactions of a slice, and who is next.
struct Queue<'a> {
    due: &'a Due,
    division: Division,
    next: AtomicUsize,
    start: Instant,
}

impl Queue<'_> {
    /// Runs transactions until none is left or the time is over.
    fn serve(&self, session: &mut LoadSession) -> Result<Sample> {
        session.settle_here()?;
        wake_in_time();
        let mut sample = Sample::empty()?;
        let counted = self.start + self.division.warm_up;
        let end = counted + self.division.slice;
        let last = end + self.division.slice.mul_f64(GRACE);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(at) = self.due.at.get(number).map(|at| self.start + *at) else { return Ok(sample) };
            check_interrupted()?;
            let free = Instant::now();
            let in_time = free <= at;
            if in_time {
                thread::sleep(at - free);
            }
            let counts = number >= self.due.first;
            let begun = Instant::now();
            if !counts && begun > counted {
                // What is left of the warm-up is not to keep waiting what counts.
                continue;
            }
            if begun > last {
                sample.give_up(begun - at);
                continue;
            }
            if !in_time {
                sample.behind(self.due_by(begun).saturating_sub(number + 1) as u64, begun > end);
            } else if counts {
                sample.late.saturating_record((begun - at).as_nanos() as u64);
            }
            session.play()?;
            if counts {
                sample.complete(at.elapsed());
            }
        }
    }

    /// How many were due by then.
    fn due_by(&self, time: Instant) -> usize {
        let since = time - self.start;
        self.due.at.partition_point(|at| *at <= since)
    }
}

impl Sample {
    fn empty() -> Result<Self> {
        Ok(Sample {
            latencies: latencies()?,
            moments: Moments::default(),
            late: latencies()?,
            intended: 0,
            completed: 0,
            unserved: 0,
            backlog: 0,
            waiting: 0,
        })
    }

    fn complete(&mut self, latency: Duration) {
        self.completed += 1;
        self.record(latency);
    }

    /// What it had waited is the least that it would have taken.
    fn give_up(&mut self, waited: Duration) {
        self.unserved += 1;
        self.waiting += 1;
        self.record(waited);
    }

    fn record(&mut self, latency: Duration) {
        let ns = latency.as_nanos() as u64;
        self.moments.push(ns as f64);
        self.latencies.saturating_record(ns);
    }

    /// With so many others waiting.
    fn behind(&mut self, others: u64, after_the_end: bool) {
        self.backlog = self.backlog.max(others + 1);
        self.waiting += u64::from(after_the_end);
    }

    fn merge(&mut self, other: &Sample) {
        // All have the same bounds.
        let _ = self.latencies.add(&other.latencies);
        let _ = self.late.add(&other.late);
        self.moments.merge(&other.moments);
        self.intended += other.intended;
        self.completed += other.completed;
        self.unserved += other.unserved;
        self.backlog = self.backlog.max(other.backlog);
        self.waiting += other.waiting;
    }

    fn raw(&self, round: usize, arm: usize, again: bool, percentiles: &[f64]) -> LatencySlice {
        LatencySlice {
            round,
            arm,
            again,
            intended: self.intended,
            completed: self.completed,
            backlog: self.waiting,
            percentiles: percentiles.iter().map(|p| quantile(&self.latencies, *p)).collect(),
        }
    }
}

/// An arm's percentiles over all its slices, with the paired changes of those of single slices.
fn percentiles_of(
    slices: &[LatencySlice],
    arm: usize,
    percentiles: &[f64],
    kept: &Sample,
    seed: u64,
) -> Vec<PercentileOf> {
    let of = |(which, percentile): (usize, &f64)| {
        let compared = compare::percentile(slices, arm, which, seed);
        PercentileOf {
            percentile: *percentile,
            ms: quantile(&kept.latencies, *percentile),
            change: compared.change,
            noise: compared.noise,
            finding: compared.finding,
        }
    };
    percentiles.iter().enumerate().map(of).collect()
}

/// The kernel may let a sleeping thread sleep 50 microseconds longer than it asked; not this one.
#[cfg(target_os = "linux")]
fn wake_in_time() {
    // Where that is not allowed the driver's lateness shows it.
    let _ = nix::sys::prctl::set_timerslack(1);
}

#[cfg(not(target_os = "linux"))]
fn wake_in_time() {}

fn latencies() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, MAX_LATENCY, DIGITS)
        .map_err(|e| Error::Failed(format!("no histogram: {e:?}")))
}

/// In ms.
fn quantile(latencies: &Histogram<u64>, percentile: f64) -> f64 {
    latencies.value_at_quantile(percentile / 100.0) as f64 / NS_PER_MS
}

/// For the JSON.
pub fn distribution(latencies: &Histogram<u64>) -> Distribution {
    latencies.iter_recorded().map(|class| (class.value_iterated_to(), class.count_at_value())).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arrivals::Arrivals;
    use crate::cli::Arguments;

    #[test]
    fn a_percentile_is_compared_where_a_slice_has_enough_above_it() {
        assert_eq!(percentiles(100.0), [50.0, 90.0]);
        assert_eq!(percentiles(500.0), [50.0, 90.0, 99.0]);
        assert_eq!(percentiles(5001.0), PERCENTILES);
    }

    #[test]
    fn what_is_due_in_the_warm_up_does_not_count() {
        let open_loop = OpenLoop { rate_per_second: 1000.0, arrivals: Arrivals::Constant };
        let division = Division::new(Duration::from_secs(8), 1);
        let due = Due::new(&open_loop, division, 1);
        assert_eq!(division.slice, Duration::from_millis(400));
        assert!((99..=100).contains(&due.first) && due.counted() == 400, "{} {}", due.first, due.counted());
    }

    #[test]
    fn a_rate_beyond_the_server_is_not_held_and_every_transaction_is_accounted_for() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let arguments = [
            "pgss_rs_load",
            "latency",
            "--workload=tpcb",
            "--rate-per-second=50000",
            "--clients=1",
            "--duration=1",
            "--arms=off,pgss_rs",
        ];
        let plan = Arguments::parse_from(arguments).plans(2).unwrap().remove(0);
        let installation = crate::arm::Installation::of(pg_config.as_ref()).unwrap();
        let host = Host::Throwaway(&installation);
        let (latency, _servers) = run(&plan, &host, &Progress::new(plan.duration)).unwrap();

        assert_eq!(latency.slices.len(), 3 * latency.rounds);
        for slice in &latency.slices {
            let same = latency.slices.iter().filter(|other| other.round == slice.round);
            assert!(same.clone().all(|other| other.intended == slice.intended), "the arms' arrivals differ");
        }
        for arm in &latency.arms {
            assert!(!arm.held && arm.unserved > 0 && arm.completed > 0, "{} {}", arm.unserved, arm.completed);
            assert_eq!(arm.completed + arm.unserved, arm.intended);
            assert!(arm.backlog > 1000 && arm.achieved < 50_000.0, "{} {}", arm.backlog, arm.achieved);
            assert_eq!(arm.distribution.iter().map(|(_, count)| count).sum::<u64>(), arm.intended);
            assert!(arm.percentiles.windows(2).all(|pair| pair[0].ms <= pair[1].ms));
            let watched = arm.watched.as_ref().unwrap();
            assert!(watched.looks > 0 && watched.states.iter().map(|(_, n)| n).sum::<u64>() > 0);
            assert_eq!(watched.counters.len(), if arm.arm == "off" { 0 } else { 5 });
        }
        assert_eq!(latency.percentiles, PERCENTILES);
    }
}
