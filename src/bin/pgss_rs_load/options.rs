//! The options beyond a plain run: experiments, builds, scripts, when to stop and what to answer.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::remote::Target;
use crate::script::Script;

/// How shared libraries begin: ELF, and Mach-O for one architecture or several.
const LIBRARY_MAGIC: [[u8; 4]; 3] =
    [*b"\x7fELF", 0xfeed_facf_u32.to_le_bytes(), 0xcafe_babe_u32.to_be_bytes()];

#[derive(Clone, Debug, Default, Args)]
pub struct Measuring {
    /// A published measurement, repeated here; its table is printed beside ours
    #[arg(long, value_name = "NAME", conflicts_with_all = ["mode", "workloads", "libraries", "scripts"])]
    pub experiment: Option<Experiment>,

    /// A build of a library to preload, by its file, called A; several, A, B and so on, are compared with the first
    #[arg(long = "library", value_name = "FILE")]
    pub libraries: Vec<PathBuf>,

    /// A script in pgbench's language; of several, each transaction takes one by their weights
    #[arg(short = 'f', long = "file", value_name = "FILE[@WEIGHT]", conflicts_with = "workloads")]
    pub scripts: Vec<String>,

    /// A variable of the scripts
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE", value_parser = parse_definition)]
    pub definitions: Vec<(String, String)>,

    /// An existing server instead of throwaway ones: a URI or key=value pairs. off means there that nothing is tracked
    #[arg(long, value_name = "CONNECTION")]
    pub dsn: Option<String>,

    /// On an existing server, allows to create tables (in a schema of their own, dropped at the end) and to run scripts
    #[arg(long, requires = "dsn")]
    pub allow_writes: bool,

    /// When the load begins, in seconds since 1970: for several driver machines against one server, all with this and --seed
    #[arg(long, value_name = "SECONDS", requires_all = ["dsn", "seed"])]
    pub start_at: Option<u64>,

    /// SQL that is executed on each throwaway server before the load, such as tables for the scripts
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,

    /// Stops as soon as the 95 % interval of every change is no wider than this; --duration is then the limit
    #[arg(long, value_name = "PERCENT")]
    pub until_width: Option<Percent>,

    /// Answers whether the loss is at most this. Exit status 0: yes, 3: no, 4: not enough data
    #[arg(long, value_name = "PERCENT")]
    pub at_most: Option<Percent>,

    /// Advises on the sample rate that keeps the loss below this, in sweep and in the sample-rate experiment
    #[arg(long, value_name = "PERCENT")]
    pub budget: Option<Percent>,
}

/// What of the options a run needs, read and checked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Request {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Experiment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<Weighted>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    pub allow_writes: bool,
    /// Seconds since 1970. Then other machines load the same server at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<u64>,
    /// The SQL itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_width: Option<Percent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<Percent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Percent>,
}

/// A script and how often it comes among its like.
#[derive(Clone, Debug, Serialize)]
pub struct Weighted {
    pub file: String,
    pub weight: u32,
    #[serde(skip)]
    pub script: Arc<Script>,
}

impl Measuring {
    /// Reads the files.
    pub fn request(&self) -> Result<Request> {
        let init = match &self.init {
            Some(path) => Some(read(&path.to_string_lossy())?),
            None => None,
        };
        let scripts = self.scripts.iter().map(|given| weighted(given)).collect::<Result<Vec<_>>>()?;
        if !scripts.is_empty() && scripts.iter().all(|s| s.weight == 0) {
            return Err(Error::Request("at least one script needs a weight above 0".to_owned()));
        }
        self.libraries.iter().try_for_each(|library| is_library(library))?;
        let environment = |variable: &str| std::env::var(variable).ok();
        let target = self.dsn.as_ref().map(|dsn| Target::parse(dsn, environment)).transpose()?;
        Ok(Request {
            target,
            allow_writes: self.allow_writes,
            start_at: self.start_at,
            experiment: self.experiment,
            libraries: self.libraries.clone(),
            scripts,
            definitions: self.definitions.clone(),
            init,
            until_width: self.until_width,
            at_most: self.at_most,
            budget: self.budget,
        })
    }
}

/// `FILE` or `FILE@WEIGHT`; the last `@` counts.
fn weighted(given: &str) -> Result<Weighted> {
    let (file, weight) = match given.rsplit_once('@') {
        Some((file, weight)) => (file, weight),
        None => (given, "1"),
    };
    let weight = weight.parse().map_err(|_| {
        Error::Request(format!("--file {given}: the weight after @ is a whole number from 0 to {}", u32::MAX))
    })?;
    let script = Script::parse(&read(file)?).map_err(|e| Error::Request(format!("{file}:{e}")))?;
    Ok(Weighted { file: file.to_owned(), weight, script: Arc::new(script) })
}

/// Whether it may be a build of a module; what the server thinks of it shows when it loads it.
fn is_library(path: &Path) -> Result<()> {
    let refused = |why: String| {
        Err(Error::Request(format!(
            "--library {}: {why}. Give the library's file, such as target/release/libpgss_rs.so",
            path.display()
        )))
    };
    if path.is_dir() {
        return refused("this is a directory".to_owned());
    }
    let mut magic = [0; 4];
    match File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if LIBRARY_MAGIC.contains(&magic) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => refused("there is no such file".to_owned()),
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => refused(format!("cannot be read: {e}")),
        _ => refused("this is no shared library".to_owned()),
    }
}

fn read(path: &str) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Error::Request(format!("cannot read {path}: {e}")))?;
    String::from_utf8(bytes).map_err(|_| Error::Request(format!("{path} is not UTF-8 text")))
}

fn parse_definition(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if crate::script::is_variable_name(name) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("a variable is defined as name=value; names are letters, digits and _".to_owned()),
    }
}

/// A share in percent, above 0 and at most 100; `0.5%` and `0.5` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percent(pub f64);

impl Percent {
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.trim().trim_end_matches('%').trim_end().parse() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Percent(percent)),
            _ => Err("a percentage above 0 and at most 100, such as 0.5%".to_owned()),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_with_and_without_their_sign() {
        for text in ["0.5", "0.5%", " 0.5 % "] {
            assert_eq!(text.parse(), Ok(Percent(0.5)));
        }
        for text in ["", "0", "-1", "101%", "NaN", "1 in 100"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }

    #[test]
    fn definitions_are_names_and_values() {
        assert_eq!(parse_definition("n=1=2"), Ok(("n".to_owned(), "1=2".to_owned())));
        assert!(parse_definition("1n=2").is_err() && parse_definition("n").is_err());
    }

    #[test]
    fn what_is_no_library_is_told_why() {
        let error = |path: &str| is_library(Path::new(path)).unwrap_err().to_string();
        assert!(error("/nowhere/x.so").contains("there is no such file"));
        assert!(error("/").contains("a directory"));
        assert!(error(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).contains("no shared library"));
        assert!(is_library(&std::env::current_exe().unwrap()).is_ok());
    }

    #[test]
    fn a_weight_that_is_no_number_is_refused() {
        let error = |given| weighted(given).unwrap_err().to_string();
        assert!(error("x.sql@many").contains("a whole number"));
        assert!(error("/nowhere/x.sql@2").contains("cannot read /nowhere/x.sql"));
    }
}
