//! What the backend has used so far in blocks, I/O time and WAL: snapshots of the server's running totals.

use crate::counters::{BLOCKS, TIMERS, Usage, WAL};
use pgrx::pg_sys;

/// `instr_time`s in a `BufferUsage`: read, write, temp read, temp write. 15 times shared and local blocks together.
const CLOCKS: usize = 4;

/// The totals at one moment, as the numbers that the server's structs consist of.
#[derive(Clone, Copy, Default)]
pub struct Snapshot {
    buffers: Buffers,
    wal: [i64; 3],
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Buffers {
    blocks: [i64; BLOCKS],
    /// An `instr_time` is a timespec on 15: seconds and nanoseconds.
    clocks: [[i64; 2]; CLOCKS],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Buffers>() == size_of::<pg_sys::BufferUsage>());
    assert!(offset_of!(Buffers, clocks) == offset_of!(pg_sys::BufferUsage, blk_read_time));
    assert!(size_of::<pg_sys::WalUsage>() == size_of::<[i64; 3]>());
};

const BUFFERS: *const Buffers = (&raw const pg_sys::pgBufferUsage).cast();
const WALS: *const [i64; 3] = (&raw const pg_sys::pgWalUsage).cast();

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
    fn add_difference(&self, buffers: &Buffers, wal: &[i64; 3], sum: &mut Usage) {
        let since = &self.buffers;
        add(&mut sum.blocks, core::array::from_fn(|i| buffers.blocks[i].wrapping_sub(since.blocks[i])));
        let ns = |c: [i64; 2]| c[0].wrapping_mul(1_000_000_000).wrapping_add(c[1]);
        let [read, write, temp_read, temp_write] =
            core::array::from_fn(|i| ns(buffers.clocks[i]).wrapping_sub(ns(since.clocks[i])));
        add::<TIMERS>(&mut sum.timers, [read, write, 0, 0, temp_read, temp_write]);
        let [records, fpi, bytes] = core::array::from_fn(|i| wal[i].wrapping_sub(self.wal[i]));
        // times the buffers were full: from 18 on
        add::<WAL>(&mut sum.wal, [records, fpi, bytes, 0]);
    }
}

fn add<const N: usize>(sums: &mut [i64; N], more: [i64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
}

/// An `instr_time` in nanoseconds: a timespec on 15.
pub fn nanoseconds(t: &pg_sys::instr_time) -> i64 {
    t.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec)
}
