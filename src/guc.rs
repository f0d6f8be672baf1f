//! The settings, all under `pgss_rs.`: what each means, its default and why.

use crate::pg::clock::{self, Source};
use crate::pg::gucs;
use crate::pg::local::Local;
use crate::pg::server;
use crate::{nesting, sampling};
use std::ffi::CStr;
use std::time::Duration;

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// Which statements are counted.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum Track {
    #[name = c"none"]
    None,
    #[name = c"top"]
    Top,
    #[name = c"all"]
    All,
}

/// Fraction of the top-level statements that are looked at, 0 to 1; the rest costs next to nothing. Default 1: exact
/// counts, as the whole recording costs less than half of what pg_stat_statements does.
static SAMPLE_RATE: GucSetting<f64> = GucSetting::<f64>::new(1.0);
/// Executions that take at least so many ms are always kept, and stand for themselves; -1: the draw alone decides.
/// Default -1: to know what is slow, everything has to be timed, which is most of what recording costs.
static SAMPLE_SLOW_MS: GucSetting<i32> = GucSetting::<i32>::new(-1);

/// Percent of the statements' time that recording may take; 0: whatever it takes. Default 0: it takes little, and counts
/// are exact.
static MAX_OVERHEAD: GucSetting<f64> = GucSetting::<f64>::new(0.0);

/// Default `top`, as pg_stat_statements.
static TRACK: GucSetting<Track> = GucSetting::<Track>::new(Track::Top);
/// Default on, as pg_stat_statements.
static TRACK_UTILITY: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Default off, as pg_stat_statements: it doubles the clock readings of a statement that is planned every time.
static TRACK_PLANNING: GucSetting<bool> = GucSetting::<bool>::new(false);
/// Whether statements are told apart as 18 does it, on the majors before. Default on: a list written with its values in it
/// makes an entry for each length it has, and applications that do it fill the table with one statement.
static SQUASH_LISTS: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Entries. Default 5000, as pg_stat_statements.
static MAX: GucSetting<i32> = GucSetting::<i32>::new(5000);
/// Shared memory for statement texts, in kB. Default 32 MB: 6.5 kB for each of 5000 entries.
static TEXT_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(32 * 1024);

/// Whether statistics are kept over a restart. Default on, as pg_stat_statements.
static SAVE: GucSetting<bool> = GucSetting::<bool>::new(true);
/// Seconds from one snapshot to the next; 0: only when the server stops. Default 5 minutes: that much is lost in a
/// crash, and 5000 entries with texts of ordinary length are a few MB to write.
static SAVE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(300);

/// Whether this library was built for development, unoptimised and with assertions, for whoever is about to measure it.
/// Preset, as the server's own debug_assertions.
static DEBUG_ASSERTIONS: GucSetting<bool> = GucSetting::<bool>::new(cfg!(debug_assertions));

/// The clock that times statements; names as PostgreSQL 19's setting has them.
#[derive(Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum TimingClockSource {
    #[name = c"auto"]
    Auto,
    #[name = c"system"]
    System,
    #[name = c"tsc"]
    Tsc,
}

/// Default auto: the time stamp counter is read in a quarter of the time that the system's clock takes, and used where
/// the kernel itself relies on it.
static TIMING_CLOCK_SOURCE: GucSetting<TimingClockSource> =
    GucSetting::<TimingClockSource>::new(TimingClockSource::Auto);

struct ClockSource;

impl gucs::Assigned<i32> for ClockSource {
    fn assigned(source: i32) {
        clock::choose(match source {
            s if s == TimingClockSource::System as i32 => Source::System,
            s if s == TimingClockSource::Tsc as i32 => Source::Tsc,
            _ => Source::Auto,
        });
    }
}

impl gucs::Checked for ClockSource {
    fn refused(source: i32) -> Option<(&'static CStr, &'static CStr)> {
        (source == TimingClockSource::Tsc as i32 && !clock::has_counter()).then_some((
            c"This processor has no invariant time stamp counter.",
            c"Use \"auto\" or \"system\".",
        ))
    }
}

