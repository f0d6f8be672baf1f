//! The server's functions that hooks call without pgrx's guard.
//!
//! A guarded call saves the signal mask and the stack (14 to 27 ns) to turn an ERROR into a panic; and an ERROR that
//! passes through such a guard is rebuilt without its CONTEXT and constraint names. So the hooks call these as C
//! would: an ERROR jumps straight over the calling Rust frames, which is allowed as long as none of them holds
//! anything to drop (such frames are called plain below; every caller says why it is one).
//!
//! Reasons, one by one:
//! - `standard_*`: the server's own work, which raises whenever the user's statement fails. Plain frames only.
//! - `GetUserId`, `GetCurrentStatementStartTimestamp`, `GetCurrentTimestamp`, `GetDatabaseEncoding`,
//!   `GetTopTransactionIdIfAny`: read a variable or the clock; cannot raise inside a backend's statement.
//! - `pg_trigger_depth`: an SQL function without arguments that reads a variable, whatever it is called with.
//! - `MemoryContextRegisterResetCallback` links what it is given.
//! - `LWLockAcquire`, `LWLockConditionalAcquire`, `LWLockRelease`: raise only when a backend holds 200 locks or has no PGPROC.
//! - `pg_encoding_mbcliplen`: reads bytes.
//! - `geterrcode`: reads a field of the message that is being made, and raises only if there is none.
//! - `GetMemoryChunkContext`: reads the header of a chunk.
//! - `JumbleQuery`: on 15, for a utility statement, hashes its text and allocates nothing. From 16 on it walks the
//!   statement's tree and takes about 2 kB, so it raises only when that much memory is not to be had.

use pgrx::pg_sys;

#[allow(improper_ctypes)] // the server's structs, as bindgen has them
unsafe extern "C-unwind" {
    pub fn standard_ExecutorStart(query: *mut pg_sys::QueryDesc, eflags: i32);
    #[cfg(not(feature = "pg18"))]
    pub fn standard_ExecutorRun(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    );
    #[cfg(feature = "pg18")]
    pub fn standard_ExecutorRun(
        query: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
    );
    pub fn standard_ExecutorFinish(query: *mut pg_sys::QueryDesc);
    pub fn standard_ExecutorEnd(query: *mut pg_sys::QueryDesc);
    pub fn standard_planner(
        parse: *mut pg_sys::Query,
        query_string: *const core::ffi::c_char,
        cursor_options: i32,
        bound_params: pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt;
    pub fn standard_ProcessUtility(
        pstmt: *mut pg_sys::PlannedStmt,
        query_string: *const core::ffi::c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        query_env: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        qc: *mut pg_sys::QueryCompletion,
    );
    pub fn GetUserId() -> pg_sys::Oid;
    pub fn GetCurrentStatementStartTimestamp() -> pg_sys::TimestampTz;
    pub fn GetCurrentTimestamp() -> pg_sys::TimestampTz;
    pub fn GetDatabaseEncoding() -> i32;
    pub fn geterrcode() -> i32;
    pub fn GetTopTransactionIdIfAny() -> pg_sys::TransactionId;
    pub fn pg_trigger_depth(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
    pub fn MemoryContextRegisterResetCallback(
        context: pg_sys::MemoryContext,
        callback: *mut pg_sys::MemoryContextCallback,
    );
    pub fn LWLockAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    pub fn LWLockConditionalAcquire(lock: *mut pg_sys::LWLock, mode: pg_sys::LWLockMode::Type) -> bool;
    pub fn LWLockRelease(lock: *mut pg_sys::LWLock);
    pub fn pg_encoding_mbcliplen(encoding: i32, bytes: *const core::ffi::c_char, len: i32, limit: i32)
    -> i32;
    #[cfg(not(feature = "pg15"))]
    pub fn GetMemoryChunkContext(chunk: *mut core::ffi::c_void) -> pg_sys::MemoryContext;
    #[cfg(feature = "pg15")]
    pub fn JumbleQuery(
        query: *mut pg_sys::Query,
        query_text: *const core::ffi::c_char,
    ) -> *mut pg_sys::JumbleState;
    #[cfg(not(feature = "pg15"))]
    pub fn JumbleQuery(query: *mut pg_sys::Query) -> *mut pg_sys::JumbleState;
}
