//! The hook around planning.

use super::context::{self, Watched};
use super::local::Local;
use super::raw;
use super::statement::{Statement, queryid};
use core::ffi::c_char;
use core::marker::PhantomData;
use pgrx::pg_sys;

/// A statement that is being planned, for the length of one hook call.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    parse: *const pg_sys::Query,
    source: *const c_char,
    life: PhantomData<&'a pg_sys::Query>,
}

impl Planning<'_> {
    pub fn statement(&self) -> Statement {
        // SAFETY: a live query and its source. The planner scribbles on the query, but not on these fields.
        unsafe {
            let parse = &*self.parse;
            Statement::new(queryid(parse.queryId), self.source, parse.stmt_location, parse.stmt_len)
        }
    }
}

/// Whether nothing is to be done for a statement that is planned but to keep its level, which is told then.
pub enum Passes {
    No,
    Yes(i32),
    /// And to notice its failing.
    Watched(i32),
}

/// What is done around planning a statement. None of it may raise or unwind.
pub trait PlannerHooks {
    type Span: Copy;
    /// What is watched of a statement while it is planned.
    type Watch<'a>: Watched;

    fn passes() -> Passes;
    /// The level of the statement that is planned, otherwise.
    fn starting(statement: Statement) -> i32;
    fn ended(level: i32);
    fn watch(planning: Planning<'_>, level: i32) -> Self::Watch<'_>;
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
    // needs dropping when an ERROR jumps over it.
    unsafe {
        let next = PREVIOUS.get().unwrap_or(raw::standard_planner);
        let level = match H::passes() {
            Passes::No => return plan::<H>(parse, query_string, cursor_options, bound_params, next),
            Passes::Watched(level) => {
                return watched::<H>(parse, query_string, cursor_options, bound_params, level, next);
            }
            Passes::Yes(level) => level,
        };
        let plan = next(parse, query_string, cursor_options, bound_params);
        H::ended(level);
        plan
    }
}

type Planner = unsafe extern "C-unwind" fn(
    *mut pg_sys::Query,
    *const c_char,
    i32,
    pg_sys::ParamListInfo,
) -> *mut pg_sys::PlannedStmt;

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn plan<H: PlannerHooks>(
    parse: *mut pg_sys::Query,
    query_string: *const c_char,
    cursor_options: i32,
    bound_params: pg_sys::ParamListInfo,
    next: Planner,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as in `planner`.
    unsafe {
        let statement = Planning { parse, source: query_string, life: PhantomData }.statement();
        let level = H::starting(statement);
        if !H::records(level, statement.queryid) || query_string.is_null() {
            return watched::<H>(parse, query_string, cursor_options, bound_params, level, next);
        }
        let span = H::recording(statement, level);
        let plan = watched::<H>(parse, query_string, cursor_options, bound_params, level, next);
        H::recorded(statement, span);
        plan
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn watched<H: PlannerHooks>(
    parse: *mut pg_sys::Query,
    query_string: *const c_char,
    cursor_options: i32,
    bound_params: pg_sys::ParamListInfo,
    level: i32,
    next: Planner,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: as in `planner`.
    unsafe {
        let planning = Planning { parse, source: query_string, life: PhantomData };
        let watch = H::watch(planning, level);
        let plan = context::watch(&watch, || next(parse, query_string, cursor_options, bound_params));
        H::ended(level);
        plan
    }
}
