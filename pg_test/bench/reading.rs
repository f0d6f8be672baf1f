//! What reading the statistics costs, and what it does to those who write them, with pgss_rs and with
//! pg_stat_statements: `make bench-reading`. Prints the tables of docs/performance.md and, with a file's name as its
//! argument, writes every measured value to it as JSON.
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
/// Readings of each kind.
const READINGS: usize = 5;
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

    fn fill(&self) -> Result<()> {
        let mut session = self.session()?;
        let comment = "x".repeat(TEXT);
        for n in 0..ENTRIES {
            session.simple(&format!("WITH c{n} AS (SELECT 1 AS n) SELECT n /* {comment} */ FROM c{n}"))?;
        }
        let kept = format!("SELECT count(*) FROM {} WHERE length(query) > {TEXT}", self.view);
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
    let readings = readings(&modules)?;
    let writers = writers(&modules)?;
    if let Some(file) = std::env::args().nth(1) {
        let all =
            json!({"readings_ms": readings, "writers": writers, "entries": ENTRIES, "text_bytes": TEXT});
        std::fs::write(&file, format!("{all:#}\n"))?;
    }
    Ok(())
}

/// Times of single readings, ms, by kind and module.
fn readings(modules: &[Module; 2]) -> Result<Value> {
    for module in modules {
        module.fill()?;
    }
    let every = "SELECT count(*), sum(octet_length(query)) FROM";
    let kinds = [
        ("every text, work_mem = 256MB", "256MB", true, every, ""),
        ("every text, work_mem = 4MB", "4MB", true, every, ""),
        (
            "the ten that took most time",
            "4MB",
            true,
            "SELECT * FROM",
            "ORDER BY total_exec_time DESC LIMIT 10",
        ),
        ("all but the texts, of the view", "4MB", true, "SELECT count(*), sum(calls) FROM", ""),
        ("all but the texts, showtext = false", "4MB", false, "SELECT count(*), sum(calls) FROM", ""),
    ];
    println!("{ENTRIES} entries with texts of {TEXT} bytes, one reading, ms\n");
    println!("| | pgss_rs | pg_stat_statements | ratio of medians |\n|---|---|---|---|");
    let mut all = Vec::new();
    for (kind, work_mem, texts, select, order) in kinds {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..=READINGS {
            for (module, times) in modules.iter().zip(&mut times) {
                let mut session = module.reader()?;
                session.execute(&format!("SET work_mem = '{work_mem}'"))?;
                let from = if texts { module.view } else { module.without_texts };
                let sql = format!("{select} {from} {order}");
                let start = Instant::now();
                session.query(&sql)?;
                times.push(start.elapsed().as_secs_f64() * 1000.0);
            }
        }
        // The first fills caches.
        let times = times.map(|times| sorted(times[1..].to_vec()));
        let ratio = times[0][READINGS / 2] / times[1][READINGS / 2];
        println!("| {kind} | {} | {} | {ratio:.2} |", range(&times[0], 1), range(&times[1], 1));
        all.push(json!({"kind": kind, "pgss_rs": times[0], "pg_stat_statements": times[1]}));
    }
    Ok(all.into())
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
