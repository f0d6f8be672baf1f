//! Shared memory of fixed size, taken at the server's start and laid out anew after a crash restart.

use super::local::Local;
use core::ffi::CStr;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::sync::atomic::AtomicU32;

/// Types that may lie in shared memory.
///
/// # Safety
/// No pointers, nothing to drop, and all change through atomics or through locks that work between processes.
pub unsafe trait Shared: Sync + 'static {
    /// Whether any bytes make a valid value, so that fresh memory need not be written before it is used.
    const ANY_BYTES: bool = false;
}

// SAFETY: atomics, and values behind `pg::spin`, whose lock is one atomic word.
unsafe impl Shared for crate::table::State {}
// SAFETY: likewise.
unsafe impl Shared for crate::table::Slot {}
// SAFETY: likewise.
unsafe impl Shared for crate::stripes::Stripe {}
// SAFETY: atomics.
unsafe impl Shared for crate::stripes::StripesState {}
// SAFETY: atomics.
unsafe impl Shared for crate::textpool::PoolState {}
// SAFETY: atomic numbers, any bytes of which are valid.
unsafe impl Shared for crate::textpool::Block {
    const ANY_BYTES: bool = true;
}
// SAFETY: likewise.
unsafe impl Shared for crate::table::Link {
    const ANY_BYTES: bool = true;
}
// SAFETY: likewise.
unsafe impl Shared for AtomicU32 {
    const ANY_BYTES: bool = true;
}

static PREVIOUS_REQUEST: Local<pg_sys::shmem_request_hook_type> = Local::new(None);
static PREVIOUS_STARTUP: Local<pg_sys::shmem_startup_hook_type> = Local::new(None);
static REQUEST: Local<fn()> = Local::new(|| ());
static STARTUP: Local<fn()> = Local::new(|| ());

/// Has `request` called when memory may be asked for, and `startup` when it can be laid out. Both may raise: the
/// server then does not start, and says why.
pub fn install(request: fn(), startup: fn()) {
    REQUEST.set(request);
    STARTUP.set(startup);
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        PREVIOUS_REQUEST.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(shmem_request);
        PREVIOUS_STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(shmem_startup);
    }
}

unsafe extern "C-unwind" fn shmem_request() {
    if let Some(previous) = PREVIOUS_REQUEST.get() {
        // SAFETY: the hook that was there, called as the server calls it; nothing to drop in this frame.
        unsafe { previous() };
    }
    request();
}

#[pg_guard]
extern "C-unwind" fn request() {
    REQUEST.get()();
}

unsafe extern "C-unwind" fn shmem_startup() {
    if let Some(previous) = PREVIOUS_STARTUP.get() {
        // SAFETY: as in `shmem_request`.
        unsafe { previous() };
    }
    startup();
}

#[pg_guard]
extern "C-unwind" fn startup() {
    STARTUP.get()();
}

/// Asks for room for `count` values of `T`. From the request callback.
pub fn request_array<T: Shared>(count: usize) {
    // the server aligns to 128 bytes; one line more for our own alignment
    let size = count * size_of::<T>() + align_of::<T>();
    // SAFETY: at the one time the server takes requests.
    unsafe { pg_sys::RequestAddinShmemSpace(size + pg_sys::MAXIMUM_ALIGNOF as usize + 128) };
}

/// Lays out `count` values of `T` under `name` (as `pg_shmem_allocations` shows it). From the start-up callback,
/// which runs in the postmaster alone, before any backend exists, so no lock is needed. Raises in a process that has
/// not inherited the postmaster's memory, and so would do it again.
pub fn place_array<T: Shared + Default>(name: &'static CStr, count: usize) -> &'static [T] {
    let mut found = false;
    let size = count * size_of::<T>() + align_of::<T>();
    // SAFETY: `ShmemInitStruct` returns `size` bytes that stay for the life of the segment, or raises; nobody else has
    // them unless they were found. Aligned up they hold `count` values, each written before the slice exists unless the
    // bytes that the system gave (zeros) will do.
    unsafe {
        let start = pg_sys::ShmemInitStruct(name.as_ptr(), size, &mut found) as *mut u8;
        if found {
            needs_fork();
        }
        let first = start.add(start.align_offset(align_of::<T>())) as *mut T;
        if !T::ANY_BYTES {
            (0..count).for_each(|i| first.add(i).write(T::default()));
        }
        core::slice::from_raw_parts(first, count)
    }
}

#[cold]
fn needs_fork() -> ! {
    ErrorReport::new(
        PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
        "pgss_rs needs a server whose processes are forked, without exec",
        function_name!(),
    )
    .set_hint("Build the server without EXEC_BACKEND, or remove pgss_rs from shared_preload_libraries.")
    .report(PgLogLevel::ERROR);
    unreachable!()
}