/// What `track`, `sample_rate`, `sample_slow_ms` and `max_overhead` together mean for the draw of a top-level statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Drawing {
    Nothing,
    All,
    Some,
    /// Some, and everything is timed, as it is kept if it turns out to be slow.
    Timed,
}

/// Kept by the assign hooks of all four, as it is asked for every statement.
static DRAWING: Local<Drawing> = Local::new(Drawing::All);

#[inline(always)]
pub fn drawing() -> Drawing {
    DRAWING.get()
}

/// Nanoseconds from which on an execution is slow; kept likewise.
static SLOW: Local<u64> = Local::new(u64::MAX);

/// Whether recording may take only a part of the statements' time; kept likewise.
static BOUNDED: Local<bool> = Local::new(false);

#[inline(always)]
pub fn is_bounded() -> bool {
    BOUNDED.get()
}

/// Whether executions of this time are kept in any case.
#[inline(always)]
pub fn is_slow(nanoseconds: u64) -> bool {
    nanoseconds >= SLOW.get()
}

/// What one of the settings that the draw depends on is about to be; the others are what they are.
#[derive(Clone, Copy)]
struct Settings {
    track: i32,
    rate: f64,
    slow: i32,
    max_overhead: f64,
}

impl Settings {
    fn now() -> Self {
        Settings {
            track: gucs::choice(&TRACK),
            rate: sample_rate(),
            slow: gucs::int(&SAMPLE_SLOW_MS),
            max_overhead: max_overhead(),
        }
    }

    fn apply(self) {
        let drawing = if self.track == Track::None as i32 {
            Drawing::Nothing
        } else if self.rate >= 1.0 && self.max_overhead <= 0.0 {
            Drawing::All
        } else if self.slow >= 0 {
            Drawing::Timed
        } else if self.rate <= 0.0 {
            Drawing::Nothing
        } else {
            Drawing::Some
        };
        DRAWING.set(drawing);
        BOUNDED.set(self.max_overhead > 0.0);
        SLOW.set(u64::try_from(self.slow).map_or(u64::MAX, |ms| ms * 1_000_000));
        nesting::set_watching(drawing != Drawing::Nothing);
        sampling::settings_changed();
    }
}

struct RateAssigned;

impl gucs::Assigned<f64> for RateAssigned {
    fn assigned(rate: f64) {
        Settings { rate, ..Settings::now() }.apply();
    }
}

struct SlowAssigned;

impl gucs::Assigned<i32> for SlowAssigned {
    fn assigned(slow: i32) {
        Settings { slow, ..Settings::now() }.apply();
    }
}

struct MaxOverheadAssigned;

impl gucs::Assigned<f64> for MaxOverheadAssigned {
    fn assigned(max_overhead: f64) {
        Settings { max_overhead, ..Settings::now() }.apply();
    }
}

struct TrackAssigned;

impl gucs::Checked for TrackAssigned {}

impl gucs::Assigned<i32> for TrackAssigned {
    fn assigned(track: i32) {
        Settings { track, ..Settings::now() }.apply();
    }
}

/// Percent; 0 if there is no bound.
#[inline(always)]
pub fn max_overhead() -> f64 {
    gucs::real(&MAX_OVERHEAD)
}

pub fn sample_rate() -> f64 {
    gucs::real(&SAMPLE_RATE)
}

/// Whether statements at this level (0 is top) are counted.
#[inline(always)]
pub fn tracks(level: i32) -> bool {
    let track = gucs::choice(&TRACK);
    track == Track::All as i32 || (track == Track::Top as i32 && level == 0)
}

#[inline(always)]
pub fn tracks_utility() -> bool {
    gucs::boolean(&TRACK_UTILITY)
}

#[inline(always)]
pub fn tracks_planning() -> bool {
    gucs::boolean(&TRACK_PLANNING)
}

/// Whether lists of constants count as one, and values of utility statements do not count. 18 has it so in any case.
#[inline(always)]
pub fn squashes_lists() -> bool {
    server::MAJOR < 18 && gucs::boolean(&SQUASH_LISTS)
}

pub fn max_entries() -> usize {
    MAX.get() as usize
}

