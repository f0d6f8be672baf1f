//! Runs a plan: starts the servers, puts the load on them, turns the samples into results.

mod calibrate;
mod conditions;
mod conservation;
mod cost;
mod cpu;
mod latency;
mod pgbench;
mod refusals;
mod restart;
mod rounds;
mod throughput;
mod timed;
mod timetable;
mod watch;

use std::sync::Arc;

use crate::arm::{Arm, Installation, Module};
use crate::cli::{Mode, PRELOAD, Plan};
use crate::client::Session;
use crate::cluster::{self, Cluster, Shutdown};
use crate::env::{CpuTimes, Machine};
use crate::error::{Error, Result, check_interrupted};
use crate::guest::{self, Guest};
use crate::remote::Target;
use crate::report::{Progress, Results, Run, SeenStatement};
use crate::workload::{Player, Popularity, Workload, create_pgbench_tables};

/// Kept away from a measurement: work the server would do at times of its own.
const QUIET: [(&str, &str); 3] =
    [("autovacuum", "off"), ("checkpoint_timeout", "1d"), ("max_wal_size", "64GB")];

/// Sessions beside those of the load.
const SPARE_CONNECTIONS: u32 = 10;

/// See [`cpu::Turns`].
const NO_TURNS: &str = "there is no chrt (of util-linux) that works: a session's client and server may interrupt each other, \
                        and more so in one arm than in the other, which makes small costs wrong by tens of percent";

/// Seen on a virtual machine of two CPUs: beside an idle one the server's CPU time showed half of a change that the
/// elapsed time showed whole; beside a busy one both agreed. With [`cpu::Turns`] they agree in either case.
const IDLE_CPUS: &str = "with fewer clients than CPUs some CPUs idle, and the kernel may account for a part of a \
                         change only: compare server CPU with elapsed";

/// Of `cost` on an existing server.
const ELAPSED_ONLY: &str = "the CPU time of that server's processes cannot be read from here, so costs are in elapsed time: \
                            they hold the way there and back and the wait for a CPU, and intervals are wider than where \
                            server CPU is known";

/// Without the driver's own statements.
const SEEN: &str = "SELECT query, calls, round(mean_exec_time::numeric, 4), rows FROM pgss_rs_stats \
                    WHERE query NOT LIKE 'SET pgss\\_rs.%' AND query NOT LIKE 'CREATE EXTENSION %' ORDER BY calls DESC LIMIT 10";

/// Where the load goes.
#[derive(Debug)]
pub enum Site {
    /// Throwaway servers of this installation.
    Throwaway(Installation),
    Existing(Target),
}

impl Site {
    /// What the server says it is.
    pub fn version(&self) -> Result<String> {
        match self {
            Site::Throwaway(installation) => Ok(installation.version.clone()),
            Site::Existing(target) => guest::version_of(target),
        }
    }

    /// The arms that can be run, and a note for each that cannot.
    pub fn available(&self, plan: &Plan) -> Result<(Vec<Arm>, Vec<String>)> {
        match self {
            Site::Throwaway(installation) => installation.available(&plan.arms),
            Site::Existing(target) => guest::available(plan, target),
        }
    }

    /// Whether its servers take what the user wants them to have, before any load.
    pub fn check(&self, plans: &[Plan]) -> Result<()> {
        match self {
            Site::Throwaway(installation) => refusals::check(plans, installation),
            Site::Existing(_) => Ok(()),
        }
    }
}

/// A site for one plan.
#[derive(Debug)]
enum Host<'a> {
    Throwaway(&'a Installation),
    Existing(Arc<Guest>),
}

impl Host<'_> {
    fn installation(&self) -> Result<&Installation> {
        match self {
            Host::Throwaway(installation) => Ok(installation),
            Host::Existing(_) => Err(Error::Request("this takes throwaway servers".to_owned())),
        }
    }
}

/// What the baseline of `throughput` is, in words.
fn off_of(plan: &Plan) -> String {
    match (plan.arms[0], &plan.request.target) {
        (Arm::Off, None) => "no module is loaded".to_owned(),
        (Arm::Off, Some(_)) => "nothing is tracked (track = none), on the same server".to_owned(),
        (arm, _) => format!("the build {arm}"),
    }
}

