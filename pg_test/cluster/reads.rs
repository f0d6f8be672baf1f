//! Reading a part: texts cut short, what has changed, one statement's text, what is shown and reset in one step, and
//! the view for people.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postgres::Client;

use crate::cluster::{self, Cluster, SUPERUSER, Shutdown};
use crate::servers::{
    ALONE, Database, connect, distinct, error_of, nullable, number, observe, pg_config, rows, sqlstate_of,
    start_with_pgss_rs, value,
};

/// What the statistics show of a database's statements.
fn shown(db: &Database, call: &str) -> Vec<Vec<Option<String>>> {
    db.ask(&format!("SELECT query, query_truncated FROM {call} WHERE dbid = {} ORDER BY query", db.oid))
}

fn row(query: &str, truncated: &str) -> Vec<Option<String>> {
    [query, truncated].map(|s| Some(s.to_owned())).to_vec()
}

#[test]
fn texts_are_cut_at_a_character_and_marked() {
    let db = ALONE.database();
    db.session().batch_execute("SELECT 1 AS \"größe\"").unwrap();
    const WHOLE: &str = "SELECT $1 AS \"größe\"";
    // the ö is two bytes, from 17 on
    for (len, cut) in [
        (0, ""),
        (1, "S"),
        (16, "SELECT $1 AS \"gr"),
        (17, "SELECT $1 AS \"gr"),
        (18, "SELECT $1 AS \"grö"),
        (21, "SELECT $1 AS \"größe"),
    ] {
        assert_eq!(shown(&db, &format!("pgss_rs_stats(query_len => {len})")), [row(cut, "t")], "{len}");
    }
    for len in ["22", "2147483647", "NULL"] {
        assert_eq!(shown(&db, &format!("pgss_rs_stats(true, {len})")), [row(WHOLE, "f")], "{len}");
    }
    let without = vec![None, Some("f".to_owned())];
    assert_eq!(shown(&db, "pgss_rs_stats(false, 5)"), [without]);
}

#[test]
fn texts_are_cut_at_a_character_of_the_encoding_they_have() {
    for (encoding, name, bytes) in
        [("LATIN1", "größe", 1), ("EUC_JP", "語語語語", 2), ("UTF8", "語語語語", 3), ("UTF8", "𝄞𝄞𝄞", 4)]
    {
        let options = format!("ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
        let db = ALONE.database_with(&options);
        db.session().batch_execute(&format!("SELECT 1 AS \"{name}\"")).unwrap();
        const BEFORE: &str = "SELECT $1 AS \"";
        let chars = name.chars().count();
        for len in 0..chars * bytes {
            let cut: String = name.chars().take(len / bytes).collect();
            let call = format!("pgss_rs_stats(query_len => {})", BEFORE.len() + len);
            assert_eq!(shown(&db, &call), [row(&format!("{BEFORE}{cut}"), "t")], "{encoding} {len}");
        }
    }
}

#[test]
fn long_texts_are_cut_anywhere() {
    let db = ALONE.database();
    let columns: String = (0..200).map(|n| format!(", now() AS \"ключ{n}\"")).collect();
    let sql = format!("SELECT 1{columns}");
    db.session().batch_execute(&sql).unwrap();
    let whole = sql.replace("SELECT 1", "SELECT $1");
    // around the ends of the pool's blocks
    for len in (120..140).chain(250..262).chain(whole.len() - 3..whole.len() + 3) {
        let cut = &whole[..whole.floor_char_boundary(len)];
        let truncated = if cut.len() < whole.len() { "t" } else { "f" };
        let call = format!("pgss_rs_stats(query_len => {len})");
        assert_eq!(shown(&db, &call), [row(cut, truncated)], "{len}");
    }
}

#[test]
fn a_negative_length_is_refused() {
    let mut session = ALONE.database().session();
    session.batch_execute("CREATE EXTENSION pgss_rs").unwrap();
    for call in ["pgss_rs_stats(true, -1)", "pgss_rs_stats_and_reset(true, -1)"] {
        let error = error_of(&mut session, &format!("SELECT * FROM {call}"));
        assert_eq!(error.code().code(), "22023");
        assert_eq!(error.message(), "query_len must not be negative, and is -1");
        assert!(error.hint().is_some_and(|h| h.contains("NULL stands for whole texts")));
    }
}

#[test]
fn a_null_for_showtext_shows_and_resets_nothing() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute("SELECT 1, 2").unwrap();
    for call in ["pgss_rs_stats(NULL)", "pgss_rs_stats(NULL, 5, now())", "pgss_rs_stats_and_reset(NULL)"] {
        assert_eq!(number(&mut session, &format!("SELECT count(*) FROM {call}")), 0.0);
    }
    assert_eq!(number(&mut session, "SELECT calls FROM pgss_rs_stats WHERE query = 'SELECT $1, $2'"), 1.0);
}

