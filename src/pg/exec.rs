//! The executor's four hooks, and the records of the executions that are looked at.
//!
//! Each hook calls the one that was there before, or the server's own function, whatever happens on our side. An ERROR
//! in there jumps over these frames, so nothing is held across the call that would need dropping.
//!
//! A record belongs to one execution from its start to its end: executions start, run in portions, end and fail in
//! any order (cursors). It waits in the execution's memory context as a reset callback, so when an error keeps the
//! end from coming, the record goes with the execution's memory.

use super::context::{self, Context, Id, Watched};
use super::local::Local;
use super::raw;
use super::statement::{Statement, queryid};
use super::usage;
use crate::counters::Jit;
use core::marker::PhantomData;
use core::ptr::null_mut;
use pgrx::pg_sys;

/// An execution: the server's `QueryDesc`, for the length of one hook call.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    query: *mut pg_sys::QueryDesc,
    life: PhantomData<&'a pg_sys::QueryDesc>,
}

/// Whether an execution is passed by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    Yes,
    No,
    /// If its failing is noticed.
    Watched,
    /// One of the client's, if it is not drawn; likewise.
    Undrawn,
}

/// What is done around the executor's steps. None of it may raise or unwind.
pub trait ExecutorHooks: 'static {
    /// What is kept of an execution that is looked at.
    type Record: Default;
    /// What is known of an execution when it starts.
    type Started: Copy;
    /// What is kept from the beginning of a run, or of a finish, to its end.
    type Span: Copy;
    /// A measurement of the hooks' own work in one recording.
    type Own: Copy + Default;
    /// What is watched of work that has no record.
    type Watch<'a>: Watched;

    /// Whether an execution that starts now is certainly not looked at: then nothing is called for it but `passing`
    /// and `passed`, around the start and every run. This and the next are all that an idle module costs.
    fn start_passes() -> Passes;
    /// Whether one that is [`Passes::Undrawn`] certainly is, told at a glance, and the outermost context
    /// [`is_free`](context::is_free).
    fn is_skipped() -> bool;
    /// Whether it is. Draws for it.
    fn is_undrawn(execution: Execution) -> bool;
    /// Whether a run that has no record may be passed by likewise.
    fn run_passes(execution: Execution) -> Passes;
    fn passing() -> Self::Span;
    fn passed(span: Self::Span);
    /// Whether what runs now is in nothing else.
    fn is_top() -> bool;
    /// As `passing` and `passed`, around what the client itself sent.
    fn passing_clients();
    fn passed_clients();
    /// Besides, around its start, if it is watched as the outermost work.
    fn passing_start();
    fn passed_start();
    /// A message is being raised in its start or a run.
    fn raised_in_passed(execution: Execution, id: Id);
    /// What is known of an execution that is passed by, if its failing is to be noticed.
    fn watched(execution: Execution, span: Self::Span) -> Option<Self::Started>;
    fn watch(execution: Execution<'_>, started: Self::Started) -> Self::Watch<'_>;
    /// Whether the hooks measure their own work in the execution that starts.
    fn is_measured() -> bool;
    /// Around each piece of it.
    fn begin(own: &mut Self::Own);
    fn end(own: &mut Self::Own);
    /// The execution has been recorded.
    fn measured(own: Self::Own, record: &Self::Record);
    fn starting(execution: Execution) -> Self::Started;
    /// Whether the execution is to have a record.
    fn started(execution: Execution, started: &mut Self::Started) -> bool;
    /// Fills the record, which has been another execution's before.
    fn opened(execution: Execution, started: Self::Started, record: &mut Self::Record);
    /// There was no memory for the record.
    fn not_opened();
    fn running(record: Option<&mut Self::Record>) -> Self::Span;
    fn ran(execution: Execution, span: Self::Span, record: Option<&mut Self::Record>);
    /// A message is being raised while an execution with a record runs or finishes.
    fn raised(execution: Execution, record: &Self::Record, id: Id);
    /// It has come to its end.
    fn done(id: Id);
    /// Around the executor's finish, where that may have work to do.
    fn finishing(record: Option<&mut Self::Record>) -> Self::Span;
    fn finished(span: Self::Span, record: Option<&mut Self::Record>);
    /// The last look at the execution before its memory goes.
    fn ending(execution: Execution, record: Option<&mut Self::Record>);
}

