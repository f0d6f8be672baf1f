//! The settings: defaults, ranges, errors, and that a change works at once.

use crate::servers::{ALONE, connect, error_of, number, rows, since, start_with_pgss_rs, value};

const SETTINGS: &[(&str, &str, &str)] = &[
    ("pgss_rs.max", "5000", "postmaster"),
    ("pgss_rs.max_overhead", "0", "superuser"),
    ("pgss_rs.sample_rate", "1", "superuser"),
    ("pgss_rs.sample_slow_ms", "-1", "superuser"),
    ("pgss_rs.save", "on", "sighup"),
    ("pgss_rs.save_interval", "5min", "sighup"),
    ("pgss_rs.squash_lists", "on", "superuser"),
    ("pgss_rs.text_memory", "32MB", "postmaster"),
    ("pgss_rs.timing_clock_source", "auto", "superuser"),
    ("pgss_rs.track", "top", "superuser"),
    ("pgss_rs.track_planning", "off", "superuser"),
    ("pgss_rs.track_utility", "on", "superuser"),
];

#[test]
fn each_setting_has_its_default_and_context() {
    let mut session = ALONE.database().session();
    let sql = "SELECT name, current_setting(name), context FROM pg_settings
               WHERE name LIKE 'pgss_rs.%' AND context <> 'internal' ORDER BY 1";
    let shown = rows(&mut session, sql);
    for (name, default, context) in SETTINGS {
        let row = [*name, *default, *context].map(|s| Some(s.to_owned()));
        assert!(shown.iter().any(|shown| *shown == row), "{name} in {shown:?}");
    }
    assert_eq!(shown.len(), SETTINGS.len(), "{shown:?}");
}

#[test]
fn how_the_library_was_built_is_shown_and_cannot_be_set() {
    let mut session = ALONE.database().session();
    assert!(["on", "off"].contains(&&*value(&mut session, "SHOW pgss_rs.debug_assertions")));
    let error = error_of(&mut session, "SET pgss_rs.debug_assertions = on");
    assert_eq!(error.message(), "parameter \"pgss_rs.debug_assertions\" cannot be changed");
}

#[test]
fn each_setting_has_descriptions() {
    let mut session = ALONE.database().session();
    let without = "SELECT count(*) FROM pg_settings WHERE name LIKE 'pgss_rs.%'
                   AND (coalesce(short_desc, '') = '' OR coalesce(extra_desc, '') = '')";
    assert_eq!(number(&mut session, without), 0.0);
}

#[test]
fn values_out_of_range_are_refused_with_what_is_allowed() {
    let mut session = ALONE.database().session();
    for (set, message, hint) in [
        (
            "pgss_rs.sample_rate = 1.5",
            "1.5 is outside the valid range for parameter \"pgss_rs.sample_rate\" (0 .. 1)",
            None,
        ),
        (
            "pgss_rs.sample_rate = -0.1",
            "-0.1 is outside the valid range for parameter \"pgss_rs.sample_rate\" (0 .. 1)",
            None,
        ),
        (
            "pgss_rs.sample_rate = 'half'",
            "invalid value for parameter \"pgss_rs.sample_rate\": \"half\"",
            None,
        ),
        ("pgss_rs.sample_rate = 'NaN'", "invalid value for parameter \"pgss_rs.sample_rate\": \"NaN\"", None),
        (
            "pgss_rs.sample_rate = 'Infinity'",
            "Infinity is outside the valid range for parameter \"pgss_rs.sample_rate\" (0 .. 1)",
            None,
        ),
        (
            "pgss_rs.track = 'some'",
            "invalid value for parameter \"pgss_rs.track\": \"some\"",
            Some("Available values: none, top, all."),
        ),
        (
            "pgss_rs.track_utility = 'maybe'",
            "parameter \"pgss_rs.track_utility\" requires a Boolean value",
            None,
        ),
        (
            "pgss_rs.track_planning = 7.5",
            "parameter \"pgss_rs.track_planning\" requires a Boolean value",
            None,
        ),
    ] {
        let e = error_of(&mut session, &format!("SET {set}"));
        assert_eq!((e.code().code(), e.hint()), ("22023", hint), "{set}");
        assert_eq!(e.message().to_lowercase(), message.to_lowercase(), "{set}");
    }
    assert_eq!(value(&mut session, "SHOW pgss_rs.sample_rate"), "1");
}

#[test]
fn an_unknown_setting_with_the_prefix_is_refused() {
    let mut session = ALONE.database().session();
    let e = error_of(&mut session, "SET pgss_rs.sampel_rate = 0.5");
    assert_eq!(e.message(), "invalid configuration parameter name \"pgss_rs.sampel_rate\"");
    assert_eq!((e.code().code(), e.detail()), ("42602", Some("\"pgss_rs\" is a reserved prefix.")));
}

