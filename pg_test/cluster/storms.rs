//! Random programs of nested functions, exception blocks, loops, savepoints, procedures that end transactions, and
//! errors at every stage, against a model of what is to be counted: calls, failures, classes of SQLSTATE, and levels.
//!
//! `PGSS_RS_PROGRAMS` says how many programs are run (`make torture` runs hundreds), `PGSS_RS_SEED` with which seed the
//! first is made: that of a program that failed repeats it.

use std::collections::BTreeMap;
use std::fmt::Write;

use postgres::Client;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::servers::{ALONE, Database};

/// A statement has a table of its own, `s` and this number, of one row, by which its entry is known.
type Site = usize;
/// Number of a function, `f`, or procedure, `p`. Bodies call those of higher numbers only.
type Routine = usize;

#[derive(Clone, Debug)]
enum Op {
    Succeeds(Good, Site),
    Fails(Bad, Site),
    /// `RAISE EXCEPTION`, which is no statement of its own.
    Raises,
    /// `RAISE WARNING` with an error's code.
    Warns,
    Calls(How, Routine, Site),
    /// A loop over the two rows of a query.
    Loops(Site, Vec<Op>),
    Block(Vec<Op>, Handler),
    /// `COMMIT`, or else `ROLLBACK`.
    Ends(bool),
}

#[derive(Clone, Copy, Debug)]
enum Good {
    Select,
    Dynamic,
    Update,
    Lock,
}

/// When, or how, a statement fails.
#[derive(Clone, Copy, Debug)]
enum Bad {
    /// Before it has an identifier: it counts nowhere.
    Analysed,
    Planned,
    Started,
    Run,
    RunDynamic,
    RunInLoop,
    Finished,
    Utility,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Perform,
    /// An expression is no statement.
    Expression,
    BeforeTrigger,
    AfterTrigger,
    /// Of a procedure.
    Call,
}

#[derive(Clone, Debug)]
enum Handler {
    Then(Vec<Op>),
    /// Only what succeeds: an error that is caught in a handler leaves its class to the one that is raised again.
    Reraises(Vec<Op>),
    RaisesAnother,
    MatchesNothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Function,
    Sql,
    Procedure,
}

#[derive(Debug)]
struct Program {
    routines: Vec<(Kind, Vec<Op>)>,
    script: Vec<Unit>,
    /// Number of sites, and what their tables need beside a row.
    sites: Vec<Extra>,
}

