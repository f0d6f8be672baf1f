//! An entry's counters and how one execution changes them.
//!
//! Everything is a sum of weight times value (see [`crate::draw`]), kept in doubles: exact integers up to 2^53, and
//! at `sample_rate = 1`, where every weight is 1, exact altogether. [`Counters::add`] runs under a slot's spinlock:
//! plain arithmetic, no branch that can fail.

use crate::histogram::Histogram;
use crate::variance::Shared;
use serde::{Deserialize, Serialize};
use std::mem::offset_of;
use std::ops::Range;

/// Number of block counters, in the order of the server's `BufferUsage`: shared hit, read, dirtied, written; local
/// hit, read, dirtied, written; temp read, written.
pub const BLOCKS: usize = 10;
/// Block timers (ms): shared read, write; local read, write; temp read, write.
pub const TIMERS: usize = 6;
/// WAL counters: records, full page images, bytes, times the buffers were full.
pub const WAL: usize = 4;

/// What planning or executing one statement used.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub blocks: [i64; BLOCKS],
    /// Nanoseconds; see [`TIMERS`].
    pub timers: [i64; TIMERS],
    pub wal: [i64; WAL],
}

/// What compiling one statement's expressions took; times in ms.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Jit {
    pub functions: f64,
    pub generation_time: f64,
    pub inlining_count: f64,
    pub inlining_time: f64,
    pub optimization_count: f64,
    pub optimization_time: f64,
    pub emission_count: f64,
    pub emission_time: f64,
    pub deform_count: f64,
    pub deform_time: f64,
}

/// Which of the two timings an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Plan,
    Exec,
}

/// One planning or execution of a statement, as it is added to its entry.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    pub kind: Kind,
    /// How many statements this one stands for, at least 1.
    pub weight: f64,
    pub nanoseconds: u64,
    pub rows: u64,
    /// `None` when nothing was used.
    pub usage: Option<&'a Usage>,
    pub jit: Option<&'a Jit>,
    /// Parallel workers planned for and launched.
    pub workers: [u32; 2],
    /// When the top-level statement around it began, in microseconds of the server's epoch.
    pub at: i64,
    /// What the same draw has added to the entry before. Matters only with a weight above 1.
    pub shared: Shared,
}

/// An execution that was ended by an error.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// How many such this one stands for: 1 if it would have been noticed without being drawn.
    pub weight: f64,
    /// How many statements the time stands for: 0 if it was not taken.
    pub time_weight: f64,
    pub nanoseconds: u64,
    /// As the server packs it: six bits a character, the first lowest.
    pub sqlstate: i32,
    /// As in [`Event`].
    pub at: i64,
}

/// A SQLSTATE's class, its first two characters, packed likewise.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
#[repr(transparent)]
pub struct Class(u16);

impl Class {
    const fn of(sqlstate: i32) -> Self {
        Class((sqlstate & 0xFFF) as u16)
    }

    const fn named(name: [u8; 2]) -> Self {
        Class((name[0] - b'0') as u16 | ((name[1] - b'0') as u16) << 6)
    }

    pub fn name(self) -> [u8; 2] {
        // a statistics file may hold any number
        [self.0, self.0 >> 6].map(|c| (c & 0x3F) as u8 + b'0')
    }
}

impl Failure {
    /// query_canceled
    const CANCELED: i32 = Self::packed(*b"57014");

    pub const fn packed(sqlstate: [u8; 5]) -> i32 {
        let (mut code, mut n) = (0, 0);
        while n < 5 {
            code |= ((sqlstate[n] - b'0') as i32) << (6 * n);
            n += 1;
        }
        code
    }

    /// Whether errors have such codes; successes, warnings and "no data" have others.
    pub fn is_error(&self) -> bool {
        const NONE: [Class; 3] = [Class::named(*b"00"), Class::named(*b"01"), Class::named(*b"02")];
        !NONE.contains(&Class::of(self.sqlstate))
    }
}

/// Classes of errors that are counted apart, of one entry: the first that come.
pub const CLASSES: usize = 4;

