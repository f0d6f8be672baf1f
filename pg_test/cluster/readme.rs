//! The SQL of README.md and of docs/sampling.md: every block runs, in order, in one session of psql; where a `text` block
//! follows, it is what psql printed.

use std::path::Path;
use std::process::Command;

use crate::cluster::{SUPERUSER, pg_config};
use crate::servers;

const MARK: &str = "-- next block --";

/// An SQL block, and the output that the page shows for it.
struct Block<'a> {
    sql: &'a str,
    shown: Option<&'a str>,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fences = page.split("```");
    fences.next();
    while let (Some(fenced), after) = (fences.next(), fences.next()) {
        let (language, body) = fenced.split_once('\n').unwrap();
        match language {
            "sql" => blocks.push(Block { sql: body, shown: None }),
            "text" => blocks.last_mut().expect("output follows its SQL").shown = Some(body),
            _ => {}
        }
        if after.is_none() {
            break;
        }
    }
    blocks
}

fn without_trailing_space(text: &str) -> String {
    text.trim().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn readme_sql_runs_and_prints_what_the_page_shows() {
    assert!(run("README.md") >= 3);
}

/// What it prints is different each time.
#[test]
fn sql_of_the_page_on_sampling_runs() {
    run("docs/sampling.md");
}

/// How many outputs were compared.
fn run(page: &str) -> usize {
    // cargo runs tests in the package's directory
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = blocks(&page);

    let cluster = servers::start(&[("shared_preload_libraries", "pgss_rs")]);
    let psql = pg_config(Path::new(&servers::pg_config()), "--bindir").unwrap() + "/psql";
    let script: String = blocks.iter().map(|b| format!("{}\\echo {MARK}\n", b.sql)).collect();
    let mut session = Command::new(psql);
    session.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", SUPERUSER, "-d", SUPERUSER, "-h"]);
    session.arg(cluster.socket_dir()).args(["-p", &cluster.port().to_string(), "-f", "-"]);
    let script_file = tempfile(&script);
    let output = session.stdin(script_file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let printed = String::from_utf8(output.stdout).unwrap();
    let mut compared = 0;
    for (block, printed) in blocks.iter().zip(printed.split(MARK)) {
        if let Some(shown) = block.shown {
            assert_eq!(without_trailing_space(printed), without_trailing_space(shown), "{}", block.sql);
            compared += 1;
        }
    }
    compared
}

/// The script as a file to read from.
fn tempfile(text: &str) -> std::fs::File {
    use std::io::{Seek, Write};
    let path = std::env::temp_dir().join(format!(
        "pgss_rs_readme_{}_{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let mut file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file
}
