//! Set-returning functions that hand over all rows at once, as wide as they like. What they allocate is the server's, and
//! nothing needs dropping, so an ERROR may jump out of any of it.

use super::palloced::{self, Palloced};
use super::raw;
use super::tuple::Form;
use crate::lock_rules;
use core::ffi::CStr;
use core::mem::ManuallyDrop;
use pgrx::PgTupleDesc;
use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use std::fmt::Write;

/// One value of a row.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Oid(u32),
    Int8(i64),
    Float8(f64),
    /// A whole number, as `numeric`.
    Numeric(f64),
    /// Bytes in the given encoding, as `text` in the database's.
    Text(&'a [u8], i32),
    /// Microseconds of the server's epoch.
    Timestamptz(i64),
}

/// Where the rows go. As an argument of a `#[pg_extern]` function it makes the function set-returning, and is no
/// argument in SQL.
pub struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    desc: pg_sys::TupleDesc,
    /// For the values of some rows, which the store copies. It goes with the call's memory.
    row: pg_sys::MemoryContext,
    /// Bytes of values in it, about.
    used: usize,
    /// The `numeric` that is most frequent.
    zero: pg_sys::Datum,
    datums: Palloced<pg_sys::Datum>,
    nulls: Palloced<bool>,
}

const _: () = assert!(!core::mem::needs_drop::<Rows>() && !core::mem::needs_drop::<Text>());

/// A row of `N` values in the making, one after the other.
pub struct Row<const N: usize> {
    pub(super) datums: [pg_sys::Datum; N],
    pub(super) nulls: [bool; N],
    next: usize,
    /// Bytes of values that were allocated, about.
    used: usize,
    /// The `numeric`.
    zero: pg_sys::Datum,
}

/// Which of `N` values each column of a function shows.
pub struct Shown<const N: usize> {
    /// `None`: there is no such value, the column is NULL.
    places: Palloced<Option<usize>>,
    /// The values that are NULL in any row.
    never: [bool; N],
    /// `None` where only the server can form a row.
    form: Option<Form>,
}

/// The one row of a function that returns a record; as an argument, the row to be.
pub struct Record {
    desc: pg_sys::TupleDesc,
    datum: Option<pg_sys::Datum>,
}

// SAFETY: takes nothing from the arguments: pgrx hands every function's call information to an argument of a virtual
// type, and the result information it points to is the server's. Raises what the server raises when the caller
// cannot take a set.
unsafe impl<'fcx> ArgAbi<'fcx> for Rows {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the virtual argument of this very call; after `InitMaterializedSRF` the result information is there
        // and filled.
        unsafe {
            let fcinfo = <pg_sys::FunctionCallInfo as ArgAbi>::unbox_arg_unchecked(arg);
            raw::InitMaterializedSRF(fcinfo, 0);
            let info = (*fcinfo).resultinfo as *mut pg_sys::ReturnSetInfo;
            let row = raw::AllocSetContextCreateInternal(
                pg_sys::CurrentMemoryContext,
                c"pgss_rs row".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let (store, desc) = ((*info).setResult, (*info).setDesc);
            let zero = pg_sys::Datum::from(raw::int64_to_numeric(0));
            Rows { store, desc, row, used: 0, zero, datums: Palloced::empty(), nulls: Palloced::empty() }
        }
    }

    fn is_virtual_arg() -> bool {
        true
    }
}

// SAFETY: stands for no SQL argument at all, as pgrx says of the call information.
unsafe impl SqlTranslatable for Rows {
    const TYPE_IDENT: &'static str = <pg_sys::FunctionCallInfoBaseData as SqlTranslatable>::TYPE_IDENT;
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::Skip);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::Skip));
}

