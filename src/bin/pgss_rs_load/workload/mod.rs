//! What the sessions run: the workloads, their tables, and the player that sends one transaction after the other.

mod population;

use std::fmt::Write as _;

use clap::ValueEnum;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::cli::Plan;
use crate::client::Session;
use crate::error::{Result, check_interrupted};
use crate::script;

pub use population::Popularity;
use population::Population;

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
    /// Distinct statements: 80 % from 1,000 hot ones, 20 % from 3 million others
    Churn,
    /// Distinct statements: 4,500, as often each; they fit into the modules' default of 5,000
    WithinMax,
    /// Distinct statements: 4,950 hot ones, as often each, and one in 100,000 that never came before; 5,000 entries are
    /// full after some 5 million transactions
    SlowChurn,
    /// Distinct statements: 100,000, by Zipf's law with exponent 1
    Zipf,
    /// The user's scripts, `--file`
    #[value(skip)]
    Script,
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
            Workload::Churn
            | Workload::WithinMax
            | Workload::SlowChurn
            | Workload::Zipf
            | Workload::Script => &[],
        }
    }

    /// What a workload of many distinct statements draws each of its transactions from. `client`: from 0.
    fn population(self, client: u32) -> Option<Population> {
        match self {
            Workload::Churn => {
                Some(Population::HotAndOthers { hot: 1000, hot_share: 0.8, others: 3_000_000 })
            }
            Workload::WithinMax => Some(Population::Uniform { statements: 4500 }),
            Workload::SlowChurn => Some(Population::hot_and_new(4950, 100_000, client)),
            Workload::Zipf => Some(Population::zipf(100_000, 1.0)),
            _ => None,
        }
    }

    /// Whether each transaction is one of many distinct statements, with a text of its own.
    pub fn is_of_distinct_statements(self) -> bool {
        self.population(0).is_some()
    }

    /// Whether some transactions are [`Popularity::Hot`].
    pub fn has_hot_statements(self) -> bool {
        self.population(0).is_some_and(|population| population.has_hot())
    }

    /// What users expect of it: a text that comes once is not prepared, and scripts run as pgbench runs them.
    pub fn default_protocol(self) -> Protocol {
        // pg_stat_statements counts a prepared utility statement once, however often it is executed
        if self.is_of_distinct_statements() || self.explains() || self == Workload::Script {
            Protocol::Simple
        } else {
            Protocol::Prepared
        }
    }

    fn explains(self) -> bool {
        matches!(
            self,
            Workload::ExplainSelect
                | Workload::ExplainInnerConst
                | Workload::ExplainLeftConst
                | Workload::ExplainSelfJoin
        )
    }

    pub fn runs_in(self, protocol: Protocol) -> bool {
        protocol != Protocol::Prepared || !self.is_of_distinct_statements()
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(|| "script".to_owned(), |v| v.get_name().to_owned())
    }

    /// How many a transaction is taken for when a slice is cut; scripts may have more or fewer.
    pub fn statements_per_transaction(self) -> u32 {
        self.statements().len().max(1) as u32
    }

    /// Whether its statements need tables.
    pub fn needs_tables(self) -> bool {
        matches!(
            self,
            Workload::SelectOnly
                | Workload::Tpcb
                | Workload::Script
                | Workload::ExplainInnerConst
                | Workload::ExplainLeftConst
                | Workload::ExplainSelfJoin
        )
    }

    /// Creates and fills what the statements need; scripts get pgbench's tables if they name them.
    pub fn set_up(self, session: &mut Session, scale: u32) -> Result<()> {
        match self {
            Workload::Select1 | Workload::Now | Workload::ExplainSelect | Workload::Script => Ok(()),
            Workload::Churn | Workload::WithinMax | Workload::SlowChurn | Workload::Zipf => Ok(()),
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
pub fn create_pgbench_tables(session: &mut Session, scale: i64) -> Result<()> {
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
    Ok(())
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

    /// `sql`, `numbers`: room that is used again.
    fn send(
        &self,
        protocol: Protocol,
        values: &Values,
        sql: &mut String,
        numbers: &mut Vec<i64>,
        session: &mut Session,
    ) -> Result<()> {
        if protocol == Protocol::Simple {
            self.inline(values, sql);
            return session.simple(sql);
        }
        numbers.clear();
        numbers.extend(self.statement.variables.iter().map(|v| values.get(*v)));
        match protocol {
            Protocol::Prepared => session.prepared(&self.name, numbers),
            _ => session.extended(self.statement.sql, numbers),
        }
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
    program: Program,
    protocol: Protocol,
    rng: Xoshiro256PlusPlus,
    sql: String,
    values: Vec<i64>,
    sent: u64,
}

/// What a transaction is made from.
#[derive(Debug)]
enum Program {
    /// The same statements each time, with other values.
    Steps {
        steps: Vec<Step>,
        scale: i64,
    },
    /// One of many statements.
    Distinct(Population),
    Scripts(Box<script::Player>),
}

impl Player {
    /// Prepares the statements in the session where the protocol wants it. `client`: from 0, among those of a server.
    pub fn new(plan: &Plan, client: u32, session: &mut Session) -> Result<Self> {
        let Plan { workload, protocol, scale, .. } = *plan;
        let seed = plan.seed_of_load(client);
        let program = match workload.population(client) {
            _ if workload == Workload::Script => {
                Program::Scripts(Box::new(script::Player::new(plan, client, seed)))
            }
            Some(population) => Program::Distinct(population),
            None => Program::Steps { steps: steps(workload, protocol, session)?, scale: i64::from(scale) },
        };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Player { program, protocol, rng, sql: String::new(), values: Vec::new(), sent: 0 })
    }

    /// One transaction.
    pub fn play(&mut self, session: &mut Session) -> Result<Popularity> {
        match &mut self.program {
            Program::Steps { steps, scale } => {
                let values = Values::draw(&mut self.rng, *scale);
                for step in steps.iter() {
                    self.sent += 1;
                    step.send(self.protocol, &values, &mut self.sql, &mut self.values, session)?;
                }
                Ok(Popularity::Other)
            }
            Program::Distinct(population) => {
                let drawn = population.draw(&mut self.rng);
                drawn.write(&mut self.sql);
                self.sent += 1;
                match self.protocol {
                    Protocol::Simple => session.simple(&self.sql)?,
                    // Its text is another one each time: there is nothing to prepare.
                    Protocol::Extended | Protocol::Prepared => session.extended::<i64>(&self.sql, &[])?,
                }
                Ok(drawn.popularity)
            }
            Program::Scripts(player) => {
                let played = player.play(session)?;
                self.sent += played.sent;
                Ok(if played.committed { Popularity::Other } else { Popularity::None })
            }
        }
    }

    /// Statements executed so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

fn steps(workload: Workload, protocol: Protocol, session: &mut Session) -> Result<Vec<Step>> {
    let steps: Vec<Step> =
        workload.statements().iter().enumerate().map(|(n, statement)| Step::new(n, *statement)).collect();
    if protocol == Protocol::Prepared {
        for step in &steps {
            session.prepare(&step.name, step.statement.sql)?;
        }
    }
    Ok(steps)
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
    fn only_workloads_of_distinct_statements_cannot_be_prepared() {
        let allowed = |workload: Workload| {
            let protocols = Protocol::value_variants().iter().filter(|p| workload.runs_in(**p));
            protocols.map(|p| p.name()).collect::<Vec<_>>()
        };
        for workload in Workload::value_variants() {
            let expected = match workload {
                Workload::Churn | Workload::WithinMax | Workload::SlowChurn | Workload::Zipf => {
                    &["simple", "extended"][..]
                }
                _ => &["simple", "extended", "prepared"],
            };
            assert_eq!(allowed(*workload), expected, "{workload:?}");
            assert!(workload.runs_in(workload.default_protocol()), "{workload:?}");
        }
    }

    #[test]
    fn each_distinct_statement_has_an_entry_of_its_own() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let builder =
            crate::cluster::Cluster::builder(pg_config).setting("shared_preload_libraries", "pgss_rs");
        let cluster = builder.start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        session.execute("CREATE EXTENSION pgss_rs").unwrap();
        let mut sql = String::new();
        for protocol in [Protocol::Simple, Protocol::Extended] {
            for number in 0..300 {
                population::Drawn { number, popularity: Popularity::Other }.write(&mut sql);
                match protocol {
                    Protocol::Simple => session.simple(&sql).unwrap(),
                    _ => session.extended::<i64>(&sql, &[]).unwrap(),
                }
            }
        }
        let counts = "SELECT count(*), count(DISTINCT queryid), min(calls), max(calls) FROM pgss_rs_stats
                      WHERE query LIKE 'WITH c% AS (SELECT $1 AS n) SELECT n FROM c%'";
        let row: Vec<String> =
            session.query(counts).unwrap().remove(0).into_iter().map(Option::unwrap).collect();
        assert_eq!(row, ["300", "300", "2", "2"]);
    }

    /// At scale 2.
    fn plan(workload: Workload, protocol: Protocol) -> Plan {
        use clap::Parser;
        let arguments = ["pgss_rs_load", "throughput", "--scale=2"];
        let mut plan = crate::cli::Arguments::parse_from(arguments).plans(1).unwrap().remove(0);
        (plan.workload, plan.protocol) = (workload, protocol);
        plan
    }

    #[test]
    fn every_workload_runs_in_every_protocol_it_allows() {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        let cluster = crate::cluster::Cluster::builder(pg_config).start().unwrap();
        let mut session = Session::connect(&cluster.socket()).unwrap();
        Workload::Tpcb.set_up(&mut session, 2).unwrap();
        Workload::ExplainSelfJoin.set_up(&mut session, 1).unwrap();
        for workload in Workload::value_variants() {
            for protocol in Protocol::value_variants().iter().filter(|p| workload.runs_in(**p)) {
                let mut session = Session::connect(&cluster.socket()).unwrap();
                let plan = plan(*workload, *protocol);
                let mut player = Player::new(&plan, 0, &mut session).unwrap();
                for _ in 0..10 {
                    player.play(&mut session).unwrap();
                }
                assert_eq!(player.sent(), 10 * u64::from(workload.statements_per_transaction()));
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
