//! The pool that holds the statements' texts: fixed blocks, chained per text, with a free list.
//!
//! [`TextPool::take`] and [`TextPool::give_back`] change the free list: their caller holds the pool's lock (the glue's
//! one LWLock for texts), for as long as it takes to follow a text's chain or less; bytes are copied without it. [`TextPool::read`] takes no lock at all: every byte is an atomic, so a text that is freed
//! and overwritten while it is being copied yields garbage, never undefined behaviour, and the caller finds out by
//! checking that the slot still names the same text afterwards.

use crate::pg::spin::prefetch;
use crate::primitives::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const WORDS: usize = 16;
/// Bytes of text in a block.
pub const BLOCK: usize = WORDS * 8;
/// A text gets at most this fraction of the pool, so that one giant cannot push all others out.
const SHARE: usize = 8;
const NONE: u32 = u32::MAX;

/// One block of text.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Block([AtomicU64; WORDS]);

impl Block {
    fn write(&self, text: &[u8]) {
        let (whole, rest) = text.as_chunks();
        self.0.iter().zip(whole).for_each(|(word, bytes)| word.store(u64::from_ne_bytes(*bytes), Relaxed));
        if let Some(word) = self.0.get(whole.len()).filter(|_| !rest.is_empty()) {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_ne_bytes(bytes), Relaxed);
        }
    }
}

/// The free list's state.
#[derive(Default)]
#[repr(C)]
pub struct PoolState {
    free_head: AtomicU32,
    free_blocks: AtomicU32,
}

/// Where a text lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct TextRef {
    head: u32,
    /// Bytes.
    pub len: u32,
    /// Whether the end was cut off for want of room.
    pub truncated: bool,
}

impl TextRef {
    pub const EMPTY: TextRef = TextRef::without_text(false);

    pub const fn without_text(truncated: bool) -> TextRef {
        TextRef { head: NONE, len: 0, truncated }
    }

    /// The text's first bytes, at most so many.
    pub fn first(self, bytes: usize) -> TextRef {
        TextRef { len: (self.len as usize).min(bytes) as u32, ..self }
    }
}

impl Default for TextRef {
    fn default() -> Self {
        TextRef::EMPTY
    }
}

/// The pool over its three parts in shared memory; as many links as blocks.
#[derive(Clone, Copy)]
pub struct TextPool<'a> {
    pub state: &'a PoolState,
    pub links: &'a [AtomicU32],
    pub blocks: &'a [Block],
}

