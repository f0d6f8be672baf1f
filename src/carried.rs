//! Texts carried in the backend from a statement's analysis to its execution.
//!
//! The places of a statement's constants are known only while it is analysed; its entry is made when it is first
//! executed, maybe much later and more than once (after a reset or an eviction). So the backend keeps the normalised
//! text by query identifier: a small set-associative cache, least recently used first out, bounded in number and
//! bytes. What was pushed out is made up for by [`crate::normalize::literals`].
//!
//! The texts lie in a ring of bytes, so that nothing is allocated for one; a text that was written over is gone. Memory is
//! asked for in ways that can fail without harm: a text that cannot be kept is not kept.

const SETS: usize = 256;
const WAYS: usize = 4;
/// A longer text is not carried.
pub const MAX_TEXT: usize = 64 * 1024;
/// Bytes of all texts together, per backend; at first much less.
pub const MAX_BYTES: usize = 1024 * 1024;
const FIRST_BYTES: usize = 32 * 1024;

#[derive(Clone, Copy)]
struct Entry {
    name: u64,
    /// The time the text is from, as the caller counts it.
    era: u32,
    len: u32,
    /// Where the text begins, counted in bytes that were ever written.
    at: u64,
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
    ring: Vec<u8>,
    /// Bytes that were ever written, or passed over for want of room at the ring's end.
    written: u64,
}

impl Default for Carried {
    fn default() -> Self {
        Self::new()
    }
}

impl Carried {
    pub const fn new() -> Self {
        Carried { entries: Vec::new(), ring: Vec::new(), written: 0 }
    }

    fn set(name: u64) -> usize {
        (name as usize % SETS) * WAYS
    }

    #[inline(always)]
    fn is_there(written: u64, ring: usize, entry: &Entry) -> bool {
        written - entry.at <= ring as u64
    }

    #[inline(never)]
    fn find(&mut self, name: u64) -> Option<Entry> {
        let set = self.entries.get_mut(Self::set(name)..)?.get_mut(..WAYS)?;
        let n = set.iter().position(|e| e.is_some_and(|e| e.name == name))?;
        if n > 0 {
            set[..=n].rotate_right(1);
        }
        set[0].filter(|e| Self::is_there(self.written, self.ring.len(), e))
    }

    /// Whether a text of this era is known for the statement; if so it is now the most recently used of its set.
    #[inline(always)]
    pub fn touch(&mut self, name: u64, era: u32) -> bool {
        match self.entries.get(Self::set(name)) {
            Some(Some(first)) if first.name == name => {
                first.era == era && Self::is_there(self.written, self.ring.len(), first)
            }
            _ => self.touch_further(name, era),
        }
    }

    #[inline(never)]
    fn touch_further(&mut self, name: u64, era: u32) -> bool {
        self.find(name).is_some_and(|e| e.era == era)
    }

    /// The statement's normalised text, of whatever era.
    pub fn get(&mut self, name: u64) -> Option<&[u8]> {
        let entry = self.find(name)?;
        let start = (entry.at % self.ring.len() as u64) as usize;
        self.ring.get(start..start + entry.len as usize)
    }

    /// Remembers the statement's normalised text.
    pub fn put(&mut self, name: u64, era: u32, text: &[u8]) {
        if text.len() > MAX_TEXT || self.make_room(text.len()).is_none() {
            return;
        }
        let (start, len) = ((self.written % self.ring.len() as u64) as usize, text.len());
        self.ring[start..start + len].copy_from_slice(text);
        let entry = Entry { name, era, len: len as u32, at: self.written };
        self.written += len as u64;
        let set = &mut self.entries[Self::set(name)..][..WAYS];
        let known = set.iter().position(|e| e.is_some_and(|e| e.name == name));
        set[..=known.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = Some(entry);
    }

    /// Has `written` be where that many bytes fit in one piece.
    fn make_room(&mut self, len: usize) -> Option<()> {
        if self.entries.is_empty() {
            self.entries.try_reserve_exact(SETS * WAYS).ok()?;
            self.entries.resize(SETS * WAYS, None);
        }
        // it grows while nothing was written over yet, so that every text stays where it is
        while self.ring.is_empty()
            || self.written as usize + len > self.ring.len() && self.ring.len() < MAX_BYTES
        {
            let size = (self.ring.len() * 4).clamp(FIRST_BYTES, MAX_BYTES);
            self.ring.try_reserve_exact(size - self.ring.len()).ok()?;
            self.ring.resize(size, 0);
        }
        let left = self.ring.len() - (self.written % self.ring.len() as u64) as usize;
        if left < len {
            self.written += left as u64;
        }
        Some(())
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
    fn an_empty_text_is_a_text() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"");
        assert_eq!(c.get(key(1)), Some(&b""[..]));
    }

