//! Estimates against truth: simulated histories, each counted in full once and then sampled again and again.
//!
//! A history is what some sessions executed. Sampling it takes the code that backends run: the gap generator, the sums of
//! clusters, the counters and what makes estimates and standard errors of them, merged over sessions as over stripes.
//! Only the draws are random then; the truth stays. All seeds are fixed.
//!
//! `cargo test --lib --no-default-features simulation -- --nocapture` prints the figures.

use crate::counters::{Class, Counters, Event, Failure, Jit, Kind, NS_PER_MS, Usage};
use crate::draw::Random;
use crate::draw::tests::{Backend, Seeded};
use crate::histogram::Histogram;
use crate::key::Key;
use crate::variance::{Cluster, Clusters, Shared};
use std::fmt::Write;

/// Histories, and the times that each is sampled: a coverage of 95 % is itself known to half a percent then (one standard
/// error).
const ALL: [u64; 2] = [200, 10];
/// The same of what goes beyond the default settings.
const SOME: [u64; 2] = [60, 20];
const FEW: [u64; 2] = [20, 10];
/// Of the normal distribution: a 95 % interval in standard errors.
const Z95: f64 = 1.96;

/// The entries that the histories fill.
const ENTRIES: [&str; 6] =
    ["plain", "calls a function", "in its loop", "deeper", "made by a rule", "all at the top"];
const PLAIN: usize = 0;
const CALLING: usize = 1;
const LOOPED: usize = 2;
const DEEPER: usize = 3;
const RULE: usize = 4;
/// The sum of the top-level ones, whose variances add up as their draws are independent.
const TOP: usize = 5;

/// Of each entry.
type All = [Counters; ENTRIES.len()];

fn key(entry: usize) -> Key {
    Key { queryid: entry as u64 + 1, userid: 10, dbid: 5, toplevel: entry != LOOPED && entry != DEEPER }
}

/// Random numbers of a history.
struct Dice(Seeded);

impl Dice {
    fn uniform(&mut self) -> f64 {
        (self.0.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.uniform() * n as f64) as u64
    }

    /// Nanoseconds, log-normal: half of them are below `median` ms.
    fn time(&mut self, median: f64, sigma: f64) -> u64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        (median * (sigma * normal).exp() * NS_PER_MS) as u64
    }

    /// A rate below 1, each order of magnitude as likely as the other; now and then 1.
    fn rate(&mut self) -> f64 {
        if self.chance(0.15) { 1.0 } else { 0.05 * 16f64.powf(self.uniform()) }
    }
}

/// One execution, and the planning before it.
struct Work {
    entry: usize,
    planning: Option<u64>,
    nanoseconds: u64,
    rows: u64,
    /// What only some have: most executions find everything in their backend.
    used: Option<Box<Used>>,
    fails: Option<Fails>,
}

/// An execution that an error ends counts as that and nothing else.
#[derive(Clone, Copy)]
struct Fails {
    sqlstate: i32,
    /// Whether it is noticed even where it was not drawn, as it has an identifier.
    identified: bool,
}

impl Fails {
    fn new(dice: &mut Dice, entry: usize) -> Self {
        let sqlstate = if dice.chance(0.7) { *b"22012" } else { *b"57014" };
        let identified = !key(entry).toplevel || dice.chance(0.5);
        Fails { sqlstate: Failure::packed(sqlstate), identified }
    }
}

#[derive(Clone, Copy)]
struct Used {
    usage: Usage,
    jit: Jit,
    workers: [u32; 2],
}

impl Used {
    fn new(dice: &mut Dice) -> Self {
        let mut usage = Usage::default();
        usage.blocks.iter_mut().for_each(|n| *n = dice.below(30) as i64);
        usage.timers.iter_mut().for_each(|n| *n = dice.below(1_000_000) as i64);
        usage.wal.iter_mut().for_each(|n| *n = 1 + dice.below(9) as i64);
        let mut number = || 1.0 + dice.below(5) as f64;
        let jit = Jit {
            functions: number(),
            generation_time: number(),
            inlining_count: number(),
            inlining_time: number(),
            optimization_count: number(),
            optimization_time: number(),
            emission_count: number(),
            emission_time: number(),
            deform_count: number(),
            deform_time: number(),
        };
        Used { usage, jit, workers: [dice.below(4) as u32, dice.below(2) as u32] }
    }
}

