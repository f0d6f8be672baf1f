//! Dashboards and collectors that were written for pg_stat_statements, on our view, on every server major: the columns,
//! functions and filters that each of them reads, in queries of our own. They read as the documentation tells their
//! users to set them up: a role that is a member of `pg_monitor`, here with `pgss_compat` in its `search_path`.
//!
//! Part of the tests in `cluster/`, for 15, and of those in `smoke/`, for the other majors.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::{Client, Config, NoTls, Row};

use crate::cluster::{Cluster, SUPERUSER};

/// What the application runs, and what it comes to: [`CALLS`] executions of [`ROWS`] rows, that sleep [`MS`] or longer.
const STATEMENT: &str = "SELECT id, pg_sleep(0.002) FROM sale WHERE id <= 3";
const TEXT: &str = "SELECT id, pg_sleep($1) FROM sale WHERE id <= $2";
const CALLS: i64 = 7;
const ROWS: i64 = 21;
const MS: f64 = 42.0;

/// A database with the extension, where an application has run [`STATEMENT`], and the role that watches it.
struct Watched {
    name: String,
    app: String,
    monitor: String,
}

impl Watched {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let watched =
            Watched { name: format!("shop{n}"), app: format!("app{n}"), monitor: format!("monitor{n}") };
        let Watched { name, app, monitor } = &watched;
        let mut admin = connect(SUPERUSER, SUPERUSER);
        for statement in [
            format!("CREATE DATABASE {name} TEMPLATE template0"),
            format!("CREATE ROLE {app} LOGIN"),
            format!("CREATE ROLE {monitor} LOGIN IN ROLE pg_monitor"),
            format!("ALTER ROLE {monitor} SET search_path = pgss_compat, \"$user\", public"),
        ] {
            admin.batch_execute(&statement).unwrap();
        }
        watched
            .admin()
            .batch_execute(&format!(
                "CREATE EXTENSION pgss_rs; CREATE TABLE sale AS SELECT id FROM generate_series(1, 10) AS id;
                 GRANT SELECT ON sale TO {app}"
            ))
            .unwrap();
        watched.run();
        watched
    }

    fn run(&self) {
        let mut session = connect(&self.name, &self.app);
        for _ in 0..CALLS {
            session.batch_execute(STATEMENT).unwrap();
        }
    }

    fn admin(&self) -> Client {
        connect(&self.name, SUPERUSER)
    }

    /// The collector's session.
    fn session(&self) -> Client {
        connect(&self.name, &self.monitor)
    }
}

fn connect(database: &str, role: &str) -> Client {
    static SERVER: OnceLock<Cluster> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        Cluster::builder(pg_config)
            .setting("shared_preload_libraries", "pgss_rs")
            .setting("pgss_rs.track_planning", "on")
            .setting("track_io_timing", "on")
            .start()
            .unwrap()
    });
    let mut config = Config::new();
    config.host_path(server.socket_dir()).port(server.port()).user(role).dbname(database);
    config.connect(NoTls).unwrap()
}

fn major(client: &mut Client) -> i32 {
    let number: String = client.query_one("SHOW server_version_num", &[]).unwrap().get(0);
    number.parse::<i32>().unwrap() / 10_000
}

/// The row whose column `query` is the application's statement; the only one.
fn known<'a>(rows: &'a [Row], query: &str) -> &'a Row {
    let mut found = rows.iter().filter(|row| row.get::<_, &str>(query) == TEXT);
    match (found.next(), found.next()) {
        (Some(row), None) => row,
        _ => panic!("{} rows, of which not one is of {TEXT}", rows.len()),
    }
}

fn assert_calls_and_rows(row: &Row) {
    assert_eq!((row.get("calls"), row.get("rows")), (CALLS, ROWS));
}

/// Milliseconds that some [`CALLS`] executions took; a generous bound above, for a busy machine.
fn assert_took(ms: f64) {
    assert!((MS..60_000.0).contains(&ms), "{ms} ms");
}

fn sqlstate(client: &mut Client, sql: &str) -> String {
    let error = client.batch_execute(sql).expect_err(sql);
    error.code().unwrap_or_else(|| panic!("{sql}: {error}")).code().to_owned()
}