/// What has changed since a time, of a database's statements; their texts.
fn changed_since(db: &Database, time: &str) -> Vec<String> {
    let sql = format!(
        "SELECT query FROM pgss_rs_stats(changed_since => '{time}') WHERE dbid = {} ORDER BY query",
        db.oid
    );
    db.ask(&sql).into_iter().map(|row| row[0].clone().unwrap()).collect()
}

/// Reads everything; the time for the next reading.
fn read(db: &Database) -> String {
    let time = db.ask("SELECT now(), count(*) FROM pgss_rs_stats(false)");
    time[0][0].clone().unwrap()
}

/// Until what was counted before is too old to be taken for what is counted now.
fn wait(db: &Database) {
    db.ask("SELECT pg_sleep(0.5)");
}

#[test]
fn only_what_has_changed_since_a_time_is_shown() {
    let db = ALONE.database();
    let mut session = db.session();
    session.batch_execute("SELECT 1; SELECT 1, 2; SELECT 1, 2, 3").unwrap();
    const ALL: [&str; 3] = ["SELECT $1", "SELECT $1, $2", "SELECT $1, $2, $3"];
    wait(&db);
    let time = read(&db);
    assert_eq!(changed_since(&db, &time), [""; 0]);
    session.batch_execute("SELECT 4, 5").unwrap();
    assert_eq!(changed_since(&db, &time), ["SELECT $1, $2"]);
    // all of a reading's columns, also without texts
    let same = "SELECT count(*), bool_and(a = b) FROM pgss_rs_stats(false, NULL, '-infinity') a
                JOIN pgss_rs_stats(false) b USING (userid, dbid, toplevel, queryid) WHERE dbid =";
    assert_eq!(
        db.ask(&format!("{same} {}", db.oid)),
        [[Some("3".to_owned()), Some("t".to_owned())].to_vec()]
    );
    assert_eq!(changed_since(&db, "-infinity"), ALL);
    assert_eq!(changed_since(&db, "infinity"), [""; 0]);
    // what a reset of minima changes, too
    wait(&db);
    let time = read(&db);
    let id = db.value("queryid", "query = 'SELECT $1'");
    db.ask(&format!("SELECT pgss_rs_reset(0, {}, {id}, true)", db.oid));
    assert_eq!(changed_since(&db, &time), ["SELECT $1"]);
}

/// A statement that began before a reading and ends after it; all of what is nested in it, too.
#[test]
fn what_began_long_before_is_shown_when_it_ends() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION slow() RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_advisory_xact_lock(7); PERFORM 1, 2; RETURN 3; END'",
    );
    let mut holder = db.session_with(&["pgss_rs.track=none"]);
    for source in ["tsc", "system"] {
        // a counter that is not to be had is not what this is about
        let has = db.ask("SELECT clock_source FROM pgss_rs_info")[0][0].clone();
        if source == "tsc" && has.as_deref() != Some("tsc") {
            continue;
        }
        holder.batch_execute("SELECT pg_advisory_lock(7)").unwrap();
        let clock = format!("pgss_rs.timing_clock_source={source}");
        let mut session = db.session_with(&["pgss_rs.track=all", &clock]);
        let running = std::thread::spawn(move || session.batch_execute("SELECT slow() AS s").unwrap());
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'advisory'",
            db.name
        );
        while db.ask(&waits)[0][0].as_deref() == Some("0") {
            std::thread::yield_now();
        }
        wait(&db);
        let time = read(&db);
        assert_eq!(changed_since(&db, &time), [""; 0], "{source}");
        holder.batch_execute("SELECT pg_advisory_unlock(7)").unwrap();
        running.join().unwrap();
        let changed = changed_since(&db, &time);
        for query in ["SELECT 1, 2", "SELECT pg_advisory_xact_lock(7)", "SELECT slow() AS s"] {
            let query = query.replace("1, 2", "$1, $2").replace("(7)", "($1)");
            assert!(changed.contains(&query), "{source}: {query} not in {changed:?}");
        }
    }
}

/// A time that nobody read at: backends that time statements tell the time of day by themselves.
#[test]
fn what_is_recorded_on_an_idle_server_is_marked_with_its_time() {
    for source in ["auto", "system"] {
        let cluster =
            start_with_pgss_rs(&[("pgss_rs.track", "all"), ("pgss_rs.timing_clock_source", source)]);
        let mut session = connect(&cluster, SUPERUSER);
        session
            .batch_execute(
                "CREATE FUNCTION slow() RETURNS timestamptz LANGUAGE plpgsql AS
                 'DECLARE t timestamptz; BEGIN PERFORM 1, 2; PERFORM pg_sleep(0.5); t := clock_timestamp();
                  PERFORM 1, 2, 3; RETURN t; END'",
            )
            .unwrap();
        let time = value(&mut session, "SELECT slow()");
        let changed = format!(
            "SELECT string_agg(query, ';' ORDER BY query) FROM pgss_rs_stats(changed_since => '{time}')
             WHERE query LIKE 'SELECT $1, %'"
        );
        assert_eq!(value(&mut observe(&cluster), &changed), "SELECT $1, $2, $3", "{source}");
    }
}

