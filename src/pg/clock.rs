//! The clock that times statements: the processor's time stamp counter where that can be relied on, else the system's.
//!
//! Relied on is a counter that the processor calls invariant and that the kernel itself tells the time by, for as long as
//! the two agree (see [`crate::ticks`]); asked for by name, any invariant one. Each backend compares them by itself, a
//! dozen times a second at most, and goes over to the system's clock for good when they disagree.
//!
//! As often, a backend that times statements tells all others the time of day, for what need not be exact to a tenth of
//! a second ([`tell_time_to`]): so nobody has to ask for it when something is recorded.

use super::{local::Local, server};
use crate::ticks::{self, Moment, Ticks};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

/// A reading, to be compared with a later one: ticks, or the system's nanoseconds with the highest bit set.
#[derive(Clone, Copy, Default)]
pub struct Reading(u64);

impl Reading {
    /// As good as random where it matters little.
    pub fn noise(self) -> u32 {
        (self.0 as u32).wrapping_mul(0x9e37_79b9) >> 8
    }
}

const SYSTEM: u64 = 1 << 63;
/// Nanoseconds between two comparisons of the clocks.
const INTERVAL: f64 = 80e6;
/// The told time of day is this old, in microseconds, before it is told again: many backends compare at once.
const TOLD_FOR: i64 = 50_000;
/// Of the first calibration. A pair of readings is some hundred nanoseconds apart.
const CALIBRATION: Duration = Duration::from_millis(10);
/// Where the kernel names the clock it uses.
const KERNELS: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether readings are of the counter.
static COUNTS: Local<bool> = Local::new(false);
/// The counter at the last comparison, and how far it may go before the next.
static LAST: Local<u64> = Local::new(0);
static UNTIL: Local<u64> = Local::new(0);
static FACTOR: Local<u64> = Local::new(0);
/// As calibrated; what the backend knows of it.
static TICKS: Local<Option<Ticks>> = Local::new(None);
/// Whether the kernel tells the time by the counter.
static KERNEL_COUNTS: Local<bool> = Local::new(false);
/// Where the time of day is told, and when the next time is where the system's clock is read; nanoseconds of that.
static TIME: Local<Option<&'static AtomicI64>> = Local::new(None);
static TELL_NEXT: Local<u64> = Local::new(0);

/// Now.
#[inline(always)]
pub fn now() -> Reading {
    if !COUNTS.get() {
        return system();
    }
    let ticks = counter();
    // as much as a difference, for a counter that was set back or never compared
    if ticks.wrapping_sub(LAST.get()) > UNTIL.get() { compared() } else { Reading(ticks) }
}

/// Nanoseconds since an earlier reading; 0 if that is not earlier.
#[inline(always)]
pub fn nanoseconds_since(begin: Reading) -> u64 {
    let ticks = counter().wrapping_sub(begin.0);
    // likewise; a long time is one that the clocks were not compared in
    if !COUNTS.get() || begin.0 & SYSTEM != 0 || ticks > UNTIL.get() {
        return since(begin);
    }
    ticks::nanoseconds(FACTOR.get(), ticks)
}

/// Nanoseconds that a pair of readings tells of nothing.
pub fn overhead() -> u64 {
    (0..3).map(|_| nanoseconds_since(now())).min().unwrap_or(0)
}

#[inline(never)]
fn since(begin: Reading) -> u64 {
    let now = now();
    if (begin.0 | now.0) & SYSTEM != 0 {
        return between(begin, now);
    }
    ticks::nanoseconds(FACTOR.get(), now.0.saturating_sub(begin.0))
}

/// Between readings of which not both are of the counter.
#[cold]
#[inline(never)]
fn between(begin: Reading, now: Reading) -> u64 {
    let nows = if now.0 & SYSTEM != 0 { now } else { system() }.0 & !SYSTEM;
    let begins = match TICKS.get() {
        Some(ticks) if begin.0 & SYSTEM == 0 => ticks.system(begin.0, nows),
        _ => begin.0 & !SYSTEM,
    };
    nows.saturating_sub(begins)
}

