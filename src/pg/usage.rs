//! What the backend has used so far in blocks, I/O time and WAL: snapshots of the server's running totals.

use crate::counters::{BLOCKS, TIMERS, Usage};
use pgrx::pg_sys;

/// `instr_time`s in a `BufferUsage`, in the order of `Usage::timers`. Before 17 shared and local blocks are timed
/// together, so those of local blocks are missing.
#[cfg(any(feature = "pg15", feature = "pg16"))]
const CLOCKS: usize = 4;
#[cfg(not(any(feature = "pg15", feature = "pg16")))]
const CLOCKS: usize = 6;
/// Numbers in a `WalUsage`; the times that the buffers were full are counted from 18 on.
#[cfg(not(feature = "pg18"))]
const WAL_NUMBERS: usize = 3;
#[cfg(feature = "pg18")]
const WAL_NUMBERS: usize = 4;
/// Numbers in an `instr_time`: a timespec on 15, nanoseconds from 16 on.
const CLOCK_NUMBERS: usize = size_of::<pg_sys::instr_time>() / size_of::<i64>();

/// The totals at one moment, as the numbers that the server's structs consist of.
#[derive(Clone, Copy, Default)]
pub struct Snapshot {
    buffers: Buffers,
    wal: [i64; WAL_NUMBERS],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Buffers {
    blocks: [i64; BLOCKS],
    clocks: [[i64; CLOCK_NUMBERS]; CLOCKS],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Buffers>() == size_of::<pg_sys::BufferUsage>());
    assert!(
        offset_of!(Buffers, clocks) == offset_of!(pg_sys::BufferUsage, temp_blks_written) + size_of::<i64>()
    );
    assert!(size_of::<pg_sys::WalUsage>() == size_of::<[i64; WAL_NUMBERS]>());
};

const BUFFERS: *const Buffers = (&raw const pg_sys::pgBufferUsage).cast();
const WALS: *const [i64; WAL_NUMBERS] = (&raw const pg_sys::pgWalUsage).cast();

impl Snapshot {
    #[inline(always)]
    pub fn now() -> Self {
        let mut snapshot = Snapshot::default();
        snapshot.set_now();
        snapshot
    }

    #[inline(always)]
    pub fn set_now(&mut self) {
        // SAFETY: plain reads of the backend's own counters, which only its main thread changes; the layouts are the
        // same, as asserted above.
        unsafe {
            self.buffers.blocks = (*BUFFERS).blocks;
            self.buffers.clocks = (*BUFFERS).clocks;
            self.wal = *WALS;
        }
    }

    /// Adds what was used from this moment until now to `sum`, which may be empty. Workers' shares are in the totals
    /// once a parallel plan has ended.
    #[inline(always)]
    pub fn add_since(&self, sum: &mut Option<Usage>) {
        // SAFETY: as in `set_now`.
        let (buffers, wal) = unsafe { (&*BUFFERS, &*WALS) };
        // clocks run only while blocks are counted, and WAL comes in records
        let used =
            core::iter::zip(&buffers.blocks, &self.buffers.blocks).fold(0, |any, (b, a)| any | (b ^ a));
        if used | (wal[0] ^ self.wal[0]) != 0 {
            self.add_difference(buffers, wal, sum.get_or_insert_default());
        }
    }

    #[inline(never)]
    fn add_difference(&self, buffers: &Buffers, wal: &[i64; WAL_NUMBERS], sum: &mut Usage) {
        let since = &self.buffers;
        add(&mut sum.blocks, core::array::from_fn(|i| buffers.blocks[i].wrapping_sub(since.blocks[i])));
        let clocks: [i64; CLOCKS] =
            core::array::from_fn(|i| ns(buffers.clocks[i]).wrapping_sub(ns(since.clocks[i])));
        add::<TIMERS>(&mut sum.timers, timers(clocks));
        for (sum, (now, since)) in sum.wal.iter_mut().zip(wal.iter().zip(&self.wal)) {
            *sum = sum.wrapping_add(now.wrapping_sub(*since));
        }
    }
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
fn timers([read, write, temp_read, temp_write]: [i64; CLOCKS]) -> [i64; TIMERS] {
    [read, write, 0, 0, temp_read, temp_write]
}

#[cfg(not(any(feature = "pg15", feature = "pg16")))]
fn timers(clocks: [i64; CLOCKS]) -> [i64; TIMERS] {
    clocks
}

/// An `instr_time`'s numbers in nanoseconds.
#[cfg(feature = "pg15")]
fn ns([seconds, nanoseconds]: [i64; CLOCK_NUMBERS]) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

#[cfg(not(feature = "pg15"))]
fn ns([nanoseconds]: [i64; CLOCK_NUMBERS]) -> i64 {
    nanoseconds
}

fn add<const N: usize>(sums: &mut [i64; N], more: [i64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
}

/// An `instr_time` in nanoseconds.
pub fn nanoseconds(t: &pg_sys::instr_time) -> i64 {
    #[cfg(feature = "pg15")]
    return ns([t.tv_sec, t.tv_nsec]);
    #[cfg(not(feature = "pg15"))]
    ns([t.ticks])
}