impl Execution<'_> {
    /// # Safety
    /// `query` is the live `QueryDesc` that the server called a hook with.
    #[inline(always)]
    unsafe fn new(query: *mut pg_sys::QueryDesc) -> Self {
        Execution { query, life: PhantomData }
    }

    #[inline(always)]
    fn plan(&self) -> &pg_sys::PlannedStmt {
        // SAFETY: a QueryDesc in the executor's hands has its plan.
        unsafe { &*(*self.query).plannedstmt }
    }

    #[inline(always)]
    fn estate(&self) -> &pg_sys::EState {
        // SAFETY: set by the executor's start, and only read from hooks that come after it.
        unsafe { &*(*self.query).estate }
    }

    /// The query identifier, 0 when none was computed.
    #[inline(always)]
    pub fn queryid(&self) -> u64 {
        queryid(self.plan().queryId)
    }

    pub fn statement(&self) -> Statement {
        let plan = self.plan();
        // SAFETY: the source string lives as long as the QueryDesc.
        unsafe {
            Statement::new(queryid(plan.queryId), (*self.query).sourceText, plan.stmt_location, plan.stmt_len)
        }
    }

    /// Rows that the last run returned or changed.
    #[inline(always)]
    pub fn rows(&self) -> u64 {
        self.estate().es_processed
    }

    /// Whether the executor's finish may have work to do: triggers to fire, or the rest of modifying CTEs.
    #[inline(always)]
    fn modifies(&self) -> bool {
        // SAFETY: a live QueryDesc.
        let operation = unsafe { (*self.query).operation };
        operation != pg_sys::CmdType::CMD_SELECT || self.plan().hasModifyingCTE
    }

    /// Parallel workers planned for and launched; known from 18 on.
    #[inline(always)]
    pub fn workers(&self) -> [u32; 2] {
        #[cfg(feature = "pg18")]
        {
            let e = self.estate();
            [e.es_parallel_workers_to_launch, e.es_parallel_workers_launched]
                .map(|n| n.try_into().unwrap_or(0))
        }
        #[cfg(not(feature = "pg18"))]
        [0; 2]
    }

    /// What compiling expressions took in this backend, if anything was compiled.
    #[inline(always)]
    pub fn jit(&self) -> Option<Jit> {
        let jit = self.estate().es_jit;
        if jit.is_null() {
            return None;
        }
        // SAFETY: not null, and alive until the executor's end.
        Some(unsafe { jit_of(&(*jit).instr) })
    }
}

#[cold]
fn jit_of(i: &pg_sys::JitInstrumentation) -> Jit {
    let ms = |t: &pg_sys::instr_time| usage::nanoseconds(t) as f64 * 1e-6;
    let once = |t: f64| f64::from(u8::from(t > 0.0));
    let (generation, inlining) = (ms(&i.generation_counter), ms(&i.inlining_counter));
    let (optimization, emission) = (ms(&i.optimization_counter), ms(&i.emission_counter));
    // deforming is timed apart from 17 on
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    let deform = 0.0;
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    let deform = ms(&i.deform_counter);
    Jit {
        functions: i.created_functions as f64,
        generation_time: generation,
        inlining_count: once(inlining),
        inlining_time: inlining,
        optimization_count: once(optimization),
        optimization_time: optimization,
        emission_count: once(emission),
        emission_time: emission,
        deform_count: once(deform),
        deform_time: deform,
    }
}

/// A record and its place on a list: of the open ones, or of the free ones.
struct Node<R, O> {
    callback: pg_sys::MemoryContextCallback,
    context: Context,
    /// What is measured of the hooks' own work, if it is.
    own: Option<O>,
    next: *mut Self,
    query: *mut pg_sys::QueryDesc,
    record: R,
}

/// Open records, the newest first. Of `Node<H::Record, H::Own>` for the one `H` that is installed.
static OPEN: Local<*mut core::ffi::c_void> = Local::new(null_mut());
/// Nodes whose callback waits nowhere. Their memory is never given back, so as many exist as there were executions
/// open at once; taking one from here is much cheaper than allocating in the execution's memory context.
static FREE: Local<*mut core::ffi::c_void> = Local::new(null_mut());

impl<R: Default, O: Copy + Default> Node<R, O> {
    /// The execution's node among the open ones.
    #[inline(always)]
    fn find(query: *mut pg_sys::QueryDesc) -> *mut Self {
        let mut node: *mut Self = OPEN.get().cast();
        // SAFETY: the list holds live nodes; see `open`.
        unsafe {
            while !node.is_null() && (*node).query != query {
                node = (*node).next;
            }
        }
        node
    }

