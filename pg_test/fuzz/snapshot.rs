//! The statistics file: any bytes, lines that are whole but say anything, and what was counted, written and read again.

use super::Input;
use crate::counters::{Counters, Event, Evicted, Failure, Kind, Timing, Usage};
use crate::snapshot::{self, Header, Saved, Text};
use crate::table::tests::Owned;
use crate::variance::Shared;

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    match input.below(3) {
        0 => drop(restored(input.0)),
        1 => restored_is_written_alike(&with_checksums(input.0)),
        _ => counted_comes_back(input),
    }
}

/// Has each line be one that was not damaged.
fn with_checksums(lines: &[u8]) -> Vec<u8> {
    let whole = |json: &[u8]| [format!("{:08x} ", crc32fast::hash(json)).as_bytes(), json, b"\n"].concat();
    lines.split(|b| *b == b'\n').flat_map(whole).collect()
}

/// What a server that starts with the file would have, and would show of it.
fn restored(file: &[u8]) -> Option<(Header, Vec<Saved>)> {
    let (header, entries) = snapshot::read(file).ok()?;
    let entries: Vec<Saved> = entries.collect();
    let owned = Owned::new(8);
    let table = owned.table();
    table.restore_totals(header.stats_reset, header.dealloc, header.evicted);
    let came_back = entries.iter().filter(|e| table.restore(&e.body(), e.text.bytes(), 7)).count();
    assert!(table.entries() as usize <= came_back.min(8));
    let mut text = Vec::new();
    for (_, body) in table.bodies() {
        table.texts.read(body.text, |part| text.extend_from_slice(part));
        is_shown(&body.counters);
    }
    table.evicted();
    Some((header, entries))
}

fn is_shown(counters: &Counters) {
    // what a file holds may give no number
    let is_negative = |number: f64| number < 0.0;
    let numbers =
        [counters.exec.stddev(), counters.plan.stddev(), counters.calls_stderr(), counters.time_stderr()];
    assert!(!numbers.into_iter().any(is_negative));
    let [low, high] = counters.histogram.percentiles([0.5, 0.99]);
    assert!(low <= high);
    let classes = counters.failures.by_class();
    assert!(classes.flat_map(|(class, _)| class).all(|class| class.name().is_ascii()));
    counters.score(i64::MAX);
}

fn restored_is_written_alike(file: &[u8]) {
    let Some((header, entries)) = restored(file) else { return };
    let mut written = Vec::new();
    snapshot::write(&mut written, &header, entries.iter().cloned()).unwrap();
    let again = restored(&written).expect("a file of our own");
    assert_eq!(again, (header, entries));
}

/// Executions and failures of every size, added to entries, and entries to each other.
fn counted_comes_back(mut input: Input) {
    let mut entries = Vec::new();
    for queryid in 1..=1 + input.below(3) as u64 {
        let mut counters = counted(&mut input);
        if input.flag() {
            let other = counted(&mut input);
            counters.merge(&other);
            is_plausible(&counters);
        }
        let text = Text::new(input.bytes(20).to_vec());
        entries.push(Saved {
            queryid,
            userid: input.word() as u32,
            dbid: input.word() as u32,
            toplevel: input.flag(),
            encoding: input.word() as i32,
            text,
            truncated: input.flag(),
            stats_since: input.word() as i64,
            minmax_stats_since: input.word() as i64,
            counters,
        });
    }
    let mut header = Header::new(15);
    (header.stats_reset, header.dealloc) = (input.word() as i64, input.word());
    for entry in &entries {
        header.evicted.merge(&Evicted::of(&entry.counters));
    }
    let mut file = Vec::new();
    snapshot::write(&mut file, &header, entries.iter().cloned()).unwrap();
    assert_eq!(restored(&file).expect("a file of our own"), (header, entries));
}

fn counted(input: &mut Input) -> Counters {
    let mut counters = Counters::default();
    for _ in 0..input.below(6) {
        if input.below(4) == 0 {
            counters.add_failure(&Failure {
                weight: weight(input),
                time_weight: weight(input),
                nanoseconds: nanoseconds(input),
                sqlstate: (input.word() & 0x3FFF_FFFF) as i32,
                at: input.word() as i64,
            });
            continue;
        }
        let mut usage = Usage::default();
        usage.blocks[3] = i64::from(input.byte());
        usage.wal[2] = nanoseconds(input) as i64;
        counters.add(&Event {
            kind: if input.flag() { Kind::Exec } else { Kind::Plan },
            weight: weight(input),
            nanoseconds: nanoseconds(input),
            rows: nanoseconds(input),
            usage: input.flag().then_some(&usage),
            jit: None,
            workers: [u32::from(input.byte()), 0],
            at: input.word() as i64,
            shared: Shared::NOTHING,
        });
        is_plausible(&counters);
    }
    counters
}

/// One over a sample rate.
fn weight(input: &mut Input) -> f64 {
    let rate = [1.0, 0.5, 0.3, 1e-3, 1e-6, f64::from(input.byte() as u32 + 1) / 256.0][input.below(6)];
    1.0 / rate
}

/// Up to some two hundred years.
fn nanoseconds(input: &mut Input) -> u64 {
    input.word() >> (1 + input.below(62))
}

fn is_plausible(counters: &Counters) {
    let in_order = |t: &Timing| !t.seen || (t.min <= t.mean && t.mean <= t.max);
    assert!(in_order(&counters.exec) && in_order(&counters.plan), "{:?} {:?}", counters.exec, counters.plan);
    assert!(
        counters.exec.squares >= 0.0 && counters.plan.squares >= 0.0,
        "{:?} {:?}",
        counters.exec,
        counters.plan
    );
    let calls = counters.histogram.calls();
    assert!((calls - counters.exec.calls).abs() <= 1e-9 * calls, "{calls} {}", counters.exec.calls);
    is_shown(counters);
}
