//! `cost`: every client flips its own session between two arms, slice by slice, and times each slice.
//!
//! Both arms meet the same server process with the same caches within milliseconds, so a busy neighbour hits both; see
//! [`crate::schedule`] for the order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cpu::CpuClock;
use super::watch::Watch;
use super::{Host, LoadSession, Server, timetable};
use crate::arm::{Arm, Module};
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::{Comparison, Cost, CostBlock, Measure, Progress};
use crate::schedule::{Block, Blocks, Side};
use crate::stats::{self, Details, Effect, judge, median, trimmed_mean};

/// Transactions after a flip that are not measured.
pub const SETTLE: u32 = 2;
/// Transactions of each client on each server before the first block: caches fill, generic plans are chosen.
const WARM_UP: u32 = 500;
/// How often the progress bar moves.
const GLANCE: Duration = Duration::from_millis(100);
/// How often it is looked whether the intervals are narrow enough, where that ends the run.
const LOOK: Duration = Duration::from_secs(3);
/// In how many parts a client's blocks are looked at for a warm-up.
const WARM_UP_PARTS: usize = 60;

const OFF: &str =
    "the module is loaded and its tracking is switched off (track = none); both arms are the same session";

/// Two arms on one server.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Index into the servers.
    pub server: usize,
    /// Index into the plan's arms; `None`: off against off, for the noise.
    pub arm: Option<usize>,
    /// What brings the session into either arm.
    pub flip: [String; 2],
    /// A query for the ns that something took in each statement since the flip, where that is known.
    pub known: Option<&'static str>,
}

pub fn run(plan: &Plan, host: &Host, progress: &Progress) -> Result<(Cost, Vec<Server>)> {
    let modules = modules(plan, host)?;
    let mut servers = Vec::new();
    for module in &modules {
        progress.say(format!("starting a server with {}", module.name()));
        let arm = match module {
            Module::PgssRs => Arm::PgssRs { rate: 1.0 },
            Module::PgStatStatements => Arm::PgStatStatements,
        };
        servers.push(Server::on(host, plan, arm)?);
    }
    let pairs = pairs(&plan.arms, &modules);

    progress.say("warming up");
    let mut watches = servers.iter().map(Watch::open).collect::<Result<Vec<_>>>()?;
    let mut clients = (0..plan.clients)
        .map(|number| Client::new(plan, &servers, number))
        .collect::<Result<Vec<Client>>>()?;
    watches.iter_mut().try_for_each(Watch::begin_counting)?;
    timetable::wait_for_start(plan.request.start_at)?;
    progress.say(format!("measuring cost, {}", plan.workload_name()));
    let mut samples = measure(&mut clients, &pairs, plan, progress)?;
    drop(clients);

    progress.say("computing");
    let watched = watches.into_iter().map(Watch::end).collect::<Result<Vec<_>>>()?;
    let warm_up_blocks = cut_warm_up(&mut samples, pairs.len());
    let mut comparisons = compare(plan, &pairs, &samples);
    for comparison in &mut comparisons {
        let of_arm = |pair: &&Pair| pair.arm.is_some_and(|arm| plan.arms[arm] == comparison.arm);
        comparison.watched = pairs.iter().find(of_arm).map(|pair| watched[pair.server].clone());
    }
    let blocks = samples.iter().map(|sample| sample.raw(&pairs, &modules)).collect();
    Ok((Cost { off: OFF.to_owned(), warm_up_blocks, comparisons, blocks }, servers))
}

/// The modules whose servers are needed. `off` against `off` takes what is installed.
fn modules(plan: &Plan, host: &Host) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for module in plan.arms.iter().filter_map(|arm| arm.module()) {
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    if modules.is_empty() {
        let installation = host.installation().map_err(|_| {
            Error::Request(
                "on an existing server, cost needs an arm of the module whose setting is flipped".to_owned(),
            )
        })?;
        let any = [Module::PgssRs, Module::PgStatStatements].into_iter().find(|m| installation.has(*m));
        modules.push(any.ok_or_else(|| {
            Error::Request(
                "cost flips the setting of a module, and neither pgss_rs nor pg_stat_statements is installed"
                    .to_owned(),
            )
        })?);
    }
    Ok(modules)
}