/// Executions that were ended by errors. They are in none of the other counters, as with pg_stat_statements.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Failures {
    pub errors: f64,
    /// Time until they failed, ms.
    pub time: f64,
    /// Those among them that were canceled, by request or by a timeout.
    pub cancels: f64,
    classes: [Class; CLASSES],
    errors_of: [f64; CLASSES],
}

impl Failures {
    fn add(&mut self, f: &Failure) {
        self.errors += f.weight;
        if f.sqlstate == Failure::CANCELED {
            self.cancels += f.weight;
        }
        self.time += f.time_weight * (f.nanoseconds as f64 / NS_PER_MS);
        self.count(Class::of(f.sqlstate), f.weight);
    }

    fn count(&mut self, class: Class, errors: f64) {
        let place = (0..CLASSES).find(|n| self.errors_of[*n] == 0.0 || self.classes[*n] == class);
        if let Some(n) = place {
            self.classes[n] = class;
            self.errors_of[n] += errors;
        }
    }

    fn merge(&mut self, other: &Failures) {
        self.errors += other.errors;
        self.cancels += other.cancels;
        self.time += other.time;
        other.by_class().for_each(|(class, errors)| {
            if let Some(class) = class {
                self.count(class, errors);
            }
        });
    }

    /// Errors by class; without a class those for which there was no place.
    pub fn by_class(&self) -> impl Iterator<Item = (Option<Class>, f64)> {
        let told = self.errors_of.iter().sum::<f64>();
        // rounding is no error
        let others = if self.errors - told > 0.5 { self.errors - told } else { 0.0 };
        let classes = self.classes.map(Some).into_iter().chain([None]);
        classes.zip(self.errors_of.into_iter().chain([others])).filter(|(_, errors)| *errors > 0.0)
    }
}

/// Calls and times (ms) of one kind, with Welford's running mean and sum of squared deviations (West 1979 for the
/// weighted form).
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Timing {
    pub calls: f64,
    pub total: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub squares: f64,
    /// Whether there was a call since min and max were last reset.
    pub seen: bool,
}

impl Timing {
    #[inline(always)]
    fn add(&mut self, weight: f64, ms: f64) {
        self.calls += weight;
        self.total += weight * ms;
        let off = ms - self.mean;
        let mean = self.mean + off * (weight / self.calls);
        // rounding must not carry the mean past the value it moves towards, hence never outside min..max
        let (low, high) = if off < 0.0 { (ms, self.mean) } else { (self.mean, ms) };
        let mean = if mean < high { mean } else { high };
        let mean = if mean > low { mean } else { low };
        self.mean = mean;
        self.squares += weight * off * (ms - mean);
        if !self.seen {
            self.seen = true;
            self.min = ms;
            self.max = ms;
        } else {
            self.min = if ms < self.min { ms } else { self.min };
            self.max = if ms > self.max { ms } else { self.max };
        }
    }

    /// Population standard deviation in ms; 0 for at most one call.
    pub fn stddev(&self) -> f64 {
        if self.calls > 1.0 { (self.squares / self.calls).max(0.0).sqrt() } else { 0.0 }
    }

    fn reset_minmax(&mut self) {
        (self.min, self.max, self.seen) = (0.0, 0.0, false);
    }

    /// Adds what was counted elsewhere (Chan, Golub and LeVeque 1979).
    pub fn merge(&mut self, other: &Timing) {
        if other.calls == 0.0 && !other.seen {
            return;
        }
        let calls = self.calls + other.calls;
        if calls > 0.0 {
            let off = other.mean - self.mean;
            self.squares += other.squares + off * off * (self.calls * other.calls / calls);
            self.mean += off * (other.calls / calls);
        }
        self.calls = calls;
        self.total += other.total;
        if other.seen {
            self.min = if self.seen { self.min.min(other.min) } else { other.min };
            self.max = if self.seen { self.max.max(other.max) } else { other.max };
            self.seen = true;
        }
    }
}