impl Work {
    fn new(dice: &mut Dice, entry: usize, nanoseconds: u64) -> Self {
        Work {
            entry,
            planning: dice.chance(0.25).then(|| dice.time(0.1, 0.5)),
            nanoseconds,
            rows: dice.below(4) * dice.below(10),
            used: dice.chance(0.2).then(|| Box::new(Used::new(dice))),
            fails: dice.chance(0.05).then(|| Fails::new(dice, entry)),
        }
    }

    /// Its planning, with the weight of the draw, where that was won; and itself, with a weight of its own, where it is
    /// looked at.
    fn record(&self, to: &mut All, drawn: f64, own: f64, shared: Shared) {
        let used = self.used.as_deref();
        let event = |kind, weight, nanoseconds| Event {
            kind,
            weight,
            nanoseconds,
            rows: self.rows,
            usage: used.map(|used| &used.usage),
            jit: used.map(|used| &used.jit),
            workers: used.map_or([0; 2], |used| used.workers),
            at: 1,
            shared,
        };
        if let Some(nanoseconds) = self.planning.filter(|_| drawn > 0.0) {
            to[self.entry].add(&event(Kind::Plan, drawn, nanoseconds));
        }
        if own > 0.0 {
            to[self.entry].add(&event(Kind::Exec, own, self.nanoseconds));
        }
    }

    fn record_failure(&self, to: &mut All, fails: Fails, drawn: f64) {
        let weight = if fails.identified { 1.0 } else { drawn };
        if weight > 0.0 {
            let (nanoseconds, sqlstate) = (self.nanoseconds, fails.sqlstate);
            to[self.entry].add_failure(&Failure { weight, time_weight: drawn, nanoseconds, sqlstate, at: 1 });
        }
    }
}

/// What one draw decides over, in the order in which executions end.
struct Statement {
    rate: f64,
    work: Vec<Work>,
    /// Whether it takes turns with the next one, as two portals do.
    alternates: bool,
}

impl Statement {
    fn work(dice: &mut Dice, pace: f64) -> Vec<Work> {
        let mut work = Vec::new();
        let kind = dice.uniform();
        if kind < 0.5 {
            let time = dice.time(0.4 * pace, 0.8);
            work.push(Work::new(dice, PLAIN, time));
        } else if kind < 0.85 {
            let mut sum = dice.time(0.2 * pace, 0.5);
            for _ in 0..dice.below(8) {
                let (time, deeper) = (dice.time(0.3 * pace, 0.7), dice.time(0.5 * pace, 0.6));
                if dice.chance(0.3) {
                    work.push(Work::new(dice, DEEPER, deeper));
                    sum += deeper;
                }
                work.push(Work::new(dice, LOOPED, time));
                sum += time;
            }
            work.push(Work::new(dice, CALLING, sum));
        } else {
            for _ in 0..1 + dice.below(3) {
                let time = dice.time(0.6 * pace, 0.6);
                work.push(Work::new(dice, RULE, time));
            }
        }
        work
    }
}

/// Rates differ by session and change over time; so do the times of the same statement.
fn session(dice: &mut Dice) -> Vec<Statement> {
    let mut rate = dice.rate();
    let pace = dice.time(1.0, 0.4) as f64 / NS_PER_MS;
    let n = 1000 + dice.below(2000);
    (0..n)
        .map(|i| {
            if dice.chance(1.0 / 150.0) {
                rate = dice.rate();
            }
            let work = Statement::work(dice, pace * (1.0 + i as f64 / n as f64));
            Statement { rate, work, alternates: dice.chance(0.05) }
        })
        .collect()
}

fn history(seed: u64) -> Vec<Vec<Statement>> {
    let mut dice = Dice(Seeded(seed));
    (0..3 + dice.below(4)).map(|_| session(&mut dice)).collect()
}

