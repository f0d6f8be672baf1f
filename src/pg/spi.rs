//! Statements that an SQL function runs. They may raise: plain frames, as everything here is the server's memory.

use super::palloced::Palloced;
use super::{message, raw};
use core::ffi::CStr;
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode};
use std::fmt::{self, Write};

pub fn run(statement: fmt::Arguments) {
    execute(statement, || ());
}

/// The first value of a query's first row, as text; `None` for NULL and where there is no row.
pub fn value(query: fmt::Arguments) -> Option<Palloced<u8>> {
    let mut copy = Palloced::empty();
    let there = execute(query, || {
        // SAFETY: the result of the query that was just executed, which is there until SPI is left.
        unsafe {
            let table = pg_sys::SPI_tuptable;
            if table.is_null() || pg_sys::SPI_processed == 0 {
                return false;
            }
            let value = raw::SPI_getvalue(*(*table).vals, (*table).tupdesc, 1);
            if !value.is_null() {
                copy.extend_from_slice(CStr::from_ptr(value).to_bytes());
            }
            !value.is_null()
        }
    });
    there.then_some(copy)
}

/// Whether a query's first value is true.
pub fn is_true(query: fmt::Arguments) -> bool {
    value(query).is_some_and(|value| *value == *b"t")
}

fn execute<R>(statement: fmt::Arguments, result: impl FnOnce() -> R) -> R {
    let mut text = Palloced::empty();
    let _ = text.write_fmt(statement);
    // SAFETY: SPI is entered and left, or an ERROR ends the transaction, which leaves it.
    unsafe {
        raw::SPI_connect();
        let done = raw::SPI_execute(text.as_c_str().as_ptr(), false, 0);
        if done < 0 {
            message::error(
                PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
                format_args!("pgss_rs could not execute a statement: SPI says {done}"),
                c"This is a bug in pgss_rs.",
            );
        }
        let result = result();
        raw::SPI_finish();
        result
    }
}
