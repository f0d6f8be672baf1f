//! What reading the statistics costs, and what it does to those who write them, with pgss_rs and with
//! pg_stat_statements: `make bench-reading`. Prints the tables of docs/performance.md and, with a file's name as its
//! argument, writes every measured value to it as JSON. With `without-texts` as its argument it measures readings without
//! texts only, in a minute.
//!
//! Everything is measured by turns on servers that are up side by side.

#[path = "../../src/bin/pgss_rs_load/client.rs"]
#[allow(dead_code, reason = "the load driver's; this uses a part of it")]
mod client;
#[path = "../../src/bin/pgss_rs_load/cluster.rs"]
mod cluster;
#[path = "../../src/bin/pgss_rs_load/error.rs"]
#[allow(dead_code, reason = "the load driver's; this uses a part of it")]
mod error;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use client::Session;
use cluster::Cluster;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Entries with long texts, and bytes of each.
const ENTRIES: u32 = 5000;
const TEXT: usize = 18_000;
/// Readings of each kind, and of those that take milliseconds.
const READINGS: usize = 5;
const QUICK_READINGS: usize = 100;
const WRITERS: u64 = 2;
const READERS: usize = 5;
/// Distinct statements that writers choose from.
const STATEMENTS: u32 = 100_000;
const ROUNDS: u64 = 3;
const SLICE: Duration = Duration::from_secs(6);
/// What takes readers' time without reading.
const COMPUTE: &str = "SELECT sum(i) FROM generate_series(1, 20000) AS i";

/// A module on a server of its own.
struct Module {
    name: &'static str,
    /// With the columns of pg_stat_statements.
    view: &'static str,
    without_texts: &'static str,
    cluster: Cluster,
}

impl Module {
    fn start(name: &'static str, view: &'static str, without_texts: &'static str) -> Result<Self> {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let mut builder = Cluster::builder(pg_config)
            .setting("shared_preload_libraries", name)
            .setting("autovacuum", "off")
            .setting(&format!("{name}.max"), &(ENTRIES + 200).to_string());
        if name == "pgss_rs" {
            builder = builder.setting("pgss_rs.text_memory", "128MB");
        }
        let module = Module { name, view, without_texts, cluster: builder.start()? };
        module.session()?.execute(&format!("CREATE EXTENSION {name}"))?;
        Ok(module)
    }

    fn session(&self) -> Result<Session> {
        Ok(Session::connect(&self.cluster.socket())?)
    }

    /// A session that is not recorded.
    fn reader(&self) -> Result<Session> {
        let mut session = self.session()?;
        session.execute(&format!("SET {}.track = 'none'", self.name))?;
        Ok(session)
    }

    /// Nothing but so many entries with a comment of this length in their texts.
    fn fill(&self, comment: usize) -> Result<()> {
        self.reader()?.query(&format!("SELECT {}_reset()", self.name))?;
        let mut session = self.session()?;
        let text = "x".repeat(comment);
        for n in 0..ENTRIES {
            session.simple(&format!("WITH c{n} AS (SELECT 1 AS n) SELECT n /* {text} */ FROM c{n}"))?;
        }
        let kept = format!(
            "SELECT count(*) FROM {} WHERE length(query) > {comment} AND query LIKE 'WITH c%'",
            self.view
        );
        let rows = self.reader()?.query(&kept)?;
        let kept = rows[0][0].as_deref() == Some(&ENTRIES.to_string());
        if kept { Ok(()) } else { Err(format!("{} has not kept all texts: {rows:?}", self.name).into()) }
    }
}

fn main() -> Result<()> {
    let modules = [
        Module::start("pgss_rs", "pgss_compat.pg_stat_statements", "pgss_compat.pg_stat_statements(false)")?,
        Module::start("pg_stat_statements", "pg_stat_statements", "pg_stat_statements(false)")?,
    ];
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("without-texts") {
        readings_without_texts(&modules)?;
        return Ok(());
    }
    let mut readings = readings(&modules)?;
    readings.extend(readings_without_texts(&modules)?);
    let writers = writers(&modules)?;
    if let Some(file) = argument {
        let all =
            json!({"readings_ms": readings, "writers": writers, "entries": ENTRIES, "text_bytes": TEXT});
        std::fs::write(&file, format!("{all:#}\n"))?;
    }
    Ok(())
}