/// Which executions are kept whatever is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Certain {
    None,
    /// All that take so long.
    Slow(u64),
    /// Of these the top-level ones.
    SlowAtTop(u64),
}

/// How a history is sampled.
#[derive(Clone, Copy)]
struct Sampling {
    certain: Certain,
    /// Whether what has often been recorded of late is thinned once more, each execution by itself.
    thins: bool,
    /// Whether executions that share a draw are known to.
    clusters: bool,
}

const PLAIN_SAMPLING: Sampling = Sampling { certain: Certain::None, thins: false, clusters: true };
const MS: u64 = NS_PER_MS as u64;

/// A backend that samples.
struct Sampler {
    sampling: Sampling,
    draw: Backend,
    clusters: Clusters,
    won: u64,
    dice: Dice,
    /// How often each entry was recorded, of late.
    recorded: [f64; ENTRIES.len()],
    counters: All,
}

impl Sampler {
    fn new(sampling: Sampling, seed: u64) -> Self {
        Sampler {
            sampling,
            draw: Backend::new(seed),
            clusters: Clusters::new(),
            won: 0,
            dice: Dice(Seeded(!seed)),
            recorded: [0.0; ENTRIES.len()],
            counters: [Counters::default(); ENTRIES.len()],
        }
    }

    fn run(&mut self, session: &[Statement]) {
        let mut rest = session.iter();
        while let Some(one) = rest.next() {
            let other = if one.alternates { rest.next() } else { None };
            let first = self.draw(one.rate);
            let Some(other) = other else {
                one.work.iter().for_each(|work| self.execute(work, first));
                continue;
            };
            let second = self.draw(other.rate);
            for n in 0..one.work.len().max(other.work.len()) {
                one.work.get(n).into_iter().for_each(|work| self.execute(work, first));
                other.work.get(n).into_iter().for_each(|work| self.execute(work, second));
            }
        }
    }

    fn draw(&mut self, rate: f64) -> Cluster {
        let weight = self.draw.weight(rate);
        if weight > 0.0 {
            self.won += 1;
            self.recorded.iter_mut().for_each(|n| *n *= 0.99);
        }
        Cluster { number: self.won, weight }
    }

    fn execute(&mut self, work: &Work, cluster: Cluster) {
        if let Some(fails) = work.fails {
            return work.record_failure(&mut self.counters, fails, cluster.weight);
        }
        if cluster.weight == 0.0 && self.sampling.certain == Certain::None {
            return;
        }
        let key = key(work.entry);
        let certain = match self.sampling.certain {
            Certain::None => false,
            Certain::Slow(least) => work.nanoseconds >= least,
            Certain::SlowAtTop(least) => work.nanoseconds >= least && key.toplevel,
        };
        let own = if certain { 1.0 } else { cluster.weight * self.thinned(work.entry) };
        let shared = if own > 1.0 && self.sampling.clusters {
            self.clusters.add(cluster, &key, own, work.nanoseconds)
        } else {
            Shared::NOTHING
        };
        if own > 0.0 {
            self.recorded[work.entry] += 1.0;
        }
        work.record(&mut self.counters, cluster.weight, own, shared);
    }

    /// By how much thinning makes the weight larger; 0 where the execution falls to it. The probability is of what was
    /// recorded before.
    fn thinned(&mut self, entry: usize) -> f64 {
        if !self.sampling.thins {
            return 1.0;
        }
        let keeps = (20.0 / self.recorded[entry]).min(1.0);
        if self.dice.chance(keeps) { 1.0 / keeps } else { 0.0 }
    }
}

fn with_sum(mut counters: All) -> All {
    let [mut sum, ..] = counters;
    [CALLING, RULE].iter().for_each(|n| sum.merge(&counters[*n]));
    counters[TOP] = sum;
    counters
}

fn truth(history: &[Vec<Statement>]) -> All {
    let mut counters = [Counters::default(); ENTRIES.len()];
    for work in history.iter().flatten().flat_map(|statement| &statement.work) {
        match work.fails {
            Some(fails) => work.record_failure(&mut counters, fails, 1.0),
            None => work.record(&mut counters, 1.0, 1.0, Shared::NOTHING),
        }
    }
    with_sum(counters)
}

