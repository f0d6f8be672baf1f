//! SQL versions of the extension: the library serves every one, and every one updates to the newest.
//!
//! `pg_test/released/` holds the install script of each released version, as it was released; `sql/` the update scripts.

use crate::servers::{ALONE, Database, number, pg_config, rows, sqlstate_of, value};
use postgres::Client;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const NEWEST: &str = env!("CARGO_PKG_VERSION");

/// The released versions, with their scripts put where the server looks for them.
pub fn released() -> Vec<String> {
    let sharedir = Command::new(pg_config()).arg("--sharedir").output().unwrap();
    let extensions = PathBuf::from(String::from_utf8(sharedir.stdout).unwrap().trim()).join("extension");
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("pg_test/released");
    let install = |script: fs::DirEntry| {
        let name = script.file_name().into_string().unwrap();
        // renamed into place: tests run side by side
        let temporary = extensions.join(format!("{name}.{:?}", std::thread::current().id()));
        fs::copy(script.path(), &temporary).unwrap();
        fs::rename(temporary, extensions.join(&name)).unwrap();
        name.strip_prefix("pgss_rs--").unwrap().strip_suffix(".sql").unwrap().to_owned()
    };
    let versions: Vec<String> =
        fs::read_dir(scripts).unwrap().map(|script| install(script.unwrap())).collect();
    assert!(!versions.is_empty());
    versions
}

/// Everything that belongs to the extension, with definitions, comments and privileges.
fn objects(session: &mut Client) -> Vec<Vec<Option<String>>> {
    let members =
        "SELECT classid, objid FROM pg_depend WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass
                   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pgss_rs')";
    let described = "SELECT pg_describe_object(m.classid, m.objid, 0),
       CASE m.classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(m.objid)
                      WHEN 'pg_class'::regclass THEN pg_get_viewdef(m.objid) END,
       coalesce((SELECT proacl::text FROM pg_proc WHERE oid = m.objid),
                (SELECT relacl::text FROM pg_class WHERE oid = m.objid),
                (SELECT nspacl::text FROM pg_namespace WHERE oid = m.objid)),
       obj_description(m.objid, m.classid::regclass::text),
       (SELECT string_agg(attname || ': ' || coalesce(col_description(attrelid, attnum), ''), E'\\n' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = m.objid AND m.classid = 'pg_class'::regclass)";
    let types = "m.classid <> 'pg_type'::regclass AND m.classid <> 'pg_rewrite'::regclass";
    rows(session, &format!("WITH m AS ({members}) {described} FROM m WHERE {types} ORDER BY 1"))
}

fn created<'a>(version: &str) -> (Database<'a>, Client) {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute(&format!("CREATE EXTENSION pgss_rs VERSION '{version}'")).unwrap();
    (db, session)
}

#[test]
fn every_released_version_updates_to_what_a_fresh_install_has() {
    let (_fresh, mut session) = created(NEWEST);
    let fresh = objects(&mut session);
    assert!(fresh.len() > 10, "{fresh:#?}");
    for version in released() {
        let (_db, mut session) = created(&version);
        if version != NEWEST {
            assert_ne!(objects(&mut session), fresh, "{version}");
        }
        session.batch_execute("ALTER EXTENSION pgss_rs UPDATE").unwrap();
        assert_eq!(objects(&mut session), fresh, "from {version}");
        assert_eq!(value(&mut session, "SELECT sql_version FROM pgss_rs_info"), NEWEST);
        session.batch_execute("DROP EXTENSION pgss_rs").unwrap();
    }
}

#[test]
fn the_library_serves_every_released_version() {
    for version in released() {
        let (db, mut session) = created(&version);
        session.batch_execute("SELECT 1, 2, 3, 4").unwrap();
        let calls = format!("FROM pgss_rs_stats WHERE dbid = {} AND query = 'SELECT $1, $2, $3, $4'", db.oid);
        assert_eq!(value(&mut session, &format!("SELECT calls {calls}")), "1", "{version}");
        assert!(number(&mut session, &format!("SELECT total_exec_time {calls}")) > 0.0);
        assert!(number(&mut session, "SELECT entries FROM pgss_rs_info") >= 1.0);
        assert_eq!(number(&mut session, "SELECT max_entries FROM pgss_rs_info()"), 5000.0);
        let compat = calls.replace("pgss_rs_stats", "pgss_compat.pg_stat_statements");
        assert_eq!(value(&mut session, &format!("SELECT calls {compat}")), "1");
        session.batch_execute(&format!("SELECT pgss_rs_reset(0, {})", db.oid)).unwrap();
        assert_eq!(number(&mut session, &format!("SELECT count(*) {calls}")), 0.0);
    }
}

