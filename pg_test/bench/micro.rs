//! `make bench-micro`: what the pure layer's own steps cost, without a server.
//!
//! Costs with two threads are CPU time of a thread per step: each thread has a processor of its own, they start
//! together, and whoever is done keeps on until the other is. What a thread sleeps, waiting for a lock, is not CPU
//! time; so of the single lock the time that passes is shown, too.
//!
//! At the end comes what the table of docs/scaling.md starts from, and whether an entry with stripes costs two threads
//! at most 1.25 times what it costs one. There, runs with one thread and with two take turns, so that whatever else the
//! machine does meets both.

#![allow(
    dead_code,
    unused_imports,
    reason = "the library's modules, with their tests; the benchmark uses a part"
)]

#[path = "../../src/counters.rs"]
mod counters;
#[path = "../../src/histogram.rs"]
mod histogram;
#[path = "../../src/key.rs"]
mod key;
#[path = "../../src/lock_rules.rs"]
mod lock_rules;
#[path = "../../src/primitives.rs"]
mod primitives;
#[path = "../../src/stripes.rs"]
mod stripes;
#[path = "../../src/table.rs"]
mod table;
#[path = "../../src/textpool.rs"]
mod textpool;
#[path = "../../src/variance.rs"]
#[allow(dead_code, reason = "all is looked at here")]
mod variance;
#[allow(unsafe_code)]
#[path = "../../src/pg"]
mod pg {
    pub mod spin;
}

use counters::{Counters, Event, Kind};
use criterion::{BenchmarkId, Criterion, Throughput};
use key::Key;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::hint::{black_box, spin_loop};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use stripes::{SETS, Stripe, Stripes, StripesState};
use table::{Link, Locks, NewEntry, PARTITIONS, Slot, State, Table, Update, bucket_count};
use textpool::{BLOCK, Block, PoolState, TextPool};
use variance::Shared;

/// The bound for an entry with stripes: cost with two threads over cost with one.
const BOUND: f64 = 1.25;
const EVENT: Event = Event {
    kind: Kind::Exec,
    weight: 1.0,
    nanoseconds: 7_400,
    rows: 1,
    usage: None,
    jit: None,
    workers: [0; 2],
    at: 1,
    shared: Shared::NOTHING,
};
const NEW: NewEntry = NewEntry { text: b"SELECT price FROM item WHERE id = $1", encoding: 6, now: 100 };

/// One process's view of the locks that sleep.
#[derive(Clone, Copy)]
struct Process<'a> {
    owned: &'a Owned,
    number: usize,
}

impl Locks for Process<'_> {
    fn shared<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.owned.partitions[partition].read().unwrap();
        f()
    }
    fn exclusive<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R {
        let _held = self.owned.partitions[partition].write().unwrap();
        f()
    }
    fn texts<R>(&self, f: impl FnOnce() -> R) -> R {
        let _held = self.owned.text_lock.write().unwrap();
        f()
    }
    fn prefetch(&self, _: usize) {}
    fn process(&self) -> usize {
        self.number
    }
}

/// A table's parts, which the server has in shared memory.
struct Owned {
    state: State,
    buckets: Vec<AtomicU32>,
    index_links: Vec<Link>,
    slots: Vec<Slot>,
    stripes_state: StripesState,
    stripes: Vec<Stripe>,
    pool: PoolState,
    links: Vec<AtomicU32>,
    blocks: Vec<Block>,
    partitions: Vec<RwLock<()>>,
    text_lock: RwLock<()>,
}

impl Owned {
    fn new(max: usize, width: usize) -> Self {
        let blocks = max + 8 * NEW.text.len().div_ceil(BLOCK);
        let owned = Owned {
            state: State::default(),
            buckets: (0..bucket_count(max)).map(|_| AtomicU32::new(0)).collect(),
            index_links: (0..max).map(|_| Link::default()).collect(),
            slots: (0..max).map(|_| Slot::default()).collect(),
            stripes_state: StripesState::default(),
            stripes: (0..SETS * width).map(|_| Stripe::default()).collect(),
            pool: PoolState::default(),
            links: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            blocks: (0..blocks).map(|_| Block::default()).collect(),
            partitions: (0..PARTITIONS).map(|_| RwLock::new(())).collect(),
            text_lock: RwLock::new(()),
        };
        owned.of(0).init(7);
        owned
    }

    /// Full of entries, with the keys from 0.
    fn full(max: usize) -> Self {
        let owned = Owned::new(max, 2);
        (0..max as u64).for_each(|id| assert!(owned.of(0).insert_or_update(&key(id), NEW, add).is_some()));
        owned
    }

