//! `cost`: every client flips its own session between two arms, slice by slice, and times each slice.
//!
//! Both arms meet the same server process with the same caches within milliseconds, so a busy neighbour hits both; see
//! [`crate::schedule`] for the order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cpu::CpuClock;
use super::{LoadSession, Server};
use crate::arm::{Arm, Installation, Module};
use crate::cli::Plan;
use crate::error::{Error, Result, check_interrupted};
use crate::report::{Comparison, Cost, CostBlock, Measure, Progress};
use crate::schedule::{Block, Blocks, Side};
use crate::stats::{Effect, judge, trimmed_mean};

/// Transactions after a flip that are not measured.
const SETTLE: u32 = 2;
/// Transactions of each client on each server before the first block: caches fill, generic plans are chosen.
const WARM_UP: u32 = 500;
/// How often the progress bar moves.
const GLANCE: Duration = Duration::from_millis(100);

const OFF: &str =
    "the module is loaded and its tracking is switched off (track = none); both arms are the same session";

/// Two arms on one server.
#[derive(Clone, Debug)]
struct Pair {
    /// Index into the servers.
    server: usize,
    /// Index into the plan's arms; `None`: off against off, for the noise.
    arm: Option<usize>,
    /// What brings the session into either arm.
    flip: [String; 2],
}

pub fn run(plan: &Plan, installation: &Installation, progress: &Progress) -> Result<(Cost, Vec<Server>)> {
    let modules = modules(plan, installation)?;
    let mut servers = Vec::new();
    for module in &modules {
        progress.say(format!("starting a server with {}", module.name()));
        let arm = match module {
            Module::PgssRs => Arm::PgssRs { rate: 1.0 },
            Module::PgStatStatements => Arm::PgStatStatements,
        };
        servers.push(Server::start(plan, installation, arm)?);
    }
    let pairs = pairs(&plan.arms, &modules);

    progress.say("warming up");
    let mut clients = (0..plan.clients)
        .map(|number| Client::new(plan, &servers, number))
        .collect::<Result<Vec<Client>>>()?;
    progress.say(format!("measuring cost, {}", plan.workload.name()));
    let samples = measure(&mut clients, &pairs, plan, progress)?;
    drop(clients);

    progress.say("computing");
    let comparisons = compare(plan, &pairs, &samples);
    let blocks = samples.iter().map(|sample| sample.raw(&pairs, &modules)).collect();
    Ok((Cost { off: OFF.to_owned(), comparisons, blocks }, servers))
}

