//! `calibrate`: the same against the same, twenty times, and costs of a known size in one arm, measured as `cost` measures.
//!
//! The costs are put into a throwaway server by a module of its own (`busy.c`), compiled for it here. One session is the
//! default: beside a second one what follows a loop of 10 us took 20 ns less or 100 ns more, according to how the two CPUs
//! shared caches in that minute, and nothing alone.

use std::path::Path;
use std::process::Command;

use super::Server;
use super::cost::{self, Client, Pair, Sample};
use crate::arm::{Arm, Installation};
use crate::calibration::{COMPARISONS, Calibration, Injected};
use crate::cli::Plan;
use crate::cluster;
use crate::error::{Error, Result};
use crate::report::Progress;
use crate::workload::Workload;

const MODULE: &str = include_str!("busy.c");
/// ns
const COSTS: [u32; 3] = [300, 1_000, 10_000];
/// Tells what the cost took in each statement since it was set.
const TOOK: &str = "SHOW pgss_rs_busy.took";
/// The share of the duration that goes into nothing against nothing.
const NOTHING: f64 = 0.5;

pub fn run(plan: &Plan, installation: &Installation, progress: &Progress) -> Result<Calibration> {
    let executes_once = matches!(plan.workload, Workload::Now | Workload::Select1 | Workload::SelectOnly);
    if !executes_once {
        return Err(Error::Request(
            "calibrate takes a workload of one SELECT: now, select-1 or select-only".to_owned(),
        ));
    }
    let plan = &mut plan.clone();
    let whole = plan.duration;
    progress.say("starting a server with a busy module");
    let servers = [start(plan, installation)?];
    let mut clients = (0..plan.clients)
        .map(|number| Client::new(plan, &servers, number))
        .collect::<Result<Vec<Client>>>()?;

    progress.say("nothing against nothing");
    let flip = |ns: u32| format!("SET pgss_rs_busy.ns = {ns}");
    let pair = |ns, known| Pair { server: 0, arm: None, flip: [flip(0), flip(ns)], known };
    plan.duration = whole.mul_f64(NOTHING / COMPARISONS as f64);
    let mut against_itself = Vec::new();
    for run in 0..COMPARISONS as u64 {
        clients.iter_mut().for_each(|client| client.reseed(plan.seed.wrapping_add(1000 * run)));
        let samples = cost::measure(&mut clients, &[pair(0, None)], plan, progress)?;
        against_itself.push(cost::effect(&samples, 0, Sample::main_ns, plan.seed.wrapping_add(run)));
    }

    progress.say("injected costs");
    plan.duration = whole.mul_f64(1.0 - NOTHING);
    let pairs = COSTS.map(|ns| pair(ns, Some(TOOK)));
    let mut samples = cost::measure(&mut clients, &pairs, plan, progress)?;
    cost::cut_warm_up(&mut samples, COSTS.len());
    let injected = COSTS.iter().enumerate().map(|(n, asked)| {
        let effect = |of| cost::effect(&samples, n, of, plan.seed);
        Injected {
            asked: *asked,
            took: cost::mean(&samples, n, Sample::known_ns),
            measured: effect(Sample::main_ns),
            elapsed: effect(Sample::wall_ns),
        }
    });
    let time = if cost::know_cpu(&samples) { "server CPU" } else { "elapsed time" };
    Ok(Calibration { time, against_itself, injected: injected.collect() })
}

fn start(plan: &Plan, installation: &Installation) -> Result<Server> {
    let directory = tempdir()?;
    let started = compile(&directory, installation).and_then(|library| {
        let mut builder = Server::builder(plan, installation)?.preload_file(&library);
        for (name, value) in &plan.settings {
            builder = builder.setting(name, value);
        }
        let server = Server::new(Arm::Off, builder.start()?);
        server.set_up(plan)?;
        Ok(server)
    });
    let _ = std::fs::remove_dir_all(directory);
    started
}

/// The compiled module's file.
fn compile(directory: &Path, installation: &Installation) -> Result<std::path::PathBuf> {
    let failed = |what: String| Error::Request(format!("calibrate compiles a small module, which {what}"));
    let (source, library) = (directory.join("pgss_rs_busy.c"), directory.join("pgss_rs_busy.so"));
    std::fs::write(&source, MODULE).map_err(|e| failed(format!("could not be written: {e}")))?;
    let headers = cluster::pg_config(&installation.pg_config, "--includedir-server")?;
    let output = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-I"])
        .arg(&headers)
        .arg(format!("-DSETTLE={}", cost::SETTLE))
        .arg("-o")
        .args([&library, &source])
        .output()
        .map_err(|e| failed(format!("takes a C compiler, cc: {e}")))?;
    if output.status.success() {
        return Ok(library);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or_default();
    Err(failed(format!("takes the server's headers in {headers}: {first}")))
}

fn tempdir() -> Result<std::path::PathBuf> {
    let path = std::env::temp_dir().join(format!("pgss_rs_busy.{}", std::process::id()));
    std::fs::create_dir_all(&path)
        .map_err(|e| Error::Failed(format!("cannot create {}: {e}", path.display())))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;

    #[test]
    fn a_large_injected_cost_is_there_and_nothing_is_not() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let installation = Installation::of(pg_config.as_ref()).unwrap();
        let headers = cluster::pg_config(pg_config.as_ref(), "--includedir-server").unwrap();
        if !Path::new(&headers).join("postgres.h").exists() {
            return; // a server without headers, as some of the tested majors'
        }
        let arguments = ["pgss_rs_load", "calibrate", "--clients=1", "--duration=2"];
        let plan = Arguments::parse_from(arguments).plans(1).unwrap().remove(0);
        let calibration = run(&plan, &installation, &Progress::new(plan.duration)).unwrap();
        assert_eq!(calibration.against_itself.len(), COMPARISONS);
        let [.., large] = &calibration.injected[..] else { panic!("no injected costs") };
        // How near it comes depends on the box; that a cost of 10 microseconds is seen does not.
        assert!((5_000.0..40_000.0).contains(&large.took), "{large:?}");
        assert!(large.measured.estimate > 5_000.0, "{large:?}");
        assert!(calibration.text().contains("| 10000 |"));
    }
}
