//! A background worker that does something every so often.

use super::local::Local;
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::pg_sys;
use pgrx::prelude::*;
use std::time::{Duration, Instant};

pub trait Worker {
    const NAME: &'static str;

    /// Time from one piece of work to the next; `None` for no work. Asked again whenever the configuration is reread.
    fn interval() -> Option<Duration>;
    fn work();
}

/// How long to sleep when there is nothing to do but to reread the configuration.
const IDLE: Duration = Duration::from_secs(3600);

static MAIN: Local<fn()> = Local::new(|| ());

/// Has the postmaster start the one worker there is. While the library is being preloaded.
pub fn register<W: Worker>() {
    MAIN.set(run::<W>);
    BackgroundWorkerBuilder::new(W::NAME)
        .set_type(W::NAME)
        .set_library("pgss_rs")
        .set_function("pgss_rs_worker_main")
        .set_start_time(BgWorkerStartTime::ConsistentState)
        .set_restart_time(Some(Duration::from_secs(60)))
        .enable_shmem_access(None)
        .load();
}

/// Called by the server in the worker's process, which has inherited [`MAIN`].
#[pg_guard]
#[unsafe(no_mangle)]
extern "C-unwind" fn pgss_rs_worker_main(_arg: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    MAIN.get()();
}

fn run<W: Worker>() {
    let mut last = Instant::now();
    loop {
        let interval = W::interval();
        let left = interval.map_or(IDLE, |i| i.saturating_sub(last.elapsed()));
        if !BackgroundWorker::wait_latch(Some(left)) {
            return; // told to stop
        }
        if BackgroundWorker::sighup_received() {
            // SAFETY: rereads the configuration, at the one place where a worker may.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
        if interval.is_some_and(|i| last.elapsed() >= i) {
            W::work();
            last = Instant::now();
        }
    }
}