fn sampled(history: &[Vec<Statement>], sampling: Sampling, seed: u64) -> All {
    let mut sum = [Counters::default(); ENTRIES.len()];
    for (n, session) in history.iter().enumerate() {
        let mut sampler = Sampler::new(sampling, (seed << 8) + n as u64);
        sampler.run(session);
        sum.iter_mut().zip(&sampler.counters).for_each(|(sum, c)| sum.merge(c));
    }
    with_sum(sum)
}

/// What is no total, or no estimate, or in no order.
const NO_TOTALS: [&str; 12] = [
    "classes",
    "errors_of",
    "min",
    "max",
    "mean",
    "squares",
    "seen",
    "sampled_calls",
    "first_exec",
    "last_exec",
    "calls_variance",
    "time_variance",
];

/// Every total there is, by the name under which it is saved, so that none can be forgotten.
fn totals(counters: &Counters) -> Vec<(String, f64)> {
    fn walk(name: &str, value: &serde_json::Value, totals: &mut Vec<(String, f64)>) {
        match value {
            serde_json::Value::Object(fields) => fields
                .iter()
                .filter(|(field, _)| !NO_TOTALS.contains(&field.as_str()))
                .for_each(|(field, value)| walk(&format!("{name}.{field}"), value, totals)),
            serde_json::Value::Array(all) => {
                all.iter().enumerate().for_each(|(n, value)| walk(&format!("{name}[{n}]"), value, totals));
            }
            value => totals.push((name.to_owned(), value.as_f64().unwrap())),
        }
    }
    let mut totals = Vec::new();
    walk(
        "",
        &serde_json::to_value(Counters { histogram: Histogram::default(), ..*counters }).unwrap(),
        &mut totals,
    );
    for class in [30, 36, 40, 44] {
        let from = counters.histogram.filled().filter(|(n, _)| *n >= class).map(|(_, calls)| calls).sum();
        totals.push((format!(".histogram[{class}..]"), from));
    }
    for class in ["22", "57"] {
        let of_class = |(told, errors): (Option<Class>, f64)| {
            if told.is_some_and(|told| told.name() == class.as_bytes()) { errors } else { 0.0 }
        };
        totals.push((format!(".failures[{class}]"), counters.failures.by_class().map(of_class).sum()));
    }
    totals
}

/// Of every total, and of the two variances, of which the truth is the squared error to be expected.
fn errors(truth: &Counters, estimate: &Counters) -> Vec<(String, f64)> {
    let mut errors = totals(estimate);
    for (error, truth) in errors.iter_mut().zip(totals(truth)) {
        assert_eq!(error.0, truth.0);
        error.1 -= truth.1;
    }
    let square = |error: f64| error * error;
    let calls = square(estimate.exec.calls - truth.exec.calls);
    let time = square(estimate.exec.total - truth.exec.total);
    errors.push((".calls_variance".to_owned(), estimate.calls_variance - calls));
    errors.push((".time_variance".to_owned(), estimate.time_variance - time));
    errors
}

/// Errors of one estimate, gathered.
#[derive(Default, Clone, Copy)]
struct Errors {
    n: f64,
    sum: f64,
    squares: f64,
}

impl Errors {
    fn add(&mut self, error: f64) {
        self.n += 1.0;
        self.sum += error;
        self.squares += error * error;
    }

    /// The mean in standard errors of the mean.
    fn bias(&self) -> f64 {
        if self.squares == 0.0 {
            return 0.0;
        }
        let mean = self.sum / self.n;
        mean / ((self.squares / self.n - mean * mean) / self.n).sqrt()
    }
}

/// What came of sampling many histories.
struct Study {
    /// Of each entry, how often the 95 % intervals of calls and total time held the truth.
    coverage: [[f64; 2]; ENTRIES.len()],
    /// Of each entry, each total's name and errors.
    errors: Vec<Vec<(String, Errors)>>,
    /// Mean number of executions looked at, of each entry.
    looked_at: [f64; ENTRIES.len()],
    /// That one of the samples makes up.
    part: f64,
}