/// Times of single readings, ms, by kind and module; each in a session of its own.
fn readings(modules: &[Module; 2]) -> Result<Vec<Value>> {
    for module in modules {
        module.fill(TEXT)?;
    }
    let every = "SELECT count(*), sum(octet_length(query)) FROM";
    let kinds = [
        ("every text, work_mem = 256MB", "256MB", every, ""),
        ("every text, work_mem = 4MB", "4MB", every, ""),
        ("the ten that took most time", "4MB", "SELECT * FROM", "ORDER BY total_exec_time DESC LIMIT 10"),
        ("all but the texts, of the view", "4MB", "SELECT count(*), sum(calls) FROM", ""),
    ];
    println!("{ENTRIES} entries with texts of {TEXT} bytes, one reading, ms\n");
    println!("{HEADER}");
    let mut all = Vec::new();
    for (kind, work_mem, select, order) in kinds {
        let times = by_turns(modules, READINGS, |module| {
            let mut session = module.reader()?;
            session.execute(&format!("SET work_mem = '{work_mem}'"))?;
            timed(&mut session, &format!("{select} {} {order}", module.view))
        })?;
        all.push(row(kind, times));
    }
    Ok(all)
}

/// The same of readings without texts, beside entries with long and with short ones, in sessions of their own and in one.
fn readings_without_texts(modules: &[Module; 2]) -> Result<Vec<Value>> {
    println!("\n{ENTRIES} entries, one reading with showtext = false, ms\n\n{HEADER}");
    let mut all = Vec::new();
    for (texts, comment) in [("18 kB", TEXT), ("60 bytes", 10)] {
        for module in modules {
            module.fill(comment)?;
        }
        let read = |module: &Module, session: &mut Session, from: &str| {
            let from = if module.name == "pgss_rs" { from } else { module.without_texts };
            timed(session, &format!("SELECT count(*), sum(calls) FROM {from}"))
        };
        for from in [modules[0].without_texts, "pgss_rs_stats(false)"] {
            let times =
                by_turns(modules, QUICK_READINGS, |module| read(module, &mut module.reader()?, from))?;
            all.push(row(&format!("texts of {texts}, {from}, a session's first"), times));
            let [ours, theirs] = [modules[0].reader()?, modules[1].reader()?];
            let mut sessions = [(modules[0].name, ours), (modules[1].name, theirs)];
            let times = by_turns(modules, QUICK_READINGS, |module| {
                let session = sessions.iter_mut().find(|(name, _)| *name == module.name);
                read(module, &mut session.ok_or("no session")?.1, from)
            })?;
            all.push(row(&format!("texts of {texts}, {from}, in one session"), times));
        }
    }
    Ok(all)
}

const HEADER: &str = "| | pgss_rs | pg_stat_statements | ratio of medians |\n|---|---|---|---|";

fn timed(session: &mut Session, sql: &str) -> Result<f64> {
    let start = Instant::now();
    session.query(sql)?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// What `read` measures so often with each module, in order of size. Each is first every other time.
fn by_turns(
    modules: &[Module; 2],
    readings: usize,
    mut read: impl FnMut(&Module) -> Result<f64>,
) -> Result<[Vec<f64>; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..=readings {
        for which in [n % 2, (n + 1) % 2] {
            times[which].push(read(&modules[which])?);
        }
    }
    // The first fills caches.
    Ok(times.map(|times| sorted(times[1..].to_vec())))
}

/// Prints a kind's row, and makes its JSON.
fn row(kind: &str, times: [Vec<f64>; 2]) -> Value {
    let median = |times: &[f64]| times[times.len() / 2];
    let [ours, theirs] = &times;
    let cell = |times: &[f64]| match times.len() {
        QUICK_READINGS => format!(
            "{:.2} ({:.2} to {:.2})",
            median(times),
            times[times.len() / 10],
            times[times.len() * 9 / 10]
        ),
        _ => range(times, 1),
    };
    println!("| {kind} | {} | {} | {:.2} |", cell(ours), cell(theirs), median(ours) / median(theirs));
    json!({"kind": kind, "pgss_rs": ours, "pg_stat_statements": theirs})
}

/// What five other sessions do meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    Compute,
    Read,
}