#[test]
fn what_was_planned_alone_has_changed() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_planning=on", "pgss_rs.track_utility=off"]);
    let time = read(&db);
    let fails = "SELECT 1 / count(*) FROM pg_class WHERE oid = 0";
    assert_eq!(sqlstate_of(&mut session, fails), "22012");
    let planned = db.ask(&format!(
        "SELECT plans, calls, sampled_calls FROM pgss_rs_stats(changed_since => '{time}') WHERE dbid = {}",
        db.oid
    ));
    assert_eq!(planned, [["1", "0", "0"].map(|s| Some(s.to_owned())).to_vec()]);
}

#[test]
fn what_only_failed_has_changed_and_is_shown_and_reset() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, SUPERUSER);
    let mut observer = observe(&cluster);
    let fails = "SELECT 1 / count(*) FROM pg_class WHERE oid = 0";
    observer.batch_execute("SELECT pgss_rs_reset()").unwrap();
    for call in ["pgss_rs_stats(changed_since => now() - interval '1 day')", "pgss_rs_stats_and_reset()"] {
        assert_eq!(sqlstate_of(&mut session, fails), "22012");
        session.batch_execute("").unwrap(); // the error comes before it is counted
        let failed = format!("SELECT calls, errors, calls_stderr FROM {call}");
        let errors = if call.contains("reset") { "2" } else { "1" };
        assert_eq!(rows(&mut observer, &failed), [["0", errors, "0"].map(|s| Some(s.to_owned())).to_vec()]);
    }
    assert_eq!(number(&mut observer, "SELECT count(*) FROM pgss_rs_stats"), 0.0);
}

/// A poller that reads everything once and then only what has changed knows the same as who reads everything.
#[test]
fn who_reads_only_changes_knows_everything() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "200"), ("pgss_rs.track_utility", "off")]);
    let mut poller = observe(&cluster);
    poller
        .batch_execute(
            "SELECT pgss_rs_reset(); CREATE TEMP TABLE known (queryid bigint PRIMARY KEY, calls bigint)",
        )
        .unwrap();
    let sessions: Vec<_> = (0..4u32)
        .map(|s| {
            let mut client = connect(&cluster, SUPERUSER);
            std::thread::spawn(move || {
                for round in 0..40 {
                    let sql =
                        (0..50).map(|n| distinct((s * 30 + n * 7 + round) % 150) + ";").collect::<String>();
                    client.batch_execute(&sql).unwrap();
                }
            })
        })
        .collect();
    let mut time = "-infinity".to_owned();
    let mut poll = |poller: &mut Client| {
        let sql = format!(
            "BEGIN; INSERT INTO known SELECT queryid, calls FROM pgss_rs_stats(false, NULL, '{time}')
             ON CONFLICT (queryid) DO UPDATE SET calls = excluded.calls; SELECT now(); COMMIT"
        );
        time = value(poller, &sql);
    };
    while !sessions.iter().all(std::thread::JoinHandle::is_finished) {
        poll(&mut poller);
    }
    sessions.into_iter().for_each(|s| s.join().unwrap());
    poll(&mut poller);
    let unknown = "SELECT count(*) FROM pgss_rs_stats s LEFT JOIN known k USING (queryid)
                   WHERE k.calls IS DISTINCT FROM s.calls";
    assert_eq!(number(&mut poller, unknown), 0.0);
    assert_eq!(number(&mut poller, "SELECT sum(calls) FROM known"), 4.0 * 40.0 * 50.0);
}

#[test]
fn after_a_restart_everything_has_changed() {
    let mut cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute("SELECT 1, 2").unwrap();
    session.batch_execute("SELECT pg_sleep(0.5)").unwrap();
    let time = value(&mut session, "SELECT now()");
    cluster.restart(Shutdown::Fast).unwrap();
    let changed = format!(
        "SELECT count(*) FROM pgss_rs_stats(true, 20, '{time}') WHERE query = 'SELECT $1, $2' AND calls = 1"
    );
    assert_eq!(number(&mut connect(&cluster, SUPERUSER), &changed), 1.0);
}