#[derive(Clone, Copy, Debug)]
enum Extra {
    Nothing,
    /// Not even SELECT is granted.
    Denied,
    /// A foreign key.
    References,
    /// A trigger that calls the function.
    Trigger(&'static str, Routine),
}

/// A piece of what the client does.
#[derive(Debug)]
enum Unit {
    Alone(Op, Protocol),
    /// In a transaction block, each behind a savepoint that is rolled back to after an error.
    Savepoints(Vec<Op>, bool),
    /// In a transaction block that what follows an error is refused in.
    Block(Vec<Op>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Protocol {
    Simple,
    Extended,
}

struct Maker {
    random: SmallRng,
    sites: Vec<Extra>,
    kinds: Vec<Kind>,
}

impl Maker {
    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn site(&mut self, extra: Extra) -> Site {
        self.sites.push(extra);
        self.sites.len() - 1
    }

    fn program(seed: u64) -> Program {
        let mut maker = Maker { random: SmallRng::seed_from_u64(seed), sites: Vec::new(), kinds: Vec::new() };
        let count = 4 + maker.below(5);
        maker.kinds = (0..count)
            .map(|_| maker.pick(&[Kind::Function, Kind::Function, Kind::Sql, Kind::Procedure]))
            .collect();
        let routines = (0..count).map(|n| (maker.kinds[n], maker.body(n))).collect();
        let script = (0..10).map(|_| maker.unit()).collect();
        Program { routines, script, sites: maker.sites }
    }

    fn body(&mut self, routine: Routine) -> Vec<Op> {
        match self.kinds[routine] {
            Kind::Sql => (0..1 + self.below(3)).map(|_| self.sql(routine + 1)).collect(),
            kind => self.ops(routine + 1, 2, kind == Kind::Procedure),
        }
    }

    /// What a function in SQL may have. Before 18 all of it is planned before the first statement is executed.
    fn sql(&mut self, first: Routine) -> Op {
        match self.below(4) {
            0 => self.fails(&[Bad::Run]),
            1 => self.calls(&[How::Perform], first),
            _ => Op::Succeeds(Good::Select, self.site(Extra::Nothing)),
        }
    }

    fn ops(&mut self, first: Routine, depth: usize, ends: bool) -> Vec<Op> {
        (0..1 + self.below(4)).map(|_| self.op(first, depth, ends)).collect()
    }

    fn op(&mut self, first: Routine, depth: usize, ends: bool) -> Op {
        match self.below(if depth > 0 { 16 } else { 10 }) {
            0 if ends || self.one_in(8) => Op::Ends(self.one_in(2)),
            0..=2 => self.succeeds(),
            3 if self.one_in(4) => Op::Raises,
            3 if self.one_in(3) => Op::Warns,
            3 => self.fails(&ANY_FAILURE),
            4..=9 => self.calls(&ANY_CALL, first),
            10..=11 => {
                let site = self.site(Extra::Nothing);
                Op::Loops(site, self.ops(first, depth - 1, ends))
            }
            _ => {
                let body = self.ops(first, depth - 1, ends);
                Op::Block(body, self.handler(first, depth - 1))
            }
        }
    }

    fn handler(&mut self, first: Routine, depth: usize) -> Handler {
        match self.below(6) {
            0 => Handler::Reraises((0..self.below(3)).map(|_| self.succeeds()).collect()),
            1 => Handler::RaisesAnother,
            2 => Handler::MatchesNothing,
            _ => Handler::Then(self.ops(first, depth, false)),
        }
    }

    fn succeeds(&mut self) -> Op {
        let good = self.pick(&[Good::Select, Good::Dynamic, Good::Update, Good::Lock]);
        Op::Succeeds(good, self.site(Extra::Nothing))
    }

    fn fails(&mut self, ways: &[Bad]) -> Op {
        let bad = self.pick(ways);
        let extra = match bad {
            Bad::Started => Extra::Denied,
            Bad::Finished => Extra::References,
            _ => Extra::Nothing,
        };
        Op::Fails(bad, self.site(extra))
    }

    /// A call of a routine from `first` on; something simple where there is none that can be called so.
    fn calls(&mut self, ways: &[How], first: Routine) -> Op {
        let how = self.pick(ways);
        let callable = |kind| (kind == Kind::Procedure) == matches!(how, How::Call);
        let known: Vec<Routine> = (first..self.kinds.len()).filter(|n| callable(self.kinds[*n])).collect();
        if known.is_empty() {
            return Op::Succeeds(Good::Select, self.site(Extra::Nothing));
        }
        let routine = self.pick(&known);
        let extra = match how {
            How::BeforeTrigger => Extra::Trigger("BEFORE", routine),
            How::AfterTrigger => Extra::Trigger("AFTER", routine),
            _ => Extra::Nothing,
        };
        Op::Calls(how, routine, self.site(extra))
    }

    fn unit(&mut self) -> Unit {
        match self.below(4) {
            0 => Unit::Savepoints((0..3).map(|_| self.top()).collect(), self.one_in(2)),
            1 => Unit::Block((0..3).map(|_| self.top()).collect()),
            _ => Unit::Alone(self.top(), self.pick(&[Protocol::Simple, Protocol::Extended])),
        }
    }

    /// What a client may send.
    fn top(&mut self) -> Op {
        match self.below(6) {
            0 => Op::Succeeds(self.pick(&[Good::Select, Good::Update]), self.site(Extra::Nothing)),
            1 => self.fails(&[
                Bad::Analysed,
                Bad::Planned,
                Bad::Started,
                Bad::Run,
                Bad::Finished,
                Bad::Utility,
            ]),
            _ => self.calls(&[How::Perform, How::BeforeTrigger, How::AfterTrigger, How::Call, How::Call], 0),
        }
    }
}

const ANY_FAILURE: [Bad; 8] = [
    Bad::Analysed,
    Bad::Planned,
    Bad::Started,
    Bad::Run,
    Bad::RunDynamic,
    Bad::RunInLoop,
    Bad::Finished,
    Bad::Utility,
];
const ANY_CALL: [How; 6] =
    [How::Perform, How::Perform, How::Expression, How::BeforeTrigger, How::AfterTrigger, How::Call];

/// As SQL; in PL/pgSQL a SELECT is a PERFORM.
fn statement(op: &Op, select: &str) -> String {
    match op {
        Op::Succeeds(Good::Dynamic, site) => format!("EXECUTE 'SELECT a FROM s{site}'"),
        Op::Succeeds(Good::Update, site) => format!("UPDATE s{site} SET a = a"),
        Op::Succeeds(Good::Lock, site) => format!("LOCK TABLE s{site} IN ACCESS SHARE MODE"),
        Op::Succeeds(Good::Select, site) | Op::Fails(Bad::Started, site) => {
            format!("{select} a FROM s{site}")
        }
        Op::Fails(Bad::Analysed, site) => format!("{select} nonsense FROM s{site}"),
        Op::Fails(Bad::Planned, site) => format!("{select} 1 / 0 FROM s{site}"),
        Op::Fails(Bad::Run, site) => format!("{select} 1 / (a - a) FROM s{site}"),
        Op::Fails(Bad::RunDynamic, site) => format!("EXECUTE 'SELECT 1 / (a - a) FROM s{site}'"),
        Op::Fails(Bad::RunInLoop, site) => {
            format!("FOR r IN SELECT 1 / (a - a) AS a FROM s{site} LOOP NULL; END LOOP")
        }
        Op::Fails(Bad::Finished, site) => format!("INSERT INTO s{site} VALUES (77)"),
        Op::Fails(Bad::Utility, site) => format!("ALTER TABLE s{site} ADD COLUMN a int"),
        Op::Calls(How::Perform, routine, site) => format!("{select} f{routine}() FROM s{site}"),
        Op::Calls(How::Expression, routine, _) => format!("x := f{routine}()"),
        Op::Calls(How::BeforeTrigger | How::AfterTrigger, _, site) => format!("UPDATE s{site} SET a = a"),
        Op::Calls(How::Call, routine, _) => format!("CALL p{routine}()"),
        Op::Raises => "RAISE EXCEPTION 'x' USING ERRCODE = '23505'".to_owned(),
        Op::Warns => "RAISE WARNING 'x' USING ERRCODE = '22012'".to_owned(),
        Op::Ends(true) => "COMMIT".to_owned(),
        Op::Ends(false) => "ROLLBACK".to_owned(),
        Op::Loops(site, body) => {
            format!("FOR r IN SELECT a FROM s{site}, generate_series(1, 2) LOOP {} END LOOP", plpgsql(body))
        }
        Op::Block(body, handler) => {
            let (condition, handler) = match handler {
                Handler::Then(ops) => ("OTHERS", plpgsql(ops)),
                Handler::Reraises(ops) => ("OTHERS", plpgsql(ops) + "RAISE;"),
                Handler::RaisesAnother => ("OTHERS", plpgsql(&[Op::Raises])),
                Handler::MatchesNothing => ("disk_full", String::new()),
            };
            format!("BEGIN {} EXCEPTION WHEN {condition} THEN {handler} END", plpgsql(body))
        }
    }
}

fn plpgsql(ops: &[Op]) -> String {
    ops.iter().map(|op| statement(op, "PERFORM") + "; ").collect()
}

impl Program {
    /// What makes the tables and routines.
    fn definitions(&self) -> String {
        let mut sql = String::from(
            "CREATE TABLE referenced (a int PRIMARY KEY); INSERT INTO referenced VALUES (1); GRANT ALL ON referenced TO stormy;",
        );
        for (site, extra) in self.sites.iter().enumerate() {
            let column =
                if matches!(extra, Extra::References) { "a int REFERENCES referenced" } else { "a int" };
            write!(sql, "CREATE TABLE s{site} ({column}); INSERT INTO s{site} VALUES (1);").unwrap();
            if !matches!(extra, Extra::Denied) {
                write!(sql, "GRANT ALL ON s{site} TO stormy;").unwrap();
            }
        }
        for (n, (kind, ops)) in self.routines.iter().enumerate() {
            match kind {
                Kind::Function => {
                    let body = plpgsql(ops);
                    write!(
                        sql,
                        "CREATE FUNCTION f{n}() RETURNS int LANGUAGE plpgsql AS
                         $$ DECLARE x int; r record; BEGIN {body} RETURN 1; END $$;"
                    )
                }
                Kind::Procedure => {
                    let body = plpgsql(ops);
                    write!(
                        sql,
                        "CREATE PROCEDURE p{n}() LANGUAGE plpgsql AS
                         $$ DECLARE x int; r record; BEGIN {body} NULL; END $$;"
                    )
                }
                Kind::Sql => {
                    let body: String = ops.iter().map(|op| statement(op, "SELECT") + "; ").collect();
                    write!(
                        sql,
                        "SET check_function_bodies = off;
                         CREATE FUNCTION f{n}() RETURNS int LANGUAGE sql VOLATILE AS
                         $$ {body} SELECT 1 FROM referenced $$;"
                    )
                }
            }
            .unwrap();
        }
        for (site, extra) in self.sites.iter().enumerate() {
            if let Extra::Trigger(when, routine) = extra {
                write!(
                    sql,
                    "CREATE FUNCTION t{site}() RETURNS trigger LANGUAGE plpgsql AS
                     $$ DECLARE x int; BEGIN x := f{routine}(); RETURN NEW; END $$;
                     CREATE TRIGGER t {when} UPDATE ON s{site} FOR EACH ROW EXECUTE FUNCTION t{site}();"
                )
                .unwrap();
            }
        }
        sql
    }
}

/// What is counted of one statement, at one level.
#[derive(Clone, Default, PartialEq, Debug)]
struct Counted {
    calls: u64,
    errors: BTreeMap<&'static str, u64>,
}

/// By name of the table or procedure in the text, and level.
type Counts = BTreeMap<(String, bool), Counted>;

/// Classes of SQLSTATE. Entries have places for four.
type Class = &'static str;
const DATA: Class = "22";
const CONSTRAINT: Class = "23";
const DENIED: Class = "42";
const TERMINATION: Class = "2D";

/// What a server with these settings counts.
#[derive(Clone, Copy, Debug)]
struct Mode {
    settings: &'static [&'static str],
    /// Whether what is executed to its end is counted, or only what fails.
    calls: bool,
    nested: bool,
    /// Whether the client's statements in the simple protocol have identifiers.
    simple: bool,
}

const MODES: &[Mode] = &[
    Mode { settings: &["pgss_rs.track=all"], calls: true, nested: true, simple: true },
    Mode {
        settings: &["pgss_rs.track=all", "pgss_rs.track_planning=on", "pgss_rs.timing_clock_source=system"],
        calls: true,
        nested: true,
        simple: true,
    },
    // everything is slow
    Mode {
        settings: &["pgss_rs.track=all", "pgss_rs.sample_rate=0", "pgss_rs.sample_slow_ms=0"],
        calls: true,
        nested: true,
        simple: true,
    },
    Mode { settings: &["pgss_rs.track=top"], calls: true, nested: false, simple: true },
    // nothing is drawn
    Mode {
        settings: &["pgss_rs.track=all", "pgss_rs.sample_rate=1e-12"],
        calls: false,
        nested: true,
        simple: false,
    },
    Mode {
        settings: &["pgss_rs.track=all", "pgss_rs.sample_rate=1e-12", "compute_query_id=on"],
        calls: false,
        nested: true,
        simple: true,
    },
    // nothing is slow
    Mode {
        settings: &["pgss_rs.track=all", "pgss_rs.sample_rate=0", "pgss_rs.sample_slow_ms=1000000"],
        calls: false,
        nested: true,
        simple: true,
    },
];

struct Model<'a> {
    program: &'a Program,
    counts: Counts,
    mode: Mode,
    /// The client's statement is known by its identifier.
    identified: bool,
    level: u32,
    /// What may not end transactions: functions, transaction blocks.
    atomic: bool,
    /// Exception blocks that are open.
    blocks: u32,
    /// Loops that are open: their site, and whether the execution has ended, as it does when a transaction ends in there.
    loops: Vec<(Site, u32, bool)>,
    steps: usize,
}

impl Model<'_> {
    fn counted(&mut self, name: String, level: u32) -> Option<&mut Counted> {
        let counts = if level == 0 { self.identified } else { self.mode.nested };
        counts.then(|| self.counts.entry((name, level == 0)).or_default())
    }

