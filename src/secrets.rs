//! Secrets in the texts of utility statements, whose constants the server's analysis does not tell: passwords of roles,
//! connection strings, options of foreign servers and user mappings, what a COPY's program is called with.
//!
//! What a statement may hold is told by its first words. Where it may hold a secret, every string in it becomes a
//! parameter symbol, however it is written, and its comments go; so spellings need not be told apart. Names, key words and
//! numbers stay. The body of a DO block or a function is replaced whole, if there is a word in it that secrets come with.
//!
//! Each statement of a string is judged by itself.

use crate::normalize::{Fate, Kind, Lexer, Token, rewritten};
use std::borrow::Cow;

/// What of a statement may be a secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holds {
    Nothing,
    /// Its strings.
    Strings,
    /// Its strings, and what it sets a parameter to.
    Settings,
    /// What stands in the strings that are its bodies.
    Bodies,
}

/// Words in a body next to which there may be a secret.
const TELLTALES: &[&str] = &["password", "passwd", "connection", "conninfo", "options", "secret"];

/// `text` without what may be a secret in it; `None` when memory is short.
pub fn masked(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if statements(text).all(|statement| holds(statement) == Holds::Nothing) {
        return Some(Cow::Borrowed(text));
    }
    let mut holds_now = None;
    let mut setting = Setting::None;
    let masked = rewritten(text, |token| {
        let word = &text[token.start..token.end];
        if word == b";" {
            (holds_now, setting) = (None, Setting::None);
            return Fate::Stays;
        }
        let holds = *holds_now.get_or_insert_with(|| holds(&text[token.start..]));
        let fate = fate(holds, setting, token, word);
        if holds == Holds::Settings {
            setting = setting.then(token, word);
        }
        fate
    });
    masked.map(Cow::Owned)
}

fn fate(holds: Holds, setting: Setting, token: &Token, word: &[u8]) -> Fate {
    let goes = match (holds, token.kind) {
        (Holds::Nothing, _) => false,
        (Holds::Bodies, kind) => kind == Kind::Literal && may_hide_a_secret(word),
        (_, Kind::Blank) => return if is_comment(word) { Fate::Space } else { Fate::Stays },
        (_, Kind::Literal) => setting == Setting::Value || !matches!(word[0], b'0'..=b'9' | b'.'),
        (_, Kind::Other) => setting == Setting::Value && is_name(word) && !is(word, "default"),
        (_, Kind::Param) => false,
    };
    if goes { Fate::Parameter } else { Fate::Stays }
}

/// How far the setting of a parameter in ALTER ... SET has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    None,
    /// SET was read.
    Name,
    /// What follows is the value, or the list of values.
    Value,
}

impl Setting {
    fn then(self, token: &Token, word: &[u8]) -> Self {
        match self {
            Setting::None if is(word, "set") => Setting::Name,
            Setting::Name if token.kind == Kind::Other && (word == b"=" || is(word, "to")) => Setting::Value,
            other => other,
        }
    }
}

/// The statements that a text holds, each with what follows it.
fn statements(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = Lexer::new(text, true).filter(|t| &text[t.start..t.end] == b";").map(|t| t.end);
    std::iter::once(0).chain(ends).map(|start| &text[start..])
}

fn holds(statement: &[u8]) -> Holds {
    let mut words = words(statement);
    let mut next = || words.next().unwrap_or_default();
    let first = next();
    let any = |word| self::words(statement).any(|w| is(w, word));
    if is(first, "do") {
        return Holds::Bodies;
    }
    if is(first, "copy") && any("program") || is(first, "import") {
        return Holds::Strings;
    }
    let alters = is(first, "alter");
    if !alters && !is(first, "create") {
        return Holds::Nothing;
    }
    let mut object = next();
    if is(object, "or") {
        (_, object) = (next(), next());
    }
    match object {
        _ if alters && ["role", "user", "system", "database"].iter().any(|w| is(object, w)) => {
            Holds::Settings
        }
        _ if ["role", "user", "group", "subscription", "server", "foreign"].iter().any(|w| is(object, w)) => {
            Holds::Strings
        }
        // a foreign table's columns have options
        _ if is(object, "table") && any("options") => Holds::Strings,
        _ if ["function", "procedure", "routine"].iter().any(|w| is(object, w)) => Holds::Bodies,
        _ => Holds::Nothing,
    }
}

/// What of a statement is neither white space nor comment, up to its end.
fn words(statement: &[u8]) -> impl Iterator<Item = &[u8]> {
    let tokens = Lexer::new(statement, true).filter(|t| t.kind != Kind::Blank);
    tokens.map(|t| &statement[t.start..t.end]).take_while(|word| word != b";")
}