    /// A node that waits in the execution's memory context and is the first of the open ones; null when memory is
    /// short.
    #[inline(always)]
    fn open<H: ExecutorHooks<Record = R, Own = O>>(query: *mut pg_sys::QueryDesc) -> *mut Self {
        let mut node: *mut Self = FREE.get().cast();
        if node.is_null() {
            node = Self::make::<H>();
            if node.is_null() {
                return node;
            }
        }
        // SAFETY: a free node is nobody else's, and its memory is never given back. The per-query context is alive
        // after the executor's start; it calls `gone` once, when it goes, and forgets the node before that.
        unsafe {
            FREE.set((*node).next.cast());
            (*node).query = query;
            (*node).next = OPEN.get().cast();
            OPEN.set(node.cast());
            raw::MemoryContextRegisterResetCallback(
                (*(*query).estate).es_query_cxt,
                &raw mut (*node).callback,
            );
        }
        node
    }

    #[cold]
    #[inline(never)]
    fn make<H: ExecutorHooks<Record = R, Own = O>>() -> *mut Self {
        let mut one: Vec<Self> = Vec::new();
        if one.try_reserve_exact(1).is_err() {
            return null_mut();
        }
        let node = one.as_mut_ptr();
        core::mem::forget(one);
        let callback =
            pg_sys::MemoryContextCallback { func: Some(gone::<R, O>), arg: node.cast(), next: null_mut() };
        let context = Context::new(raised::<H>, node.cast());
        let record = R::default();
        // SAFETY: room for one, that nothing else refers to.
        unsafe {
            node.write(Node { callback, context, own: None, next: null_mut(), query: null_mut(), record })
        };
        node
    }

    /// Takes the node off the open ones, if it is there.
    ///
    /// # Safety
    /// A live node.
    #[inline(always)]
    unsafe fn close(node: *mut Self) {
        // SAFETY: the list holds live nodes.
        unsafe {
            if OPEN.get() == node.cast() {
                OPEN.set((*node).next.cast());
            } else {
                Self::close_further(node);
            }
            (*node).query = null_mut();
        }
    }

    /// # Safety
    /// As for `close`.
    #[cold]
    unsafe fn close_further(node: *mut Self) {
        let mut before: *mut Self = OPEN.get().cast();
        // SAFETY: the list holds live nodes.
        unsafe {
            while !before.is_null() && (*before).next != node {
                before = (*before).next;
            }
            if !before.is_null() {
                (*before).next = (*node).next;
            }
        }
    }

    /// # Safety
    /// Null or a live node.
    #[inline(always)]
    unsafe fn is_measured(node: *mut Self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { !node.is_null() && (*node).own.is_some() }
    }

    /// # Safety
    /// Null or a live node whose record nothing else refers to while the result is used.
    #[inline(always)]
    unsafe fn record<'a>(node: *mut Self) -> Option<&'a mut R> {
        // SAFETY: the caller's promise.
        unsafe { if node.is_null() { None } else { Some(&mut (*node).record) } }
    }
}

/// A message is being raised in the work of an execution that has a record.
unsafe extern "C-unwind" fn raised<H: ExecutorHooks>(node: *mut core::ffi::c_void) {
    let node: *const Node<H::Record, H::Own> = node.cast();
    // SAFETY: on the stack of contexts only while its execution is at work, during which no one else looks at the record;
    // and on that of parallel workers, which the execution has started and outlives.
    unsafe {
        H::raised(Execution::new((*node).query), &(*node).record, Context::id(&raw const (*node).context))
    }
}

/// Does an execution's work, with its failing being noticed.
///
/// # Safety
/// A live QueryDesc, and null or its node. Nothing that the caller holds needs dropping.
#[inline(always)]
unsafe fn work<H: ExecutorHooks>(
    query: *mut pg_sys::QueryDesc,
    node: *mut Node<H::Record, H::Own>,
    span: H::Span,
    work: impl FnOnce(),
) {
    // SAFETY: the caller's promise; an execution is not at work twice at a time, as what runs it (a portal, a function, a
    // trigger) begins another for what is nested. An ERROR has taken the node off the stack before anything runs again.
    unsafe {
        if node.is_null() {
            return unrecorded::<H>(query, span, work);
        }
        let ((), id) = Context::around(&raw mut (*node).context, work);
        H::done(id);
    }
}

