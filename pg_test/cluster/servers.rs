//! The servers under test, and what was recorded in them.
//!
//! Tests that need no settings of their own share a server: each has a [`Database`] to itself, whose sessions do what
//! is to be recorded, while an observer in another database reads and resets. A shared server is never dropped; its
//! supervising shell ends it together with the test process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::error::DbError;
use postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::cluster::{self, Cluster, SUPERUSER};

/// A server that is started by the first test that needs it.
pub struct Shared {
    settings: &'static [(&'static str, &'static str)],
    extensions: &'static [&'static str],
    cluster: OnceLock<Cluster>,
    databases: AtomicU32,
}

/// With pgss_rs and nothing else.
pub static ALONE: Shared = Shared::new(&[("shared_preload_libraries", "pgss_rs")], &["pgss_rs"]);

/// With pg_stat_statements to compare with; pgss_rs's hooks are the outer ones.
pub static BESIDE: Shared = Shared::new(
    &[("shared_preload_libraries", "pg_stat_statements,pgss_rs"), ("pg_stat_statements.save", "off")],
    &["pgss_rs", "pg_stat_statements"],
);

/// The other way round.
pub static BESIDE_INNER: Shared = Shared::new(
    &[("shared_preload_libraries", "pgss_rs,pg_stat_statements"), ("pg_stat_statements.save", "off")],
    &["pgss_rs", "pg_stat_statements"],
);

/// Without any module.
pub static BARE: Shared = Shared::new(&[], &[]);

impl Shared {
    pub const fn new(
        settings: &'static [(&'static str, &'static str)],
        extensions: &'static [&'static str],
    ) -> Self {
        Shared { settings, extensions, cluster: OnceLock::new(), databases: AtomicU32::new(0) }
    }

    pub fn cluster(&self) -> &Cluster {
        self.cluster.get_or_init(|| {
            let cluster = start(self.settings);
            let mut session = connect(&cluster, SUPERUSER);
            for extension in self.extensions {
                session.batch_execute(&format!("CREATE EXTENSION {extension}")).unwrap();
            }
            cluster
        })
    }

    /// A new database.
    pub fn database(&self) -> Database<'_> {
        self.database_with("")
    }

    /// A new database, with options of CREATE DATABASE.
    pub fn database_with(&self, options: &str) -> Database<'_> {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let cluster = self.cluster();
        let mut observer = connect(cluster, SUPERUSER);
        let create = format!("CREATE DATABASE {name} {options}");
        // a template that another session is just copying is refused
        while let Err(e) = observer.batch_execute(&create) {
            assert_eq!(e.code().map(|c| c.code()), Some("55006"), "{e}");
        }
        Database::new(cluster, observer, &name)
    }
}

pub fn pg_config() -> String {
    std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned())
}

/// The server's major version.
pub fn major() -> u32 {
    static MAJOR: OnceLock<u32> = OnceLock::new();
    *MAJOR.get_or_init(|| {
        let version = cluster::pg_config(pg_config().as_ref(), "--version").unwrap();
        let number = version.trim_start_matches(|c: char| !c.is_ascii_digit());
        number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    })
}

/// What holds from `major` on, or what held before.
pub fn since<T>(first: u32, value: T, before: T) -> T {
    if major() >= first { value } else { before }
}

/// Whether a test that needs one of contrib's modules has to be left out: the servers of 16 and 18 that `.ci/setup`
/// makes come without contrib. Everywhere else a missing module fails the test.
pub fn lacks(module: &str) -> bool {
    let library = cluster::pg_config(pg_config().as_ref(), "--pkglibdir").unwrap();
    let lacks = matches!(major(), 16 | 18) && !Path::new(&library).join(format!("{module}.so")).exists();
    if lacks {
        eprintln!("not run: this PostgreSQL {} has no {module}", major());
    }
    lacks
}

/// Whether a test has to be left out on a server that was built with assertions, as one of the server's own is wrong.
pub fn asserts_wrongly(cluster: &Cluster, what: &str) -> bool {
    let asserts = value(&mut connect(cluster, SUPERUSER), "SHOW debug_assertions") == "on";
    if asserts {
        eprintln!("not run: {what}");
    }
    asserts
}

/// The setting that has every plan that can be run by a parallel worker run by one.
pub fn force_parallel() -> &'static str {
    since(16, "debug_parallel_query", "force_parallel_mode")
}

