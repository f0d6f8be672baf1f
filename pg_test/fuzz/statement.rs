//! Statements of which it is known where their constants are: each form of constant, with something secret in it, among
//! what may stand around constants. The normalised text must be the one that follows, to the byte.

use super::{Input, has_secret};
use crate::normalize::{self, Extent, Place};

/// A statement, and what is to become of it.
pub struct Statement {
    pub text: Vec<u8>,
    pub places: Vec<Place>,
    pub expected: Vec<u8>,
    /// Whether backslashes are ordinary in plain strings.
    plain: bool,
    pub symbols: u32,
}

impl Statement {
    /// Parameters up to this number stand in it.
    pub const HIGHEST: u32 = 3;

    pub fn new(plain: bool) -> Self {
        Statement {
            text: Vec::new(),
            places: Vec::new(),
            expected: Vec::new(),
            plain,
            symbols: Self::HIGHEST,
        }
    }

    pub fn plain(&self) -> bool {
        self.plain
    }

    /// Adds what stays as it is.
    pub fn push(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
        self.expected.extend_from_slice(piece);
    }

    pub fn symbol(&mut self) {
        self.symbols += 1;
        self.expected.extend_from_slice(format!("${}", self.symbols).as_bytes());
    }

    pub fn constant(&mut self, input: &mut Input) {
        let (before, constant) = constant(input, self.plain);
        self.push(before);
        self.places.push(Place { at: self.text.len(), extent: Extent::Token });
        self.text.extend_from_slice(&constant);
        self.symbol();
    }

    /// Names, key words, operators and parameters, with white space around.
    pub fn filler(&mut self, input: &mut Input) {
        const FILLERS: &[&[u8]] = &[
            b"a",
            b"SELECT",
            b",",
            b"+",
            b"||",
            b"/",
            b"*",
            b"(",
            b")",
            b"=",
            b"<>",
            b"@-",
            b"~",
            b"::int",
            b"\"it's\"",
            b"\"a\"\"b\"",
            b"U&\"d!0061'\"",
            b"e",
            b"x",
            b"U&",
            b"$1",
            b"$3",
            b"t.c",
            b"\xc3\xa9t\xc3\xa9",
            b"\xa4\xa2\xff",
            b"a$b",
            b"[",
            b"]",
            b"..",
            b"->>",
            b"?|",
            b"in_",
            b"IN",
            b"<=",
            b"%",
            b"a1",
            b":=",
        ];
        self.space(input);
        self.push(input.one_of(FILLERS));
        self.space(input);
    }

    /// White space, or comments that look like something else.
    fn space(&mut self, input: &mut Input) {
        const SPACES: &[&[u8]] = &[
            b" ",
            b"\n",
            b"\t \r\n",
            b" /* it's 5 */ ",
            b" -- it's\n",
            b" /* /* $$ */ */ ",
            b"\x0b",
            b" --\r",
            b" /*'*/ ",
            b" -- \\\n",
            b" /*-- */ ",
        ];
        self.push(input.one_of(SPACES));
    }
}

/// One constant, behind what belongs to it but stays.
fn constant(input: &mut Input, plain: bool) -> (&'static [u8], Vec<u8>) {
    const NUMBERS: &[&[u8]] = &[
        b"0",
        b"12345",
        b"1.5",
        b".5",
        b"1.",
        b"1e5",
        b"2.5E-3",
        b"1_000",
        b"0x1F",
        b"0b01",
        b"0o17",
        b"99999999999999999999",
        b"-1",
        b"- 2",
        b"-/* 'c */3",
        b"- -- '\n4.5e6",
        b"TRUE",
        b"null",
        b"-.5",
        b"1.e3",
    ];
    match input.below(9) {
        0 | 1 => (b"", input.one_of(NUMBERS).to_vec()),
        2 | 3 => (b"", string(input, b"'", !plain)),
        4 => (b"", string(input, b"e'", true)),
        5 if plain => (b"", string(input, b"U&'", false)),
        5 => (b"", string(input, b"E'", true)),
        6 => (b"N", string(input, b"'", !plain)),
        7 => (b"", string(input, b"B'", false)),
        _ => (b"", dollars(input)),
    }
}

/// A string that opens so, maybe continued on later lines.
fn string(input: &mut Input, open: &[u8], escapes: bool) -> Vec<u8> {
    const PARTS: &[&[u8]] = &[
        b"''",
        b"s3cret",
        b"--",
        b"/*",
        b"*/",
        b"\"",
        b"$$",
        b"$q$",
        b"\n",
        b"5",
        b";",
        b"\xc3\xa9",
        b"\xa4\xff",
        b" ",
        b"(",
        b"]",
        b"E",
        b"-- ''s3cret",
    ];
    const ESCAPED: &[&[u8]] = &[b"\\\\", b"\\'", b"\\n", b"\\\xc3\xa9", b"\\\\''", b"\\'s3cret", b"\\x27"];
    const PLAIN: &[&[u8]] = &[b"\\", b"\\\\", b"\\''", b"\\s3cret", b"\\n"];
    const CONTINUED: &[&[u8]] = &[b"'\n'", b"' \r\n\t'", b"' -- it''s\n'", b"'\n-- '\n  -- '\n'"];
    let mut string = open.to_vec();
    for _ in 0..input.below(6) {
        let choices = match input.below(4) {
            0 if escapes => ESCAPED,
            0 if open != b"U&'" => PLAIN,
            1 => CONTINUED,
            _ => PARTS,
        };
        string.extend_from_slice(input.one_of(choices));
    }
    string.extend_from_slice(b"s3cret'");
    string
}

fn dollars(input: &mut Input) -> Vec<u8> {
    const TAGS: &[&[u8]] = &[b"$$", b"$q$", b"$_1$", b"$\xc3\xa9$"];
    const PARTS: &[&[u8]] =
        &[b"'", b"s3cret", b"$", b"$Q$", b"\\", b"--", b"/*", b"\n", b"\xc3", b"$1", b"\"", b"E'"];
    let tag = input.one_of(TAGS);
    let mut string = [tag, b" "].concat();
    for _ in 0..input.below(6) {
        string.extend_from_slice(input.one_of(PARTS));
        string.push(b' ');
    }
    [&string, &b"s3cret "[..], tag].concat()
}

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    let mut statement = Statement::new(input.flag());
    statement.push(b"SELECT");
    while !input.is_empty() {
        statement.filler(&mut input);
        statement.constant(&mut input);
    }
    statement.filler(&mut input);
    statement.is_normalised();
}

impl Statement {
    pub fn is_normalised(&self) {
        let shown = |text: &[u8]| text.escape_ascii().to_string();
        let literals = normalize::literals(&self.text).unwrap();
        assert!(!has_secret(&literals), "{}\n  {}", shown(&self.text), shown(&literals));
        let again = normalize::literals(&literals).unwrap();
        assert!(again == literals, "{}\n  {}", shown(&literals), shown(&again));

        let mut normalised = Vec::new();
        normalize::at_locations(&self.text, &self.places, Self::HIGHEST, &mut normalised)
            .expect("it is a statement");
        let cut = self.may_be_read_in_two_ways() && normalised == literals;
        assert!(cut || normalised == self.expected, "{}\n  {}", shown(&self.text), shown(&normalised));
    }

    /// Whether there is a backslash before a quote, which may end a string or not.
    pub fn may_be_read_in_two_ways(&self) -> bool {
        self.text.windows(2).any(|w| w == b"\\'")
    }
}
