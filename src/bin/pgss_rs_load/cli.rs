//! The command line, and what it asks for.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::arm::{Arm, Module};
use crate::arrivals::{Arrivals, OpenLoop};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::options::{Measuring, Request};
use crate::remote::Target;
use crate::report::{Command, Output};
use crate::workload::{Protocol, Workload};

/// And what else stands below the options.
pub const EXAMPLES: &str = "\
Without a mode and without a word about the load: cost of `now`, then the sample-rate experiment, about two minutes.

Exit status: 0, also for yes to --at-most; 1 something failed, or calibrate found the driver off; 2 what was asked for \
cannot be done; 3 no to --at-most; 4 not enough data to answer it; 130 interrupted; 141 nobody reads the report.

Examples:
  pgss_rs_load
  pgss_rs_load cost --workload now --arms off,pgss_rs,pgss_rs@0.1,pg_stat_statements
  pgss_rs_load cost --arms off,off   (the noise of this box)
  pgss_rs_load throughput --workload tpcb --scale 10 --clients 4 --json result.json
  pgss_rs_load throughput --workload churn --max-entries 10000
  pgss_rs_load sweep --workload select-only --duration 120 --budget 1%
  pgss_rs_load --experiment thin-client
  pgss_rs_load throughput --library old/pgss_rs.so --library new/pgss_rs.so
  pgss_rs_load throughput -f read.sql@9 -f write.sql --init tables.sql
  pgss_rs_load throughput --workload select-only --at-most 1%; echo $?
  pgss_rs_load calibrate
  pgss_rs_load latency --rate-per-second 5000 --clients 16 --html latency.html
  pgss_rs_load sweep --workload select-only --duration 120 --html sweep.html
  pgss_rs_load report result.json --html result.html --svg charts";

/// Measures on throwaway servers what statement statistics cost on this box
#[derive(Clone, Debug, Parser)]
#[command(name = "pgss_rs_load", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// What to measure, or one of the commands above [default: cost]
    pub mode: Option<Mode>,

    /// pg_config of the server to measure
    #[arg(long, value_name = "PATH", default_value = "pg_config")]
    pub pg_config: PathBuf,

    /// What the sessions run; may be given several times [default: now in cost, else select-only]
    #[arg(long = "workload", value_name = "NAME")]
    pub workloads: Vec<Workload>,

    /// How statements reach the server [default: prepared; simple for workloads of distinct statements, whose texts come
    /// once each and cannot be prepared]
    #[arg(long)]
    pub protocol: Option<Protocol>,

    /// Sessions at a time [default: one per CPU; four in latency; one in all in calibrate]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub clients: Option<u32>,

    /// Measured time in all, without preparation and warm-up [default: 40 in cost, 120 in restart, else 50; 600 with
    /// --until-width]
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration, allow_negative_numbers = true)]
    pub duration: Option<Duration>,

    /// Size of pgbench's tables: 100000 accounts each [default: 1; 10 in the thin-client experiment]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub scale: Option<u32>,

    /// What to compare: off, pgss_rs, pgss_rs@RATE, pg_stat_statements, and A, B, ... for each --library
    /// [default: off,pgss_rs,pgss_rs@0.1,pg_stat_statements; the libraries, where there are any, one against off]
    #[arg(long, value_name = "ARM,...", value_delimiter = ',')]
    pub arms: Vec<Arm>,

    /// Leaves it to the kernel on which CPU sessions run; otherwise a client shares one with its server processes
    #[arg(long)]
    pub no_pin: bool,

    /// Transactions due per second, of all clients together; in latency
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_negative_numbers = true)]
    pub rate_per_second: Option<f64>,

    /// When they are due; in latency [default: poisson]
    #[arg(long)]
    pub arrivals: Option<Arrivals>,

    /// Decides the order of the slices and the random values, of all runs; the report says which it was [default: from the
    /// clock]
    #[arg(long)]
    pub seed: Option<u64>,

    /// Statements that either module has room for: pgss_rs.max and pg_stat_statements.max [default: theirs, 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=1_073_741_823))]
    pub max_entries: Option<u32>,

    /// A further setting of the throwaway servers; may be given several times. Libraries to preload come after the arms' own
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub settings: Vec<(String, String)>,

    #[command(flatten)]
    pub measuring: Measuring,

    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// ns per statement: the setting flipped inside the session every 50 to 250 statements
    Cost,
    /// Transactions per second and latency: servers side by side, under load by turns
    Throughput,
    /// Throughput over the sample rates 1, 0.8, 0.5, 0.2, 0 and off
    Sweep,
    /// Throughput of one server that is started anew for each slice, the arms in random order
    Restart,
    /// Whether the driver itself measures rightly here: nothing against nothing, and known costs
    Calibrate,
    /// What the driver itself costs: its throughput against pgbench's, by turns
    Pgbench,
    /// Latency from the moment a transaction is due, at a set rate: an open loop, servers by turns
    Latency,
}

