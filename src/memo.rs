//! Identifiers of statements whose text came before.
//!
//! To compute an identifier takes a walk over the analysed statement, which is most of what recording it costs. A client
//! that sends the same text again, with nothing changed in between that its analysis depends on, sends the same
//! statement: its identifier is the one it had. What analysis depends on is the caller's to say, as the
//! [`Circumstances`]; whatever was remembered under others is forgotten. A text that is found is one whose statement was
//! carried or had its entry (see [`crate::store::carry`]) since entries were last removed: there is nothing to be done for
//! it.
//!
//! Where texts hardly ever come again (clients that write their values into them) looking is given up for a while, and
//! tried again later.
//!
//! One backend's: sets of four, each on one cache line, the least recently found first out. A new text takes the last
//! place of its set, so that those that never come again push out each other only; but every eighth the first, as else texts
//! that come in turns would (bimodal insertion, Qureshi et al. 2007). Of a text only a keyed hash is kept, which its
//! length and the number of the circumstances go into.

use crate::pg::spin::prefetch;
use foldhash::SharedSeed;
use foldhash::quality::RandomState;
use std::hash::BuildHasher;

const SETS: usize = 1024;
const WAYS: usize = 4;
/// One new text in so many takes the first place of its set.
const FIRST_EVERY: u32 = 8;
/// So many texts more that were not found than four times those that were make it give up, for so many statements.
const PATIENCE: u32 = 64;
const PAUSE: u32 = 1024;

#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    /// 0 for no entry.
    queryid: u64,
}

/// Those that may be where a hash says, the one that was found last first.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// What the analysis of a text depends on beside the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Circumstances<'a> {
    /// Changes with every change of the catalogues that the backend has heard of.
    pub catalogs: u64,
    pub userid: u32,
    pub search_path: &'a [u8],
    /// Settings that the parser looks at, in bits.
    pub settings: u32,
    /// Changes whenever entries are removed on request.
    pub resets: u32,
}

#[derive(Default)]
pub struct Memo {
    hasher: RandomState,
    sets: Vec<Set>,
    /// Number of the circumstances; 0 before the first.
    epoch: u64,
    catalogs: u64,
    userid: u32,
    search_path: Vec<u8>,
    settings: u32,
    resets: u32,
    news: u32,
    in_vain: u32,
    pause: u32,
}

/// Makes the key of the hashes, which takes memory that a hook could not do without. In the postmaster, whose backends
/// inherit it.
pub fn init() {
    SharedSeed::global_random();
}

/// A text that is looked for.
#[derive(Clone, Copy)]
pub struct Text(u64);

/// One that was not found.
#[derive(Clone, Copy)]
pub struct Sought {
    text: Text,
    /// Whether the circumstances were the same throughout its analysis, as far as is known.
    steady: bool,
}

impl Memo {
    /// Whether it is worth while to look for the next text.
    #[inline(always)]
    pub fn is_worth_while(&mut self) -> bool {
        let paused = self.pause > 0;
        if paused {
            self.pause -= 1;
        }
        !paused
    }

    /// What to [`Self::find`] the text by. Its place in memory, which is seldom at hand, is on its way then.
    #[inline]
    pub fn text(&self, text: &[u8]) -> Text {
        let hash = self.hasher.hash_one(text);
        if let Some(set) = self.sets.get(hash as usize % SETS) {
            prefetch(set, 0..size_of::<Set>());
        }
        Text(hash)
    }

    /// The identifier that the text had under these circumstances; else what to [`Self::put`] it under.
    ///
    /// The text was just analysed, all since the call before this one. If the circumstances have changed since that, they
    /// may have while it was: part of it may be from before (a function's name is looked up, then a table's lock is waited
    /// for), so what it turned out to be is not what it is now.
    #[inline]
    pub fn find(&mut self, text: Text, now: Circumstances) -> Result<u64, Sought> {
        let steady = self.circumstances() == now && self.epoch != 0;
        if !steady {
            self.forget(now);
        }
        match self.known(text) {
            Some(queryid) => {
                self.in_vain = self.in_vain.saturating_sub(4);
                Ok(queryid)
            }
            None => {
                self.in_vain += 1;
                if self.in_vain >= PATIENCE {
                    (self.in_vain, self.pause) = (0, PAUSE);
                }
                Err(Sought { text, steady })
            }
        }
    }

    #[inline(always)]
    fn known(&mut self, text: Text) -> Option<u64> {
        let hash = self.hash(text);
        let Set(set) = self.sets.get_mut(text.0 as usize % SETS)?;
        let n = set.iter().position(|e| e.hash == hash && e.queryid != 0)?;
        let queryid = set[n].queryid;
        if n > 0 {
            set[..=n].rotate_right(1);
        }
        Some(queryid)
    }

    /// Remembers the identifier that the text turned out to have.
    pub fn put(&mut self, sought: Sought, queryid: u64) {
        if !sought.steady {
            return;
        }
        if self.sets.is_empty() {
            if self.sets.try_reserve_exact(SETS).is_err() {
                return;
            }
            self.sets.resize(SETS, Set::default());
        }
        let hash = self.hash(sought.text);
        let Set(set) = &mut self.sets[sought.text.0 as usize % SETS];
        set[WAYS - 1] = Entry { hash, queryid };
        self.news = self.news.wrapping_add(1);
        if self.news.is_multiple_of(FIRST_EVERY) {
            set.rotate_right(1);
        }
    }

