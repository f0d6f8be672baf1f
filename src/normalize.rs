//! Normalised statement texts: constants replaced by parameter symbols.
//!
//! Two ways in. [`at_locations`] takes the places where the server's own analysis found constants and is what a
//! statement normally gets; the result is the text pg_stat_statements shows. [`literals`] knows no places: it
//! replaces every literal token, for a statement whose analysis is no longer at hand (its carried text was pushed
//! out before the entry was made), so that a literal is never stored.
//!
//! Both rest on one lexer that knows the lexical structure of PostgreSQL's SQL (manual, chapter 4.1) well enough to
//! tell where a token ends. It works on bytes in any server encoding: all of them keep ASCII bytes for ASCII.

use memchr::{memchr, memchr_iter};

/// A place in a text that a parameter symbol is to take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// Byte offset.
    pub at: usize,
    pub extent: Extent,
}

/// How far a [`Place`] goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Extent {
    /// One constant, whose end the lexer finds.
    Token,
    /// A list of constants that count as one, of so many bytes.
    List(usize),
    /// Such a list, which is what stands in the brackets that open next.
    Brackets,
}

impl From<usize> for Place {
    fn from(at: usize) -> Self {
        Place { at, extent: Extent::Token }
    }
}

impl Place {
    /// Begin and end of the list, if it is one; `None` where the brackets do not close.
    fn list(&self, text: &[u8], plain_backslash: bool) -> Option<Option<(usize, usize)>> {
        match self.extent {
            Extent::Token => Some(None),
            Extent::List(len) => Some(Some((self.at, self.at.saturating_add(len).min(text.len())))),
            Extent::Brackets => {
                let mut lexer = Lexer { pos: self.at, ..Lexer::new(text, plain_backslash) };
                lexer.in_brackets().map(Some)
            }
        }
    }
}

/// Stands behind the symbol for a list, as the server has it.
const LIST_REST: &[u8] = b" /*, ... */";

/// Text of one statement out of a string that may hold several, as (offset, length): the part `location..+len` that
/// the parser names (location -1: unknown, length 0 or -1: to the end), without white space around it.
pub fn statement_range(source: &[u8], location: i32, len: i32) -> (usize, usize) {
    let start = usize::try_from(location).unwrap_or(0).min(source.len());
    let end = match usize::try_from(len) {
        Ok(n) if n > 0 && location >= 0 => start.saturating_add(n).min(source.len()),
        _ => source.len(),
    };
    let text = &source[start..end];
    let lead = text.iter().take_while(|&&b| is_space(b)).count();
    let tail = text[lead..].iter().rev().take_while(|&&b| is_space(b)).count();
    (start + lead, text.len() - lead - tail)
}

/// Puts `text` into `out`, whose memory is used again, with the constants at `places` (sorted; several may start alike,
/// then the first counts) replaced by `$n`, n counting on from `highest_param`. `None` when memory is short.
///
/// A `-` at such a place begins a negative number and is replaced with it.
pub fn at_locations(text: &[u8], places: &[Place], highest_param: u32, out: &mut Vec<u8>) -> Option<()> {
    let Some(plain) = plain_backslash(text, places) else {
        *out = literals(text)?;
        return Some(());
    };
    let mut out = Writer::new(text, highest_param, out)?;
    let mut lexer = Lexer::new(text, plain);
    for place in places {
        let at = place.at;
        if at < out.copied || at >= text.len() {
            continue; // named twice, or not a place in this statement
        }
        if let Some((start, end)) = place.list(text, plain)? {
            out.replace(start, end)?;
            out.push(LIST_REST)?;
            continue;
        }
        lexer.pos = at;
        let mut token = lexer.next()?;
        if text[at] == b'-' && token.end == at + 1 {
            token = lexer.next_significant().unwrap_or(token);
        }
        out.replace(at, token.end)?;
    }
    out.finish()
}

/// Whether backslashes are ordinary characters in the plain strings of `text`, as its constants' places tell. The setting
/// of the moment does not, as the text may have been parsed under another. Where both readings are possible, it is the one
/// in which every place begins a token, every string stands at a place, and nothing quoted and no comment is unterminated.
/// `None`: neither does, or both do, when what is a comment in one may be part of a string in the other.
fn plain_backslash(text: &[u8], places: &[Place]) -> Option<bool> {
    if !text.contains(&b'\\') || same_tokens(text).is_none() {
        return Some(true);
    }
    match [true, false].map(|plain| fits(text, places, plain)) {
        [true, false] => Some(true),
        [false, true] => Some(false),
        _ => None,
    }
}