/// One entry's counters.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Counters {
    // what every execution changes comes first, on as few cache lines as it fits
    pub exec: Timing,
    pub rows: f64,
    /// Executions really looked at.
    pub sampled_calls: u64,
    /// Begin of the first and of the last execution seen, whether it failed or not; microseconds of the server's epoch, 0
    /// before the first.
    pub first_exec: i64,
    pub last_exec: i64,
    // then what else an eviction looks at
    pub failures: Failures,
    pub plan: Timing,
    /// The estimated variances of `exec.calls` and, ms^2, of `exec.total`; see [`crate::variance`].
    pub calls_variance: f64,
    pub time_variance: f64,
    #[serde(skip, default = "Used::perhaps")]
    pub used: Used,
    /// Of execution times.
    pub histogram: Histogram,
    // then what is nothing as long as `used` says so
    pub blocks: [f64; BLOCKS],
    pub timers: [f64; TIMERS],
    pub wal: [f64; WAL],
    pub jit: Jit,
    /// Parallel workers planned for and launched.
    pub workers: [f64; 2],
}

/// Whether an entry's counters of blocks, WAL, JIT compilation and workers may be other than 0. Many an entry that is soon
/// evicted has none, and then these cache lines are left alone.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used(bool);

impl Used {
    fn perhaps() -> Self {
        Used(true)
    }
}

/// It tells nothing that the counters do not.
impl PartialEq for Used {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What a call is worth, in time spent, for [`Counters::score`].
pub const CALL_MS: f64 = 0.01;

/// Dividing rounds to what the nanoseconds would be written as in milliseconds.
pub const NS_PER_MS: f64 = 1e6;

/// An execution that began this much before the last one, in microseconds, shows that the clock ran ahead then (or that it
/// took as long itself: until the next execution they cannot be told apart).
const LONG: i64 = 24 * 3600 * 1_000_000;

impl Counters {
    /// Bytes of it that every execution changes, and those of the histogram as far as it is of one class.
    pub const UPDATED: Range<usize> = 0..offset_of!(Counters, failures);
    pub const HISTOGRAM: Range<usize> =
        offset_of!(Counters, histogram)..offset_of!(Counters, histogram) + Histogram::HEAD;

    #[inline(always)]
    pub fn add(&mut self, e: &Event) {
        // signed ones convert in one instruction
        let ns = e.nanoseconds as i64 as f64;
        let ms = ns / NS_PER_MS;
        let w = e.weight;
        match e.kind {
            Kind::Plan => self.plan.add(w, ms),
            Kind::Exec => {
                self.exec.add(w, ms);
                self.sampled_calls += 1;
                self.executed(e.at);
                self.rows += w * e.rows as i64 as f64;
                self.histogram.add(w, ns);
                if w > 1.0 {
                    self.add_variance(w, ms, &e.shared);
                }
            }
        }
        if let Some(usage) = e.usage {
            self.add_usage(w, usage);
        }
        if e.workers != [0, 0] {
            self.used = Used(true);
            for (sum, n) in self.workers.iter_mut().zip(e.workers) {
                *sum += w * f64::from(n);
            }
        }
        if let Some(j) = e.jit {
            self.add_jit(w, j);
        }
    }

    /// Adds an execution that failed.
    pub fn add_failure(&mut self, failure: &Failure) {
        self.executed(failure.at);
        self.failures.add(failure);
    }

    /// What began later may be told of earlier.
    #[inline(always)]
    fn executed(&mut self, at: i64) {
        if self.first_exec == 0 || at < self.first_exec {
            self.first_exec = at;
        }
        if at >= self.last_exec {
            self.last_exec = at;
        } else {
            self.executed_before_last(at);
        }
    }

    #[cold]
    #[inline(never)]
    fn executed_before_last(&mut self, at: i64) {
        if self.last_exec.saturating_sub(at) > LONG {
            self.last_exec = at;
        }
    }

    #[inline(never)]
    fn add_usage(&mut self, w: f64, u: &Usage) {
        self.used = Used(true);
        for (sum, x) in self.blocks.iter_mut().zip(u.blocks) {
            *sum += w * x as f64;
        }
        if u.timers.iter().any(|x| *x != 0) {
            for (sum, x) in self.timers.iter_mut().zip(u.timers) {
                *sum += w * (x as f64 / NS_PER_MS);
            }
        }
        if u.wal[0] != 0 {
            for (sum, x) in self.wal.iter_mut().zip(u.wal) {
                *sum += w * x as f64;
            }
        }
    }