/// Metric `stat_statements` of pgwatch 3 and later: one row per statement of its own database, over users and levels,
/// what ran more than five times and longer than 5 ms, without what only manages sessions and transactions.
#[test]
fn pgwatch_reads_its_statements() {
    let watched = Watched::new();
    let mut session = watched.session();
    let times = if major(&mut session) < 17 {
        "sum(blk_read_time) AS read_ms, sum(blk_write_time) AS write_ms"
    } else {
        "sum(shared_blk_read_time) + sum(local_blk_read_time) AS read_ms,
         sum(shared_blk_write_time) + sum(local_blk_write_time) AS write_ms"
    };
    let sql = format!(
        "SELECT queryid::text AS id, string_agg(DISTINCT quote_ident(pg_get_userbyid(userid)), ',') AS users,
                sum(calls)::bigint AS calls, sum(rows)::bigint AS rows,
                round(sum(total_exec_time)::numeric, 3)::float8 AS exec_ms,
                round(sum(total_plan_time)::numeric, 3)::float8 AS plan_ms,
                sum(shared_blks_hit)::bigint AS hit, sum(shared_blks_read)::bigint AS read,
                sum(shared_blks_written)::bigint AS written, sum(shared_blks_dirtied)::bigint AS dirtied,
                sum(temp_blks_read)::bigint AS temp_read, sum(temp_blks_written)::bigint AS temp_written,
                {times}, sum(temp_blk_read_time) AS temp_read_ms, sum(temp_blk_write_time) AS temp_write_ms,
                sum(wal_fpi)::bigint AS fpi, sum(wal_bytes)::bigint AS wal, sum(jit_generation_time) AS jit_ms,
                max(query::varchar(8000)) AS query
         FROM pg_stat_statements
         WHERE calls > 5 AND total_exec_time > 5
           AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND upper(query::varchar(50)) NOT LIKE ALL (ARRAY['BEGIN%', 'COMMIT%', 'SET %', 'SHOW%', 'DEALLOCATE%'])
         GROUP BY queryid ORDER BY exec_ms DESC LIMIT 100"
    );
    let rows = session.query(&sql, &[]).unwrap();
    let row = known(&rows, "query");
    assert_calls_and_rows(row);
    assert_eq!(row.get::<_, &str>("users"), watched.app);
    assert_took(row.get("exec_ms"));
    assert!(row.get::<_, f64>("plan_ms") > 0.0 && row.get::<_, i64>("hit") > 0, "{row:?}");
    let none = ["temp_read", "temp_written", "fpi", "wal"];
    assert!(none.iter().all(|column| row.get::<_, i64>(column) == 0), "{row:?}");
    for time in ["read_ms", "write_ms", "temp_read_ms", "temp_write_ms", "jit_ms"] {
        assert!((0.0..60_000.0).contains(&row.get::<_, f64>(time)), "{time}: {row:?}");
    }
}

/// Metric `stat_statements_calls`: sums over its own database.
#[test]
fn pgwatch_reads_its_sums() {
    let watched = Watched::new();
    let mut session = watched.session();
    let sql = "SELECT coalesce(sum(calls), 0)::bigint AS calls,
                      coalesce(round(sum(total_exec_time)::numeric, 3), 0)::float8 AS exec_ms,
                      round(sum(total_plan_time)::numeric, 3)::float8 AS plan_ms
               FROM pg_stat_statements
               WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let before = session.query_one(sql, &[]).unwrap();
    watched.run();
    let after = session.query_one(sql, &[]).unwrap();
    // the application's, and the first of these queries
    assert_eq!(after.get::<_, i64>("calls") - before.get::<_, i64>("calls"), CALLS + 1);
    assert_took(after.get::<_, f64>("exec_ms") - before.get::<_, f64>("exec_ms"));
    assert!(after.get::<_, f64>("plan_ms") > before.get::<_, f64>("plan_ms"));
}

