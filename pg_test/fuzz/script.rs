//! Any text as a script: it is read, or refused with a line that it has; what was read can be evaluated.

#[path = "harness.rs"]
mod harness;

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use super::expression::{DEFAULT_SEED, Expression, Scope};
use super::split::{self, Piece};
use super::value::{Result, Value};
use super::{Action, Script, Sql, is_space, is_variable_name};
use crate::workload::Protocol;
use harness::{Input, Target};

#[test]
fn script() {
    static TARGET: Target = Target { name: "script", holds };
    TARGET.test();
}

#[test]
fn expression() {
    static TARGET: Target = Target { name: "expression", holds: expression_holds };
    TARGET.test();
}

struct Variables(HashMap<String, Value>, Xoshiro256PlusPlus);

impl Variables {
    fn new() -> Self {
        let some = [
            (DEFAULT_SEED, Value::Int(5432)),
            ("a", Value::Int(i64::MIN)),
            ("b", Value::Int(7)),
            ("c", Value::Double(-1.5)),
            ("d", Value::Double(f64::INFINITY)),
            ("e", Value::Null),
            ("f", Value::Boolean(true)),
            ("g", Value::Int(i64::MAX)),
            ("h", Value::Double(f64::NAN)),
        ];
        let some = some.map(|(name, value)| (name.to_owned(), value));
        Variables(some.into(), Xoshiro256PlusPlus::seed_from_u64(1))
    }
}

impl Scope for Variables {
    fn variable(&self, name: &str) -> Result<Value> {
        self.0.get(name).copied().ok_or_else(|| format!("there is no variable {name}"))
    }

    fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.1
    }
}

fn holds(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pieces: Vec<_> = split::pieces(&text).collect();
    let lines = text.matches('\n').count() + 1;
    let mut last = 1;
    for (n, piece) in pieces.iter().enumerate() {
        let line = match piece {
            Ok(Piece::Sql { line, text, joined }) => {
                assert!(*joined > 0 && !text.trim_matches(is_space).is_empty());
                *line
            }
            Ok(Piece::Backslash { line, .. }) => *line,
            Err(refusal) => {
                assert_eq!(n, pieces.len() - 1, "nothing comes after a refusal");
                refusal.line
            }
        };
        assert!((last..=lines).contains(&line), "line {line} of {lines} after {last}");
        last = if piece.is_ok() { line } else { last };
    }
    match Script::parse(&text) {
        Ok(script) => is_runnable(&script, lines),
        Err(refusal) => {
            assert!((1..=lines).contains(&refusal.line) && !refusal.reason.is_empty(), "{refusal}");
            assert_eq!(Script::parse(&text).unwrap_err(), refusal);
        }
    }
}

fn is_runnable(script: &Script, lines: usize) {
    let mut variables = Variables::new();
    let mut flow = vec![0u32; script.commands.len()];
    for (n, command) in script.commands.iter().enumerate() {
        assert!((1..=lines).contains(&command.line));
        match &command.action {
            Action::Sql(sql) => is_whole(sql),
            Action::Set { name, expression } => {
                assert!(is_variable_name(name));
                let _ = expression.evaluate(&mut variables);
            }
            Action::Branch { condition, otherwise } => {
                assert!(*otherwise > n && *otherwise <= flow.len());
                let _ = condition.evaluate(&mut variables);
            }
            Action::Jump(to) => assert!(*to > n && *to <= flow.len()),
            _ => {}
        }
        flow[n] += 1;
    }
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        if let Err(refusal) = script.runs_in(protocol) {
            assert!((1..=lines).contains(&refusal.line));
        }
    }
    script.uses_pgbench_tables();
}

/// The pieces and variables are the statement, and so is the numbered text.
fn is_whole(sql: &Sql) {
    assert_eq!(sql.pieces.len(), sql.variables.len() + 1);
    let mut numbered = sql.pieces[0].clone();
    for (n, (name, piece)) in sql.variables.iter().zip(&sql.pieces[1..]).enumerate() {
        assert!(is_variable_name(name));
        numbered += &format!("${}{piece}", n + 1);
    }
    assert_eq!(numbered, sql.numbered);
}

/// Words of the language, or any text.
fn expression_holds(input: &[u8]) {
    const WORDS: &[&str] = &[
        "1",
        "0",
        "-",
        "+",
        "*",
        "/",
        "%",
        "(",
        ")",
        ":a",
        ":b",
        ":c",
        ":d",
        ":e",
        ":f",
        ":g",
        ":h",
        "not",
        "true",
        "false",
        "null",
        "2.5",
        "<<",
        ">>",
        "~",
        "=",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "is",
        "is not",
        "and",
        "or",
        "isnull",
        "notnull",
        ",",
        "random(",
        "random_gaussian(",
        "random_exponential(",
        "random_zipfian(",
        "permute(",
        "hash(",
        "hash_fnv1a(",
        "hash_murmur2(",
        "abs(",
        "int(",
        "double(",
        "least(",
        "greatest(",
        "exp(",
        "ln(",
        "sqrt(",
        "power(",
        "mod(",
        "pi()",
        "case when",
        "when",
        "then",
        "else",
        "end",
        "-9223372036854775808",
        "9223372036854775807",
        "1e300",
        "1e-300",
        "9223372036854775808",
        "|",
        "&",
        "#",
        "nosuch(",
    ];
    let mut input = Input(input);
    let text = if input.flag() {
        String::from_utf8_lossy(input.0).into_owned()
    } else {
        let mut words = Vec::new();
        while !input.is_empty() {
            words.push(input.one_of(WORDS));
        }
        words.join(" ")
    };
    match Expression::parse(&text) {
        Ok(expression) => {
            let value = expression.evaluate(&mut Variables::new());
            // the same words draw the same numbers
            let again = expression.evaluate(&mut Variables::new());
            assert_eq!(format!("{value:?}"), format!("{again:?}"));
            match value {
                Ok(value) => is_read_back(value),
                Err(reason) => assert!(!reason.is_empty()),
            }
        }
        Err(reason) => assert!(!reason.is_empty()),
    }
    let _ = Value::from_text("v", &text);
}

/// What is put into a statement for a value can be had from there with `\gset`, to 15 digits.
fn is_read_back(value: Value) {
    let shown = value.to_string();
    match (value, Value::from_text("v", &shown)) {
        (Value::Double(n), read) if !n.is_finite() => assert!(read.is_err()),
        (Value::Double(n), read) => {
            let read = read.unwrap().double().unwrap();
            // the largest numbers may round up to none
            assert!((read - n).abs() <= 1e-14 * n.abs() || read.is_infinite(), "{n:?} {shown} {read:?}");
        }
        (value, read) => assert_eq!(read, Ok(value)),
    }
}
