//! Who sees, resets and sets what.

use crate::servers::{ALONE, BESIDE, Database, Shared, lacks, nullable, rows, sqlstate_of, value};

/// A database with the extension, a role without privileges, and one that reads all statistics.
fn database(server: &Shared) -> (Database<'_>, String, String) {
    let db = server.database();
    let (plain, reader) = (format!("plain_{}", db.name), format!("reader_{}", db.name));
    db.prepare(&format!(
        "CREATE EXTENSION pgss_rs; CREATE ROLE {plain} LOGIN; CREATE ROLE {reader} LOGIN IN ROLE pg_read_all_stats;
         GRANT ALL ON SCHEMA public TO {plain}, {reader}"
    ));
    (db, plain, reader)
}

const SHOWN: &str =
    "SELECT query, queryid IS NULL, calls FROM pgss_rs_stats s JOIN pg_roles r ON r.oid = s.userid
                     JOIN pg_database d ON d.oid = s.dbid
                     WHERE datname = current_database() AND rolname =";

fn shown(query: &str, no_id: bool, calls: u32) -> Vec<Option<String>> {
    let no_id = if no_id { "t" } else { "f" };
    [query, no_id, &calls.to_string()].map(|s| Some(s.to_owned())).to_vec()
}

#[test]
fn texts_and_identifiers_of_others_are_hidden() {
    let (db, plain, reader) = database(&ALONE);
    let mut session = db.session_as(&plain);
    session.batch_execute("SELECT 'mine'").unwrap();
    db.session().batch_execute("SELECT 'theirs', 1; SELECT 'theirs', 1").unwrap();

    let hidden = "<insufficient privilege>";
    assert_eq!(rows(&mut session, &format!("{SHOWN} 'postgres'")), [shown(hidden, true, 2)]);
    let own = rows(&mut session, &format!("{SHOWN} '{plain}'"));
    assert!(own.contains(&shown("SELECT $1", false, 1)), "{own:?}");
    assert!(own.iter().all(|row| row[1].as_deref() == Some("f")), "{own:?}");

    let mut reads_all = db.session_as(&reader);
    assert_eq!(rows(&mut reads_all, &format!("{SHOWN} 'postgres'")), [shown("SELECT $1, $2", false, 2)]);
    assert!(rows(&mut reads_all, &format!("{SHOWN} '{plain}'")).contains(&shown("SELECT $1", false, 1)));
}

#[test]
fn without_texts_only_identifiers_are_hidden() {
    let (db, plain, _) = database(&ALONE);
    db.session().batch_execute("SELECT 'theirs', 1").unwrap();
    let without = SHOWN.replace("FROM pgss_rs_stats s", "FROM pgss_rs_stats(false) s") + " 'postgres'";
    let row = |no_id: &str| vec![None, Some(no_id.to_owned()), Some("1".to_owned())];
    assert_eq!(rows(&mut db.session_as(&plain), &without), [row("t")]);
    assert_eq!(rows(&mut db.session(), &without)[..1], [row("f")]);
}

#[test]
fn reset_is_denied_to_the_public_and_can_be_granted() {
    let (db, plain, reader) = database(&ALONE);
    let mut session = db.session_as(&plain);
    let reset = format!("SELECT pgss_rs_reset(0, {}, 0)", db.oid);
    assert_eq!(sqlstate_of(&mut session, &reset), "42501");
    assert_eq!(sqlstate_of(&mut db.session_as(&reader), &reset), "42501");
    db.prepare(&format!("GRANT EXECUTE ON FUNCTION pgss_rs_reset(oid, oid, bigint, boolean) TO {plain}"));
    session.batch_execute("SELECT 'before'").unwrap();
    session.batch_execute(&reset).unwrap();
    assert_eq!(db.calls("SELECT $1"), (0, 0));
}

#[test]
fn everyone_reads_the_views() {
    let (db, plain, _) = database(&ALONE);
    let mut session = db.session_as(&plain);
    assert_eq!(value(&mut session, "SELECT count(*) FROM pgss_rs_info"), "1");
    assert_eq!(value(&mut session, "SELECT count(*) > 0 FROM pgss_rs_stats"), "t");
}

#[test]
fn settings_are_the_superusers_and_can_be_granted() {
    let (db, plain, _) = database(&ALONE);
    let mut session = db.session_as(&plain);
    for (name, value_set) in [
        ("pgss_rs.sample_rate", "0.5"),
        ("pgss_rs.track", "none"),
        ("pgss_rs.track_utility", "off"),
        ("pgss_rs.track_planning", "on"),
    ] {
        let set = format!("SET {name} = '{value_set}'");
        assert_eq!(sqlstate_of(&mut session, &set), "42501", "{name}");
        db.prepare(&format!("GRANT SET ON PARAMETER {name} TO {plain}"));
        session.batch_execute(&set).unwrap();
        assert_eq!(nullable(&mut session, &format!("SHOW {name}")).as_deref(), Some(value_set));
        db.prepare(&format!(
            "REVOKE SET ON PARAMETER {name} FROM {plain}; DROP OWNED BY {plain};
                             GRANT ALL ON SCHEMA public TO {plain}"
        ));
    }
}