impl Study {
    fn of(sampling: Sampling, [histories, times]: [u64; 2]) -> Study {
        let mut study = Study {
            coverage: [[0.0; 2]; ENTRIES.len()],
            errors: vec![Vec::new(); ENTRIES.len()],
            looked_at: [0.0; ENTRIES.len()],
            part: 1.0 / (histories * times) as f64,
        };
        for seed in 0..histories {
            let history = history(seed);
            let truth = truth(&history);
            for time in 0..times {
                study.add(&truth, &sampled(&history, sampling, 1000 + seed * times + time));
            }
        }
        study
    }

    fn add(&mut self, truth: &All, estimate: &All) {
        for (n, (truth, estimate)) in truth.iter().zip(estimate).enumerate() {
            for (sum, is) in self.coverage[n].iter_mut().zip(covers(truth, estimate)) {
                *sum += f64::from(u8::from(is)) * self.part;
            }
            self.looked_at[n] += estimate.sampled_calls as f64 * self.part;
            let errors = errors(truth, estimate);
            if self.errors[n].is_empty() {
                self.errors[n] = errors.iter().map(|(name, _)| (name.clone(), Errors::default())).collect();
            }
            for (sum, (name, error)) in self.errors[n].iter_mut().zip(errors) {
                assert_eq!(sum.0, name);
                sum.1.add(error);
            }
        }
    }

    fn print(&self, what: &str) {
        let mut lines = format!("{what}: looked at, coverage of calls and of time, largest bias\n");
        for (n, name) in ENTRIES.iter().enumerate() {
            let [calls, time] = self.coverage[n].map(|share| 100.0 * share);
            let bias = self.errors[n].iter().map(|(_, e)| e.bias().abs()).fold(0.0, f64::max);
            let looked_at = self.looked_at[n];
            writeln!(lines, "{name:>18} {looked_at:6.0} {calls:6.1} % {time:5.1} % {bias:6.2}").unwrap();
        }
        println!("{lines}");
    }

    fn assert_right(&self, what: &str) {
        self.print(what);
        for (n, entry) in ENTRIES.iter().enumerate() {
            for (coverage, of) in self.coverage[n].iter().zip(["calls", "time"]) {
                assert!((0.92..=0.98).contains(coverage), "{what}: {of} of {entry}: {coverage}");
            }
            for (name, errors) in &self.errors[n] {
                assert!(errors.bias().abs() < 3.0, "{what}: {name} of {entry}: {}", errors.bias());
            }
        }
    }
}

/// Whether the 95 % intervals of calls and of total time hold the truth.
fn covers(truth: &Counters, estimate: &Counters) -> [bool; 2] {
    [
        (estimate.exec.calls - truth.exec.calls).abs() <= Z95 * estimate.calls_stderr(),
        (estimate.exec.total - truth.exec.total).abs() <= Z95 * estimate.time_stderr(),
    ]
}

/// That docs/sampling.md has this row in a table.
fn assert_documented(row: &str) {
    println!("{row}");
    let page = include_str!("../docs/sampling.md");
    assert!(page.lines().any(|line| line == row), "not in docs/sampling.md: {row}");
}

#[test]
fn estimates_have_no_bias_and_intervals_hold_the_truth_as_often_as_they_say() {
    let study = Study::of(PLAIN_SAMPLING, ALL);
    study.assert_right("sampled");
    for (n, entry) in ENTRIES.iter().enumerate() {
        let [calls, time] = study.coverage[n].map(|share| 100.0 * share);
        assert_documented(&format!("| {entry} | {:.0} | {calls:.1} | {time:.1} |", study.looked_at[n]));
    }
}

#[test]
fn what_is_slow_may_be_kept_with_weight_1_and_the_rest_thinned() {
    let certain = Certain::Slow(5 * MS);
    Study::of(Sampling { certain, ..PLAIN_SAMPLING }, SOME).assert_right("slow ones kept");
}

#[test]
fn only_top_level_statements_may_be_kept_for_being_slow_if_what_is_nested_keeps_the_draws_weight() {
    let certain = Certain::SlowAtTop(5 * MS);
    Study::of(Sampling { certain, ..PLAIN_SAMPLING }, SOME).assert_right("slow top-level ones kept");
}