#[test]
fn the_text_of_one_statement_is_had_by_its_identifier() {
    let db = ALONE.database();
    let plain = format!("plain_{}", db.name);
    db.prepare(&format!("CREATE EXTENSION pgss_rs; CREATE ROLE {plain} LOGIN"));
    db.session().batch_execute("SELECT 'theirs' AS \"größe\"").unwrap();
    let mut session = db.session_as(&plain);
    session.batch_execute("SELECT 'mine', 1").unwrap();
    const THEIRS: &str = "SELECT $1 AS \"größe\"";
    let id = |query: &str| db.value("queryid", &format!("query = '{query}'"));
    let (theirs, mine) = (id(THEIRS), id("SELECT $1, $2"));
    let mut reader = db.session_with(&["pgss_rs.track=none"]);
    let text = |session: &mut Client, arguments: &str| {
        nullable(session, &format!("SELECT pgss_rs_text({arguments})"))
    };
    // other databases have statements with the same identifiers
    let theirs_here = format!("{theirs}, 0, {}", db.oid);
    assert_eq!(text(&mut reader, &theirs_here).as_deref(), Some(THEIRS));
    assert!(text(&mut reader, &theirs).is_some());
    assert_eq!(text(&mut reader, &format!("{mine}, '{plain}'::regrole")).as_deref(), Some("SELECT $1, $2"));
    for none in [
        format!("{theirs}, '{plain}'::regrole"),
        format!("{theirs}, dbid => 1"),
        "0".to_owned(),
        "NULL".to_owned(),
        format!("{theirs}, NULL"),
    ] {
        assert_eq!(text(&mut reader, &none), None, "{none}");
    }
    // others' are not told, not even whether there are any
    assert_eq!(text(&mut session, &theirs), None);
    assert_eq!(text(&mut session, &mine).as_deref(), Some("SELECT $1, $2"));
    // in the reader's encoding
    let latin1 = ALONE.database_with("ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    latin1.prepare("CREATE EXTENSION pgss_rs");
    let mut reader = latin1.session_with(&["pgss_rs.track=none"]);
    assert_eq!(text(&mut reader, &theirs_here).as_deref(), Some(THEIRS));
    assert_eq!(value(&mut reader, &format!("SELECT octet_length(pgss_rs_text({theirs_here}))")), "20");
}

#[test]
fn of_several_texts_the_whole_one_is_told() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.text_memory", "64kB")]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute("CREATE DATABASE other").unwrap();
    // a list of functions has the same identifier wherever the same is called; comments are no part of it
    let sql = |comment: &str| format!("SELECT /* {comment} */ now() AS told");
    session.batch_execute(&sql(&"x".repeat(9000))).unwrap();
    connect(&cluster, "other").batch_execute(&sql("short")).unwrap();
    let mut observer = observe(&cluster);
    let ids =
        "SELECT count(*), count(DISTINCT queryid), count(*) FILTER (WHERE query_truncated) FROM pgss_rs_stats
               WHERE query LIKE 'SELECT /* %'";
    assert_eq!(rows(&mut observer, ids), [["2", "1", "1"].map(|s| Some(s.to_owned())).to_vec()]);
    let text = "SELECT DISTINCT pgss_rs_text(queryid) FROM pgss_rs_stats WHERE query LIKE 'SELECT /* %'";
    assert_eq!(value(&mut observer, text), sql("short"));
    let cut = "SELECT length(pgss_rs_text(queryid, userid, dbid)) FROM pgss_rs_stats WHERE query LIKE 'SELECT /* x%'";
    assert_eq!(number(&mut observer, cut), 8192.0);
}

/// A statement with a text of `len` bytes, in which characters of several bytes begin at every place.
fn long(len: usize) -> String {
    let head = "SELECT /* ";
    let tail = " */ now()";
    let middle = len - head.len() - tail.len();
    head.to_owned() + &"x".repeat(middle % 3) + &"語".repeat(middle / 3) + tail
}