// SAFETY: as for `Rows`.
unsafe impl<'fcx> ArgAbi<'fcx> for Record {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: as for `Rows`; the descriptor is made in the call's memory context.
        unsafe {
            let fcinfo = <pg_sys::FunctionCallInfo as ArgAbi>::unbox_arg_unchecked(arg);
            let mut desc = core::ptr::null_mut();
            let kind = raw::get_call_result_type(fcinfo, core::ptr::null_mut(), &mut desc);
            assert_eq!(
                kind,
                pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE,
                "the SQL declaration returns no record"
            );
            Record { desc: raw::BlessTupleDesc(desc), datum: None }
        }
    }

    fn is_virtual_arg() -> bool {
        true
    }
}

// SAFETY: as for `Rows`.
unsafe impl SqlTranslatable for Record {
    const TYPE_IDENT: &'static str = <pg_sys::FunctionCallInfoBaseData as SqlTranslatable>::TYPE_IDENT;
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::Skip);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::Skip));
}

// SAFETY: the datum is a composite of the type the function was declared with.
unsafe impl BoxRet for Record {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.datum {
            // SAFETY: returned from the very call.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

/// The text that a function returns: bytes in the given encoding, as `text` in the database's.
pub struct Text(pub Palloced<u8>, pub i32);

// SAFETY: as for `Rows`.
unsafe impl SqlTranslatable for Text {
    const TYPE_IDENT: &'static str = <pg_sys::FunctionCallInfoBaseData as SqlTranslatable>::TYPE_IDENT;
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::Skip);
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::Skip));
}

// SAFETY: a `text` datum, in the call's memory context.
unsafe impl BoxRet for Text {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: returned from the very call.
        unsafe { fcinfo.return_raw_datum(text(&self.0, self.1)) }
    }
}

impl Record {
    /// The record with a value for each column.
    pub fn fill<const N: usize>(self, values: [Value; N]) -> Self {
        check_columns(self.desc, N);
        let datums = values.map(|value| value.datum());
        let nulls = datums.map(|datum| datum.is_none());
        let datums = datums.map(|datum| datum.unwrap_or(pg_sys::Datum::from(0usize)));
        // SAFETY: as many values as the descriptor has columns.
        let datum = unsafe {
            let tuple = raw::heap_form_tuple(self.desc, datums.as_ptr(), nulls.as_ptr());
            raw::HeapTupleHeaderGetDatum((*tuple).t_data)
        };
        Record { datum: Some(datum), ..self }
    }
}

impl<const N: usize> Row<N> {
    fn new(zero: pg_sys::Datum) -> Self {
        Row { datums: [pg_sys::Datum::from(0usize); N], nulls: [true; N], next: 0, used: 0, zero }
    }

    // inlined, as the kind of each value is known where it is added
    #[inline(always)]
    pub fn add<const M: usize>(&mut self, values: [Value; M]) {
        let (datums, nulls) = (&mut self.datums[self.next..][..M], &mut self.nulls[self.next..][..M]);
        for ((value, datum), null) in values.into_iter().zip(datums).zip(nulls) {
            if let Value::Numeric(0.0) = value {
                (*datum, *null) = (self.zero, false);
            } else if let Some(d) = value.datum() {
                (*datum, *null) = (d, false);
                self.used += value.allocated();
            }
        }
        self.next += M;
    }
}