    fn succeeded(&mut self, name: String, level: u32) {
        if self.mode.calls
            && let Some(counted) = self.counted(name, level)
        {
            counted.calls += 1;
        }
    }

    fn failed(&mut self, name: String, class: Class) -> Class {
        let level = self.level;
        if let Some(counted) = self.counted(name, level) {
            *counted.errors.entry(class).or_default() += 1;
        }
        class
    }

    /// The statement with this name does `work`, nested in it.
    fn execute(
        &mut self,
        name: String,
        work: impl FnOnce(&mut Self) -> Result<(), Class>,
    ) -> Result<(), Class> {
        self.level += 1;
        let result = work(self);
        self.level -= 1;
        match result {
            Ok(()) => {
                self.succeeded(name, self.level);
                Ok(())
            }
            Err(class) => Err(self.failed(name, class)),
        }
    }

    fn all(&mut self, ops: &[Op]) -> Result<(), Class> {
        ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), Class> {
        self.steps += 1;
        match op {
            Op::Succeeds(_, site) => {
                self.succeeded(format!("s{site}"), self.level);
                Ok(())
            }
            Op::Fails(bad, site) => Err(self.fail(*bad, *site)),
            Op::Raises => Err(CONSTRAINT),
            Op::Warns => Ok(()),
            Op::Calls(How::Call, routine, _) => {
                self.execute(format!("p{routine}"), |model| model.routine(*routine))
            }
            Op::Calls(How::Expression, routine, _) => self.function(*routine),
            Op::Calls(_, routine, site) => self.execute(format!("s{site}"), |model| model.function(*routine)),
            Op::Loops(site, body) => self.loops(*site, body),
            Op::Block(body, handler) => self.block(body, handler),
            Op::Ends(_) if self.atomic || self.blocks > 0 => Err(TERMINATION),
            Op::Ends(_) => {
                self.ends();
                Ok(())
            }
        }
    }