/// pgwatch2 reads through a function that its administrator makes, of the view's row type.
#[test]
fn pgwatch2_reads_through_its_own_function() {
    let watched = Watched::new();
    watched
        .admin()
        .batch_execute(
            "SET search_path = pgss_compat, public;
             CREATE FUNCTION public.statements_here() RETURNS SETOF pg_stat_statements
             LANGUAGE sql SECURITY DEFINER SET search_path = pgss_compat
             AS 'SELECT s.* FROM pg_stat_statements s
                 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())'",
        )
        .unwrap();
    let rows = watched.session().query("SELECT query, calls, rows FROM statements_here()", &[]).unwrap();
    assert_calls_and_rows(known(&rows, "query"));
}

const PGHERO: &str = "SELECT left(s.query, 10000) AS query, s.queryid, u.rolname, s.calls, t.minutes,
           sum(t.minutes) OVER () AS minutes_of_all
    FROM pg_stat_statements s JOIN pg_roles u ON s.userid = u.oid JOIN pg_database d ON s.dbid = d.oid,
         LATERAL (SELECT (s.total_exec_time + s.total_plan_time) / 60000 AS minutes) t
    WHERE d.datname = current_database() AND s.calls > 0 ORDER BY minutes DESC LIMIT 100";

/// PgHero takes the view for there when it can read a row of it; it asks for the extension only where it cannot.
#[test]
fn pghero_finds_the_view_and_reads_it() {
    let watched = Watched::new();
    let mut session = watched.session();
    assert_eq!(session.query("SELECT * FROM pg_stat_statements LIMIT 1", &[]).unwrap().len(), 1);
    let rows = session.query(PGHERO, &[]).unwrap();
    let row = known(&rows, "query");
    assert_eq!((row.get("rolname"), row.get("calls")), (watched.app.as_str(), CALLS));
    let (minutes, all) = (row.get::<_, f64>("minutes"), row.get::<_, f64>("minutes_of_all"));
    assert_took(minutes * 60_000.0);
    assert!(minutes <= all, "{minutes} of {all}");
}

/// It captures a history by resetting its database's, a user's or a statement's entries after reading them.
#[test]
fn pghero_resets_what_it_was_granted_to() {
    let watched = Watched::new();
    let mut session = watched.session();
    assert_eq!(sqlstate(&mut session, "SELECT pg_stat_statements_reset(0, 0, 0)"), "42501");
    watched
        .admin()
        .batch_execute(&format!(
            "GRANT EXECUTE ON FUNCTION pgss_compat.pg_stat_statements_reset TO {}",
            watched.monitor
        ))
        .unwrap();
    let calls = |session: &mut Client| -> i64 {
        let rows = session.query(PGHERO, &[]).unwrap();
        rows.iter()
            .filter(|row| row.get::<_, &str>("query") == TEXT)
            .map(|row| row.get::<_, i64>("calls"))
            .sum()
    };
    let reset = |session: &mut Client, arguments: &str| {
        // without parameters, as it sends it: numbers in quotes
        session.batch_execute(&format!("SELECT pg_stat_statements_reset({arguments})")).unwrap();
    };
    let oid = |session: &mut Client, sql: &str, name: &str| session.query_one(sql, &[&name]).unwrap().get(0);
    let database: u32 = oid(&mut session, "SELECT oid FROM pg_database WHERE datname = $1", &watched.name);
    let user: u32 = oid(&mut session, "SELECT usesysid FROM pg_user WHERE usename = $1", &watched.app);
    let rows = session.query(PGHERO, &[]).unwrap();
    let statement: i64 = known(&rows, "query").get("queryid");

    reset(&mut session, &format!("'0', '{database}', '{}'", statement.wrapping_add(1)));
    assert_eq!(calls(&mut session), CALLS);
    reset(&mut session, &format!("'0', '{database}', '{statement}'"));
    assert_eq!(calls(&mut session), 0);
    watched.run();
    reset(&mut session, &format!("'{user}', '{database}', '0'"));
    assert_eq!(calls(&mut session), 0);
    watched.run();
    reset(&mut session, &format!("'0', '{database}', '0'"));
    assert_eq!(calls(&mut session), 0);
    watched.run();
    assert_eq!(calls(&mut session), CALLS);
}