    /// As the process with that number sees it.
    fn of(&self, number: usize) -> Table<'_, Process<'_>> {
        Table {
            state: &self.state,
            buckets: &self.buckets,
            links: &self.index_links,
            slots: &self.slots,
            stripes: Stripes { state: &self.stripes_state, all: &self.stripes },
            texts: TextPool { state: &self.pool, links: &self.links, blocks: &self.blocks },
            locks: Process { owned: self, number },
            clip: |_, n| n,
        }
    }
}

fn key(queryid: u64) -> Key {
    Key {
        queryid: queryid.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        userid: 10,
        dbid: 5,
        toplevel: true,
    }
}

#[inline(always)]
fn add(c: &mut Counters) {
    c.add(black_box(&EVENT));
}

/// One hot entry, and the place where each of two processes adds to it.
struct Hot {
    owned: Owned,
    key: Key,
    places: [u32; 2],
}

impl Hot {
    /// One that has no stripes and gets none, as all are taken.
    fn with_one_lock() -> Self {
        let hot = Hot::new(2);
        while hot.owned.of(0).stripes.claim(&key(u64::MAX - 1), |_, _| ()).is_some() {}
        hot
    }

    fn with_stripes(width: usize) -> Self {
        let mut hot = Hot::new(width);
        let patience = Instant::now();
        while hot.owned.of(0).stripes.sets_used() == 0 {
            assert!(patience.elapsed() < Duration::from_secs(60), "two threads never met at a lock");
            let settle = |process| {
                let table = hot.owned.of(process);
                table.settle(0, &hot.key, add).unwrap();
            };
            together(2, 10_000, settle);
        }
        hot.places = [0, 1].map(|process| hot.owned.of(process).settle(0, &hot.key, add).unwrap());
        hot
    }

    fn new(width: usize) -> Self {
        let owned = Owned::new(1, width);
        let place = owned.of(0).insert_or_update(&key(0), NEW, add).unwrap();
        assert_eq!(place, 0);
        Hot { owned, key: key(0), places: [place; 2] }
    }

    fn update(&self, threads: usize, times: u64) -> Cost {
        together(threads, times, |process| {
            let table = self.owned.of(process);
            let (place, key) = (black_box(self.places[process]), black_box(&self.key));
            // as a backend does
            let done = table.update_at_once(place, key, add) || table.update(place, key, add) == Update::Done;
            assert!(done);
        })
    }
}

/// Of one thread.
#[derive(Clone, Copy, Default)]
struct Cost {
    cpu: Duration,
    passed: Duration,
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// The processors that this process may use.
fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap()).collect()
}

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &only).unwrap();
}