impl TextPool<'_> {
    /// Puts all blocks on the free list. Once, before anyone else looks.
    pub fn init(&self) {
        let n = self.blocks.len() as u32;
        for (i, link) in self.links.iter().enumerate() {
            let next = i as u32 + 1;
            link.store(if next < n { next } else { NONE }, Relaxed);
        }
        self.state.free_head.store(if n > 0 { 0 } else { NONE }, Relaxed);
        self.state.free_blocks.store(n, Relaxed);
    }

    /// Bytes in use, whole blocks.
    pub fn used_bytes(&self) -> u64 {
        (self.blocks.len() as u64).saturating_sub(u64::from(self.state.free_blocks.load(Relaxed)))
            * BLOCK as u64
    }

    pub fn total_bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK) as u64
    }

    /// Takes blocks for `text`, or for as much of its beginning as there is room for; `clip(text, limit)` says how many
    /// bytes up to `limit` end on a character boundary. The caller holds the pool's lock, and then [`Self::fill`]s.
    pub fn take(&self, text: &[u8], clip: impl Fn(&[u8], usize) -> usize) -> TextRef {
        let room = self.state.free_blocks.load(Relaxed) as usize;
        let most = room.min((self.blocks.len() / SHARE).max(1)) * BLOCK;
        let truncated = text.len() > most;
        let len = if truncated { clip(text, most).min(most) } else { text.len() };
        let head = self.state.free_head.load(Relaxed);
        let (mut next, mut taken) = (head, 0);
        for _ in 0..len.div_ceil(BLOCK) {
            let Some((_, link)) = self.block(next) else { break };
            next = link.load(Relaxed);
            taken += 1;
        }
        if taken == 0 {
            return TextRef { truncated, ..TextRef::EMPTY };
        }
        // the last block's link still names the rest of the free list; a text's length says where it ends
        self.state.free_head.store(next, Relaxed);
        self.state.free_blocks.fetch_sub(taken, Relaxed);
        TextRef { head, len: len as u32, truncated }
    }

    /// The blocks of a text that is no longer any slot's, for one that takes as many; then to be [`Self::fill`]ed. Without
    /// any lock.
    pub fn reuse(&self, gone: TextRef, text: &[u8]) -> Option<TextRef> {
        let fits = (gone.len as usize).div_ceil(BLOCK) == text.len().div_ceil(BLOCK);
        fits.then_some(TextRef { head: gone.head, len: text.len() as u32, truncated: false })
    }

    /// Writes the text, or its beginning, into blocks that were taken for it and that no one reads yet. Without any lock.
    pub fn fill(&self, taken: TextRef, text: &[u8]) {
        let mut next = taken.head;
        let mut rest = &text[..text.len().min(taken.len as usize)];
        while let Some((block, link)) = self.block(next) {
            let part;
            (part, rest) = rest.split_at(rest.len().min(BLOCK));
            block.write(part);
            if rest.is_empty() {
                break;
            }
            next = link.load(Relaxed);
        }
    }

    /// Has the processor fetch the beginning of a text, or of its place.
    pub fn prefetch(&self, text: TextRef) {
        if let Some(block) = self.blocks.get(text.head as usize) {
            prefetch(block, 0..BLOCK.min(text.len as usize));
        }
    }

    /// The last block of a text that is no longer any slot's, for [`Self::give_back`]. Without any lock.
    pub fn last(&self, text: TextRef) -> Option<u32> {
        let blocks = (text.len as usize).div_ceil(BLOCK);
        let mut last = text.head;
        for _ in 1..blocks {
            last = self.block(last)?.1.load(Relaxed);
        }
        (blocks > 0).then_some(last)
    }

    /// Gives a text's blocks back. The caller holds the pool's lock.
    pub fn give_back(&self, text: TextRef, last: u32) {
        let blocks = (text.len as usize).div_ceil(BLOCK);
        if let Some((_, link)) = self.block(last) {
            link.store(self.state.free_head.load(Relaxed), Relaxed);
            self.state.free_head.store(text.head, Relaxed);
            self.state.free_blocks.fetch_add(blocks as u32, Relaxed);
        }
    }

    /// Appends the text's bytes to `out`, block by block: garbage when the text was freed meanwhile.
    pub fn read(&self, text: TextRef, mut out: impl FnMut(&[u8])) {
        let mut left = text.len as usize;
        let mut next = text.head;
        while left > 0 {
            let Some((block, link)) = self.block(next) else { return };
            let mut bytes = [0u8; BLOCK];
            for (to, word) in bytes.chunks_exact_mut(8).zip(&block.0) {
                to.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
            let n = left.min(BLOCK);
            out(&bytes[..n]);
            left -= n;
            next = link.load(Relaxed);
        }
    }

    fn block(&self, n: u32) -> Option<(&Block, &AtomicU32)> {
        Some((self.blocks.get(n as usize)?, self.links.get(n as usize)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TextPool<'_> {
        fn store(&self, text: &[u8], clip: impl Fn(&[u8], usize) -> usize) -> TextRef {
            let taken = self.take(text, clip);
            self.fill(taken, text);
            taken
        }

        fn free(&self, text: TextRef) {
            if let Some(last) = self.last(text) {
                self.give_back(text, last);
            }
        }
    }
    use proptest::prelude::*;

    struct Owned {
        state: PoolState,
        links: Vec<AtomicU32>,
        blocks: Vec<Block>,
    }

    impl Owned {
        fn new(blocks: usize) -> Self {
            let o = Owned {
                state: PoolState::default(),
                links: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
                blocks: (0..blocks).map(|_| Block::default()).collect(),
            };
            o.pool().init();
            o
        }

        fn pool(&self) -> TextPool<'_> {
            TextPool { state: &self.state, links: &self.links, blocks: &self.blocks }
        }
    }

    fn text(pool: &TextPool, r: TextRef) -> Vec<u8> {
        let mut out = Vec::new();
        pool.read(r, |b| out.extend_from_slice(b));
        out
    }

    fn utf8(text: &[u8], limit: usize) -> usize {
        std::str::from_utf8(text).unwrap().floor_char_boundary(limit)
    }

    #[test]
    fn texts_of_all_lengths_come_back() {
        let o = Owned::new(100);
        for len in [0, 1, 7, 8, 127, 128, 129, 1000] {
            let t: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let r = o.pool().store(&t, |_, n| n);
            assert_eq!((text(&o.pool(), r), r.truncated), (t, false));
        }
    }

    #[test]
    fn a_text_longer_than_its_share_is_cut_on_a_character_boundary_and_marked() {
        let o = Owned::new(8);
        let t = "aé".repeat(500);
        let r = o.pool().store(t.as_bytes(), utf8);
        // one block of 128 bytes; byte 128 is in the middle of a character
        assert_eq!((r.truncated, text(&o.pool(), r)), (true, t.as_bytes()[..127].to_vec()));
    }

    #[test]
    fn a_full_pool_stores_empty_marked_texts_and_recovers() {
        let o = Owned::new(8);
        let held: Vec<TextRef> = (0..8).map(|_| o.pool().store(&[b'x'; 128], |_, n| n)).collect();
        assert_eq!(o.pool().used_bytes(), o.pool().total_bytes());
        assert_eq!(o.pool().store(b"y", |_, n| n), TextRef { truncated: true, ..TextRef::EMPTY });
        held.iter().for_each(|r| o.pool().free(*r));
        assert_eq!(o.pool().used_bytes(), 0);
        let r = o.pool().store(b"y", |_, n| n);
        assert_eq!(text(&o.pool(), r), b"y");
    }

    #[test]
    fn freeing_an_empty_text_changes_nothing() {
        let o = Owned::new(8);
        o.pool().free(TextRef::EMPTY);
        assert_eq!(o.pool().used_bytes(), 0);
    }

    proptest! {
        #[test]
        fn no_block_is_lost_or_given_twice(steps in prop::collection::vec((0..3, 0usize..700), 1..200)) {
            let o = Owned::new(64);
            let mut live: Vec<(TextRef, Vec<u8>)> = Vec::new();
            for (n, (step, size)) in steps.into_iter().enumerate() {
                if step == 0 || live.is_empty() {
                    let t = vec![n as u8; size];
                    let r = o.pool().store(&t, |_, n| n);
                    live.push((r, t[..r.len as usize].to_vec()));
                } else {
                    let (gone, _) = live.swap_remove(size % live.len());
                    let t = vec![n as u8; size];
                    match o.pool().reuse(gone, &t).filter(|_| step == 1) {
                        Some(r) => {
                            o.pool().fill(r, &t);
                            live.push((r, t));
                        }
                        None => o.pool().free(gone),
                    }
                }
                for (r, t) in &live {
                    prop_assert_eq!(&text(&o.pool(), *r), t);
                }
                let used: usize = live.iter().map(|(_, t)| t.len().div_ceil(BLOCK)).sum();
                prop_assert_eq!(o.pool().used_bytes(), (used * BLOCK) as u64);
            }
        }
    }
}
