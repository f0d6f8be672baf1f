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

struct Entry {
    name: u64,
    /// The time the text is from, as the caller counts it.
    era: u32,
    text: Box<[u8]>,
}

/// What a text is found by: statement, role and level. The same statement may stand in another text at another level
/// (in EXPLAIN, say), and its comments and names are its user's.
#[inline(always)]
pub fn name(queryid: u64, userid: u32, toplevel: bool) -> u64 {
    queryid ^ (u64::from(userid) << 1 | u64::from(toplevel)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The texts one backend carries.
pub struct Carried {
    /// `SETS * WAYS` places, most recently used first within a set; empty until the first text comes.
    entries: Vec<Option<Entry>>,
    bytes: usize,
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

    fn set(name: u64) -> usize {
        (name as usize % SETS) * WAYS
    }

    #[inline(never)]
    fn find(&mut self, name: u64) -> Option<&Entry> {
        let set = self.entries.get_mut(Self::set(name)..)?.get_mut(..WAYS)?;
        let n = set.iter().position(|e| e.as_ref().is_some_and(|e| e.name == name))?;
        if n > 0 {
            set[..=n].rotate_right(1);
        }
        set[0].as_ref()
    }

    /// Whether a text of this era is known for the statement; if so it is now the most recently used of its set.
    #[inline(always)]
    pub fn touch(&mut self, name: u64, era: u32) -> bool {
        match self.entries.get(Self::set(name)) {
            Some(Some(first)) if first.name == name => first.era == era,
            _ => self.touch_further(name, era),
        }
    }

    #[inline(never)]
    fn touch_further(&mut self, name: u64, era: u32) -> bool {
        self.find(name).is_some_and(|e| e.era == era)
    }

    /// The statement's normalised text, of whatever era.
    pub fn get(&mut self, name: u64) -> Option<&[u8]> {
        self.find(name).map(|e| &*e.text)
    }

    /// Remembers the statement's normalised text.
    pub fn put(&mut self, name: u64, era: u32, text: Vec<u8>) {
        if text.len() > MAX_TEXT {
            return;
        }
        if self.entries.is_empty() {
            if self.entries.try_reserve_exact(SETS * WAYS).is_err() {
                return;
            }
            self.entries.resize_with(SETS * WAYS, || None);
        }
        if self.bytes + text.len() > MAX_BYTES {
            self.entries.fill_with(|| None);
            self.bytes = 0;
        }
        let known = self.find(name).is_some();
        let set = &mut self.entries[Self::set(name)..][..WAYS];
        if !known {
            set.rotate_right(1);
        }
        self.bytes += text.len();
        let old = set[0].replace(Entry { name, era, text: text.into_boxed_slice() });
        self.bytes -= old.map_or(0, |e| e.text.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(queryid: u64) -> u64 {
        name(queryid, 10, true)
    }

    /// As many names that share a set.
    fn of_one_set(count: usize) -> Vec<u64> {
        (0..count as u64).map(|n| 1 + n * SETS as u64).collect()
    }

    #[test]
    fn a_text_is_found_until_four_others_of_its_set_came() {
        let (mut c, keys) = (Carried::new(), of_one_set(5));
        assert!(!c.touch(keys[0], 0));
        c.put(keys[0], 0, b"SELECT $1".to_vec());
        assert!(c.touch(keys[0], 0));
        assert_eq!(c.get(keys[0]), Some(&b"SELECT $1"[..]));
        keys[1..].iter().for_each(|k| c.put(*k, 0, Vec::new()));
        assert_eq!(c.get(keys[0]), None);
        assert_eq!(c.bytes, 0);
    }

    #[test]
    fn using_a_text_keeps_it() {
        let (mut c, keys) = (Carried::new(), of_one_set(50));
        c.put(keys[0], 0, b"kept".to_vec());
        for k in &keys[1..] {
            c.put(*k, 0, b"other".to_vec());
            assert!(c.touch(keys[0], 0));
        }
    }

    #[test]
    fn each_level_and_each_user_has_a_text_of_its_own() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"SELECT /* mine */ 1".to_vec());
        for other in [name(1, 11, true), name(1, 10, false)] {
            assert_eq!(c.get(other), None);
        }
    }

    #[test]
    fn bytes_stay_bounded_and_long_texts_are_not_kept() {
        let mut c = Carried::new();
        for n in 0..1000 {
            c.put(key(n), 0, vec![b'x'; 4096]);
            assert!(c.bytes <= MAX_BYTES);
            assert!(c.touch(key(n), 0));
        }
        c.put(key(5000), 0, vec![b'x'; MAX_TEXT + 1]);
        assert!(!c.touch(key(5000), 0));
    }

    #[test]
    fn a_new_text_for_the_same_statement_replaces_the_old() {
        let mut c = Carried::new();
        c.put(key(1), 0, vec![b'a'; 10]);
        c.put(key(1), 0, vec![b'b'; 20]);
        assert_eq!(c.get(key(1)), Some(&[b'b'; 20][..]));
        assert_eq!(c.bytes, 20);
    }

    #[test]
    fn a_text_of_another_era_is_to_be_replaced_but_better_than_none() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"old".to_vec());
        assert!(!c.touch(key(1), 1));
        assert_eq!(c.get(key(1)), Some(&b"old"[..]));
        c.put(key(1), 1, b"new".to_vec());
        assert!(c.touch(key(1), 1));
        assert_eq!(c.get(key(1)), Some(&b"new"[..]));
    }
}