#[test]
fn views_show_long_texts_whole_whether_they_have_them_at_once_or_not() {
    let db = ALONE.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let latin1 = ALONE.database_with("ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    latin1.prepare("CREATE EXTENSION pgss_rs");
    // to both sides of what is had at once; and with the cut in every place of a character
    for len in [100, 511, 512, 513, 514, 515, 8000] {
        let mut session = db.session();
        session.batch_execute("SELECT pgss_rs_reset()").unwrap();
        session.batch_execute(&long(len)).unwrap();
        let mut reader = db.session_with(&["pgss_rs.track=none"]);
        let mut of = |columns: &str, from: &str| {
            let which = format!("dbid = {} AND calls = 1 AND query LIKE 'SELECT /*%'", db.oid);
            nullable(&mut reader, &format!("SELECT {columns} FROM {from} WHERE {which}"))
        };
        for view in ["pgss_rs_stats", "pgss_compat.pg_stat_statements", "pgss_rs_stats()"] {
            assert_eq!(of("query", view).unwrap(), long(len), "{view}");
        }
        assert_eq!(of("query_truncated", "pgss_rs_stats").unwrap(), "f");
        for entries in ["pgss_rs_entries()", "pgss_compat.pgss_rs_entries()"] {
            let (beginning, late) = (of("query", entries).unwrap(), of("text_of", entries));
            match len {
                ..=512 => assert_eq!((beginning, late), (long(len), None)),
                _ => {
                    let start = beginning.strip_suffix("...").unwrap();
                    assert!(long(len).starts_with(start) && (97..=100).contains(&start.len()), "{beginning}");
                    let whole = of("pgss_rs_entry_text(text_of)", entries);
                    assert_eq!(whole, Some(long(len)), "{late:?}");
                }
            }
        }
        // in an encoding that does not have the characters
        let length = format!(
            "SELECT length(query) FROM pgss_rs_stats WHERE dbid = {} AND calls = 1 AND query LIKE 'SELECT /*%'",
            db.oid
        );
        let mut there = latin1.session_with(&["pgss_rs.track=none"]);
        assert_eq!(number(&mut there, &length), len as f64);
    }
}

#[test]
fn a_view_shows_the_beginning_of_a_long_text_whose_entry_goes_meanwhile() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, SUPERUSER);
    for n in 1..=3 {
        session
            .batch_execute(&format!("SELECT {}, /* {} */ now()", vec!["1"; n].join(","), "y".repeat(1000)))
            .unwrap();
    }
    let mut reader = observe(&cluster);
    let texts = "SELECT query FROM pgss_rs_stats WHERE calls = 1 AND query ~ 'y+ ?\\*|y\\.\\.\\.$'";
    reader.batch_execute(&format!("BEGIN; DECLARE c CURSOR FOR {texts}")).unwrap();
    let fetch = |reader: &mut Client| value(reader, "FETCH c");
    assert!(fetch(&mut reader).ends_with("y */ now()"));
    session.batch_execute("SELECT pgss_rs_reset()").unwrap();
    for _ in 0..2 {
        let text = fetch(&mut reader);
        assert!(text.starts_with("SELECT $1,") && text.ends_with("yyy...") && text.len() == 103, "{text}");
    }
    reader.batch_execute("COMMIT").unwrap();
}

#[test]
fn what_names_no_entry_has_no_text() {
    let db = ALONE.database();
    db.prepare("CREATE EXTENSION pgss_rs");
    let mut reader = db.session_with(&["pgss_rs.track=none"]);
    for none in ["0", "-1", "9223372036854775807", "-9223372036854775808", "5000::bigint << 32", "NULL"] {
        assert_eq!(nullable(&mut reader, &format!("SELECT pgss_rs_entry_text({none})")), None, "{none}");
    }
}

const TAKEN: &str = "SELECT coalesce(sum(calls), 0)::bigint FROM pgss_rs_stats_and_reset(false)";
/// What is there, with what was evicted.
const KEPT: &str = "SELECT (SELECT coalesce(sum(calls), 0)::bigint FROM pgss_rs_stats(false)) + evicted_calls
                    FROM pgss_rs_info";

#[test]
fn what_is_shown_and_reset_starts_anew() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.track_planning", "on")]);
    let mut observer = observe(&cluster);
    let mut session = connect(&cluster, SUPERUSER);
    observer.batch_execute("SELECT pgss_rs_reset()").unwrap();
    session.batch_execute(&"SELECT 1, 2;".repeat(3)).unwrap();
    session.batch_execute("SELECT generate_series(1, 5)").unwrap();
    let before = rows(&mut observer, "SELECT s::text FROM pgss_rs_stats s ORDER BY 1");
    let taken = rows(&mut observer, "SELECT s::text FROM pgss_rs_stats_and_reset() s ORDER BY 1");
    assert_eq!((before.len(), before == taken), (2, true), "{before:?} {taken:?}");
    assert_eq!(number(&mut observer, "SELECT count(*) FROM pgss_rs_stats"), 0.0);
    assert_eq!(number(&mut observer, TAKEN), 0.0);
    assert_eq!(rows(&mut observer, "SELECT * FROM pgss_rs_top").len(), 0);
    // the statement goes on under the same text and a new time
    let time = value(&mut observer, "SELECT now()");
    session.batch_execute("SELECT 5, 6").unwrap();
    let fresh =
        "SELECT query, calls, plans, rows, sampled_calls, stats_since <= first_exec, first_exec = last_exec,
                   min_exec_time = max_exec_time, stats_since < now(), minmax_stats_since = stats_since
                 FROM pgss_rs_stats_and_reset(query_len => 10)";
    let expected = ["SELECT $1,", "1", "1", "1", "1", "t", "t", "t", "t", "t"];
    assert_eq!(rows(&mut observer, fresh), [expected.map(|s| Some(s.to_owned())).to_vec()]);
    assert_eq!(
        number(
            &mut observer,
            &format!("SELECT count(*) FROM pgss_rs_stats_and_reset() WHERE stats_since < '{time}'")
        ),
        0.0
    );
    // nothing was reset beside
    assert_eq!(
        value(
            &mut observer,
            "SELECT stats_reset < '{time}' FROM pgss_rs_info".replace("{time}", &time).as_str()
        ),
        "t"
    );
}

