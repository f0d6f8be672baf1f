//! What nobody may get at: others' statements, our objects by way of a hostile schema, the settings, the file.
//!
//! Every view and function has a line in [`OBJECTS`], which says what is to be seen through it and by whom.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use postgres::{Client, NoTls, SimpleQueryMessage};

use crate::cluster::{SUPERUSER, Shutdown};
use crate::servers::{
    ALONE, Database, Shared, config, connect, error_of, nullable, number, observe, rows, since, sqlstate_of,
    start_with_pgss_rs,
};
use crate::updates;

/// What a reader with the privileges of `pg_read_all_stats` learns of a statement, and nobody else of others'.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Tells {
    /// Nothing of a single statement.
    Nothing,
    Text,
    /// The identifier.
    Id,
    /// A value that is not null, or a row, of the statement with the identifier `$ID`.
    Something,
}
use Tells::{Id, Nothing, Something, Text};

/// An expression for FROM, whether the public may use it, and what it tells.
struct Object {
    call: &'static str,
    public: bool,
    tells: Tells,
    /// The view or function that it is, for GRANT and REVOKE.
    name: &'static str,
}

const fn object(name: &'static str, call: &'static str, public: bool, tells: Tells) -> Object {
    Object { call, public, tells, name }
}

const OBJECTS: &[Object] = &[
    object("TABLE pgss_rs_stats", "pgss_rs_stats", true, Text),
    object(STATS, "pgss_rs_stats()", true, Text),
    object(STATS, "pgss_rs_stats(true, 5000, '-infinity')", true, Text),
    object(STATS, "pgss_rs_stats(false)", true, Id),
    object("FUNCTION pgss_rs_entries()", "pgss_rs_entries()", true, Text),
    object("FUNCTION pgss_compat.pgss_rs_entries()", "pgss_compat.pgss_rs_entries()", true, Text),
    // everything that may name an entry
    object(
        "FUNCTION pgss_rs_entry_text(bigint)",
        "pg_catalog.unnest(ARRAY(SELECT pgss_rs_entry_text(slot OPERATOR(pg_catalog.+) generation) FROM
          pg_catalog.generate_series(0, 4999::bigint OPERATOR(pg_catalog.<<) 32, 1::bigint OPERATOR(pg_catalog.<<) 32) AS slot,
          pg_catalog.generate_series(0, 19) AS generation))",
        true,
        Text,
    ),
    object("FUNCTION pgss_rs_stats_and_reset(boolean, integer)", "pgss_rs_stats_and_reset()", false, Text),
    object("FUNCTION pgss_rs_text(bigint, oid, oid)", "pgss_rs_text($ID)", true, Text),
    object("TABLE pgss_rs_top", "pgss_rs_top", true, Text),
    object("FUNCTION pgss_rs_histogram(bigint, oid, oid)", "pgss_rs_histogram($ID)", true, Something),
    object(
        "FUNCTION pgss_rs_percentile(bigint, double precision, oid, oid)",
        "pgss_rs_percentile($ID, 0.5)",
        true,
        Something,
    ),
    object("FUNCTION pgss_rs_errors()", "pgss_rs_errors()", true, Id),
    object("TABLE pgss_rs_info", "pgss_rs_info", true, Nothing),
    object("FUNCTION pgss_rs_info()", "pgss_rs_info()", true, Nothing),
    object("FUNCTION pgss_rs_reset(oid, oid, bigint, boolean)", "pgss_rs_reset(1, 1, 1)", false, Nothing),
    object("FUNCTION pgss_rs_refresh_compat()", "pgss_rs_refresh_compat()", false, Nothing),
    object("TABLE pgss_compat.pg_stat_statements", "pgss_compat.pg_stat_statements", true, Text),
    object(
        "FUNCTION pgss_compat.pg_stat_statements(boolean)",
        "pgss_compat.pg_stat_statements(true)",
        true,
        Text,
    ),
    object(
        "FUNCTION pgss_compat.pg_stat_statements(boolean)",
        "pgss_compat.pg_stat_statements(false)",
        true,
        Id,
    ),
    // as with pg_stat_statements, of whose view it is a part
    object(
        "FUNCTION pgss_compat.pg_stat_statements(boolean)",
        "pgss_compat.pg_stat_statements",
        true,
        Text,
    ),
    object("TABLE pgss_compat.pg_stat_statements_info", "pgss_compat.pg_stat_statements_info", true, Nothing),
    object(
        "FUNCTION pgss_compat.pg_stat_statements_info()",
        "pgss_compat.pg_stat_statements_info()",
        true,
        Nothing,
    ),
    object(
        "FUNCTION pgss_compat.pg_stat_statements_reset",
        "pgss_compat.pg_stat_statements_reset(1, 1, 1)",
        false,
        Nothing,
    ),
];