/// Which libraries a server loads is what the arms differ by; what the user wants loaded besides comes after theirs.
pub const PRELOAD: &str = "shared_preload_libraries";

/// Settings of the throwaway servers that the driver itself needs as they are.
const OWN_SETTINGS: [&str; 4] = ["port", "listen_addresses", "unix_socket_directories", "data_directory"];

/// One run: a mode with one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub mode: Mode,
    pub workload: Workload,
    pub protocol: Protocol,
    pub clients: u32,
    /// Seconds measured.
    #[serde(serialize_with = "as_seconds")]
    pub duration: Duration,
    pub scale: u32,
    /// Whether a client and its server processes share one CPU.
    pub pinned: bool,
    /// The baseline first: `off`, or the first build.
    pub arms: Vec<Arm>,
    /// Whether the user named them.
    #[serde(skip)]
    pub arms_are_given: bool,
    pub seed: u64,
    /// Of either module's table; `None`: the module's own default.
    pub max_entries: Option<u32>,
    /// Of `latency`.
    #[serde(flatten)]
    pub open_loop: Option<OpenLoop>,
    /// Of the servers, added by the user.
    pub settings: Vec<(String, String)>,
    pub request: Request,
}

impl Plan {
    /// As it was said on the command line; scripts by their files.
    pub fn workload_name(&self) -> String {
        let files = self.request.scripts.iter().map(|script| script.file.as_str());
        match self.workload {
            Workload::Script => files.collect::<Vec<_>>().join(", "),
            workload => workload.name(),
        }
    }

    /// What the servers load besides what the arms are about.
    pub fn preloads(&self) -> Option<&str> {
        self.settings.iter().rfind(|(name, _)| name == PRELOAD).map(|(_, libraries)| libraries.as_str())
    }

    /// For the values of a client's load. Machines that load one server have the order of the arms in common, and not these:
    /// else they would want the same rows at the same time.
    pub fn seed_of_load(&self, client: u32) -> u64 {
        let apart = if self.request.start_at.is_some() { seed_from_clock() << 8 } else { 0 };
        self.seed ^ (u64::from(client) << 32) ^ apart
    }
}

