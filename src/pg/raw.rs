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
//! - `MemoryContextRegisterResetCallback` links what it is given. `MemoryContextReset`, of a context without children and
//!   callbacks, frees what is in it.
//! - `LWLockAcquire`, `LWLockConditionalAcquire`, `LWLockRelease`: raise only when a backend holds 200 locks, or has no PGPROC
//!   and must wait. (A server built with LOCK_DEBUG also logs; then failures may be noted while a lock is taken, no more.)
//! - `pg_encoding_mbcliplen`: reads bytes.
//! - `geterrcode`: reads a field of the message that is being made, and raises only if there is none.
//! - `GetMemoryChunkContext`: reads the header of a chunk; raises when that is none.
//! - `JumbleQuery`: on 15, for a utility statement, hashes its text and allocates nothing. Otherwise it walks the
//!   statement's tree and takes some kB, so it raises when that much memory is not to be had, or when a tree that analysis
//!   had just enough stack for takes more here. Then the statement fails as it would were identifiers computed by the
//!   server. Plain frames only.
//! - `query_tree_walker`, `expression_tree_walker`: walk what analysis itself has just walked, and raise only when the
//!   stack is used up, which is looked at before. `palloc0`, `lappend`, `lappend_int`: when memory is, as above.
//! - `hash_bytes_extended`: reads bytes. `stack_is_too_deep`: compares addresses.

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
    pub fn MemoryContextReset(context: pg_sys::MemoryContext);
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

/// What lists that count as one and values that do not count take, which 18 does itself.
#[cfg(not(feature = "pg18"))]
pub use before_18::*;

#[cfg(not(feature = "pg18"))]
mod before_18 {
    use core::ffi::c_void;
    use pgrx::pg_sys;

    pub type Visit = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut c_void) -> bool;

    #[allow(improper_ctypes)] // as above
    unsafe extern "C-unwind" {
        #[cfg_attr(not(feature = "pg15"), link_name = "query_tree_walker_impl")]
        pub fn query_tree_walker(
            query: *mut pg_sys::Query,
            visit: Visit,
            context: *mut c_void,
            flags: i32,
        ) -> bool;
        #[cfg_attr(not(feature = "pg15"), link_name = "expression_tree_walker_impl")]
        pub fn expression_tree_walker(node: *mut pg_sys::Node, visit: Visit, context: *mut c_void) -> bool;
        pub fn palloc0(size: usize) -> *mut c_void;
        pub fn lappend(list: *mut pg_sys::List, datum: *mut c_void) -> *mut pg_sys::List;
        pub fn lappend_int(list: *mut pg_sys::List, datum: i32) -> *mut pg_sys::List;
        pub fn stack_is_too_deep() -> bool;
        pub fn hash_bytes_extended(bytes: *const u8, len: i32, seed: u64) -> u64;
    }
}
