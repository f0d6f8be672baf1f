//! The hook after a statement's analysis, where the places of its constants are known.
//!
//! Where the server computes no identifiers for another reason, the statement gets its identifier here, if it is to have
//! one: that is most of what a statement costs that is not looked at.

use super::local::{Local, LocalRef};
use super::raw;
use super::server;
use super::statement::{RawQueryId, Statement, queryid};
use crate::memo::Memo;
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
    /// Puts the places of the constants from `start` in the source on into `places`, sorted. `None` when memory is short.
    pub fn constants(&self, start: usize, places: &mut Vec<Place>) -> Option<()> {
        places.clear();
        places.try_reserve(self.constants.len()).ok()?;
        places.extend(self.constants.iter().filter_map(|c| self.place(c, start)));
        places.sort_unstable();
        Some(())
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

/// Whether a statement gets an identifier, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Identify {
    No,
    /// From its analysed form.
    Anew,
    /// The one that its text had before, if it had one; the text is the statement's alone.
    ByText,
}

/// What is done after analysis. It may not raise or unwind.
pub trait ParseHooks {
    /// Whether a statement that has no identifier gets one, and how. `once`: whether its analysis is certain to be for
    /// one execution, at once.
    fn identifies(once: impl FnOnce() -> bool) -> Identify;
    /// Whether nothing is to be done for a statement with this identifier.
    fn knows(queryid: u64) -> bool;
    /// Does the identifying of a client's statement.
    fn identifying(identify: impl FnOnce());
    /// A number that changes when what was known no longer is.
    fn era() -> u32;
    /// The statement has the identifier that its text had before.
    fn found(queryid: u64);
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
        let jstate = if jstate.is_null()
            && queryid((*query).queryId) == 0
            && server::allows_query_ids()
            && !is_execute(&*query)
        {
            match H::identifies(|| is_once(&*pstate)) {
                Identify::No => jstate,
                Identify::ByText if PREVIOUS.get().is_none() && (*query).utilityStmt.is_null() => {
                    return H::identifying(|| identified::<H>(&*pstate, &mut *query));
                }
                _ => jumble(query, (*pstate).p_sourcetext),
            }
        } else {
            jstate
        };
        match PREVIOUS.get() {
            Some(previous) => after::<H>(pstate, query, jstate, previous),
            None if jstate.is_null() => {}
            None => analysed::<H>(&*pstate, &*query, &*jstate),
        }
    }
}

static MEMO: LocalRef<Option<Memo>> = LocalRef::new(None);

/// A statement of the simple protocol: its identifier is the one that its text had before, if it had one and nothing has
/// changed since; else it is computed.
///
/// That is left alone in a transaction that writes, since it may have changed catalogues without having told others yet.
#[inline(never)]
fn identified<H: ParseHooks>(pstate: &pg_sys::ParseState, query: &mut pg_sys::Query) {
    // SAFETY: the source outlives its analysis.
    let statement = unsafe { Statement::new(0, pstate.p_sourcetext, query.stmt_location, query.stmt_len) };
    let sought = MEMO.with(|memo| {
        let memo = memo.get_or_insert_with(Memo::default);
        if !memo.is_worth_while() {
            return None;
        }
        // SAFETY: the source is the message's (`is_once`), out of which the parser took the statement.
        let text = memo.text(unsafe { statement.text_in_place() });
        server::circumstances(H::era()).map(|now| memo.find(text, now))
    });
    let sought = match sought.flatten() {
        Some(Ok(known)) => {
            query.queryId = known as RawQueryId;
            return H::found(known);
        }
        Some(Err(sought)) => Some(sought),
        None => None,
    };
    // SAFETY: a live query and its source; the jumble state lives as long as they do.
    let jstate = unsafe { jumble(query, pstate.p_sourcetext).as_ref() };
    if let Some(jstate) = jstate {
        if let Some(sought) = sought {
            MEMO.with(|memo| memo.as_mut().map(|memo| memo.put(sought, queryid(query.queryId))));
        }
        analysed::<H>(pstate, query, jstate);
    }
}

/// EXECUTE, of which only what it executes is counted.
#[inline(always)]
fn is_execute(query: &pg_sys::Query) -> bool {
    // SAFETY: a live statement.
    !query.utilityStmt.is_null() && unsafe { (*query.utilityStmt).type_ } == pg_sys::NodeTag::T_ExecuteStmt
}

/// Whether the statement comes from a message of the simple protocol: it is analysed to be executed once, now. Whatever
/// is prepared, in the protocol or by PREPARE, is analysed with hooks for its parameters; when it is analysed again
/// later, without, its source is a copy of its own. A message's string is a chunk of memory by itself.
fn is_once(pstate: &pg_sys::ParseState) -> bool {
    if pstate.p_paramref_hook.is_some() {
        return false;
    }
    // SAFETY: plain reads of variables. The string that the backend says it is executing is the message's or a prepared
    // statement's, which both begin a chunk; within a message of the extended protocol only the statement that it
    // prepares, which has hooks, begins elsewhere.
    unsafe {
        let source = pstate.p_sourcetext;
        !source.is_null()
            && source == pg_sys::debug_query_string
            && server::is_session()
            && chunk_context(source.cast()) == pg_sys::MessageContext
    }
}

/// # Safety
/// The start of a chunk of memory from one of the server's contexts.
#[cfg(feature = "pg15")]
unsafe fn chunk_context(chunk: *const core::ffi::c_void) -> pg_sys::MemoryContext {
    // SAFETY: on 15 every chunk has its context in front of it.
    unsafe { *chunk.cast::<pg_sys::MemoryContext>().sub(1) }
}

/// # Safety
/// As above.
#[cfg(not(feature = "pg15"))]
unsafe fn chunk_context(chunk: *const core::ffi::c_void) -> pg_sys::MemoryContext {
    // SAFETY: the caller's promise.
    unsafe { raw::GetMemoryChunkContext(chunk.cast_mut()) }
}

/// Gives the statement the identifier that the server would.
///
/// # Safety
/// A live query (or one that is as good as live, for a utility statement) and its source.
#[inline(always)]
pub(super) unsafe fn jumble(
    query: *mut pg_sys::Query,
    source: *const core::ffi::c_char,
) -> *mut pg_sys::JumbleState {
    // SAFETY: the caller's promise; plain writes of a flag that the function asserts. An ERROR, for want of memory,
    // would leave it set, whereupon the server computes the identifiers itself.
    unsafe {
        let asked = pg_sys::query_id_enabled;
        pg_sys::query_id_enabled = true;
        #[cfg(feature = "pg15")]
        let jstate = raw::JumbleQuery(query, source);
        #[cfg(not(feature = "pg15"))]
        let jstate = {
            let _ = source;
            raw::JumbleQuery(query)
        };
        pg_sys::query_id_enabled = asked;
        jstate
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