#[test]
fn the_sizes_need_a_restart() {
    let mut session = ALONE.database().session();
    for set in ["pgss_rs.max = 200", "pgss_rs.text_memory = '1MB'"] {
        assert_eq!(error_of(&mut session, &format!("SET {set}")).code().code(), "55P02", "{set}");
    }
}

#[test]
fn the_sizes_have_a_floor_below_which_the_default_is_taken() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "99"), ("pgss_rs.text_memory", "63kB")]);
    let log = cluster.log();
    let range = since(17, "64 kB .. 2097152 kB", "64 .. 2097152");
    for warning in [
        "99 is outside the valid range for parameter \"pgss_rs.max\" (100 .. 1073741823)",
        &format!("63 kB is outside the valid range for parameter \"pgss_rs.text_memory\" ({range})"),
    ] {
        assert!(log.contains(warning), "{log}");
    }
    let mut session = connect(&cluster, "postgres");
    assert_eq!(value(&mut session, "SHOW pgss_rs.max"), "5000");
    assert_eq!(value(&mut session, "SELECT max_entries FROM pgss_rs_info"), "5000");
    assert_eq!(value(&mut session, "SHOW pgss_rs.text_memory"), "32MB");
    assert_eq!(value(&mut session, "SELECT text_bytes_total FROM pgss_rs_info"), (32 << 20).to_string());
}

#[test]
fn a_change_within_the_session_works_at_once() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    let mut calls_after = |sql: &str| {
        session.batch_execute(sql).unwrap();
        session.batch_execute("SELECT 1").unwrap();
        db.calls("SELECT $1").0
    };
    assert_eq!(calls_after("SET pgss_rs.track = 'none'"), 0);
    assert_eq!(calls_after("SET pgss_rs.track = 'top'"), 1);
    assert_eq!(calls_after("SET pgss_rs.sample_rate = 0"), 1);
    assert_eq!(calls_after("SET pgss_rs.sample_rate = 1"), 2);
    assert_eq!(calls_after("SET pgss_rs.track = 'all'"), 3);
    assert_eq!(calls_after("BEGIN; SET LOCAL pgss_rs.sample_rate = 0"), 3);
    assert_eq!(calls_after("COMMIT"), 4);
    assert_eq!(calls_after("BEGIN; SET pgss_rs.track = 'none'; ROLLBACK"), 5);
    assert_eq!(calls_after("RESET ALL; SET pgss_rs.sample_rate = 0"), 5);
    assert_eq!(calls_after("RESET pgss_rs.sample_rate"), 6);
}

#[test]
fn track_utility_leaves_utility_statements_out() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    session.batch_execute("CREATE TABLE t (a int); SET pgss_rs.track_utility = on; DROP TABLE t").unwrap();
    assert_eq!(db.texts(), ["DROP TABLE t"]);
}

#[test]
fn settings_of_a_database_and_a_role_apply_to_their_sessions() {
    let db = ALONE.database();
    let role = format!("set_{}", db.name);
    db.prepare(&format!(
        "ALTER DATABASE {0} SET pgss_rs.sample_rate = 0; CREATE ROLE {role} LOGIN;
         ALTER ROLE {role} SET pgss_rs.sample_rate = 1",
        db.name
    ));
    db.session().batch_execute("SELECT 1").unwrap();
    assert_eq!(db.entries(), []);
    db.session_as(&role).batch_execute("SELECT 1").unwrap();
    assert_eq!(db.calls("SELECT $1"), (1, 0));
}

#[test]
fn a_reload_changes_running_sessions() {
    let mut cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, "postgres");
    cluster.set("pgss_rs.sample_rate", "0").unwrap();
    cluster.set("pgss_rs.max", "200").unwrap();
    cluster.reload().unwrap();
    while value(&mut session, "SHOW pgss_rs.sample_rate") != "0" {}
    session.batch_execute("SELECT 1, 2, 3").unwrap();
    session.batch_execute("SET pgss_rs.sample_rate = 1").unwrap();
    let calls = "SELECT count(*) FROM pgss_rs_stats WHERE query = 'SELECT $1, $2, $3'";
    assert_eq!(number(&mut session, calls), 0.0);
    assert_eq!(value(&mut session, "SHOW pgss_rs.max"), "5000");
    let refused = "parameter \"pgss_rs.max\" cannot be changed without restarting the server";
    assert!(cluster.log().contains(refused), "{}", cluster.log());
}