/// # Safety
/// As for `work`.
#[inline(always)]
unsafe fn unrecorded<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, span: H::Span, work: impl FnOnce()) {
    // SAFETY: the caller's promise.
    unsafe {
        match H::watched(Execution::new(query), span) {
            Some(started) => context::watch(&H::watch(Execution::new(query), started), work),
            None => work(),
        }
    }
}

/// The execution that started last, if it was the client's, passed by and watched as the outermost work. It is only compared
/// with: it may be gone.
static PASSED: Local<*mut pg_sys::QueryDesc> = Local::new(null_mut());

/// A message is being raised in the work of an execution of the client's that is passed by.
unsafe extern "C-unwind" fn raised_in_passed<H: ExecutorHooks>(query: *mut core::ffi::c_void) {
    // SAFETY: on the stack of contexts only while its execution is at work.
    H::raised_in_passed(unsafe { Execution::new(query.cast()) }, context::outermost_id());
}

/// Does the work of an execution of the client's that is passed by, with its failing being noticed.
///
/// # Safety
/// As for `work`, where the outermost context [`is_free`](context::is_free).
#[inline(always)]
unsafe fn pass<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, work: impl FnOnce()) {
    H::passing_clients();
    // SAFETY: the caller's promise; the QueryDesc is alive while it is worked on.
    let id = unsafe { context::outermost(query.cast(), work) };
    H::passed_clients();
    H::done(id);
}

/// The execution's memory is going: after its end, or because of an error.
unsafe extern "C-unwind" fn gone<R: Default, O: Copy + Default>(node: *mut core::ffi::c_void) {
    let node: *mut Node<R, O> = node.cast();
    // SAFETY: what `open` registered; its memory is never given back.
    unsafe {
        if !(*node).query.is_null() {
            Node::close(node);
        }
        (*node).next = FREE.get().cast();
        FREE.set(node.cast());
    }
}

static PREVIOUS_START: Local<pg_sys::ExecutorStart_hook_type> = Local::new(None);
static PREVIOUS_RUN: Local<pg_sys::ExecutorRun_hook_type> = Local::new(None);
static PREVIOUS_FINISH: Local<pg_sys::ExecutorFinish_hook_type> = Local::new(None);
static PREVIOUS_END: Local<pg_sys::ExecutorEnd_hook_type> = Local::new(None);

/// Puts `H` in front of the hooks that are there. Once, while the library is being preloaded.
pub fn install<H: ExecutorHooks>() {
    context::watch_outermost(raised_in_passed::<H>);
    // SAFETY: the postmaster's only thread, while it loads libraries.
    unsafe {
        PREVIOUS_START.set(pg_sys::ExecutorStart_hook);
        pg_sys::ExecutorStart_hook = Some(executor_start::<H>);
        PREVIOUS_RUN.set(pg_sys::ExecutorRun_hook);
        pg_sys::ExecutorRun_hook = Some(executor_run::<H>);
        PREVIOUS_FINISH.set(pg_sys::ExecutorFinish_hook);
        pg_sys::ExecutorFinish_hook = Some(executor_finish::<H>);
        PREVIOUS_END.set(pg_sys::ExecutorEnd_hook);
        pg_sys::ExecutorEnd_hook = Some(executor_end::<H>);
    }
}

type Start = unsafe extern "C-unwind" fn(*mut pg_sys::QueryDesc, i32);

