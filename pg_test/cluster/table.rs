//! The table of entries: full, and reset.

use postgres::Client;

use crate::servers::{
    ALONE, Database, connect, distinct, nullable, number, observe, rows, since, sqlstate_of,
    start_with_pgss_rs, value,
};

fn info(client: &mut Client, column: &str) -> f64 {
    number(client, &format!("SELECT {column} FROM pgss_rs_info"))
}

#[test]
fn a_full_table_keeps_counting_and_loses_no_call() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "100"), ("pgss_rs.track_utility", "off")]);
    let mut observer = observe(&cluster);
    observer.batch_execute("SELECT pgss_rs_reset()").unwrap();
    let statements = |from: u32, to: u32| (from..to).map(|n| distinct(n) + ";").collect::<String>();
    std::thread::scope(|scope| {
        for session in 0..4u32 {
            let mut client = connect(&cluster, "postgres");
            scope.spawn(move || {
                // many of them met by two sessions, in both directions
                for round in 0..3 {
                    let from = (session / 2 * 1000 + round * 100) % 4000;
                    client.batch_execute(&statements(from, from + 1000)).unwrap();
                }
            });
        }
        for _ in 0..50 {
            assert!(info(&mut observer, "entries") <= 100.0);
            assert!(number(&mut observer, "SELECT count(*) FROM pgss_rs_stats") <= 100.0);
        }
    });
    let kept = number(&mut observer, "SELECT sum(calls) FROM pgss_rs_stats");
    assert_eq!(kept + info(&mut observer, "evicted_calls"), 4.0 * 3.0 * 1000.0);
    assert_eq!(number(&mut observer, "SELECT sum(rows) FROM pgss_rs_stats"), kept);
    assert_eq!(info(&mut observer, "skipped"), 0.0);
    assert_eq!(info(&mut observer, "max_entries"), 100.0);
    assert_eq!(info(&mut observer, "entries"), 100.0);
    // at least what is no longer there had to go
    assert!(info(&mut observer, "dealloc") >= 2300.0 - 100.0);
    assert!(info(&mut observer, "evicted_total_exec_time") > 0.0);
    // no text is another statement's, and none has a literal
    let texts = rows(&mut observer, "SELECT query FROM pgss_rs_stats");
    assert!(texts.iter().all(|t| t[0].as_deref().is_some_and(|t| t.starts_with("SELECT $1"))), "{texts:?}");
    assert_eq!(number(&mut observer, "SELECT count(DISTINCT query) FROM pgss_rs_stats"), 100.0);
    // new statements still come in, and known ones are still counted exactly
    let mut client = connect(&cluster, "postgres");
    client.batch_execute(&"SELECT 'late', now();".repeat(7)).unwrap();
    let late = "SELECT sum(calls) FROM pgss_rs_stats WHERE query = 'SELECT $1, now()'";
    assert_eq!(number(&mut observer, late), 7.0);
}

#[test]
fn a_reset_of_all_starts_the_whole_table_anew() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "100")]);
    let mut observer = observe(&cluster);
    let mut session = connect(&cluster, "postgres");
    let many: String = (0..500).map(|n| distinct(n) + ";").collect();
    session.batch_execute(&many).unwrap();
    assert!(info(&mut observer, "dealloc") > 0.0 && info(&mut observer, "evicted_calls") > 0.0);
    let before = value(&mut observer, "SELECT stats_reset FROM pgss_rs_info");
    let reset = value(&mut observer, "SELECT pgss_rs_reset()");
    assert_eq!(value(&mut observer, "SELECT stats_reset FROM pgss_rs_info"), reset);
    assert!(before < reset, "{before} {reset}");
    for column in
        ["entries", "dealloc", "evicted_calls", "evicted_total_exec_time", "text_bytes_used", "skipped"]
    {
        assert_eq!(info(&mut observer, column), 0.0, "{column}");
    }
    assert_eq!(number(&mut observer, "SELECT count(*) FROM pgss_rs_stats"), 0.0);
    // the backend does not believe what it remembers
    session.batch_execute(&many).unwrap();
    let kept = number(&mut observer, "SELECT sum(calls) FROM pgss_rs_stats");
    assert_eq!(kept + info(&mut observer, "evicted_calls"), 500.0);
    let since = "SELECT bool_and(stats_since > (SELECT stats_reset FROM pgss_rs_info)) FROM pgss_rs_stats";
    assert_eq!(value(&mut observer, since), "t");
}