/// A server of the test's own.
pub fn start(settings: &[(&str, &str)]) -> Cluster {
    let builder = Cluster::builder(pg_config()).setting("max_connections", "100");
    settings.iter().fold(builder, |b, (name, value)| b.setting(name, value)).start().unwrap()
}

/// A server of the test's own with pgss_rs preloaded and created in the database `postgres`.
pub fn start_with_pgss_rs(settings: &[(&str, &str)]) -> Cluster {
    let cluster = start(&[&[("shared_preload_libraries", "pgss_rs")], settings].concat());
    connect(&cluster, SUPERUSER).batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    cluster
}

/// A library to be preloaded into a server (LD_PRELOAD), built here from a source beside this one.
pub fn to_preload(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let library = std::env::temp_dir().join(format!("pgss_rs.{name}.{}.{count}.so", std::process::id()));
    let source = format!("{}/pg_test/cluster/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(built.unwrap().success());
    library
}

pub fn config(cluster: &Cluster, database: &str) -> Config {
    let mut config = Config::new();
    config.host_path(cluster.socket_dir()).port(cluster.port()).user(SUPERUSER).dbname(database);
    config
}

/// A session of the superuser.
pub fn connect(cluster: &Cluster, database: &str) -> Client {
    config(cluster, database).connect(NoTls).unwrap()
}

/// The process that saves the statistics, if it runs. Without a database it is not in pg_stat_activity.
pub fn saver(cluster: &mut Cluster) -> Option<i32> {
    let postmaster = cluster.postmaster_pid()?;
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).ok()?;
    let is_saver = |pid: &&str| {
        let title = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        title.is_ok_and(|title| title.contains("pgss_rs saver"))
    };
    children.split_whitespace().find(is_saver)?.parse().ok()
}

/// A session of the superuser that is not recorded.
pub fn observe(cluster: &Cluster) -> Client {
    config(cluster, SUPERUSER).options("-c pgss_rs.track=none").connect(NoTls).unwrap()
}

/// Rows of the last query in `sql`, as text, in the simple protocol.
pub fn rows(client: &mut Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let messages = client.simple_query(sql).unwrap_or_else(|e| panic!("{sql}: {}", describe(&e)));
    let mut rows = Vec::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(_) => rows.clear(),
            SimpleQueryMessage::Row(row) => {
                rows.push((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect());
            }
            _ => {}
        }
    }
    rows
}

/// The one value of a query; `None` for NULL.
pub fn nullable(client: &mut Client, sql: &str) -> Option<String> {
    let rows = rows(client, sql);
    match rows.as_slice() {
        [row] if row.len() == 1 => row[0].clone(),
        _ => panic!("{sql}: not one value but {rows:?}"),
    }
}

/// The one value of a query.
pub fn value(client: &mut Client, sql: &str) -> String {
    nullable(client, sql).unwrap_or_else(|| panic!("{sql}: NULL"))
}

/// The one number of a query.
pub fn number(client: &mut Client, sql: &str) -> f64 {
    let value = value(client, sql);
    value.parse().unwrap_or_else(|_| panic!("{sql}: not a number but {value}"))
}

/// The error that `sql` raises.
pub fn error_of(client: &mut Client, sql: &str) -> DbError {
    match client.batch_execute(sql) {
        Ok(()) => panic!("{sql}: no error"),
        Err(e) => db_error(&e, sql),
    }
}

pub fn db_error(error: &postgres::Error, what: &str) -> DbError {
    error.as_db_error().unwrap_or_else(|| panic!("{what}: {error}")).clone()
}

/// SQLSTATE of the error that `sql` raises.
pub fn sqlstate_of(client: &mut Client, sql: &str) -> String {
    error_of(client, sql).code().code().to_owned()
}

fn describe(error: &postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |e| format!("{e:?}"))
}

/// A statement of its own, identifier and text, for each `n` below 4096. Names of columns would not do: they are no
/// part of the identifier.
pub fn distinct(n: u32) -> String {
    let operators = (0..12).map(|bit| if n >> bit & 1 == 1 { "-1" } else { "+1" }).collect::<String>();
    format!("SELECT 1{operators}")
}

/// Has `pgss_compat` hold another major's view, as pg_upgrade leaves it.
pub fn leave_as_pg_upgrade(session: &mut Client) {
    session
        .batch_execute(
            "ALTER EXTENSION pgss_rs DROP VIEW pgss_compat.pg_stat_statements;
             DROP VIEW pgss_compat.pg_stat_statements;
             CREATE VIEW pgss_compat.pg_stat_statements AS SELECT 1 AS of_another_major;
             ALTER EXTENSION pgss_rs ADD VIEW pgss_compat.pg_stat_statements",
        )
        .unwrap();
}

