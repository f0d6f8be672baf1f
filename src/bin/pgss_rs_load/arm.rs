//! The arms: what is compared with what. `off` is the baseline of every comparison.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::cluster;
use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arm {
    /// Nothing is recorded. In `cost` the module is loaded and told not to track; in `throughput` no module is loaded.
    Off,
    /// This extension, looking at this share of the statements (0 to 1).
    PgssRs { rate: f64 },
    /// The contrib module.
    PgStatStatements,
    /// A build given with `--library`, counted from 0: `A`, `B` and so on.
    Build(u8),
}

impl Arm {
    /// The installed module it needs in `shared_preload_libraries`. A build is not an installed one.
    pub fn module(self) -> Option<Module> {
        match self {
            Arm::Off | Arm::Build(_) => None,
            Arm::PgssRs { .. } => Some(Module::PgssRs),
            Arm::PgStatStatements => Some(Module::PgStatStatements),
        }
    }

    /// Settings for a server that is to run this arm only, beside `shared_preload_libraries`.
    pub fn settings(self) -> Vec<(String, String)> {
        match self {
            Arm::Off | Arm::Build(_) => vec![],
            Arm::PgssRs { rate } => vec![
                ("pgss_rs.track".to_owned(), "top".to_owned()),
                ("pgss_rs.sample_rate".to_owned(), rate.to_string()),
            ],
            Arm::PgStatStatements => vec![("pg_stat_statements.track".to_owned(), "top".to_owned())],
        }
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arm::Off => f.write_str("off"),
            Arm::PgssRs { rate: 1.0 } => f.write_str("pgss_rs"),
            Arm::PgssRs { rate } => write!(f, "pgss_rs@{rate}"),
            Arm::PgStatStatements => f.write_str("pg_stat_statements"),
            Arm::Build(n) => write!(f, "{}", char::from(b'A' + n)),
        }
    }
}

impl Serialize for Arm {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Arm {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "off" => return Ok(Arm::Off),
            "pgss_rs" => return Ok(Arm::PgssRs { rate: 1.0 }),
            "pg_stat_statements" => return Ok(Arm::PgStatStatements),
            _ => {}
        }
        if let [letter @ b'A'..=b'Z'] = text.as_bytes() {
            return Ok(Arm::Build(letter - b'A'));
        }
        match text.strip_prefix("pgss_rs@").map(str::parse) {
            Some(Ok(rate)) if (0.0..=1.0).contains(&rate) => Ok(Arm::PgssRs { rate }),
            Some(_) => Err("the sample rate after pgss_rs@ is a number from 0 to 1".to_owned()),
            None => Err("an arm is one of off, pgss_rs, pgss_rs@RATE, pg_stat_statements, or A, B, ... for each --library".to_owned()),
        }
    }
}

/// A module that records statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    PgssRs,
    PgStatStatements,
}

impl Module {
    /// The library's name.
    pub fn name(self) -> &'static str {
        match self {
            Module::PgssRs => "pgss_rs",
            Module::PgStatStatements => "pg_stat_statements",
        }
    }

    /// What [`Module::flip`] sets.
    pub fn settings(self) -> &'static [&'static str] {
        match self {
            Module::PgssRs => &["pgss_rs.track", "pgss_rs.sample_rate"],
            Module::PgStatStatements => &["pg_stat_statements.track"],
        }
    }

    /// The statement that brings a session of a server with this module into an arm. It sets the same settings for
    /// every arm, so that the flip itself costs the same.
    pub fn flip(self, arm: Arm) -> String {
        let track = if arm == Arm::Off { "none" } else { "top" };
        match self {
            Module::PgssRs => {
                let rate = if let Arm::PgssRs { rate } = arm { rate } else { 1.0 };
                format!("SET pgss_rs.track = '{track}'; SET pgss_rs.sample_rate = {rate}")
            }
            Module::PgStatStatements => format!("SET pg_stat_statements.track = '{track}'"),
        }
    }
}

/// The PostgreSQL installation under test.
#[derive(Debug)]
pub struct Installation {
    pub pg_config: PathBuf,
    /// Such as "PostgreSQL 15.4".
    pub version: String,
    library_dir: PathBuf,
}

impl Installation {
    pub fn of(pg_config: &Path) -> Result<Self> {
        let ask = |option| {
            cluster::pg_config(pg_config, option).map_err(|e| {
                Error::Request(format!("{e}\n--pg-config names the pg_config of the server to measure"))
            })
        };
        let (version, library_dir) = (ask("--version")?, PathBuf::from(ask("--pkglibdir")?));
        Ok(Installation { pg_config: pg_config.to_owned(), version, library_dir })
    }

    pub fn has(&self, module: Module) -> bool {
        ["so", "dylib"]
            .iter()
            .any(|suffix| self.library_dir.join(module.name()).with_extension(suffix).exists())
    }

    /// The arms that can be run here, and a note for each that cannot. Without pgss_rs there is nothing to measure.
    pub fn available(&self, arms: &[Arm]) -> Result<(Vec<Arm>, Vec<String>)> {
        let missing = |module: Module| arms.iter().any(|a| a.module() == Some(module)) && !self.has(module);
        if missing(Module::PgssRs) {
            return Err(Error::Request(format!(
                "pgss_rs is not installed for {}: make install PG_CONFIG={}",
                self.version,
                self.pg_config.display()
            )));
        }
        let mut notes = Vec::new();
        if missing(Module::PgStatStatements) {
            notes.push("pg_stat_statements is not installed for this server: its arm is left out".to_owned());
        }
        let arms = arms.iter().copied().filter(|arm| arm.module().is_none_or(|m| self.has(m))).collect();
        Ok((arms, notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_read_as_they_are_shown() {
        for text in ["off", "pgss_rs", "pgss_rs@0.1", "pgss_rs@0", "pg_stat_statements", "A", "B"] {
            assert_eq!(text.parse::<Arm>().unwrap().to_string(), text);
        }
        assert_eq!("pgss_rs@1".parse::<Arm>().unwrap().to_string(), "pgss_rs");
    }

    #[test]
    fn a_wrong_arm_is_told_what_is_allowed() {
        assert!("on".parse::<Arm>().unwrap_err().contains("off, pgss_rs, pgss_rs@RATE"));
        for text in ["pgss_rs@", "pgss_rs@1.5", "pgss_rs@-1", "pgss_rs@NaN"] {
            assert!(text.parse::<Arm>().unwrap_err().contains("from 0 to 1"), "{text}");
        }
    }

    #[test]
    fn a_flip_sets_the_same_settings_in_every_arm() {
        let names = |arm| {
            let sql = Module::PgssRs.flip(arm);
            sql.split(';').map(|set| set.split('=').next().unwrap_or("").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(Arm::Off), names(Arm::PgssRs { rate: 0.1 }));
        assert!(Module::PgssRs.flip(Arm::PgssRs { rate: 0.1 }).ends_with("sample_rate = 0.1"));
    }
}
