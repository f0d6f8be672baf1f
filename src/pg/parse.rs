//! The hook after a statement's analysis, where the places of its constants are known.

use super::local::Local;
use super::statement::{Statement, queryid};
use crate::normalize::Place;
use pgrx::pg_sys;

/// A statement that was just analysed and given an identifier, with the places of its constants.
pub struct Analysed<'a> {
    pub statement: Statement,
    constants: &'a [pg_sys::LocationLen],
    /// The highest `$n` that stands in the source.
    pub highest_param: u32,
    /// Whether the client's parameters are numbered anew.
    #[cfg(feature = "pg18")]
    renumbers: bool,
}

impl Analysed<'_> {
    /// The places of the constants from `start` in the source on, sorted. `None` when memory is short.
    pub fn constants(&self, start: usize) -> Option<Vec<Place>> {
        let mut places = Vec::new();
        places.try_reserve_exact(self.constants.len()).ok()?;
        places.extend(self.constants.iter().filter_map(|c| self.place(c, start)));
        places.sort_unstable();
        Some(places)
    }

    fn place(&self, constant: &pg_sys::LocationLen, start: usize) -> Option<Place> {
        let at = usize::try_from(constant.location).ok()?.checked_sub(start)?;
        #[cfg(feature = "pg18")]
        {
            // parameters of the client's keep their numbers unless there are lists that count as one
            if constant.extern_param && !self.renumbers {
                return None;
            }
            let list = if constant.squashed { usize::try_from(constant.length).ok() } else { None };
            Some(Place { at, list })
        }
        #[cfg(not(feature = "pg18"))]
        Some(Place::from(at))
    }
}

/// What is done after analysis. It may not raise or unwind.
pub trait ParseHooks {
    /// Whether nothing is to be done for a statement with this identifier.
    fn knows(queryid: u64) -> bool;
    /// Not called for statements without an identifier, nor for utility statements on 15.
    fn analysed(analysed: Analysed);
}

static PREVIOUS: Local<pg_sys::post_parse_analyze_hook_type> = Local::new(None);

/// Puts `H` after the hook that is there. Once, while the library is being preloaded.
pub fn install<H: ParseHooks>() {
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        PREVIOUS.set(pg_sys::post_parse_analyze_hook);
        pg_sys::post_parse_analyze_hook = Some(post_parse_analyze::<H>);
    }
}

unsafe extern "C-unwind" fn post_parse_analyze<H: ParseHooks>(
    pstate: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jstate: *mut pg_sys::JumbleState,
) {
    // SAFETY: called by the server with a live parse state and query, and a jumble state or null.
    unsafe {
        match PREVIOUS.get() {
            Some(previous) => after::<H>(pstate, query, jstate, previous),
            None if jstate.is_null() => {}
            None => analysed::<H>(&*pstate, &*query, &*jstate),
        }
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn after<H: ParseHooks>(
    pstate: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jstate: *mut pg_sys::JumbleState,
    previous: unsafe extern "C-unwind" fn(
        *mut pg_sys::ParseState,
        *mut pg_sys::Query,
        *mut pg_sys::JumbleState,
    ),
) {
    // SAFETY: as in `post_parse_analyze`; nothing in this frame needs dropping when an ERROR jumps over it.
    unsafe {
        previous(pstate, query, jstate);
        if !jstate.is_null() {
            analysed::<H>(&*pstate, &*query, &*jstate);
        }
    }
}

#[inline(never)]
fn analysed<H: ParseHooks>(pstate: &pg_sys::ParseState, query: &pg_sys::Query, jstate: &pg_sys::JumbleState) {
    // 15 does not look for constants in utility statements
    let sought = query.utilityStmt.is_null() || cfg!(not(feature = "pg15"));
    let id = queryid(query.queryId);
    if sought && id != 0 && !H::knows(id) {
        analysed_anew::<H>(pstate, query, jstate);
    }
}

#[inline(never)]
fn analysed_anew<H: ParseHooks>(
    pstate: &pg_sys::ParseState,
    query: &pg_sys::Query,
    jstate: &pg_sys::JumbleState,
) {
    let count = usize::try_from(jstate.clocations_count).unwrap_or(0);
    // SAFETY: the server fills `clocations` up to `clocations_count`, and the source outlives its analysis.
    let (constants, statement) = unsafe {
        (
            if count == 0 { &[] } else { core::slice::from_raw_parts(jstate.clocations, count) },
            Statement::new(queryid(query.queryId), pstate.p_sourcetext, query.stmt_location, query.stmt_len),
        )
    };
    let highest_param = u32::try_from(jstate.highest_extern_param_id).unwrap_or(0);
    H::analysed(Analysed {
        statement,
        constants,
        highest_param,
        #[cfg(feature = "pg18")]
        renumbers: jstate.has_squashed_lists,
    });
}