const STATS: &str = "FUNCTION pgss_rs_stats(boolean, integer, timestamptz)";

/// A database with the extension, and the roles of the matrix, whose names end in `suffix`.
struct Matrix<'a> {
    db: Database<'a>,
    /// Of the superuser's statement.
    id: String,
}

/// Of a statement of the superuser's that has been executed and has failed. It is among those that took most time.
const SECRET: &str = "payroll";
const SHOWS_SECRET: &str = "query = 'SELECT $1 / payroll.a, pg_sleep($2) FROM payroll'";

fn shown(message: &SimpleQueryMessage) -> Option<String> {
    match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0)?.to_owned() + "\n"),
        _ => None,
    }
}

impl Matrix<'_> {
    fn new(db: Database<'_>) -> Matrix<'_> {
        let name = &db.name;
        db.prepare(&format!(
            "CREATE ROLE plain_{name} LOGIN; CREATE ROLE reader_{name} LOGIN IN ROLE pg_read_all_stats;
             CREATE ROLE monitor_{name} LOGIN IN ROLE pg_monitor;
             CREATE ROLE stranger_{name} LOGIN NOINHERIT IN ROLE pg_read_all_stats;
             CREATE TABLE payroll (a int); INSERT INTO payroll VALUES (1);
             GRANT CREATE ON SCHEMA public TO plain_{name};"
        ));
        let mut session = db.session();
        session.batch_execute("SELECT 1 / payroll.a, pg_sleep(0.4) FROM payroll").unwrap();
        session.batch_execute("UPDATE payroll SET a = 0").unwrap();
        assert!(session.batch_execute("SELECT 1 / payroll.a, pg_sleep(0.4) FROM payroll").is_err());
        let id = db.value("queryid", "query = 'SELECT $1 / payroll.a, pg_sleep($2) FROM payroll'");
        Matrix { db, id }
    }

    fn session(&self, role: &str) -> Client {
        let user = if role == SUPERUSER { role.to_owned() } else { format!("{role}_{}", self.db.name) };
        self.db.session_as(&user)
    }

    fn call(&self, object: &Object) -> String {
        object.call.replace("$ID", &self.id)
    }

    /// What is to be seen through an object, without the counters and times that everybody sees; `None` where it may not
    /// be used. Nothing is changed.
    fn seen(&self, session: &mut Client, object: &Object) -> Option<String> {
        session.batch_execute("BEGIN").unwrap();
        let sql = format!("SELECT x::text FROM {} x", self.call(object));
        let seen = match session.simple_query(&sql) {
            Ok(messages) => Some(messages.iter().filter_map(shown).collect()),
            Err(e) => {
                assert_eq!(e.code().map(|c| c.code()), Some("42501"), "{sql}: {e}");
                None
            }
        };
        session.batch_execute("ROLLBACK").unwrap();
        seen
    }

    /// Whether what is seen tells of the superuser's statement.
    fn tells(&self, seen: &str, object: &Object) -> bool {
        match object.tells {
            Nothing => false,
            Something => !seen.is_empty(),
            Text => seen.contains(SECRET),
            Id => seen.contains(&self.id),
        }
    }

    fn check(&self) {
        for (role, sees_all, may_all) in [
            (SUPERUSER, true, true),
            ("plain", false, false),
            // by membership alone, without inheriting it
            ("stranger", false, false),
            ("reader", true, false),
            ("monitor", true, false),
        ] {
            let mut session = self.session(role);
            for object in OBJECTS {
                let (call, seen) = (self.call(object), self.seen(&mut session, object));
                assert_eq!(seen.is_some(), object.public || may_all, "{role}: {call}");
                let Some(seen) = seen else { continue };
                let tells = sees_all && object.tells != Nothing;
                assert_eq!(self.tells(&seen, object), tells, "{role}: {call}: {seen}");
                // whatever else it shows, it is neither text nor identifier
                let leaks = seen.contains(SECRET) || seen.contains(&self.id);
                assert!(sees_all || !leaks, "{role}: {call}: {seen}");
            }
        }
    }
}