impl Arguments {
    /// With a seed, drawn if none was given: one for all runs, so that `--seed` repeats them.
    pub fn seeded(self) -> Self {
        Arguments { seed: Some(self.seed.unwrap_or_else(seed_from_clock)), ..self }
    }

    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_default()
    }

    /// Whether a connection is given with its password in it, which is nothing to be printed.
    pub fn tells_a_password(&self) -> bool {
        let dsn = self.measuring.dsn.as_ref();
        dsn.is_some_and(|dsn| Target::parse(dsn, |_| None).is_ok_and(|target| target.has_password()))
    }

    /// The runs asked for, one after the other. `cpus`: of this box.
    pub fn plans(&self, cpus: usize) -> Result<Vec<Plan>> {
        let request = self.measuring.request()?;
        if let Some(experiment) = request.experiment {
            return self.experiment_plans(experiment, request);
        }
        if self.mode.is_none() && self.says_nothing_about_load() {
            let quick = Experiment::SampleRate;
            let mut plans = vec![self.plan(Mode::Cost, Workload::Now, QUICK_COST, cpus, request.clone())?];
            plans.extend(self.experiment_plans(quick, Request { experiment: Some(quick), ..request })?);
            return Ok(plans);
        }
        let mode =
            self.mode.unwrap_or(if request.libraries.is_empty() { Mode::Cost } else { Mode::Throughput });
        let workloads = match (&request.scripts[..], &self.workloads[..], mode) {
            ([_, ..], _, _) => vec![Workload::Script],
            (_, [_, _, ..], _) if request.start_at.is_some() => return Err(one_at_a_time()),
            (_, given @ [_, ..], _) => given.to_vec(),
            (_, _, Mode::Cost | Mode::Calibrate) => vec![Workload::Now],
            _ => vec![Workload::SelectOnly],
        };
        let duration = self.duration.unwrap_or(default_duration(mode, &request)) / workloads.len() as u32;
        let clients = default_clients(mode, cpus);
        let plan = |workload: &Workload| self.plan(mode, *workload, duration, clients, request.clone());
        workloads.iter().map(plan).collect()
    }

    fn experiment_plans(&self, experiment: Experiment, request: Request) -> Result<Vec<Plan>> {
        if request.start_at.is_some() {
            return Err(one_at_a_time());
        }
        let mut plans = experiment.plans(self.duration, |mode, workload, duration| {
            self.plan(mode, workload, duration, experiment.clients(), request.clone())
        })?;
        for plan in &mut plans {
            plan.scale = self.scale.unwrap_or(experiment.scale());
        }
        Ok(plans)
    }

    /// `clients`: where the user does not say.
    fn plan(
        &self,
        mode: Mode,
        workload: Workload,
        duration: Duration,
        clients: usize,
        request: Request,
    ) -> Result<Plan> {
        let judged = matches!(mode, Mode::Cost | Mode::Throughput | Mode::Sweep | Mode::Restart);
        if !judged && (request.until_width.is_some() || request.at_most.is_some() || request.budget.is_some())
        {
            return Err(Error::Request(
                "--until-width, --at-most and --budget are for cost, throughput, sweep and restart"
                    .to_owned(),
            ));
        }
        if request.start_at.is_some() {
            check_start(mode, &request)?;
        }
        let protocol = self.protocol_of(workload)?;
        for script in &request.scripts {
            script.script.runs_in(protocol).map_err(|e| Error::Request(format!("{}:{e}", script.file)))?;
        }
        let arms = self.arms_of(mode, &request)?;
        self.check_settings(mode, &arms)?;
        Ok(Plan {
            mode,
            workload,
            protocol,
            clients: self.clients.unwrap_or(clients as u32),
            duration,
            scale: self.scale.unwrap_or(1),
            pinned: !self.no_pin,
            arms,
            arms_are_given: !self.arms.is_empty(),
            seed: self.seed(),
            max_entries: self.max_entries,
            open_loop: self.open_loop_of(mode)?,
            settings: self.settings.clone(),
            request,
        })
    }

    fn says_nothing_about_load(&self) -> bool {
        self.workloads.is_empty()
            && self.measuring.scripts.is_empty()
            && self.measuring.libraries.is_empty()
            && self.arms.is_empty()
            && self.protocol.is_none()
            && self.clients.is_none()
            && self.duration.is_none()
    }

    fn open_loop_of(&self, mode: Mode) -> Result<Option<OpenLoop>> {
        match (mode, self.rate_per_second) {
            (Mode::Latency, Some(rate_per_second)) => {
                let arrivals = self.arrivals.unwrap_or(Arrivals::Poisson);
                Ok(Some(OpenLoop { rate_per_second, arrivals }))
            }
            (Mode::Latency, None) => Err(Error::Request(
                "latency needs --rate-per-second: half of what throughput shows is a good start".to_owned(),
            )),
            (_, None) if self.arrivals.is_none() => Ok(None),
            _ => Err(Error::Request("--rate-per-second and --arrivals are for latency".to_owned())),
        }
    }

    /// Refuses settings that would have no effect, or undo what the arms are.
    fn check_settings(&self, mode: Mode, arms: &[Arm]) -> Result<()> {
        let flipped = |name: &str| {
            let modules = arms.iter().filter_map(|arm| arm.module());
            modules.flat_map(|module| module.settings()).any(|setting| *setting == name)
        };
        for (name, _) in &self.settings {
            let refused = |why: &str| Err(Error::Request(format!("--setting {name}: {why}")));
            if OWN_SETTINGS.contains(&name.as_str()) {
                return refused("throwaway servers need their own");
            }
            if name == "pgss_rs.sample_rate" && arms.iter().any(|arm| arm.module() == Some(Module::PgssRs)) {
                return refused("the rate is the arm's: pgss_rs@RATE in --arms");
            }
            if mode == Mode::Cost && flipped(name) {
                return refused("cost sets it itself, to tell its arms apart: use throughput");
            }
        }
        Ok(())
    }

    fn protocol_of(&self, workload: Workload) -> Result<Protocol> {
        let protocol = self.protocol.unwrap_or(workload.default_protocol());
        if workload.runs_in(protocol) {
            return Ok(protocol);
        }
        Err(Error::Request(format!(
            "{} has too many distinct statements to prepare them: leave out --protocol (simple), or use extended",
            workload.name()
        )))
    }

    fn arms_of(&self, mode: Mode, request: &Request) -> Result<Vec<Arm>> {
        let refused = |text: &str| Err(Error::Request(text.to_owned()));
        let rates = || [1.0, 0.8, 0.5, 0.2, 0.0].map(|rate| Arm::PgssRs { rate }).into_iter();
        let builds = 0..request.libraries.len() as u8;
        let mut arms = match (mode, &self.arms[..]) {
            (Mode::Sweep | Mode::Calibrate | Mode::Pgbench, [_, ..]) => {
                return refused(
                    "sweep and calibrate have their own arms: leave out --arms, or use throughput",
                );
            }
            (Mode::Sweep, []) => [Arm::Off].into_iter().chain(rates()).collect(),
            (Mode::Calibrate | Mode::Pgbench, []) => vec![Arm::Off],
            (_, []) if request.experiment == Some(Experiment::SampleRate) => {
                [Arm::Off].into_iter().chain(rates()).collect()
            }
            (_, []) if request.experiment.is_some() => {
                vec![Arm::Off, Arm::PgssRs { rate: 1.0 }, Arm::PgStatStatements]
            }
            (_, []) if builds.len() == 1 => vec![Arm::Off, Arm::Build(0)],
            (_, []) if !builds.is_empty() => builds.clone().map(Arm::Build).collect(),
            (_, []) => {
                vec![Arm::Off, Arm::PgssRs { rate: 1.0 }, Arm::PgssRs { rate: 0.1 }, Arm::PgStatStatements]
            }
            (_, given) => given.to_vec(),
        };
        if let Some(Arm::Build(n)) = arms.iter().find(|a| matches!(a, Arm::Build(n) if !builds.contains(n))) {
            return Err(Error::Request(format!("there is no --library for the arm {}", Arm::Build(*n))));
        }
        let off = arms.iter().position(|arm| *arm == Arm::Off);
        let build = arms.iter().position(|arm| matches!(arm, Arm::Build(_)));
        let Some(baseline) = off.or(build) else {
            return refused("--arms needs off: that is what the others are compared with");
        };
        arms[..=baseline].rotate_right(1);
        if mode == Mode::Cost && build.is_some() {
            return refused(
                "cost flips a setting inside a session, and builds are on servers of their own: use throughput or restart",
            );
        }
        if arms.len() < 2 && (mode == Mode::Cost || build.is_some()) {
            return refused("--arms needs a second arm to compare with the first (off,off is allowed)");
        }
        Ok(arms)
    }
}