    /// Adds what was counted of the same entry elsewhere.
    pub fn merge(&mut self, other: &Counters) {
        self.exec.merge(&other.exec);
        self.plan.merge(&other.plan);
        self.rows += other.rows;
        self.sampled_calls += other.sampled_calls;
        self.calls_variance += other.calls_variance;
        self.time_variance += other.time_variance;
        if self.first_exec == 0 || other.first_exec != 0 && other.first_exec < self.first_exec {
            self.first_exec = other.first_exec;
        }
        self.last_exec = self.last_exec.max(other.last_exec);
        self.failures.merge(&other.failures);
        self.histogram.merge(&other.histogram);
        if other.used.0 {
            self.merge_used(other);
        }
    }

    fn merge_used(&mut self, other: &Counters) {
        fn add<const N: usize>(sums: &mut [f64; N], more: &[f64; N]) {
            sums.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
        }
        add(&mut self.blocks, &other.blocks);
        add(&mut self.timers, &other.timers);
        add(&mut self.wal, &other.wal);
        add(&mut self.workers, &other.workers);
        // which marks them as used
        self.add_jit(1.0, &other.jit);
    }

    /// Begins anew with nothing counted, and leaves alone what need not be written for that.
    pub fn clear(&mut self) {
        self.copy_in_brief(&Counters::default());
        self.histogram.clear();
    }

    /// Takes over all of another's but the histogram.
    #[inline(always)]
    pub fn copy_in_brief(&mut self, from: &Counters) {
        // field by field, as the histogram would be copied twice
        #[rustfmt::skip]
        let Counters {
            exec, rows, sampled_calls, first_exec, last_exec, failures, plan, calls_variance, time_variance, used,
            histogram: _, blocks: _, timers: _, wal: _, jit: _, workers: _,
        } = *from;
        (self.exec, self.rows, self.sampled_calls) = (exec, rows, sampled_calls);
        (self.first_exec, self.last_exec, self.failures, self.plan) = (first_exec, last_exec, failures, plan);
        (self.calls_variance, self.time_variance) = (calls_variance, time_variance);
        if used.0 || self.used.0 {
            let Counters { blocks, timers, wal, jit, workers, .. } = *from;
            (self.blocks, self.timers, self.wal) = (blocks, timers, wal);
            (self.jit, self.workers) = (jit, workers);
        }
        self.used = used;
    }

    /// Whether any of the counters behind the histogram may be other than 0.
    #[inline(always)]
    pub fn is_used(&self) -> bool {
        self.used.0
    }

    /// One execution's square, and its products with those before it that shared its draw.
    #[inline]
    fn add_variance(&mut self, w: f64, ms: f64, shared: &Shared) {
        self.calls_variance += w * (w - 1.0 + 2.0 * shared.calls);
        self.time_variance += w * ms * ((w - 1.0) * ms + 2.0 * shared.ms);
    }

    /// Standard error of `exec.calls`; 0 where everything was looked at.
    pub fn calls_stderr(&self) -> f64 {
        self.calls_variance.sqrt()
    }

    /// Standard error of `exec.total`, ms.
    pub fn time_stderr(&self) -> f64 {
        self.time_variance.sqrt()
    }

    #[cold]
    fn add_jit(&mut self, w: f64, j: &Jit) {
        self.used = Used(true);
        let s = &mut self.jit;
        s.functions += w * j.functions;
        s.generation_time += w * j.generation_time;
        s.inlining_count += w * j.inlining_count;
        s.inlining_time += w * j.inlining_time;
        s.optimization_count += w * j.optimization_count;
        s.optimization_time += w * j.optimization_time;
        s.emission_count += w * j.emission_count;
        s.emission_time += w * j.emission_time;
        s.deform_count += w * j.deform_count;
        s.deform_time += w * j.deform_time;
    }

    pub fn reset_minmax(&mut self) {
        self.exec.reset_minmax();
        self.plan.reset_minmax();
    }

