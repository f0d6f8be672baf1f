//! Runs a plan: starts the servers, puts the load on them, turns the samples into results.

mod conditions;
mod conservation;
mod cost;
mod cpu;
mod latency;
mod throughput;
mod watch;

use crate::arm::{Arm, Installation, Module};
use crate::cli::{Mode, Plan};
use crate::client::Session;
use crate::cluster::Cluster;
use crate::env::{CpuTimes, Machine};
use crate::error::{Error, Result, check_interrupted};
use crate::report::{Progress, Results, Run, SeenStatement};
use crate::workload::{Player, Popularity, Workload};

/// Kept away from a measurement: work the server would do at times of its own.
const QUIET: [(&str, &str); 3] =
    [("autovacuum", "off"), ("checkpoint_timeout", "1d"), ("max_wal_size", "64GB")];

/// Sessions beside those of the load.
const SPARE_CONNECTIONS: u32 = 10;

/// Seen on a virtual machine of two CPUs: beside an idle one the server's CPU time showed half of a change that the
/// elapsed time showed whole; beside a busy one both agreed.
const IDLE_CPUS: &str = "with fewer clients than CPUs some CPUs idle, and the kernel may account for a part of a \
                         change only: compare server CPU with elapsed";

const SEEN: &str = "SELECT query, calls, round(mean_exec_time::numeric, 4), rows FROM pgss_rs_stats \
                    ORDER BY calls DESC LIMIT 10";

/// Runs one plan. The servers are gone when this returns.
pub fn run(mut plan: Plan, installation: &Installation, machine: &Machine) -> Result<Run> {
    let (arms, mut notes) = installation.available(&plan.arms)?;
    plan.arms = arms;
    if plan.mode == Mode::Cost && plan.arms.len() < 2 {
        return Err(Error::Request(
            "none of the arms to compare with off is installed for this server".to_owned(),
        ));
    }
    if plan.mode == Mode::Cost && (plan.clients as usize) < machine.cpus {
        notes.push(IDLE_CPUS.to_owned());
    }
    if plan.workload == Workload::Tpcb && plan.scale < plan.clients {
        notes.push("with a scale below the number of clients, tpcb mostly waits for locks".to_owned());
    }
    let progress = Progress::new(plan.duration);
    let before = CpuTimes::now();
    let (results, servers) = match plan.mode {
        Mode::Cost => {
            let (cost, servers) = cost::run(&plan, installation, &progress)?;
            (Results::Cost(cost), servers)
        }
        Mode::Throughput | Mode::Sweep => {
            let (throughput, servers) = throughput::run(&plan, installation, &progress)?;
            (Results::Throughput(throughput), servers)
        }
        Mode::Latency => {
            let (latency, servers) = latency::run(&plan, installation, &progress)?;
            (Results::Latency(latency), servers)
        }
    };
    let seen = match most_watched(&servers).map(|server| seen(&server.cluster)).transpose() {
        Ok(seen) => seen,
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => {
            notes.push(format!("pgss_rs_stats could not be read: {error}"));
            None
        }
    };
    let conditions = conditions::conditions(&plan, machine, &servers, before)?;
    Ok(Run::new(plan, notes, results, seen, conditions))
}

/// A server with its tables filled.
#[derive(Debug)]
struct Server {
    /// The arm it was started for.
    arm: Arm,
    cluster: Cluster,
}

impl Server {
    /// With the module of `arm` loaded and set up as `arm` wants it.
    fn start(plan: &Plan, installation: &Installation, arm: Arm) -> Result<Self> {
        check_interrupted()?;
        let mut builder = Cluster::builder(&installation.pg_config)
            .setting("max_connections", &(plan.clients + SPARE_CONNECTIONS).to_string());
        if let Some(module) = arm.module() {
            builder = builder.setting("shared_preload_libraries", module.name());
            if let Some(entries) = plan.max_entries {
                builder = builder.setting(&format!("{}.max", module.name()), &entries.to_string());
            }
        }
        for (name, value) in QUIET {
            builder = builder.setting(name, value);
        }
        for (name, value) in arm.settings().iter().chain(&plan.settings) {
            builder = builder.setting(name, value);
        }
        let server = Server { arm, cluster: builder.start()? };
        plan.workload.set_up(&mut server.connect()?, plan.scale)?;
        Ok(server)
    }

    fn connect(&self) -> Result<Session> {
        Session::connect(&self.cluster.socket())
    }

    fn load_session(&self, plan: &Plan, number: u32) -> Result<LoadSession> {
        let mut connection = self.connect()?;
        if plan.pinned {
            cpu::pin(connection.backend_pid(), number)?;
        }
        let Plan { workload, protocol, scale, seed, .. } = *plan;
        let player = Player::new(workload, protocol, scale, seed, number, &mut connection)?;
        Ok(LoadSession { connection, player, number, pinned: plan.pinned })
    }

    fn module(&self) -> Option<Module> {
        self.arm.module()
    }
}

/// A session and what it runs.
#[derive(Debug)]
struct LoadSession {
    connection: Session,
    player: Player,
    /// From 0, among those of a server.
    number: u32,
    pinned: bool,
}

impl LoadSession {
    /// To be called first by the thread that is to run the session.
    fn settle_here(&self) -> Result<()> {
        const THIS_THREAD: i32 = 0;
        if self.pinned { cpu::pin(THIS_THREAD, self.number) } else { Ok(()) }
    }

    /// One transaction.
    fn play(&mut self) -> Result<Popularity> {
        self.player.play(&mut self.connection)
    }
}

/// The server that ran pgss_rs at the highest rate.
fn most_watched(servers: &[Server]) -> Option<&Server> {
    let rate = |server: &Server| match server.arm {
        Arm::PgssRs { rate } => rate,
        _ => -1.0,
    };
    servers.iter().filter(|s| s.module() == Some(Module::PgssRs)).max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

/// A look at what the user would see.
fn seen(cluster: &Cluster) -> Result<Vec<SeenStatement>> {
    let mut session = Session::connect(&cluster.socket())?;
    session.execute("CREATE EXTENSION IF NOT EXISTS pgss_rs")?;
    let rows = session.query(SEEN)?;
    let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
    Ok(rows
        .into_iter()
        .filter_map(|row| <[Option<String>; 4]>::try_from(row).ok())
        .map(|row| {
            let [query, calls, mean_exec_time, rows] = row.map(text);
            SeenStatement { query, calls, mean_exec_time, rows }
        })
        .collect())
}