    fn fail(&mut self, bad: Bad, site: Site) -> Class {
        let class = match bad {
            Bad::Analysed => return DENIED,
            Bad::Planned | Bad::Run | Bad::RunDynamic | Bad::RunInLoop => DATA,
            Bad::Started | Bad::Utility => DENIED,
            Bad::Finished => CONSTRAINT,
        };
        self.failed(format!("s{site}"), class)
    }

    fn routine(&mut self, routine: Routine) -> Result<(), Class> {
        let program = self.program;
        self.all(&program.routines[routine].1)
    }

    fn function(&mut self, routine: Routine) -> Result<(), Class> {
        let atomic = std::mem::replace(&mut self.atomic, true);
        let result = self.routine(routine);
        self.atomic = atomic;
        result
    }

    fn loops(&mut self, site: Site, body: &[Op]) -> Result<(), Class> {
        self.loops.push((site, self.level, false));
        let result = self.all(body).and_then(|()| self.all(body));
        let (_, _, ended) = self.loops.pop().unwrap();
        if result.is_ok() && !ended {
            self.succeeded(format!("s{site}"), self.level);
        }
        result
    }

    /// The queries of open loops are run to their end, and what they have left is kept.
    fn ends(&mut self) {
        for n in 0..self.loops.len() {
            let (site, level, ended) = self.loops[n];
            if !ended {
                self.succeeded(format!("s{site}"), level);
                self.loops[n].2 = true;
            }
        }
    }