/// What one entry shows. Names as the columns'.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub query: String,
    pub toplevel: bool,
    pub calls: i64,
    pub rows: i64,
}

/// A database of a server, and an observer of what is recorded there.
pub struct Database<'a> {
    pub cluster: &'a Cluster,
    pub name: String,
    pub oid: String,
    observer: RefCell<Client>,
}

impl<'a> Database<'a> {
    fn new(cluster: &'a Cluster, mut observer: Client, name: &str) -> Self {
        let oid = value(&mut observer, &format!("SELECT oid FROM pg_database WHERE datname = '{name}'"));
        Database { cluster, name: name.to_owned(), oid, observer: RefCell::new(observer) }
    }

    pub fn session(&self) -> Client {
        connect(self.cluster, &self.name)
    }

    /// A session that starts with settings, such as `["pgss_rs.track=all"]`: a SET would be recorded.
    pub fn session_with(&self, settings: &[&str]) -> Client {
        let options = settings.iter().map(|s| format!("-c {s}")).collect::<Vec<_>>().join(" ");
        config(self.cluster, &self.name).options(&options).connect(NoTls).unwrap()
    }

    pub fn session_as(&self, role: &str) -> Client {
        config(self.cluster, &self.name).user(role).connect(NoTls).unwrap()
    }

    /// Runs statements that are not to be recorded.
    pub fn prepare(&self, sql: &str) {
        self.session_with(&["pgss_rs.track=none", "pg_stat_statements.track=none"])
            .batch_execute(sql)
            .unwrap_or_else(|e| panic!("{sql}: {}", describe(&e)));
    }

    /// Asks from the observer's database.
    pub fn ask(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        rows(&mut self.observer.borrow_mut(), sql)
    }

    /// An expression over this database's entries that satisfy a condition.
    pub fn value(&self, expression: &str, condition: &str) -> String {
        let from = format!("FROM pgss_rs_stats WHERE dbid = {} AND ({condition})", self.oid);
        value(&mut self.observer.borrow_mut(), &format!("SELECT {expression} {from}"))
    }

    pub fn number(&self, expression: &str, condition: &str) -> f64 {
        let value = self.value(expression, condition);
        value.parse().unwrap_or_else(|_| panic!("{expression}: not a number but {value}"))
    }

    /// This database's entries in `view` of what was executed to its end, or planned, in order.
    pub fn entries_in(&self, view: &str) -> Vec<Entry> {
        let columns = "query, toplevel, calls, rows";
        let sql = format!("SELECT {columns} FROM {view} WHERE dbid = {} AND calls + plans > 0", self.oid);
        let mut entries: Vec<Entry> = self
            .ask(&sql)
            .into_iter()
            .map(|row| {
                let field = |n: usize| row[n].clone().unwrap_or_default();
                let int = |n: usize| field(n).parse().unwrap();
                Entry { query: field(0), toplevel: field(1) == "t", calls: int(2), rows: int(3) }
            })
            .collect();
        entries.sort();
        entries
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.entries_in("pgss_rs_stats")
    }

    pub fn texts(&self) -> Vec<String> {
        self.entries().into_iter().map(|e| e.query).collect()
    }

    /// Calls and rows of the one entry with this text and level.
    pub fn calls_and_rows(&self, query: &str, toplevel: bool) -> (i64, i64) {
        let entries = self.entries();
        let mut found = entries.iter().filter(|e| e.query == query && e.toplevel == toplevel);
        match (found.next(), found.next()) {
            (Some(e), None) => (e.calls, e.rows),
            _ => panic!("not one entry for {query} (toplevel: {toplevel}) in {entries:#?}"),
        }
    }

    /// Calls at the top level and nested of a text; 0 where there is no entry.
    pub fn calls(&self, query: &str) -> (i64, i64) {
        let mut calls: HashMap<bool, i64> = HashMap::new();
        for e in self.entries().into_iter().filter(|e| e.query == query) {
            *calls.entry(e.toplevel).or_default() += e.calls;
        }
        (calls.get(&true).copied().unwrap_or(0), calls.get(&false).copied().unwrap_or(0))
    }

    /// Removes this database's entries.
    pub fn reset(&self) {
        self.ask(&format!("SELECT pgss_rs_reset(0, {})", self.oid));
    }
}
