//! Callbacks on the server's stack of error contexts: how failures are noticed without a `sigsetjmp`.
//!
//! While a hook lets the server work, a callback of ours waits on that stack. The server calls it for every message that is
//! raised in there, before an ERROR jumps. Whether it was one, and was not caught further in, shows afterwards, by the
//! callback no longer being on the stack ([`is_waiting`]) though its hook did not take it off.
//!
//! It is also called when somebody asks for the context alone (GET DIAGNOSTICS ... PG_CONTEXT), with an SQLSTATE of success,
//! and for what a parallel worker raises, with the stack that was when the workers were started. Of the signal handlers that
//! raise messages, SIGQUIT's empties the stack first, and SIGFPE's stands for the instruction that it interrupts.
//!
//! For what the client itself sent, and is at work once at a time, there is one callback in which nothing has to be filled in:
//! a note of what is at work is all it takes ([`outermost`]).

use super::local::Local;
use super::raw;
use core::ffi::c_void;
use core::mem::needs_drop;
use pgrx::pg_sys;

/// What a callback is about.
pub trait Watched {
    /// A message is being raised in the work. May not raise or unwind, nor allocate in a memory context.
    fn raised(&self, id: Id);
    /// The work has come to its end. May not raise or unwind.
    fn done(id: Id);
}

/// Tells callbacks apart while they wait: where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Id(usize);

/// A callback that is on the stack, or will be.
#[repr(transparent)] // its address is the callback's
pub struct Context(pg_sys::ErrorContextCallback);

impl Context {
    /// `callback` may not raise or unwind.
    pub const fn new(callback: unsafe extern "C-unwind" fn(*mut c_void), arg: *mut c_void) -> Self {
        Context(pg_sys::ErrorContextCallback {
            previous: core::ptr::null_mut(),
            callback: Some(callback),
            arg,
        })
    }

    /// Does the work with the callback on the stack, and says where that is for [`Watched::done`].
    ///
    /// # Safety
    /// `this` is alive and on no stack, and what the callback's argument points to is as it expects, until the work is
    /// done or an ERROR has jumped out of it. Nothing that the caller holds needs dropping.
    #[inline(always)]
    pub unsafe fn around<R, F: FnOnce() -> R>(this: *mut Self, work: F) -> (R, Id) {
        const { assert!(!needs_drop::<F>(), "an ERROR would jump over it") };
        // SAFETY: the stack is the backend's own; the caller's promise.
        unsafe {
            let context = &raw mut (*this).0;
            (*context).previous = pg_sys::error_context_stack;
            pg_sys::error_context_stack = context;
            let result = work();
            pg_sys::error_context_stack = (*context).previous;
            (result, Self::id(this))
        }
    }

    #[inline(always)]
    pub fn id(this: *const Self) -> Id {
        Id(this as usize)
    }
}

struct Frame<'a, W> {
    context: Context,
    subject: &'a W,
}

/// Does the work, and tells `subject` of the messages that are raised in it and of its end.
///
/// # Safety
/// Nothing that the caller holds needs dropping.
#[inline(always)]
pub unsafe fn watch<W: Watched, R>(subject: &W, work: impl FnOnce() -> R) -> R {
    const { assert!(!needs_drop::<W>(), "an ERROR would jump over it") };
    unsafe extern "C-unwind" fn raised<W: Watched>(frame: *mut c_void) {
        // SAFETY: the frame below, which is alive while its callback is on the stack.
        let frame: &Frame<W> = unsafe { &*frame.cast() };
        frame.subject.raised(Context::id(&frame.context));
    }
    let mut frame = Frame { context: Context::new(raised::<W>, core::ptr::null_mut()), subject };
    let this = &raw mut frame;
    // SAFETY: the frame stays where it is until the work is done; the caller's promise.
    unsafe {
        (*this).context.0.arg = this.cast();
        let (result, id) = Context::around(&raw mut (*this).context, work);
        W::done(id);
        result
    }
}

/// The callback of the outermost work.
static OUTERMOST: Local<pg_sys::ErrorContextCallback> = Local::new(pg_sys::ErrorContextCallback {
    previous: core::ptr::null_mut(),
    callback: None,
    arg: core::ptr::null_mut(),
});
/// Whether it is on the stack, or was until an ERROR jumped and the abort has not come yet.
static IN_USE: Local<bool> = Local::new(false);

/// Has `raised` called for the messages that are raised in the [`outermost`] work, with what that is about. It may not raise
/// or unwind. Once, while the library is being preloaded.
pub fn watch_outermost(raised: unsafe extern "C-unwind" fn(*mut c_void)) {
    OUTERMOST.set(pg_sys::ErrorContextCallback { callback: Some(raised), ..OUTERMOST.get() });
}

/// Where the callback for the outermost work is.
#[inline(always)]
pub fn outermost_id() -> Id {
    Id(OUTERMOST.as_ptr() as usize)
}

/// Whether no [`outermost`] work is being done.
#[inline(always)]
pub fn is_free() -> bool {
    !IN_USE.get()
}

/// Does the work with the one callback for such on the stack, and says where that is for [`Watched::done`].
///
/// # Safety
/// [`is_free`], and `subject` is as the function of [`watch_outermost`] expects until the work is done or an ERROR has
/// jumped out of it. Nothing that the caller holds needs dropping.
#[inline(always)]
pub unsafe fn outermost<F: FnOnce()>(subject: *mut c_void, work: F) -> Id {
    const { assert!(!needs_drop::<F>(), "an ERROR would jump over it") };
    IN_USE.set(true);
    // SAFETY: the stack is the backend's own, and the callback is not on it.
    unsafe {
        let context = OUTERMOST.as_ptr();
        (*context).arg = subject;
        (*context).previous = pg_sys::error_context_stack;
        pg_sys::error_context_stack = context;
        work();
        pg_sys::error_context_stack = (*context).previous;
    }
    IN_USE.set(false);
    outermost_id()
}

/// An ERROR has been caught, and may have jumped out of the outermost work.
pub fn caught() {
    IN_USE.set(IN_USE.get() && is_waiting(outermost_id()));
}

/// Whether the callback is on the stack.
pub fn is_waiting(id: Id) -> bool {
    // SAFETY: what is on the stack is alive; the server takes off what an ERROR has jumped over before anything else runs.
    unsafe {
        let mut context = pg_sys::error_context_stack;
        while !context.is_null() && context as usize != id.0 {
            context = (*context).previous;
        }
        !context.is_null()
    }
}

/// The SQLSTATE of the message that is being raised, as the server packs it. In [`Watched::raised`] only.
pub fn sqlstate() -> i32 {
    // SAFETY: there is a message while a callback runs.
    unsafe { raw::geterrcode() }
}
