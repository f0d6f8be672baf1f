//! pgss_rs_load, the load driver: what do statement statistics cost on this box, with this workload?
//!
//! Data flows one way: the command line ([`cli`]) becomes plans; a [`runner`] starts servers ([`cluster`]), opens
//! sessions ([`client`]) that run transactions ([`workload`]) in the order of a [`schedule`]; [`stats`] turns samples into
//! effects with intervals; [`report`] shows them. Nothing here needs the extension's own code.

mod arm;
mod arrivals;
mod cli;
mod client;
mod cluster;
mod env;
mod error;
mod report;
mod runner;
mod schedule;
mod stats;
mod workload;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use arm::Installation;
use cli::Arguments;
use env::Machine;
use error::{Error, Result};
use report::Report;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(command) => command.run(),
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pgss_rs_load: {error}");
            error.exit_code()
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    ctrlc::set_handler(error::interrupt).map_err(|e| Error::Failed(format!("cannot catch Ctrl-C: {e}")))?;
    let machine = Machine::here();
    let plans = arguments.plans(machine.cpus)?;
    let installation = Installation::of(&arguments.pg_config)?;
    for plan in &plans {
        installation.available(&plan.arms)?;
    }
    let mut report = Report::new(machine, installation.version.clone());
    // Before the first run as well: a file that cannot be written should not be found out after minutes.
    let save = |report: &Report| arguments.output.write(&report.json()?);
    save(&report)?;
    show(&report.machine_text())?;
    for plan in plans {
        let run = runner::run(plan, &installation, &report.machine)?;
        show(&run.text())?;
        report.runs.push(run);
        save(&report)?;
    }
    Ok(())
}

fn show(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{}\n", text.trim_end())
        .map_err(|e| Error::Failed(format!("cannot write the report: {e}")))
}