#[test]
fn the_matrix_has_every_view_and_function() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let members = "SELECT refobjid AS extension, classid, objid FROM pg_depend
                   WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pgss_rs')";
    for object in OBJECTS {
        let (kind, name) = object.name.split_once(' ').unwrap();
        let oid = match (kind, name.contains('(')) {
            ("TABLE", _) => format!("'{name}'::regclass"),
            (_, true) => format!("'{name}'::regprocedure"),
            _ => format!("'{name}'::regproc"),
        };
        session
            .batch_execute(&format!(
                "CREATE TEMP TABLE IF NOT EXISTS known (o oid); INSERT INTO known VALUES ({oid})"
            ))
            .unwrap();
    }
    let others = format!(
        "SELECT pg_describe_object(classid, objid, 0) FROM ({members}) m
         WHERE classid IN ('pg_proc'::regclass, 'pg_class'::regclass) AND objid NOT IN (SELECT o FROM known)"
    );
    assert_eq!(rows(&mut session, &others), [[None::<String>; 0]; 0]);
}

/// Servers whose statistics may be reset, one for each test.
static SEEN: Shared = Shared::new(PRELOADED, &["pgss_rs"]);
static UPDATED: Shared = Shared::new(PRELOADED, &["pgss_rs"]);
static GRANTED: Shared = Shared::new(PRELOADED, &["pgss_rs"]);
const PRELOADED: &[(&str, &str)] = &[("shared_preload_libraries", "pgss_rs")];

#[test]
fn everybody_sees_of_others_what_the_matrix_says() {
    let db = SEEN.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    Matrix::new(db).check();
}

#[test]
fn the_matrix_holds_after_an_update_from_every_released_version() {
    for version in updates::released() {
        let db = UPDATED.database();
        db.prepare(&format!("CREATE EXTENSION pgss_rs VERSION '{version}'; ALTER EXTENSION pgss_rs UPDATE"));
        Matrix::new(db).check();
    }
}

#[test]
fn every_right_can_be_granted_and_revoked() {
    let db = GRANTED.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let matrix = Matrix::new(db);
    let role = format!("plain_{}", matrix.db.name);
    let mut session = matrix.session("plain");
    for object in OBJECTS {
        let right = if object.name.starts_with("TABLE") { "SELECT" } else { "EXECUTE" };
        let mut sees = |sql: &str| {
            matrix.db.prepare(&format!("{sql} {role}"));
            matrix.seen(&mut session, object).is_some()
        };
        let (grant, revoke) = (
            format!("GRANT {right} ON {} TO", object.name),
            format!("REVOKE {right} ON {} FROM", object.name),
        );
        assert!(sees(&grant), "{}", object.name);
        assert_eq!(sees(&revoke), object.public, "{}", object.name);
        if object.public {
            let (closed, opened) = (revoke + " PUBLIC,", grant + " PUBLIC,");
            assert!(!sees(&closed) && sees(&opened), "{}", object.name);
            matrix.db.prepare(&format!("REVOKE {right} ON {} FROM {role}", object.name));
        }
    }
}

