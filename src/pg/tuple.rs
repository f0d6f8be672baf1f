//! Forms the tuples of a set as the server's `heap_form_tuple` does, but from what its columns are, which is looked at once
//! for the set and not twice for each value: a row of 43 columns takes a quarter of the time. Only for values that were
//! made here ([`super::srf::Value`]): plain ones, and `text` and `numeric` that are neither compressed nor stored elsewhere.
//!
//! Builds with debug assertions compare each tuple with the one that `tuplestore_putvalues` would form of the same values.

use super::palloced::Palloced;
use super::srf::{Row, buffer};
use core::mem::offset_of;
use pgrx::{PgTupleDesc, pg_sys};

/// How the values of a column lie in a tuple: on a multiple of their size, or with their length before them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    One,
    Four,
    Eight,
    Variable,
}

/// Bytes that a row's values of variable length may take together; a row with more is the server's to form, which copies
/// them once less.
const ROOM: usize = 1024;

const LARGEST: usize = size_of::<u64>();
/// Bytes before the length of a value in its short form, and the most that this counts.
const SHORT: usize = pg_sys::VARATT_SHORT_MAX as usize;

/// Forms rows of which each column shows one of `N` values.
pub struct Form {
    /// For each column the value's place in the row.
    columns: Palloced<(usize, Width)>,
    /// The tuple in the making, in memory that is the set's.
    bytes: &'static mut [u8],
}

impl Form {
    /// `None` where a column is of a kind that no [`super::srf::Value`] is of.
    ///
    /// # Safety
    /// From an SQL function, which is done with it before its memory goes.
    pub unsafe fn new(desc: &PgTupleDesc, places: &[usize]) -> Option<Self> {
        let mut columns = Palloced::empty();
        for (n, column) in places.iter().zip(desc.iter()) {
            let width = match (column.attlen, column.attbyval) {
                (1, true) => Width::One,
                (4, true) => Width::Four,
                (8, true) => Width::Eight,
                (-1, false) => Width::Variable,
                _ => return None,
            };
            columns.push((*n, width));
        }
        let room = header(columns.len()) + LARGEST * columns.len() + ROOM;
        // SAFETY: as the caller promises.
        let bytes = unsafe { buffer(room) };
        Some(Form { columns, bytes })
    }

    /// A tuple of the row, until the next one; `None` where it does not fit.
    pub fn tuple<const N: usize>(&mut self, row: &Row<N>) -> Option<pg_sys::HeapTupleData> {
        let len = self.fill(row)?;
        Some(pg_sys::HeapTupleData {
            t_len: len as u32,
            t_data: self.bytes.as_mut_ptr().cast(),
            ..Default::default()
        })
    }

    /// The tuple's length.
    fn fill<const N: usize>(&mut self, row: &Row<N>) -> Option<usize> {
        let has_null = self.columns.iter().any(|(n, _)| row.nulls[*n]);
        let start = header(if has_null { self.columns.len() } else { 0 });
        let mut infomask = if has_null { pg_sys::HEAP_HASNULL } else { 0 };
        let (head, values) = self.bytes.split_at_mut(start);
        // the row before may have had values where this one has none
        head.fill(0);
        let mut at = 0;
        for (byte, columns) in self.columns.chunks(8).enumerate() {
            let mut there = 0;
            for (bit, (n, width)) in columns.iter().enumerate() {
                if row.nulls[*n] {
                    continue;
                }
                there |= 1u8 << bit;
                let datum = row.datums[*n];
                match width {
                    Width::Eight => put(values, &mut at, (datum.value() as u64).to_ne_bytes())?,
                    Width::Four => put(values, &mut at, (datum.value() as u32).to_ne_bytes())?,
                    Width::One => put(values, &mut at, [datum.value() as u8])?,
                    Width::Variable => {
                        infomask |= pg_sys::HEAP_HASVARWIDTH;
                        // SAFETY: a datum that was made of a value, as the head of this file has it.
                        put_variable(values, &mut at, unsafe { content(datum) })?;
                    }
                }
            }
            if has_null {
                head[offset_of!(pg_sys::HeapTupleHeaderData, t_bits) + byte] = there;
            }
        }
        let mut field = |at: usize, value: &[u8]| head[at..at + value.len()].copy_from_slice(value);
        let natts = self.columns.len() as u16;
        field(offset_of!(pg_sys::HeapTupleHeaderData, t_infomask2), &natts.to_ne_bytes());
        field(offset_of!(pg_sys::HeapTupleHeaderData, t_infomask), &(infomask as u16).to_ne_bytes());
        field(offset_of!(pg_sys::HeapTupleHeaderData, t_hoff), &[start as u8]);
        Some(start + at)
    }
}

