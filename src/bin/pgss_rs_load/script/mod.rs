//! Scripts in pgbench's language: SQL with `:variables`, and its backslash commands. Pure but for [`player`].
//!
//! A script that pgbench accepts runs here, or is refused with the line and the reason when it is read, before any load.
//! Written from pgbench's documentation and checked against its program; [`Script::parse`] never panics.

mod expression;
#[cfg(test)]
#[path = "../../../../pg_test/fuzz/script.rs"]
mod fuzz;
mod player;
mod random;
mod split;
mod value;

use std::fmt;

pub use player::Player;

use crate::workload::Protocol;
use expression::Expression;
use split::Piece;

/// Parameters of one statement, as in pgbench.
const MAX_PARAMETERS: usize = 255;

/// Where and why a script is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// From 1.
    pub line: usize,
    pub reason: String,
}

impl Refusal {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Refusal { line, reason: reason.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.reason)
    }
}

/// What a transaction runs, one command after the other.
#[derive(Debug, Default)]
pub struct Script {
    commands: Vec<Command>,
}

#[derive(Debug)]
struct Command {
    line: usize,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Sql(Sql),
    Set {
        name: String,
        expression: Expression,
    },
    Sleep {
        time: SleepTime,
        /// Microseconds.
        unit: u64,
    },
    /// Goes on with the next command if true, else with this one.
    Branch {
        condition: Expression,
        otherwise: usize,
    },
    Jump(usize),
    StartPipeline,
    SyncPipeline,
    EndPipeline,
}

#[derive(Debug)]
enum SleepTime {
    Number(u64),
    Variable(String),
}

/// A statement, or several joined with `\;`.
#[derive(Debug)]
struct Sql {
    /// The text around the variables, one piece more than there are variables.
    pieces: Vec<String>,
    variables: Vec<String>,
    /// With `$1` and so on in the variables' places.
    numbered: String,
    /// How many statements were joined.
    joined: u32,
    stores: Option<Store>,
}

/// Where the result goes.
#[derive(Debug, PartialEq)]
struct Store {
    prefix: String,
    /// `\aset`: of every joined statement that gives a row, and no row is no error.
    all: bool,
}