#[test]
fn rights_are_those_of_the_role_that_reads() {
    let db = ALONE.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let matrix = Matrix::new(db);
    let plain = format!("plain_{}", matrix.db.name);
    let peek = |owner: &str| {
        format!(
            "CREATE FUNCTION peek_{owner}() RETURNS bigint SECURITY DEFINER LANGUAGE sql AS
               $$ SELECT count(*) FROM pgss_rs_stats WHERE {SHOWS_SECRET} $$;"
        )
    };
    matrix.db.prepare(&peek("superuser"));
    matrix.session("plain").batch_execute(&peek("plain")).unwrap();
    for mut session in [matrix.session("plain"), matrix.session(SUPERUSER)] {
        assert!(number(&mut session, "SELECT peek_superuser()") > 0.0);
        assert_eq!(number(&mut session, "SELECT peek_plain()"), 0.0);
    }
    // a view is no such function: what it calls runs as the one who reads it
    matrix
        .db
        .prepare("CREATE VIEW window_ AS SELECT * FROM pgss_rs_stats; GRANT SELECT ON window_ TO PUBLIC");
    let through = format!("SELECT count(*) FROM window_ WHERE {SHOWS_SECRET}");
    assert_eq!(number(&mut matrix.session("plain"), &through), 0.0);
    // by SET ROLE both ways
    let mut session = matrix.session(SUPERUSER);
    let shown = format!("SELECT count(*) FROM pgss_rs_stats WHERE {SHOWS_SECRET}");
    assert!(number(&mut session, &shown) > 0.0);
    session.batch_execute(&format!("SET ROLE {plain}")).unwrap();
    assert_eq!(number(&mut session, &shown), 0.0);
    let mut session = matrix.session("stranger");
    assert_eq!(number(&mut session, &shown), 0.0);
    session.batch_execute("SET ROLE pg_read_all_stats").unwrap();
    assert!(number(&mut session, &shown) > 0.0);
}