    /// How much the entry is worth keeping: time spent (ms) and calls, halved for every `HALF_LIFE` since it was
    /// last executed. A call counts as much as [`CALL_MS`], so that a hot trivial statement outlives noise and
    /// a rare expensive one outlives both.
    pub fn score(&self, now: i64) -> f64 {
        const HALF_LIFE: f64 = 3600e6;
        let spent = self.exec.total + self.plan.total + self.failures.time;
        let spent = spent + CALL_MS * (self.exec.calls + self.plan.calls + self.failures.errors);
        let halvings = now.saturating_sub(self.last_exec).max(0) as f64 / HALF_LIFE;
        spent * halved(halvings)
    }
}

/// Two to the power of `-n`, linear between whole numbers: near enough to compare scores, and quickly done.
fn halved(n: f64) -> f64 {
    let whole = n.min(1000.0) as u64;
    (1.0 - (n.min(1000.0) - whole as f64) / 2.0) * f64::from_bits((1023 - whole) << 52)
}

/// What evicted entries had counted, so that sums over the view never shrink silently.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
#[repr(C)]
pub struct Evicted {
    pub exec: Timing,
    pub plan: Timing,
    pub rows: f64,
    pub errors: f64,
    /// As an entry's.
    pub calls_variance: f64,
    pub time_variance: f64,
}

impl Evicted {
    pub fn of(counters: &Counters) -> Self {
        Evicted {
            exec: counters.exec,
            plan: counters.plan,
            rows: counters.rows,
            errors: counters.failures.errors,
            calls_variance: counters.calls_variance,
            time_variance: counters.time_variance,
        }
    }

    pub fn merge(&mut self, other: &Evicted) {
        self.exec.merge(&other.exec);
        self.plan.merge(&other.plan);
        self.rows += other.rows;
        self.errors += other.errors;
        self.calls_variance += other.calls_variance;
        self.time_variance += other.time_variance;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exec(weight: f64, ms: f64, rows: u64) -> Event<'static> {
        Event {
            kind: Kind::Exec,
            weight,
            nanoseconds: (ms * NS_PER_MS).round() as u64,
            rows,
            usage: None,
            jit: None,
            workers: [0; 2],
            at: 1,
            shared: Shared::NOTHING,
        }
    }

    #[test]
    fn unit_weights_count_exactly() {
        let mut c = Counters::default();
        for ms in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            c.add(&exec(1.0, ms, 3));
        }
        assert_eq!((c.exec.calls, c.exec.total, c.rows, c.sampled_calls), (8.0, 40.0, 24.0, 8));
        assert_eq!((c.exec.min, c.exec.max, c.exec.mean), (2.0, 9.0, 5.0));
        assert!((c.exec.stddev() - 2.0).abs() < 1e-12);
        assert_eq!((c.calls_variance, c.time_variance), (0.0, 0.0));
    }

    #[test]
    fn a_weight_counts_as_that_many_equal_calls() {
        let (mut a, mut b) = (Counters::default(), Counters::default());
        for ms in [1.0, 3.0] {
            a.add(&exec(2.0, ms, 5));
            b.add(&exec(1.0, ms, 5));
            b.add(&exec(1.0, ms, 5));
        }
        assert_eq!((a.exec.calls, a.exec.total, a.rows), (b.exec.calls, b.exec.total, b.rows));
        assert!((a.exec.stddev() - b.exec.stddev()).abs() < 1e-12);
        assert_eq!(a.sampled_calls, 2);
        // two draws of weight 2: w(w-1) = 2 each; times 1 and 3
        assert_eq!((a.calls_variance, a.time_variance), (4.0, 2.0 + 18.0));
    }

    #[test]
    fn two_parts_merged_are_what_one_would_be() {
        let (mut whole, mut parts) = (Counters::default(), [Counters::default(); 2]);
        for (n, ms) in [5.0, 0.0, 3.0, 9.0, 2.5, 7.0, 1.0].into_iter().enumerate() {
            let event = Event { at: 100 + n as i64, ..exec(1.0 + n as f64, ms, 2) };
            whole.add(&event);
            parts[n % 2].add(&event);
        }
        let mut merged = Counters::default();
        parts.iter().for_each(|part| merged.merge(part));
        let (m, w) = (merged.exec, whole.exec);
        assert_eq!((m.calls, m.total, m.min, m.max, m.seen), (w.calls, w.total, 0.0, 9.0, true));
        assert!((m.mean - w.mean).abs() < 1e-12 && (m.stddev() - w.stddev()).abs() < 1e-12);
        assert_eq!((merged.rows, merged.sampled_calls, merged.plan), (whole.rows, 7, Timing::default()));
        assert_eq!(merged.time_variance, whole.time_variance);
        assert_eq!((merged.first_exec, merged.last_exec), (100, 106));
        let before = merged;
        merged.merge(&Counters::default());
        assert_eq!(merged, before);
    }