/// Datadog's Agent learns the columns from an empty result, and reads those of its list that are there.
#[test]
fn datadog_finds_its_columns_and_reads_them() {
    let watched = Watched::new();
    let mut session = watched.session();
    let from = "FROM (pg_stat_statements s LEFT JOIN pg_database d ON d.oid = s.dbid)
                LEFT JOIN pg_roles r ON r.oid = s.userid
                WHERE s.query NOT LIKE '/* ignore */%' AND s.query <> '<insufficient privilege>'";
    let empty = session.prepare(&format!("SELECT * {from} LIMIT 0")).unwrap();
    let there: Vec<&str> = empty.columns().iter().map(|column| column.name()).collect();

    let wanted = "calls rows total_time total_exec_time shared_blks_hit shared_blks_read shared_blks_dirtied
        shared_blks_written local_blks_hit local_blks_read local_blks_dirtied local_blks_written temp_blks_read
        temp_blks_written wal_records wal_fpi wal_bytes total_plan_time min_plan_time max_plan_time mean_plan_time
        stddev_plan_time blk_read_time blk_write_time shared_blk_read_time shared_blk_write_time
        datname rolname query queryid";
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    let (found, missing): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|name| there.contains(name));
    let of_other_majors: &[&str] = if major(&mut session) < 17 {
        &["total_time", "shared_blk_read_time", "shared_blk_write_time"]
    } else {
        &["total_time", "blk_read_time", "blk_write_time"]
    };
    assert_eq!(missing, of_other_majors);

    let sql = format!("SELECT {} {from} AND d.datname = $1", found.join(", "));
    let rows = session.query(&sql, &[&watched.name]).unwrap();
    let row = known(&rows, "query");
    assert_calls_and_rows(row);
    assert_eq!((row.get("datname"), row.get("rolname")), (watched.name.as_str(), watched.app.as_str()));
    assert_took(row.get("total_exec_time"));
    assert!(row.get::<_, f64>("mean_plan_time") > 0.0, "{row:?}");
}

/// It reads counters without texts, then the texts of those that changed; and how full the table is.
#[test]
fn datadog_reads_counters_texts_and_the_fill_level() {
    let watched = Watched::new();
    let mut session = watched.session();
    let counters = session
        .query(
            "SELECT queryid, userid, dbid, calls, rows FROM pg_stat_statements(false) AS s
             LEFT JOIN pg_roles r ON r.oid = s.userid LEFT JOIN pg_database d ON d.oid = s.dbid
             WHERE queryid IS NOT NULL AND rolname = $1 AND datname = $2",
            &[&watched.app, &watched.name],
        )
        .unwrap();
    let ids: Vec<i64> = counters.iter().map(|row| row.get("queryid")).collect();
    let texts = session
        .query("SELECT queryid, query FROM pg_stat_statements WHERE queryid = ANY($1::bigint[])", &[&ids])
        .unwrap();
    // from 18 on a statement has one identifier in all databases where its tables have the same names
    let known = texts.iter().find(|row| row.get::<_, &str>("query") == TEXT).expect(TEXT);
    let id: i64 = known.get("queryid");
    let counted: Vec<&Row> = counters.iter().filter(|row| row.get::<_, i64>("queryid") == id).collect();
    assert_eq!(counted.len(), 1);
    assert_calls_and_rows(counted[0]);

    let entries = session.query_one("SELECT count(*) FROM pg_stat_statements(false)", &[]).unwrap();
    assert!((1..=5000).contains(&entries.get::<_, i64>(0)), "{entries:?}");
    let dealloc = session.query_one("SELECT dealloc FROM pg_stat_statements_info", &[]).unwrap();
    assert_eq!(dealloc.get::<_, i64>(0), 0);
}