/// Runs one plan. Throwaway servers are gone when this returns, and so is what was created on others.
pub fn run(mut plan: Plan, site: &Site, machine: &Machine) -> Result<Run> {
    let (arms, mut notes) = site.available(&plan)?;
    plan.arms = arms;
    if plan.request.target.is_some() {
        // Where an existing server's processes run is none of our business.
        plan.pinned = false;
    }
    if let [file, ..] = &plan.request.libraries[..] {
        let is_ours = file.file_stem().is_some_and(|stem| stem == Module::PgssRs.name());
        let builds = plan.request.libraries.iter().enumerate();
        let names = builds.map(|(n, file)| format!("{} is {}", Arm::Build(n as u8), file.display()));
        notes.extend(names);
        if is_ours {
            notes.push("builds run with their defaults; --setting changes them".to_owned());
        }
    }
    if plan.mode == Mode::Cost && plan.arms.len() < 2 {
        return Err(Error::Request(
            "none of the arms to compare with off is installed for this server".to_owned(),
        ));
    }
    if plan.mode == Mode::Cost && plan.request.target.is_some() {
        notes.push(ELAPSED_ONLY.to_owned());
    }
    if plan.workload == Workload::Tpcb && plan.scale < plan.clients {
        notes.push("with a scale below the number of clients, tpcb mostly waits for locks".to_owned());
    }
    let host = match site {
        Site::Throwaway(installation) => Host::Throwaway(installation),
        Site::Existing(target) => Host::Existing(Guest::enter(&plan, target)?),
    };
    let turns = takes_turns(&plan).then(cpu::Turns::begin);
    if matches!(turns, Some(None)) {
        notes.push(NO_TURNS.to_owned());
    }
    let interrupted = !matches!(turns, Some(Some(_)));
    if plan.mode == Mode::Cost
        && plan.request.target.is_none()
        && interrupted
        && (plan.clients as usize) < machine.cpus
    {
        notes.push(IDLE_CPUS.to_owned());
    }
    let progress = Progress::new(plan.duration);
    let before = CpuTimes::now();
    let (results, servers) = match plan.mode {
        Mode::Cost => {
            let (cost, servers) = cost::run(&plan, &host, &progress)?;
            (Results::Cost(cost), servers)
        }
        Mode::Throughput | Mode::Sweep => {
            let (throughput, servers) = throughput::run(&plan, &host, &progress)?;
            (Results::Throughput(throughput), servers)
        }
        Mode::Restart => {
            let (throughput, servers) = restart::run(&plan, host.installation()?, &progress)?;
            (Results::Throughput(throughput), servers)
        }
        Mode::Pgbench => {
            (Results::Efficiency(pgbench::run(&plan, host.installation()?, &progress)?), Vec::new())
        }
        Mode::Calibrate => {
            (Results::Calibration(calibrate::run(&plan, host.installation()?, &progress)?), Vec::new())
        }
        Mode::Latency => {
            let (latency, servers) = latency::run(&plan, &host, &progress)?;
            (Results::Latency(latency), servers)
        }
    };
    let seen = match most_watched(&servers).and_then(Server::cluster).map(seen).transpose() {
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

/// Whether a session's client and server are to run by turns: where ns of a statement are at stake. In the other modes several
/// sessions may share a CPU, and how the kernel makes them share it is a part of what is measured.
fn takes_turns(plan: &Plan) -> bool {
    plan.pinned && matches!(plan.mode, Mode::Cost | Mode::Calibrate)
}

/// A server with its tables filled.
#[derive(Debug)]
struct Server {
    /// The arm it is for.
    arm: Arm,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A server of its own. Boxed, as it is much the larger one.
    Own(Box<Cluster>),
    /// One of several arms on the same server, told apart by their sessions' settings.
    Guest(Arc<Guest>),
}

impl Server {
    fn on(host: &Host, plan: &Plan, arm: Arm) -> Result<Self> {
        match host {
            Host::Throwaway(installation) => Self::start(plan, installation, arm),
            Host::Existing(guest) => Ok(Server { arm, place: Place::Guest(Arc::clone(guest)) }),
        }
    }

    /// With the module of `arm` loaded and set up as `arm` wants it.
    fn start(plan: &Plan, installation: &Installation, arm: Arm) -> Result<Self> {
        let server = Self::bare(plan, installation, arm)?;
        server.set_up(plan)?;
        Ok(server)
    }

    /// Without the tables that the load needs.
    fn bare(plan: &Plan, installation: &Installation, arm: Arm) -> Result<Self> {
        let mut builder = Self::builder(plan, installation)?;
        if let Arm::Build(n) = arm {
            builder = builder.preload_file(&plan.request.libraries[usize::from(n)]);
        }
        for (name, value) in settings(plan, arm) {
            builder = builder.setting(&name, &value);
        }
        let cluster = builder.start().map_err(|error| refusals::reworded(error, plan, arm))?;
        Ok(Server::new(arm, cluster))
    }

    fn new(arm: Arm, cluster: Cluster) -> Self {
        Server { arm, place: Place::Own(Box::new(cluster)) }
    }

    /// `None`: it is not ours.
    fn cluster(&self) -> Option<&Cluster> {
        match &self.place {
            Place::Own(cluster) => Some(cluster),
            Place::Guest(_) => None,
        }
    }

    fn builder(plan: &Plan, installation: &Installation) -> Result<cluster::Builder> {
        check_interrupted()?;
        let mut builder = Cluster::builder(&installation.pg_config)
            .setting("max_connections", &(plan.clients + SPARE_CONNECTIONS).to_string());
        for (name, value) in QUIET {
            builder = builder.setting(name, value);
        }
        Ok(builder)
    }

    /// Creates the tables that the load needs.
    fn set_up(&self, plan: &Plan) -> Result<()> {
        let mut session = self.connect()?;
        if let Some(module) = self.module() {
            // The statistics are to show the load.
            session.execute(&module.flip(Arm::Off))?;
        }
        plan.workload.set_up(&mut session, plan.scale)?;
        let scripts = &plan.request.scripts;
        if scripts.iter().any(|weighted| weighted.script.uses_pgbench_tables()) {
            create_pgbench_tables(&mut session, i64::from(plan.scale))?;
        }
        match &plan.request.init {
            Some(sql) => session.execute(sql),
            None => Ok(()),
        }
    }

    /// The settings with which this server, started for `off`, becomes one for `arm`; see [`Server::restart_as`].
    fn preload(&self, plan: &Plan, arm: Arm) -> Result<Vec<(String, String)>> {
        let mut settings = settings(plan, arm);
        if let (Arm::Build(n), Some(cluster)) = (arm, self.cluster()) {
            let copy = cluster.copy_library(&plan.request.libraries[usize::from(n)])?;
            let others = plan.preloads().map_or_else(String::new, |names| format!(", {names}"));
            settings.push((PRELOAD.to_owned(), format!("\"{}\"{others}", copy.display())));
        }
        Ok(settings)
    }

    /// `base`: the configuration without any arm's settings.
    fn restart_as(&mut self, arm: Arm, base: &str, settings: &[(String, String)]) -> Result<()> {
        check_interrupted()?;
        self.arm = arm;
        let Place::Own(cluster) = &mut self.place else { return Ok(()) };
        cluster.stop(Shutdown::Fast)?;
        cluster.configure(base)?;
        for (name, value) in settings {
            cluster.set(name, value)?;
        }
        cluster.start()?;
        Ok(())
    }

    fn connect(&self) -> Result<Session> {
        match &self.place {
            Place::Own(cluster) => Session::connect(&cluster.socket()),
            Place::Guest(guest) => {
                let mut session = guest.connect()?;
                if let Some(module) = self.arm.module() {
                    session.execute(&module.flip(self.arm))?;
                }
                Ok(session)
            }
        }
    }

    /// The server process of a session, where it is on this machine for certain.
    fn local_pid(&self, session: &Session) -> Option<i32> {
        self.cluster().map(|_| session.backend_pid())
    }

    fn load_session(&self, plan: &Plan, number: u32) -> Result<LoadSession> {
        let mut connection = self.connect()?;
        if plan.pinned {
            cpu::pin(connection.backend_pid(), number)?;
        }
        let player = Player::new(plan, number, &mut connection)?;
        Ok(LoadSession { connection, player, number, pinned: plan.pinned })
    }

    fn module(&self) -> Option<Module> {
        self.arm.module()
    }
}

/// What loads an arm's installed module and sets it up, and what the user adds.
fn settings(plan: &Plan, arm: Arm) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let module = arm.module();
    let libraries: Vec<&str> = module.map(Module::name).into_iter().chain(plan.preloads()).collect();
    if !libraries.is_empty() {
        settings.push((PRELOAD.to_owned(), libraries.join(", ")));
    }
    if let (Some(module), Some(entries)) = (module, plan.max_entries) {
        settings.push((format!("{}.max", module.name()), entries.to_string()));
    }
    settings.extend(arm.settings());
    settings.extend(plan.settings.iter().filter(|(name, _)| name != PRELOAD).cloned());
    settings
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
