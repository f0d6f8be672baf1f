//! `throughput`: a server per arm, all up at once, the load on one at a time in short slices by turns.
//!
//! The sessions stay open throughout. Each round has every arm once and the baseline a second time: what the two slices
//! of the baseline differ by is the noise of this box.

use super::conservation::Ledger;
use super::rounds::{Division, Rounds};
use super::timed::Sessions;
use super::timetable::Timetable;
use super::watch::Watch;
use super::{Host, Server};
use crate::cli::Plan;
use crate::error::Result;
use crate::report::{Progress, Throughput};
use crate::schedule;

/// Limits of a slice, in seconds: long against a switch of servers, short against the moods of the box.
const SLICE: (f64, f64) = (0.25, 1.5);
/// Share of a slice's length that runs before it unmeasured.
const WARM_UP: f64 = 0.25;

pub fn run(plan: &Plan, host: &Host, progress: &Progress) -> Result<(Throughput, Vec<Server>)> {
    let (mut servers, mut watches, mut ledgers) = (Vec::new(), Vec::new(), Vec::new());
    for arm in &plan.arms {
        progress.say(format!("a server for {arm}"));
        let server = Server::on(host, plan, *arm)?;
        watches.push(Watch::open(&server)?);
        ledgers.push(Ledger::open(plan, &server)?);
        servers.push(server);
    }
    progress.say("warming up");
    let mut arms = servers.iter().map(|server| Sessions::open(plan, server)).collect::<Result<Vec<_>>>()?;
    for (watch, sessions) in watches.iter_mut().zip(&arms) {
        watch.begin(&sessions.backends())?;
    }
    let rounds = measure(plan, &mut arms, &mut watches, progress)?;

    progress.say("computing");
    let read = |(sessions, ledger): (&Sessions, &mut Option<Ledger>)| {
        ledger.as_mut().map(|ledger| ledger.read(sessions.sent())).transpose()
    };
    let conservation = arms.iter().zip(&mut ledgers).map(read).collect::<Result<_>>()?;
    drop(arms);
    let mut throughput = rounds.result(plan, conservation)?;
    for (arm, watch) in throughput.arms.iter_mut().zip(watches) {
        arm.watched = Some(watch.end()?);
    }
    Ok((throughput, servers))
}

fn measure(plan: &Plan, arms: &mut [Sessions], watches: &mut [Watch], progress: &Progress) -> Result<Rounds> {
    progress.say(format!("measuring throughput, {}", plan.workload_name()));
    // The entry after the last arm is the baseline again.
    let entries = arms.len() + 1;
    let division = Division::new(plan.duration, entries, SLICE, WARM_UP);
    let timetable = Timetable::new(plan.request.start_at, division)?;
    let mut rounds = Rounds::new(arms.len(), division)?;
    for (round, order) in schedule::rounds(entries, division.rounds, plan.seed).iter().enumerate() {
        for entry in order {
            let again = *entry == arms.len();
            let arm = if again { 0 } else { *entry };
            let sessions = &mut arms[arm];
            let warm_up = timetable.wait_for(rounds.slices.len() as u32)?;
            let sample = watches[arm].during(|| sessions.slice(warm_up, division.slice))?;
            rounds.push(round, arm, again, sample);
            progress.at(division.slice * rounds.slices.len() as u32);
        }
        if rounds.are_precise(plan) {
            break;
        }
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arm::Installation;
    use crate::cli::Arguments;

    fn run_here(arguments: &[&str]) -> (Throughput, Vec<Server>) {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let arguments = [&["pgss_rs_load"], arguments].concat();
        let plan = Arguments::parse_from(arguments).plans(2).unwrap().remove(0);
        let installation = Installation::of(pg_config.as_ref()).unwrap();
        run(&plan, &Host::Throwaway(&installation), &Progress::new(plan.duration)).unwrap()
    }

    #[test]
    fn a_short_churn_loses_no_call() {
        let (throughput, servers) = run_here(&[
            "throughput",
            "--workload=churn",
            "--clients=3",
            "--duration=1",
            "--arms=off,pgss_rs,pg_stat_statements",
            "--max-entries=200",
        ]);
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

    #[test]
    fn builds_run_beside_each_other_and_a_wide_enough_interval_ends_the_run() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let directory = crate::cluster::pg_config(pg_config.as_ref(), "--pkglibdir").unwrap();
        let library = format!("--library={directory}/pgss_rs.so");
        let width = "--until-width=100";
        let (throughput, servers) = run_here(&[&library, &library, "--clients=1", "--duration=60", width]);
        assert_eq!(throughput.arms.len(), 2);
        assert!(throughput.rounds < 30, "{}", throughput.rounds);
        for server in &servers {
            let mut session = server.connect().unwrap();
            let loaded = session.query("SHOW shared_preload_libraries").unwrap();
            assert!(loaded[0][0].as_ref().unwrap().ends_with("/pgss_rs.so\""), "{loaded:?}");
            // The build is at work, and not another copy.
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", session.backend_pid())).unwrap();
            assert!(maps.contains("library0/pgss_rs.so"), "{maps}");
        }
    }
}