fn is(word: &[u8], key_word: &str) -> bool {
    word.eq_ignore_ascii_case(key_word.as_bytes())
}

fn is_name(word: &[u8]) -> bool {
    word[0].is_ascii_alphabetic() || matches!(word[0], b'_' | b'"' | 0x80..)
}

fn is_comment(blank: &[u8]) -> bool {
    matches!(blank[0], b'-' | b'/')
}

fn may_hide_a_secret(string: &[u8]) -> bool {
    // what is escaped might be any word
    let escaped = match string[0] | 0x20 {
        b'e' => string.contains(&b'\\'),
        b'u' => true,
        _ => false,
    };
    let tells = |word: &&str| string.windows(word.len()).any(|w| is(w, word));
    escaped || TELLTALES.iter().any(tells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mask(text: &str) -> String {
        String::from_utf8(masked(text.as_bytes()).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn passwords_of_roles_go_however_they_are_written() {
        for (text, expected) in [
            ("CREATE ROLE r PASSWORD 's3cret'", "CREATE ROLE r PASSWORD $1"),
            ("create user u encrypted password $q$s3cret$q$", "create user u encrypted password $1"),
            (
                "ALTER USER u WITH PASSWORD E's3\\'cret' VALID UNTIL '2030-01-01'",
                "ALTER USER u WITH PASSWORD $1 VALID UNTIL $2",
            ),
            ("ALTER ROLE r PASSWORD U&'s3!0063ret' UESCAPE '!'", "ALTER ROLE r PASSWORD $1 UESCAPE $2"),
            (
                "CREATE ROLE r PASSWORD 's3'\n -- 's3cret'\n 'cret' CONNECTION LIMIT 5",
                "CREATE ROLE r PASSWORD $1 CONNECTION LIMIT 5",
            ),
            (
                "/* s3cret */ ALTER/**/ROLE r -- was 's3cret'\n PASSWORD/* s3cret */'s3cret'",
                "  ALTER ROLE r  \n PASSWORD $1",
            ),
            ("CREATE GROUP g PASSWORD N's3cret'", "CREATE GROUP g PASSWORD N$1"),
            ("ALTER ROLE r PASSWORD NULL", "ALTER ROLE r PASSWORD NULL"),
            ("CREATE ROLE \"PASSWORD 'x'\" LOGIN", "CREATE ROLE \"PASSWORD 'x'\" LOGIN"),
            ("ALTER ROLE r PASSWORD 's3cret", "ALTER ROLE r PASSWORD $1"),
            (r"ALTER ROLE r PASSWORD 'a\' s3cret'", "ALTER ROLE r PASSWORD $1"),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn connection_strings_options_and_programs_go() {
        for (text, expected) in [
            (
                "CREATE SUBSCRIPTION s CONNECTION 'host=h password=s3cret' PUBLICATION p WITH (connect = false)",
                "CREATE SUBSCRIPTION s CONNECTION $1 PUBLICATION p WITH (connect = false)",
            ),
            ("ALTER SUBSCRIPTION s CONNECTION 'password=s3cret'", "ALTER SUBSCRIPTION s CONNECTION $1"),
            (
                "CREATE SERVER s TYPE 't' FOREIGN DATA WRAPPER w OPTIONS (host 'h', password 's3cret')",
                "CREATE SERVER s TYPE $1 FOREIGN DATA WRAPPER w OPTIONS (host $2, password $3)",
            ),
            ("ALTER SERVER s OPTIONS (SET password 's3cret')", "ALTER SERVER s OPTIONS (SET password $1)"),
            (
                "CREATE USER MAPPING IF NOT EXISTS FOR u SERVER s OPTIONS (password 's3cret')",
                "CREATE USER MAPPING IF NOT EXISTS FOR u SERVER s OPTIONS (password $1)",
            ),
            (
                "ALTER USER MAPPING FOR u SERVER s OPTIONS (SET password 's3cret')",
                "ALTER USER MAPPING FOR u SERVER s OPTIONS (SET password $1)",
            ),
            (
                "CREATE FOREIGN DATA WRAPPER w OPTIONS (a 's3cret')",
                "CREATE FOREIGN DATA WRAPPER w OPTIONS (a $1)",
            ),
            (
                "CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (p 's3cret')",
                "CREATE FOREIGN TABLE t (a int) SERVER s OPTIONS (p $1)",
            ),
            ("ALTER TABLE t ALTER a OPTIONS (ADD p 's3cret')", "ALTER TABLE t ALTER a OPTIONS (ADD p $1)"),
            (
                "IMPORT FOREIGN SCHEMA x FROM SERVER s INTO y OPTIONS (p 's3cret')",
                "IMPORT FOREIGN SCHEMA x FROM SERVER s INTO y OPTIONS (p $1)",
            ),
            (
                "COPY t FROM PROGRAM 'curl -u me:s3cret' WITH (FORMAT csv)",
                "COPY t FROM PROGRAM $1 WITH (FORMAT csv)",
            ),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_server_role_or_database_sets_goes() {
        for (text, expected) in [
            (
                "ALTER SYSTEM SET primary_conninfo = 'password=s3cret'",
                "ALTER SYSTEM SET primary_conninfo = $1",
            ),
            ("ALTER SYSTEM SET work_mem TO 64", "ALTER SYSTEM SET work_mem TO $1"),
            (
                "ALTER ROLE r IN DATABASE d SET my.key = s3cret, \"s3cret\"",
                "ALTER ROLE r IN DATABASE d SET my.key = $1, $2",
            ),
            ("ALTER DATABASE d SET my.key TO DEFAULT", "ALTER DATABASE d SET my.key TO DEFAULT"),
            ("ALTER DATABASE d RESET my.key", "ALTER DATABASE d RESET my.key"),
            ("ALTER ROLE r SET my.key FROM CURRENT", "ALTER ROLE r SET my.key FROM CURRENT"),
            ("ALTER USER u RENAME TO v", "ALTER USER u RENAME TO v"),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn bodies_that_tell_of_a_secret_go_whole() {
        for (text, expected) in [
            ("DO $$BEGIN ALTER ROLE r PASSWORD 's3cret'; END$$", "DO $1"),
            (
                "DO LANGUAGE plpgsql 'BEGIN EXECUTE ''ALTER ROLE r PassWord ''''s3cret'''''' ; END'",
                "DO LANGUAGE plpgsql $1",
            ),
            ("DO U&'BEGIN ALTER ROLE r P\\0041SSWORD ''s3cret''; END'", "DO $1"),
            ("DO E'BEGIN ALTER ROLE r P\\x41SSWORD ''s3cret''; END'", "DO $1"),
            (
                "CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE sql AS $$ SELECT dblink('password=s3cret') $$",
                "CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE sql AS $1",
            ),
            (
                "CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT ''x'''",
                "CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT ''x'''",
            ),
            ("DO $$BEGIN PERFORM 1; END$$ -- 'x'", "DO $$BEGIN PERFORM 1; END$$ -- 'x'"),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for text in [
            "",
            ";;",
            "SET work_mem = '5MB'",
            "CREATE TABLE t (password text DEFAULT 'x')",
            "ALTER TABLE t ADD COLUMN options text DEFAULT $$x",
            "COPY t TO '/tmp/file'",
            "CREATE DATABASE d LOCALE 'C'",
            "COMMENT ON ROLE r IS 'the role' -- 'c'",
            "CREATE",
            "CREATE OR",
            "do",
        ] {
            // the one with an unterminated string has `options`
            let expected = text.replace("$$x", if text.contains("options") { "$1" } else { "$$x" });
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn each_statement_of_a_string_is_judged_by_itself() {
        assert_eq!(
            mask(
                "SELECT 'a'; ALTER ROLE r PASSWORD 's3cret' ; SET x = 'b'; CREATE ROLE q PASSWORD $1 's3cret'"
            ),
            "SELECT 'a'; ALTER ROLE r PASSWORD $2 ; SET x = 'b'; CREATE ROLE q PASSWORD $1 $3"
        );
    }

    proptest! {
        #[test]
        fn no_password_survives(
            secret in "[a-z]{12}",
            gaps in prop::collection::vec(prop::sample::select(vec![" ", "\n", "/* ' */", "-- \"\n", "/* /* $$ */ */"]), 4),
            quote in 0usize..5,
            begin in prop::sample::select(vec!["CREATE", "alter"]),
            object in prop::sample::select(vec!["ROLE", "user", "Group"]),
        ) {
            let quoted = [format!("'{secret}'"), format!("e'\\\\{secret}'"), format!("U&'{secret}'"), format!("$a${secret}$a$"), format!("''\n'{secret}'")];
            let text = [begin, object, "r", "PASSWORD", &quoted[quote]].join("|");
            let text = gaps.iter().fold(text, |text, gap| text.replacen('|', gap, 1));
            prop_assert!(!mask(&text).contains(&secret), "{}", text);
        }

        #[test]
        fn any_bytes_are_masked(text in prop::collection::vec(any::<u8>(), 0..100), scs in "(CREATE ROLE|DO|ALTER SYSTEM SET|)") {
            masked(&[scs.as_bytes(), b" ", &text].concat()).unwrap();
        }
    }
}