/// Compares a tuple with the one that `tuplestore_putvalues` would put into the set.
///
/// # Safety
/// The values are of the descriptor's columns, and the tuple as long as it says; from an SQL function.
#[cfg(debug_assertions)]
pub unsafe fn check(
    formed: &pg_sys::HeapTupleData,
    desc: pg_sys::TupleDesc,
    datums: *const pg_sys::Datum,
    nulls: *const bool,
) {
    // SAFETY: as the caller promises.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let servers = pg_sys::heap_form_minimal_tuple(desc, datums.cast_mut(), nulls.cast_mut());
        #[cfg(feature = "pg18")]
        let servers = pg_sys::heap_form_minimal_tuple(desc, datums.cast_mut(), nulls.cast_mut(), 0);
        let bytes = |tuple: *const u8, from: usize, len: u32| {
            core::slice::from_raw_parts(tuple, len as usize).get(from..).unwrap_or_default()
        };
        let ours =
            bytes(formed.t_data.cast(), offset_of!(pg_sys::HeapTupleHeaderData, t_infomask2), formed.t_len);
        let from = offset_of!(pg_sys::MinimalTupleData, t_infomask2);
        assert_eq!(ours, bytes(servers.cast(), from, (*servers).t_len), "the server forms another tuple");
        pg_sys::heap_free_minimal_tuple(servers);
    }
}

/// Bytes before the values, with marks for so many columns.
fn header(marked: usize) -> usize {
    (offset_of!(pg_sys::HeapTupleHeaderData, t_bits) + marked.div_ceil(8)).next_multiple_of(LARGEST)
}

/// Zeros up to the next multiple of `size`.
#[inline(always)]
fn align(values: &mut [u8], at: &mut usize, size: usize) -> Option<()> {
    let aligned = at.next_multiple_of(size);
    if aligned != *at {
        values.get_mut(*at..aligned)?.fill(0);
        *at = aligned;
    }
    Some(())
}

#[inline(always)]
fn put<const SIZE: usize>(values: &mut [u8], at: &mut usize, value: [u8; SIZE]) -> Option<()> {
    align(values, at, SIZE)?;
    *values.get_mut(*at..)?.first_chunk_mut()? = value;
    *at += SIZE;
    Some(())
}

/// With its length in one byte, and then anywhere, or in four.
fn put_variable(values: &mut [u8], at: &mut usize, content: &[u8]) -> Option<()> {
    let mut length = [0u64; 1];
    // the server's own macros know where in the word the bits are
    let length: &[u8] = if content.len() < SHORT {
        // SAFETY: the word has room for either length.
        unsafe { pgrx::set_varsize_1b(length.as_mut_ptr().cast(), content.len() as i32 + 1) };
        &length[0].to_ne_bytes()[..1]
    } else {
        align(values, at, pg_sys::VARHDRSZ)?;
        // SAFETY: as above.
        unsafe {
            pgrx::set_varsize_4b(length.as_mut_ptr().cast(), (content.len() + pg_sys::VARHDRSZ) as i32)
        };
        &length[0].to_ne_bytes()[..pg_sys::VARHDRSZ]
    };
    let to = values.get_mut(*at..*at + length.len() + content.len())?;
    let (to_length, to_content) = to.split_at_mut(length.len());
    to_length.copy_from_slice(length);
    to_content.copy_from_slice(content);
    *at += length.len() + content.len();
    Some(())
}

/// # Safety
/// A datum of variable length with its length in four bytes, that is there for as long.
unsafe fn content<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    let value: *const pg_sys::varlena = datum.cast_mut_ptr();
    // SAFETY: as the caller promises.
    unsafe {
        core::slice::from_raw_parts(
            pgrx::vardata_4b(value).cast(),
            pgrx::varsize_4b(value) - pg_sys::VARHDRSZ,
        )
    }
}