/// Whatever is kept of a statement that only failed, and wherever it failed, its constants are not.
#[test]
fn the_constants_of_statements_that_fail_are_not_stored() {
    let db = ALONE.database();
    db.prepare(
        "CREATE TABLE t (a text PRIMARY KEY); CREATE TABLE child (a text REFERENCES t);
         CREATE FUNCTION fails(what text) RETURNS int LANGUAGE plpgsql AS $$
         BEGIN EXECUTE 'SELECT 1 / length(''dynamic hunter2'') - length(''' || what || ''')::text::date'; RETURN 1; END $$;
         CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS $$
         BEGIN BEGIN PERFORM 'hunter2'::text::int; EXCEPTION WHEN OTHERS THEN END; RETURN 1; END $$",
    );
    let failing = [
        "SELECT 'planned hunter2'::text::int",
        "SELECT 1 / (length(a) - length(a)), 'hunter2' FROM (VALUES ('hunter2')) v (a)",
        "INSERT INTO child VALUES ('finished hunter2')",
        "INSERT INTO t VALUES ('hunter2'), ('hunter2')",
        "SELECT fails('nested hunter2')",
        "WITH c AS (INSERT INTO t VALUES ('a hunter2') RETURNING a) SELECT a::int FROM c",
        "DECLARE c CURSOR FOR SELECT 'hunter2'",
    ];
    for settings in [&["pgss_rs.track=all"][..], &["pgss_rs.track=all", "pgss_rs.sample_rate=1e-12"]] {
        let mut session = db.session_with(settings);
        for sql in failing {
            assert!(session.batch_execute(sql).is_err(), "{sql}");
            assert!(session.execute(sql, &[]).is_err(), "{sql}");
        }
        session.batch_execute("SELECT catches()").unwrap();
        let utility = since(16, "", "AND query NOT LIKE 'DECLARE%'");
        assert!(db.number("count(*)", "errors > 0") > 5.0);
        assert_eq!(
            db.number("count(*)", &format!("query LIKE '%hunter2%' {utility}")),
            0.0,
            "{:?}",
            db.entries()
        );
        db.reset();
    }
}

/// What a role that may create in the extension's schema can put there, so that it be taken for the server's own: every
/// signature that an operator or function of ours may be called with by way of a conversion.
const HOSTILE: &str = r#"
    DO $$
    DECLARE
      types text[] := '{int4,int8,float8,numeric,text,bool,oid,unknown,timestamptz}';
      l text; r text; name text; returned text; n int := 0;
    BEGIN
      FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
          FOREACH name IN ARRAY '{+,-,*,/,||,=,<>,<,<=,>,>=}'::text[] LOOP
            CONTINUE WHEN 'unknown' IN (l, r);
            n := n + 1;
            returned := CASE WHEN name IN ('=','<>','<','<=','>','>=') THEN 'bool' ELSE l END;
            EXECUTE format('CREATE FUNCTION stolen_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS
              %L', n, l, r, returned, 'BEGIN RAISE EXCEPTION ''stolen''; END');
            EXECUTE format('CREATE OPERATOR %s (FUNCTION = stolen_%s, LEFTARG = %s, RIGHTARG = %s)', name, n, l, r);
          END LOOP;
          FOREACH name IN ARRAY '{format,round,left,btrim,concat,nullif,greatest,length}'::text[] LOOP
            CONTINUE WHEN 'unknown' IN (l, r);
            EXECUTE format('CREATE FUNCTION %I(%s, %s) RETURNS %s LANGUAGE plpgsql AS
              %L', name, l, r, CASE name WHEN 'round' THEN 'numeric' ELSE 'text' END,
              'BEGIN RAISE EXCEPTION ''stolen''; END');
          END LOOP;
        END LOOP;
        FOREACH name IN ARRAY '{length,octet_length,round,btrim,pg_size_pretty,current_setting}'::text[] LOOP
          CONTINUE WHEN l = 'unknown';
          EXECUTE format('CREATE FUNCTION %I(%s) RETURNS %s LANGUAGE plpgsql AS
            %L', name, l, CASE name WHEN 'length' THEN 'int' WHEN 'octet_length' THEN 'int' WHEN 'round' THEN 'numeric'
            ELSE 'text' END, 'BEGIN RAISE EXCEPTION ''stolen''; END');
        END LOOP;
      END LOOP;
    END $$"#;

/// Of our views' definitions on what is neither the server's nor ours.
fn strange_dependencies(db: &Database) -> Vec<Vec<Option<String>>> {
    let sql = "SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, 0) FROM pg_depend d
       JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
       JOIN pg_depend e ON e.classid = 'pg_class'::regclass AND e.objid = w.ev_class AND e.deptype = 'e'
       WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
         AND NOT EXISTS (SELECT FROM pg_depend m WHERE m.classid = d.refclassid AND m.objid = d.refobjid
                         AND m.deptype = 'e')";
    rows(&mut db.session_with(&["search_path=pg_catalog"]), sql)
}

fn hostile_database<'a>() -> (Database<'a>, String) {
    let db = ALONE.database();
    let role = format!("hostile_{}", db.name);
    db.prepare(&format!("CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}"));
    (db, role)
}

#[test]
fn operators_and_functions_in_the_extensions_schema_are_not_taken_for_the_servers() {
    let install = |version: &str| {
        let (db, role) = hostile_database();
        db.session_as(&role).batch_execute(HOSTILE).unwrap();
        db.prepare(version);
        db
    };
    let from_released = updates::released()
        .into_iter()
        .map(|v| format!("CREATE EXTENSION pgss_rs VERSION '{v}'; ALTER EXTENSION pgss_rs UPDATE"));
    for version in std::iter::once("CREATE EXTENSION pgss_rs".to_owned()).chain(from_released) {
        let db = install(&version);
        let mut session = db.session();
        session.batch_execute("SELECT 1, 2").unwrap();
        assert_eq!(strange_dependencies(&db), [[None; 0]; 0], "{version}");
        for object in OBJECTS.iter().filter(|o| o.public) {
            let call = object.call.replace("$ID", "1::bigint").replace("0.5", "0.5::float8");
            session
                .batch_execute(&format!("SELECT * FROM {call}"))
                .unwrap_or_else(|e| panic!("{version}: {call}: {e}"));
        }
        // with that schema before the server's own
        session.batch_execute("SET search_path = public, pg_catalog").unwrap();
        crate::servers::leave_as_pg_upgrade(&mut session);
        session.batch_execute("SELECT pgss_rs_refresh_compat()").unwrap();
        session.batch_execute("TABLE pgss_rs_top; TABLE pgss_compat.pg_stat_statements").unwrap();
        assert_eq!(strange_dependencies(&db), [[None; 0]; 0], "{version}");
    }
}

#[test]
fn what_has_a_name_of_ours_already_is_refused_not_taken_over() {
    for (sql, code) in [
        ("CREATE FUNCTION pgss_rs_refresh_compat() RETURNS void LANGUAGE sql AS ''", "42723"),
        ("CREATE FUNCTION pgss_rs_info() RETURNS int LANGUAGE sql AS 'SELECT 1'", "42723"),
        ("CREATE TABLE pgss_rs_stats (a int)", "42P07"),
        ("CREATE SCHEMA pgss_compat", "42P06"),
    ] {
        let (db, role) = hostile_database();
        db.prepare(&format!("GRANT CREATE ON DATABASE {} TO {role}", db.name));
        db.session_as(&role).batch_execute(sql).unwrap();
        assert_eq!(sqlstate_of(&mut db.session(), "CREATE EXTENSION pgss_rs"), code, "{sql}");
        let left = "SELECT count(*) FROM pg_extension WHERE extname = 'pgss_rs'";
        assert_eq!(number(&mut db.session(), left), 0.0, "{sql}");
    }
    // it is the superuser's to create at all
    let (db, role) = hostile_database();
    db.prepare(&format!("GRANT CREATE ON DATABASE {} TO {role}", db.name));
    assert_eq!(sqlstate_of(&mut db.session_as(&role), "CREATE EXTENSION pgss_rs"), "42501");
}

/// All the ways to set something that a role has.
#[test]
fn no_setting_is_had_by_a_role_that_it_is_not_granted_to() {
    let (db, role) = hostile_database();
    db.prepare(&format!("ALTER DATABASE {} OWNER TO {role}", db.name));
    let mut session = db.session_as(&role);
    let settings = "SELECT name, setting, context FROM pg_settings WHERE name LIKE 'pgss_rs.%'";
    let settings = rows(&mut session, settings);
    assert!(settings.len() >= 11);
    for setting in settings {
        let [name, value, context] = setting.try_into().unwrap();
        let (name, value) = (name.unwrap(), value.unwrap());
        let code = if context.as_deref() == Some("superuser") { "42501" } else { "55P02" };
        for sql in [
            format!("SET {name} = '{value}'"),
            format!("SET LOCAL {name} = '{value}'"),
            format!("RESET {name}"),
            format!("SELECT set_config('{name}', '{value}', false)"),
            format!("CREATE FUNCTION sets() RETURNS int LANGUAGE sql SET {name} = '{value}' AS 'SELECT 1'"),
            format!("ALTER ROLE {role} SET {name} = '{value}'"),
            format!("ALTER DATABASE {} SET {name} = '{value}'", db.name),
            format!("UPDATE pg_settings SET setting = '{value}' WHERE name = '{name}'"),
        ] {
            assert_eq!(sqlstate_of(&mut session, &sql), code, "{sql}");
        }
        assert_eq!(sqlstate_of(&mut session, &format!("ALTER SYSTEM SET {name} = '{value}'")), "42501");
        let options = format!("-c {name}={value}");
        let refused =
            config(db.cluster, &db.name).user(&role).options(&options).connect(NoTls).err().unwrap();
        assert_eq!(refused.code().map(|c| c.code()), Some(code), "{options}");
    }
    // and what everybody may set with RESET ALL and DISCARD ALL stays
    session.batch_execute("RESET ALL").unwrap();
    session.batch_execute("DISCARD ALL").unwrap();
}

#[test]
fn extreme_settings_break_nothing() {
    let db = ALONE.database();
    for settings in [
        ["pgss_rs.sample_rate=1e-307", "pgss_rs.max_overhead=0", "pgss_rs.sample_slow_ms=-1"],
        ["pgss_rs.sample_rate=1", "pgss_rs.max_overhead=1e-307", "pgss_rs.sample_slow_ms=-1"],
        ["pgss_rs.sample_rate=1e-300", "pgss_rs.max_overhead=1e-300", "pgss_rs.sample_slow_ms=-1"],
        [
            "pgss_rs.sample_rate=0.9999999999999999",
            "pgss_rs.max_overhead=100",
            "pgss_rs.sample_slow_ms=2147483647",
        ],
        ["pgss_rs.sample_rate=0", "pgss_rs.max_overhead=100", "pgss_rs.sample_slow_ms=0"],
    ] {
        let mut session = db.session_with(&[&settings[..], &["pgss_rs.track=all"]].concat());
        let prepared = session.prepare("SELECT 10 / $1::int").unwrap();
        for n in 0..1500 {
            let _ = session.query(&prepared, &[&(n % 5)]);
            session.batch_execute("SELECT 1").unwrap();
        }
        let finite = "bool_and(calls BETWEEN 0 AND 9e15 AND total_exec_time BETWEEN 0 AND 1e15
                      AND calls_stderr < 'infinity' AND total_exec_time_stderr < 'infinity')";
        assert_ne!(db.value(&format!("coalesce({finite}, true)"), "true"), "f", "{settings:?}");
        assert!(
            db.number("sum(errors)", "query = 'SELECT $1 / $1::int' OR query LIKE 'SELECT %::int'") <= 300.0
        );
        db.reset();
    }
}

/// Only the server's own user can put anything there; still nothing is written through what is in the file's place.
#[test]
fn the_file_replaces_a_link_and_is_the_servers_alone_however_it_is_written() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.save_interval", "1s")]);
    let (file, other) =
        (cluster.data_dir().join("pg_stat/pgss_rs.stat"), cluster.data_dir().join("somebody_elses"));
    let is_private = || {
        let found = fs::symlink_metadata(&file).unwrap();
        found.is_file() && found.permissions().mode() & 0o7777 == 0o600
    };
    cluster.stop(Shutdown::Fast).unwrap();
    assert!(is_private());
    fs::rename(&file, &other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    let written = fs::read(&other).unwrap();
    symlink(&other, &file).unwrap();
    cluster.start().unwrap();
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1, 2, 3 AS seen").unwrap();
    // by the saver, while the server runs
    while !fs::read_to_string(&file).unwrap().contains("AS seen") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(is_private() && fs::read(&other).unwrap() == written);
    // a reset that removes it
    fs::remove_file(&file).unwrap();
    symlink(&other, &file).unwrap();
    observe(&cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
    assert!(fs::read(&other).unwrap() == written);
    cluster.stop(Shutdown::Fast).unwrap();
    assert!(is_private() && fs::read(&other).unwrap() == written);
}

#[test]
fn an_error_of_ours_tells_nothing_of_others() {
    let db = ALONE.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let matrix = Matrix::new(db);
    let mut session = matrix.session("plain");
    for call in ["pgss_rs_percentile($ID, 2)", "pgss_rs_percentile($ID, 'NaN')", "pgss_rs_stats(true, -1)"] {
        let e = error_of(&mut session, &format!("SELECT {}", call.replace("$ID", &matrix.id)));
        assert!(!format!("{e:?}").contains(SECRET), "{e:?}");
    }
    assert_eq!(nullable(&mut session, &format!("SELECT pgss_rs_text({}, 10)", matrix.id)), None);
    assert_eq!(nullable(&mut session, &format!("SELECT pgss_rs_percentile({}, 0.5, 10)", matrix.id)), None);
}
