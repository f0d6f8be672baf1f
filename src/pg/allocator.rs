//! The library's allocator in builds with debug assertions: the system's, after a look at the lock rules.

use crate::lock_rules;
use std::alloc::{GlobalAlloc, Layout, System};

struct Checked;

#[global_allocator]
static ALLOCATOR: Checked = Checked;

// SAFETY: the system's allocator does all of it; what comes before does not unwind.
unsafe impl GlobalAlloc for Checked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        lock_rules::allocating();
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        lock_rules::allocating();
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        lock_rules::allocating();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        lock_rules::allocating();
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}