impl Rows {
    /// Adds a row; as many values as the function has columns.
    pub fn push<'a>(&mut self, row: impl IntoIterator<Item = Value<'a>>) {
        self.datums.clear();
        self.nulls.clear();
        // SAFETY: as for `push_row`.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(self.row);
            for datum in row.into_iter().map(|value| value.datum()) {
                self.datums.push(datum.unwrap_or(pg_sys::Datum::from(0usize)));
                self.nulls.push(datum.is_none());
            }
            check_columns(self.desc, self.datums.len());
            pg_sys::MemoryContextSwitchTo(before);
            raw::tuplestore_putvalues(self.store, self.desc, self.datums.as_ptr(), self.nulls.as_ptr());
            raw::MemoryContextReset(self.row);
        }
    }

    /// Adds a row that `fill` makes, of which the function shows some values or all.
    #[inline(always)]
    pub fn push_row<const N: usize>(&mut self, shown: &mut Shown<N>, fill: impl FnOnce(&mut Row<N>)) {
        let mut row = Row::new(self.zero);
        // SAFETY: the context is the call's. As many values as the descriptor has columns; the store copies them, into
        // memory of its own, so that nothing refers to the row's afterwards.
        unsafe {
            let before = pg_sys::MemoryContextSwitchTo(self.row);
            fill(&mut row);
            pg_sys::MemoryContextSwitchTo(before);
            row.nulls.iter_mut().zip(shown.never).for_each(|(null, never)| *null |= never);
            match shown.form.as_mut().and_then(|form| form.tuple(&row)) {
                Some(mut tuple) => {
                    #[cfg(debug_assertions)]
                    self.check(shown, &row, &tuple);
                    raw::tuplestore_puttuple(self.store, &mut tuple);
                }
                None => {
                    let (datums, nulls) = self.values(&shown.places, &row);
                    raw::tuplestore_putvalues(self.store, self.desc, datums, nulls);
                }
            }
            self.used += row.used;
            if self.used > pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize / 2 {
                raw::MemoryContextReset(self.row);
                self.used = 0;
            }
        }
    }

    /// The row's values in the order of the columns.
    #[inline(never)]
    fn values<const N: usize>(
        &mut self,
        places: &[Option<usize>],
        row: &Row<N>,
    ) -> (*const pg_sys::Datum, *const bool) {
        check_columns(self.desc, places.len());
        self.datums.clear();
        self.nulls.clear();
        let nothing = pg_sys::Datum::from(0usize);
        self.datums.extend(places.iter().map(|place| place.map_or(nothing, |n| row.datums[n])));
        self.nulls.extend(places.iter().map(|place| place.is_none_or(|n| row.nulls[n])));
        (self.datums.as_ptr(), self.nulls.as_ptr())
    }

    #[cfg(debug_assertions)]
    fn check<const N: usize>(&mut self, shown: &Shown<N>, row: &Row<N>, formed: &pg_sys::HeapTupleData) {
        let (datums, nulls) = self.values(&shown.places, row);
        // SAFETY: the values are those of the set's columns.
        unsafe { super::tuple::check(formed, self.desc, datums, nulls) };
    }

    /// For each column of the function as it was declared, the value that has its name among `N`, by the place that
    /// `place` tells; `is_null` picks those that are NULL in any row.
    pub fn shows<const N: usize>(
        &self,
        place: impl Fn(&str) -> Option<usize>,
        is_null: impl Fn(usize) -> bool,
    ) -> Shown<N> {
        let places = self.columns(place);
        // SAFETY: the set that is being made: its descriptor is there, and so is the memory that is current.
        let form = unsafe {
            // an ERROR may jump over it
            let desc = ManuallyDrop::new(PgTupleDesc::from_pg_unchecked(self.desc));
            let known: Option<Palloced<usize>> = places.iter().copied().collect();
            known.and_then(|places| Form::new(&desc, &places))
        };
        Shown { places, never: std::array::from_fn(is_null), form }
    }

    /// For each column of the function as it was declared, what `place` makes of its name.
    pub fn columns<T: Copy>(&self, place: impl Fn(&str) -> T) -> Palloced<T> {
        // SAFETY: the descriptor of the set that is being made; a name is a C string in the call's memory.
        let names = (1..=unsafe { (*self.desc).natts })
            .map(|n| unsafe { CStr::from_ptr(raw::SPI_fname(self.desc, n)) }.to_str().unwrap_or_default());
        names.map(place).collect()
    }
}

fn check_columns(desc: pg_sys::TupleDesc, values: usize) {
    // SAFETY: a live descriptor.
    let columns = unsafe { (*desc).natts } as usize;
    assert_eq!(columns, values, "the SQL declaration and the library differ in columns");
}

