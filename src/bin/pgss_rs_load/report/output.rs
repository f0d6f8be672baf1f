//! Where a report goes, and the commands that begin with a saved one.

use std::fs::{self, OpenOptions};
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

    /// Whether everything can be written, found out before minutes of measuring. What is there already stays as it is.
    pub fn check(&self) -> Result<()> {
        let Output { json, html, markdown, csv, svg } = self;
        for path in [json, html, markdown, csv].into_iter().flatten() {
            check_file(path)?;
        }
        let Some(directory) = svg else { return Ok(()) };
        create_directory(directory).map_err(Error::Request)?;
        check_file(&directory.join(".pgss_rs_load"))
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
        create_directory(directory).map_err(Error::Failed)?;
        for figure in (0..document.runs.len()).flat_map(|run| chart::figures(document, run)) {
            write(&directory.join(&figure.id).with_extension("svg"), &figure.standalone())?;
        }
        Ok(())
    }
}

fn create_directory(path: &Path) -> std::result::Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("cannot create the directory {}: {e}", path.display()))
}

fn check_file(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened
        .map_err(|e| Error::Request(format!("cannot write {}: {e}; nothing was measured", path.display())))?;
    if is_new {
        // That it may stay would be no reason to measure nothing.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::Failed(format!("cannot write {}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_written_is_found_out_and_what_is_there_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("pgss_rs_output_{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let old = directory.join("old.json");
        fs::write(&old, "kept").unwrap();
        let output = Output {
            json: Some(old.clone()),
            html: Some(directory.join("new.html")),
            svg: Some(directory.join("charts")),
            ..Output::default()
        };
        output.check().unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        assert!(!directory.join("new.html").exists());
        assert_eq!(fs::read_dir(directory.join("charts")).unwrap().count(), 0);

        let refused = |output: Output| match output.check() {
            Err(Error::Request(text)) => text,
            other => panic!("{other:?}"),
        };
        let nowhere = Some(directory.join("nowhere/x.csv"));
        assert!(refused(Output { csv: nowhere, ..Output::default() }).contains("nowhere/x.csv"));
        let a_directory = Some(directory.join("charts"));
        assert!(refused(Output { markdown: a_directory, ..Output::default() }).contains("charts"));
        assert!(refused(Output { svg: Some(old), ..Output::default() }).contains("old.json"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