#[test]
fn the_newest_version_is_what_is_installed_by_default_and_cannot_be_downgraded() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    let versions = "SELECT (library_version, sql_version, compat_current)::text FROM pgss_rs_info";
    assert_eq!(value(&mut session, versions), format!("({NEWEST},{NEWEST},t)"));
    assert_eq!(sqlstate_of(&mut session, "ALTER EXTENSION pgss_rs UPDATE TO '0.1.0'"), "22023");
}

/// What `sql` is warned of.
fn warnings(db: &Database, sql: &str) -> Vec<(String, String)> {
    let (sender, received) = std::sync::mpsc::channel();
    let mut config = crate::servers::config(db.cluster, &db.name);
    config.notice_callback(move |n| {
        let _ = sender.send((n.message().to_owned(), n.hint().unwrap_or_default().to_owned()));
    });
    config.connect(postgres::NoTls).unwrap().batch_execute(sql).unwrap();
    received.try_iter().collect()
}

#[test]
fn info_warns_of_objects_that_are_not_of_this_server_or_library() {
    let (db, mut session) = created(NEWEST);
    assert_eq!(warnings(&db, "SELECT * FROM pgss_rs_info"), []);
    crate::servers::leave_as_pg_upgrade(&mut session);
    assert_eq!(value(&mut session, "SELECT compat_current FROM pgss_rs_info"), "f");
    let [(message, hint)] = warnings(&db, "SELECT * FROM pgss_rs_info").try_into().unwrap();
    assert!(
        message.contains("schema pgss_compat are not those of this server's pg_stat_statements"),
        "{message}"
    );
    assert_eq!(hint, "Run SELECT pgss_rs_refresh_compat().");
    session.batch_execute("SELECT pgss_rs_refresh_compat()").unwrap();
    assert_eq!(warnings(&db, "SELECT * FROM pgss_rs_info"), []);
    for version in released().into_iter().filter(|v| v != NEWEST) {
        let (db, _) = created(&version);
        let [(message, hint)] = warnings(&db, "SELECT * FROM pgss_rs_info()").try_into().unwrap();
        assert!(message.contains(&format!("of version {version}, its library of {NEWEST}")), "{message}");
        assert_eq!(hint, "Run ALTER EXTENSION pgss_rs UPDATE.");
    }
}

#[test]
fn info_warns_where_nothing_can_be_recorded() {
    let (db, _) = created(NEWEST);
    let off = "SET compute_query_id = off; SELECT * FROM pgss_rs_info";
    let [(message, hint)] = warnings(&db, off).try_into().unwrap();
    assert!(message.starts_with("nothing is recorded") && hint.contains("auto"), "{message}: {hint}");
    assert_eq!(warnings(&db, "SET compute_query_id = regress; SELECT * FROM pgss_rs_info"), []);
}

#[test]
fn whatever_users_see_has_a_comment() {
    let (_db, mut session) = created(NEWEST);
    // Those of pgss_compat are as pg_stat_statements has them.
    let own = objects(&mut session).into_iter().filter(|object| {
        object[0]
            .as_ref()
            .is_some_and(|name| !name.contains("pgss_compat.") && !name.starts_with("extension"))
    });
    let (mut objects, mut columns) = (0, 0);
    for object in own {
        assert!(object[3].is_some(), "{object:?}");
        objects += 1;
        for column in object[4].iter().flat_map(|columns| columns.lines()) {
            assert!(column.split_once(": ").is_some_and(|(_, comment)| !comment.is_empty()), "{column}");
            columns += 1;
        }
    }
    assert!(objects >= 13 && columns > 100, "{objects}, {columns}");
}
