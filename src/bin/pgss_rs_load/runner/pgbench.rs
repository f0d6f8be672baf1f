//! `pgbench`: the driver and pgbench take turns with the same load on the same server.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

use super::Server;
use super::timed::Sessions;
use crate::arm::{Arm, Installation};
use crate::cli::Plan;
use crate::cluster::{self, SUPERUSER};
use crate::efficiency::{Efficiency, Pair, Turn, figures_of};
use crate::error::{Error, Result, check_interrupted};
use crate::report::Progress;
use crate::schedule;
use crate::workload::Workload;

const PAIRS: usize = 8;

pub fn run(plan: &Plan, installation: &Installation, progress: &Progress) -> Result<Efficiency> {
    let bench = Pgbench::find(plan, installation)?;
    progress.say("starting a server");
    // Both have their sessions open at the same time.
    let server = Server::start(&Plan { clients: 2 * plan.clients, ..plan.clone() }, installation, Arm::Off)?;
    // pgbench counts whole seconds.
    let slice = Duration::from_secs((plan.duration.as_secs() / (2 * PAIRS as u64)).max(1));
    progress.say("by turns with pgbench");
    let mut pairs = Vec::new();
    let mut sessions = Sessions::open(plan, &server)?;
    for order in schedule::rounds(2, PAIRS, plan.seed) {
        let mut turns = [Turn { tps: 0.0, cpu: None }; 2];
        for who in order {
            check_interrupted()?;
            turns[who] = match who {
                0 => bench.turn(plan, &server, slice)?,
                _ => turn(&mut sessions, slice)?,
            };
        }
        let [pgbench, driver] = turns;
        pairs.push(Pair { pgbench, driver });
        progress.at(slice * 2 * pairs.len() as u32);
    }
    Ok(Efficiency::of_pairs(bench.version, pairs, plan.seed))
}

/// The driver's.
fn turn(sessions: &mut Sessions, slice: Duration) -> Result<Turn> {
    let sample = sessions.slice(slice / 10, slice)?;
    let transactions = sample.moments.count() as f64;
    let cpu = sample.cpu_ns.map(|ns| ns as f64 / 1000.0 / transactions);
    Ok(Turn { tps: transactions / slice.as_secs_f64(), cpu })
}

/// CPU time of all processes that were waited for, microseconds.
fn children_cpu() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let micros = |time: TimeVal| time.num_microseconds() as f64;
    Some(micros(usage.user_time()) + micros(usage.system_time()))
}

struct Pgbench {
    program: std::path::PathBuf,
    version: String,
    script: Vec<String>,
}

impl Pgbench {
    fn find(plan: &Plan, installation: &Installation) -> Result<Self> {
        let script = match plan.workload {
            Workload::SelectOnly => vec!["-b".to_owned(), "select-only".to_owned()],
            Workload::Tpcb => vec!["-b".to_owned(), "tpcb-like".to_owned()],
            Workload::Script => {
                let scripts = plan.request.scripts.iter();
                let mut given: Vec<String> =
                    scripts.flat_map(|s| ["-f".to_owned(), format!("{}@{}", s.file, s.weight)]).collect();
                given
                    .extend(plan.request.definitions.iter().map(|(name, value)| format!("-D{name}={value}")));
                given
            }
            other => {
                let name = other.name();
                return Err(Error::Request(format!(
                    "pgbench has no {name}: take select-only, tpcb, or scripts"
                )));
            }
        };
        let program =
            std::path::Path::new(&cluster::pg_config(&installation.pg_config, "--bindir")?).join("pgbench");
        let version = cluster::pg_config(&program, "--version")?;
        Ok(Pgbench { program, version, script })
    }

    fn turn(&self, plan: &Plan, server: &Server, length: Duration) -> Result<Turn> {
        let Some(cluster) = server.cluster() else { return Ok(Turn { tps: 0.0, cpu: None }) };
        let before = children_cpu();
        let clients = plan.clients.to_string();
        let output = Command::new(&self.program)
            .args(&self.script)
            .args(["-n", "-M", &plan.protocol.name(), "-c", &clients, "-j", &clients])
            .args(["-T", &length.as_secs().to_string()])
            .arg("-h")
            .arg(cluster.socket_dir())
            .args(["-p", &cluster.port().to_string(), "-U", SUPERUSER, SUPERUSER])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| Error::Failed(format!("cannot run {}: {e}", self.program.display())))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let Some((tps, transactions)) = figures_of(&said) else {
            let error = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Failed(format!("pgbench failed: {}", error.trim())));
        };
        let cpu = children_cpu().zip(before).map(|(after, before)| (after - before) / transactions);
        Ok(Turn { tps, cpu })
    }
}
