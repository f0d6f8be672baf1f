//! Cuts a script into statements and backslash commands, as psql's scanner does.

use super::{Refusal, is_space};

#[derive(Debug, PartialEq)]
pub enum Piece {
    Sql {
        /// Where it begins, from 1.
        line: usize,
        text: String,
        /// Of how many statements, joined with `\;`.
        joined: u32,
    },
    /// What follows the backslash, to the end of the line.
    Backslash { line: usize, text: String },
}

/// The pieces of a script, in order. After a refusal there are no more.
pub fn pieces(text: &str) -> impl Iterator<Item = Result<Piece, Refusal>> {
    let mut scanner = Scanner { rest: text, line: 1 };
    let mut pending: Option<Piece> = None;
    let mut refused = false;
    std::iter::from_fn(move || {
        if refused {
            return None;
        }
        if let Some(piece) = pending.take() {
            return Some(Ok(piece));
        }
        loop {
            let [sql, backslash] = match scanner.next() {
                Ok(Some(found)) => found,
                Ok(None) => return None,
                Err(refusal) => {
                    refused = true;
                    return Some(Err(refusal));
                }
            };
            match (sql, backslash) {
                (Some(sql), backslash) => {
                    pending = backslash;
                    return Some(Ok(sql));
                }
                (None, Some(backslash)) => return Some(Ok(backslash)),
                (None, None) => {}
            }
        }
    })
}

struct Scanner<'a> {
    rest: &'a str,
    line: usize,
}

/// What a statement is made of so far.
#[derive(Default)]
struct Statement {
    text: String,
    /// Where it begins; 0: nothing yet.
    line: usize,
    joined: u32,
    parentheses: u32,
    /// The first words, as far as they tell a function with a body of statements.
    words: Vec<Word>,
    /// BEGIN ... END within such a body.
    begins: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Word {
    Create,
    Or,
    Replace,
    Routine,
    Other,
}

impl Statement {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn word(&mut self, word: &str) {
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        if self.words.len() < 4 {
            self.words.push(match () {
                () if is("create") => Word::Create,
                () if is("or") => Word::Or,
                () if is("replace") => Word::Replace,
                () if is("function") || is("procedure") => Word::Routine,
                () => Word::Other,
            });
        }
        let creates_routine = matches!(
            self.words[..],
            [Word::Create, Word::Routine, ..] | [Word::Create, Word::Or, Word::Replace, Word::Routine]
        );
        if creates_routine && self.parentheses == 0 {
            if is("begin") || (is("case") && self.begins > 0) {
                self.begins += 1;
            } else if is("end") {
                self.begins = self.begins.saturating_sub(1);
            }
        }
    }

    /// `None` if there is nothing but white space and comments.
    fn finish(self) -> Option<Piece> {
        let mut text = self.text.as_str();
        loop {
            text = text.trim_start_matches(is_space);
            if !text.starts_with("--") {
                break;
            }
            text = text.split_once('\n').map_or("", |(_, rest)| rest);
        }
        let text = text.trim_end_matches(is_space);
        (!text.is_empty()).then(|| Piece::Sql {
            line: self.line,
            text: text.to_owned(),
            joined: self.joined + 1,
        })
    }
}

impl<'a> Scanner<'a> {
    /// The next statement and the backslash command that ended it, either of which may be missing; `None` at the end.
    fn next(&mut self) -> Result<Option<[Option<Piece>; 2]>, Refusal> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut statement = Statement::default();
        while let Some(c) = self.rest.chars().next() {
            if statement.line == 0 && !is_space(c) && !self.rest.starts_with("--") {
                statement.line = self.line;
            }
            match c {
                ';' if statement.parentheses == 0 && statement.begins == 0 => {
                    statement.push(self.take(1));
                    return Ok(Some([statement.finish(), None]));
                }
                '\\' if self.rest[1..].starts_with([';', ':']) => {
                    statement.joined += u32::from(self.rest[1..].starts_with(';'));
                    self.take(1);
                    statement.push(self.take(1));
                }
                '\\' => {
                    let backslash = self.backslash();
                    return Ok(Some([statement.finish(), Some(backslash)]));
                }
                _ => self.token(c, &mut statement)?,
            }
        }
        Ok(Some([statement.finish(), None]))
    }

    fn token(&mut self, c: char, statement: &mut Statement) -> Result<(), Refusal> {
        match c {
            '\'' => self.quoted("'", false, statement)?,
            '"' => self.quoted("\"", false, statement)?,
            '-' if self.rest.starts_with("--") => {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                statement.push(self.take(end));
            }
            '/' if self.rest.starts_with("/*") => self.comment(statement)?,
            '$' => self.dollar(statement)?,
            '(' => {
                statement.parentheses += 1;
                statement.push(self.take(1));
            }
            ')' => {
                statement.parentheses = statement.parentheses.saturating_sub(1);
                statement.push(self.take(1));
            }
            c if is_identifier_start(c) || c.is_ascii_digit() => {
                let end = self.rest.find(|c| !is_identifier(c)).unwrap_or(self.rest.len());
                let word = self.take(end);
                statement.push(word);
                if is_identifier_start(c) {
                    statement.word(word);
                }
                if word.eq_ignore_ascii_case("e") && self.rest.starts_with('\'') {
                    self.quoted("'", true, statement)?;
                }
            }
            c => statement.push(self.take(c.len_utf8())),
        }
        Ok(())
    }

