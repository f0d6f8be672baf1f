//! What the sessions run: the workloads, their tables, and the player that sends one transaction after the other.

use std::fmt::Write as _;

use clap::ValueEnum;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::client::Session;
use crate::error::{Result, check_interrupted};

/// Rows of pgbench's tables per unit of scale.
const BRANCHES: i64 = 1;
const TELLERS: i64 = 10;
const ACCOUNTS: i64 = 100_000;
/// The largest amount moved by a TPC-B-like transaction, either way.
const MAX_DELTA: i64 = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// SELECT 1
    #[value(name = "select-1")]
    #[serde(rename = "select-1")]
    Select1,
    /// SELECT now()
    Now,
    /// One row of pgbench_accounts by its key, as pgbench -S
    SelectOnly,
    /// pgbench's default, TPC-B-like transaction: seven statements
    Tpcb,
    /// EXPLAIN of SELECT 1
    ExplainSelect,
    /// EXPLAIN of a table joined with a constant
    ExplainInnerConst,
    /// EXPLAIN of a table left-joined with a constant
    ExplainLeftConst,
    /// EXPLAIN of a table joined with itself
    ExplainSelfJoin,
}

/// How statements reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// One message with the values in the text
    Simple,
    /// Parsed, bound and executed each time
    Extended,
    /// Parsed once, then bound and executed
    Prepared,
}

/// Something drawn anew for each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Account,
    Branch,
    Teller,
    Delta,
}

/// A statement with `$1`, `$2` and so on standing for its variables.
#[derive(Clone, Copy, Debug)]
struct Statement {
    sql: &'static str,
    variables: &'static [Variable],
}

const fn fixed(sql: &'static str) -> Statement {
    Statement { sql, variables: &[] }
}

const TPCB: [Statement; 7] = {
    use Variable::{Account, Branch, Delta, Teller};
    [
        fixed("BEGIN"),
        Statement {
            sql: "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
            variables: &[Delta, Account],
        },
        Statement { sql: "SELECT abalance FROM pgbench_accounts WHERE aid = $1", variables: &[Account] },
        Statement {
            sql: "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
            variables: &[Delta, Teller],
        },
        Statement {
            sql: "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
            variables: &[Delta, Branch],
        },
        Statement {
            sql: "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                  VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
            variables: &[Teller, Branch, Account, Delta],
        },
        fixed("END"),
    ]
};

impl Workload {
    fn statements(self) -> &'static [Statement] {
        match self {
            Workload::Select1 => const { &[fixed("SELECT 1")] },
            Workload::Now => const { &[fixed("SELECT now()")] },
            Workload::SelectOnly => &TPCB[2..3],
            Workload::Tpcb => &TPCB,
            Workload::ExplainSelect => const { &[fixed("EXPLAIN SELECT 1")] },
            Workload::ExplainInnerConst => {
                const { &[fixed("EXPLAIN SELECT * FROM t1 INNER JOIN (SELECT 1 AS x) x ON t1.id = x.x")] }
            }
            Workload::ExplainLeftConst => {
                const { &[fixed("EXPLAIN SELECT * FROM t1 LEFT JOIN (SELECT 1 AS x) x ON t1.id = x.x")] }
            }
            Workload::ExplainSelfJoin => {
                const { &[fixed("EXPLAIN SELECT * FROM t1 INNER JOIN (SELECT * FROM t1) t2 ON t1.id = t2.id")] }
            }
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    pub fn statements_per_transaction(self) -> u32 {
        self.statements().len() as u32
    }

    /// Creates and fills what the statements need.
    pub fn set_up(self, session: &mut Session, scale: u32) -> Result<()> {
        match self {
            Workload::Select1 | Workload::Now | Workload::ExplainSelect => Ok(()),
            Workload::SelectOnly | Workload::Tpcb => create_pgbench_tables(session, i64::from(scale)),
            Workload::ExplainInnerConst | Workload::ExplainLeftConst | Workload::ExplainSelfJoin => {
                session.execute("CREATE TABLE t1 (id int PRIMARY KEY)")
            }
        }
    }
}

impl Protocol {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }
}