/// The modules whose servers are needed. `off` against `off` takes what is installed.
fn modules(plan: &Plan, installation: &Installation) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for module in plan.arms.iter().filter_map(|arm| arm.module()) {
        if !modules.contains(&module) {
            modules.push(module);
        }
    }
    if modules.is_empty() {
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
        let pair = |arm, b| Pair { server, arm, flip: [module.flip(Arm::Off), module.flip(b)] };
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
struct Client {
    number: u32,
    sessions: Vec<(LoadSession, Option<CpuClock>)>,
    blocks_seed: u64,
}

/// What one block gave.
struct Sample {
    client: u32,
    block: Block,
    /// In each slice; the block's length rounded up to whole transactions.
    statements: u32,
    wall_ns: [u64; 4],
    cpu_ns: Option<[u64; 4]>,
}

impl Client {
    fn new(plan: &Plan, servers: &[Server], number: u32) -> Result<Self> {
        let mut sessions = Vec::new();
        for server in servers {
            let mut session = server.load_session(plan, number)?;
            for _ in 0..WARM_UP {
                session.play()?;
            }
            check_interrupted()?;
            let cpu = CpuClock::of_process(session.connection.backend_pid());
            sessions.push((session, cpu));
        }
        Ok(Client { number, sessions, blocks_seed: plan.seed.wrapping_add(u64::from(number)) })
    }

    /// Runs blocks until `plan.duration` has been measured. `measured`: ns so far, for the progress bar.
    fn run(&mut self, pairs: &[Pair], plan: &Plan, measured: &AtomicU64) -> Result<Vec<Sample>> {
        for (session, _) in &self.sessions {
            session.settle_here()?;
        }
        let mut samples = Vec::new();
        let mut total = 0;
        for block in Blocks::new(pairs.len(), self.blocks_seed) {
            let sample = self.block(block, &pairs[block.comparison], plan)?;
            total += sample.wall_ns.iter().sum::<u64>();
            samples.push(sample);
            measured.fetch_max(total, Ordering::Relaxed);
            if u128::from(total) >= plan.duration.as_nanos() {
                break;
            }
        }
        Ok(samples)
    }

    fn block(&mut self, block: Block, pair: &Pair, plan: &Plan) -> Result<Sample> {
        let (session, cpu) = &mut self.sessions[pair.server];
        let per_transaction = plan.workload.statements_per_transaction();
        let transactions = block.length.div_ceil(per_transaction);
        let mut wall_ns = [0; 4];
        let mut cpu_ns = [Some(0); 4];
        for (slice, side) in block.order.sides().into_iter().enumerate() {
            check_interrupted()?;
            session.connection.execute(&pair.flip[usize::from(side == Side::B)])?;
            for _ in 0..SETTLE {
                session.play()?;
            }
            let cpu_before = cpu.as_ref().and_then(CpuClock::now);
            let start = Instant::now();
            for _ in 0..transactions {
                session.play()?;
            }
            wall_ns[slice] = start.elapsed().as_nanos() as u64;
            let cpu_after = cpu.as_ref().and_then(CpuClock::now);
            cpu_ns[slice] = cpu_after.zip(cpu_before).map(|(after, before)| after - before);
        }
        let cpu_ns = match cpu_ns {
            [Some(a), Some(b), Some(c), Some(d)] => Some([a, b, c, d]),
            _ => None,
        };
        let statements = transactions * per_transaction;
        Ok(Sample { client: self.number, block, statements, wall_ns, cpu_ns })
    }
}

fn measure(clients: &mut [Client], pairs: &[Pair], plan: &Plan, progress: &Progress) -> Result<Vec<Sample>> {
    let measured = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> =
            clients.iter_mut().map(|client| scope.spawn(|| client.run(pairs, plan, &measured))).collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            thread::sleep(GLANCE);
            progress.at(Duration::from_nanos(measured.load(Ordering::Relaxed)));
        }
        let mut samples = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(of_client) => samples.extend(of_client?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(samples)
    })
}

impl Sample {
    /// Means of the two slices of either side, in ns per statement: the baseline's and the other arm's.
    fn sides(&self, slices: &[u64; 4]) -> [f64; 2] {
        let mut sums = [0; 2];
        for (side, ns) in self.block.order.sides().into_iter().zip(slices) {
            sums[usize::from(side == Side::B)] += ns;
        }
        sums.map(|sum| sum as f64 / f64::from(2 * self.statements))
    }

    fn raw(&self, pairs: &[Pair], modules: &[Module]) -> CostBlock {
        let pair = &pairs[self.block.comparison];
        CostBlock {
            client: self.client,
            // The comparisons leave out the baseline.
            comparison: pair.arm.map(|arm| arm - 1),
            server: modules[pair.server].name(),
            order: self.block.order,
            statements: self.statements,
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
            statements: of_pair(pair).map(|sample| 4 * u64::from(sample.statements)).sum(),
            wall,
            cpu: measure(|sample| sample.cpu_ns.as_ref()),
        });
    }
    comparisons
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
            statements: 50,
            wall_ns: [1000, 2000, 4000, 3000],
            cpu_ns: None,
        };
        let wall = |order| {
            let sample = sample(order);
            sample.sides(&sample.wall_ns)
        };
        assert_eq!(wall(Order::Abba), [40.0, 60.0]);
        assert_eq!(wall(Order::Baab), [60.0, 40.0]);
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