pub fn saves() -> bool {
    gucs::boolean(&SAVE)
}

/// `None` when no snapshots are to be made while the server runs.
pub fn save_interval() -> Option<Duration> {
    let seconds = SAVE_INTERVAL.get();
    (saves() && seconds > 0).then(|| Duration::from_secs(seconds as u64))
}

pub fn text_bytes() -> usize {
    TEXT_MEMORY.get() as usize * 1024
}

pub fn init() {
    gucs::define_real::<RateAssigned>(
        c"pgss_rs.sample_rate",
        c"Fraction of statements to look at.",
        c"Each top-level statement is looked at with this probability, together with everything nested in it. Totals \
          are scaled up and stay unbiased; at 1 they are exact.",
        &SAMPLE_RATE,
        0.0,
        1.0,
    );
    gucs::define_ms::<SlowAssigned>(
        c"pgss_rs.sample_slow_ms",
        c"Time from which on executions are always kept.",
        c"What takes at least this long is kept whatever sample_rate is, and stands for itself; the rest is sampled. -1 \
          leaves everything to the draw.",
        &SAMPLE_SLOW_MS,
        -1,
    );
    gucs::define_real::<MaxOverheadAssigned>(
        c"pgss_rs.max_overhead",
        c"Percentage of the statements' time that recording may take.",
        c"Each session looks at fewer of its most frequent statements than sample_rate says while recording would take \
          more. 0 sets no bound.",
        &MAX_OVERHEAD,
        0.0,
        100.0,
    );
    gucs::define_choice::<TrackAssigned, _>(
        c"pgss_rs.track",
        c"Selects which statements are tracked by pgss_rs.",
        c"\"top\" tracks statements issued by clients, \"all\" also those nested in functions, \"none\" nothing.",
        &TRACK,
    );
    GucRegistry::define_bool_guc(
        c"pgss_rs.track_utility",
        c"Selects whether utility commands are tracked by pgss_rs.",
        c"Utility commands are all but SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES.",
        &TRACK_UTILITY,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pgss_rs.track_planning",
        c"Selects whether planning duration is tracked by pgss_rs.",
        c"Number, time and resource usage of plannings, beside those of executions.",
        &TRACK_PLANNING,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pgss_rs.squash_lists",
        c"Selects whether statements are grouped as on PostgreSQL 18.",
        c"Lists of constants count as one, and the values of SET and the names of savepoints and prepared statements do \
          not count. Off groups them as this server's pg_stat_statements; on PostgreSQL 18 that is the same.",
        &SQUASH_LISTS,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgss_rs.max",
        c"Sets the maximum number of statements tracked by pgss_rs.",
        c"When more distinct statements come, those with the least time and calls are given up.",
        &MAX,
        100,
        i32::MAX / 2,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgss_rs.text_memory",
        c"Sets the shared memory for statement texts.",
        c"A text for which there is no room is cut off, and marked in the column query_truncated.",
        &TEXT_MEMORY,
        64,
        2 * 1024 * 1024,
        GucContext::Postmaster,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_bool_guc(
        c"pgss_rs.save",
        c"Save pgss_rs statistics across server shutdowns.",
        c"They are then restored when the server starts.",
        &SAVE,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pgss_rs.save_interval",
        c"Sets the time between snapshots of pgss_rs statistics while the server runs.",
        c"After a crash, statistics are as of the last snapshot. 0 makes none.",
        &SAVE_INTERVAL,
        0,
        86400,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    gucs::define_choice::<ClockSource, _>(
        c"pgss_rs.timing_clock_source",
        c"Selects the clock that times statements.",
        c"\"auto\" uses the processor's time stamp counter where the kernel relies on it, and else the system's clock.",
        &TIMING_CLOCK_SOURCE,
    );
    GucRegistry::define_bool_guc(
        c"pgss_rs.debug_assertions",
        c"Shows whether pgss_rs was built with assertions.",
        c"Such a build is not optimised: what it costs says nothing.",
        &DEBUG_ASSERTIONS,
        GucContext::Internal,
        GucFlags::DISALLOW_IN_FILE,
    );
    gucs::reserve_prefix();
}