    fn block(&mut self, body: &[Op], handler: &Handler) -> Result<(), Class> {
        self.blocks += 1;
        let result = self.all(body);
        self.blocks -= 1;
        let Err(class) = result else { return Ok(()) };
        match handler {
            Handler::Then(ops) => self.all(ops),
            Handler::Reraises(ops) => self.all(ops).and(Err(class)),
            Handler::RaisesAnother => Err(CONSTRAINT),
            Handler::MatchesNothing => Err(class),
        }
    }

    fn top(&mut self, op: &Op, protocol: Protocol, in_transaction: bool) -> Result<(), Class> {
        // a CALL by the extended protocol has an identifier as everything prepared has
        self.identified = self.mode.simple || protocol == Protocol::Extended;
        self.atomic = in_transaction;
        self.op(op)
    }

    fn unit(&mut self, unit: &Unit) {
        match unit {
            Unit::Alone(op, protocol) => {
                let _ = self.top(op, *protocol, false);
            }
            Unit::Savepoints(ops, _) => {
                for op in ops {
                    let _ = self.top(op, Protocol::Simple, true);
                }
            }
            Unit::Block(ops) => {
                let _ = ops.iter().try_for_each(|op| self.top(op, Protocol::Simple, true));
            }
        }
        self.identified = self.mode.simple;
        self.succeeded("s_probe".to_owned(), 0);
    }
}

/// What the model counts; `None` where the program takes too long.
fn expected(program: &Program, mode: Mode) -> Option<Counts> {
    let mut model = Model {
        program,
        counts: Counts::new(),
        mode,
        identified: true,
        level: 0,
        atomic: false,
        blocks: 0,
        loops: Vec::new(),
        steps: 0,
    };
    for unit in &program.script {
        model.unit(unit);
        if model.steps > 3000 {
            return None;
        }
    }
    Some(model.counts)
}

