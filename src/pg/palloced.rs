//! Memory of the server's for SQL functions: it goes with the memory context it is from, so nothing needs dropping when an
//! ERROR jumps over those who use it; and where there is none, that is the server's own ERROR, `out of memory`.

use super::raw;
use crate::lock_rules;
use core::ffi::CStr;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use pgrx::pg_sys;
use std::fmt;

/// Bytes that the server gives at a time, at most.
pub const LARGEST: usize = 0x3fff_ffff;

/// Values one after the other, as many as are added. For the length of a call: nothing keeps one for longer.
pub struct Palloced<T> {
    at: NonNull<T>,
    len: usize,
    room: usize,
    /// That was current when it was made.
    context: pg_sys::MemoryContext,
}

impl<T: Copy> Palloced<T> {
    /// Takes no memory yet.
    pub fn empty() -> Self {
        // SAFETY: a plain read of the backend's own variable.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        Palloced { at: NonNull::dangling(), len: 0, room: 0, context }
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        let needed = self.len.saturating_add(more);
        if needed <= self.room {
            return;
        }
        lock_rules::raising();
        let largest = LARGEST / size_of::<T>().max(1);
        let room = needed.max((2 * self.room).min(largest)).max(16);
        // what is too large for the server it refuses
        let size = room.saturating_mul(size_of::<T>());
        // SAFETY: the context is the call's, the old memory is of it; aligned for anything. Raises before anything changes.
        let at = unsafe {
            if self.room == 0 {
                raw::MemoryContextAlloc(self.context, size)
            } else {
                raw::repalloc(self.at.as_ptr().cast(), size)
            }
        };
        if let Some(at) = NonNull::new(at.cast()) {
            (self.at, self.room) = (at, room);
        }
    }

    #[inline]
    pub fn push(&mut self, value: T) {
        if self.len == self.room {
            self.reserve(1);
        }
        // SAFETY: within the room that there is.
        unsafe { self.at.add(self.len).write(value) };
        self.len += 1;
    }

    pub fn extend_from_slice(&mut self, values: &[T]) {
        self.reserve(values.len());
        // SAFETY: there is room for as many behind what is there, and it is nobody else's.
        unsafe { self.at.add(self.len).copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        self.len += values.len();
    }

    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Palloced<u8> {
    /// What was written, as a C string. Whatever comes after a zero in it is not seen by those who read it as one.
    pub fn as_c_str(&mut self) -> &CStr {
        if self.last() != Some(&0) {
            self.push(0);
        }
        CStr::from_bytes_until_nul(self).unwrap_or_default()
    }
}

impl<T> Deref for Palloced<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many were written; dangling, but aligned, where there are none.
        unsafe { core::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Palloced<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl<T: Copy> Extend<T> for Palloced<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<T: Copy> FromIterator<T> for Palloced<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut all = Palloced::empty();
        all.extend(values);
        all
    }
}

impl fmt::Write for Palloced<u8> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