/// Each arm but the baseline against `off`, and on each server `off` against `off`.
fn pairs(arms: &[Arm], modules: &[Module]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (server, module) in modules.iter().enumerate() {
        let pair = |arm, b| Pair { server, arm, flip: [module.flip(Arm::Off), module.flip(b)], known: None };
        pairs.push(pair(None, Arm::Off));
        for (index, arm) in arms.iter().enumerate().skip(1) {
            // A further `off` has no module of its own.
            if arm.module().unwrap_or(modules[0]) == *module {
                pairs.push(pair(Some(index), *arm));
            }
        }
    }
    pairs
}

/// A client with a session on every server.
pub struct Client {
    number: u32,
    sessions: Vec<(LoadSession, Option<CpuClock>)>,
    blocks_seed: u64,
}

/// What one block gave.
#[derive(Clone)]
pub struct Sample {
    client: u32,
    block: Block,
    /// In each slice; the block's length rounded up to whole transactions.
    statements: [u32; 4],
    wall_ns: [u64; 4],
    cpu_ns: Option<[u64; 4]>,
    /// As [`Pair::known`] says; else 0.
    known_ns: [u64; 4],
}

impl Client {
    pub fn new(plan: &Plan, servers: &[Server], number: u32) -> Result<Self> {
        let mut sessions = Vec::new();
        for server in servers {
            let mut session = server.load_session(plan, number)?;
            for _ in 0..WARM_UP {
                session.play()?;
            }
            check_interrupted()?;
            let cpu = server.local_pid(&session.connection).and_then(CpuClock::of_process);
            sessions.push((session, cpu));
        }
        Ok(Client { number, sessions, blocks_seed: plan.seed.wrapping_add(u64::from(number)) })
    }

    /// Another order of the blocks.
    pub fn reseed(&mut self, seed: u64) {
        self.blocks_seed = seed.wrapping_add(u64::from(self.number));
    }

