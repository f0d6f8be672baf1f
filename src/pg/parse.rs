//! The hook after a statement's analysis, where the places of its constants are known.
//!
//! Where the server computes no identifiers for another reason, the statement gets its identifier here, if it is to have
//! one: that is most of what a statement costs that is not looked at.

use super::lists::Squashed;
use super::local::{Local, LocalRef};
use super::statement::{RawQueryId, Statement, queryid};
use super::{raw, server, values};
use crate::memo::Memo;
use crate::normalize::{Extent, Place};
use pgrx::pg_sys;

/// A statement that was just analysed and given an identifier, with the places of its constants.
pub struct Analysed<'a> {
    pub statement: Statement,
    constants: &'a [pg_sys::LocationLen],
    /// Before 18.
    squashed: Squashed,
    /// The highest `$n` that stands in the source and keeps its number.
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
        if !self.squashed.is_nothing() {
            self.squashed(start, places)?;
        }
        places.sort_unstable();
        Some(())
    }

    fn squashed(&self, start: usize, places: &mut Vec<Place>) -> Option<()> {
        let lists = self.squashed.lists().map(|at| (at, Extent::Brackets));
        let params = self.squashed.params().map(|at| (at, Extent::Token));
        for (location, extent) in lists.chain(params) {
            if let Some(at) = within(location, start) {
                places.try_reserve(1).ok()?;
                places.push(Place { at, extent });
            }
        }
        Some(())
    }

    fn place(&self, constant: &pg_sys::LocationLen, start: usize) -> Option<Place> {
        let at = within(constant.location, start)?;
        #[cfg(feature = "pg18")]
        {
            // parameters of the client's keep their numbers unless there are lists that count as one
            if constant.extern_param && !self.renumbers {
                return None;
            }
            let list = if constant.squashed { usize::try_from(constant.length).ok() } else { None };
            Some(Place { at, extent: list.map_or(Extent::Token, Extent::List) })
        }
        #[cfg(not(feature = "pg18"))]
        Some(Place::from(at))
    }
}

/// A place in the source, counted from `start`.
fn within(location: i32, start: usize) -> Option<usize> {
    usize::try_from(location).ok()?.checked_sub(start)
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
    /// Whether lists of constants count as one, and values of utility statements do not count, where the server has it
    /// otherwise.
    fn squashes() -> bool;
    /// Whether nothing is to be done for a statement with this identifier.
    fn knows(queryid: u64) -> bool;
    /// Does the identifying of a client's statement.
    fn identifying(identify: impl FnOnce());
    /// A number that changes when what was known no longer is.
    fn era() -> u32;
    /// A client's statement has turned out to have this identifier.
    fn found(queryid: u64);
    /// Not called for statements without an identifier, nor for utility statements on 15.
    fn analysed(analysed: Analysed);
}

static PREVIOUS: Local<pg_sys::post_parse_analyze_hook_type> = Local::new(None);

/// Where the jumble of a statement of the simple protocol is made, as nobody needs it any longer than that. The message's
/// own memory would often have to grow for it, and is other memory each time. Made in the postmaster, so that no backend
/// can fail to.
static JUMBLES: Local<pg_sys::MemoryContext> = Local::new(core::ptr::null_mut());

/// So many jumbles lie in there. One takes 1.6 kB, and as many as fit in the context's first block stay until the next.
static IN_JUMBLES: Local<u32> = Local::new(0);
const MOST_JUMBLES: u32 = 4;
const FIRST_BLOCK: pg_sys::Size = pg_sys::ALLOCSET_DEFAULT_INITSIZE as pg_sys::Size;

/// Puts `H` after the hook that is there. Once, while the library is being preloaded.
pub fn install<H: ParseHooks>() {
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        JUMBLES.set(pg_sys::AllocSetContextCreateInternal(
            pg_sys::TopMemoryContext,
            c"pgss_rs identifiers".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        ));
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
        let given = Jumbled { jstate, squashed: Squashed::NOTHING };
        let jumbled = if jstate.is_null()
            && queryid((*query).queryId) == 0
            && server::allows_query_ids()
            && !is_execute(&*query)
        {
            match H::identifies(|| is_once(&*pstate)) {
                Identify::No => given,
                Identify::ByText if PREVIOUS.get().is_none() && (*query).utilityStmt.is_null() => {
                    return H::identifying(|| identified::<H>(&*pstate, &mut *query));
                }
                _ => jumbled::<H>(query, (*pstate).p_sourcetext),
            }
        } else if H::squashes() && server::computes_query_ids_unasked() {
            jumbled_again(query, (*pstate).p_sourcetext, jstate).unwrap_or(given)
        } else {
            given
        };
        match PREVIOUS.get() {
            Some(previous) => after::<H>(pstate, query, jumbled, previous),
            None if jumbled.jstate.is_null() => {}
            None => analysed::<H>(&*pstate, &*query, jumbled),
        }
    }
}