    /// What was remembered under other circumstances has other hashes.
    #[inline(always)]
    fn hash(&self, text: Text) -> u64 {
        text.0 ^ self.epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            catalogs: self.catalogs,
            userid: self.userid,
            search_path: &self.search_path,
            settings: self.settings,
            resets: self.resets,
        }
    }

    #[cold]
    fn forget(&mut self, now: Circumstances) {
        self.epoch += 1;
        (self.catalogs, self.userid, self.settings) = (now.catalogs, now.userid, now.settings);
        self.resets = now.resets;
        self.search_path.clear();
        if self.search_path.try_reserve(now.search_path.len()).is_ok() {
            self.search_path.extend_from_slice(now.search_path);
        } // else it is another every time, and nothing is found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Circumstances =
        Circumstances { catalogs: 7, userid: 10, search_path: b"\"$user\", public", settings: 1, resets: 0 };

    impl Memo {
        fn find_text(&mut self, text: &[u8], now: Circumstances) -> Result<u64, Sought> {
            self.find(self.text(text), now)
        }
    }

    fn put(memo: &mut Memo, text: &[u8], now: Circumstances, queryid: u64) {
        let _ = memo.find_text(b"before", now);
        let sought = memo.find_text(text, now).err().unwrap();
        memo.put(sought, queryid);
    }

    #[test]
    fn a_text_that_came_before_has_the_identifier_it_had() {
        let mut memo = Memo::default();
        put(&mut memo, b"SELECT 1", NOW, 5);
        put(&mut memo, b"SELECT 2", NOW, 6);
        assert_eq!(memo.find_text(b"SELECT 1", NOW).ok(), Some(5));
        assert_eq!(memo.find_text(b"SELECT 2", NOW).ok(), Some(6));
        assert!(memo.find_text(b"SELECT 3", NOW).is_err());
        assert!(memo.find_text(b"SELECT 1 ", NOW).is_err());
    }

    #[test]
    fn whatever_changes_in_the_circumstances_everything_is_forgotten() {
        let others = [
            Circumstances { catalogs: 8, ..NOW },
            Circumstances { userid: 11, ..NOW },
            Circumstances { search_path: b"public", ..NOW },
            Circumstances { settings: 0, ..NOW },
            Circumstances { resets: 1, ..NOW },
        ];
        for other in others {
            let mut memo = Memo::default();
            put(&mut memo, b"SELECT 1", NOW, 5);
            assert!(memo.find_text(b"SELECT 1", other).is_err(), "{other:?}");
            // nor does it come back with them
            assert!(memo.find_text(b"SELECT 1", NOW).is_err());
        }
    }

    #[test]
    fn what_was_analysed_while_something_changed_is_not_remembered() {
        let mut memo = Memo::default();
        let mut twice = |now| {
            let sought = memo.find_text(b"SELECT 1", now).err().unwrap();
            memo.put(sought, 5);
            memo.find_text(b"SELECT 1", now).ok()
        };
        let other = Circumstances { catalogs: 8, ..NOW };
        assert_eq!([NOW, other].map(&mut twice), [None; 2]);
        assert_eq!(twice(other), Some(5));
    }

    #[test]
    fn looking_is_given_up_for_a_while_where_no_text_comes_again() {
        let mut memo = Memo::default();
        let looks = |memo: &mut Memo, texts: u64| {
            (0..10_000u64)
                .filter(|n| {
                    let worth = memo.is_worth_while();
                    if worth && let Err(sought) = memo.find_text(&(n % texts).to_ne_bytes(), NOW) {
                        memo.put(sought, 1);
                    }
                    worth
                })
                .count()
        };
        assert!(looks(&mut memo, 10_000) < 1_000);
        assert!(looks(&mut memo, 10) > 8_900);
    }

    #[test]
    fn many_texts_are_told_apart() {
        let mut memo = Memo::default();
        let mut kept = 0;
        for n in 0..100_000u64 {
            match memo.find_text(&distinct(n % 5000), NOW) {
                Ok(queryid) => {
                    assert_eq!(queryid, n % 5000 + 1);
                    kept += 1;
                }
                Err(sought) => memo.put(sought, n % 5000 + 1),
            }
        }
        assert!(kept > 20_000, "{kept}");
    }

    fn distinct(n: u64) -> Vec<u8> {
        format!("WITH c{n} AS (SELECT 1) SELECT 2").into_bytes()
    }

    #[test]
    fn texts_that_come_again_outlive_those_that_never_do() {
        const HOT: u64 = 1000;
        let mut memo = Memo::default();
        let mut missed = 0;
        for n in 0..200_000u64 {
            // four in five of them hot
            let text = if n % 5 == 0 { HOT + n } else { (n / 5 * 4 + n % 5 - 1) % HOT };
            if let Err(sought) = memo.find_text(&distinct(text), NOW) {
                memo.put(sought, 1);
                missed += u64::from(text < HOT);
            }
        }
        assert!(missed < HOT + 160_000 / 20, "{missed}");
    }

    #[test]
    fn texts_that_come_often_now_take_the_places_of_those_that_did() {
        let mut memo = Memo::default();
        let mut look = |n| {
            let found = memo.find_text(&distinct(n), NOW);
            found.map_err(|sought| memo.put(sought, 1)).is_ok()
        };
        let mut found = |from: u64, looks| (0..looks).filter(|n| look(from + n % 3_000)).count();
        assert!(found(0, 50_000) > 25_000);
        assert!(found(10_000, 50_000) > 25_000);
        assert!(found(10_000, 3_000) > 2_000);
    }
}
