//! The server's functions that hooks, SQL functions and the background worker call without pgrx's guard.
//!
//! A guarded call saves the signal mask and the stack (14 to 27 ns) to turn an ERROR into a panic; and an ERROR that
//! passes through such a guard is rebuilt without its CONTEXT and constraint names, in memory of Rust's: where there is
//! none, the process ends, and the server with it. So these are called as C would: an ERROR jumps straight over the calling
//! Rust frames, which is allowed as long as none of them holds anything to drop (such frames are called plain below;
//! every caller says why it is one).
//!
//! Reasons, one by one, for those that hooks call:
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
//!
//! What SQL functions and the worker call (`sql` below) may raise, as it may in a C function. Their frames are plain:
//! what they allocate is the server's ([`super::palloced`]), and between them and the server stands only pgrx's wrapper,
//! whose one value with something to drop is a `PgMemoryContexts::For`, of which dropping does nothing.

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

pub use sql::*;

mod sql {
    use core::ffi::{c_char, c_int, c_long, c_void};
    use pgrx::pg_sys::{self, Datum, MemoryContext, Oid};

    #[allow(improper_ctypes)] // as above
    unsafe extern "C-unwind" {
        pub fn errstart(level: c_int, domain: *const c_char) -> bool;
        pub fn errcode(sqlstate: c_int) -> c_int;
        pub fn errmsg(format: *const c_char, ...) -> c_int;
        pub fn errhint(format: *const c_char, ...) -> c_int;
        pub fn errfinish(file: *const c_char, line: c_int, function: *const c_char);
        pub fn ProcessInterrupts();

        pub fn AllocSetContextCreateInternal(
            parent: MemoryContext,
            name: *const c_char,
            min_context_size: usize,
            init_block_size: usize,
            max_block_size: usize,
        ) -> MemoryContext;
        pub fn MemoryContextAlloc(context: MemoryContext, size: usize) -> *mut c_void;
        pub fn MemoryContextAllocZero(context: MemoryContext, size: usize) -> *mut c_void;
        pub fn repalloc(at: *mut c_void, size: usize) -> *mut c_void;

        pub fn InitMaterializedSRF(fcinfo: pg_sys::FunctionCallInfo, flags: u32);
        pub fn tuplestore_putvalues(
            store: *mut pg_sys::Tuplestorestate,
            desc: pg_sys::TupleDesc,
            values: *const Datum,
            nulls: *const bool,
        );
        pub fn tuplestore_puttuple(store: *mut pg_sys::Tuplestorestate, tuple: pg_sys::HeapTuple);
        pub fn get_call_result_type(
            fcinfo: pg_sys::FunctionCallInfo,
            id: *mut Oid,
            desc: *mut pg_sys::TupleDesc,
        ) -> pg_sys::TypeFuncClass::Type;
        pub fn BlessTupleDesc(desc: pg_sys::TupleDesc) -> pg_sys::TupleDesc;
        pub fn heap_form_tuple(
            desc: pg_sys::TupleDesc,
            values: *const Datum,
            nulls: *const bool,
        ) -> pg_sys::HeapTuple;
        pub fn HeapTupleHeaderGetDatum(tuple: pg_sys::HeapTupleHeader) -> Datum;

        pub fn cstring_to_text_with_len(bytes: *const c_char, len: c_int) -> *mut pg_sys::text;
        pub fn int64_to_numeric(value: i64) -> pg_sys::Numeric;
        pub fn numeric_in(fcinfo: pg_sys::FunctionCallInfo) -> Datum;
        pub fn DirectFunctionCall3Coll(
            function: pg_sys::PGFunction,
            collation: Oid,
            first: Datum,
            second: Datum,
            third: Datum,
        ) -> Datum;
        pub fn FindDefaultConversionProc(from: i32, to: i32) -> Oid;
        pub fn pg_do_encoding_conversion_buf(
            conversion: Oid,
            from_encoding: c_int,
            to_encoding: c_int,
            from: *mut u8,
            from_len: c_int,
            to: *mut u8,
            to_len: c_int,
            no_error: bool,
        ) -> c_int;

        pub fn has_privs_of_role(member: Oid, role: Oid) -> bool;
        #[cfg(feature = "pg15")]
        pub fn pg_proc_aclcheck(function: Oid, role: Oid, mode: pg_sys::AclMode) -> pg_sys::AclResult::Type;
        #[cfg(not(feature = "pg15"))]
        pub fn object_aclcheck(
            class: Oid,
            object: Oid,
            role: Oid,
            mode: pg_sys::AclMode,
        ) -> pg_sys::AclResult::Type;
        pub fn aclcheck_error(
            error: pg_sys::AclResult::Type,
            kind: pg_sys::ObjectType::Type,
            name: *const c_char,
        );
        pub fn buildoidvector(oids: *const Oid, count: c_int) -> *mut pg_sys::oidvector;
        pub fn GetSysCacheOid(
            cache: c_int,
            oid_column: i16,
            first: Datum,
            second: Datum,
            third: Datum,
            fourth: Datum,
        ) -> Oid;
        pub fn get_namespace_oid(name: *const c_char, missing_ok: bool) -> Oid;
        pub fn get_relname_relid(name: *const c_char, namespace: Oid) -> Oid;
        pub fn get_attname(relation: Oid, number: i16, missing_ok: bool) -> *mut c_char;
        pub fn table_open(relation: Oid, lock: c_int) -> pg_sys::Relation;
        pub fn table_close(relation: pg_sys::Relation, lock: c_int);
        pub fn ScanKeyInit(
            key: *mut pg_sys::ScanKeyData,
            column: i16,
            strategy: u16,
            procedure: Oid,
            argument: Datum,
        );
        pub fn systable_beginscan(
            relation: pg_sys::Relation,
            index: Oid,
            index_ok: bool,
            snapshot: pg_sys::Snapshot,
            keys: c_int,
            key: *mut pg_sys::ScanKeyData,
        ) -> pg_sys::SysScanDesc;
        pub fn systable_getnext(scan: pg_sys::SysScanDesc) -> pg_sys::HeapTuple;
        pub fn systable_endscan(scan: pg_sys::SysScanDesc);
        pub fn SPI_fname(desc: pg_sys::TupleDesc, number: c_int) -> *mut c_char;
        pub fn SPI_connect() -> c_int;
        pub fn SPI_execute(query: *const c_char, read_only: bool, limit: c_long) -> c_int;
        pub fn SPI_finish() -> c_int;
        pub fn SPI_getvalue(tuple: pg_sys::HeapTuple, desc: pg_sys::TupleDesc, number: c_int) -> *mut c_char;

        pub fn GetCurrentSubTransactionId() -> pg_sys::SubTransactionId;
        pub fn RegisterXactCallback(callback: pg_sys::XactCallback, arg: *mut c_void);
        pub fn RegisterSubXactCallback(callback: pg_sys::SubXactCallback, arg: *mut c_void);

        pub fn SetLatch(latch: *mut pg_sys::Latch);
        pub fn ResetLatch(latch: *mut pg_sys::Latch);
        pub fn WaitLatch(
            latch: *mut pg_sys::Latch,
            events: c_int,
            timeout_ms: c_long,
            wait_event: u32,
        ) -> c_int;
        pub fn ProcessConfigFile(context: pg_sys::GucContext::Type);
    }
}
