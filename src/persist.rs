//! Statistics over restarts: saved when the server stops and every `pgss_rs.save_interval`, restored when it starts.
//!
//! Saving reads the table as any reader does and writes under a temporary name, which is flushed and then renamed.
//! Whatever goes wrong with the file costs one line in the server's log, never a failed start or stop.

use crate::guc;
use crate::pg::local::Local;
use crate::pg::message::{Reason, log};
use crate::pg::worker::{self, Worker};
use crate::pg::{exit, server};
use crate::snapshot::{self, Header, Saved, Text, Unreadable};
use crate::store::{self, SharedTable};
use crate::table::Body;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// In the data directory, which is every server process's working directory.
const FILE: &str = "pg_stat/pgss_rs.stat";
/// Is there when a data directory that was copied by a base backup is started for the first time.
const BACKUP_LABEL: &str = "backup_label";
const NEW_FILE: &str = "pg_stat/pgss_rs.stat.tmp";

/// Writes the file. Entries that come or go meanwhile may or may not be in it.
fn save(table: &SharedTable) -> io::Result<()> {
    let forgotten = table.state.forgotten.load(Acquire);
    let saving = &table.state.saving;
    let (wanted, now) = (saving.wanted.load(Acquire), server::now());
    let mut header = Header::new(server::MAJOR);
    header.stats_reset = table.stats_reset();
    header.dealloc = table.dealloc();
    header.evicted = table.evicted();
    let entries = table.bodies().map(|(slot, body)| saved(table, slot, &body));
    let written = new_file().and_then(|mut file| {
        snapshot::write(&mut file, &header, entries)?;
        file.sync_all()?;
        fs::rename(NEW_FILE, FILE)?;
        if table.state.forgotten.load(Acquire) != forgotten {
            fs::remove_file(FILE)?;
        }
        File::open(Path::new(FILE).parent().unwrap_or(Path::new(".")))?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(NEW_FILE);
    } else {
        saving.done.store(wanted, Relaxed);
        saving.saved_at.store(now, Release);
    }
    written
}

/// Makes the new file, which is for whom the data directory is, by the server's umask. What is left there under its name, of a crash or of somebody's making, is
/// not written to: nothing that is there is opened, links are not followed.
fn new_file() -> io::Result<File> {
    match fs::remove_file(NEW_FILE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::options().write(true).create_new(true).open(NEW_FILE),
    }
}

fn saved(table: &SharedTable, slot: u32, body: &Body) -> Saved {
    let mut text = Vec::new();
    let fits = text.try_reserve(body.text.len as usize).is_ok();
    if fits {
        table.texts.read(body.text, |part| text.extend_from_slice(part));
    }
    if !table.unchanged(slot, body) {
        text.clear(); // the entry went meanwhile; its counts are still true
    }
    Saved {
        queryid: body.key.queryid,
        userid: body.key.userid,
        dbid: body.key.dbid,
        toplevel: body.key.toplevel,
        encoding: body.encoding,
        text: Text::new(text),
        truncated: body.text.truncated || !fits,
        stats_since: body.stats_since,
        minmax_stats_since: body.minmax_stats_since,
        counters: body.counters,
    }
}

/// Reads the file, if there is one, into a table that nobody uses yet. A copy of another server's data directory starts
/// empty: what the file says was never executed there.
fn restore(table: &SharedTable) {
    if Path::new(BACKUP_LABEL).exists() {
        return;
    }
    // only a regular file is opened: to open a pipe would wait for ever
    let regular =
        |file: fs::Metadata| if file.is_file() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) };
    let file = match fs::metadata(FILE).and_then(regular).and_then(|()| File::open(FILE)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => {
            return log(format_args!(
                "pgss_rs: could not read file \"{FILE}\": {}; starting with empty statistics",
                Reason(&e)
            ));
        }
    };
    let (header, mut entries) = match snapshot::read(BufReader::new(file)) {
        Ok(read) => read,
        Err(Unreadable::Foreign) => {
            return log(format_args!("pgss_rs: file \"{FILE}\" is damaged; starting with empty statistics"));
        }
        Err(Unreadable::Newer) => {
            return log(format_args!(
                "pgss_rs: file \"{FILE}\" is of a newer version; starting with empty statistics"
            ));
        }
    };
    if header.server_major != server::MAJOR {
        let theirs = header.server_major;
        log(format_args!(
            "pgss_rs: file \"{FILE}\" is of PostgreSQL {theirs}; its statements may have other identifiers here"
        ));
    }
    table.restore_totals(header.stats_reset, header.dealloc, header.evicted);
    let now = server::now();
    let restored = entries.by_ref().filter(|e| table.restore(&e.body(), e.text.bytes(), now)).count() as u64;
    match entries.written {
        Some(written) if written == restored => {}
        Some(written) => {
            log(format_args!(
                "pgss_rs: file \"{FILE}\" is damaged; restored {restored} of {written} statements"
            ));
        }
        None => {
            log(format_args!("pgss_rs: file \"{FILE}\" is cut off; restored the first {restored} statements"))
        }
    }
}