fn one_at_a_time() -> Error {
    Error::Request("--start-at is for one run of one workload: start each with a time of its own".to_owned())
}

/// Whether several machines can run this in step.
fn check_start(mode: Mode, request: &Request) -> Result<()> {
    if !matches!(mode, Mode::Cost | Mode::Throughput | Mode::Sweep) {
        return Err(Error::Request("--start-at is for cost, throughput and sweep".to_owned()));
    }
    if request.until_width.is_some() {
        return Err(Error::Request(
            "--until-width ends a run when this machine has seen enough, and with --start-at all have to end alike: leave \
             one out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Of the first part of a run without arguments.
const QUICK_COST: Duration = Duration::from_secs(25);

fn default_duration(mode: Mode, request: &Request) -> Duration {
    Duration::from_secs(match mode {
        Mode::Calibrate => 120,
        _ if request.until_width.is_some() => 600,
        Mode::Cost => 40,
        Mode::Restart => 120,
        Mode::Throughput | Mode::Sweep | Mode::Latency | Mode::Pgbench => 50,
    })
}

/// In an open loop a session that waits is not to keep the next transaction waiting; in a calibration a second one would
/// make the first faster or slower.
fn default_clients(mode: Mode, cpus: usize) -> usize {
    match mode {
        Mode::Latency => 4 * cpus,
        Mode::Calibrate => 1,
        _ => cpus,
    }
}

fn seed_from_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64 % 1_000_000)
}

fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 1 to 86400".to_owned()),
    }
}