/// TPS and 99th percentile of writers, by what runs beside them.
fn writers(modules: &[Module; 2]) -> Result<Value> {
    for module in modules {
        module.reader()?.query(&format!("SELECT {}_reset()", module.name))?;
        write(module, Beside::Nothing, SLICE / 2, 0)?;
    }
    let kinds = [
        ("alone", Beside::Nothing),
        ("five sessions compute", Beside::Compute),
        ("five sessions read the view with texts", Beside::Read),
    ];
    let mut found = vec![[(Vec::new(), Vec::new()), (Vec::new(), Vec::new())]; kinds.len()];
    for round in 0..ROUNDS {
        for ((_, beside), found) in kinds.iter().zip(&mut found) {
            for (module, (tps, p99)) in modules.iter().zip(found) {
                let latencies = write(module, *beside, SLICE, round + 1)?;
                tps.push(latencies.len() as f64 / SLICE.as_secs_f64());
                p99.push(latencies.value_at_quantile(0.99) as f64 / 1e6);
            }
        }
    }
    println!(
        "\n{WRITERS} writers of {STATEMENTS} statements in turn, {ROUNDS} rounds of {} s\n",
        SLICE.as_secs()
    );
    println!("| | pgss_rs TPS | p99, ms | pg_stat_statements TPS | p99, ms |\n|---|---|---|---|---|");
    let mut all = Vec::new();
    for ((kind, _), found) in kinds.iter().zip(found) {
        let [ours, theirs] = found.map(|(tps, p99)| (sorted(tps), sorted(p99)));
        let cells = [range(&ours.0, 0), range(&ours.1, 2), range(&theirs.0, 0), range(&theirs.1, 2)];
        println!("| {kind} | {} |", cells.join(" | "));
        all.push(json!({"beside": kind, "pgss_rs": {"tps": ours.0, "p99_ms": ours.1},
            "pg_stat_statements": {"tps": theirs.0, "p99_ms": theirs.1}}));
    }
    Ok(all.into())
}

/// Latencies, ns.
fn write(module: &Module, beside: Beside, length: Duration, seed: u64) -> Result<Histogram<u64>> {
    let read = match beside {
        Beside::Read => format!("SELECT count(query) FROM {}", module.view),
        _ => COMPUTE.to_owned(),
    };
    let readers = if beside == Beside::Nothing { 0 } else { READERS };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let mut session = module.reader()?;
                    while !done.load(Ordering::Relaxed) {
                        session.query(&read)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| scope.spawn(move || write_until(module, length, seed * WRITERS + n)))
            .collect();
        let mut latencies = Histogram::<u64>::new(3)?;
        let mut written = Ok(());
        for writer in writers {
            match writer.join() {
                Ok(Ok(of_writer)) => latencies.add(of_writer)?,
                Ok(Err(error)) => written = Err(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            match reader.join() {
                Ok(read) => read?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        written.map(|()| latencies)
    })
}

fn write_until(module: &Module, length: Duration, seed: u64) -> Result<Histogram<u64>> {
    let mut session = module.session()?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut latencies = Histogram::new(3)?;
    let start = Instant::now();
    while start.elapsed() < length {
        let name = rng.random_range(0..STATEMENTS);
        let sql = format!("WITH c{name} AS (SELECT 1 AS n) SELECT n FROM c{name}");
        let sent = Instant::now();
        session.simple(&sql)?;
        latencies.record(sent.elapsed().as_nanos() as u64)?;
    }
    Ok(latencies)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn range(sorted: &[f64], digits: usize) -> String {
    match sorted {
        [low, .., high] => format!("{low:.digits$} to {high:.digits$}"),
        _ => String::new(),
    }
}