impl Value<'_> {
    /// Bytes that the datum takes beside itself, about.
    #[inline(always)]
    fn allocated(&self) -> usize {
        match self {
            Value::Text(bytes, _) => bytes.len() + size_of::<usize>(),
            Value::Numeric(_) => 4 * size_of::<usize>(),
            _ => 0,
        }
    }

    #[inline(always)]
    fn datum(&self) -> Option<pg_sys::Datum> {
        match *self {
            Value::Null => None,
            Value::Bool(b) => Some(pg_sys::Datum::from(b)),
            Value::Oid(o) => Some(pg_sys::Datum::from(o)),
            Value::Int8(i) => Some(pg_sys::Datum::from(i)),
            Value::Float8(f) => Some(pg_sys::Datum::from(f.to_bits())),
            Value::Numeric(n) => numeric(n),
            Value::Timestamptz(t) => Some(pg_sys::Datum::from(t)),
            Value::Text(bytes, encoding) => Some(text(bytes, encoding)),
        }
    }
}

#[inline(never)]
fn numeric(n: f64) -> Option<pg_sys::Datum> {
    if n.abs() < 9e18 {
        // SAFETY: allocates the number in the current memory context.
        return Some(pg_sys::Datum::from(unsafe { raw::int64_to_numeric(n as i64) }));
    }
    let mut digits = Palloced::empty();
    let _ = write!(digits, "{}", n as i128);
    let (digits, any, whole) = (digits.as_c_str().as_ptr().into(), 0usize.into(), (-1isize).into());
    // SAFETY: reads the C string, and makes of it a number in the current memory context.
    Some(unsafe {
        raw::DirectFunctionCall3Coll(Some(raw::numeric_in), pg_sys::InvalidOid, digits, any, whole)
    })
}

/// `bytes` as a text datum in the database's encoding. What cannot be converted is shown with a question mark for
/// every byte that is not ASCII: one odd text must not keep the others from being read.
fn text(bytes: &[u8], encoding: i32) -> pg_sys::Datum {
    // SAFETY: calls on a buffer of the sizes they are told; the buffer is palloc'd in the caller's context.
    unsafe {
        let here = raw::GetDatabaseEncoding();
        let sql_ascii = pg_sys::pg_enc::PG_SQL_ASCII as i32;
        if encoding == here {
            return new_text(bytes);
        }
        let conversion = if encoding == sql_ascii || here == sql_ascii {
            pg_sys::InvalidOid
        } else {
            raw::FindDefaultConversionProc(encoding, here)
        };
        let room = bytes.len() * pg_sys::MAX_CONVERSION_GROWTH as usize + 1;
        if conversion != pg_sys::InvalidOid && room <= palloced::LARGEST {
            let (from, to) = (buffer(bytes.len() + 1), buffer(room));
            from[..bytes.len()].copy_from_slice(bytes);
            let taken = raw::pg_do_encoding_conversion_buf(
                conversion,
                encoding,
                here,
                from.as_mut_ptr(),
                bytes.len() as i32,
                to.as_mut_ptr(),
                room as i32,
                true,
            );
            if usize::try_from(taken) == Ok(bytes.len()) {
                let len = to.iter().position(|b| *b == 0).unwrap_or(to.len());
                return new_text(&to[..len]);
            }
        }
        let plain = buffer(bytes.len());
        plain.iter_mut().zip(bytes).for_each(|(to, b)| *to = if b.is_ascii() { *b } else { b'?' });
        new_text(plain)
    }
}

/// Zeros, which go with the current memory context. Raises when there is no memory for them.
///
/// # Safety
/// From an SQL function; not to be used for longer than the context is there.
pub(super) unsafe fn buffer<'a>(len: usize) -> &'a mut [u8] {
    lock_rules::raising();
    // SAFETY: as many bytes as asked for, all written, and nobody else's.
    unsafe {
        core::slice::from_raw_parts_mut(
            raw::MemoryContextAllocZero(pg_sys::CurrentMemoryContext, len).cast(),
            len,
        )
    }
}

/// # Safety
/// From an SQL function; allocates in the current memory context.
unsafe fn new_text(bytes: &[u8]) -> pg_sys::Datum {
    // SAFETY: copies the bytes it is told.
    unsafe { pg_sys::Datum::from(raw::cstring_to_text_with_len(bytes.as_ptr().cast(), bytes.len() as i32)) }
}