fn fits(text: &[u8], places: &[Place], plain: bool) -> bool {
    let mut waiting = places.iter().filter(|p| p.at < text.len()).peekable();
    let mut list_end = 0;
    for token in Lexer::new(text, plain) {
        let mut place = token.start < list_end;
        while let Some(p) = waiting.next_if(|p| p.at <= token.start) {
            if p.at < token.start && p.at >= list_end {
                return false; // in the middle of the token before
            }
            place = true;
            match p.list(text, plain) {
                Some(list) => list_end = list_end.max(list.map_or(0, |(_, end)| end)),
                None => return false,
            }
        }
        let first = text[token.start];
        let string = token.kind == Kind::Literal && !first.is_ascii_digit() && first != b'.';
        if string && !place || !token.ended {
            return false;
        }
    }
    waiting.next().is_none()
}

/// Where the two readings of backslashes begin to differ, if they do: the start of a token.
fn same_tokens(text: &[u8]) -> Option<usize> {
    let mut other = Lexer::new(text, false);
    Lexer::new(text, true).find(|a| other.next().is_none_or(|b| b.end != a.end)).map(|a| a.start)
}

/// `text` with every literal token replaced by `$n`, n counting on from the highest parameter in it. What a backslash
/// means is not known here; where the two readings part, the text ends, with a last parameter.
pub fn literals(text: &[u8]) -> Option<Vec<u8>> {
    literals_but(text, |_| false)
}

/// As [`literals`], but the numbers that stand alone as arguments in calls of the function `name` stay.
pub fn literals_but_numbers_given_to(name: &str, text: &[u8]) -> Option<Vec<u8>> {
    let mut call = Call { name, depth: 0, before: b' ' };
    let mut numbers = Vec::new();
    for token in Lexer::new(text, true).filter(|t| t.kind != Kind::Blank) {
        if call.takes(token.kind, &text[token.start..token.end]) {
            numbers.try_reserve(1).ok()?;
            numbers.push(token);
        }
    }
    let followed = |t: &Token| {
        let mut rest = Lexer { pos: t.end, ..Lexer::new(text, true) };
        rest.next_significant().is_some_and(|next| matches!(text[next.start], b',' | b')'))
    };
    numbers.retain(followed);
    literals_but(text, |t| numbers.iter().any(|n| n.start == t.start))
}

/// Follows the tokens of a text into the calls of a function.
struct Call<'a> {
    name: &'a str,
    /// Of parentheses; 1 is among the function's arguments, 0 outside of any call.
    depth: u32,
    /// What the last token began with; `f` for the function's name.
    before: u8,
}

impl Call<'_> {
    /// Whether the next token is a number that follows the parenthesis or a comma of such a call.
    fn takes(&mut self, kind: Kind, token: &[u8]) -> bool {
        let first = token[0];
        let number = kind == Kind::Literal && first.is_ascii_digit();
        let taken = number && self.depth == 1 && matches!(self.before, b'(' | b',');
        match first {
            b'(' if self.depth > 0 || self.before == b'f' => self.depth += 1,
            b')' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        self.before = match first {
            b'(' | b',' => first,
            _ if token.eq_ignore_ascii_case(self.name.as_bytes()) => b'f',
            _ => b' ',
        };
        taken
    }
}

fn literals_but(text: &[u8], stays: impl Fn(&Token) -> bool) -> Option<Vec<u8>> {
    rewritten(text, |t| if t.kind == Kind::Literal && !stays(t) { Fate::Parameter } else { Fate::Stays })
}

/// What becomes of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// `$n` takes its place, n counting on from the highest parameter in the text.
    Parameter,
    /// A space does.
    Space,
}

/// `text` with each token as its fate is. From where it is not sure what a backslash means there is one parameter for all.
pub fn rewritten(text: &[u8], mut fate: impl FnMut(&Token) -> Fate) -> Option<Vec<u8>> {
    let sure = same_tokens(text).unwrap_or(text.len());
    let highest = Lexer::new(&text[..sure], true)
        .filter(|t| t.kind == Kind::Param)
        .map(|t| param_number(&text[t.start..t.end]))
        .max()
        .unwrap_or(0);
    let mut normalised = Vec::new();
    let mut out = Writer::new(text, highest, &mut normalised)?;
    for token in Lexer::new(&text[..sure], true) {
        match fate(&token) {
            Fate::Stays => {}
            Fate::Parameter => out.replace(token.start, token.end)?,
            Fate::Space => out.replace_by(b" ", token.start, token.end)?,
        }
    }
    if sure < text.len() {
        out.replace(sure, text.len())?;
    }
    out.finish()?;
    Some(normalised)
}