/// Tables and contents as `pgbench -i` leaves them, so that results can be compared with pgbench's.
fn create_pgbench_tables(session: &mut Session, scale: i64) -> Result<()> {
    session.execute(
        "CREATE TABLE pgbench_branches (bid int NOT NULL, bbalance int, filler char(88));
         CREATE TABLE pgbench_tellers (tid int NOT NULL, bid int, tbalance int, filler char(84));
         CREATE TABLE pgbench_accounts (aid int NOT NULL, bid int, abalance int, filler char(84));
         CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
    )?;
    for branch in 1..=scale {
        check_interrupted()?;
        let (teller, account) = ((branch - 1) * TELLERS, (branch - 1) * ACCOUNTS);
        session.execute(&format!(
            "INSERT INTO pgbench_branches (bid, bbalance) VALUES ({branch}, 0);
             INSERT INTO pgbench_tellers (tid, bid, tbalance)
                 SELECT {teller} + n, {branch}, 0 FROM generate_series(1, {TELLERS}) n;
             INSERT INTO pgbench_accounts SELECT {account} + n, {branch}, 0, '' FROM generate_series(1, {ACCOUNTS}) n"
        ))?;
    }
    for (table, key) in [("branches", "bid"), ("tellers", "tid"), ("accounts", "aid")] {
        check_interrupted()?;
        session.execute(&format!("ALTER TABLE pgbench_{table} ADD PRIMARY KEY ({key})"))?;
        session.execute(&format!("VACUUM ANALYZE pgbench_{table}"))?;
    }
    session.execute("CHECKPOINT")
}

/// A statement ready to be sent in any protocol.
#[derive(Debug)]
struct Step {
    /// As a prepared statement.
    name: String,
    statement: Statement,
    /// The text around the variables: one piece more than there are variables, in the order of the text.
    pieces: Vec<&'static str>,
    /// The variable after each piece but the last.
    between: Vec<Variable>,
}

impl Step {
    fn new(number: usize, statement: Statement) -> Self {
        let (mut pieces, mut between) = (Vec::new(), Vec::new());
        let mut rest = statement.sql;
        while let Some(at) = rest.find('$') {
            pieces.push(&rest[..at]);
            // No statement has more than nine variables: each is one digit.
            let digit = usize::from(rest.as_bytes()[at + 1] - b'0');
            between.push(statement.variables[digit - 1]);
            rest = &rest[at + 2..];
        }
        pieces.push(rest);
        Step { name: format!("s{number}"), statement, pieces, between }
    }

    fn inline(&self, values: &Values, sql: &mut String) {
        sql.clear();
        for (piece, variable) in self.pieces.iter().zip(&self.between) {
            // Writing to a String cannot fail.
            let _ = write!(sql, "{piece}{}", values.get(*variable));
        }
        sql.push_str(self.pieces[self.between.len()]);
    }
}

/// What the variables stand for in one transaction.
#[derive(Clone, Copy, Debug)]
struct Values {
    account: i64,
    branch: i64,
    teller: i64,
    delta: i64,
}

impl Values {
    fn draw(rng: &mut Xoshiro256PlusPlus, scale: i64) -> Self {
        Values {
            account: rng.random_range(1..=ACCOUNTS * scale),
            branch: rng.random_range(1..=BRANCHES * scale),
            teller: rng.random_range(1..=TELLERS * scale),
            delta: rng.random_range(-MAX_DELTA..=MAX_DELTA),
        }
    }

    fn get(&self, variable: Variable) -> i64 {
        match variable {
            Variable::Account => self.account,
            Variable::Branch => self.branch,
            Variable::Teller => self.teller,
            Variable::Delta => self.delta,
        }
    }
}

/// Runs a workload's transactions in a session.
#[derive(Debug)]
pub struct Player {
    steps: Vec<Step>,
    protocol: Protocol,
    scale: i64,
    rng: Xoshiro256PlusPlus,
    sql: String,
    values: Vec<i64>,
}

