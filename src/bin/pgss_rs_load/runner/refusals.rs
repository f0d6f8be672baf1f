//! What a throwaway server refuses of what the user wants it to have: settings and libraries. Found out before any load, on
//! servers without tables that are gone again at once.

use super::{PRELOAD, Server};
use crate::arm::{Arm, Installation, Module};
use crate::cli::Plan;
use crate::client::Session;
use crate::cluster::{self, Cluster};
use crate::error::{Error, Result, tell};
use crate::report::grid::wrapped;

/// Starts a server for each kind of arm, where there is something that it may refuse.
pub fn check(plans: &[Plan], installation: &Installation) -> Result<()> {
    let Some(first) = plans.first() else { return Ok(()) };
    let mut arms: Vec<Arm> = Vec::new();
    for arm in plans
        .iter()
        .flat_map(|plan| installation.available(&plan.arms).map_or_else(|_| Vec::new(), |(a, _)| a))
    {
        let is_like = |other: &Arm| match (other, &arm) {
            (Arm::Build(a), Arm::Build(b)) => a == b,
            (Arm::Build(_), _) | (_, Arm::Build(_)) => false,
            _ => other.module() == arm.module(),
        };
        if (!first.settings.is_empty() || matches!(arm, Arm::Build(_))) && !arms.iter().any(is_like) {
            arms.push(arm);
        }
    }
    let mut unknown: Vec<&str> = first.settings.iter().map(|(name, _)| name.as_str()).collect();
    for arm in &arms {
        let server = Server::bare(first, installation, *arm)?;
        let mut session = server.connect()?;
        let log = server.cluster().map(Cluster::log).unwrap_or_default();
        check_file(&mut session, &first.settings, &log)?;
        let known = session.query("SELECT lower(name) FROM pg_settings")?;
        let known: Vec<String> = known.into_iter().flatten().flatten().collect();
        unknown.retain(|name| !known.contains(&name.to_ascii_lowercase()));
    }
    unknown.iter().try_for_each(|name| nobody_reads(name))
}

/// Values of a module's settings are no reason for the server not to start: it warns in its log, and takes the default.
fn check_file(session: &mut Session, settings: &[(String, String)], log: &str) -> Result<()> {
    let refused = session.query("SELECT lower(name), error FROM pg_file_settings WHERE error IS NOT NULL")?;
    for row in refused {
        let [Some(name), Some(error)] = &row[..] else { continue };
        if let Some(given) = settings.iter().find(|(given, _)| given == name) {
            return Err(refused_because(given, reason(name, log).unwrap_or(error)));
        }
    }
    Ok(())
}

fn refused_because((name, value): &(String, String), reason: &str) -> Error {
    Error::Request(format!("--setting {name}={value}: the server refuses it: {reason}"))
}

/// What a log says about a setting.
fn reason<'a>(name: &str, log: &'a str) -> Option<&'a str> {
    let named = format!("\"{name}\"");
    let message = |line: &'a str| {
        let (_, message) =
            ["FATAL:  ", "WARNING:  ", "LOG:  "].iter().find_map(|level| line.split_once(level))?;
        message.to_ascii_lowercase().contains(&named).then_some(message.trim())
    };
    // Where in the file it stands is none of the user's business.
    log.lines().find_map(message).map(|message| message.split(" in file \"").next().unwrap_or(message))
}

/// A setting that no server knows: a mistake if it is one of the modules', else perhaps something that statements ask for.
fn nobody_reads(name: &str) -> Result<()> {
    let of = |module: &Module| name.to_ascii_lowercase().starts_with(&format!("{}.", module.name()));
    if let Some(module) = [Module::PgssRs, Module::PgStatStatements].iter().find(|module| of(module)) {
        let module = module.name();
        return Err(Error::Request(format!(
            "--setting {name}: no arm loads {module}, so nothing would read it: leave it out, or add the arm"
        )));
    }
    tell(wrapped(&format!(
        "pgss_rs_load: no server knows the setting {name}. It is set, but if a module is to read it, load that with \
         --setting shared_preload_libraries=..."
    )));
    Ok(())
}