/// Whether a statement with this text may have a list of constants that counts as one: there is a comma, and a square
/// bracket, or a round one behind the word IN.
pub fn may_have_list(text: &[u8]) -> bool {
    let any = |byte| memchr(byte, text).is_some();
    any(b',') && (any(b'[') || memchr_iter(b'(', text).any(|at| may_follow_in(text, at)))
}

/// Whether what comes before `at` is the word IN, or a comment, which it may stand before.
fn may_follow_in(text: &[u8], at: usize) -> bool {
    let before = &text[..text[..at].iter().rposition(|b| !is_space(*b)).map_or(0, |last| last + 1)];
    let line_end = text[before.len()..at].iter().any(|b| matches!(b, b'\n' | b'\r'));
    match before {
        [rest @ .., b'i' | b'I', b'n' | b'N'] if !rest.last().is_some_and(|b| is_ident(*b)) => true,
        [.., b'*', b'/'] => true,
        _ => line_end && before.windows(2).any(|w| w == b"--"),
    }
}

/// `text` with the one constant at `at` replaced, or the name that stands last.
pub fn without_value(text: &[u8], value: Value) -> Option<Vec<u8>> {
    let at = match value {
        Value::At(at) => Some(at),
        Value::LastName => last_name(text),
    };
    let mut out = Vec::new();
    let places: &[Place] = &at.map_or([Place::from(text.len())], |at| [Place::from(at)]);
    at_locations(text, places, 0, &mut out)?;
    Some(out)
}

/// What in a utility statement is not part of its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// What begins at this byte.
    At(usize),
    /// The name that stands last.
    LastName,
}

/// Where the last name begins: behind it there may still be how it is escaped.
fn last_name(text: &[u8]) -> Option<usize> {
    let mut last = [None; 3];
    for token in Lexer::new(text, true).filter(|t| t.kind != Kind::Blank && text[t.start] != b';') {
        last = [last[1], last[2], Some(token)];
    }
    let escaped = last[1].is_some_and(|t| text[t.start..t.end].eq_ignore_ascii_case(b"uescape"));
    let name: Option<Token> = if escaped { last[0] } else { last[2] };
    name.map(|t| t.start)
}

/// The last word before `at` that is neither white space nor comment.
pub fn word_before(text: &[u8], at: usize) -> &[u8] {
    let before = Lexer::new(text, true).take_while(|t| t.start < at).filter(|t| t.kind != Kind::Blank);
    before.last().map_or(&[], |t| &text[t.start..t.end])
}

fn param_number(token: &[u8]) -> u32 {
    token[1..].iter().fold(0u32, |n, d| n.saturating_mul(10).saturating_add(u32::from(d - b'0')))
}

/// Copies a text, putting parameter symbols in place of tokens.
struct Writer<'a> {
    text: &'a [u8],
    out: &'a mut Vec<u8>,
    copied: usize,
    param: u32,
}

impl<'a> Writer<'a> {
    fn new(text: &'a [u8], highest_param: u32, out: &'a mut Vec<u8>) -> Option<Self> {
        out.clear();
        out.try_reserve(text.len() + 64).ok()?;
        Some(Writer { text, out, copied: 0, param: highest_param })
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.try_reserve(bytes.len()).ok()?;
        self.out.extend_from_slice(bytes);
        Some(())
    }

    /// Puts the next parameter symbol in the place of `start..end`.
    fn replace(&mut self, start: usize, end: usize) -> Option<()> {
        self.param = self.param.saturating_add(1);
        let mut digits = [0u8; 11];
        let mut first = digits.len();
        let mut n = self.param;
        while n > 0 {
            first -= 1;
            digits[first] = b'0' + (n % 10) as u8;
            n /= 10;
        }
        first -= 1;
        digits[first] = b'$';
        self.replace_by(&digits[first..], start, end)
    }

    fn replace_by(&mut self, bytes: &[u8], start: usize, end: usize) -> Option<()> {
        self.push(&self.text[self.copied..start])?;
        self.push(bytes)?;
        self.copied = end;
        Some(())
    }