#[test]
fn nothing_is_lost_between_readings_that_reset() {
    let cluster = start_with_pgss_rs(&[("pgss_rs.max", "150"), ("pgss_rs.track_utility", "off")]);
    let mut control = observe(&cluster);
    control.batch_execute("SELECT pgss_rs_reset()").unwrap();
    const SESSIONS: u32 = 6;
    const ROUNDS: u32 = 30;
    let done = Arc::new(AtomicBool::new(false));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|s| {
            let mut client = connect(&cluster, SUPERUSER);
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    // one that all have in common, and more than there is room for
                    let sql = (0..50)
                        .map(|n| distinct((s * 20 + n + round * 3) % 300) + "; SELECT 'hot', now();")
                        .collect::<String>();
                    client.batch_execute(&sql).unwrap();
                }
            })
        })
        .collect();
    // another reads and resets, too
    let other = std::thread::spawn({
        let (mut client, done) = (observe(&cluster), Arc::clone(&done));
        move || {
            let mut taken = 0.0;
            while !done.load(Ordering::Relaxed) {
                taken += number(&mut client, TAKEN);
            }
            taken
        }
    });
    let mut taken = 0.0;
    let mut round = 0;
    while !sessions.iter().all(std::thread::JoinHandle::is_finished) || round < 12 {
        round += 1;
        match round % 6 {
            0 => control.batch_execute(&format!("BEGIN; {TAKEN}; ROLLBACK")).unwrap(),
            1 => {
                let failing = TAKEN.replace("SELECT ", "SELECT 1 / (count(*) - count(*)), ");
                assert_eq!(sqlstate_of(&mut control, &failing), "22012");
            }
            2 => {
                control.batch_execute(&format!("BEGIN; SAVEPOINT a; {TAKEN}; ROLLBACK TO a")).unwrap();
                taken += number(&mut control, TAKEN);
                control.batch_execute("COMMIT").unwrap();
            }
            3 => {
                control.batch_execute("BEGIN; SAVEPOINT a").unwrap();
                taken += number(&mut control, TAKEN);
                control.batch_execute("RELEASE a; SAVEPOINT b").unwrap();
                assert_eq!(sqlstate_of(&mut control, &format!("{TAKEN}; SELECT 1 / 0")), "22012");
                control.batch_execute("ROLLBACK TO b").unwrap();
                taken += number(&mut control, TAKEN);
                control.batch_execute("COMMIT").unwrap();
            }
            4 => {
                // released, but in a transaction that fails
                control.batch_execute(&format!("BEGIN; SAVEPOINT a; {TAKEN}; RELEASE a; ROLLBACK")).unwrap();
            }
            _ => taken += number(&mut control, TAKEN),
        }
    }
    sessions.into_iter().for_each(|s| s.join().unwrap());
    done.store(true, Ordering::Relaxed);
    taken += other.join().unwrap();
    assert!(taken > 0.0 && number(&mut control, "SELECT dealloc FROM pgss_rs_info") > 0.0);
    assert_eq!(taken + number(&mut control, KEPT), f64::from(SESSIONS * ROUNDS * 100));
    assert_eq!(number(&mut control, "SELECT skipped FROM pgss_rs_info"), 0.0);
}

#[test]
fn an_error_in_the_middle_of_reading_and_resetting_loses_nothing() {
    let cluster = start_with_pgss_rs(&[]);
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(&(0..400).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    let mut observer = observe(&cluster);
    let all = "SELECT s::text FROM pgss_rs_stats s ORDER BY 1";
    let before = rows(&mut observer, all);
    assert!(before.len() >= 400);
    // the rows do not fit into memory, and no file may be written
    observer.batch_execute("SET work_mem = '64kB'; SET temp_file_limit = 0").unwrap();
    assert_eq!(sqlstate_of(&mut observer, "SELECT count(*) FROM pgss_rs_stats_and_reset()"), "53400");
    observer.batch_execute("RESET work_mem; RESET temp_file_limit").unwrap();
    assert_eq!(rows(&mut observer, all), before);
    // a client that goes away with its transaction open
    observer.batch_execute(&format!("BEGIN; {TAKEN}")).unwrap();
    assert_eq!(
        number(
            &mut connect(&cluster, SUPERUSER),
            "SELECT count(*) FROM pgss_rs_stats WHERE calls = 1 AND query ~ '^SELECT .1[+-]'"
        ),
        0.0
    );
    let pid = value(&mut observer, "SELECT pg_backend_pid()");
    drop(observer);
    let mut observer = observe(&cluster);
    while number(&mut observer, &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}")) > 0.0 {
        std::thread::yield_now();
    }
    let these = "SELECT s::text FROM pgss_rs_stats s WHERE query ~ '^SELECT .1[+-]' ORDER BY 1";
    let kept = rows(&mut observer, these);
    assert_eq!((kept.len(), kept.iter().all(|row| before.contains(row))), (400, true));
}

