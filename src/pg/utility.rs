//! The hook around utility statements (everything but SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES).

use super::context::{self, Watched};
use super::local::Local;
use super::raw;
use super::statement::{Statement, queryid};
use super::{server, values};
use crate::normalize::Value;
use core::ffi::c_char;
use pgrx::pg_sys::{self, NodeTag};

/// A utility statement about to be executed.
#[derive(Clone, Copy)]
pub struct Utility {
    /// With the identifier that it has so far.
    pub statement: Statement,
    /// BEGIN, COMMIT, SAVEPOINT and so on.
    pub transaction: bool,
    /// SET, RESET or DISCARD, which may change the role.
    pub sets: bool,
}

/// What a utility statement is counted under.
#[derive(Clone, Copy)]
pub struct Identity {
    /// 0 when none is to be had.
    pub queryid: u64,
    /// The value in the source that has no part in it.
    pub value: Option<Value>,
}

/// What is done around a utility statement. None of it may raise or unwind.
///
/// EXECUTE is passed by: the statement it executes is counted, at EXECUTE's own level. So are PREPARE, and before 17
/// DEALLOCATE, which pg_stat_statements does not count either.
pub trait UtilityHooks {
    type Span: Copy;
    /// What is watched of it.
    type Watch: Watched;

    /// As [`super::parse::ParseHooks::squashes`]. DEALLOCATE is then counted before 17, too.
    fn squashes() -> bool;
    fn starting(utility: Utility, identify: impl FnOnce() -> Identity) -> Self::Span;
    /// Whether its failing is to be noticed.
    fn watched(
        utility: Utility,
        span: &Self::Span,
        identify: impl FnOnce() -> Identity,
    ) -> Option<Self::Watch>;
    /// `rows` as the command tag tells them, for the commands that move rows.
    fn ended(utility: Utility, span: Self::Span, rows: u64);
}

type ProcessUtility = unsafe extern "C-unwind" fn(
    *mut pg_sys::PlannedStmt,
    *const c_char,
    bool,
    pg_sys::ProcessUtilityContext::Type,
    pg_sys::ParamListInfo,
    *mut pg_sys::QueryEnvironment,
    *mut pg_sys::DestReceiver,
    *mut pg_sys::QueryCompletion,
);

static PREVIOUS: Local<pg_sys::ProcessUtility_hook_type> = Local::new(None);

/// Puts `H` in front of the hook that is there. Once, while the library is being preloaded.
pub fn install<H: UtilityHooks>() {
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        PREVIOUS.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(process_utility::<H>);
    }
}