    fn finish(mut self) -> Option<()> {
        self.push(&self.text[self.copied..])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A number, or a string of any form.
    Literal,
    /// `$n`
    Param,
    /// White space or a comment.
    Blank,
    /// Names, key words, operators and the rest.
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    /// Not so what is quoted or a comment, and reaches to the text's end for want of its own.
    pub ended: bool,
}

pub struct Lexer<'a> {
    text: &'a [u8],
    pos: usize,
    /// `standard_conforming_strings`: a backslash in a plain string is a character like any other.
    plain_backslash: bool,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn is_ident_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_ident(b: u8) -> bool {
    is_ident_start(b) || b.is_ascii_digit() || b == b'$'
}

fn is_operator(b: u8) -> bool {
    b"~!@#^&|`?+-*/%<>=".contains(&b)
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8], plain_backslash: bool) -> Self {
        Lexer { text, pos: 0, plain_backslash }
    }

    fn at(&self, i: usize) -> u8 {
        self.text.get(i).copied().unwrap_or(0)
    }

    /// Begin and end of what stands in the brackets, round or square, that open next.
    fn in_brackets(&mut self) -> Option<(usize, usize)> {
        let text = self.text;
        let start = self.find(|t| matches!(text[t.start], b'(' | b'['))?.end;
        let mut depth = 1u32;
        let end = self.find(|t| {
            match text[t.start] {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        Some((start, end.start))
    }

    fn next_significant(&mut self) -> Option<Token> {
        self.find(|t| t.kind != Kind::Blank)
    }

    /// First position from `from` whose byte does not satisfy `keep`.
    fn skip(&self, from: usize, keep: impl Fn(u8) -> bool) -> usize {
        let mut i = from;
        while i < self.text.len() && keep(self.text[i]) {
            i += 1;
        }
        i
    }

    /// Where what has no end of its own is said to end.
    fn beyond(&self) -> usize {
        self.text.len() + 1
    }

    /// What begins here, and where it ends.
    fn token(&self) -> (Kind, usize) {
        let i = self.pos;
        let (b, next) = (self.text[i], self.at(i + 1));
        match b {
            _ if is_space(b) => (Kind::Blank, self.skip(i, is_space)),
            b'-' if next == b'-' => (Kind::Blank, self.line_comment(i)),
            b'/' if next == b'*' => (Kind::Blank, self.block_comment(i)),
            b'\'' => (Kind::Literal, self.string(i, !self.plain_backslash)),
            b'e' | b'E' if next == b'\'' => (Kind::Literal, self.string(i + 1, true)),
            b'b' | b'B' | b'x' | b'X' if next == b'\'' => (Kind::Literal, self.string(i + 1, false)),
            // for the server, N'...' is the key word NCHAR and a string
            b'n' | b'N' if next == b'\'' => (Kind::Other, i + 1),
            b'u' | b'U' if next == b'&' && self.at(i + 2) == b'\'' => {
                (Kind::Literal, self.string(i + 2, false))
            }
            b'u' | b'U' if next == b'&' && self.at(i + 2) == b'"' => {
                (Kind::Other, self.quoted(i + 2, b'"', false))
            }
            b'"' => (Kind::Other, self.quoted(i, b'"', false)),
            b'$' if next.is_ascii_digit() => (Kind::Param, self.skip(i + 1, |c| c.is_ascii_digit())),
            b'$' => self.dollar(i),
            b'0'..=b'9' => (Kind::Literal, self.number(i)),
            b'.' if next == b'.' => (Kind::Other, i + 2),
            b'.' if next.is_ascii_digit() => (Kind::Literal, self.number(i)),
            _ if is_ident_start(b) => (Kind::Other, self.skip(i, is_ident)),
            _ if is_operator(b) => (Kind::Other, self.operator(i)),
            _ => (Kind::Other, i + 1),
        }
    }

    fn line_comment(&self, from: usize) -> usize {
        self.skip(from, |c| c != b'\n' && c != b'\r')
    }

    /// Nested as the server allows.
    fn block_comment(&self, from: usize) -> usize {
        let (mut i, mut depth) = (from, 0u32);
        while i < self.text.len() {
            match (self.text[i], self.at(i + 1)) {
                (b'/', b'*') => {
                    depth += 1;
                    i += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    i += 2;
                    if depth == 0 {
                        return i;
                    }
                }
                _ => i += 1,
            }
        }
        self.beyond()
    }

    /// End of what is quoted from `from` (at the opening quote); a doubled quote stands for itself.
    fn quoted(&self, from: usize, quote: u8, escapes: bool) -> usize {
        let mut i = from + 1;
        while i < self.text.len() {
            match self.text[i] {
                b'\\' if escapes => i += 2,
                c if c == quote && self.at(i + 1) == quote => i += 2,
                c if c == quote => return i + 1,
                _ => i += 1,
            }
        }
        self.beyond()
    }

    /// A string, with the parts that continue it on later lines.
    fn string(&self, from: usize, escapes: bool) -> usize {
        let mut end = self.quoted(from, b'\'', escapes);
        while let Some(part) = self.continuation(end) {
            end = self.quoted(part, b'\'', escapes);
        }
        end
    }

    /// The opening quote of a continuation: white space with a line end in it (comments of the `--` kind allowed
    /// after the line end), then a quote.
    fn continuation(&self, from: usize) -> Option<usize> {
        let mut i = from;
        let mut line_end = false;
        loop {
            match self.at(i) {
                b'\n' | b'\r' => line_end = true,
                c if is_space(c) => {}
                b'-' if self.at(i + 1) == b'-' => {
                    i = self.line_comment(i);
                    continue;
                }
                b'\'' if line_end => return Some(i),
                _ => return None,
            }
            i += 1;
        }
    }

    /// `$tag$ ... $tag$`, or a lone dollar sign.
    fn dollar(&self, from: usize) -> (Kind, usize) {
        let tag_end = if is_ident_start(self.at(from + 1)) {
            self.skip(from + 1, |c| is_ident(c) && c != b'$')
        } else {
            from + 1
        };
        if self.at(tag_end) != b'$' || tag_end >= self.text.len() {
            return (Kind::Other, from + 1);
        }
        let tag = &self.text[from..=tag_end];
        let body = &self.text[tag_end + 1..];
        let end = body.windows(tag.len()).position(|w| w == tag);
        (Kind::Literal, end.map_or(self.beyond(), |p| tag_end + 1 + p + tag.len()))
    }

    /// Decimal, with fraction and exponent, or hexadecimal, octal or binary, with underscores (from 16 on).
    fn number(&self, from: usize) -> usize {
        let radix = self.at(from + 1) | 0x20;
        if self.text[from] == b'0' && matches!(radix, b'x' | b'o' | b'b') {
            let digit = |c: u8| match radix {
                b'x' => c.is_ascii_hexdigit(),
                b'o' => (b'0'..=b'7').contains(&c),
                _ => c == b'0' || c == b'1',
            };
            let end = self.digits(from + 2, digit);
            if end > from + 2 {
                return end;
            }
        }
        let decimal = |c: u8| c.is_ascii_digit();
        let mut end = self.digits(from, decimal);
        // two dots are an operator: 1..10 in a PL/pgSQL loop
        if self.at(end) == b'.' && self.at(end + 1) != b'.' {
            end = self.digits(end + 1, decimal);
        }
        if self.at(end) | 0x20 == b'e' {
            let sign = usize::from(matches!(self.at(end + 1), b'+' | b'-'));
            if self.at(end + 1 + sign).is_ascii_digit() {
                end = self.digits(end + 1 + sign, decimal);
            }
        }
        end
    }

    /// Digits, with single underscores between (or, after a radix prefix, before) them.
    fn digits(&self, from: usize, digit: impl Fn(u8) -> bool) -> usize {
        let mut i = from;
        while digit(self.at(i)) || self.at(i) == b'_' && digit(self.at(i + 1)) {
            i += 1;
        }
        i
    }

    /// The longest run of operator characters that holds no comment start; a trailing sign belongs to what follows
    /// unless the operator also has one of the characters that may precede it (manual, 4.1.3).
    fn operator(&self, from: usize) -> usize {
        let mut end = from;
        while is_operator(self.at(end)) {
            let comment = matches!((self.at(end), self.at(end + 1)), (b'-', b'-') | (b'/', b'*'));
            if comment && end > from {
                break;
            }
            end += 1;
        }
        let odd = self.text[from..end].iter().any(|c| b"~!@#%^&|`?".contains(c));
        while !odd && end > from + 1 && matches!(self.text[end - 1], b'+' | b'-') {
            end -= 1;
        }
        end
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        if self.pos >= self.text.len() {
            return None;
        }
        let (kind, end) = self.token();
        let ended = end <= self.text.len();
        let token = Token { kind, start: self.pos, end: end.clamp(self.pos + 1, self.text.len()), ended };
        self.pos = token.end;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_locations(text: &[u8], places: &[Place], highest: u32) -> Option<Vec<u8>> {
        let mut out = b"of before".to_vec();
        super::at_locations(text, places, highest, &mut out)?;
        Some(out)
    }
    use proptest::prelude::*;

    fn places(at: &[usize]) -> Vec<Place> {
        at.iter().copied().map(Place::from).collect()
    }

    fn lit(s: &str) -> String {
        String::from_utf8(literals(s.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn numbers_given_to_a_function_may_stay_and_nothing_else() {
        let keeping = |s: &str| {
            let kept = literals_but_numbers_given_to("reset", s.as_bytes()).unwrap();
            String::from_utf8(kept).unwrap()
        };
        for (text, expected) in [
            ("SELECT reset(0,0,0)", "SELECT reset(0,0,0)"),
            ("SELECT s.RESET ( 1 , /* 7 */ 2 ), 3", "SELECT s.RESET ( 1 , /* 7 */ 2 ), $1"),
            (
                "SELECT reset(1, 'x', (SELECT 2), 3+4, f(5)), 'y'",
                "SELECT reset(1, $1, (SELECT $2), $3+$4, f($5)), $6",
            ),
            ("SELECT reset(minmax => 1, 2) + 3", "SELECT reset(minmax => $1, 2) + $2"),
            (
                "SELECT 1, resets(2), reset, (3), \"reset\"(4)",
                "SELECT $1, resets($2), reset, ($3), \"reset\"($4)",
            ),
            ("SELECT reset(1", "SELECT reset($1"),
        ] {
            assert_eq!(keeping(text), expected);
        }
    }

    fn at(s: &str, locations: &[usize], highest: u32) -> String {
        String::from_utf8(at_locations(s.as_bytes(), &places(locations), highest).unwrap()).unwrap()
    }

    #[test]
    fn constants_at_known_places_become_parameters() {
        assert_eq!(at("SELECT 1", &[7], 0), "SELECT $1");
        assert_eq!(at("SELECT $1 + 'a''b', 2.5e-3", &[12, 20], 1), "SELECT $1 + $2, $3");
        assert_eq!(at("SELECT -1, - 2", &[7, 11], 0), "SELECT $1, $2");
        assert_eq!(at("SELECT TRUE, NULL", &[7, 13], 0), "SELECT $1, $2");
        assert_eq!(at("SELECT 'a'\n  'b' , 3", &[7, 19], 0), "SELECT $1 , $2");
        assert_eq!(at("SELECT $$x$y$$, $q$ ' $$ $q$", &[7, 16], 0), "SELECT $1, $2");
        assert_eq!(
            at("SELECT E'\\'', B'01', X'1F', U&'d', N'x'", &[7, 14, 21, 28, 36], 0),
            "SELECT $1, $2, $3, $4, N$5"
        );
    }

    #[test]
    fn a_list_that_counts_as_one_becomes_one_symbol() {
        let text = b"SELECT 1 WHERE a IN (1, 2, 3) OR 4 = 5";
        let extents = [(21, Extent::List(7)), (18, Extent::Brackets)];
        for (at, extent) in extents {
            let places = [Place::from(7), Place { at, extent }, Place::from(33)];
            let normalised = at_locations(text, &places, 0).unwrap();
            assert_eq!(normalised, b"SELECT $1 WHERE a IN ($2 /*, ... */) OR $3 = 5");
        }
    }

    #[test]
    fn a_list_ends_where_its_brackets_do() {
        let list = |text: &str, at: usize| {
            let place = Place { at, extent: Extent::Brackets };
            let out = at_locations(text.as_bytes(), &[place], 0);
            out.map(|out| String::from_utf8(out).unwrap())
        };
        for (text, at, expected) in [
            ("SELECT ARRAY[1, ')]', \"]\", (2)] || 3", 7, "SELECT ARRAY[$1 /*, ... */] || 3"),
            (
                "SELECT x NOT /* ( */ IN -- (\n ( 'a'::text , $$)$$ )",
                9,
                "SELECT x NOT /* ( */ IN -- (\n ($1 /*, ... */)",
            ),
            ("SELECT ARRAY[[1,2],[3,4]]", 13, "SELECT ARRAY[[$1 /*, ... */],[3,4]]"),
            (r"SELECT ARRAY['a\', 'b]'], 1", 7, r"SELECT ARRAY[$1 /*, ... */], 1"),
        ] {
            assert_eq!(list(text, at).as_deref(), Some(expected));
        }
        assert_eq!(list("SELECT ARRAY[1, 2", 7), None);
    }

    #[test]
    fn backslashes_in_a_list_are_read_as_the_rest_of_the_text_is() {
        let read = |text: &[u8], list: usize, constant: usize| {
            let places = [Place { at: list, extent: Extent::Brackets }, Place::from(constant)];
            String::from_utf8(at_locations(text, &places, 0).unwrap()).unwrap()
        };
        assert_eq!(read(br"SELECT a IN ('x\', 'y'), 'b'", 9, 25), "SELECT a IN ($1 /*, ... */), $2");
        assert_eq!(read(br"SELECT a IN ('x\'),', 'y'), 'b'", 9, 28), "SELECT a IN ($1 /*, ... */), $2");
    }

    #[test]
    fn a_text_without_a_list_is_told_by_its_bytes() {
        for with in [
            "a IN (1,2)",
            "a not in(1,2)",
            "in (,",
            "(ARRAY[1,2])",
            "a In\n(b, c)",
            "a in/**/(b, c)",
            "a IN -- c\n (1, 2)",
        ] {
            assert!(may_have_list(with.as_bytes()), "{with}");
        }
        for without in [
            "",
            "in",
            "SELECT 1",
            "SELECT 1, 2",
            "a IN (1)",
            "INSERT INTO t (a, b)",
            "int, min, in_, _in",
            "a,i n",
            "f(in, a)",
            "x.\"in\"(1, 2)",
        ] {
            assert!(!may_have_list(without.as_bytes()), "{without}");
        }
    }

    #[test]
    fn the_name_or_value_of_a_utility_statement_becomes_a_parameter() {
        let named =
            |text: &str| String::from_utf8(without_value(text.as_bytes(), Value::LastName).unwrap()).unwrap();
        for (text, expected) in [
            ("SAVEPOINT a", "SAVEPOINT $1"),
            ("ROLLBACK TO SAVEPOINT \"a b\" ;", "ROLLBACK TO SAVEPOINT $1 ;"),
            ("DEALLOCATE PREPARE x /* why */ -- c", "DEALLOCATE PREPARE $1 /* why */ -- c"),
            ("SAVEPOINT U&\"d!0061\" UESCAPE '!'", "SAVEPOINT $1 UESCAPE '!'"),
            ("PREPARE TRANSACTION 'x''y'", "PREPARE TRANSACTION $1"),
            ("", ""),
        ] {
            assert_eq!(named(text), expected);
        }
        let set = |text: &str, at| {
            String::from_utf8(without_value(text.as_bytes(), Value::At(at)).unwrap()).unwrap()
        };
        assert_eq!(set("SET a = '1'", 8), "SET a = $1");
        assert_eq!(set("SET a TO -5", 9), "SET a TO $1");
        assert_eq!(set("SET a TO on, off", 9), "SET a TO $1, off");
        assert_eq!(word_before(b"SET /* x */ TIME ZONE -- y\n 'z'", 28), b"ZONE");
    }

    #[test]
    fn a_place_named_twice_is_replaced_once() {
        assert_eq!(at("SELECT 12, 3", &[7, 7, 11], 0), "SELECT $1, $2");
    }

    #[test]
    fn a_place_outside_the_statement_is_ignored() {
        assert_eq!(at("SELECT 1", &[7, 900], 0), "SELECT $1");
    }

    #[test]
    fn backslashes_are_read_as_the_places_tell() {
        assert_eq!(at(r"SELECT 'a\', 1, 'b'", &[7, 13, 16], 0), "SELECT $1, $2, $3");
        assert_eq!(at(r"SELECT 'C:\', 'b'", &[7, 14], 0), "SELECT $1, $2");
        assert_eq!(at(r"SELECT 'a\'secret', 'b'", &[7, 20], 0), "SELECT $1, $2");
        assert_eq!(at(r"SELECT 'a\'secret\'b'", &[7], 0), "SELECT $1");
        assert_eq!(at(r"SELECT E'\'', 'b'", &[7, 14], 0), "SELECT $1, $2");
        assert_eq!(at(r#"SELECT '\'"secret'"#, &[7], 0), "SELECT $1");
        assert_eq!(at(r"SELECT '\' , $$it's$$", &[7, 13], 0), "SELECT $1 , $2");
    }

    #[test]
    fn where_both_readings_fit_the_rest_goes() {
        // one string with doubled quotes in it, or one and a comment
        assert_eq!(at(r"SELECT 1, 'a\''-- secret'", &[7, 10], 0), "SELECT $1, $2");
        assert_eq!(at(r"SELECT 'a\' /* it's */ + 1", &[7, 24], 0), "SELECT $1");
    }

    #[test]
    fn where_no_reading_fits_the_places_or_there_are_none_the_rest_goes() {
        assert_eq!(lit(r"SELECT 1, 'a\', 'b'"), "SELECT $1, $2");
        assert_eq!(lit(r"SELECT 'a\b', 'c'"), "SELECT $1, $2");
        let text = br"SELECT 'a\', 'secret' -- '";
        assert_eq!(at_locations(text, &places(&[9]), 0).unwrap(), b"SELECT $1");
    }

    #[test]
    fn without_places_every_literal_goes_and_nothing_else() {
        assert_eq!(
            lit("SELECT a1, \"b 2\", t.c FROM x2 WHERE y = 'z'"),
            "SELECT a1, \"b 2\", t.c FROM x2 WHERE y = $1"
        );
        assert_eq!(lit("SELECT $2, 5, $10 -- 7\n, 6"), "SELECT $2, $11, $10 -- 7\n, $12");
        assert_eq!(lit("SELECT /* 1 /* 2 */ 3 */ 4"), "SELECT /* 1 /* 2 */ 3 */ $1");
        assert_eq!(lit("SELECT 1.5, .5, 1., 1e5, 0xFF, 1_000, 0b1"), "SELECT $1, $2, $3, $4, $5, $6, $7");
        assert_eq!(lit("SELECT a-1, a@-1, 3-2"), "SELECT a-$1, a@-$2, $3-$4");
        assert_eq!(lit("SELECT x[1:2], y::text, 'p'::bytea"), "SELECT x[$1:$2], y::text, $3::bytea");
        assert_eq!(lit("ALTER ROLE r PASSWORD 'secret'"), "ALTER ROLE r PASSWORD $1");
        assert_eq!(lit("SELECT é1, 'é'"), "SELECT é1, $1");
        assert_eq!(lit("FOR i IN 1..10"), "FOR i IN $1..$2");
    }

    #[test]
    fn unterminated_strings_and_comments_end_with_the_text() {
        assert_eq!(lit("SELECT 'abc"), "SELECT $1");
        assert_eq!(lit("SELECT $a$ 1"), "SELECT $1");
        assert_eq!(lit("SELECT /* 'a"), "SELECT /* 'a");
        assert_eq!(lit("SELECT '"), "SELECT $1");
        assert_eq!(lit("$"), "$");
    }

    #[test]
    fn one_statement_is_cut_out_of_many() {
        let s = b"SELECT 1;  SELECT 22 ; SELECT 3";
        assert_eq!(statement_range(s, 0, 8), (0, 8));
        assert_eq!(statement_range(s, 9, 12), (11, 9));
        assert_eq!(statement_range(s, 22, 0), (23, 8));
        assert_eq!(statement_range(s, -1, 5), (0, s.len()));
        assert_eq!(statement_range(b"  ", 0, 0), (2, 0));
        assert_eq!(statement_range(b"abc", 77, 5), (3, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_lexed_to_their_end(text in prop::collection::vec(any::<u8>(), 0..200), scs: bool) {
            let tokens: Vec<Token> = Lexer::new(&text, scs).collect();
            let mut pos = 0;
            for t in &tokens {
                prop_assert_eq!(t.start, pos);
                prop_assert!(t.end > t.start);
                pos = t.end;
            }
            prop_assert_eq!(pos, text.len());
            literals(&text).unwrap();
        }

        #[test]
        fn no_string_literal_survives(secret in "[a-z]{12}", before in "[ -&(-~]{0,20}") {
            let text = format!("SELECT {} \n, '{secret}'", before.replace(['$', '"', '-', '/', '\\'], " "));
            let normalised = lit(&text);
            prop_assert!(!normalised.contains(&secret), "{}", normalised);
        }

        #[test]
        fn places_never_break_the_text(text in "[ -~]{0,60}", mut at in prop::collection::vec((0usize..70, prop::option::of(0usize..70)), 0..8)) {
            at.sort_unstable();
            let extent = |list: Option<usize>| list.map_or(Extent::Token, Extent::List);
            let places: Vec<Place> = at.into_iter().map(|(at, list)| Place { at, extent: extent(list) }).collect();
            at_locations(text.as_bytes(), &places, 0).unwrap();
        }
    }
}