#[test]
fn what_was_taken_before_a_full_reset_is_not_given_back_after_it() {
    let cluster = start_with_pgss_rs(&[]);
    let mut taker = observe(&cluster);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1, 2").unwrap();
    taker.batch_execute(&format!("BEGIN; {TAKEN}")).unwrap();
    observe(&cluster).batch_execute("SELECT pgss_rs_reset()").unwrap();
    taker.batch_execute("ROLLBACK").unwrap();
    assert_eq!(number(&mut taker, KEPT), 0.0);
}

#[test]
fn what_was_shown_and_reset_is_not_brought_back_by_a_crash() {
    let mut cluster = start_with_pgss_rs(&[]);
    connect(&cluster, SUPERUSER).batch_execute("SELECT 1, 2").unwrap();
    cluster.restart(Shutdown::Fast).unwrap();
    let file = cluster.data_dir().join("pg_stat/pgss_rs.stat");
    let mut observer = observe(&cluster);
    observer.batch_execute(&format!("BEGIN; {TAKEN}; ROLLBACK")).unwrap();
    assert!(file.exists());
    assert!(number(&mut observer, TAKEN) > 0.0 && !file.exists());
    cluster.restart(Shutdown::Immediate).unwrap();
    assert_eq!(number(&mut observe(&cluster), KEPT), 0.0);
}

#[test]
fn showing_and_resetting_is_denied_to_the_public_and_can_be_granted() {
    let cluster = start_with_pgss_rs(&[]);
    let mut admin = connect(&cluster, SUPERUSER);
    admin.batch_execute("CREATE ROLE plain LOGIN; SELECT 1, 2").unwrap();
    let mut config = crate::servers::config(&cluster, SUPERUSER);
    let mut plain = config.user("plain").connect(postgres::NoTls).unwrap();
    let take = "SELECT query FROM pgss_rs_stats_and_reset() WHERE calls = 1 AND query LIKE 'SELECT $1%'";
    assert_eq!(sqlstate_of(&mut plain, take), "42501");
    admin.batch_execute("GRANT EXECUTE ON FUNCTION pgss_rs_stats_and_reset TO plain").unwrap();
    // it resets all, and still sees only its own texts
    assert_eq!(rows(&mut plain, take), [[None; 0]; 0]);
    let theirs = "SELECT count(*) FROM pgss_rs_stats WHERE query = 'SELECT $1, $2'";
    assert_eq!(number(&mut admin, theirs), 0.0);
    assert_eq!(
        number(&mut plain, "SELECT count(*) FROM pgss_rs_top WHERE query LIKE 'SELECT query FROM%'"),
        1.0
    );
}