    #[test]
    fn what_was_used_is_cleared_copied_and_merged_each_kind_by_itself() {
        let usage = Usage { blocks: [1; BLOCKS], timers: [2; TIMERS], wal: [3; WAL] };
        let jit = Jit { functions: 1.0, ..Jit::default() };
        let failure =
            Failure { weight: 1.0, time_weight: 1.0, nanoseconds: 1, sqlstate: Failure::CANCELED, at: 1 };
        let nothing = Counters::default();
        let counted = |event: Event| {
            let mut c = nothing;
            c.add(&event);
            c
        };
        let mut failed = nothing;
        failed.add_failure(&failure);
        let of_a_file: Counters = serde_json::from_str(r#"{"blocks": [1,2,3,4,5,6,7,8,9,10]}"#).unwrap();
        let all = [
            nothing,
            counted(exec(1.0, 1.0, 1)),
            counted(exec(2.0, 1.0, 1)),
            counted(Event { usage: Some(&usage), ..exec(1.0, 1.0, 0) }),
            counted(Event { usage: Some(&usage), kind: Kind::Plan, ..exec(1.0, 1.0, 0) }),
            counted(Event { jit: Some(&jit), ..exec(1.0, 1.0, 0) }),
            counted(Event { workers: [2, 1], ..exec(1.0, 1.0, 0) }),
            failed,
            of_a_file,
        ];
        for from in &all {
            let mut cleared = *from;
            cleared.clear();
            assert_eq!(cleared, nothing);
            let mut merged = cleared;
            merged.merge(from);
            assert_eq!(merged, *from);
            merged.clear();
            assert_eq!(merged, nothing);
            for over in &all {
                let mut copy = *over;
                copy.copy_in_brief(from);
                assert_eq!(copy, Counters { histogram: over.histogram, ..*from });
                copy.clear();
                assert_eq!(copy, nothing);
            }
        }
    }

    #[test]
    fn halving_is_exact_at_whole_numbers_and_falls_between() {
        for n in 0..1000 {
            assert_eq!(halved(f64::from(n)), 0.5f64.powi(n));
        }
        assert_eq!(halved(0.5), 0.75);
        assert!((0..4000).map(|n| halved(f64::from(n) / 4.0)).is_sorted_by(|a, b| a > b));
        assert_eq!(halved(1e300), halved(1000.0));
    }

    #[test]
    fn a_true_zero_minimum_stays_zero() {
        let mut c = Counters::default();
        c.add(&exec(1.0, 0.0, 0));
        c.add(&exec(1.0, 5.0, 0));
        assert_eq!((c.exec.min, c.exec.max), (0.0, 5.0));
    }

    #[test]
    fn minmax_reset_starts_them_anew_and_nothing_else() {
        let mut c = Counters::default();
        c.add(&exec(1.0, 1.0, 0));
        c.add(&exec(1.0, 9.0, 0));
        c.reset_minmax();
        assert_eq!((c.exec.min, c.exec.max, c.exec.calls), (0.0, 0.0, 2.0));
        c.add(&exec(1.0, 5.0, 0));
        assert_eq!((c.exec.min, c.exec.max, c.exec.total), (5.0, 5.0, 15.0));
    }

    #[test]
    fn planning_counts_apart_but_shares_usage() {
        let mut c = Counters::default();
        let usage =
            Usage { blocks: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], timers: [1_000_000; 6], wal: [1, 0, 80, 0] };
        c.add(&Event { kind: Kind::Plan, usage: Some(&usage), ..exec(2.0, 1.0, 7) });
        assert_eq!((c.plan.calls, c.exec.calls, c.rows, c.sampled_calls), (2.0, 0.0, 0.0, 0));
        assert_eq!((c.blocks[0], c.blocks[9], c.timers[5], c.wal[2]), (2.0, 20.0, 2.0, 160.0));
    }