    /// Runs blocks until `plan.duration` has been measured, or it is told to stop.
    fn run(&mut self, pairs: &[Pair], plan: &Plan, shared: &Shared) -> Result<()> {
        for (session, _) in &self.sessions {
            session.settle_here()?;
        }
        let mut total = 0;
        for block in Blocks::new(pairs.len(), self.blocks_seed) {
            let sample = self.block(block, &pairs[block.comparison], plan)?;
            total += sample.wall_ns.iter().sum::<u64>();
            shared.add(sample);
            shared.measured.fetch_max(total, Ordering::Relaxed);
            if u128::from(total) >= plan.duration.as_nanos() || shared.enough.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn block(&mut self, block: Block, pair: &Pair, plan: &Plan) -> Result<Sample> {
        let (session, cpu) = &mut self.sessions[pair.server];
        let per_transaction = plan.workload.statements_per_transaction();
        let transactions = block.length.div_ceil(per_transaction);
        let (mut statements, mut wall_ns, mut known_ns) = ([0; 4], [0; 4], [0; 4]);
        let mut cpu_ns = [Some(0); 4];
        for (slice, side) in block.order.sides().into_iter().enumerate() {
            check_interrupted()?;
            session.connection.execute(&pair.flip[usize::from(side == Side::B)])?;
            for _ in 0..SETTLE {
                session.play()?;
            }
            let sent = session.player.sent();
            let cpu_before = cpu.as_ref().and_then(CpuClock::now);
            let start = Instant::now();
            for _ in 0..transactions {
                session.play()?;
            }
            wall_ns[slice] = start.elapsed().as_nanos() as u64;
            let cpu_after = cpu.as_ref().and_then(CpuClock::now);
            cpu_ns[slice] = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
            statements[slice] = (session.player.sent() - sent) as u32;
            if let Some(query) = pair.known {
                let each = session.connection.query_number(query)?;
                known_ns[slice] = (each * f64::from(statements[slice])) as u64;
            }
        }
        let cpu_ns = match cpu_ns {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        };
        Ok(Sample { client: self.number, block, statements, wall_ns, cpu_ns, known_ns })
    }
}

/// What the clients of one measurement share.
struct Shared {
    samples: Mutex<Vec<Sample>>,
    /// ns, for the progress bar.
    measured: AtomicU64,
    /// They are to stop.
    enough: AtomicBool,
}

impl Shared {
    fn add(&self, sample: Sample) {
        // A client that panicked has left whole samples behind.
        self.samples.lock().unwrap_or_else(|e| e.into_inner()).push(sample);
    }

    fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// All clients at once; the samples client by client, in the order of time.
pub fn measure(
    clients: &mut [Client],
    pairs: &[Pair],
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Sample>> {
    let shared = Shared {
        samples: Mutex::new(Vec::new()),
        measured: AtomicU64::new(0),
        enough: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let run = |client| scope.spawn(|| Client::run(client, pairs, plan, &shared));
        let threads: Vec<_> = clients.iter_mut().map(run).collect();
        let mut looked = Instant::now();
        while !threads.iter().all(|thread| thread.is_finished()) {
            thread::sleep(GLANCE);
            progress.at(Duration::from_nanos(shared.measured.load(Ordering::Relaxed)));
            if plan.request.until_width.is_some() && looked.elapsed() >= LOOK {
                shared.enough.store(are_precise(plan, pairs, shared.samples()), Ordering::Relaxed);
                looked = Instant::now();
            }
        }
        for thread in threads {
            match thread.join() {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
    .map(|()| {
        let mut samples = shared.samples();
        samples.sort_by_key(|sample| sample.client);
        samples
    })
}

/// Whether every change's interval is as narrow as asked for, and so is the noise's.
fn are_precise(plan: &Plan, pairs: &[Pair], mut samples: Vec<Sample>) -> bool {
    let Some(width) = plan.request.until_width else { return false };
    samples.sort_by_key(|sample| sample.client);
    cut_warm_up(&mut samples, pairs.len());
    let narrow = |comparison: &Comparison| {
        let measure = comparison.primary();
        [measure.change, measure.noise].iter().all(|effect| effect.width() <= width.fraction() * measure.off)
    };
    let comparisons = compare(plan, pairs, &samples);
    comparisons.len() + 1 == plan.arms.len() && comparisons.iter().all(narrow)
}

/// Removes each client's first blocks while its statements still became faster or slower. How many were removed.
pub fn cut_warm_up(samples: &mut Vec<Sample>, pairs: usize) -> usize {
    let before = samples.len();
    let mut kept = Vec::with_capacity(before);
    for of_client in samples.chunk_by(|a, b| a.client == b.client) {
        // On each server the baseline has a level of its own.
        let level = |pair| {
            median(
                &mut of_client
                    .iter()
                    .filter(|s| s.block.comparison == pair)
                    .map(Sample::baseline)
                    .collect::<Vec<_>>(),
            )
        };
        let levels: Vec<f64> = (0..pairs).map(level).collect();
        let part = of_client.len().div_ceil(WARM_UP_PARTS).max(1);
        let of_part = |part: &[Sample]| {
            median(&mut part.iter().map(|s| s.baseline() / levels[s.block.comparison]).collect::<Vec<_>>())
        };
        let series: Vec<f64> = of_client.chunks(part).map(of_part).collect();
        kept.extend_from_slice(&of_client[stats::warm_up(&series) * part..]);
    }
    *samples = kept;
    before - samples.len()
}

impl Sample {
    /// Means of the two slices of either side, in ns per statement: the baseline's and the other arm's.
    fn sides(&self, slices: &[u64; 4]) -> [f64; 2] {
        let mut sums = [(0, 0); 2];
        for ((side, ns), statements) in self.block.order.sides().into_iter().zip(slices).zip(self.statements)
        {
            let (sum, count) = &mut sums[usize::from(side == Side::B)];
            *sum += ns;
            *count += statements;
        }
        sums.map(|(sum, count)| sum as f64 / f64::from(count.max(1)))
    }

    /// Elapsed, ns per statement.
    fn baseline(&self) -> f64 {
        self.sides(&self.wall_ns)[0]
    }

    /// Server CPU where it is known, else elapsed.
    pub fn main_ns(&self) -> &[u64; 4] {
        self.cpu_ns.as_ref().unwrap_or(&self.wall_ns)
    }

    pub fn wall_ns(&self) -> &[u64; 4] {
        &self.wall_ns
    }

    pub fn known_ns(&self) -> &[u64; 4] {
        &self.known_ns
    }

    fn all_statements(&self) -> u64 {
        self.statements.iter().map(|n| u64::from(*n)).sum()
    }

    fn raw(&self, pairs: &[Pair], modules: &[Module]) -> CostBlock {
        let pair = &pairs[self.block.comparison];
        CostBlock {
            client: self.client,
            // The comparisons leave out the baseline.
            comparison: pair.arm.map(|arm| arm - 1),
            server: modules[pair.server].name(),
            order: self.block.order,
            statements: (self.all_statements() / 4) as u32,
            wall_ns: self.wall_ns,
            cpu_ns: self.cpu_ns,
        }
    }
}

/// In the order of the plan's arms, without the baseline.
fn compare(plan: &Plan, pairs: &[Pair], samples: &[Sample]) -> Vec<Comparison> {
    let of_pair = |pair: usize| samples.iter().filter(move |s| s.block.comparison == pair);
    let find = |server: Option<usize>, arm: Option<usize>| {
        pairs.iter().position(|p| server.is_none_or(|s| s == p.server) && p.arm == arm)
    };
    let mut comparisons = Vec::new();
    for (index, arm) in plan.arms.iter().enumerate().skip(1) {
        let Some(pair) = find(None, Some(index)) else { continue };
        let Some(noise) = find(Some(pairs[pair].server), None) else { continue };
        let measure = |slices: fn(&Sample) -> Option<&[u64; 4]>| {
            let sides = |pair| -> Option<Vec<[f64; 2]>> {
                of_pair(pair).map(|sample| Some(sample.sides(slices(sample)?))).collect()
            };
            Some(measure_of(&sides(pair)?, &sides(noise)?, plan.seed))
        };
        let Some(wall) = measure(|sample| Some(&sample.wall_ns)) else { continue };
        comparisons.push(Comparison {
            arm: *arm,
            blocks: of_pair(pair).count(),
            statements: of_pair(pair).map(Sample::all_statements).sum(),
            wall,
            cpu: measure(|sample| sample.cpu_ns.as_ref()),
            details: Some(Details::of_differences(&differences(samples, pair, Sample::main_ns))),
            watched: None,
        });
    }
    comparisons
}

/// Of one pair's blocks, the other arm minus the baseline in ns per statement.
fn differences(samples: &[Sample], pair: usize, of: fn(&Sample) -> &[u64; 4]) -> Vec<f64> {
    let difference = |sample: &Sample| {
        let [a, b] = sample.sides(of(sample));
        b - a
    };
    samples.iter().filter(|s| s.block.comparison == pair).map(difference).collect()
}

/// The same, with its interval.
pub fn effect(samples: &[Sample], pair: usize, of: fn(&Sample) -> &[u64; 4], seed: u64) -> Effect {
    Effect::of_differences(&differences(samples, pair, of), seed)
}

/// The plain mean of the same: what hits few blocks counts, too.
pub fn mean(samples: &[Sample], pair: usize, of: fn(&Sample) -> &[u64; 4]) -> f64 {
    let differences = differences(samples, pair, of);
    differences.iter().sum::<f64>() / differences.len().max(1) as f64
}

/// Whether all samples know the server's CPU time.
pub fn know_cpu(samples: &[Sample]) -> bool {
    samples.iter().all(|sample| sample.cpu_ns.is_some())
}

fn measure_of(blocks: &[[f64; 2]], noise: &[[f64; 2]], seed: u64) -> Measure {
    let differences = |blocks: &[[f64; 2]]| blocks.iter().map(|[a, b]| b - a).collect::<Vec<f64>>();
    let change = Effect::of_differences(&differences(blocks), seed);
    let noise = Effect::of_differences(&differences(noise), seed);
    let off = trimmed_mean(&mut blocks.iter().map(|[a, _]| *a).collect::<Vec<f64>>());
    Measure { off, change, noise, finding: judge(&change, &noise) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Order;

    #[test]
    fn the_sides_of_a_block_follow_its_order() {
        let sample = |order| Sample {
            client: 0,
            block: Block { comparison: 0, order, length: 50 },
            statements: [50; 4],
            wall_ns: [1000, 2000, 4000, 3000],
            cpu_ns: None,
            known_ns: [0; 4],
        };
        let wall = |order| {
            let sample = sample(order);
            sample.sides(&sample.wall_ns)
        };
        assert_eq!(wall(Order::Abba), [40.0, 60.0]);
        assert_eq!(wall(Order::Baab), [60.0, 40.0]);
    }

    #[test]
    fn slices_of_unlike_length_are_weighed_by_their_statements() {
        let block = Block { comparison: 0, order: Order::Abba, length: 50 };
        let (statements, wall_ns) = ([10, 50, 50, 90], [1000, 5000, 5000, 9000]);
        let sample = Sample { client: 0, block, statements, wall_ns, cpu_ns: None, known_ns: [0; 4] };
        assert_eq!(sample.sides(&sample.wall_ns), [100.0, 100.0]);
        assert_eq!(sample.all_statements(), 200);
    }

    #[test]
    fn the_slow_start_of_one_client_is_cut_and_the_others_kept() {
        let sample = |client, n: u64| {
            let slow = if client == 1 && n < 20 { 2 } else { 1 };
            let block = Block { comparison: (n % 2) as usize, order: Order::Abba, length: 50 };
            let ns = (1 + n % 2) * 5000 * slow + n * 7 % 50;
            Sample { client, block, statements: [50; 4], wall_ns: [ns; 4], cpu_ns: None, known_ns: [0; 4] }
        };
        let mut samples: Vec<Sample> = (0..2).flat_map(|c| (0..120).map(move |n| sample(c, n))).collect();
        let cut = cut_warm_up(&mut samples, 2);
        assert!((20..=40).contains(&cut), "{cut}");
        assert_eq!(samples.iter().filter(|s| s.client == 0).count(), 120);
    }

    #[test]
    fn each_server_compares_its_arms_and_off_with_itself() {
        let arms = ["off", "pgss_rs", "pg_stat_statements", "pgss_rs@0.1"].map(|a| a.parse().unwrap());
        let pairs = pairs(&arms, &[Module::PgssRs, Module::PgStatStatements]);
        let shape: Vec<_> = pairs.iter().map(|p| (p.server, p.arm)).collect();
        assert_eq!(shape, [(0, None), (0, Some(1)), (0, Some(3)), (1, None), (1, Some(2))]);
        assert_eq!(pairs[0].flip[0], pairs[0].flip[1]);
        assert_ne!(pairs[1].flip[0], pairs[1].flip[1]);
    }

    #[test]
    fn a_constant_difference_is_found_whatever_the_drift() {
        let blocks: Vec<[f64; 2]> =
            (0..200).map(|i| f64::from(10_000 + 37 * i)).map(|a| [a, a + 300.0]).collect();
        let noise: Vec<[f64; 2]> = (0..200).map(|i| [1e4, 1e4 + f64::from(i % 5 - 2)]).collect();
        let measure = measure_of(&blocks, &noise, 1);
        assert!((measure.change.estimate - 300.0).abs() < 1e-6);
        assert_eq!(measure.finding, crate::stats::Finding::Difference);
    }
}
