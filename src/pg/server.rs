//! Small facts about the backend and its statement, read without guards: cheap, and none of them can raise.

use super::palloced::Palloced;
use super::raw;
use crate::lock_rules;
use crate::memo::Circumstances;
use core::ffi::CStr;
use pgrx::pg_sys;

/// The server's major version; the library is built for one.
pub const MAJOR: u16 = (pg_sys::PG_VERSION_NUM / 10_000) as u16;

/// The role whose privileges count now.
#[inline(always)]
pub fn user() -> u32 {
    // SAFETY: reads a variable; see `raw`.
    unsafe { raw::GetUserId() }.to_u32()
}

/// The database the backend is connected to.
#[inline(always)]
pub fn database() -> u32 {
    // SAFETY: a plain read of a variable set when the backend started.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// Whether this is a worker of a parallel plan, whose leader counts for it.
#[inline(always)]
pub fn is_parallel_worker() -> bool {
    // SAFETY: a plain read of a variable set when the process started.
    unsafe { pg_sys::ParallelWorkerNumber >= 0 }
}

/// When the client's current message came, microseconds of the server's epoch. Changes with every message of the
/// protocol, and never while a statement runs.
#[inline(always)]
pub fn statement_start() -> i64 {
    // SAFETY: reads a variable; see `raw`.
    unsafe { raw::GetCurrentStatementStartTimestamp() }
}

/// Now, microseconds of the server's epoch.
pub fn now() -> i64 {
    // SAFETY: reads the clock; see `raw`.
    unsafe { raw::GetCurrentTimestamp() }
}

/// The innermost subtransaction, or the transaction itself.
pub fn subtransaction() -> u32 {
    // SAFETY: reads a variable.
    unsafe { raw::GetCurrentSubTransactionId() }
}

/// How many triggers are being executed within each other.
#[inline(always)]
pub fn trigger_depth() -> i32 {
    // SAFETY: reads a variable and does not look at its argument; see `raw`.
    unsafe { raw::pg_trigger_depth(core::ptr::null_mut()) }.value() as i32
}

/// The database's encoding, as the server numbers them.
pub fn encoding() -> i32 {
    // SAFETY: reads a variable; see `raw`.
    unsafe { raw::GetDatabaseEncoding() }
}

/// The longest beginning of `text`, in the database's encoding, that fits in `limit` bytes and ends with a whole
/// character.
pub fn clip(text: &[u8], limit: usize) -> usize {
    let (len, limit) = (text.len().min(i32::MAX as usize) as i32, limit.min(i32::MAX as usize) as i32);
    // SAFETY: reads the first byte of each character that begins within `len`, whatever bytes they are: no encoding that
    // a database may have takes a second one to tell a character's length. See `raw`.
    let n = unsafe { raw::pg_encoding_mbcliplen(encoding(), text.as_ptr().cast(), len, limit) };
    usize::try_from(n).unwrap_or(0)
}

/// Bytes that a character may have, in any encoding.
pub const LONGEST_CHARACTER: usize = 4;

/// Cuts `text` off after the last whole character, in a given encoding, within `limit` bytes. It may be any bytes: those
/// of a text that was freed while it was read, or the beginning of a text, cut anywhere behind the limit.
pub fn clip_to(text: &mut Palloced<u8>, encoding: i32, limit: usize) {
    let last = pg_sys::pg_enc::_PG_LAST_ENCODING_ as i32;
    let sql_ascii = pg_sys::pg_enc::PG_SQL_ASCII as i32;
    let encoding = if (0..last).contains(&encoding) { encoding } else { sql_ascii };
    let (len, limit) = (text.len().min(i32::MAX as usize) as i32, limit.min(i32::MAX as usize) as i32);
    // a character's length is read off its first bytes, whatever is said to be left
    text.extend_from_slice(&[0; LONGEST_CHARACTER]);
    // SAFETY: reads at most `len` bytes and as many more as a character has; the encoding is one of the server's.
    let n = unsafe { raw::pg_encoding_mbcliplen(encoding, text.as_ptr().cast(), len, limit) };
    text.truncate(usize::try_from(n).unwrap_or(0));
}

/// Whether statements may have identifiers: `compute_query_id` is not off.
#[inline(always)]
pub fn allows_query_ids() -> bool {
    // SAFETY: a plain read of a setting.
    unsafe { pg_sys::compute_query_id as u32 != pg_sys::ComputeQueryIdType::COMPUTE_QUERY_ID_OFF }
}

/// Whether another module has asked for identifiers: then they are the server's, as that module sees them.
#[inline(always)]
pub fn others_want_query_ids() -> bool {
    // SAFETY: a plain read of a variable, which the server sets for modules that ask.
    unsafe { pg_sys::query_id_enabled }
}

/// Whether the server computes identifiers of all statements, because it was told to and not for another module.
#[inline(always)]
pub fn computes_query_ids_unasked() -> bool {
    // SAFETY: a plain read of a setting.
    let on = unsafe { pg_sys::compute_query_id as u32 == pg_sys::ComputeQueryIdType::COMPUTE_QUERY_ID_ON };
    on && !others_want_query_ids()
}

/// A number of this process, from the bottom up; different from that of every other process with a PGPROC.
pub fn process_number() -> usize {
    // SAFETY: a plain read of a variable set when the process started; -1 where there is none.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let number = unsafe { pg_sys::MyBackendId };
    // SAFETY: likewise.
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    let number = unsafe { pg_sys::MyProcNumber };
    usize::try_from(number).unwrap_or(0)
}

/// What a statement's identifier depends on beside its text; `None` in a transaction that writes.
///
/// # Safety
/// The result is not used beyond the next call of anything of the server's, which may set `search_path`.
#[inline]
pub unsafe fn circumstances<'a>(squashes: bool, resets: u32) -> Option<Circumstances<'a>> {
    // SAFETY: plain reads of the backend's own variables; the caller's promise.
    unsafe {
        if raw::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId {
            return None;
        }
        let path = pg_sys::namespace_search_path;
        let search_path = if path.is_null() { &[] } else { CStr::from_ptr(path).to_bytes() };
        let settings = [
            pg_sys::standard_conforming_strings,
            pg_sys::Transform_null_equals,
            pg_sys::escape_string_warning,
            pg_sys::Array_nulls,
            squashes,
        ];
        Some(Circumstances {
            catalogs: pg_sys::SharedInvalidMessageCounter,
            userid: user(),
            search_path,
            settings: settings.iter().fold(0, |bits, on| bits << 1 | u32::from(*on)),
            resets,
        })
    }
}

/// The place of this process in the server's array of all, by which others wake it.
pub fn number_of_process() -> u32 {
    // SAFETY: plain reads of variables set when the process started, with its PGPROC.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let number = unsafe { (*pg_sys::MyProc).pgprocno };
    // SAFETY: likewise.
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    let number = unsafe { pg_sys::MyProcNumber };
    number as u32
}

/// Whether this is a client's session (or a stand-alone backend's), not a worker of any kind.
pub fn is_session() -> bool {
    // SAFETY: plain reads of variables set when the process started.
    unsafe { pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND || !pg_sys::IsUnderPostmaster }
}

/// Ends the statement if it was cancelled. From an SQL function, whose frames are plain.
#[inline]
pub fn check_for_interrupts() {
    lock_rules::raising();
    // SAFETY: as CHECK_FOR_INTERRUPTS does it; reads and calls nothing else.
    unsafe {
        if core::ptr::read_volatile(&raw const pg_sys::InterruptPending) != 0 {
            raw::ProcessInterrupts();
        }
    }
}

/// Whether the library is being loaded through `shared_preload_libraries`.
pub fn is_preloading() -> bool {
    // SAFETY: a plain read of a variable.
    unsafe { pg_sys::process_shared_preload_libraries_in_progress }
}
