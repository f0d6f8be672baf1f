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
mod invocation;
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

use arm::Installation;
use cli::Arguments;
use env::Machine;
use error::{Error, Result};
use invocation::Invocation;
use report::grid::wrapped;
use report::{Report, Results};
use runner::Site;
use stats::Answer;

fn main() -> ExitCode {
    let invocation = Invocation::here();
    let arguments = invocation.arguments().seeded();
    let done = match &arguments.command {
        Some(command) => command.run().map(|()| ExitCode::SUCCESS),
        None => run(&arguments, &invocation),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            if !matches!(error, Error::Unread) {
                error::tell(wrapped(&format!("pgss_rs_load: {error}")));
            }
            error.exit_code()
        }
    }
}

/// The exit status.
fn run(arguments: &Arguments, invocation: &Invocation) -> Result<ExitCode> {
    ctrlc::set_handler(error::interrupt).map_err(|e| Error::Failed(format!("cannot catch Ctrl-C: {e}")))?;
    let machine = Machine::here();
    let plans = arguments.plans(machine.cpus)?;
    arguments.output.check()?;
    let site = match plans.iter().find_map(|plan| plan.request.target.clone()) {
        Some(target) => Site::Existing(target),
        None => Site::Throwaway(Installation::of(&arguments.pg_config)?),
    };
    for plan in &plans {
        site.available(plan)?;
    }
    site.check(&plans)?;
    let mut report = Report::new(machine, site.version()?);
    show(&report.machine_text(arguments.seed()))?;
    for plan in plans {
        report.runs.push(runner::run(plan, &site, &report.machine)?);
        // What cannot be saved is shown all the same.
        let saved = report.json().and_then(|json| arguments.output.write(&json));
        report.runs.last().map_or(Ok(()), |run| show(&run.text()))?;
        saved?;
    }
    report.compare_with_published();
    if let Some(beside) = &report.beside {
        show(&beside.text())?;
        arguments.output.write(&report.json()?)?;
    }
    if let Some(next) = judgement::next_step(&report.runs, arguments, invocation) {
        show(&next)?;
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
    writeln!(io::stdout(), "{}\n", text.trim_end()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Error::Unread,
        _ => Error::Failed(format!("cannot write the report: {e}")),
    })
}