/// What a server that did not start says about what it was given.
pub fn reworded(error: cluster::Error, plan: &Plan, arm: Arm) -> Error {
    let text = error.to_string();
    let settings = plan.settings.iter().filter(|(name, _)| name != PRELOAD);
    for setting in settings {
        if let Some(reason) = reason(&setting.0, &text) {
            return refused_because(setting, reason);
        }
    }
    let said = |level: &str| text.lines().rev().find_map(|line| Some(line.split_once(level)?.1.trim()));
    let Arm::Build(n) = arm else { return error.into() };
    let (Some(fatal), file) = (said("FATAL:  "), plan.request.libraries[usize::from(n)].display()) else {
        return error.into();
    };
    let detail = said("DETAIL:  ").map_or_else(String::new, |detail| format!(" {detail}"));
    let advice = if fatal.contains("incompatible library") {
        "build it for this server's major, or name the pg_config of its own with --pg-config"
    } else {
        "it has to be a module that shared_preload_libraries may name, built for this server"
    };
    let fatal = fatal.rsplit_once("\": ").map_or(fatal, |(_, reason)| reason);
    Error::Request(format!("--library {file}: the server cannot load it: {fatal}.{detail}\n{advice}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;

    fn refused(arguments: &[&str]) -> String {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let installation = Installation::of(pg_config.as_ref()).unwrap();
        let all = [&["pgss_rs_load", "throughput", "--arms=off,pgss_rs"], arguments].concat();
        match Arguments::parse_from(all).plans(1).and_then(|plans| check(&plans, &installation)) {
            Err(Error::Request(text)) => text,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn a_setting_that_the_server_refuses_is_told_with_its_reason() {
        let starts = |text: String, with: &str| assert!(text.starts_with(with), "{text}");
        starts(
            refused(&["--setting=shared_bufers=1GB"]),
            "--setting shared_bufers=1GB: the server refuses it: unrecognized configuration parameter",
        );
        starts(
            refused(&["--setting=work_mem=much"]),
            "--setting work_mem=much: the server refuses it: invalid value for parameter \"work_mem\"",
        );
        let bad_value = refused(&["--setting=pgss_rs.max=50"]);
        assert!(
            bad_value.contains("50 is outside the valid range for parameter \"pgss_rs.max\""),
            "{bad_value}"
        );
        let bad_choice = refused(&["--setting=pgss_rs.track=most"]);
        assert!(bad_choice.contains("invalid value for parameter \"pgss_rs.track\""), "{bad_choice}");
        starts(
            refused(&["--setting=pgss_rs.sampel_rate=1"]),
            "--setting pgss_rs.sampel_rate=1: the server refuses it",
        );
        starts(
            refused(&["--setting=pg_stat_statements.max=1000"]),
            "--setting pg_stat_statements.max: no arm loads pg_stat_statements",
        );
    }

    #[test]
    fn a_library_of_another_major_is_told_of_both() {
        let log = "the server did not start; its log ends:\n\
                   2026-01-01 [7] FATAL:  incompatible library \"/tmp/x/library0/pgss_rs.so\": version mismatch\n\
                   2026-01-01 [7] DETAIL:  Server is version 15, library is version 16.\n\
                   2026-01-01 [7] LOG:  database system is shut down";
        let arguments = ["pgss_rs_load", "--library", "/bin/sh"];
        let plan = Arguments::parse_from(arguments).plans(1).unwrap().remove(0);
        assert_eq!(
            reworded(cluster::Error::new(log), &plan, Arm::Build(0)).to_string(),
            "--library /bin/sh: the server cannot load it: version mismatch. Server is version 15, library is version 16.\n\
             build it for this server's major, or name the pg_config of its own with --pg-config"
        );
    }
}