/// What jumbling a statement has told beside its identifier.
#[derive(Clone, Copy)]
struct Jumbled {
    jstate: *mut pg_sys::JumbleState,
    squashed: Squashed,
}

/// Gives the statement its identifier.
///
/// # Safety
/// A statement that was just analysed, and its source.
#[inline(always)]
unsafe fn jumbled<H: ParseHooks>(query: *mut pg_sys::Query, source: *const core::ffi::c_char) -> Jumbled {
    // SAFETY: the caller's promise.
    unsafe {
        if H::squashes() && is_collapsed(query, source) {
            return Jumbled { jstate: core::ptr::null_mut(), squashed: Squashed::NOTHING };
        }
        let jstate = jumble(query, source);
        let squashed = if H::squashes() { squashed(query, source, jstate) } else { None };
        squashed.unwrap_or(Jumbled { jstate, squashed: Squashed::NOTHING })
    }
}

/// Gives a statement that has the server's identifier the one that [`jumbled`] would; `None` where that is the same.
///
/// # Safety
/// As above, with the jumble state of the identifier it has, or null.
#[cold]
unsafe fn jumbled_again(
    query: *mut pg_sys::Query,
    source: *const core::ffi::c_char,
    jstate: *mut pg_sys::JumbleState,
) -> Option<Jumbled> {
    // SAFETY: the caller's promise.
    unsafe {
        if is_collapsed(query, source) {
            return Some(Jumbled { jstate: core::ptr::null_mut(), squashed: Squashed::NOTHING });
        }
        squashed(query, source, jstate)
    }
}

/// Whether it is a utility statement in which a value does not count. Then it has its identifier.
///
/// # Safety
/// As above.
#[inline(always)]
unsafe fn is_collapsed(query: *mut pg_sys::Query, source: *const core::ffi::c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if (*query).utilityStmt.is_null() {
            return false;
        }
        let statement = Statement::new(0, source, (*query).stmt_location, (*query).stmt_len);
        let collapsed = values::collapsed((*query).utilityStmt, &statement);
        if let Some(collapsed) = &collapsed {
            (*query).queryId = collapsed.queryid as RawQueryId;
        }
        collapsed.is_some()
    }
}

/// Gives a statement the identifier in which its lists count as one; `None` if it has none such. A list has two constants
/// or parameters, so most statements need not be looked at.
///
/// # Safety
/// As above, with the jumble state of the identifier it has, or null.
#[inline(always)]
unsafe fn squashed(
    query: *mut pg_sys::Query,
    source: *const core::ffi::c_char,
    jstate: *const pg_sys::JumbleState,
) -> Option<Jumbled> {
    // SAFETY: the caller's promise.
    unsafe {
        let jstate = jstate.as_ref()?;
        let may_have_list = jstate.clocations_count > 1 || jstate.highest_extern_param_id > 0;
        if may_have_list { without_lists(query, source) } else { None }
    }
}

/// # Safety
/// As above.
#[cfg(not(feature = "pg18"))]
#[inline(never)]
unsafe fn without_lists(query: *mut pg_sys::Query, source: *const core::ffi::c_char) -> Option<Jumbled> {
    // SAFETY: the caller's promise; the statement is as it was when this returns.
    unsafe {
        if !Statement::new(0, source, (*query).stmt_location, (*query).stmt_len).may_have_list() {
            return None;
        }
        let cut = super::lists::cut(query, source)?;
        let jstate = jumble(query, source);
        cut.mend();
        Some(Jumbled { jstate, squashed: cut.squashed })
    }
}

/// # Safety
/// None, on 18.
#[cfg(feature = "pg18")]
unsafe fn without_lists(_: *mut pg_sys::Query, _: *const core::ffi::c_char) -> Option<Jumbled> {
    None
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
        // SAFETY: used up at once.
        unsafe { server::circumstances(H::squashes(), H::era()) }.map(|now| memo.find(text, now))
    });
    match sought.flatten() {
        Some(Ok(known)) => {
            query.queryId = known as RawQueryId;
            H::found(known);
        }
        // SAFETY: a live query and its source.
        Some(Err(sought)) => in_jumbles(|| unsafe {
            let jumbled = jumbled::<H>(query, pstate.p_sourcetext);
            let id = queryid(query.queryId);
            // what the entry is remembered by comes from memory together with the text that may be carried
            H::found(id);
            MEMO.with(|memo| memo.as_mut().map(|memo| memo.put(sought, id)));
            analysed::<H>(pstate, query, jumbled);
        }),
        // SAFETY: likewise.
        None => unsafe {
            let jumbled = jumbled::<H>(query, pstate.p_sourcetext);
            analysed::<H>(pstate, query, jumbled);
        },
    }
}

