//! The hook around planning.

use super::local::Local;
use super::raw;
use super::statement::{Statement, queryid};
use core::ffi::c_char;
use pgrx::pg_sys;

/// What is done around planning a statement. None of it may raise or unwind.
pub trait PlannerHooks {
    type Span: Copy;

    /// The level of the statement that is planned, if nothing is to be done but to keep it.
    fn passing() -> Option<i32>;
    /// The level of the statement that is planned, otherwise.
    fn starting(statement: Statement) -> i32;
    fn ended(level: i32);
    /// Whether the planning is recorded, which `recording` and `recorded` do.
    fn records(level: i32, queryid: u64) -> bool;
    fn recording(statement: Statement, level: i32) -> Self::Span;
    fn recorded(statement: Statement, span: Self::Span);
}

static PREVIOUS: Local<pg_sys::planner_hook_type> = Local::new(None);

/// Puts `H` in front of the hook that is there. Once, while the library is being preloaded.
pub fn install<H: PlannerHooks>() {
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        PREVIOUS.set(pg_sys::planner_hook);
        pg_sys::planner_hook = Some(planner::<H>);
    }
}

unsafe extern "C-unwind" fn planner<H: PlannerHooks>(
    parse: *mut pg_sys::Query,
    query_string: *const c_char,
    cursor_options: i32,
    bound_params: pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: called by the server with a live query and its source, which outlives the call; nothing in this frame
    // needs dropping when an ERROR jumps over it. The planner scribbles on `parse`, which is not read afterwards.
    unsafe {
        let next = PREVIOUS.get().unwrap_or(raw::standard_planner);
        let Some(level) = H::passing() else {
            return plan::<H>(parse, query_string, cursor_options, bound_params, next);
        };
        let plan = next(parse, query_string, cursor_options, bound_params);
        H::ended(level);
        plan
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn plan<H: PlannerHooks>(
    parse: *mut pg_sys::Query,
    query_string: *const c_char,
    cursor_options: i32,
    bound_params: pg_sys::ParamListInfo,
    next: unsafe extern "C-unwind" fn(
        *mut pg_sys::Query,
        *const c_char,
        i32,
        pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as in `planner`.
    unsafe {
        let level = H::starting(statement(parse, query_string));
        if H::records(level, queryid((*parse).queryId)) && !query_string.is_null() {
            return record::<H>(parse, query_string, cursor_options, bound_params, level, next);
        }
        let plan = next(parse, query_string, cursor_options, bound_params);
        H::ended(level);
        plan
    }
}

/// # Safety
/// A live query, and its source for as long as the value is used.
#[inline(always)]
unsafe fn statement(parse: *const pg_sys::Query, source: *const c_char) -> Statement {
    // SAFETY: the caller's promise.
    unsafe { Statement::new(queryid((*parse).queryId), source, (*parse).stmt_location, (*parse).stmt_len) }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn record<H: PlannerHooks>(
    parse: *mut pg_sys::Query,
    query_string: *const c_char,
    cursor_options: i32,
    bound_params: pg_sys::ParamListInfo,
    level: i32,
    next: unsafe extern "C-unwind" fn(
        *mut pg_sys::Query,
        *const c_char,
        i32,
        pg_sys::ParamListInfo,
    ) -> *mut pg_sys::PlannedStmt,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as in `planner`.
    unsafe {
        let statement = statement(parse, query_string);
        let span = H::recording(statement, level);
        let plan = next(parse, query_string, cursor_options, bound_params);
        H::ended(level);
        H::recorded(statement, span);
        plan
    }
}
