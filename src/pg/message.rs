//! Messages of ours, raised as C does it: nothing is allocated but by the server, which keeps some memory for its messages,
//! so they can be raised when there is no other left.

use super::raw;
use crate::lock_rules;
use core::ffi::CStr;
use core::ptr;
use pgrx::PgLogLevel;
use pgrx::pg_sys::errcodes::PgSqlErrorCode;
use std::fmt::{self, Write};
use std::io;

/// Ends the statement. The caller's frames, up to the server's, are plain.
#[cold]
pub fn error(code: PgSqlErrorCode, text: fmt::Arguments, hint: &CStr) -> ! {
    report(PgLogLevel::ERROR, Some(code), text, Some(hint));
    unreachable!("an ERROR jumps")
}

#[cold]
pub fn warning(text: fmt::Arguments, hint: &CStr) {
    report(PgLogLevel::WARNING, None, text, Some(hint));
}

/// A line in the server's log.
#[cold]
pub fn log(text: fmt::Arguments) {
    report(PgLogLevel::LOG, None, text, None);
}

fn report(level: PgLogLevel, code: Option<PgSqlErrorCode>, text: fmt::Arguments, hint: Option<&CStr>) {
    lock_rules::raising();
    let mut line = Line { bytes: [0; 512], len: 0 };
    let _ = line.write_fmt(text);
    // SAFETY: as `ereport` does it; the strings are C strings, which are copied. An ERROR jumps from the last of them, or
    // from any: the frames are plain.
    unsafe {
        if raw::errstart(level as i32, ptr::null()) {
            if let Some(code) = code {
                raw::errcode(code as i32);
            }
            raw::errmsg(c"%s".as_ptr(), line.bytes.as_ptr());
            if let Some(hint) = hint {
                raw::errhint(c"%s".as_ptr(), hint.as_ptr());
            }
            raw::errfinish(ptr::null(), 0, ptr::null());
        }
    }
}

/// A C string in the making. What is too long for it is cut off after a whole character.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let fits = &text.as_bytes()[..text.floor_char_boundary(room)];
        self.bytes[self.len..][..fits.len()].copy_from_slice(fits);
        self.len += fits.len();
        if fits.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Why a file could not be read or written. An error's own text would be allocated.
pub struct Reason<'a>(pub &'a io::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut text = [0u8; 128];
        let Some(code) = self.0.raw_os_error() else { return write!(f, "{}", self.0.kind()) };
        // SAFETY: writes a C string of at most so many bytes.
        unsafe { libc::strerror_r(code, text.as_mut_ptr().cast(), text.len()) };
        f.write_str(
            CStr::from_bytes_until_nul(&text).ok().and_then(|t| t.to_str().ok()).unwrap_or_default(),
        )?;
        write!(f, " (os error {code})")
    }
}
