//! Runs scripts in a session, a transaction each time.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::expression::{DEFAULT_SEED, Scope};
use super::value::{self, Value};
use super::{Action, Command, Script, SleepTime, Sql, Store, is_variable_name};
use crate::cli::Plan;
use crate::client::{Rows, Session, Statement};
use crate::error::{Error, Result, check_interrupted};
use crate::workload::Protocol;

/// Queued for a pipeline, bytes. As much fits into a socket while the server waits for its answers to be read.
const MAX_PIPELINE: usize = 64 * 1024;
/// How long a sleeping script may take to notice that the user wants to stop.
const NAP: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum Variable {
    /// From the command line or a result.
    Text(String),
    Value(Value),
}

#[derive(Debug)]
pub struct Player {
    scripts: Vec<Loaded>,
    /// Of the weights.
    total: u64,
    protocol: Protocol,
    environment: Environment,
    /// Whether the statement of each script's command is prepared.
    prepared: Vec<Vec<bool>>,
    sql: String,
    parameters: Vec<Option<String>>,
}

#[derive(Debug)]
struct Loaded {
    file: String,
    weight: u64,
    script: Arc<Script>,
}

/// One client's variables and its generator; all scripts share them.
#[derive(Debug)]
struct Environment {
    variables: HashMap<String, Variable, foldhash::fast::FixedState>,
    rng: Xoshiro256PlusPlus,
}

impl Scope for Environment {
    fn variable(&self, name: &str) -> value::Result<Value> {
        match self.variables.get(name) {
            Some(Variable::Value(value)) => Ok(*value),
            Some(Variable::Text(text)) => Value::from_text(name, text),
            None => Err(undefined(name)),
        }
    }

    fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
        &mut self.rng
    }
}