/// Calls `jumbles` with [`JUMBLES`] for current memory. What it puts there may stay until the next call.
#[inline(always)]
fn in_jumbles(jumbles: impl FnOnce()) {
    // SAFETY: nothing that is in the context is used any more, nor will be what is put there. An ERROR
    // has the server choose another context, and with what it leaves in this one that counts as full.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        let mut there = IN_JUMBLES.replace(MOST_JUMBLES);
        if there == MOST_JUMBLES {
            raw::MemoryContextReset(JUMBLES.get());
            there = 0;
        }
        pg_sys::CurrentMemoryContext = JUMBLES.get();
        jumbles();
        pg_sys::CurrentMemoryContext = context;
        there += 1;
        // long lists of constants take a block, or several, of their own
        if (*JUMBLES.get()).mem_allocated > FIRST_BLOCK {
            raw::MemoryContextReset(JUMBLES.get());
            there = 0;
        }
        IN_JUMBLES.set(there);
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
    // SAFETY: the caller's promise; plain reads and writes of a flag that the function asserts.
    unsafe {
        if !pg_sys::query_id_enabled {
            ENABLED.set(true);
            pg_sys::query_id_enabled = true;
        }
        #[cfg(feature = "pg15")]
        let jstate = raw::JumbleQuery(query, source);
        #[cfg(not(feature = "pg15"))]
        let jstate = {
            let _ = source;
            raw::JumbleQuery(query)
        };
        put_back();
        jstate
    }
}

/// Whether it was done here that identifiers are enabled.
static ENABLED: Local<bool> = Local::new(false);

/// Puts back what [`jumble`] has enabled. At an abort, too: it may be after an ERROR in JumbleQuery, for want of memory or
/// stack. Otherwise the server would compute identifiers itself from then on, and they would pass for another module's.
#[inline(always)]
pub(super) fn put_back() {
    if ENABLED.replace(false) {
        // SAFETY: a plain write of a variable of the backend's own.
        unsafe { pg_sys::query_id_enabled = false };
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn after<H: ParseHooks>(
    pstate: *mut pg_sys::ParseState,
    query: *mut pg_sys::Query,
    jumbled: Jumbled,
    previous: unsafe extern "C-unwind" fn(
        *mut pg_sys::ParseState,
        *mut pg_sys::Query,
        *mut pg_sys::JumbleState,
    ),
) {
    // SAFETY: as in `post_parse_analyze`; nothing in this frame needs dropping when an ERROR jumps over it.
    unsafe {
        previous(pstate, query, jumbled.jstate);
        if !jumbled.jstate.is_null() {
            analysed::<H>(&*pstate, &*query, jumbled);
        }
    }
}

#[inline(never)]
fn analysed<H: ParseHooks>(pstate: &pg_sys::ParseState, query: &pg_sys::Query, jumbled: Jumbled) {
    // 15 does not look for constants in utility statements
    let sought = query.utilityStmt.is_null() || cfg!(not(feature = "pg15"));
    let id = queryid(query.queryId);
    if sought && id != 0 && !H::knows(id) {
        analysed_anew::<H>(pstate, query, jumbled);
    }
}

#[inline(never)]
fn analysed_anew<H: ParseHooks>(
    pstate: &pg_sys::ParseState,
    query: &pg_sys::Query,
    Jumbled { jstate, squashed }: Jumbled,
) {
    // SAFETY: live or null; the server fills `clocations` up to `clocations_count`, and the source outlives its analysis.
    let (jstate, constants, statement) = unsafe {
        let Some(jstate) = jstate.as_ref() else { return };
        let count = usize::try_from(jstate.clocations_count).unwrap_or(0);
        (
            jstate,
            if count == 0 { &[] } else { core::slice::from_raw_parts(jstate.clocations, count) },
            Statement::new(queryid(query.queryId), pstate.p_sourcetext, query.stmt_location, query.stmt_len),
        )
    };
    let kept = if squashed.is_nothing() { jstate.highest_extern_param_id } else { 0 };
    let highest_param = u32::try_from(kept).unwrap_or(0);
    H::analysed(Analysed {
        statement,
        constants,
        squashed,
        highest_param,
        #[cfg(feature = "pg18")]
        renumbers: jstate.has_squashed_lists,
    });
}