#[test]
fn totals_with_what_was_evicted_are_those_of_all_statements() {
    let settings =
        [("pgss_rs.max", "100"), ("pgss_rs.track_planning", "on"), ("pgss_rs.track_utility", "off")];
    let cluster = start_with_pgss_rs(&settings);
    let mut observer = observe(&cluster);
    observer.batch_execute("SELECT pgss_rs_reset()").unwrap();
    let mut session = connect(&cluster, SUPERUSER);
    session.batch_execute(&(0..700).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    let totals = |observer: &mut Client| {
        rows(
            observer,
            "SELECT calls + evicted_calls, plans + evicted_plans, rows + evicted_rows, entries + dealloc,
               evicted_total_exec_time > 0, evicted_total_plan_time > 0,
               evicted_calls_stderr, evicted_total_exec_time_stderr
             FROM pgss_rs_info,
               (SELECT sum(calls) AS calls, sum(plans) AS plans, sum(rows) AS rows FROM pgss_rs_stats(false)) s",
        )
    };
    let all = ["700", "700", "700", "700", "t", "t", "0", "0"];
    assert_eq!(totals(&mut observer), [all.map(|s| Some(s.to_owned())).to_vec()]);
    // errors of what was sampled go with it
    session.batch_execute("SET pgss_rs.sample_rate = 0.5").unwrap();
    session.batch_execute(&(700..2000).map(|n| distinct(n) + ";").collect::<String>()).unwrap();
    let evicted = "SELECT evicted_calls_stderr > 0 AND evicted_total_exec_time_stderr > 0 FROM pgss_rs_info";
    assert_eq!(value(&mut observer, evicted), "t");
}

/// Puts a statistics file in the place of the server's, and starts it with that.
fn restart_with(cluster: &mut Cluster, entries: &[String]) {
    cluster.stop(Shutdown::Fast).unwrap();
    let path = cluster.data_dir().join("pg_stat/pgss_rs.stat");
    let old = fs::read_to_string(&path).unwrap();
    let line = |json: &str| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
    let end = line(&format!("{{\"end_after\":{}}}", entries.len()));
    let file = old.lines().next().unwrap().to_owned()
        + "\n"
        + &entries.iter().map(|e| line(e)).collect::<String>()
        + &end;
    fs::write(&path, file).unwrap();
    cluster.start().unwrap();
}

fn entry(n: usize, query: &str, calls: f64, variance: f64, mean: f64, blocks: f64) -> String {
    let query = serde_json::to_string(query).unwrap();
    format!(
        "{{\"queryid\":{},\"userid\":10,\"dbid\":5,\"toplevel\":true,\"encoding\":6,\"text\":{query},\"counters\":{{
         \"exec\":{{\"calls\":{calls:.1},\"total\":{:.1},\"min\":0.0,\"max\":1e9,\"mean\":{mean:.1},\"seen\":true}},
         \"sampled_calls\":9,\"calls_variance\":{variance:.1},\"histogram\":[[120,{calls:.1}]],
         \"blocks\":[0.0,{blocks:.1},0.0,0.0,0.0,0.0,0.0,0.0,0.0,{blocks:.1}]}}}}",
        n + 1,
        calls * mean
    )
    .replace('\n', "")
}

#[test]
fn the_top_fits_a_terminal_of_120_columns() {
    let mut cluster = start_with_pgss_rs(&[("pgss_rs.track", "none")]);
    let wide = "SELECT ".to_owned() + &"語".repeat(100);
    let long = "SELECT *\n\tFROM   orders\n-- it's\u{1}\n".to_owned() + &"x, ".repeat(100);
    let mut entries = vec![
        entry(0, &wide, 98_765_432_109_876.0, 4e26, 99_999_999.0, 9e14),
        entry(1, &long, 99_999.0, 9.9e9, 12_345_678.0, 1.0),
        entry(2, "SELECT 1", 99_999_400_000.0, 1e22, 99.994, 1e6),
        entry(3, "SELECT\n2", 7.0, 16.0, 0.99994, 0.0).replace("\"toplevel\":true", "\"toplevel\":false"),
        entry(4, "SELECT\n3", 123_456_789.0, 1e10, 0.000_04, 0.0),
    ];
    entries.extend((5..40).map(|n| entry(n, &format!("SELECT {n}"), 1.0, 0.0, 0.5 / n as f64, 0.0)));
    restart_with(&mut cluster, &entries);
    let mut observer = observe(&cluster);
    let top = rows(&mut observer, "SELECT * FROM pgss_rs_top");
    assert_eq!(top.len(), 20);
    let column =
        |n: usize| top.iter().map(|row| row[n].clone().unwrap().trim().to_owned()).collect::<Vec<_>>();
    let last = top[0].len() - 1;
    assert_eq!(
        column(last)[..5],
        ["SELECT 語語語...", "SELECT 1", "SELECT * FROM orders -...", "SELECT 3", "> SELECT 2"]
    );
    assert_eq!(
        column(1)[..6],
        ["99T +/- 39T", "100G +/- 196G", "100k +/- 195k", "123M +/- 0.2M", "7 +/- 7.8", "1"]
    );
    let nested = "SELECT count(*), bool_and(t.query LIKE '> %' = NOT s.toplevel)
                  FROM pgss_rs_top t JOIN pgss_rs_stats s USING (queryid)";
    assert_eq!(rows(&mut observer, nested), [["20", "t"].map(|s| Some(s.to_owned()))]);
    // by time spent, descending
    let share: Vec<f64> = column(0).iter().map(|s| s.trim_end_matches('%').parse().unwrap()).collect();
    assert!(share.is_sorted_by(|a, b| a >= b) && share[0] > 99.0, "{share:?}");

    let psql = cluster::pg_config(pg_config().as_ref(), "--bindir").unwrap() + "/psql";
    let output = Command::new(psql)
        .args(["-X", "-U", SUPERUSER, "-d", SUPERUSER, "-h"])
        .arg(cluster.socket_dir())
        .args(["-p", &cluster.port().to_string(), "-c", "SELECT * FROM pgss_rs_top"])
        .env("PGCLIENTENCODING", "UTF8")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), 24, "{printed}");
    let columns = |line: &str| line.chars().map(|c| if c == '語' { 2 } else { 1 }).sum::<usize>();
    let widest = printed.lines().map(columns).max().unwrap();
    assert!(widest <= 120, "{widest} columns:\n{printed}");
}
