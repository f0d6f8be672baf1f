//! What becomes of texts after they were normalised: carried by the backend, then kept in a pool that is too small for
//! them. Whatever comes and goes, a text is the one that was given, or its beginning where it is marked as cut, and never
//! a part of a character.

use super::Input;
use crate::carried::{Carried, MAX_TEXT};
use crate::primitives::atomic::AtomicU32;
use crate::textpool::{BLOCK, Block, PoolState, TextPool, TextRef};

const BLOCKS: usize = 24;

/// How long a character is that begins so.
type Length = fn(u8) -> usize;

/// Of the encodings that a database may have: those of one byte a character, UTF-8, EUC-JP and EUC-TW, and MULE.
const ENCODINGS: &[Length] = &[
    |_| 1,
    |first| match first {
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => 1,
    },
    |first| match first {
        0x8f => 3,
        0x80.. => 2,
        _ => 1,
    },
    |first| match first {
        0x8e => 4,
        0x8f => 3,
        0x80.. => 2,
        _ => 1,
    },
    |first| match first {
        0x81..0x90 => 2,
        0x90..0x9a => 3,
        0x9a..0x9c => 3,
        0x9c..0x9e => 4,
        _ => 1,
    },
];

/// As many whole characters as the limit allows, as the server counts them: at the end of a text that breaks off, maybe more
/// than there is.
fn clip(text: &[u8], limit: usize, length: Length) -> usize {
    let mut at = 0;
    while at < text.len() && at + length(text[at]) <= limit {
        at += length(text[at]);
    }
    at
}

struct Owned {
    state: PoolState,
    links: Vec<AtomicU32>,
    blocks: Vec<Block>,
}

impl Owned {
    fn pool(&self) -> TextPool<'_> {
        TextPool { state: &self.state, links: &self.links, blocks: &self.blocks }
    }
}

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    let length = input.one_of(ENCODINGS);
    let owned = Owned {
        state: PoolState::default(),
        links: (0..BLOCKS).map(|_| AtomicU32::new(0)).collect(),
        blocks: (0..BLOCKS).map(|_| Block::default()).collect(),
    };
    owned.pool().init();
    let mut carried = Carried::new();
    // by name; the last that came
    let mut given: Vec<Option<(u32, Vec<u8>)>> = vec![None; 8];
    let mut kept = Vec::new();
    while !input.is_empty() {
        let name = input.below(given.len());
        match input.below(4) {
            0 => {
                let text = text(&mut input);
                let era = u32::from(input.flag());
                carried.put(name as u64 * 256, era, &text);
                given[name] = Some((era, text));
            }
            1 => is_carried(&mut carried, name, &given),
            2 => {
                let Some(text) = carried.get(name as u64 * 256) else { continue };
                kept.push(stored(&owned.pool(), text, length));
            }
            _ if kept.is_empty() => {}
            _ => {
                let (text, _) = kept.swap_remove(name % kept.len());
                if let Some(last) = owned.pool().last(text) {
                    owned.pool().give_back(text, last);
                }
            }
        }
        are_kept(&owned.pool(), &kept);
    }
}

/// Bytes of the input, again and again; as in the server, none of them is 0.
fn text(input: &mut Input) -> Vec<u8> {
    let times = input.one_of(&[1, 1, 2, 7, 40, 300, 4000]);
    let most = input.below(40);
    let bytes: Vec<u8> = input.bytes(most).iter().map(|b| (*b).max(1)).collect();
    bytes.repeat(times)
}

fn is_carried(carried: &mut Carried, name: usize, given: &[Option<(u32, Vec<u8>)>]) {
    let id = name as u64 * 256;
    let (known, known_in) = (carried.get(id).map(<[u8]>::to_vec), [0, 1].map(|era| carried.touch(id, era)));
    match (&given[name], known) {
        (Some((era, text)), Some(known)) => {
            // what was too long to be carried leaves what was there before
            assert!(known == *text || text.len() > MAX_TEXT);
            assert!(known_in[1 - *era as usize] != known_in[*era as usize]);
            assert!(known_in[*era as usize] || text.len() > MAX_TEXT);
        }
        (_, known) => assert!(known.is_none() && known_in == [false; 2]),
    }
}

fn stored(pool: &TextPool, text: &[u8], length: Length) -> (TextRef, Vec<u8>) {
    let taken = pool.take(text, |text, limit| clip(text, limit, length));
    pool.fill(taken, text);
    assert!(taken.len as usize <= text.len());
    assert!(taken.truncated == ((taken.len as usize) < text.len()));
    let shown = &text[..taken.len as usize];
    if taken.truncated {
        assert_eq!(clip(shown, shown.len(), length), shown.len(), "whole characters");
    }
    (taken, shown.to_vec())
}

fn are_kept(pool: &TextPool, kept: &[(TextRef, Vec<u8>)]) {
    for (text, given) in kept {
        let mut read = Vec::new();
        pool.read(*text, |part| read.extend_from_slice(part));
        assert_eq!(read, *given);
    }
    let blocks: usize = kept.iter().map(|(_, text)| text.len().div_ceil(BLOCK)).sum();
    assert_eq!(pool.used_bytes(), (blocks * BLOCK) as u64);
}
