//! A statement's identifier and text, as the server hands them to hooks.

use crate::normalize::{may_have_list, statement_range};
use core::ffi::{CStr, c_char};
use pgrx::pg_sys;

/// The server's query identifier, which is signed from 18 on.
#[inline(always)]
pub fn queryid(id: RawQueryId) -> u64 {
    #[allow(clippy::unnecessary_cast)] // before 18
    {
        id as u64
    }
}

#[cfg(feature = "pg18")]
pub type RawQueryId = i64;
#[cfg(not(feature = "pg18"))]
pub type RawQueryId = u64;

/// One statement within its source string.
#[derive(Clone, Copy)]
pub struct Statement {
    pub queryid: u64,
    source: *const c_char,
    location: i32,
    len: i32,
}

impl Statement {
    /// # Safety
    /// `source` is null or a C string that stays as it is for as long as the value is asked for the text. Beyond that the
    /// value may be kept and compared.
    #[inline]
    pub unsafe fn new(queryid: u64, source: *const c_char, location: i32, len: i32) -> Self {
        Statement { queryid, source, location, len }
    }

    /// Whether the identifier is that of the text, as it is for utility statements on 15; on others it is not known.
    pub fn is_utility_of_its_own(&self) -> bool {
        #[cfg(feature = "pg15")]
        if !self.source.is_null() {
            let some = core::ptr::dangling_mut();
            // SAFETY: a live C string, as `new` demands; on 15 the statement's tree is only compared with null, and a hash
            // of the text taken, in which nothing raises. That identifiers are not off is asserted: they may be since
            // the statement, a SET maybe, was analysed.
            let of_text = unsafe {
                let setting = pg_sys::compute_query_id;
                pg_sys::compute_query_id =
                    pg_sys::ComputeQueryIdType::COMPUTE_QUERY_ID_ON as core::ffi::c_int;
                let of_text = super::utility::jumble(some, self.source, self.location, self.len);
                pg_sys::compute_query_id = setting;
                of_text
            };
            return self.queryid == of_text;
        }
        false
    }

    pub fn with_queryid(self, queryid: u64) -> Self {
        Statement { queryid, ..self }
    }

    /// Whether nothing says where in the source it stands.
    pub fn has_no_place(&self) -> bool {
        self.location <= 0 && self.len <= 0
    }

    /// The statement at the place of `around`, in whose source it stands; that is all of the source, with the semicolon,
    /// if nothing else is in it. The source of `around` may have gone, and this one's have taken its place in memory.
    pub fn within(&self, around: &Statement) -> Option<Statement> {
        if self.source != around.source || self.source.is_null() {
            return None;
        }
        let whole = Statement { location: 0, len: 0, ..*self };
        let (all, begin) = whole.text();
        // of this one's source, whatever is there now
        let (text, start) = around.text();
        let before = start.checked_sub(begin)?;
        let outside = [all.get(..before)?, all.get(before + text.len()..)?];
        let alone = outside.iter().all(|part| part.iter().all(|b| b.is_ascii_whitespace() || *b == b';'));
        Some(if alone { whole } else { Statement { queryid: self.queryid, ..*around } })
    }

    /// Whether it stands in the string that the backend says it is executing: in a message of the simple protocol, the
    /// message's.
    #[inline(always)]
    pub fn is_messages(&self) -> bool {
        // SAFETY: a plain read of a variable.
        self.source == unsafe { pg_sys::debug_query_string }
    }

    pub fn has_source(&self) -> bool {
        !self.source.is_null()
    }

    /// The statement's own text, had without a look at all that stands around it in the source: that may be a million
    /// other statements, for each of which it is asked.
    ///
    /// # Safety
    /// The source is not null, and the place is one in it.
    pub unsafe fn text_in_place(&self) -> &[u8] {
        // SAFETY: the caller's promise.
        let (text, _) = unsafe { self.with_space_around() };
        let (lead, len) = statement_range(text, 0, 0);
        &text[lead..lead + len]
    }

    /// The same with the white space around it, and where it begins in the source.
    ///
    /// # Safety
    /// As above.
    #[inline(always)]
    pub(super) unsafe fn with_space_around(&self) -> (&[u8], usize) {
        let (start, len) = (self.location.max(0) as usize, usize::try_from(self.len).unwrap_or(0));
        // SAFETY: within a live C string, as `new` and the caller promise.
        unsafe {
            let begin = self.source.add(start);
            let text = if len > 0 && self.location >= 0 {
                core::slice::from_raw_parts(begin.cast(), len)
            } else {
                CStr::from_ptr(begin).to_bytes()
            };
            (text, start)
        }
    }

    /// Whether it may have a list of constants that counts as one, as its text tells.
    ///
    /// # Safety
    /// The place is one in the source.
    pub unsafe fn may_have_list(&self) -> bool {
        // SAFETY: not null, and the caller's promise.
        !self.source.is_null() && may_have_list(unsafe { self.with_space_around() }.0)
    }

    /// The statement's own text, and where it begins in the source.
    pub fn text(&self) -> (&[u8], usize) {
        if self.source.is_null() {
            return (&[], 0);
        }
        // SAFETY: a live C string, as `new` demands.
        let source = unsafe { CStr::from_ptr(self.source) }.to_bytes();
        let (start, len) = statement_range(source, self.location, self.len);
        (&source[start..start + len], start)
    }
}