impl Script {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut reader = Reader::default();
        for piece in split::pieces(text) {
            match piece? {
                Piece::Sql { line, text, joined } => reader.sql(line, &text, joined)?,
                Piece::Backslash { line, text } => reader.backslash(line, &text)?,
            }
        }
        reader.finish()
    }

    /// Refuses what this protocol cannot do.
    pub fn runs_in(&self, protocol: Protocol) -> Result<(), Refusal> {
        let simple = protocol == Protocol::Simple;
        for command in &self.commands {
            match &command.action {
                Action::StartPipeline if simple => {
                    let reason = "a pipeline takes --protocol extended or prepared";
                    return Err(Refusal::new(command.line, reason));
                }
                Action::Sql(sql) if sql.joined > 1 && !simple => {
                    let reason = r"statements joined with \; take --protocol simple";
                    return Err(Refusal::new(command.line, reason));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether some statement names a table of pgbench's.
    pub fn uses_pgbench_tables(&self) -> bool {
        let names = |command: &Command| match &command.action {
            Action::Sql(sql) => sql.numbered.to_ascii_lowercase().contains("pgbench_"),
            _ => false,
        };
        self.commands.iter().any(names)
    }
}

/// An `\if` that is not ended yet.
struct Open {
    line: usize,
    /// The branch whose way out is not known yet.
    pending: Option<usize>,
    /// Jumps to the end.
    jumps: Vec<usize>,
}

#[derive(Default)]
struct Reader {
    commands: Vec<Command>,
    open: Vec<Open>,
    /// The line of the pipeline's start, within one.
    pipeline: Option<usize>,
}

impl Reader {
    fn push(&mut self, line: usize, action: Action) -> usize {
        self.commands.push(Command { line, action });
        self.commands.len() - 1
    }

    fn sql(&mut self, line: usize, text: &str, joined: u32) -> Result<(), Refusal> {
        let sql = Sql::new(text, joined);
        if sql.variables.len() > MAX_PARAMETERS {
            return Err(Refusal::new(
                line,
                format!("a statement may have no more than {MAX_PARAMETERS} variables"),
            ));
        }
        self.push(line, Action::Sql(sql));
        Ok(())
    }

    fn backslash(&mut self, line: usize, text: &str) -> Result<(), Refusal> {
        let text = text.trim_matches(is_space);
        let (word, rest) = text.split_once(is_space).unwrap_or((text, ""));
        let rest = rest.trim_start_matches(is_space);
        let words: Vec<&str> = rest.split(is_space).filter(|w| !w.is_empty()).collect();
        let refused = |reason: &str| Err(Refusal::new(line, format!("\\{word}: {reason}")));
        let expression = |text: &str| {
            Expression::parse(text).map_err(|reason| Refusal::new(line, format!("\\{word}: {reason}")))
        };
        let alone = || if words.is_empty() { Ok(()) } else { refused("takes no argument") };
        match word.to_ascii_lowercase().as_str() {
            // As pgbench does, a lone backslash is passed over.
            "" => return Ok(()),
            "set" => {
                let (name, formula) = rest.split_once(is_space).unwrap_or((rest, ""));
                if name.is_empty() {
                    return refused("needs a variable and an expression");
                }
                if !is_variable_name(name) {
                    return refused(&format!("\"{name}\" is no name of a variable"));
                }
                let expression = expression(formula)?;
                self.push(line, Action::Set { name: name.to_owned(), expression });
            }
            "sleep" => {
                let action = sleep(&words).map_err(|r| Refusal::new(line, format!("\\{word}: {r}")))?;
                self.push(line, action);
            }
            "if" => {
                let condition = expression(rest)?;
                let at = self.push(line, Action::Branch { condition, otherwise: 0 });
                self.open.push(Open { line, pending: Some(at), jumps: Vec::new() });
            }
            "elif" => {
                let condition = expression(rest)?;
                self.close_branch(line, word)?;
                let at = self.push(line, Action::Branch { condition, otherwise: 0 });
                if let Some(open) = self.open.last_mut() {
                    open.pending = Some(at);
                }
            }
            "else" => {
                alone()?;
                self.close_branch(line, word)?;
            }
            "endif" => {
                alone()?;
                let Some(open) = self.open.pop() else { return refused("there is no \\if") };
                let end = self.commands.len();
                for at in open.pending.into_iter().chain(open.jumps) {
                    self.lead_to(at, end);
                }
            }
            "gset" | "aset" => self.store(line, word, &words)?,
            "startpipeline" => {
                if self.pipeline.replace(line).is_some() {
                    return refused("the pipeline has been started already");
                }
                alone()?;
                self.push(line, Action::StartPipeline);
            }
            "syncpipeline" => {
                alone()?;
                if self.pipeline.is_none() {
                    return refused("there is no \\startpipeline");
                }
                self.push(line, Action::SyncPipeline);
            }
            "endpipeline" => {
                alone()?;
                if self.pipeline.take().is_none() {
                    return refused("there is no \\startpipeline");
                }
                self.push(line, Action::EndPipeline);
            }
            "shell" | "setshell" => return refused("shell commands are not run here"),
            _ => return Err(Refusal::new(line, format!("there is no command \\{word}"))),
        }
        Ok(())
    }

    /// At `\elif` and `\else`: the branch before ends here, and the one whose condition was false begins.
    fn close_branch(&mut self, line: usize, word: &str) -> Result<(), Refusal> {
        if self.open.is_empty() {
            return Err(Refusal::new(line, format!("\\{word}: there is no \\if")));
        }
        let jump = self.push(line, Action::Jump(0));
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        open.jumps.push(jump);
        let Some(pending) = open.pending.take() else {
            return Err(Refusal::new(line, format!("\\{word}: there has been an \\else already")));
        };
        self.lead_to(pending, jump + 1);
        Ok(())
    }

    fn lead_to(&mut self, at: usize, to: usize) {
        match &mut self.commands[at].action {
            Action::Branch { otherwise, .. } => *otherwise = to,
            Action::Jump(target) => *target = to,
            _ => {}
        }
    }

    fn store(&mut self, line: usize, word: &str, words: &[&str]) -> Result<(), Refusal> {
        let refused = |reason: &str| Err(Refusal::new(line, format!("\\{word}: {reason}")));
        let prefix = match words {
            [] => "",
            [prefix] if is_variable_name(prefix) => prefix,
            [prefix] => return refused(&format!("\"{prefix}\" cannot begin the name of a variable")),
            _ => return refused("takes one prefix at most"),
        };
        if self.pipeline.is_some() {
            return refused("within a pipeline there is no result yet");
        }
        match self.commands.last_mut() {
            Some(Command { action: Action::Sql(sql @ Sql { stores: None, .. }), .. }) => {
                sql.stores =
                    Some(Store { prefix: prefix.to_owned(), all: word.eq_ignore_ascii_case("aset") });
                Ok(())
            }
            _ => refused("must follow a statement"),
        }
    }

    fn finish(self) -> Result<Script, Refusal> {
        if let Some(open) = self.open.last() {
            return Err(Refusal::new(open.line, "\\if: there is no \\endif"));
        }
        if let Some(line) = self.pipeline {
            return Err(Refusal::new(line, "\\startpipeline: there is no \\endpipeline"));
        }
        if !self.commands.iter().any(|command| matches!(command.action, Action::Sql(_))) {
            return Err(Refusal::new(1, "there is no statement in it"));
        }
        Ok(Script { commands: self.commands })
    }
}

/// `\sleep 10`, `\sleep 10 ms`, `\sleep 10ms`, `\sleep :v us`.
fn sleep(words: &[&str]) -> Result<Action, String> {
    let (time, unit) = match words {
        [time] if !time.starts_with(':') => {
            let sign = usize::from(time.starts_with(['+', '-']));
            let digits = time[sign..].find(|c: char| !c.is_ascii_digit()).map_or(time.len(), |n| n + sign);
            (&time[..digits], if digits < time.len() { &time[digits..] } else { "s" })
        }
        [time] => (*time, "s"),
        [time, unit] => (*time, *unit),
        _ => return Err("takes a time and, if not seconds, a unit".to_owned()),
    };
    let unit = match unit.to_ascii_lowercase().as_str() {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return Err(format!("the unit is us, ms or s, not \"{unit}\"")),
    };
    let time = match time.strip_prefix(':') {
        Some(name) if is_variable_name(name) => SleepTime::Variable(name.to_owned()),
        // A time below zero is none.
        _ => match time.parse::<i64>() {
            Ok(number) => SleepTime::Number(number.max(0) as u64),
            Err(_) => return Err(format!("the time is a whole number, not \"{time}\"")),
        },
    };
    Ok(Action::Sleep { time, unit })
}

impl Sql {
    fn new(text: &str, joined: u32) -> Self {
        let (mut pieces, mut variables, mut numbered) = (vec![String::new()], Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(':') {
            let (before, from_colon) = rest.split_at(at);
            let name = leading_name(&from_colon[1..]);
            // Of `::` neither colon begins a variable.
            let colons =
                if name.is_empty() { from_colon.len() - from_colon.trim_start_matches(':').len() } else { 0 };
            let literal = before.len() + colons;
            if let Some(piece) = pieces.last_mut() {
                piece.push_str(&rest[..literal]);
            }
            numbered.push_str(&rest[..literal]);
            rest = &rest[literal..];
            if !name.is_empty() {
                variables.push(name.to_owned());
                pieces.push(String::new());
                numbered += &format!("${}", variables.len());
                rest = &rest[1 + name.len()..];
            }
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push_str(rest);
        }
        numbered.push_str(rest);
        Sql { pieces, variables, numbered, joined, stores: None }
    }
}

/// The variable's name at the start of a text; may be empty.
fn leading_name(text: &str) -> &str {
    let end =
        text.char_indices().find(|(at, c)| !is_name_character(*c, *at == 0)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

fn is_name_character(c: char, first: bool) -> bool {
    c == '_' || c.is_ascii_alphabetic() || !c.is_ascii() || (!first && c.is_ascii_digit())
}

/// Letters, digits and underscores; no digit first. What is not ASCII counts as a letter.
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && leading_name(text).len() == text.len()
}

/// White space as C's `isspace` knows it.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(text: &str) -> String {
        Script::parse(text).unwrap_err().to_string()
    }

    fn statements(text: &str) -> Vec<String> {
        let script = Script::parse(text).unwrap();
        let sql = |command: Command| match command.action {
            Action::Sql(sql) => Some(sql.numbered),
            _ => None,
        };
        script.commands.into_iter().filter_map(sql).collect()
    }

    #[test]
    fn the_tpcb_like_script_of_the_documentation_is_read() {
        let text = r"\set aid random(1, 100000 * :scale)
            \set bid random(1, 1 * :scale)
            \set tid random(1, 10 * :scale)
            \set delta random(-5000, 5000)
            BEGIN;
            UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
            SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
            UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
            UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
            INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
            END;";
        let statements = statements(text);
        assert_eq!(statements.len(), 7);
        assert_eq!(statements[1], "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2;");
        assert!(Script::parse(text).unwrap().uses_pgbench_tables());
    }

    #[test]
    fn variables_are_found_as_pgbench_finds_them() {
        let sql = |text| {
            let sql = Sql::new(text, 1);
            (sql.numbered, sql.variables.join(","))
        };
        assert_eq!(sql("SELECT :a::int + :_b2"), ("SELECT $1::int + $2".into(), "a,_b2".into()));
        assert_eq!(sql("SELECT '12:34:56', x[1:2]"), ("SELECT '12:34:56', x[1:2]".into(), "".into()));
        assert_eq!(sql("SELECT ':a'"), ("SELECT '$1'".into(), "a".into()));
        assert_eq!(sql(":ä:"), ("$1:".into(), "ä".into()));
    }

    #[test]
    fn a_branch_goes_where_it_should() {
        let script =
            Script::parse("\\if 1\nSELECT 1;\n\\elif 2\nSELECT 2;\n\\else\nSELECT 3;\n\\endif\nSELECT 4;")
                .unwrap();
        let flow: Vec<String> = script
            .commands
            .iter()
            .map(|command| match &command.action {
                Action::Branch { otherwise, .. } => format!("?{otherwise}"),
                Action::Jump(to) => format!(">{to}"),
                Action::Sql(sql) => sql.numbered.clone(),
                _ => "other".to_owned(),
            })
            .collect();
        assert_eq!(flow, ["?3", "SELECT 1;", ">7", "?6", "SELECT 2;", ">7", "SELECT 3;", "SELECT 4;"]);
    }

    #[test]
    fn what_cannot_run_is_refused_with_its_line_and_the_reason() {
        assert_eq!(reason(""), "1: there is no statement in it");
        assert_eq!(reason("SELECT 1;\n\\shell ls"), "2: \\shell: shell commands are not run here");
        assert_eq!(reason("\n\n\\nonsense 1"), "3: there is no command \\nonsense");
        assert_eq!(reason("\\if 1\nSELECT 1;"), "1: \\if: there is no \\endif");
        assert_eq!(reason("SELECT 1;\n\\endif"), "2: \\endif: there is no \\if");
        assert_eq!(
            reason("\\if 1\n\\else\n\\elif 1\n\\endif"),
            "3: \\elif: there has been an \\else already"
        );
        assert_eq!(reason("\\set 1x 5"), "1: \\set: \"1x\" is no name of a variable");
        assert_eq!(reason("\\gset"), "1: \\gset: must follow a statement");
        assert_eq!(reason("\\sleep soon"), "1: \\sleep: the unit is us, ms or s, not \"soon\"");
        assert_eq!(reason("\\startpipeline\nSELECT 1;"), "1: \\startpipeline: there is no \\endpipeline");
        assert!(reason("SELECT 1;\n\\set x 1 +").starts_with("2: \\set: "));
        assert!(reason("SELECT 'a\nb").starts_with("1: "));
        let script = Script::parse(r"SELECT 1\; SELECT 2;").unwrap();
        assert!(script.runs_in(Protocol::Simple).is_ok());
        let refusal = script.runs_in(Protocol::Prepared).unwrap_err().to_string();
        assert!(refusal.contains("--protocol simple"), "{refusal}");
    }

    #[test]
    fn a_result_belongs_to_the_statement_before() {
        let script = Script::parse("SELECT 1 AS x \\gset p_\nSELECT :p_x;").unwrap();
        let [first, _] = &script.commands[..] else { panic!("two commands") };
        let Action::Sql(sql) = &first.action else { panic!("a statement") };
        assert_eq!(sql.stores, Some(Store { prefix: "p_".to_owned(), all: false }));
    }

    #[test]
    fn a_time_to_sleep_may_have_its_unit_attached() {
        for (text, microseconds) in [("2", 2_000_000), ("3ms", 3000), ("4 us", 4), ("-1", 0)] {
            let words: Vec<&str> = text.split(' ').collect();
            let Ok(Action::Sleep { time: SleepTime::Number(n), unit }) = sleep(&words) else {
                panic!("{text}")
            };
            assert_eq!(n * unit, microseconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Script::parse(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_sequence_of_the_languages_own_pieces_makes_it_panic(
            pieces in prop::collection::vec(
                prop::sample::select(vec![
                    "\\set x ", "\\if ", "\\elif ", "\\else", "\\endif", "\n", " ", "\\", "\\;", ";", "'", "\"", "$$", "$t$",
                    "/*", "*/", "--", "(", ")", ":", "::", ":x", "E'", "U&'", "case", "when", "then", "else", "end", "1", "9e9",
                    ".", "9223372036854775808", "-", "+", "~", "not", "is", "null", "random", "permute(", ",", "\\gset", "\\sleep ",
                    "ms", "SELECT 1", "\u{e4}", "\\\n", "\r", "create function", "begin", "\\startpipeline", "\\endpipeline",
                ]),
                0..60,
            )
        ) {
            let _ = Script::parse(&pieces.concat());
        }
    }
}
