//! State of one backend: statics without locks, for a process with one thread that runs the server's code.

use std::cell::{Cell, RefCell};

/// A copyable value of this backend's.
pub struct Local<T>(Cell<T>);

// SAFETY: the server runs hooks, callbacks and SQL functions on the backend's one main thread only; no other thread
// of the process ever gets at these statics, which are private to the modules that hold them.
unsafe impl<T> Sync for Local<T> {}

impl<T: Copy> Local<T> {
    pub const fn new(value: T) -> Self {
        Local(Cell::new(value))
    }

    #[inline(always)]
    pub fn get(&self) -> T {
        self.0.get()
    }

    #[inline(always)]
    pub fn set(&self, value: T) {
        self.0.set(value);
    }

    /// Where the value is.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Sets the value; what it was.
    #[inline(always)]
    pub fn replace(&self, value: T) -> T {
        self.0.replace(value)
    }
}

/// A value of this backend's that is borrowed for the length of a call.
pub struct LocalRef<T>(RefCell<T>);

// SAFETY: as for `Local`.
unsafe impl<T> Sync for LocalRef<T> {}

impl<T> LocalRef<T> {
    pub const fn new(value: T) -> Self {
        LocalRef(RefCell::new(value))
    }

    /// Calls `f` with the value; `None` when a call further out has it. `f` must not call anything that raises: a
    /// jump out of it would leave the value borrowed for good.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_borrow_mut().ok().map(|mut value| f(&mut value))
    }
}
