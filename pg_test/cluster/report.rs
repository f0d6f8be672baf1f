//! The load driver's reports: the page in a real browser, and the files beside it, against the JSON they come from.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::browser::{Browser, SCHEMES};
use crate::servers;

const DRIVER: &str = env!("CARGO_BIN_EXE_pgss_rs_load");
const LOOK: &str = include_str!("report.js");
/// A desk and a telephone.
const WIDTHS: [u32; 2] = [1100, 380];

/// Removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pgss_rs_report_{}_{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn driver(arguments: &[&str]) -> Output {
    Command::new(DRIVER).args(arguments).output().unwrap()
}

fn succeeds(arguments: &[&str]) -> String {
    let output = driver(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it says to a request that cannot be met.
fn refused(arguments: &[&str]) -> String {
    let output = driver(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The committed results that docs/performance.md tells of.
fn committed() -> Vec<PathBuf> {
    let files = fs::read_dir("docs/results").unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// The number that a text shows, and how far it may be off for its rounding.
fn number(text: &str) -> (f64, f64) {
    let plain = text.replace(',', "").replace('−', "-");
    let digits = plain.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    (plain.parse().unwrap_or_else(|_| panic!("no number: {text}")), 0.5001 * 0.1f64.powi(digits as i32))
}

/// Everything there is to say against the page, in either scheme and at either width.
fn look_at(browser: &mut Browser, page: &Path, json: &Value) -> Value {
    let mut backgrounds = BTreeSet::new();
    let mut last = Value::Null;
    for scheme in SCHEMES {
        for width in WIDTHS {
            browser.open(page, scheme, width);
            let seen = browser.evaluate(LOOK);
            let at = format!("{} ({scheme}, {width})", page.display());
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{at}");
            for fault in ["faint", "outside", "overlapping", "repeated"] {
                assert_eq!(seen[fault], Value::Array(vec![]), "{fault}: {at}");
            }
            assert_eq!(seen["wide"], 0, "{at} scrolls sideways");
            backgrounds.insert(seen["background"].to_string());
            last = seen;
        }
    }
    assert_eq!(backgrounds.len(), SCHEMES.len(), "{backgrounds:?}");
    figures(&last, json);
    last
}

fn figures(seen: &Value, json: &Value) {
    let runs = json["runs"].as_array().unwrap();
    let figures = seen["figures"].as_array().unwrap();
    for (index, run) in runs.iter().enumerate() {
        let mode = run["results"].as_object().unwrap().keys().next().unwrap().as_str();
        let wanted: &[&str] = match mode {
            "cost" => &["cost", "cost-over-time"],
            "throughput" => &["tps", "change", "change-over-time"],
            _ => &["held", "latency-change", "latency-distribution", "percentiles"],
        };
        for name in wanted {
            let id = format!("run{}-{name}", index + 1);
            assert!(figures.iter().any(|figure| figure["id"] == *id), "no chart {id}");
        }
    }
    for figure in figures {
        assert!(figure["named"] == true && figure["title"] == figure["caption"], "{figure:#}");
        assert!(
            figure["width"].as_f64().unwrap() > 200.0 && figure["marks"].as_u64() > Some(0),
            "{figure:#}"
        );
        let rows = figure["rows"].as_array().unwrap();
        assert!(!rows.is_empty() && rows.iter().all(|cells| *cells == figure["columns"]), "{figure:#}");
    }
    let verdicts: Vec<&Value> = runs.iter().map(|run| &run["verdict"]).collect();
    assert_eq!(seen["verdicts"].as_array().unwrap().iter().collect::<Vec<_>>(), verdicts);
    let data = seen["data"].as_array().unwrap();
    assert!(!data.is_empty());
    for cell in data {
        let pointer = cell["pointer"].as_str().unwrap();
        let value = json.pointer(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")).as_f64().unwrap();
        assert_eq!(cell["value"].as_str().unwrap().parse::<f64>().unwrap(), value, "{pointer}");
        let (text, rounding) = number(cell["text"].as_str().unwrap());
        // Fractions are shown in percent.
        let same = |factor: f64| (text - factor * value).abs() <= rounding * (1.0 + 1e-9);
        assert!(same(1.0) || same(100.0), "{pointer}: {value} shown as {}", cell["text"]);
    }
}

#[test]
fn committed_results_make_pages_that_show_their_numbers_in_light_and_dark() {
    let directory = Directory::new("committed");
    let mut browser = Browser::start();
    for file in committed() {
        let page = directory.file("page.html");
        succeeds(&["report", shown(&file), "--html", shown(&page)]);
        look_at(&mut browser, &page, &json(&file));
    }
}

#[test]
fn a_run_in_an_open_loop_writes_every_view_of_one_json() {
    let directory = Directory::new("run");
    let [saved, page, markdown, csv, charts] =
        ["a.json", "a.html", "a.md", "a.csv", "charts"].map(|name| directory.file(name));
    let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
    let terminal = succeeds(&[
        "latency",
        "--pg-config",
        &pg_config,
        "--workload=now",
        "--rate-per-second=400",
        "--arrivals=constant",
        "--duration=1",
        "--arms=off,pgss_rs",
        "--json",
        shown(&saved),
        "--html",
        shown(&page),
        "--markdown",
        shown(&markdown),
        "--csv",
        shown(&csv),
        "--svg",
        shown(&charts),
    ]);
    let json = json(&saved);
    let run = &json["runs"][0];
    let verdict = run["verdict"].as_str().unwrap();
    assert!(terminal.contains(verdict), "{terminal}");
    assert!(terminal.contains("400 transactions a second due (constant arrivals)"), "{terminal}");
    let arms = run["results"]["latency"]["arms"].as_array().unwrap();
    assert!(arms.iter().all(|arm| arm["intended"] == arms[0]["intended"]));
    assert_eq!(run["server"]["shared_preload_libraries"], "pgss_rs");
    assert_eq!(run["server"]["pgss_rs.track"], "top");
    // The test builds the driver so, and the report says it.
    let warnings = run["warnings"].as_array().unwrap();
    assert_eq!(
        cfg!(debug_assertions),
        warnings.iter().any(|w| w.as_str().unwrap().contains("pgss_rs_load is a debug"))
    );

    let mut browser = Browser::start();
    let seen = look_at(&mut browser, &page, &json);
    assert_eq!(seen["headings"][0], "What statement statistics cost");
    let text = fs::read_to_string(&markdown).unwrap();
    let percentile = &arms[1]["percentiles"][0];
    let row = format!("| pgss_rs | p50 | {:.4} |", percentile["ms"].as_f64().unwrap());
    assert!(text.contains(&row), "{row} in {text}");
    let lines = fs::read_to_string(&csv).unwrap();
    let line = format!("1,latency,now,8,pgss_rs,latency_p50,ms,{},", percentile["ms"]);
    assert!(lines.contains(&line), "{line} in {lines}");

    let figures: BTreeSet<String> = seen["figures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| format!("{}.svg", f["id"].as_str().unwrap()))
        .collect();
    let files: BTreeSet<String> =
        fs::read_dir(&charts).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(figures, files);
    for name in files {
        browser.open(&charts.join(&name), "dark", 800);
        let look = "[document.documentElement.nodeName, document.querySelectorAll('text').length > 2,
                     getComputedStyle(document.querySelector('.page')).fill]";
        let dark = serde_json::json!(["svg", true, "rgb(24, 28, 34)"]);
        assert_eq!((browser.evaluate(look), browser.complaints()), (dark, vec![]), "{name}");
    }
}

#[test]
fn a_saved_report_gives_the_page_that_the_run_gave() {
    let directory = Directory::new("again");
    let [first, again] = ["first.json", "again.json"].map(|name| directory.file(name));
    let [page, page_again] = ["first.html", "again.html"].map(|name| directory.file(name));
    let file = committed().remove(0);
    succeeds(&["report", shown(&file), "--json", shown(&first), "--html", shown(&page)]);
    succeeds(&["report", shown(&first), "--json", shown(&again), "--html", shown(&page_again)]);
    assert_eq!(json(&first), json(&again));
    assert_eq!(fs::read(&page).unwrap(), fs::read(&page_again).unwrap());
    assert!(succeeds(&["report", shown(&file)]).starts_with("# What statement statistics cost"));
}

#[test]
fn what_two_machines_measured_is_one_report() {
    let directory = Directory::new("merge");
    let [a, b, whole, page] =
        ["a.json", "b.json", "whole.json", "whole.html"].map(|name| directory.file(name));
    let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
    for (file, seed) in [(&a, "--seed=1"), (&b, "--seed=2")] {
        let cost = ["cost", "--arms=off,pgss_rs", "--clients=1", "--duration=1", "--pg-config", &pg_config];
        succeeds(&[&cost[..], &[seed, "--json", shown(file)]].concat());
    }
    succeeds(&["merge", shown(&a), shown(&b), "--json", shown(&whole), "--html", shown(&page)]);
    let [a_json, b_json, whole_json] = [&a, &b, &whole].map(|file| json(file));
    let statements = |json: &Value| {
        json.pointer("/runs/0/results/cost/comparisons/0/statements").unwrap().as_u64().unwrap()
    };
    assert_eq!(statements(&whole_json), statements(&a_json) + statements(&b_json));
    assert_eq!(whole_json["machines"].as_array().unwrap().len(), 2);
    look_at(&mut Browser::start(), &page, &whole_json);

    assert!(refused(&["merge", shown(&a), shown(&a)]).contains("the same measurement"));
    let other = committed().remove(0);
    assert!(refused(&["merge", shown(&a), shown(&other)]).contains("cannot be merged with"));
}

#[test]
fn two_machines_load_one_server_in_step() {
    let directory = Directory::new("step");
    let cluster = servers::start_with_pgss_rs(&[]);
    let dsn = format!(
        "host={} port={} user=postgres dbname=postgres",
        cluster.socket_dir().display(),
        cluster.port()
    );
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // Time enough to fill the tables beside other tests.
    let start_at = format!("--start-at={}", now + 20);
    let common = ["throughput", "--workload=select-only", "--arms=off,pgss_rs@0.5", "--clients=1"];
    let files = ["a.json", "b.json"].map(|name| directory.file(name));
    let machine = |file: &PathBuf| {
        let where_and_when = ["--duration=6", "--seed=3", "--allow-writes", "--dsn", &dsn, &start_at];
        let mut driver = Command::new(DRIVER);
        driver.args(common).args(where_and_when).args(["--json", shown(file)]).stdout(Stdio::null());
        driver.stderr(Stdio::piped()).spawn().unwrap()
    };
    for machine in files.each_ref().map(machine) {
        let output = machine.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut session = servers::connect(&cluster, "postgres");
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgss%load%'";
    assert_eq!(servers::value(&mut session, left), "0");

    let whole = directory.file("whole.json");
    succeeds(&["merge", shown(&files[0]), shown(&files[1]), "--json", shown(&whole)]);
    let slices = |file: &Path| {
        let path = "/runs/0/results/throughput/slices";
        json(file).pointer(path).unwrap().as_array().unwrap().clone()
    };
    let (a, b, whole) = (slices(&files[0]), slices(&files[1]), slices(&whole));
    assert!(!whole.is_empty() && whole.len() <= a.len() && a.len() == b.len());
    for sum in &whole {
        let same = |slice: &&Value| ["round", "arm", "again"].iter().all(|name| slice[name] == sum[name]);
        let number = |of: &[Value]| of.iter().find(same).unwrap()["transactions"].as_u64().unwrap();
        assert_eq!(sum["transactions"].as_u64().unwrap(), number(&a) + number(&b));
    }
}

#[test]
fn what_is_no_report_is_refused_with_the_reason() {
    let directory = Directory::new("refused");
    let file = directory.file("a.json");
    assert!(refused(&["report", shown(&file)]).contains("cannot read"));
    for (text, reason) in [
        ("{", "no JSON"),
        ("{}", "no report of pgss_rs_load"),
        (r#"{"format": 1000}"#, "of a later pgss_rs_load"),
        (r#"{"format": 1, "machine": {}}"#, "damaged report"),
    ] {
        fs::write(&file, text).unwrap();
        let said = refused(&["report", shown(&file)]);
        assert!(said.contains(reason) && said.contains("a.json"), "{said}");
    }
}

#[test]
fn a_reader_who_has_had_enough_ends_it_without_a_word() {
    let file = committed().remove(0);
    let command = &mut Command::new(DRIVER);
    command.args(["report", shown(&file)]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut driver = command.spawn().unwrap();
    drop(driver.stdout.take());
    let output = driver.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(141), String::new()));
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let directory = Directory::new("unwritable");
    let file = directory.file("nowhere/run.json");
    let said = refused(&["cost", "--pg-config", "/nowhere/pg_config", "--json", shown(&file)]);
    assert!(said.contains("nowhere/run.json") && said.contains("nothing was measured"), "{said}");
}

#[test]
fn help_fits_a_terminal() {
    for arguments in [&["--help"][..], &["-h"], &["merge", "--help"]] {
        let help = succeeds(arguments);
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}
