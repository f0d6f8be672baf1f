//! `restart`: one server, started anew for each slice with what the arm loads, the arms of a round in random order.
//!
//! Slower than `throughput`, but the arms share the data directory and everything in it, only one server is up at a time,
//! and what comes with a start, such as where memory happens to lie, is drawn anew each time.

use super::Server;
use super::rounds::{Division, Rounds};
use super::timed::Sessions;
use crate::arm::{Arm, Installation};
use crate::cli::Plan;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::report::{Progress, Throughput};
use crate::schedule;

/// Limits of a slice, in seconds: long against a start.
const SLICE: (f64, f64) = (1.0, 10.0);
/// Share of a slice's length that runs before it unmeasured: the caches of a new server are empty.
const WARM_UP: f64 = 0.5;

pub fn run(
    plan: &Plan,
    installation: &Installation,
    progress: &Progress,
) -> Result<(Throughput, Vec<Server>)> {
    let entries = plan.arms.len() + 1;
    let division = Division::new(plan.duration, entries, SLICE, WARM_UP);
    progress.say(division.said(entries));
    let mut server = Server::start(plan, installation, Arm::Off)?;
    let base = server.cluster().map(Cluster::configuration).unwrap_or_default();
    let preloads = plan.arms.iter().map(|arm| server.preload(plan, *arm)).collect::<Result<Vec<_>>>()?;
    let mut rounds = Rounds::new(plan.arms.len(), division)?;
    progress.say(format!("measuring throughput after restarts, {}", plan.workload_name()));
    for (round, order) in schedule::rounds(entries, division.rounds, plan.seed).iter().enumerate() {
        for entry in order {
            let again = *entry == plan.arms.len();
            let arm = if again { 0 } else { *entry };
            server.restart_as(plan.arms[arm], &base, &preloads[arm])?;
            let mut sessions = Sessions::open(plan, &server)?;
            let sample = sessions.slice(division.warm_up, division.slice)?;
            rounds.push(round, arm, again, sample);
            progress.at(division.slice * rounds.slices.len() as u32);
        }
        if rounds.are_precise(plan) {
            break;
        }
    }
    let result = rounds.result(plan, vec![None; plan.arms.len()])?;
    Ok((result, vec![server]))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;

    #[test]
    fn each_slice_has_a_server_with_what_its_arm_loads() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let directory = crate::cluster::pg_config(pg_config.as_ref(), "--pkglibdir").unwrap();
        let library = format!("--library={directory}/pgss_rs.so");
        let arguments = [
            "pgss_rs_load",
            "restart",
            "--workload=now",
            "--clients=1",
            "--duration=1",
            "--arms=off,pgss_rs@0.5,A",
            &library,
        ];
        let plan = Arguments::parse_from(arguments).plans(1).unwrap().remove(0);
        let installation = Installation::of(pg_config.as_ref()).unwrap();
        let mut server = Server::start(&plan, &installation, Arm::Off).unwrap();
        let base = server.cluster().map(Cluster::configuration).unwrap_or_default();
        let pid = server.connect().unwrap().query("SELECT pg_postmaster_start_time()").unwrap();
        for (arm, loaded, rate) in
            [(1, "pgss_rs", Some("0.5")), (0, "", None), (2, "library0/pgss_rs.so\"", Some("1"))]
        {
            let settings = server.preload(&plan, plan.arms[arm]).unwrap();
            server.restart_as(plan.arms[arm], &base, &settings).unwrap();
            let mut session = server.connect().unwrap();
            let libraries = session.query("SHOW shared_preload_libraries").unwrap()[0][0].clone().unwrap();
            assert!(
                libraries.ends_with(loaded) && (loaded.is_empty() == libraries.is_empty()),
                "{libraries}"
            );
            let setting = "SELECT setting FROM pg_settings WHERE name = 'pgss_rs.sample_rate'";
            let found = session.query(setting).unwrap().first().and_then(|row| row[0].clone());
            assert_eq!(found.as_deref(), rate);
            assert_ne!(session.query("SELECT pg_postmaster_start_time()").unwrap(), pid);
        }
    }
}
