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
    /// The time the text is from, as the caller counts it.
    era: u32,
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

    fn find(&mut self, queryid: u64) -> Option<&Entry> {
        let set = self.entries.get_mut(Self::set(queryid)..)?.get_mut(..WAYS)?;
        let n = set.iter().position(|e| e.as_ref().is_some_and(|e| e.queryid == queryid))?;
        if n > 0 {
            set[..=n].rotate_right(1);
        }
        set[0].as_ref()
    }

    /// Whether a text of this era is known for the statement; if so it is now the most recently used of its set.
    #[inline]
    pub fn touch(&mut self, queryid: u64, era: u32) -> bool {
        self.find(queryid).is_some_and(|e| e.era == era)
    }

    /// The statement's text, of whatever era.
    pub fn get(&mut self, queryid: u64) -> Option<Found<'_>> {
        self.find(queryid).map(|e| match &e.text {
            Text::AsWritten => Found::AsWritten,
            Text::Normalised(t) => Found::Normalised(t),
        })
    }

    /// Remembers that the statement's source holds no constants.
    pub fn put_as_written(&mut self, queryid: u64, era: u32) {
        self.put(Entry { queryid, era, text: Text::AsWritten }, 0);
    }

    /// Remembers the statement's normalised text.
    pub fn put_normalised(&mut self, queryid: u64, era: u32, text: Vec<u8>) {
        if text.len() <= MAX_TEXT {
            let text = text.into_boxed_slice();
            let bytes = text.len();
            self.put(Entry { queryid, era, text: Text::Normalised(text) }, bytes);
        }
    }

    fn put(&mut self, entry: Entry, bytes: usize) {
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
        let known = self.find(entry.queryid).is_some();
        let set = &mut self.entries[Self::set(entry.queryid)..][..WAYS];
        if !known {
            set.rotate_right(1);
        }
        let freed = match set[0].replace(entry) {
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
        assert!(!c.touch(1, 0));
        c.put_normalised(1, 0, b"SELECT $1".to_vec());
        c.put_as_written(1 + SETS as u64, 0);
        assert_eq!(c.get(1), Some(Found::Normalised(b"SELECT $1")));
        assert_eq!(c.get(1 + SETS as u64), Some(Found::AsWritten));
        for n in 2..6 {
            c.put_as_written(1 + n * SETS as u64, 0);
        }
        assert_eq!(c.get(1), None);
        assert_eq!(c.bytes, 0);
    }

    #[test]
    fn using_a_text_keeps_it() {
        let mut c = Carried::new();
        for n in 0..100 {
            c.put_as_written(n * SETS as u64, 0);
            assert!(c.touch(0, 0));
        }
    }

    #[test]
    fn bytes_stay_bounded_and_long_texts_are_not_kept() {
        let mut c = Carried::new();
        for n in 0..1000 {
            c.put_normalised(n, 0, vec![b'x'; 4096]);
            assert!(c.bytes <= MAX_BYTES);
            assert!(c.touch(n, 0));
        }
        c.put_normalised(5000, 0, vec![b'x'; MAX_TEXT + 1]);
        assert!(!c.touch(5000, 0));
    }

    #[test]
    fn a_new_text_for_the_same_statement_replaces_the_old() {
        let mut c = Carried::new();
        c.put_normalised(1, 0, vec![b'a'; 10]);
        c.put_normalised(1, 0, vec![b'b'; 20]);
        assert_eq!(c.get(1), Some(Found::Normalised(&[b'b'; 20][..])));
        assert_eq!(c.bytes, 20);
    }

    #[test]
    fn a_text_of_another_era_is_to_be_replaced_but_better_than_none() {
        let mut c = Carried::new();
        c.put_normalised(1, 0, b"old".to_vec());
        assert!(!c.touch(1, 1));
        assert_eq!(c.get(1), Some(Found::Normalised(b"old")));
        c.put_normalised(1, 1, b"new".to_vec());
        assert!(c.touch(1, 1));
        assert_eq!(c.get(1), Some(Found::Normalised(b"new")));
    }
}