impl Environment {
    fn new(plan: &Plan, client: u32, seed: u64) -> Self {
        let mut variables = HashMap::default();
        let hash_seed = Xoshiro256PlusPlus::seed_from_u64(plan.seed).random::<i64>();
        for (name, value) in [
            ("scale", i64::from(plan.scale)),
            ("client_id", i64::from(client)),
            ("random_seed", plan.seed as i64),
            (DEFAULT_SEED, hash_seed),
        ] {
            variables.insert(name.to_owned(), Variable::Value(Value::Int(value)));
        }
        for (name, value) in &plan.request.definitions {
            variables.insert(name.clone(), Variable::Text(value.clone()));
        }
        Environment { variables, rng: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    fn set(&mut self, name: &str, variable: Variable) {
        match self.variables.get_mut(name) {
            Some(old) => *old = variable,
            None => {
                self.variables.insert(name.to_owned(), variable);
            }
        }
    }

    /// Appends what a variable stands for; whether there is one.
    fn write(&self, name: &str, text: &mut String) -> bool {
        match self.variables.get(name) {
            Some(Variable::Text(value)) => text.push_str(value),
            Some(Variable::Value(value)) => {
                // Writing to a String cannot fail.
                let _ = write!(text, "{value}");
            }
            None => return false,
        }
        true
    }

    fn store(&mut self, store: &Store, results: Vec<Rows>) -> value::Result<()> {
        let last = results.len().saturating_sub(1);
        for (number, result) in results.into_iter().enumerate() {
            if !store.all && (number < last || result.rows.len() != 1) {
                if number < last {
                    continue;
                }
                return Err(format!("\\gset needs one row, and there were {}", result.rows.len()));
            }
            let Some(row) = result.rows.into_iter().next_back() else { continue };
            for (column, value) in result.columns.into_iter().zip(row) {
                let name = format!("{}{column}", store.prefix);
                if !is_variable_name(&name) {
                    return Err(format!("\"{name}\" is no name of a variable"));
                }
                self.set(&name, Variable::Text(value.unwrap_or_default()));
            }
        }
        Ok(())
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Played {
    /// Statements.
    pub sent: u64,
    /// Or else it met a deadlock, or a conflict with another transaction, and was rolled back.
    pub committed: bool,
}

/// Within a transaction.
#[derive(Default)]
struct Progress {
    sent: u64,
    /// Within a pipeline: how many points of synchronisation are queued.
    pipeline: Option<u32>,
}

impl Player {
    pub fn new(plan: &Plan, client: u32, seed: u64) -> Self {
        let loaded = |s: &crate::options::Weighted| Loaded {
            file: s.file.clone(),
            weight: u64::from(s.weight),
            script: Arc::clone(&s.script),
        };
        let scripts: Vec<Loaded> = plan.request.scripts.iter().map(loaded).collect();
        Player {
            total: scripts.iter().map(|s| s.weight).sum(),
            protocol: plan.protocol,
            environment: Environment::new(plan, client, seed),
            prepared: scripts.iter().map(|s| vec![false; s.script.commands.len()]).collect(),
            scripts,
            sql: String::new(),
            parameters: Vec::new(),
        }
    }

    /// One transaction of a script drawn by its weight. A conflict with another transaction ends it, and nothing else.
    pub fn play(&mut self, session: &mut Session) -> Result<Played> {
        let number = self.draw();
        let mut progress = Progress::default();
        let committed = match self.run(number, session, &mut progress) {
            Ok(()) => true,
            Err(Error::Conflict(_)) => {
                session.execute("ROLLBACK")?;
                false
            }
            Err(error) => return Err(error),
        };
        Ok(Played { sent: progress.sent, committed })
    }

    fn run(&mut self, number: usize, session: &mut Session, progress: &mut Progress) -> Result<()> {
        let script = Arc::clone(&self.scripts[number].script);
        let mut next = 0;
        while let Some(command) = script.commands.get(next) {
            let step = self.step(number, next, command, session, progress);
            next = step.map_err(|e| self.at(number, command.line, e))?.unwrap_or(next + 1);
        }
        if progress.pipeline.is_some() {
            let line = script.commands.last().map_or(1, |command| command.line);
            return Err(self.at(number, line, Error::Failed("the script ends within a pipeline".to_owned())));
        }
        Ok(())
    }

    fn draw(&mut self) -> usize {
        if self.scripts.len() == 1 {
            return 0;
        }
        let mut left = self.environment.rng.random_range(0..self.total.max(1));
        let falls_to = |script: &Loaded| {
            let here = left < script.weight;
            left = left.saturating_sub(script.weight);
            here
        };
        self.scripts.iter().position(falls_to).unwrap_or(0)
    }

    fn at(&self, script: usize, line: usize, error: Error) -> Error {
        error.reworded(|text| format!("{}:{line}: {text}", self.scripts[script].file))
    }

    /// Runs one command; where to go on, if not with the next.
    fn step(
        &mut self,
        script: usize,
        number: usize,
        command: &Command,
        session: &mut Session,
        progress: &mut Progress,
    ) -> Result<Option<usize>> {
        let failed = |text: String| Error::Failed(text);
        match &command.action {
            Action::Sql(sql) => {
                progress.sent += u64::from(sql.joined);
                self.send(script, number, sql, session, progress)?;
            }
            Action::Set { name, expression } => {
                let value = expression.evaluate(&mut self.environment).map_err(failed)?;
                self.environment.set(name, Variable::Value(value));
            }
            Action::Sleep { time, unit } => {
                let time = match time {
                    SleepTime::Number(number) => *number,
                    SleepTime::Variable(name) => {
                        let value = self.environment.variable(name).and_then(Value::int).map_err(failed)?;
                        value.max(0) as u64
                    }
                };
                sleep(Duration::from_micros(time.saturating_mul(*unit)))?;
            }
            Action::Branch { condition, otherwise } => {
                let holds = condition.evaluate(&mut self.environment).map_err(failed)?.truth();
                return Ok((!holds).then_some(*otherwise));
            }
            Action::Jump(to) => return Ok(Some(*to)),
            Action::StartPipeline if progress.pipeline.is_some() => {
                return Err(failed("the pipeline has been started already".to_owned()));
            }
            Action::StartPipeline => progress.pipeline = Some(0),
            Action::SyncPipeline | Action::EndPipeline => {
                let Some(syncs) = progress.pipeline.take() else {
                    return Err(failed("there is no pipeline".to_owned()));
                };
                session.queue_sync();
                if matches!(command.action, Action::EndPipeline) {
                    session.run_queued(syncs + 1)?;
                } else {
                    progress.pipeline = Some(syncs + 1);
                }
            }
        }
        Ok(None)
    }

    fn send(
        &mut self,
        script: usize,
        number: usize,
        sql: &Sql,
        session: &mut Session,
        progress: &Progress,
    ) -> Result<()> {
        if self.protocol == Protocol::Simple {
            let missing = self.inline(sql);
            // It may be none at all: a colon in a string, for instance.
            let explained = |error: Error| {
                error.reworded(|text| {
                    missing.map_or(text.clone(), |name| format!("{text}\n{}", undefined(name)))
                })
            };
            return match &sql.stores {
                None => session.simple(&self.sql).map_err(explained),
                Some(store) => {
                    let results = session.simple_results(&self.sql).map_err(explained)?;
                    self.environment.store(store, results).map_err(Error::Failed)
                }
            };
        }
        self.collect(sql)?;
        let name = format!("P{script}_{number}");
        let statement = if self.protocol == Protocol::Prepared {
            if !std::mem::replace(&mut self.prepared[script][number], true) {
                session.queue_prepare(&name, &sql.numbered)?;
            }
            Statement::Name(&name)
        } else {
            Statement::Text(&sql.numbered)
        };
        session.queue(statement, &self.parameters)?;
        if progress.pipeline.is_some() {
            return if session.queued() > MAX_PIPELINE {
                Err(Error::Failed(format!(
                    "more than {MAX_PIPELINE} bytes in a pipeline are more than is supported"
                )))
            } else {
                Ok(())
            };
        }
        match &sql.stores {
            None => {
                session.queue_sync();
                session.run_queued(1)
            }
            Some(store) => {
                let results = session.finish_with_results()?;
                self.environment.store(store, results).map_err(Error::Failed)
            }
        }
    }

    /// The statement with its values; a variable that is not there stays as it is written. The first of these.
    fn inline<'a>(&mut self, sql: &'a Sql) -> Option<&'a str> {
        let mut missing = None;
        self.sql.clear();
        self.sql.push_str(&sql.pieces[0]);
        for (name, piece) in sql.variables.iter().zip(&sql.pieces[1..]) {
            if !self.environment.write(name, &mut self.sql) {
                missing = missing.or(Some(name.as_str()));
                self.sql.push(':');
                self.sql.push_str(name);
            }
            self.sql.push_str(piece);
        }
        missing
    }

    /// The statement's values. pgbench sends NULL for a variable that is not there, which measures another statement than
    /// the one that is meant.
    fn collect(&mut self, sql: &Sql) -> Result<()> {
        self.parameters.resize(sql.variables.len(), None);
        for (name, parameter) in sql.variables.iter().zip(&mut self.parameters) {
            let text = parameter.get_or_insert_default();
            text.clear();
            if !self.environment.write(name, text) {
                return Err(Error::Failed(undefined(name)));
            }
        }
        Ok(())
    }
}

fn undefined(name: &str) -> String {
    format!("there is no variable {name}: \\set it before, or define it with -D {name}=VALUE")
}

fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(NAP));
        check_interrupted()?;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;
    use crate::cluster::Cluster;