impl Player {
    /// Prepares the statements in the session where the protocol wants it.
    pub fn new(
        workload: Workload,
        protocol: Protocol,
        scale: u32,
        seed: u64,
        session: &mut Session,
    ) -> Result<Self> {
        let steps: Vec<Step> =
            workload.statements().iter().enumerate().map(|(n, statement)| Step::new(n, *statement)).collect();
        if protocol == Protocol::Prepared {
            for step in &steps {
                session.prepare(&step.name, step.statement.sql)?;
            }
        }
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Player { steps, protocol, scale: i64::from(scale), rng, sql: String::new(), values: Vec::new() })
    }

    /// One transaction.
    pub fn play(&mut self, session: &mut Session) -> Result<()> {
        let values = Values::draw(&mut self.rng, self.scale);
        for step in &self.steps {
            if self.protocol == Protocol::Simple {
                step.inline(&values, &mut self.sql);
                session.simple(&self.sql)?;
                continue;
            }
            self.values.clear();
            self.values.extend(step.statement.variables.iter().map(|v| values.get(*v)));
            match self.protocol {
                Protocol::Prepared => session.prepared(&step.name, &self.values)?,
                _ => session.extended(step.statement.sql, &self.values)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_inlined_where_their_variables_stand() {
        let values = Values { account: 7, branch: 1, teller: 3, delta: -5 };
        let mut sql = String::new();
        Step::new(0, TPCB[1]).inline(&values, &mut sql);
        assert_eq!(sql, "UPDATE pgbench_accounts SET abalance = abalance + -5 WHERE aid = 7");
        Step::new(0, TPCB[5]).inline(&values, &mut sql);
        assert!(sql.ends_with("VALUES (3, 1, 7, -5, CURRENT_TIMESTAMP)"), "{sql}");
        Step::new(0, TPCB[0]).inline(&values, &mut sql);
        assert_eq!(sql, "BEGIN");
    }

    #[test]
    fn every_variable_stays_within_the_tables() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for _ in 0..10_000 {
            let values = Values::draw(&mut rng, 2);
            assert!((1..=200_000).contains(&values.account));
            assert!((1..=2).contains(&values.branch));
            assert!((1..=20).contains(&values.teller));
            assert!((-5000..=5000).contains(&values.delta));
        }
    }

    #[test]
    fn a_tpcb_transaction_has_seven_statements() {
        assert_eq!(Workload::Tpcb.statements_per_transaction(), 7);
        assert_eq!(Workload::SelectOnly.statements()[0].sql, TPCB[2].sql);
    }

    #[test]
    fn every_workload_runs_in_every_protocol() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let cluster = crate::cluster::Cluster::builder(pg_config).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        Workload::Tpcb.set_up(&mut session, 2).unwrap();
        Workload::ExplainSelfJoin.set_up(&mut session, 1).unwrap();
        for workload in Workload::value_variants() {
            for protocol in Protocol::value_variants() {
                let mut session = Session::connect(&cluster.socket()).unwrap();
                let mut player = Player::new(*workload, *protocol, 2, 1, &mut session).unwrap();
                (0..10).for_each(|_| player.play(&mut session).unwrap());
            }
        }

        let sums = "SELECT (SELECT count(*) FROM pgbench_accounts), count(*), sum(delta),
                        (SELECT sum(abalance) FROM pgbench_accounts),
                        (SELECT sum(tbalance) FROM pgbench_tellers),
                        (SELECT sum(bbalance) FROM pgbench_branches) FROM pgbench_history";
        let row: Vec<String> =
            session.query(sums).unwrap().remove(0).into_iter().map(Option::unwrap).collect();
        assert_eq!(row[..2], ["200000", "30"]);
        assert!(row[3..].iter().all(|sum| *sum == row[2]), "{row:?}");

        let error = session.execute("SELECT 1/0").unwrap_err().to_string();
        assert_eq!(error, "ERROR 22012: division by zero\n  in: SELECT 1/0");
    }
}