    /// A string or a quoted identifier; a doubled quote reads as two of them side by side, which comes to the same.
    fn quoted(&mut self, quote: &str, escapes: bool, statement: &mut Statement) -> Result<(), Refusal> {
        let start = self.line;
        statement.push(self.take(1));
        loop {
            let end = self.rest.find(|c: char| quote.starts_with(c) || (escapes && c == '\\'));
            let Some(end) = end else { return Err(Refusal::new(start, format!("a {quote} is not closed"))) };
            statement.push(self.take(end));
            if self.rest.starts_with(quote) {
                statement.push(self.take(1));
                return Ok(());
            }
            statement.push(self.take(1));
            let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
            statement.push(self.take(escaped));
        }
    }

    /// Comments nest.
    fn comment(&mut self, statement: &mut Statement) -> Result<(), Refusal> {
        let start = self.line;
        statement.push(self.take(2));
        let mut depth = 1;
        while depth > 0 {
            let (open, close) = (self.rest.find("/*"), self.rest.find("*/"));
            let (end, deeper) = match (open, close) {
                (_, None) => return Err(Refusal::new(start, "a comment is not closed")),
                (Some(open), Some(close)) if open < close => (open, true),
                (_, Some(close)) => (close, false),
            };
            statement.push(self.take(end + 2));
            if deeper { depth += 1 } else { depth -= 1 }
        }
        Ok(())
    }

    /// `$tag$ ... $tag$`, or a lone `$`.
    fn dollar(&mut self, statement: &mut Statement) -> Result<(), Refusal> {
        let start = self.line;
        let after = &self.rest[1..];
        let tag = after.find(|c| !is_identifier(c) || c == '$').unwrap_or(after.len());
        let is_tag = after[tag..].starts_with('$') && !after.starts_with(|c: char| c.is_ascii_digit());
        if !is_tag {
            statement.push(self.take(1));
            return Ok(());
        }
        let delimiter = self.take(tag + 2);
        statement.push(delimiter);
        let Some(end) = self.rest.find(delimiter) else {
            return Err(Refusal::new(start, format!("a {delimiter} is not closed")));
        };
        statement.push(self.take(end + delimiter.len()));
        Ok(())
    }

    /// To the end of the line; a backslash there continues it.
    fn backslash(&mut self) -> Piece {
        let line = self.line;
        self.take(1);
        let mut text = String::new();
        loop {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let part = self.take(end);
            self.take(usize::from(!self.rest.is_empty()));
            let continued = part.trim_end_matches('\r').strip_suffix('\\');
            text.push_str(continued.unwrap_or(part));
            text.push(' ');
            if continued.is_none() || self.rest.is_empty() {
                return Piece::Backslash { line, text };
            }
        }
    }

    /// Moves on by so many bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }
}

fn is_identifier_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic() || !c.is_ascii()
}

fn is_identifier(c: char) -> bool {
    is_identifier_start(c) || c.is_ascii_digit() || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<String> {
        pieces(text)
            .map(|piece| match piece.unwrap() {
                Piece::Sql { line, text, joined } => format!("{line} sql{joined} {text}"),
                Piece::Backslash { line, text } => format!("{line} \\{}", text.trim_end()),
            })
            .collect()
    }

    #[test]
    fn statements_end_at_semicolons_outside_of_anything() {
        let text = "SELECT ';', \"a;b\", $$;$$, $x$;$x$, E'\\';', (1;2) /* ; /* ; */ */ -- ;\n, 1;SELECT 2";
        let cut = cut(text);
        assert_eq!(cut.len(), 2, "{cut:?}");
        assert_eq!(cut[1], "2 sql1 SELECT 2");
    }

    #[test]
    fn a_backslash_ends_a_statement_and_joins_with_a_semicolon() {
        assert_eq!(cut("SELECT 1 \\gset\nSELECT 2;"), ["1 sql1 SELECT 1", "1 \\gset", "2 sql1 SELECT 2;"]);
        assert_eq!(cut("SELECT 1\\; SELECT 2;"), ["1 sql2 SELECT 1; SELECT 2;"]);
        assert_eq!(cut("\\set x 1 + \\\n  2\nSELECT 1;"), ["1 \\set x 1 +    2", "3 sql1 SELECT 1;"]);
    }

    #[test]
    fn comments_alone_are_no_statement() {
        assert_eq!(cut("-- nothing\n\n  -- more \\set\n"), Vec::<String>::new());
        assert_eq!(cut("-- first\nSELECT 1;\n-- last"), ["2 sql1 SELECT 1;"]);
    }

    #[test]
    fn a_function_body_is_one_statement() {
        let body = "CREATE OR REPLACE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END;";
        assert_eq!(
            cut(&format!("{body} SELECT 2;")),
            [format!("1 sql1 {body}"), "1 sql1 SELECT 2;".to_owned()]
        );
        assert_eq!(cut("BEGIN; SELECT 1; END;").len(), 3);
    }

    #[test]
    fn what_is_not_closed_is_refused_where_it_begins() {
        for (text, line) in [("SELECT\n'a\n;", 2), ("SELECT 1;\n\n/* /* */", 3), ("$$ $a$", 1)] {
            assert_eq!(pieces(text).last().unwrap().unwrap_err().line, line, "{text}");
        }
    }
}