unsafe extern "C-unwind" fn executor_start<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32) {
    // SAFETY: called by the server with a live QueryDesc; nothing in this frame needs dropping when an ERROR jumps
    // over it.
    unsafe {
        let next = PREVIOUS_START.get().unwrap_or(raw::standard_ExecutorStart);
        match H::start_passes() {
            Passes::Yes => {}
            Passes::No => return start::<H>(query, eflags, next),
            Passes::Watched => return start_watched::<H>(query, eflags, next),
            Passes::Undrawn if H::is_skipped() => return start_passed::<H>(query, eflags, next),
            Passes::Undrawn => return start_undrawn::<H>(query, eflags, next),
        }
        PASSED.set(null_mut());
        let span = H::passing();
        next(query, eflags);
        H::passed(span);
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn start_undrawn<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32, next: Start) {
    // SAFETY: as in `executor_start`.
    unsafe {
        if !H::is_undrawn(Execution::new(query)) {
            return start::<H>(query, eflags, next);
        }
        if !context::is_free() {
            return start_watched::<H>(query, eflags, next);
        }
        start_passed::<H>(query, eflags, next);
    }
}

/// # Safety
/// As for the hook, where the outermost context [`is_free`](context::is_free).
#[inline(never)]
unsafe fn start_passed<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32, next: Start) {
    PASSED.set(query);
    H::passing_start();
    // SAFETY: the caller's promise.
    unsafe { pass::<H>(query, || next(query, eflags)) };
    H::passed_start();
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn start_watched<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32, next: Start) {
    PASSED.set(null_mut());
    // SAFETY: as in `executor_start`.
    unsafe {
        let span = H::passing();
        unrecorded::<H>(query, span, || next(query, eflags));
        H::passed(span);
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn start<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32, next: Start) {
    PASSED.set(null_mut());
    // SAFETY: as in `executor_start`.
    unsafe {
        if H::is_measured() {
            return start_measured::<H>(query, eflags, next);
        }
        let mut started = H::starting(Execution::new(query));
        context::watch(&H::watch(Execution::new(query), started), || next(query, eflags));
        if H::started(Execution::new(query), &mut started) {
            open::<H>(query, started, None);
        }
    }
}

/// # Safety
/// As for the hook.
#[cold]
#[inline(never)]
unsafe fn start_measured<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, eflags: i32, next: Start) {
    // SAFETY: as in `executor_start`.
    unsafe {
        let mut own = H::Own::default();
        H::begin(&mut own);
        let mut started = H::starting(Execution::new(query));
        H::end(&mut own);
        context::watch(&H::watch(Execution::new(query), started), || next(query, eflags));
        H::begin(&mut own);
        if H::started(Execution::new(query), &mut started) {
            open::<H>(query, started, Some(own));
            measure::<H>(Node::find(query), H::end);
        }
    }
}

/// Begins or ends a piece of the hooks' own work in an execution in which it is measured.
///
/// # Safety
/// Null or a live node.
#[inline(always)]
unsafe fn measure<H: ExecutorHooks>(node: *mut Node<H::Record, H::Own>, piece: fn(&mut H::Own)) {
    // SAFETY: the caller's promise.
    if let Some(own) = unsafe { node.as_mut() }.and_then(|node| node.own.as_mut()) {
        piece(own);
    }
}

/// # Safety
/// As for the hook.
#[inline(always)]
unsafe fn open<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, started: H::Started, own: Option<H::Own>) {
    let node = Node::<H::Record, H::Own>::open::<H>(query);
    // SAFETY: as in `executor_start`; the node was opened just now.
    unsafe {
        match Node::record(node) {
            Some(record) => {
                (*node).own = own;
                H::opened(Execution::new(query), started, record);
            }
            None => H::not_opened(),
        }
    }
}

#[cfg(not(feature = "pg18"))]
type Run = unsafe extern "C-unwind" fn(*mut pg_sys::QueryDesc, pg_sys::ScanDirection::Type, u64, bool);
#[cfg(feature = "pg18")]
type Run = unsafe extern "C-unwind" fn(*mut pg_sys::QueryDesc, pg_sys::ScanDirection::Type, u64);