/// Has each of so many threads do `step` so many times, all at the same time; the mean of what it took them.
fn together(threads: usize, times: u64, step: impl Fn(usize) + Sync) -> Cost {
    let cpus = processors();
    let (ready, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = |thread: usize| {
        stay_on(cpus[thread % cpus.len()]);
        ready.fetch_add(1, Relaxed);
        while ready.load(Relaxed) < threads {
            spin_loop();
        }
        let (from, began) = (cpu_time(), Instant::now());
        (0..times).for_each(|_| step(thread));
        let cost = Cost { cpu: cpu_time() - from, passed: began.elapsed() };
        done.fetch_add(1, Relaxed);
        while done.load(Relaxed) < threads {
            (0..100).for_each(|_| step(thread));
        }
        cost
    };
    let costs: Vec<Cost> = std::thread::scope(|s| {
        let running: Vec<_> = (0..threads).map(|thread| s.spawn(move || run(thread))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mean = |of: fn(&Cost) -> Duration| costs.iter().map(of).sum::<Duration>() / threads as u32;
    Cost { cpu: mean(|c| c.cpu), passed: mean(|c| c.passed) }
}

/// A cache line sent there and back between two processors, so many times; the time that passed.
fn send_line_back_and_forth(times: u64) -> Duration {
    #[repr(align(128))]
    struct Line(AtomicUsize);
    let turn = Line(AtomicUsize::new(0));
    let cpus = processors();
    let run = |thread: usize| {
        stay_on(cpus[thread]);
        let began = Instant::now();
        for n in 0..times as usize {
            while turn.0.load(Relaxed) != 2 * n + thread {
                spin_loop();
            }
            turn.0.store(2 * n + thread + 1, Relaxed);
        }
        began.elapsed()
    };
    std::thread::scope(|s| {
        let other = s.spawn(|| run(1));
        let passed = s.spawn(|| run(0)).join().unwrap();
        other.join().unwrap();
        passed
    })
}

fn updates(c: &mut Criterion) {
    let threads = if processors().len() < 2 { 1..=1 } else { 1..=2 };
    let mut group = c.benchmark_group("update one hot entry");
    let one_lock = Hot::with_one_lock();
    let mut bench = |name: &str, hot: &Hot, threads: usize, of: fn(Cost) -> Duration| {
        group.bench_function(BenchmarkId::new(name, threads), |b| {
            b.iter_custom(|times| of(hot.update(threads, times)))
        });
    };
    threads.clone().for_each(|n| bench("one lock, CPU", &one_lock, n, |cost| cost.cpu));
    threads.clone().for_each(|n| bench("one lock, time passed", &one_lock, n, |cost| cost.passed));
    if threads.contains(&2) {
        let striped = Hot::with_stripes(4);
        threads.clone().for_each(|n| bench("stripes, CPU", &striped, n, |cost| cost.cpu));
    }
    group.finish();
}

fn finding(c: &mut Criterion) {
    let mut group = c.benchmark_group("look up");
    for max in [1_000, 10_000, 100_000] {
        let owned = Owned::full(max);
        let table = owned.of(0);
        let mut id = 0;
        group.bench_function(BenchmarkId::from_parameter(max), |b| {
            b.iter(|| {
                id = (id + 7919) % max as u64;
                table.lookup(&key(id)).unwrap()
            })
        });
    }
    group.finish();
}

fn inserting(c: &mut Criterion) {
    let mut group = c.benchmark_group("insert into a full table");
    for max in [1_000, 10_000, 100_000] {
        let owned = Owned::full(max);
        let table = owned.of(0);
        let mut id = max as u64;
        group.bench_function(BenchmarkId::from_parameter(max), |b| {
            b.iter(|| {
                id += 1;
                table.insert_or_update(&key(id), NEW, add).unwrap()
            })
        });
        assert_eq!(table.entries() as usize, max);
    }
    group.finish();
}

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("read all entries");
    for max in [1_000, 10_000, 100_000] {
        let owned = Owned::full(max);
        group.throughput(Throughput::Elements(max as u64));
        group.bench_function(BenchmarkId::from_parameter(max), |b| {
            b.iter(|| owned.of(0).bodies().map(|(_, body)| body.counters.exec.calls).sum::<f64>())
        });
    }
    group.finish();
    if processors().len() > 1 {
        let mut group = c.benchmark_group("read one entry with stripes");
        for width in [4, 256] {
            let hot = Hot::with_stripes(width);
            group.bench_function(BenchmarkId::from_parameter(width), |b| {
                b.iter(|| hot.owned.of(0).bodies().map(|(_, body)| body.counters.exec.calls).sum::<f64>())
            });
        }
        group.finish();
    }
}

/// First quartile, median, third quartile.
fn quartiles(mut of: Vec<f64>) -> [f64; 3] {
    of.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| of[quarter * (of.len() - 1) / 4])
}

/// Prints what two threads cost, one measurement after another of all there is.
fn compare() {
    const ROUNDS: usize = 60;
    const TIMES: u64 = 400_000;
    if processors().len() < 2 {
        println!("\nOnly one processor: what contention costs cannot be seen.");
        return;
    }
    let (one_lock, striped) = (Hot::with_one_lock(), Hot::with_stripes(4));
    let per_step = |time: Duration| time.as_nanos() as f64 / TIMES as f64;
    let mut columns: [Vec<f64>; 7] = Default::default();
    for _ in 0..ROUNDS {
        let [lock_1, lock_2] = [1, 2].map(|threads| one_lock.update(threads, TIMES));
        let [stripes_1, stripes_2] = [1, 2].map(|threads| per_step(striped.update(threads, TIMES).cpu));
        let row = [
            per_step(lock_1.cpu),
            per_step(lock_2.cpu),
            per_step(lock_2.passed),
            stripes_1,
            stripes_2,
            stripes_2 / stripes_1,
            per_step(send_line_back_and_forth(TIMES / 10)) * 10.0 / 2.0,
        ];
        columns.iter_mut().zip(row).for_each(|(column, x)| column.push(x));
    }
    let rows = columns.map(quartiles);
    let names = [
        "one lock, 1 thread, ns CPU",
        "one lock, 2 threads, ns CPU",
        "one lock, 2 threads, ns passed",
        "stripes, 1 thread, ns CPU",
        "stripes, 2 threads, ns CPU",
        "stripes, 2 threads over 1",
        "a cache line to the other processor, ns",
    ];
    println!(
        "\n{:42} {:>8} {:>8} {:>8}",
        format!("per update, {ROUNDS} rounds in turn"),
        "1/4",
        "median",
        "3/4"
    );
    for (name, [low, median, high]) in names.iter().zip(rows) {
        println!("{name:42} {low:8.2} {median:8.2} {high:8.2}");
    }
    let median = rows[5][1];
    let verdict = if median <= BOUND { "met" } else { "NOT met" };
    println!(
        "An entry with stripes costs two threads {median:.2} of what it costs one; at most {BOUND}: {verdict}."
    );
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    updates(&mut criterion);
    finding(&mut criterion);
    inserting(&mut criterion);
    reading(&mut criterion);
    criterion.final_summary();
    // with it criterion only tries whether everything runs
    if !std::env::args().any(|argument| argument == "--test") {
        compare();
    }
}