#[inline(never)]
fn system() -> Reading {
    let ns = monotonic();
    if ns >= TELL_NEXT.get() {
        tell_time();
        TELL_NEXT.set(ns.saturating_add(INTERVAL as u64));
    }
    Reading(ns | SYSTEM)
}

/// From now on the time of day is told here, in microseconds of the server's epoch: where a statement is timed it is at
/// most [`INTERVAL`] and [`TOLD_FOR`] old, together. It never goes back.
pub fn tell_time_to(time: &'static AtomicI64) {
    TIME.set(Some(time));
}

#[cold]
fn tell_time() {
    if let Some(time) = TIME.get() {
        let now = server::now();
        if now.saturating_sub(time.load(Relaxed)) > TOLD_FOR {
            time.fetch_max(now, Relaxed);
        }
    }
}

/// Nanoseconds of a clock that never steps back, from an arbitrary start.
fn monotonic() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the struct it is given; CLOCK_MONOTONIC exists on every system the server runs on.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Compares the clocks and reads the one that is left.
#[cold]
#[inline(never)]
fn compared() -> Reading {
    tell_time();
    let ticks = TICKS.get().and_then(|ticks| ticks.check(moment()));
    match ticks {
        Some(Ticks { rate, last: Some(last) }) => {
            TICKS.set(ticks);
            FACTOR.set(ticks.map_or(0, |t| t.factor()));
            LAST.set(last.ticks);
            UNTIL.set((INTERVAL / rate) as u64);
            Reading(last.ticks)
        }
        _ => {
            // what was the last comparison stays, to tell running executions' times by
            COUNTS.set(false);
            system()
        }
    }
}

/// Both clocks at nearly one moment: of some pairs of readings the one that took least.
fn moment() -> Moment {
    let pair = || {
        let before = counter();
        let ns = monotonic();
        let after = counter();
        (
            after.wrapping_sub(before),
            Moment { ticks: before.wrapping_add(after.wrapping_sub(before) / 2), ns },
        )
    };
    let first = pair();
    (0..3).map(|_| pair()).fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it. It can be forbidden to a process, but Linux's own clocks, which the server
    // reads all the time, use it too where it is any good.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn counter() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const POWER: u32 = 0x8000_0007;
    __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx >> 8 & 1 == 1
}

#[cfg(not(target_arch = "x86_64"))]
fn is_invariant() -> bool {
    false
}

/// Which clock is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The counter if the kernel uses it, else the system's clock.
    Auto,
    System,
    /// The counter.
    Tsc,
}

/// Looks what there is, in the postmaster; takes ten milliseconds.
pub fn init() {
    if !is_invariant() {
        return;
    }
    KERNEL_COUNTS.set(std::fs::read_to_string(KERNELS).is_ok_and(|name| name.trim() == "tsc"));
    let from = moment();
    std::thread::sleep(CALIBRATION);
    TICKS.set(Ticks::calibrate(from, moment()));
}

/// Whether there is a counter to use.
pub fn has_counter() -> bool {
    TICKS.get().is_some()
}

/// Uses another clock from now on. A counter that was given up is compared anew.
pub fn choose(source: Source) {
    let counts = match source {
        Source::Auto => KERNEL_COUNTS.get(),
        Source::System => false,
        Source::Tsc => true,
    };
    if counts && let Some(ticks) = TICKS.get() {
        if ticks.last.is_some() {
            // running executions' times may have to be told by it
            let now = moment();
            TICKS.set(ticks.check(now).or(Some(Ticks { last: Some(now), ..ticks })));
        }
        UNTIL.set(0);
        LAST.set(0);
    }
    COUNTS.set(counts && has_counter());
}

/// The clock in use, as the setting names it.
pub fn source() -> &'static str {
    if COUNTS.get() { "tsc" } else { "system" }
}
