//! Lists of constants that count as one, among other constants: as the place of IN or ARRAY names them on 15 to 17, and as
//! their own place and length do on 18.

use super::Input;
use super::statement::Statement;
use crate::normalize::{self, Extent, Place};

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    let plain = input.flag();
    let mut by_word = Statement::new(plain);
    by_word.push(b"SELECT");
    // where the lists are, by the brackets' own places
    let mut inside = Vec::new();
    while !input.is_empty() {
        by_word.filler(&mut input);
        if input.below(3) == 0 {
            by_word.constant(&mut input);
        } else {
            inside.push(list(&mut by_word, &mut input));
        }
    }
    by_word.filler(&mut input);
    assert!(inside.is_empty() || normalize::may_have_list(&by_word.text));
    by_word.is_normalised_to_lists();
    for (at, (start, len)) in &inside {
        let place = by_word.places.iter_mut().find(|p| p.at == *at).expect("the list's place");
        *place = Place { at: *start, extent: Extent::List(*len) };
    }
    by_word.is_normalised_to_lists();
}

impl Statement {
    fn is_normalised_to_lists(&self) {
        if self.places.iter().all(|p| p.extent == Extent::Token) {
            return self.is_normalised();
        }
        let mut out = Vec::new();
        let shown = |text: &[u8]| text.escape_ascii().to_string();
        let done = normalize::at_locations(&self.text, &self.places, Self::HIGHEST, &mut out);
        let cut = self.may_be_read_in_two_ways() && Some(&out) == normalize::literals(&self.text).as_ref();
        assert!(done.is_some() && (cut || out == self.expected), "{}\n  {}", shown(&self.text), shown(&out));
    }
}

/// Adds a list; the place of its key word, with begin and length of what is in the brackets.
fn list(statement: &mut Statement, input: &mut Input) -> (usize, (usize, usize)) {
    const WORDS: &[(&[u8], &[u8; 2])] = &[
        (b"IN", b"()"),
        (b"in ", b"()"),
        (b"NOT IN\n", b"()"),
        (b"ARRAY", b"[]"),
        (b"NOT /* ( */ In /* ] */ ", b"()"),
    ];
    const AROUND: &[(&[u8], &[u8])] =
        &[(b"", b""), (b"CAST(", b" AS int)"), (b"(", b")::t[]"), (b" /* ) */ ", b" -- )\n")];
    let (word, brackets) = input.one_of(WORDS);
    let at = statement.text.len();
    statement.push(word);
    statement.push(&brackets[..1]);
    let begin = statement.text.len();
    let mut elements = Statement::new(statement.plain());
    for n in 0..2 + input.below(3) {
        elements.push(if n > 0 { b"," } else { b"" });
        let (before, after) = input.one_of(AROUND);
        elements.push(before);
        elements.constant(input);
        elements.push(after);
    }
    statement.text.extend_from_slice(&elements.text);
    statement.places.push(Place { at, extent: Extent::Brackets });
    statement.symbol();
    statement.expected.extend_from_slice(b" /*, ... */");
    statement.push(&brackets[1..]);
    (at, (begin, elements.text.len()))
}