    fn pg_config() -> String {
        std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned())
    }

    /// A plan with one script of this text.
    fn plan(text: &str, protocol: Protocol, definitions: &[(&str, &str)]) -> Plan {
        let mut plan =
            Arguments::parse_from(["pgss_rs_load", "throughput", "--seed=1"]).plans(1).unwrap().remove(0);
        let script = Arc::new(Script::parse(text).unwrap());
        script.runs_in(protocol).unwrap();
        plan.protocol = protocol;
        plan.request.scripts =
            vec![crate::options::Weighted { file: "test.sql".to_owned(), weight: 1, script }];
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        plan.request.definitions = definitions.iter().map(owned).collect();
        plan
    }

    #[test]
    fn scripts_run_in_every_protocol() {
        let cluster = Cluster::builder(pg_config()).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        session.execute("CREATE TABLE seen (what text, n int)").unwrap();
        let text = "\\set i :start + 2
            SELECT 40 + :i AS answer, 'x' AS word \\gset r_
            \\if :r_answer = 45
            INSERT INTO seen VALUES ('then', :r_answer);
            \\elif :i = 3
            INSERT INTO seen VALUES ('elif', :i);
            \\else
            INSERT INTO seen VALUES ('else', :i);
            \\endif
            \\sleep 1 us";
        for (protocol, start, expected) in [
            (Protocol::Simple, "3", "then 45"),
            (Protocol::Extended, "1", "elif 3"),
            (Protocol::Prepared, "0", "else 2"),
        ] {
            session.execute("TRUNCATE seen").unwrap();
            let plan = plan(text, protocol, &[("start", start)]);
            let mut player = Player::new(&plan, 0, 1);
            for _ in 0..3 {
                assert_eq!(player.play(&mut session).unwrap(), Played { sent: 2, committed: true });
            }
            let rows =
                session.query("SELECT DISTINCT what || ' ' || n, count(*) FROM seen GROUP BY 1").unwrap();
            assert_eq!(rows, [[Some(expected.to_owned()), Some("3".to_owned())]], "{protocol:?}");
        }
    }

    #[test]
    fn a_pipeline_is_sent_at_once_and_its_errors_are_told() {
        let cluster = Cluster::builder(pg_config()).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        session.execute("CREATE TABLE p (n int)").unwrap();
        let text = "\\startpipeline\nINSERT INTO p VALUES (1);\nINSERT INTO p VALUES (:two);\n\\syncpipeline\n\
                    SELECT 1;\n\\endpipeline";
        for protocol in [Protocol::Extended, Protocol::Prepared] {
            let mut player = Player::new(&plan(text, protocol, &[("two", "2")]), 0, 1);
            assert_eq!(player.play(&mut session).unwrap().sent, 3);
        }
        assert_eq!(session.query("SELECT sum(n) FROM p").unwrap(), [[Some("6".to_owned())]]);

        let mut player = Player::new(&plan(text, Protocol::Extended, &[("two", "much")]), 0, 1);
        let error = player.play(&mut session).unwrap_err().to_string();
        assert!(error.starts_with("test.sql:6: ERROR 22P02"), "{error}");
        session.execute("SELECT 1").unwrap();
    }

    #[test]
    fn what_goes_wrong_is_told_with_file_and_line() {
        let cluster = Cluster::builder(pg_config()).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        for (text, expected) in [
            ("SELECT 1;\n\\set x 1 / 0", "test.sql:2: division by zero"),
            ("SELECT 1;\nSELECT 1/0;", "test.sql:2: ERROR 22012"),
            ("SELECT 1 WHERE false \\gset", "test.sql:1: \\gset needs one row, and there were 0"),
            ("SELECT 1 AS \"a b\" \\gset", "test.sql:1: \"a b\" is no name"),
            ("SELECT 1;\n\\set x :nosuch", "test.sql:2: there is no variable nosuch"),
            ("SELECT 1;\n\\set x :text + 1", "test.sql:2: the value of text is neither a number"),
            ("SELECT :nosuch;", "test.sql:1: ERROR 42601"),
        ] {
            let mut player = Player::new(&plan(text, Protocol::Simple, &[("text", "x")]), 0, 1);
            let error = player.play(&mut session).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert_eq!(error.contains("-D nosuch=VALUE"), text.contains("nosuch"), "{error}");
        }
        for protocol in [Protocol::Extended, Protocol::Prepared] {
            let mut player = Player::new(&plan("SELECT 1;\nSELECT :nosuch;", protocol, &[]), 0, 1);
            let error = player.play(&mut session).unwrap_err().to_string();
            assert!(error.starts_with("test.sql:2: there is no variable nosuch"), "{error}");
        }
        // What only looks like a variable is none of ours.
        let mut player = Player::new(&plan("SELECT 'a :b';", Protocol::Simple, &[]), 0, 1);
        assert!(player.play(&mut session).unwrap().committed);
    }

    #[test]
    fn a_conflict_ends_the_transaction_and_not_the_run() {
        let cluster = Cluster::builder(pg_config()).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        session.execute("CREATE TABLE c (n int); INSERT INTO c VALUES (0)").unwrap();
        let text = "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT n FROM c;\nDO $$BEGIN IF :conflict THEN RAISE \
                    SQLSTATE '40001'; END IF; END$$;\nUPDATE c SET n = n + 1;\nEND;";
        for (conflict, expected) in
            [("true", Played { sent: 3, committed: false }), ("false", Played { sent: 5, committed: true })]
        {
            let mut player = Player::new(&plan(text, Protocol::Simple, &[("conflict", conflict)]), 0, 1);
            assert_eq!(player.play(&mut session).unwrap(), expected);
        }
        assert_eq!(session.query("SELECT n FROM c").unwrap(), [[Some("1".to_owned())]]);
    }

    #[test]
    fn joined_statements_store_what_was_asked_for() {
        let cluster = Cluster::builder(pg_config()).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        let text = "SELECT 1 AS a \\; SELECT 2 AS b WHERE false \\; SELECT 3 AS c \\aset\n\
                    SELECT 7 AS a \\; SELECT 8 AS d \\gset\nSELECT :a / (:a - 1 + :c - 3 + :d - 8);";
        let mut player = Player::new(&plan(text, Protocol::Simple, &[]), 0, 1);
        // a is 1, c is 3 and d is 8, so the last statement divides by zero.
        let error = player.play(&mut session).unwrap_err().to_string();
        assert!(error.starts_with("test.sql:3: ERROR 22012"), "{error}");
    }

    #[test]
    fn scripts_come_by_their_weights() {
        let mut plan = plan("SELECT 1;", Protocol::Simple, &[]);
        let one = plan.request.scripts[0].clone();
        plan.request.scripts =
            [3, 0, 1].into_iter().map(|weight| crate::options::Weighted { weight, ..one.clone() }).collect();
        let mut player = Player::new(&plan, 0, 1);
        let mut counts = [0; 3];
        (0..40_000).for_each(|_| counts[player.draw()] += 1);
        assert!((29_500..30_500).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
    }
}
