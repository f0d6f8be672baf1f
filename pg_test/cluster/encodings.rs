//! A database of every encoding that a server may have, beside each other: no character of their statements is cut, and
//! all of them are read from all of them.

use crate::client::{Login, Session};
use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{distinct, start_with_pgss_rs};

/// A character of the encoding, of as many bytes as most have or more.
fn character(encoding: &str) -> &'static [u8] {
    match encoding {
        "UTF8" => b"\xf0\x9d\x84\x9e",
        "EUC_JP" => b"\x8f\xb0\xa1",
        "EUC_JIS_2004" => b"\xa4\xa2",
        "EUC_CN" => b"\xd3\xef",
        "EUC_KR" => b"\xb0\xa1",
        "EUC_TW" => b"\x8e\xa1\xc4\xa1",
        "MULE_INTERNAL" => b"\x92\xb8\xec",
        "WIN874" => b"\xa1",
        // of SQL_ASCII any byte will do
        _ => b"\xe9",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// In the encoding of the database, as there is none set for the client.
fn connect(cluster: &Cluster, database: &str) -> Session {
    let login = Login { user: SUPERUSER, database, password: None };
    let mut session = Session::connect_as(&cluster.socket(), login).unwrap();
    session.execute("SET pgss_rs.track = 'none'").unwrap();
    session
}

fn value(session: &mut Session, sql: &str) -> String {
    let rows = session.query(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    rows[0][0].clone().unwrap_or_else(|| panic!("{sql}: NULL"))
}

struct Database {
    encoding: String,
    session: Session,
}

/// A statement with a comment in it, whose characters begin so many bytes later than they might. As each is another
/// statement, cuts meet every place in a character.
struct Statement {
    number: u32,
    before: usize,
    characters: usize,
}

fn statements(characters: &[usize]) -> Vec<Statement> {
    let shapes = characters.iter().flat_map(|characters| (0..4).map(move |before| (*characters, before)));
    shapes.zip(0..).map(|((characters, before), number)| Statement { number, before, characters }).collect()
}

const BEGIN: &str = "SELECT/*";

impl Statement {
    fn text(&self, character: &[u8], rest: &str) -> Vec<u8> {
        let comment = [b"c".repeat(self.before), character.repeat(self.characters)].concat();
        [BEGIN.as_bytes(), &comment, b"*/", rest.as_bytes()].concat()
    }

    fn execute(&self, database: &mut Database) {
        let text = self.text(character(&database.encoding), &distinct(self.number)["SELECT".len()..]);
        let sql = format!("SELECT run('\\x{}')", hex(&text));
        database.session.execute(&sql).unwrap();
    }

    /// Whether `shown` is what is kept of it, or a beginning without a part of a character.
    fn is_shown_as(&self, shown: &[u8], character: &[u8]) -> bool {
        let mut number = 0;
        let constants = distinct(self.number)["SELECT".len()..].replace('1', "$");
        let constants: String = constants
            .chars()
            .map(|c| {
                if c == '$' {
                    number += 1;
                    format!("${number}")
                } else {
                    c.to_string()
                }
            })
            .collect();
        let comment =
            (BEGIN.len() + self.before)..(BEGIN.len() + self.before + self.characters * character.len());
        let whole =
            !comment.contains(&shown.len()) || (shown.len() - comment.start).is_multiple_of(character.len());
        whole && self.text(character, &constants).starts_with(shown)
    }
}

fn databases(cluster: &Cluster) -> Vec<Database> {
    let mut administrator = connect(cluster, SUPERUSER);
    let encodings =
        administrator.query("SELECT pg_encoding_to_char(n) FROM generate_series(0, 34) n").unwrap();
    let encodings = encodings.into_iter().filter_map(|mut row| row[0].take()).filter(|name| !name.is_empty());
    let make = |encoding: String| {
        let template = "TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'";
        administrator
            .execute(&format!("CREATE DATABASE \"{encoding}\" {template} ENCODING '{encoding}'"))
            .unwrap();
        let mut session = connect(cluster, &encoding);
        let run = "CREATE FUNCTION run(bytea) RETURNS void LANGUAGE plpgsql AS
                   'BEGIN EXECUTE convert_from($1, getdatabaseencoding()); END'";
        session.execute(&format!("CREATE EXTENSION pgss_rs; {run}")).unwrap();
        Database { encoding, session }
    };
    encodings.map(make).collect()
}

impl Database {
    fn execute(&mut self, statements: &[Statement]) {
        self.session.execute("SET pgss_rs.track = 'all'").unwrap();
        statements.iter().for_each(|s| s.execute(self));
        self.session.execute("SET pgss_rs.track = 'none'").unwrap();
    }

    /// What is seen here of the statements of a database, in order, as bytes in this one's encoding.
    fn shown(&mut self, database: &str, bytes: usize) -> Vec<Vec<u8>> {
        let sql = format!(
            "SELECT encode(convert_to(query, getdatabaseencoding()), 'hex') FROM pgss_rs_stats(true, {bytes})
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '{database}') AND NOT toplevel
             ORDER BY first_exec"
        );
        let rows = self.session.query(&sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
        let bytes = |hex: &str| hex.as_bytes().chunks(2).map(byte).collect();
        rows.iter().map(|row| bytes(row[0].as_ref().expect("a text"))).collect()
    }

    /// Whatever is asked for of their texts, at most so much as is kept.
    fn shows_at_home(&mut self, statements: &[Statement], kept: usize) {
        let character = character(&self.encoding);
        for bytes in (1..24).chain([100, kept - 1, kept, kept + 1, 1_000_000]) {
            let shown = self.shown(&self.encoding.clone(), bytes);
            assert_eq!(shown.len(), statements.len(), "{}", self.encoding);
            for (statement, shown) in statements.iter().zip(&shown) {
                let told = format!("{}, {bytes} bytes: {}", self.encoding, shown.escape_ascii());
                assert!(statement.is_shown_as(shown, character), "{told}");
                assert!(shown.len() <= bytes.min(kept), "{told}");
                // as much as there is room for
                let least = bytes.min(kept).min(statement.text(character, "").len());
                assert!(shown.len() + character.len() > least, "{told}");
            }
        }
    }

    fn shows_from_elsewhere(&mut self, others: &[String], statements: &[Statement]) {
        // an error if it is not one of the encoding's texts
        let valid = "SELECT count(*) FROM pgss_rs_stats, getdatabaseencoding() e
                     WHERE convert_from(convert_to(query, e), e) = query AND NOT toplevel";
        let count = others.len() * statements.len();
        assert_eq!(value(&mut self.session, valid), count.to_string(), "{}", self.encoding);
        for sql in [
            "SELECT count(*) FROM pgss_rs_top WHERE length(query) > 0",
            "SELECT count(*) FROM pgss_rs_stats s WHERE length(pgss_rs_text(s.queryid, s.userid, s.dbid)) > 0",
            "SELECT count(*) FROM pgss_compat.pg_stat_statements WHERE query LIKE 'SELECT/*%'",
        ] {
            assert!(value(&mut self.session, sql).parse::<u32>().unwrap() >= 20, "{}: {sql}", self.encoding);
        }
        for other in others {
            let shown = self.shown(other, 1_000_000);
            assert_eq!(shown.len(), statements.len(), "{other} in {}", self.encoding);
            let expected = match (other.as_str(), self.encoding.as_str()) {
                (other, here) if other == here => character(other).to_vec(),
                ("EUC_JP", "UTF8") => "丂".into(),
                ("EUC_TW", "UTF8") => "一".into(),
                ("EUC_CN", "UTF8") => "语".into(),
                ("LATIN1" | "WIN1252", "UTF8") => "é".into(),
                // a question mark for a byte that is not known here
                ("SQL_ASCII", _) | (_, "SQL_ASCII") | ("MULE_INTERNAL", "UTF8") => {
                    b"?".repeat(character(other).len())
                }
                _ => continue,
            };
            for (statement, shown) in statements.iter().zip(&shown) {
                assert!(
                    statement.is_shown_as(shown, &expected),
                    "{other} in {}: {}",
                    self.encoding,
                    shown.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn statements_of_every_encoding_are_read_from_every_other() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.max", "1000")]);
    let statements = statements(&[3, 30]);
    let mut databases = databases(&cluster);
    assert!(databases.len() > 30, "{}", databases.len());
    databases.iter_mut().for_each(|d| d.execute(&statements));
    let encodings: Vec<String> = databases.iter().map(|d| d.encoding.clone()).collect();
    for database in &mut databases {
        database.shows_at_home(&statements, 300);
        database.shows_from_elsewhere(&encodings, &statements);
    }
    // and over a restart
    drop(databases);
    cluster.restart(Shutdown::Fast).unwrap();
    for encoding in encodings {
        let session = connect(&cluster, &encoding);
        Database { encoding, session }.shows_at_home(&statements, 300);
    }
    assert!(!cluster.log().contains("pgss_rs:"), "{}", cluster.log());
}

#[test]
fn texts_too_long_to_be_kept_are_cut_at_a_character_in_every_encoding() {
    // of the memory for texts one gets an eighth
    let cluster = start_with_pgss_rs(&[("pgss_rs.text_memory", "64kB")]);
    let statements = statements(&[9000]);
    for mut database in databases(&cluster) {
        database.execute(&statements);
        database.shows_at_home(&statements, 64 * 1024 / 8);
        database.session.execute("SELECT pgss_rs_reset()").unwrap();
    }
}
