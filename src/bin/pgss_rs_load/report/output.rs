//! Where a report goes, and the commands that begin with a saved one.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::document::Document;
use super::{chart, csv, html, markdown, merge};
use crate::error::{Error, Result};

/// Files to write. All but the JSON are views of it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Report")]
pub struct Output {
    /// Writes everything measured, raw blocks included, to this file; `report` and `merge` read it
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Writes one self-contained page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Writes the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Writes the figures as CSV, one a line
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Writes each chart as an SVG file into this directory, which is created
    #[arg(long, value_name = "DIRECTORY")]
    pub svg: Option<PathBuf>,
}

/// What needs no server.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Makes the views of a saved JSON; without a file to write, prints Markdown
    Report {
        /// Written by --json
        #[arg(value_name = "JSON")]
        file: PathBuf,

        #[command(flatten)]
        output: Output,
    },
    /// Puts together what several machines measured, and makes the views of that; without a file to write, prints Markdown
    Merge {
        /// Written by --json, of the same plan
        #[arg(value_name = "JSON", required = true, num_args = 2..)]
        files: Vec<PathBuf>,

        #[command(flatten)]
        output: Output,
    },
}

impl Command {
    pub fn run(&self) -> Result<()> {
        let (document, output) = match self {
            Command::Report { file, output } => (Document::read(file)?, output),
            Command::Merge { files, output } => {
                let read = |file: &PathBuf| Ok((file.display().to_string(), Document::read(file)?));
                (merge::merge(files.iter().map(read).collect::<Result<Vec<_>>>()?)?, output)
            }
        };
        if output.is_empty() {
            return crate::show(&markdown::text(&document));
        }
        let json =
            serde_json::to_string(&document).map_err(|e| Error::Failed(format!("cannot write JSON: {e}")))?;
        output.write_json(&json)?;
        output.write_views(&document)
    }
}

impl Output {
    fn is_empty(&self) -> bool {
        let Output { json, html, markdown, csv, svg } = self;
        [json, html, markdown, csv, svg].into_iter().all(Option::is_none)
    }

    /// The JSON and every view that was asked for.
    pub fn write(&self, json: &str) -> Result<()> {
        self.write_json(json)?;
        if [&self.html, &self.markdown, &self.csv, &self.svg].into_iter().all(Option::is_none) {
            return Ok(());
        }
        self.write_views(&Document::parse(json).map_err(Error::Failed)?)
    }

    fn write_json(&self, json: &str) -> Result<()> {
        self.json.as_ref().map_or(Ok(()), |path| write(path, &format!("{json}\n")))
    }

    fn write_views(&self, document: &Document) -> Result<()> {
        let view = |path: &Option<PathBuf>, view: fn(&Document) -> String| {
            path.as_ref().map_or(Ok(()), |path| write(path, &view(document)))
        };
        view(&self.html, html::page)?;
        view(&self.markdown, markdown::text)?;
        view(&self.csv, csv::text)?;
        let Some(directory) = &self.svg else { return Ok(()) };
        fs::create_dir_all(directory)
            .map_err(|e| Error::Failed(format!("cannot create {}: {e}", directory.display())))?;
        for figure in (0..document.runs.len()).flat_map(|run| chart::figures(document, run)) {
            write(&directory.join(&figure.id).with_extension("svg"), &figure.standalone())?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::Failed(format!("cannot write {}: {e}", path.display())))
}
