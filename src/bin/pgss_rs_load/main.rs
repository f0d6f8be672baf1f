//! pgss_rs_load, the load driver: what do statement statistics cost on this box, with this workload?
//!
//! Data flows one way: the command line ([`cli`]) becomes plans; a [`runner`] starts servers ([`cluster`]), opens
//! sessions ([`client`]) that run transactions ([`workload`]) in the order of a [`schedule`]; [`stats`] turns samples into
//! effects with intervals; [`report`] shows them. Nothing here needs the extension's own code.

mod arm;
mod arrivals;
mod calibration;
mod cli;
mod client;
mod cluster;
mod efficiency;
mod env;
mod error;
mod experiment;
mod guest;
mod judgement;
mod options;
mod remote;
mod report;
mod runner;
mod schedule;
mod script;
mod stats;
mod workload;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use arm::Installation;
use cli::Arguments;
use env::Machine;
use error::{Error, Result};
use report::{Report, Results};
use runner::Site;
use stats::Answer;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(command) => command.run().map(|()| ExitCode::SUCCESS),
        None => run(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("pgss_rs_load: {error}");
            error.exit_code()
        }
    }
}

/// The exit status.
fn run(arguments: &Arguments) -> Result<ExitCode> {
    ctrlc::set_handler(error::interrupt).map_err(|e| Error::Failed(format!("cannot catch Ctrl-C: {e}")))?;
    let machine = Machine::here();
    let plans = arguments.plans(machine.cpus)?;
    let site = match plans.iter().find_map(|plan| plan.request.target.clone()) {
        Some(target) => Site::Existing(target),
        None => Site::Throwaway(Installation::of(&arguments.pg_config)?),
    };
    for plan in &plans {
        site.available(&plan.arms)?;
    }
    let mut report = Report::new(machine, site.version()?);
    // Before the first run as well: a file that cannot be written should not be found out after minutes.
    let save = |report: &Report| arguments.output.write(&report.json()?);
    save(&report)?;
    show(&report.machine_text())?;
    for plan in plans {
        let run = runner::run(plan, &site, &report.machine)?;
        show(&run.text())?;
        report.runs.push(run);
        save(&report)?;
    }
    report.compare_with_published();
    if let Some(beside) = &report.beside {
        show(&beside.text())?;
        save(&report)?;
    }
    Ok(exit_code(&report))
}

/// Of answers that were asked for. Documented in the command's help.
fn exit_code(report: &Report) -> ExitCode {
    let calibrated = report.runs.iter().all(|run| match &run.results {
        Results::Calibration(calibration) => calibration.passed(),
        _ => true,
    });
    match report.runs.iter().filter_map(|run| run.answer).reduce(Answer::and) {
        _ if !calibrated => ExitCode::FAILURE,
        Some(Answer::No) => ExitCode::from(3),
        Some(Answer::NotEnoughData) => ExitCode::from(4),
        Some(Answer::Yes) | None => ExitCode::SUCCESS,
    }
}

fn show(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{}\n", text.trim_end())
        .map_err(|e| Error::Failed(format!("cannot write the report: {e}")))
}
