//! Any bytes, which may be no SQL at all, through everything that reads a statement's text.

use super::Input;
use crate::normalize::{self, Extent, Fate, Kind, Lexer, Place, Value};
use crate::secrets;

/// What a parameter symbol and the rest of a list take at most.
const SYMBOL: usize = "$4294967295 /*, ... */".len();

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    let plain = input.flag();
    let highest = input.word() as u32 >> input.below(32);
    let count = input.below(8);
    let picked: Vec<(usize, usize, usize)> =
        (0..count).map(|_| (input.below(256), input.below(3), input.below(256))).collect();
    let text = input.0;
    tokens_cover_it(text, plain);
    ranges_are_within(text, picked.first().map_or((0, 0), |p| (p.0 as i32 - 9, p.2 as i32 - 9)));
    at_places(text, &picked, highest);
    without_places(text, picked.first().map_or(0, |p| p.0));
}

fn tokens_cover_it(text: &[u8], plain: bool) {
    let mut end = 0;
    for token in Lexer::new(text, plain) {
        assert!(token.start == end && token.end > end);
        end = token.end;
    }
    assert_eq!(end, text.len());
}

fn ranges_are_within(text: &[u8], (location, len): (i32, i32)) {
    let (start, length) = normalize::statement_range(text, location, len);
    let taken = &text[start..start + length];
    assert_eq!(taken, trimmed(taken));
    assert!(location < 0 || len <= 0 || length <= len as usize);
}

fn trimmed(text: &[u8]) -> &[u8] {
    let space = |b: &u8| b" \t\n\r\x0b\x0c".contains(b);
    let start = text.iter().position(|b| !space(b)).unwrap_or(text.len());
    let end = text.iter().rposition(|b| !space(b)).map_or(start, |last| last + 1);
    &text[start..end]
}

fn at_places(text: &[u8], picked: &[(usize, usize, usize)], highest: u32) {
    let mut places: Vec<Place> = picked
        .iter()
        .map(|(at, extent, len)| Place {
            at: *at,
            extent: [Extent::Token, Extent::List(*len), Extent::Brackets][*extent],
        })
        .collect();
    places.sort_unstable();
    let run = |out: &mut Vec<u8>| normalize::at_locations(text, &places, highest, out);
    let (mut fresh, mut used) = (Vec::new(), b"what was here before".to_vec());
    let (done, again) = (run(&mut fresh), run(&mut used));
    // brackets that do not close are the only thing that there may be no text for
    let brackets = places.iter().any(|p| p.extent == Extent::Brackets);
    assert!(done == again && (done.is_some() || brackets));
    if done.is_some() {
        assert_eq!(fresh, used);
        assert!(fresh.len() <= text.len() + text.len().max(places.len()) * SYMBOL);
    }
    if places.iter().all(|p| is_boundary(text, p.at) && is_boundary(text, list_end(p, text)))
        && done.is_some()
        && std::str::from_utf8(text).is_ok()
    {
        assert!(std::str::from_utf8(&fresh).is_ok(), "no character is cut");
    }
}

fn list_end(place: &Place, text: &[u8]) -> usize {
    match place.extent {
        Extent::List(len) => place.at.saturating_add(len).min(text.len()),
        _ => place.at,
    }
}

fn is_boundary(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|b| b & 0xc0 != 0x80)
}

fn without_places(text: &[u8], at: usize) {
    let is_utf8 = std::str::from_utf8(text).is_ok();
    let all = [
        normalize::literals(text).unwrap(),
        normalize::literals_but_numbers_given_to("f", text).unwrap(),
        normalize::without_value(text, Value::At(at)).unwrap(),
        normalize::without_value(text, Value::LastName).unwrap(),
        normalize::rewritten(text, |t| if t.kind == Kind::Blank { Fate::Space } else { Fate::Stays })
            .unwrap(),
        secrets::masked(text).unwrap().into_owned(),
    ];
    for (n, normalised) in all.iter().enumerate() {
        assert!(normalised.len() <= text.len() * SYMBOL);
        let cut = n == 2 && !is_boundary(text, at);
        assert!(!is_utf8 || cut || std::str::from_utf8(normalised).is_ok(), "no character is cut");
    }
    let word = normalize::word_before(text, at);
    assert!(word.is_empty() || text.windows(word.len()).any(|w| w == word));
    normalize::may_have_list(text);
}
