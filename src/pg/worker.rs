//! A background worker that does something every so often, and soon after it was woken.

use super::local::Local;
use super::{raw, server};
use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags};
use pgrx::pg_sys;
use pgrx::prelude::*;
use std::time::Duration;

pub trait Worker {
    const NAME: &'static str;

    /// The worker has started; `number` is what others [`wake`] it by.
    fn started(number: u32);
    /// How long until there is work; `None` where there will be none before the worker is woken. Asked again whenever it
    /// was, or the configuration was reread.
    fn due() -> Option<Duration>;
    fn work();
}

/// How long to sleep when there is nothing to do.
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
    W::started(server::number_of_process());
    loop {
        wait(W::due().unwrap_or(IDLE));
        if BackgroundWorker::sigterm_received() {
            return;
        }
        if BackgroundWorker::sighup_received() {
            // SAFETY: rereads the configuration, at the one place where a worker may. What it raises ends the worker: plain
            // frames.
            unsafe { raw::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        }
        if W::due() == Some(Duration::ZERO) {
            W::work();
        }
    }
}

/// Waits so long, or until a signal comes or the worker is woken. Exits with the postmaster.
fn wait(at_most: Duration) {
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    let ms = at_most.min(IDLE).as_millis() as i64 + 1;
    // SAFETY: on the process's own latch, in its main loop.
    unsafe {
        raw::WaitLatch(pg_sys::MyLatch, events as i32, ms, pg_sys::PG_WAIT_EXTENSION);
        raw::ResetLatch(pg_sys::MyLatch);
    }
    server::check_for_interrupts();
}

/// Wakes the worker of this number. If it has gone, another process may have its number: that is woken in vain, as every
/// process is prepared for.
pub fn wake(number: u32) {
    // SAFETY: in shared memory for the life of the server; the number is of a process that there was, as `started` was told.
    // Setting a latch neither waits nor raises.
    unsafe {
        let processes = pg_sys::ProcGlobal;
        if number < (*processes).allProcCount {
            raw::SetLatch(&raw mut (*(*processes).allProcs.add(number as usize)).procLatch);
        }
    }
}