/// Two roles' entries for two statements, and one more in another database.
fn populated<'a>() -> (Database<'a>, Database<'a>, String) {
    let (db, other) = (ALONE.database(), ALONE.database());
    let role = format!("user_{}", db.name);
    db.prepare(&format!("CREATE ROLE {role} LOGIN"));
    for mut session in [db.session(), db.session_as(&role), other.session()] {
        session.batch_execute("SELECT 1; SELECT 1, 2; SELECT 1, 2").unwrap();
    }
    (db, other, role)
}

fn calls_by_role(db: &Database) -> Vec<String> {
    let row = "userid::regrole || ' ' || query || ' ' || calls";
    let list = db.value(&format!("coalesce(string_agg({row}, ';' ORDER BY {row}), '')"), "true");
    list.split_terminator(';').map(|s| s.replace(&format!("user_{}", db.name), "role")).collect()
}

const ALL: [&str; 4] =
    ["postgres SELECT $1 1", "postgres SELECT $1, $2 2", "role SELECT $1 1", "role SELECT $1, $2 2"];

#[test]
fn a_reset_removes_the_entries_of_the_user_database_and_statement_named() {
    let (db, other, role) = populated();
    assert_eq!(calls_by_role(&db), ALL);
    let oid = db.oid.clone();
    let id = db.value("queryid", "query = 'SELECT $1' AND userid = 10");
    let user = format!("'{role}'::regrole");

    db.ask(&format!("SELECT pgss_rs_reset({user}, {oid}, {id})"));
    assert_eq!(calls_by_role(&db), [ALL[0], ALL[1], ALL[3]]);
    db.ask(&format!("SELECT pgss_rs_reset(dbid => {oid}, queryid => {id})"));
    assert_eq!(calls_by_role(&db), [ALL[1], ALL[3]]);
    db.ask(&format!("SELECT pgss_rs_reset({user})"));
    assert_eq!(calls_by_role(&db), [ALL[1]]);
    db.ask(&format!("SELECT pgss_rs_reset(0, {oid})"));
    assert_eq!(calls_by_role(&db), [""; 0]);
    assert_eq!(calls_by_role(&other), ALL[..2]);

    // nothing of the kind: nothing goes
    other.ask("SELECT pgss_rs_reset(4294967295, 0, 0); SELECT pgss_rs_reset(0, 0, 1)");
    assert_eq!(calls_by_role(&other), ALL[..2]);
}

#[test]
fn a_reset_of_a_part_leaves_the_time_of_the_last_full_reset() {
    let (db, _, _) = populated();
    let before = db.ask("SELECT stats_reset FROM pgss_rs_info");
    db.reset();
    assert_eq!(db.ask("SELECT stats_reset FROM pgss_rs_info"), before);
}

#[test]
fn a_reset_of_minima_and_maxima_keeps_everything_else() {
    let (db, _, role) = populated();
    let oid = db.oid.clone();
    let since = db.value("max(stats_since)", "true");
    let total = db.number("sum(total_exec_time)", "true");
    let user = format!("'{role}'::regrole");
    let at = db.ask(&format!("SELECT pgss_rs_reset({user}, {oid}, 0, true)"))[0][0].clone().unwrap();
    let fresh = format!("minmax_stats_since = '{at}' AND min_exec_time = 0 AND max_exec_time = 0");
    assert_eq!(db.value(&format!("bool_and({fresh})"), &format!("userid = {user}")), "t");
    let untouched = "minmax_stats_since = stats_since AND max_exec_time > 0";
    assert_eq!(db.value(&format!("bool_and({untouched})"), &format!("userid <> {user}")), "t");
    assert_eq!(db.value("max(stats_since)", "true"), since);
    assert_eq!(db.number("sum(total_exec_time)", "true"), total);
    assert_eq!(calls_by_role(&db), ALL);
    // and they start anew with the next execution
    db.session_as(&role).batch_execute("SELECT 3, 4").unwrap();
    let again = "min_exec_time = max_exec_time AND min_exec_time > 0 AND calls = 3";
    let of = format!("userid = {user} AND query = 'SELECT $1, $2'");
    assert_eq!(db.value(&format!("bool_and({again})"), &of), "t");
    assert_eq!(db.value(&format!("minmax_stats_since = '{at}'"), &of), "t");
}

#[test]
fn a_reset_tells_its_time() {
    let (db, _, _) = populated();
    let between =
        format!("SELECT now() <= at AND at <= clock_timestamp() FROM pgss_rs_reset(0, {}) at", db.oid);
    assert_eq!(db.ask(&between), [[Some("t".to_owned())]]);
}

