//! Texts carried in the backend from a statement's analysis to its execution.
//!
//! The places of a statement's constants are known only while it is analysed; its entry is made when it is first
//! executed, maybe much later and more than once (after a reset or an eviction). So the backend keeps the normalised
//! text by query identifier: a small set-associative cache, least recently used first out, bounded in number and
//! bytes. What was pushed out is made up for by [`crate::normalize::literals`].
//!
//! Memory is asked for in ways that can fail without harm: a text that cannot be kept is not kept.

const SETS: usize = 256;
const WAYS: usize = 4;
/// A longer text is not carried.
pub const MAX_TEXT: usize = 64 * 1024;
/// Bytes of all texts together, per backend.
pub const MAX_BYTES: usize = 1024 * 1024;

/// What is known of a statement's text.
enum Text {
    /// It holds no constants: the source is its own normalised text.
    AsWritten,
    Normalised(Box<[u8]>),
}

struct Entry {
    queryid: u64,
    text: Text,
}

/// The texts one backend carries.
pub struct Carried {
    /// `SETS * WAYS` places, most recently used first within a set; empty until the first text comes.
    entries: Vec<Option<Entry>>,
    bytes: usize,
}

/// Answer to [`Carried::get`].
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    AsWritten,
    Normalised(&'a [u8]),
}

impl Default for Carried {
    fn default() -> Self {
        Self::new()
    }
}

impl Carried {
    pub const fn new() -> Self {
        Carried { entries: Vec::new(), bytes: 0 }
    }

    fn set(queryid: u64) -> usize {
        (queryid as usize % SETS) * WAYS
    }

    /// Whether the statement's text is known; if so it is now the most recently used of its set.
    #[inline]
    pub fn touch(&mut self, queryid: u64) -> bool {
        let Some(set) = self.entries.get_mut(Self::set(queryid)..).and_then(|s| s.get_mut(..WAYS)) else {
            return false;
        };
        match set.iter().position(|e| e.as_ref().is_some_and(|e| e.queryid == queryid)) {
            Some(0) => true,
            Some(n) => {
                set[..=n].rotate_right(1);
                true
            }
            None => false,
        }
    }

    pub fn get(&mut self, queryid: u64) -> Option<Found<'_>> {
        if !self.touch(queryid) {
            return None;
        }
        Some(match &self.entries[Self::set(queryid)].as_ref()?.text {
            Text::AsWritten => Found::AsWritten,
            Text::Normalised(t) => Found::Normalised(t),
        })
    }

    /// Remembers that the statement's source holds no constants.
    pub fn put_as_written(&mut self, queryid: u64) {
        self.put(queryid, Text::AsWritten, 0);
    }

    /// Remembers the statement's normalised text.
    pub fn put_normalised(&mut self, queryid: u64, text: Vec<u8>) {
        if text.len() <= MAX_TEXT {
            let text = text.into_boxed_slice();
            let bytes = text.len();
            self.put(queryid, Text::Normalised(text), bytes);
        }
    }

    fn put(&mut self, queryid: u64, text: Text, bytes: usize) {
        if self.entries.is_empty() {
            if self.entries.try_reserve_exact(SETS * WAYS).is_err() {
                return;
            }
            self.entries.resize_with(SETS * WAYS, || None);
        }
        if self.bytes + bytes > MAX_BYTES {
            self.entries.fill_with(|| None);
            self.bytes = 0;
        }
        let known = self.touch(queryid);
        let set = &mut self.entries[Self::set(queryid)..][..WAYS];
        if !known {
            set.rotate_right(1);
        }
        let old = set[0].replace(Entry { queryid, text });
        let freed = match old {
            Some(Entry { text: Text::Normalised(t), .. }) => t.len(),
            _ => 0,
        };
        self.bytes = self.bytes + bytes - freed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_until_four_others_of_its_set_came() {
        let mut c = Carried::new();
        assert!(!c.touch(1));
        c.put_normalised(1, b"SELECT $1".to_vec());
        c.put_as_written(1 + SETS as u64);
        assert_eq!(c.get(1), Some(Found::Normalised(b"SELECT $1")));
        assert_eq!(c.get(1 + SETS as u64), Some(Found::AsWritten));
        for n in 2..6 {
            c.put_as_written(1 + n * SETS as u64);
        }
        assert_eq!(c.get(1), None);
        assert_eq!(c.bytes, 0);
    }

    #[test]
    fn using_a_text_keeps_it() {
        let mut c = Carried::new();
        for n in 0..100 {
            c.put_as_written(n * SETS as u64);
            assert!(c.touch(0));
        }
    }

    #[test]
    fn bytes_stay_bounded_and_long_texts_are_not_kept() {
        let mut c = Carried::new();
        for n in 0..1000 {
            c.put_normalised(n, vec![b'x'; 4096]);
            assert!(c.bytes <= MAX_BYTES);
            assert!(c.touch(n));
        }
        c.put_normalised(5000, vec![b'x'; MAX_TEXT + 1]);
        assert!(!c.touch(5000));
    }

    #[test]
    fn a_new_text_for_the_same_statement_replaces_the_old() {
        let mut c = Carried::new();
        c.put_normalised(1, vec![b'a'; 10]);
        c.put_normalised(1, vec![b'b'; 20]);
        assert_eq!(c.get(1), Some(Found::Normalised(&[b'b'; 20][..])));
        assert_eq!(c.bytes, 20);
    }
}