    fn failure(sqlstate: [u8; 5], weight: f64) -> Failure {
        let sqlstate = Failure::packed(sqlstate);
        Failure { weight, time_weight: 2.0, nanoseconds: 3_000_000, sqlstate, at: 9 }
    }

    fn by_class(c: &Counters) -> Vec<(Option<String>, f64)> {
        let name = |class: Class| String::from_utf8_lossy(&class.name()).into_owned();
        c.failures.by_class().map(|(class, errors)| (class.map(name), errors)).collect()
    }

    #[test]
    fn the_first_and_the_last_are_those_that_began_so_in_whatever_order_they_are_told_of() {
        let mut c = Counters::default();
        for at in [20, 10, 30, 15] {
            c.add_failure(&Failure { at, ..failure(*b"22012", 1.0) });
        }
        assert_eq!((c.first_exec, c.last_exec), (10, 30));
    }

    #[test]
    fn whatever_a_file_holds_a_class_has_a_name() {
        assert!(Class(u16::MAX).name().is_ascii());
    }

    #[test]
    fn failures_count_apart_and_by_class() {
        let mut c = Counters::default();
        for (sqlstate, weight) in [(*b"57014", 1.0), (*b"22012", 10.0), (*b"22003", 1.0)] {
            c.add_failure(&failure(sqlstate, weight));
        }
        assert_eq!((c.failures.errors, c.failures.cancels, c.failures.time), (12.0, 1.0, 18.0));
        assert_eq!(by_class(&c), [(Some("57".into()), 1.0), (Some("22".into()), 11.0)]);
        assert_eq!((c.exec, c.rows, c.sampled_calls), (Timing::default(), 0.0, 0));
        assert_eq!((c.first_exec, c.last_exec), (9, 9));
        assert!(c.score(9) > 18.0);
        assert_eq!(Evicted::of(&c).errors, 12.0);
    }

    #[test]
    fn classes_without_a_place_are_told_together_after_merging_too() {
        let classes = [*b"08006", *b"22012", *b"23505", *b"40001", *b"XX000", *b"P0001"];
        let mut all = Counters::default();
        for sqlstate in classes {
            let mut one = Counters::default();
            one.add_failure(&failure(sqlstate, 1.0));
            all.merge(&one);
        }
        let told = ["08", "22", "23", "40"].map(|class| (Some(class.to_owned()), 1.0));
        assert_eq!(by_class(&all), [&told[..], &[(None, 2.0)]].concat());
        let mut twice = all;
        twice.merge(&all);
        assert_eq!(
            by_class(&twice),
            by_class(&all).into_iter().map(|(c, n)| (c, 2.0 * n)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn successes_and_warnings_are_no_errors() {
        let is_error = |sqlstate| failure(sqlstate, 1.0).is_error();
        assert!(![*b"00000", *b"01000", *b"02000"].into_iter().any(is_error));
        assert!([*b"22012", *b"XX000", *b"P0001", *b"0A000"].into_iter().all(is_error));
    }

    #[test]
    fn score_prefers_time_spent_over_noise_and_decays() {
        let mut rare = Counters::default();
        rare.add(&Event { at: 0, ..exec(1.0, 60_000.0, 1) });
        let mut noise = Counters::default();
        noise.add(&Event { at: 3_600_000_000, ..exec(1.0, 0.05, 1) });
        assert!(rare.score(3_600_000_000) > noise.score(3_600_000_000));
        assert!((rare.score(3_600_000_000) - rare.score(0) / 2.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn mean_lies_between_min_and_max(times in prop::collection::vec(0u64..10_000_000_000, 1..200), w in 1.0f64..50.0) {
            let mut c = Counters::default();
            for t in &times {
                c.add(&Event { nanoseconds: *t, ..exec(w, 0.0, 0) });
            }
            prop_assert!(c.exec.min <= c.exec.mean && c.exec.mean <= c.exec.max);
            prop_assert!(c.exec.stddev() >= 0.0);
        }
    }
}