fn run(session: &mut Client, unit: &Unit) {
    let sql = |op: &Op| statement(op, "SELECT");
    match unit {
        Unit::Alone(op, Protocol::Simple) => {
            let _ = session.batch_execute(&sql(op));
        }
        Unit::Alone(op, Protocol::Extended) => {
            let _ = session.execute(&sql(op), &[]);
        }
        Unit::Savepoints(ops, commit) => {
            session.batch_execute("BEGIN").unwrap();
            for op in ops {
                session.batch_execute("SAVEPOINT s").unwrap();
                let end = if session.batch_execute(&sql(op)).is_ok() { "RELEASE s" } else { "ROLLBACK TO s" };
                session.batch_execute(end).unwrap();
            }
            session.batch_execute(if *commit { "COMMIT" } else { "ROLLBACK" }).unwrap();
        }
        Unit::Block(ops) => {
            session.batch_execute("BEGIN").unwrap();
            for op in ops {
                let _ = session.batch_execute(&sql(op));
            }
            session.batch_execute("COMMIT").unwrap();
        }
    }
    session.batch_execute("SELECT a FROM s_probe").unwrap();
}

/// The first word of the text that names a site or procedure.
fn name_in(query: &str) -> Option<String> {
    let is_name = |word: &str| {
        let number = word.strip_prefix('s').or_else(|| word.strip_prefix('p'));
        number.is_some_and(|n| n == "_probe" || !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    query.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| is_name(word)).map(str::to_owned)
}

fn counted(db: &Database) -> Counts {
    let mut counts = Counts::new();
    let of = format!("FROM pgss_rs_stats s WHERE dbid = {}", db.oid);
    for row in db.ask(&format!("SELECT query, toplevel, calls {of} AND calls + errors > 0")) {
        let [query, toplevel, calls] = row.try_into().unwrap();
        if let Some(name) = name_in(&query.unwrap()) {
            let entry = counts.entry((name, toplevel.as_deref() == Some("t"))).or_default();
            entry.calls += calls.unwrap().parse::<u64>().unwrap();
        }
    }
    let classes = "SELECT s.query, toplevel, sqlstate_class, e.errors FROM pgss_rs_errors() e
                   JOIN pgss_rs_stats s USING (userid, dbid, toplevel, queryid)";
    for row in db.ask(&format!("{classes} WHERE dbid = {}", db.oid)) {
        let [query, toplevel, class, errors] = row.try_into().unwrap();
        if let Some(name) = name_in(&query.unwrap()) {
            let class =
                [DATA, CONSTRAINT, DENIED, TERMINATION].into_iter().find(|c| class.as_deref() == Some(c));
            let entry = counts.entry((name, toplevel.as_deref() == Some("t"))).or_default();
            *entry.errors.entry(class.unwrap_or("another")).or_default() +=
                errors.unwrap().parse::<u64>().unwrap();
        }
    }
    counts
}

fn differences(expected: &Counts, counted: &Counts) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = expected.keys().chain(counted.keys()).collect();
    let differs = names.into_iter().filter(|name| expected.get(name) != counted.get(name));
    differs.map(|n| format!("{n:?}: {:?} is counted as {:?}", expected.get(n), counted.get(n))).collect()
}

fn check(seed: u64) {
    let program = Maker::program(seed);
    if expected(&program, MODES[0]).is_none() {
        return;
    }
    let db = ALONE.database();
    let role =
        "DO $$ BEGIN CREATE ROLE stormy; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$;
                CREATE TABLE s_probe (a int); GRANT SELECT ON s_probe TO stormy;";
    db.prepare(&(role.to_owned() + &program.definitions()));
    for mode in MODES {
        let mut session = db.session_with(mode.settings);
        session.batch_execute("SET ROLE stormy").unwrap();
        db.reset();
        for unit in &program.script {
            run(&mut session, unit);
        }
        let differences = differences(&expected(&program, *mode).unwrap(), &counted(&db));
        assert!(
            differences.is_empty(),
            "PGSS_RS_SEED={seed} PGSS_RS_PROGRAMS=1, {mode:?}:\n{}\n{program:#?}\n{}",
            differences.join("\n"),
            program.definitions().replace("; ", ";\n")
        );
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|n| n.parse().unwrap_or_else(|_| panic!("{name}={n} is no number")))
}

#[test]
fn random_programs_are_counted_as_the_model_says() {
    let programs = from_environment("PGSS_RS_PROGRAMS").unwrap_or(4);
    let first = from_environment("PGSS_RS_SEED").unwrap_or_else(|| rand::random::<u32>().into());
    for seed in first..first + programs {
        check(seed);
    }
}
