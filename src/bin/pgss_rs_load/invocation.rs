//! How this driver was called, so that the commands it prints work where they are read.

use std::env;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches};

use crate::arm::Arm;
use crate::cli::{self, Arguments};
use crate::report::grid::WIDTH;

/// As the alias in `.cargo/config.toml` calls it.
const BY_CARGO: &str = "cargo load --";

#[derive(Clone, Debug)]
pub struct Invocation {
    /// What stands before the arguments.
    program: String,
}

impl Invocation {
    pub fn here() -> Self {
        // `cargo run`, and so `make bench`, says where the package is.
        let package = env::var_os("CARGO_MANIFEST_DIR");
        let within = |directory| env::current_dir().is_ok_and(|here| here.starts_with(directory));
        let name = env::args().next().unwrap_or_else(|| "pgss_rs_load".to_owned());
        Self::of(&name, package.as_ref().is_some_and(|directory| within(Path::new(directory))))
    }

    pub fn of(name: &str, by_cargo: bool) -> Self {
        Invocation { program: if by_cargo { BY_CARGO.to_owned() } else { quoted(name) } }
    }

    /// The arguments it was called with; ends the program where they make no sense, or help was asked for.
    pub fn arguments(&self) -> Arguments {
        let examples = cli::EXAMPLES.replace("  pgss_rs_load", &format!("  {}", self.program));
        let command = Arguments::command().bin_name(&self.program).max_term_width(100).after_help(examples);
        let parsed = Arguments::from_arg_matches(&command.get_matches());
        parsed.unwrap_or_else(|error| error.exit())
    }

    /// The whole command that puts the same load on the same kind of server in another way. `more`: what else it is to be told.
    ///
    /// Indented, and with a backslash at the ends of lines, where there are several, as a shell goes on after.
    pub fn command(&self, arguments: &Arguments, more: &[&str]) -> String {
        let words = [more.join(" ")].into_iter().chain(load(arguments));
        let (mut text, mut width) = (format!("    {}", self.program), 4 + self.program.len());
        for word in words {
            if width + word.len() + " \\".len() >= WIDTH {
                text += " \\\n       ";
                width = 7;
            }
            text += " ";
            text += &word;
            width += 1 + word.len();
        }
        text
    }
}

/// The options that say which server, and which load, each with its value.
fn load(arguments: &Arguments) -> Vec<String> {
    let measuring = &arguments.measuring;
    let mut words = Vec::new();
    let mut say = |option: &str, value: &str| words.push(format!("{option} {}", quoted(value)));
    if arguments.pg_config != Path::new("pg_config") {
        say("--pg-config", &arguments.pg_config.to_string_lossy());
    }
    if let Some(dsn) = &measuring.dsn {
        say("--dsn", dsn);
    }
    arguments.workloads.iter().for_each(|workload| say("--workload", &workload.name()));
    measuring.scripts.iter().for_each(|script| say("-f", script));
    measuring.definitions.iter().for_each(|(name, value)| say("-D", &format!("{name}={value}")));
    if let Some(init) = &measuring.init {
        say("--init", &init.to_string_lossy());
    }
    if !arguments.arms.is_empty() {
        say("--arms", &arguments.arms.iter().map(Arm::to_string).collect::<Vec<_>>().join(","));
    }
    if let Some(protocol) = arguments.protocol {
        say("--protocol", &protocol.name());
    }
    let counts = [
        ("--clients", arguments.clients),
        ("--scale", arguments.scale),
        ("--max-entries", arguments.max_entries),
    ];
    for (option, count) in counts {
        if let Some(count) = count {
            say(option, &count.to_string());
        }
    }
    arguments.settings.iter().for_each(|(name, value)| say("--setting", &format!("{name}={value}")));
    let flags = [("--no-pin", arguments.no_pin), ("--allow-writes", measuring.allow_writes)];
    words.extend(flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned()));
    words
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_command_has_the_load_of_the_arguments_as_a_shell_reads_it() {
        let given = [
            "pgss_rs_load",
            "cost",
            "--pg-config=/opt/pg 15/bin/pg_config",
            "--workload=tpcb",
            "--clients=4",
            "--scale=10",
            "--seed=7",
            "--arms=off,pgss_rs",
            "--setting=application_name=it's",
            "--json=out.json",
            "--duration=5",
        ];
        let command = |name, by_cargo| {
            Invocation::of(name, by_cargo)
                .command(&Arguments::parse_from(given), &["sweep", "--budget", "1%"])
        };
        assert_eq!(
            command("target/release/pgss_rs_load", true),
            "    cargo load -- sweep --budget 1% --pg-config '/opt/pg 15/bin/pg_config' --workload tpcb \\\n        \
             --arms off,pgss_rs --clients 4 --scale 10 --setting 'application_name=it'\\''s'"
        );
        let direct = command("./pgss_rs_load", false);
        assert!(direct.starts_with("    ./pgss_rs_load sweep --budget 1% --pg-config "), "{direct}");
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let given = "cost -f read.sql@9 -f write.sql -D n=1 --dsn host=/tmp --allow-writes --no-pin --protocol simple";
        let given: Vec<&str> = ["pgss_rs_load"].into_iter().chain(given.split(' ')).collect();
        let printed = Invocation::of("x", false).command(&Arguments::parse_from(given), &["throughput"]);
        let again = Arguments::parse_from(printed.replace('\\', "").split_whitespace());
        assert_eq!(again.measuring.scripts, ["read.sql@9", "write.sql"]);
        assert_eq!(again.measuring.dsn.as_deref(), Some("host=/tmp"));
        assert!(again.measuring.allow_writes && again.no_pin && again.mode == Some(cli::Mode::Throughput));
    }
}