unsafe extern "C-unwind" fn process_utility<H: UtilityHooks>(
    pstmt: *mut pg_sys::PlannedStmt,
    query_string: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    query_env: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    qc: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: called by the server with a live statement and its source.
    unsafe {
        let next: ProcessUtility = PREVIOUS.get().unwrap_or(raw::standard_ProcessUtility);
        let tag = (*(*pstmt).utilityStmt).type_;
        if passes::<H>(tag) {
            return next(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
        }
        around::<H>(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc, next);
    }
}

#[inline(always)]
fn passes<H: UtilityHooks>(tag: NodeTag) -> bool {
    let deallocate = cfg!(any(feature = "pg15", feature = "pg16"))
        && tag == NodeTag::T_DeallocateStmt
        && (!H::squashes() || server::others_want_query_ids());
    matches!(tag, NodeTag::T_ExecuteStmt | NodeTag::T_PrepareStmt) || deallocate
}

/// # Safety
/// As for the hook.
#[allow(clippy::too_many_arguments)] // the hook's own, and the next hook
#[inline(never)]
unsafe fn around<H: UtilityHooks>(
    pstmt: *mut pg_sys::PlannedStmt,
    query_string: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    query_env: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    qc: *mut pg_sys::QueryCompletion,
    next: ProcessUtility,
) {
    // SAFETY: nothing in this frame needs dropping when an ERROR jumps over it. After the call `pstmt` may be gone (a
    // ROLLBACK drops its plan), so only the source, which its portal or plan source keeps, and `qc`, which is the
    // caller's, are looked at.
    unsafe {
        let known = queryid((*pstmt).queryId);
        let tag = (*(*pstmt).utilityStmt).type_;
        let utility = Utility {
            statement: Statement::new(known, query_string, (*pstmt).stmt_location, (*pstmt).stmt_len),
            transaction: tag == NodeTag::T_TransactionStmt,
            sets: matches!(tag, NodeTag::T_VariableSetStmt | NodeTag::T_DiscardStmt),
        };
        let identify = || identity::<H>(pstmt, &utility.statement, query_string, context);
        let span = H::starting(utility, identify);
        let work = || next(pstmt, query_string, read_only_tree, context, params, query_env, dest, qc);
        match H::watched(utility, &span, identify) {
            Some(watch) => context::watch(&watch, work),
            None => work(),
        }
        H::ended(utility, span, rows(qc));
    }
}

/// What a statement that is looked at is counted under. pg_stat_statements, when it is called before us, has already set
/// the identifier to 0 for its own purposes; then it is computed again. A command's parts (CREATE TABLE's indexes, say)
/// never have one, and a rule's action, which has no place in the source, has the one of the statement that the rule is
/// for, which is lost then.
///
/// # Safety
/// A live statement and its source.
unsafe fn identity<H: UtilityHooks>(
    pstmt: *mut pg_sys::PlannedStmt,
    statement: &Statement,
    query_string: *const c_char,
    context: pg_sys::ProcessUtilityContext::Type,
) -> Identity {
    let of = |queryid| Identity { queryid, value: None };
    // SAFETY: the caller's promise.
    unsafe {
        let known = statement.queryid;
        let collapsed = || {
            let collapsed = values::collapsed((*pstmt).utilityStmt, statement)?;
            Some(Identity { queryid: collapsed.queryid, value: Some(collapsed.value) })
        };
        if known != 0 {
            return collapsed().filter(|c| c.queryid == known).unwrap_or(of(known));
        }
        if query_string.is_null()
            || (*pstmt).stmt_location < 0
            || context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_SUBCOMMAND
            || !server::allows_query_ids()
        {
            return of(known);
        }
        let squashes = H::squashes() && !server::others_want_query_ids();
        let collapsed = if squashes { collapsed() } else { None };
        collapsed.unwrap_or_else(|| {
            of(jumble((*pstmt).utilityStmt, query_string, (*pstmt).stmt_location, (*pstmt).stmt_len))
        })
    }
}

/// # Safety
/// A live utility statement (on 15: not null) and its source.
pub(super) unsafe fn jumble(
    utility: *mut pg_sys::Node,
    source: *const c_char,
    stmt_location: i32,
    stmt_len: i32,
) -> u64 {
    // SAFETY: the caller's promise. The Query is a local that is only read and given its identifier; on 15 the source
    // alone is looked at.
    unsafe {
        let mut query = pg_sys::Query {
            type_: NodeTag::T_Query,
            commandType: pg_sys::CmdType::CMD_UTILITY,
            utilityStmt: utility,
            stmt_location,
            stmt_len,
            ..core::mem::zeroed()
        };
        super::parse::jumble(&mut query, source);
        queryid(query.queryId)
    }
}

/// Rows that the command moved, for COPY, FETCH, SELECT INTO, CREATE TABLE AS, and creating or refreshing a
/// materialised view.
///
/// # Safety
/// `qc` is null or what the server filled in.
unsafe fn rows(qc: *mut pg_sys::QueryCompletion) -> u64 {
    use pg_sys::CommandTag::*;
    if qc.is_null() {
        return 0;
    }
    // SAFETY: not null, and the caller's promise.
    let qc = unsafe { &*qc };
    match qc.commandTag {
        CMDTAG_COPY | CMDTAG_FETCH | CMDTAG_SELECT | CMDTAG_REFRESH_MATERIALIZED_VIEW => qc.nprocessed,
        _ => 0,
    }
}
