//! The clock that times statements.

/// Nanoseconds of a clock that never steps back, from an arbitrary start.
#[inline]
pub fn nanoseconds() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the struct it is given; CLOCK_MONOTONIC exists on every system the server runs on.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}