#[test]
fn hot_entries_may_be_thinned_by_probabilities_that_follow_what_was_recorded() {
    Study::of(Sampling { thins: true, ..PLAIN_SAMPLING }, SOME).assert_right("thinned");
    Study::of(Sampling { thins: true, certain: Certain::Slow(5 * MS), ..PLAIN_SAMPLING }, SOME)
        .assert_right("thinned, slow ones kept");
}

/// The simulation would tell.
#[test]
fn intervals_would_hold_the_truth_too_seldom_if_executions_of_one_draw_were_taken_for_independent() {
    let study = Study::of(Sampling { clusters: false, ..PLAIN_SAMPLING }, FEW);
    study.print("taken for independent");
    for entry in [LOOPED, DEEPER, RULE] {
        assert!(study.coverage[entry].iter().all(|share| *share < 0.92), "{:?}", study.coverage[entry]);
    }
}

/// Standard deviations of the times' logarithm: 0.5 as of a lookup by key on a quiet server, 1 where it depends on what is
/// cached, 2 of a statement that mostly finds nothing and sometimes a lot.
const SIGMAS: [f64; 3] = [0.5, 1.0, 2.0];

/// A tenth of executions drawn, `drawn` on average, half of which take up to 1 ms; and those kept that take `slow` ms: how
/// often 95 % intervals hold the truth of calls, of total time, and of the mean.
fn coverage_of_few(drawn: u64, sigma: f64, slow: f64) -> [f64; 3] {
    const RATE: f64 = 0.1;
    const POPULATIONS: u64 = 50;
    const SAMPLES: u64 = 40;
    let mut held = [0u64; 3];
    for population in 0..POPULATIONS {
        let mut dice = Dice(Seeded((drawn << 32) + population));
        let work: Vec<Work> = (0..10 * drawn)
            .map(|_| Work {
                entry: 0,
                planning: None,
                nanoseconds: dice.time(1.0, sigma),
                rows: 0,
                used: None,
                fails: None,
            })
            .collect();
        let count = |weight: &mut dyn FnMut(&Work) -> f64| {
            let mut counters = [Counters::default(); ENTRIES.len()];
            for work in &work {
                work.record(&mut counters, 0.0, weight(work), Shared::NOTHING);
            }
            counters[0]
        };
        let truth = count(&mut |_| 1.0);
        for sample in 0..SAMPLES {
            let mut draw = Backend::new((drawn << 32) + (population << 16) + sample);
            let told = count(&mut |work| match draw.weight(RATE) {
                _ if work.nanoseconds as f64 >= slow * NS_PER_MS => 1.0,
                weight => weight,
            });
            let mean_stderr = told.exec.stddev() * ((1.0 - RATE) / told.sampled_calls as f64).sqrt();
            let [calls, time] = covers(&truth, &told);
            let mean = (told.exec.mean - truth.exec.mean).abs() <= Z95 * mean_stderr;
            held.iter_mut().zip([calls, time, mean]).for_each(|(sum, is)| *sum += u64::from(is));
        }
    }
    held.map(|n| n as f64 / (POPULATIONS * SAMPLES) as f64)
}

#[test]
fn with_few_executions_looked_at_intervals_are_as_much_too_narrow_as_the_documentation_says() {
    for drawn in [5, 10, 20, 50, 100, 300] {
        let few = SIGMAS.map(|sigma| coverage_of_few(drawn, sigma, f64::INFINITY));
        let [_, with_slow, _] = coverage_of_few(drawn, 2.0, 50.0);
        let percent = |share: f64| (100.0 * share).round();
        let [[calls, ..], ..] = few;
        let mut row = format!("| {drawn} | {}", percent(calls));
        few.iter().for_each(|[_, time, _]| write!(row, " | {}", percent(*time)).unwrap());
        write!(row, " | {}", percent(with_slow)).unwrap();
        few.iter().for_each(|[.., mean]| write!(row, " | {}", percent(*mean)).unwrap());
        row += " |";
        assert_documented(&row);
    }
}