/// OpenTelemetry's postgresql receiver: its top queries; and its metrics of statements, which want to know since when.
#[test]
fn opentelemetry_reads_its_top_queries_and_when_the_counters_began() {
    let watched = Watched::new();
    let mut session = watched.session();
    let since = if major(&mut session) < 17 { "NULL::text" } else { "stats_since::text" };
    let sql = format!(
        "SELECT queryid::text, userid::text, coalesce(rolname, '') AS rolname, datname, query, toplevel, calls, rows,
                total_exec_time, total_plan_time, shared_blks_hit, shared_blks_read, shared_blks_dirtied,
                shared_blks_written, temp_blks_read, temp_blks_written, {since} AS since
         FROM pg_stat_statements AS s
         LEFT JOIN pg_roles ON pg_roles.oid = s.userid INNER JOIN pg_database ON pg_database.oid = s.dbid
         WHERE datname IS NOT NULL AND query <> '<insufficient privilege>' AND query NOT LIKE '/* ignore */%'
           AND datname = $1
         ORDER BY calls DESC LIMIT 1000"
    );
    let epoch = "SELECT extract(epoch FROM stats_reset)::text AS epoch FROM pg_stat_statements_info";
    let before: String = session.query_one(epoch, &[]).unwrap().get("epoch");
    let rows = session.query(&sql, &[&watched.name]).unwrap();
    assert_eq!(session.query_one(epoch, &[]).unwrap().get::<_, String>("epoch"), before);
    assert!(before.parse::<f64>().unwrap() > 0.0, "{before}");

    assert_eq!(rows[0].get::<_, &str>("query"), TEXT, "first by calls");
    let row = known(&rows, "query");
    assert_calls_and_rows(row);
    assert_eq!(row.get::<_, &str>("rolname"), watched.app);
    assert!(row.get::<_, bool>("toplevel"));
    assert_took(row.get("total_exec_time"));
    assert!(row.get::<_, f64>("total_plan_time") > 0.0, "{row:?}");
    let began: Option<String> = row.get("since");
    assert_eq!(began.is_some(), since != "NULL::text", "{began:?}");
}

/// postgres_exporter's own collector, in releases newer than the one that `cluster/exporter.rs` runs: seconds, and the
/// slowest hundred statements but for the fastest tenth.
#[test]
fn the_collector_of_newer_exporters_reads_seconds() {
    let watched = Watched::new();
    let mut session = watched.session();
    let io = if major(&mut session) < 17 { "blk" } else { "shared_blk" };
    let sql = format!(
        "SELECT pg_get_userbyid(userid) AS role, datname, queryid, left(query, 120) AS query, calls, rows,
                total_exec_time / 1000.0 AS seconds, {io}_read_time / 1000.0 AS read_seconds,
                {io}_write_time / 1000.0 AS write_seconds
         FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid
         WHERE total_exec_time >
               (SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY total_exec_time) FROM pg_stat_statements)
           AND datname = $1
         ORDER BY seconds DESC LIMIT 100"
    );
    let rows = session.query(&sql, &[&watched.name]).unwrap();
    let row = known(&rows, "query");
    assert_calls_and_rows(row);
    assert_eq!(row.get::<_, &str>("role"), watched.app);
    assert_took(row.get::<_, f64>("seconds") * 1000.0);
    for time in ["read_seconds", "write_seconds"] {
        assert!((0.0..60.0).contains(&row.get::<_, f64>(time)), "{time}: {row:?}");
    }
}

/// What ours does not pass for, as README says: the extension's name, its settings, and another schema.
#[test]
fn asking_for_the_extension_or_for_its_schema_does_not_find_ours() {
    let watched = Watched::new();
    let mut session = watched.session();
    for sql in [
        "SELECT count(*) FROM pg_extension WHERE extname = 'pg_stat_statements'",
        "SELECT count(*) FROM pg_settings WHERE name LIKE 'pg_stat_statements.%'",
        "SELECT count(*) FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name = 'pg_stat_statements'",
    ] {
        assert_eq!(session.query_one(sql, &[]).unwrap().get::<_, i64>(0), 0, "{sql}");
    }
    let elsewhere = "SELECT query, calls, rows FROM public.pg_stat_statements
                     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(sqlstate(&mut session, elsewhere), "42P01");
    watched
        .admin()
        .batch_execute(
            "CREATE VIEW public.pg_stat_statements AS SELECT * FROM pgss_compat.pg_stat_statements;
             GRANT SELECT ON public.pg_stat_statements TO PUBLIC",
        )
        .unwrap();
    assert_calls_and_rows(known(&session.query(elsewhere, &[]).unwrap(), "query"));
}