#[test]
fn a_reset_with_a_null_does_nothing() {
    let (db, _, _) = populated();
    let mut session = connect(db.cluster, "postgres");
    let before = nullable(&mut session, "SELECT stats_reset FROM pgss_rs_info");
    for arguments in ["NULL, 0, 0", "0, NULL, 0", "0, 0, NULL", "0, 0, 0, NULL", "NULL, NULL, NULL, NULL"] {
        assert_eq!(nullable(&mut session, &format!("SELECT pgss_rs_reset({arguments})")), None);
    }
    assert_eq!(calls_by_role(&db), ALL);
    assert_eq!(nullable(&mut session, "SELECT stats_reset FROM pgss_rs_info"), before);
}

#[test]
fn a_negative_identifier_is_shown_and_reset_as_any_other() {
    let db = ALONE.database();
    // about half of all identifiers are
    db.session().batch_execute(&(0..64).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    for (left, reset) in [(63.0, "pgss_rs_reset"), (62.0, "pgss_compat.pg_stat_statements_reset")] {
        let id = db.value("min(queryid)", "true");
        assert!(id.starts_with('-'), "{id}");
        let calls = format!("SELECT calls FROM pgss_compat.pg_stat_statements WHERE queryid = {id}");
        assert_eq!(db.ask(&format!("{calls} AND dbid = {}", db.oid)), [[Some("1".to_owned())]]);
        db.ask(&format!("SELECT {reset}(0, {}, {id})", db.oid));
        assert_eq!(db.number("count(*)", "true"), left);
        assert_eq!(db.number("count(*)", &format!("queryid = {id}")), 0.0);
    }
}

#[test]
fn contribs_reset_is_that_of_this_major() {
    let (db, _, role) = populated();
    let mut session = connect(db.cluster, "postgres");
    const RESET: &str = "pgss_compat.pg_stat_statements_reset";
    let before = value(&mut session, "SELECT stats_reset FROM pgss_compat.pg_stat_statements_info");
    for arguments in ["NULL, 0, 0", "0, NULL, 0", "0, 0, NULL", "NULL, NULL, NULL"] {
        assert_eq!(value(&mut session, &format!("SELECT {RESET}({arguments}) IS NULL")), "t", "{arguments}");
    }
    assert_eq!(calls_by_role(&db), ALL);
    let nothing = format!("SELECT pg_typeof({RESET}(4294967295, {}, 1))", db.oid);
    assert_eq!(value(&mut session, &nothing), since(17, "timestamp with time zone", "void"));
    assert_eq!(calls_by_role(&db), ALL);

    // from 17 on minima and maxima can be reset alone
    let minmax = format!("SELECT {RESET}('{role}'::regrole, {}, 0, true)", db.oid);
    if since(17, true, false) {
        let at = value(&mut session, &minmax);
        let fresh = format!(
            "SELECT string_agg((userid = '{role}'::regrole)::text, ',' ORDER BY userid)
             FROM pgss_compat.pg_stat_statements WHERE dbid = {} AND minmax_stats_since = '{at}'
             AND min_exec_time = 0 AND max_exec_time = 0 AND stats_since < minmax_stats_since",
            db.oid
        );
        assert_eq!(value(&mut session, &fresh), "true,true");
        assert_eq!(nullable(&mut session, &format!("SELECT {RESET}(0, 0, 0, NULL)")), None);
    } else {
        assert_eq!(sqlstate_of(&mut session, &minmax), "42883");
    }
    assert_eq!(calls_by_role(&db), ALL);
    session.batch_execute(&format!("SELECT {RESET}('{role}'::regrole, {})", db.oid)).unwrap();
    assert_eq!(calls_by_role(&db), ALL[..2]);
    assert_eq!(value(&mut session, "SELECT stats_reset FROM pgss_rs_info"), before);
}

#[test]
fn times_of_an_entry_are_in_order() {
    let db = ALONE.database();
    let mut session = db.session();
    for _ in 0..3 {
        session.batch_execute("SELECT 1").unwrap();
    }
    let ordered = "first_exec < last_exec AND last_exec <= clock_timestamp() AND first_exec <= stats_since
                   AND stats_since <= last_exec AND minmax_stats_since = stats_since";
    assert_eq!(db.value(&format!("bool_and({ordered})"), "true"), "t");
    let consistent = "min_exec_time > 0 AND min_exec_time <= mean_exec_time AND mean_exec_time <= max_exec_time
                      AND abs(total_exec_time - mean_exec_time * calls) < 1e-6 AND stddev_exec_time >= 0
                      AND stddev_exec_time <= max_exec_time - min_exec_time AND plans = 0 AND NOT query_truncated";
    assert_eq!(db.value(&format!("bool_and({consistent})"), "true"), "t");
}