/// From the start-up of shared memory: fills the table, and has it saved at the end. A stand-alone backend, which is
/// for repairs, leaves the file as it is.
pub fn startup() {
    if !exit::is_postmaster() {
        return;
    }
    if let Some(table) = store::table()
        && guc::saves()
        // a bug of ours must not keep the server from starting
        && catch_unwind(AssertUnwindSafe(|| restore(table))).is_err()
    {
        log(format_args!("pgss_rs: could not restore file \"{FILE}\""));
    }
    exit::at_clean_exit(|| {
        save_now();
    });
}

/// What was saved is out of date for good, what is being saved, too: everything was reset.
pub fn forget() {
    if let Some(table) = store::table() {
        table.state.forgotten.fetch_add(1, AcqRel);
    }
    let _ = fs::remove_file(FILE);
}

/// Whether it was saved, if it was to be.
fn save_now() -> bool {
    match store::table().filter(|_| guc::saves()).map(save) {
        Some(Err(e)) => {
            log(format_args!("pgss_rs: could not write file \"{FILE}\": {}", Reason(&e)));
            false
        }
        _ => true,
    }
}

/// Saves from time to time, so that a crash costs minutes, not all; and soon after a reset, so that a crash does not bring
/// back what was reset.
struct Saver;

/// When the worker has saved last, or tried to, and how long it lets resets wait after that.
static LAST: Local<Option<(Instant, Duration)>> = Local::new(None);

/// Time from one save to another that resets ask for, at least, and as a multiple of what saving takes: a storm of resets
/// keeps the worker busy for a tenth of the time at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_BY_COST: u32 = 9;
/// The same where it could not save: a line in the log each time.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Entries were reset, but not all. Has them saved soon.
pub fn save_soon() {
    if let Some(table) = store::table() {
        table.state.saving.wanted.fetch_add(1, AcqRel);
        if let Some(process) = table.state.saving.process.load(Acquire).checked_sub(1) {
            worker::wake(process);
        }
    }
}

fn is_wanted() -> bool {
    let saving = store::table().map(|table| &table.state.saving);
    saving.is_some_and(|saving| saving.wanted.load(Acquire) != saving.done.load(Relaxed))
}

impl Worker for Saver {
    const NAME: &'static str = "pgss_rs saver";

    fn started(number: u32) {
        if let Some(table) = store::table() {
            table.state.saving.process.store(number + 1, Release);
        }
        LAST.set(Some((Instant::now(), PAUSE)));
    }

    fn due() -> Option<Duration> {
        let (last, pause) = LAST.get()?;
        let asked_for = (guc::saves() && is_wanted()).then_some(pause);
        let after = guc::save_interval().into_iter().chain(asked_for).min()?;
        Some(after.saturating_sub(last.elapsed()))
    }

    fn work() {
        let begun = Instant::now();
        let saved = save_now();
        let pause = if saved { PAUSE.max(begun.elapsed() * PAUSE_BY_COST) } else { PAUSE_AFTER_FAILURE };
        LAST.set(Some((Instant::now(), pause)));
    }
}

pub fn init() {
    worker::register::<Saver>();
}