fn parse_rate(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1.0..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("a number from 1 to 1000000".to_owned()),
    }
}

fn parse_setting(text: &str) -> std::result::Result<(String, String), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name.chars().all(is_name) && !value.contains('\n') => {
            // As the server does, whose names have no capitals that matter.
            Ok((name.to_ascii_lowercase(), value.to_owned()))
        }
        _ => Err("a server setting is given as name=value".to_owned()),
    }
}

fn as_seconds<S: serde::Serializer>(
    duration: &Duration,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(arguments: &[&str]) -> Result<Vec<Plan>> {
        let all = ["pgss_rs_load"].iter().chain(arguments);
        Arguments::try_parse_from(all).map_err(|e| Error::Request(e.to_string()))?.plans(2)
    }

    #[test]
    fn machines_in_step_have_a_seed_in_common_and_one_run() {
        let parse = |rest: &str| {
            let words = format!("pgss_rs_load {rest} --dsn host=h --start-at 2000000000");
            Arguments::try_parse_from(words.split(' ').collect::<Vec<_>>())
        };
        let plans = |rest: &str| parse(rest).unwrap().plans(2);
        assert_eq!(plans("throughput --seed 7").unwrap()[0].request.start_at, Some(2_000_000_000));
        assert!(parse("throughput").is_err());
        for (refused, reason) in [
            ("latency --seed 7 --rate-per-second 5", "is for cost, throughput"),
            ("throughput --seed 7 --until-width 1%", "leave one out"),
            ("cost --seed 7 --workload now --workload select-1", "one workload"),
            ("--experiment sample-rate --seed 7", "one workload"),
        ] {
            let error = plans(refused).unwrap_err().to_string();
            assert!(error.contains(reason), "{refused}: {error}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn without_arguments_both_questions_are_asked() {
        let plans = plans(&["--pg-config", "/somewhere/pg_config"]).unwrap();
        let what: Vec<_> = plans.iter().map(|p| (p.mode, p.workload, p.clients)).collect();
        assert_eq!(what, [(Mode::Cost, Workload::Now, 2), (Mode::Throughput, Workload::Now, 2)]);
        assert_eq!(plans[1].request.experiment, Some(Experiment::SampleRate));
    }

    #[test]
    fn builds_are_compared_with_the_first() {
        let file = std::env::current_exe().unwrap();
        let file = file.to_str().unwrap();
        let arms = |more: &[&str]| {
            let given = [&["--library", file, "--library", file], more].concat();
            let plan = plans(&given).map(|mut plans| plans.remove(0));
            plan.map(|plan| (plan.mode, plan.arms.iter().map(Arm::to_string).collect::<Vec<_>>().join(",")))
        };
        assert_eq!(arms(&[]).unwrap(), (Mode::Throughput, "A,B".to_owned()));
        assert_eq!(arms(&["restart", "--arms", "B,off,A"]).unwrap(), (Mode::Restart, "off,B,A".to_owned()));
        assert_eq!(arms(&["--arms", "pgss_rs,B,A"]).unwrap().1, "B,pgss_rs,A");
        assert!(arms(&["--arms", "A,C"]).unwrap_err().to_string().contains("no --library for the arm C"));
        assert!(arms(&["cost"]).unwrap_err().to_string().contains("use throughput"));
        assert!(arms(&["--arms", "A"]).unwrap_err().to_string().contains("second arm"));
        let alone = plans(&["--library", file]).unwrap().remove(0);
        assert_eq!(alone.arms, [Arm::Off, Arm::Build(0)]);
    }

    #[test]
    fn settings_that_would_do_nothing_or_undo_the_arms_are_refused() {
        let error = |arguments: &[&str]| plans(arguments).unwrap_err().to_string();
        assert!(error(&["--setting", "Port=5433"]).contains("their own"));
        let rate = ["throughput", "--setting", "pgss_rs.sample_rate=0.5"];
        assert!(error(&rate).contains("pgss_rs@RATE"));
        let track = ["--setting", "pgss_rs.track=all"];
        assert!(error(&[&["cost"][..], &track].concat()).contains("use throughput"));
        let plan = |arguments: &[&str]| plans(arguments).unwrap().remove(0);
        assert_eq!(plan(&[&["throughput"][..], &track].concat()).preloads(), None);
        let besides = plan(&["throughput", "--setting", "shared_preload_libraries=auto_explain"]);
        assert_eq!(besides.preloads(), Some("auto_explain"));
    }

    #[test]
    fn all_runs_have_one_seed_and_it_repeats_them() {
        let seeds = |arguments: &[&str]| -> Vec<u64> {
            let all = ["pgss_rs_load"].iter().chain(arguments);
            let plans = Arguments::parse_from(all).seeded().plans(2).unwrap();
            plans.iter().map(|plan| plan.seed).collect()
        };
        let drawn = seeds(&["cost", "--workload", "now", "--workload", "select-1"]);
        assert_eq!(drawn[0], drawn[1]);
        assert_eq!(seeds(&["--seed", "7"]), [7, 7]);
    }

    #[test]
    fn cost_is_the_default_mode() {
        let plans = plans(&["--workload", "tpcb", "--workload", "select-1", "--duration", "30"]).unwrap();
        assert_eq!(plans.len(), 2);
        assert!(plans.iter().all(|p| p.mode == Mode::Cost && p.duration == Duration::from_secs(15)));
    }

    #[test]
    fn off_is_the_first_arm() {
        let plans = plans(&["throughput", "--arms", "pgss_rs,pgss_rs@0.1,off"]).unwrap();
        let names: Vec<String> = plans[0].arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["off", "pgss_rs", "pgss_rs@0.1"]);
    }

    #[test]
    fn a_sweep_goes_from_all_to_nothing() {
        let plans = plans(&["sweep"]).unwrap();
        let names: Vec<String> = plans[0].arms.iter().map(Arm::to_string).collect();
        assert_eq!(names, ["off", "pgss_rs", "pgss_rs@0.8", "pgss_rs@0.5", "pgss_rs@0.2", "pgss_rs@0"]);
    }

    #[test]
    fn distinct_statements_are_sent_by_the_simple_protocol_and_never_prepared() {
        let protocols = |arguments: &[&str]| -> Vec<Protocol> {
            plans(arguments).unwrap().iter().map(|p| p.protocol).collect()
        };
        let mixed = ["throughput", "--workload", "churn", "--workload", "tpcb"];
        assert_eq!(protocols(&mixed), [Protocol::Simple, Protocol::Prepared]);
        assert_eq!(protocols(&["--experiment", "planner-mail"]), [Protocol::Simple; 4]);
        assert_eq!(protocols(&["--workload", "zipf", "--protocol", "extended"]), [Protocol::Extended]);
        let refused = plans(&["--workload", "within-max", "--protocol", "prepared"]).unwrap_err().to_string();
        assert!(refused.starts_with("within-max has too many") && refused.contains("extended"), "{refused}");
    }

    #[test]
    fn an_open_loop_has_a_rate_and_sessions_to_spare() {
        let plan = plans(&["latency", "--rate-per-second", "5000"]).unwrap().remove(0);
        let open_loop = plan.open_loop.unwrap();
        assert_eq!((open_loop.rate_per_second, open_loop.arrivals), (5000.0, Arrivals::Poisson));
        assert_eq!((plan.workload, plan.clients), (Workload::SelectOnly, 8));
        assert_eq!(plans(&["sweep"]).unwrap()[0].open_loop, None);
        let error = |arguments: &[&str]| plans(arguments).unwrap_err().to_string();
        assert!(error(&["latency"]).contains("needs --rate-per-second"));
        assert!(error(&["throughput", "--arrivals", "constant"]).contains("are for latency"));
        assert!(error(&["latency", "--rate-per-second", "-5"]).contains("from 1 to 1000000"));
    }

    #[test]
    fn a_saved_report_is_read_by_commands_of_their_own() {
        let command = |arguments: &[&str]| {
            let all = ["pgss_rs_load"].iter().chain(arguments);
            Arguments::try_parse_from(all).map(|a| a.command).map_err(|e| e.to_string())
        };
        assert!(matches!(command(&["report", "a.json"]), Ok(Some(Command::Report { .. }))));
        let Ok(Some(Command::Merge { files, output })) =
            command(&["merge", "a.json", "b.json", "--html", "c.html"])
        else {
            panic!("no merge")
        };
        assert_eq!((files.len(), output.html.is_some()), (2, true));
        assert!(command(&["merge", "a.json"]).unwrap_err().contains("2 values"));
        assert!(matches!(command(&["cost"]), Ok(None)));
    }

    #[test]
    fn bad_input_is_told_what_is_allowed() {
        let error = |arguments: &[&str]| plans(arguments).unwrap_err().to_string();
        assert!(error(&["throughput", "--arms", "pgss_rs"]).contains("needs off"));
        assert!(error(&["cost", "--arms", "off"]).contains("second arm"));
        assert!(error(&["sweep", "--arms", "off,pgss_rs"]).contains("own arms"));
        assert!(error(&["--workload", "none"]).contains("select-only"));
        assert!(error(&["--duration", "0"]).contains("from 1 to 86400"));
        assert!(error(&["--setting", "work_mem"]).contains("name=value"));
        assert!(error(&["--max-entries", "99"]).contains("100..=1073741823"));
        assert!(error(&["speed"]).contains("throughput"));
        assert!(error(&["calibrate", "--at-most", "1%"]).contains("are for cost, throughput"));
    }
}