/// The run hook; until 17 it has one argument more, which is handed on.
macro_rules! executor_run {
    ($($execute_once:ident: bool)?) => {
        unsafe extern "C-unwind" fn executor_run<H: ExecutorHooks>(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            $($execute_once: bool)?
        ) {
            // SAFETY: as in `executor_start`.
            unsafe {
                let next = PREVIOUS_RUN.get().unwrap_or(raw::standard_ExecutorRun);
                if !OPEN.get().is_null() {
                    return run::<H>(query, direction, count, $($execute_once,)? next);
                }
                if query == PASSED.get() && H::is_top() && context::is_free() {
                    return run_passed::<H>(query, direction, count, $($execute_once,)? next);
                }
                match H::run_passes(Execution::new(query)) {
                    Passes::Yes => {}
                    Passes::No => return run::<H>(query, direction, count, $($execute_once,)? next),
                    Passes::Watched | Passes::Undrawn => {
                        return run_watched::<H>(query, direction, count, $($execute_once,)? next);
                    }
                }
                let span = H::passing();
                next(query, direction, count $(, $execute_once)?);
                H::passed(span);
            }
        }

        /// # Safety
        /// As for the hook.
        #[inline(never)]
        unsafe fn run<H: ExecutorHooks>(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            $($execute_once: bool,)?
            next: Run,
        ) {
            // SAFETY: as in `executor_start`. While the execution runs its memory context, hence its node, stays.
            unsafe {
                let node = Node::<H::Record, H::Own>::find(query);
                if Node::is_measured(node) {
                    return run_measured::<H>(query, node, direction, count, $($execute_once,)? next);
                }
                let span = H::running(Node::record(node));
                work::<H>(query, node, span, || next(query, direction, count $(, $execute_once)?));
                H::ran(Execution::new(query), span, Node::record(node));
            }
        }

        /// # Safety
        /// As for the hook, where the outermost context [`is_free`](context::is_free).
        #[inline(never)]
        unsafe fn run_passed<H: ExecutorHooks>(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            $($execute_once: bool,)?
            next: Run,
        ) {
            // SAFETY: as in `run`.
            unsafe { pass::<H>(query, || next(query, direction, count $(, $execute_once)?)) };
        }

        /// # Safety
        /// As for the hook.
        #[inline(never)]
        unsafe fn run_watched<H: ExecutorHooks>(
            query: *mut pg_sys::QueryDesc,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            $($execute_once: bool,)?
            next: Run,
        ) {
            // SAFETY: as in `run`.
            unsafe {
                let span = H::passing();
                unrecorded::<H>(query, span, || next(query, direction, count $(, $execute_once)?));
                H::passed(span);
            }
        }

        /// # Safety
        /// As for the hook, and a live node.
        #[cold]
        #[inline(never)]
        unsafe fn run_measured<H: ExecutorHooks>(
            query: *mut pg_sys::QueryDesc,
            node: *mut Node<H::Record, H::Own>,
            direction: pg_sys::ScanDirection::Type,
            count: u64,
            $($execute_once: bool,)?
            next: Run,
        ) {
            // SAFETY: as in `run`.
            unsafe {
                measure::<H>(node, H::begin);
                let span = H::running(Node::record(node));
                measure::<H>(node, H::end);
                work::<H>(query, node, span, || next(query, direction, count $(, $execute_once)?));
                measure::<H>(node, H::begin);
                H::ran(Execution::new(query), span, Node::record(node));
                measure::<H>(node, H::end);
            }
        }
    };
}

#[cfg(not(feature = "pg18"))]
executor_run!(execute_once: bool);
#[cfg(feature = "pg18")]
executor_run!();

unsafe extern "C-unwind" fn executor_finish<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc) {
    // SAFETY: as in `executor_start`.
    unsafe {
        let next = PREVIOUS_FINISH.get().unwrap_or(raw::standard_ExecutorFinish);
        if Execution::new(query).modifies() { finish_modifying::<H>(query, next) } else { next(query) }
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn finish_modifying<H: ExecutorHooks>(
    query: *mut pg_sys::QueryDesc,
    next: unsafe extern "C-unwind" fn(*mut pg_sys::QueryDesc),
) {
    // SAFETY: as in `executor_run`.
    unsafe {
        let node = Node::<H::Record, H::Own>::find(query);
        let span = H::finishing(Node::record(node));
        work::<H>(query, node, span, || next(query));
        H::finished(span, Node::record(node));
    }
}

unsafe extern "C-unwind" fn executor_end<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc) {
    // SAFETY: as in `executor_start`.
    unsafe {
        let next = PREVIOUS_END.get().unwrap_or(raw::standard_ExecutorEnd);
        if OPEN.get().is_null() { next(query) } else { end::<H>(query, next) }
    }
}

/// # Safety
/// As for the hook.
#[inline(never)]
unsafe fn end<H: ExecutorHooks>(
    query: *mut pg_sys::QueryDesc,
    next: unsafe extern "C-unwind" fn(*mut pg_sys::QueryDesc),
) {
    // SAFETY: as in `executor_start`.
    unsafe {
        let node = Node::<H::Record, H::Own>::find(query);
        if Node::is_measured(node) {
            end_measured::<H>(query, node);
        } else {
            H::ending(Execution::new(query), Node::record(node));
        }
        if !node.is_null() {
            Node::close(node);
        }
        next(query)
    }
}

/// # Safety
/// As for the hook, and a live node.
#[cold]
#[inline(never)]
unsafe fn end_measured<H: ExecutorHooks>(query: *mut pg_sys::QueryDesc, node: *mut Node<H::Record, H::Own>) {
    // SAFETY: as in `end`.
    unsafe {
        measure::<H>(node, H::begin);
        H::ending(Execution::new(query), Node::record(node));
        measure::<H>(node, H::end);
        if let Some(own) = (*node).own {
            H::measured(own, &(*node).record);
        }
    }
}