#[test]
fn a_statement_is_charged_to_the_role_it_started_under() {
    let (db, plain, _) = database(&ALONE);
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    let charged = |query: &str| {
        let of = format!("query = '{query}'");
        db.value("string_agg(userid::regrole::text, ',' ORDER BY userid)", &of)
    };
    session
        .batch_execute(&format!("SET ROLE {plain}; SELECT 1 AS as_plain; RESET ROLE; SELECT 1, 2"))
        .unwrap();
    assert_eq!(charged("SELECT $1 AS as_plain"), plain);
    assert_eq!(charged("SELECT $1, $2"), "postgres");
    // the role changes while the statement runs
    session.batch_execute(&format!("SELECT set_config('role', '{plain}', false)")).unwrap();
    session.batch_execute("RESET ROLE").unwrap();
    assert_eq!(charged("SELECT set_config($1, $2, $3)"), "postgres");
}

#[test]
fn what_a_security_definer_function_executes_is_charged_to_its_owner_as_contrib_does() {
    if lacks("pg_stat_statements") {
        return;
    }
    let db = BESIDE.database();
    let plain = format!("plain_{}", db.name);
    db.prepare(&format!(
        "CREATE ROLE {plain} LOGIN; GRANT USAGE ON SCHEMA public TO {plain};
         CREATE FUNCTION definer() RETURNS bigint SECURITY DEFINER LANGUAGE plpgsql AS
         'BEGIN PERFORM count(*) FROM pg_class; RETURN 1; END';
         ALTER ROLE {plain} SET pgss_rs.track = 'all'; ALTER ROLE {plain} SET pg_stat_statements.track = 'all'"
    ));
    db.session_as(&plain).batch_execute("SELECT definer()").unwrap();
    let charged = |view: &str| {
        db.ask(&format!(
            "SELECT query, userid::regrole, toplevel FROM {view} WHERE dbid = {} ORDER BY query",
            db.oid
        ))
    };
    let row = |row: [&str; 3]| row.map(|s| Some(s.to_owned())).to_vec();
    let expected =
        [row(["SELECT count(*) FROM pg_class", "postgres", "f"]), row(["SELECT definer()", &plain, "t"])];
    assert_eq!(charged("pgss_rs_stats"), expected);
    assert_eq!(charged("pg_stat_statements"), expected);
}

#[test]
fn refreshing_what_is_right_leaves_the_grants_alone() {
    let db = ALONE.database();
    let mut session = db.session();
    session
        .batch_execute(
            "CREATE EXTENSION pgss_rs; REVOKE SELECT ON pgss_compat.pg_stat_statements FROM PUBLIC",
        )
        .unwrap();
    let acl = "SELECT relacl::text FROM pg_class WHERE oid = 'pgss_compat.pg_stat_statements'::regclass";
    let before = value(&mut session, acl);
    session.batch_execute("SELECT pgss_rs_refresh_compat()").unwrap();
    assert_eq!(value(&mut session, acl), before);
    // another major's view is replaced, and belongs to the extension again
    crate::servers::leave_as_pg_upgrade(&mut session);
    session.batch_execute("SELECT pgss_rs_refresh_compat()").unwrap();
    session.batch_execute("SELECT userid, calls FROM pgss_compat.pg_stat_statements LIMIT 1").unwrap();
    session.batch_execute("DROP EXTENSION pgss_rs").unwrap();
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'pg_stat_statements%'";
    assert_eq!(value(&mut session, left), "0");
}

/// Comments and names in a text are its user's; only the constants are nobody's.
#[test]
fn a_text_is_that_of_the_user_who_ran_it() {
    let db = ALONE.database();
    let role = format!("reader_{}", std::process::id());
    db.prepare(&format!("CREATE ROLE {role}"));
    let mut session = db.session();
    session.batch_execute("SELECT /* mine */ count(*) FROM pg_class WHERE relname = 'x'").unwrap();
    session.batch_execute(&format!("SET ROLE {role}")).unwrap();
    session.batch_execute("SELECT /* theirs */ count(*) FROM pg_class WHERE relname = 'y'").unwrap();
    session.batch_execute("RESET ROLE").unwrap();
    let texts = db.texts();
    for text in ["mine", "theirs"] {
        let text = format!("SELECT /* {text} */ count(*) FROM pg_class WHERE relname = $1");
        assert_eq!(texts.iter().filter(|t| **t == text).count(), 1, "{texts:#?}");
    }
    db.prepare(&format!("DROP ROLE {role}"));
}