    #[test]
    fn a_text_is_found_until_four_others_of_its_set_came() {
        let (mut c, keys) = (Carried::new(), of_one_set(5));
        assert!(!c.touch(keys[0], 0));
        c.put(keys[0], 0, b"SELECT $1");
        assert!(c.touch(keys[0], 0));
        assert_eq!(c.get(keys[0]), Some(&b"SELECT $1"[..]));
        keys[1..].iter().for_each(|k| c.put(*k, 0, b""));
        assert_eq!(c.get(keys[0]), None);
    }

    #[test]
    fn using_a_text_keeps_it() {
        let (mut c, keys) = (Carried::new(), of_one_set(50));
        c.put(keys[0], 0, b"kept");
        for k in &keys[1..] {
            c.put(*k, 0, b"other");
            assert!(c.touch(keys[0], 0));
        }
    }

    #[test]
    fn each_level_and_each_user_has_a_text_of_its_own() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"SELECT /* mine */ 1");
        for other in [name(1, 11, true), name(1, 10, false)] {
            assert_eq!(c.get(other), None);
        }
    }

    #[test]
    fn bytes_stay_bounded_and_long_texts_are_not_kept() {
        let mut c = Carried::new();
        for n in 0..1000u64 {
            c.put(key(n), 0, &[n as u8; 4096 + 7]);
            assert!(c.ring.len() <= MAX_BYTES);
            // the last hundred are there, whole
            for k in n.saturating_sub(100)..=n {
                assert!(c.get(key(k)).is_none_or(|text| text == [k as u8; 4096 + 7]), "{k} at {n}");
            }
            assert_eq!(c.get(key(n)), Some(&[n as u8; 4096 + 7][..]));
        }
        assert!(!c.touch(key(0), 0));
        c.put(key(5000), 0, &[b'x'; MAX_TEXT + 1]);
        assert!(!c.touch(key(5000), 0));
        c.put(key(5001), 0, &[b'y'; MAX_TEXT]);
        assert_eq!(c.get(key(5001)), Some(&[b'y'; MAX_TEXT][..]));
    }

    #[test]
    fn a_text_that_was_written_over_is_gone() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"old");
        assert!(c.touch(key(1), 0));
        (0..MAX_BYTES / MAX_TEXT).for_each(|_| c.put(key(2), 0, &[b'x'; MAX_TEXT]));
        assert!(!c.touch(key(1), 0));
        assert_eq!(c.get(key(1)), None);
        c.put(key(1), 0, b"new");
        assert_eq!(c.get(key(1)), Some(&b"new"[..]));
    }

    #[test]
    fn a_new_text_for_the_same_statement_replaces_the_old() {
        let mut c = Carried::new();
        c.put(key(1), 0, &[b'a'; 10]);
        c.put(key(1), 0, &[b'b'; 20]);
        assert_eq!(c.get(key(1)), Some(&[b'b'; 20][..]));
    }

    #[test]
    fn a_text_of_another_era_is_to_be_replaced_but_better_than_none() {
        let mut c = Carried::new();
        c.put(key(1), 0, b"old");
        assert!(!c.touch(key(1), 1));
        assert_eq!(c.get(key(1)), Some(&b"old"[..]));
        c.put(key(1), 1, b"new");
        assert!(c.touch(key(1), 1));
        assert_eq!(c.get(key(1)), Some(&b"new"[..]));
    }
}
