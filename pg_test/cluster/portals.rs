//! Executions that do not run from start to end in one piece.

use crate::servers::ALONE;
use postgres::fallible_iterator::FallibleIterator;

#[test]
fn a_suspended_portal_counts_once_with_the_rows_of_all_its_fetches() {
    let db = ALONE.database();
    let mut session = db.session();
    let mut transaction = session.transaction().unwrap();
    let portal = transaction.bind("SELECT generate_series(1, 95) AS suspended", &[]).unwrap();
    let fetched: Vec<usize> = (0..10).map(|_| transaction.query_portal(&portal, 10).unwrap().len()).collect();
    assert_eq!(fetched, [10, 10, 10, 10, 10, 10, 10, 10, 10, 5]);
    drop(portal);
    transaction.commit().unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2) AS suspended", true), (1, 95));
}

#[test]
fn a_portal_left_half_read_counts_the_rows_that_were_read() {
    let db = ALONE.database();
    let mut session = db.session();
    let mut transaction = session.transaction().unwrap();
    let portal = transaction.bind("SELECT generate_series(1, 95) AS half", &[]).unwrap();
    assert_eq!(transaction.query_portal(&portal, 30).unwrap().len(), 30);
    transaction.batch_execute("SELECT 1 AS between").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2) AS half", true), (1, 30));
    assert_eq!(db.calls_and_rows("SELECT $1 AS between", true), (1, 1));
}

#[test]
fn interleaved_portals_count_each_their_own() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION nests(n int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM n AS nested_in_portal; RETURN n; END'",
    );
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let mut transaction = session.transaction().unwrap();
    let one = transaction.bind("SELECT nests(n) + 1 FROM generate_series(1, 40) n", &[]).unwrap();
    let two = transaction.bind("SELECT nests(n) - 1 FROM generate_series(1, 20) n", &[]).unwrap();
    for _ in 0..5 {
        assert_eq!(transaction.query_portal(&one, 7).unwrap().len(), 7);
        assert_eq!(transaction.query_portal(&two, 3).unwrap().len(), 3);
        transaction.batch_execute("SELECT nests(0)").unwrap();
    }
    transaction.commit().unwrap();
    assert_eq!(db.calls_and_rows("SELECT nests(n) + $1 FROM generate_series($2, $3) n", true), (1, 35));
    assert_eq!(db.calls_and_rows("SELECT nests(n) - $1 FROM generate_series($2, $3) n", true), (1, 15));
    assert_eq!(db.calls_and_rows("SELECT nests($1)", true), (5, 5));
    assert_eq!(db.calls("SELECT n AS nested_in_portal"), (0, 55));
}

#[test]
fn a_portal_that_an_error_ends_counts_no_call_and_leaves_the_level_right() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let mut transaction = session.transaction().unwrap();
    let portal = transaction.bind("SELECT 10 / (5 - n) AS fails FROM generate_series(1, 9) n", &[]).unwrap();
    assert_eq!(transaction.query_portal(&portal, 3).unwrap().len(), 3);
    let error = transaction.query_portal(&portal, 3).unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22012");
    drop(portal);
    transaction.rollback().unwrap();
    session.batch_execute("SELECT pg_backend_pid() > 1").unwrap();
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (1, 0));
    assert!(db.texts().iter().all(|t| !t.contains("AS fails")), "{:?}", db.texts());
}

#[test]
fn a_portal_abandoned_by_an_error_elsewhere_leaves_nothing_behind() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    for _ in 0..3 {
        let mut transaction = session.transaction().unwrap();
        let portal = transaction.bind("SELECT generate_series(1, 95) AS abandoned", &[]).unwrap();
        assert_eq!(transaction.query_portal(&portal, 10).unwrap().len(), 10);
        transaction.batch_execute("SELECT 1/0").unwrap_err();
        drop(portal);
        transaction.rollback().unwrap();
        session.batch_execute("SELECT pg_backend_pid() > 1").unwrap();
    }
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (3, 0));
    // and the same statement is counted when it comes to its end
    session.batch_execute("SELECT generate_series(1, 95) AS abandoned").unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2) AS abandoned", true), (1, 95));
}

#[test]
fn a_portal_closed_by_a_rollback_to_a_savepoint_leaves_the_level_right() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    let mut transaction = session.transaction().unwrap();
    transaction
        .batch_execute("SAVEPOINT s; DECLARE c CURSOR FOR SELECT generate_series(1, 9); FETCH 2 FROM c")
        .unwrap();
    transaction.batch_execute("ROLLBACK TO s; SELECT pg_backend_pid() > 1").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (1, 0));
    assert_eq!(db.calls_and_rows("FETCH 2 FROM c", true), (1, 2));
}

#[test]
fn cursors_open_across_other_statements_do_not_change_what_those_count() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    session
        .batch_execute(
            "BEGIN; DECLARE c1 CURSOR FOR SELECT generate_series(1, 50) AS c1;
             DECLARE c2 CURSOR FOR SELECT generate_series(1, 50) AS c2; FETCH 5 FROM c1; SELECT pg_backend_pid() > 1;
             FETCH 6 FROM c2; SELECT pg_backend_pid() > 2; FETCH 5 FROM c1; CLOSE c2; SELECT pg_backend_pid() > 3;
             FETCH 5 FROM c1; COMMIT; SELECT pg_backend_pid() > 4",
        )
        .unwrap();
    assert_eq!(db.calls_and_rows("FETCH 5 FROM c1", true), (3, 15));
    assert_eq!(db.calls_and_rows("FETCH 6 FROM c2", true), (1, 6));
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (4, 0));
}

#[test]
fn a_cursor_that_outlives_its_transaction_is_fetched_from_as_before() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track=all"]);
    session
        .batch_execute(
            "BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT generate_series(1, 12) AS held; FETCH 2 FROM h; COMMIT;
             SELECT pg_backend_pid() > 1; FETCH ALL FROM h; CLOSE h; SELECT pg_backend_pid() > 2",
        )
        .unwrap();
    assert_eq!(db.calls_and_rows("FETCH ALL FROM h", true), (1, 10));
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (2, 0));
}

#[test]
fn a_query_read_row_by_row_over_the_connection_counts_once() {
    let db = ALONE.database();
    let mut session = db.session();
    let none: [&i32; 0] = [];
    let mut read = session.query_raw("SELECT generate_series(1, 1000) AS streamed", none).unwrap();
    let mut count = 0;
    while read.next().unwrap().is_some() {
        count += 1;
    }
    drop(read);
    assert_eq!(count, 1000);
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2) AS streamed", true), (1, 1000));
}

#[test]
fn a_portal_keeps_the_draw_it_started_with() {
    let db = ALONE.database();
    db.prepare(
        "CREATE FUNCTION nests(n int) RETURNS int LANGUAGE plpgsql AS
         'BEGIN PERFORM n AS nested_in_portal; RETURN n; END'",
    );
    let mut session = db.session_with(&["pgss_rs.track=all", "pgss_rs.track_utility=off"]);
    let mut transaction = session.transaction().unwrap();
    let drawn = transaction.bind("SELECT nests(n) + 1 FROM generate_series(1, 95) n", &[]).unwrap();
    assert_eq!(transaction.query_portal(&drawn, 10).unwrap().len(), 10);
    transaction.batch_execute("SET pgss_rs.sample_rate = 0").unwrap();
    let undrawn = transaction.bind("SELECT nests(n) - 1 FROM generate_series(1, 50) n", &[]).unwrap();
    assert_eq!(transaction.query_portal(&drawn, 10).unwrap().len(), 10);
    assert_eq!(transaction.query_portal(&undrawn, 10).unwrap().len(), 10);
    transaction.batch_execute("SELECT pg_backend_pid() > 1; SET pgss_rs.sample_rate = 1").unwrap();
    assert_eq!(transaction.query_portal(&undrawn, 0).unwrap().len(), 40);
    assert_eq!(transaction.query_portal(&drawn, 0).unwrap().len(), 75);
    transaction.batch_execute("SELECT pg_backend_pid() > 1").unwrap();
    transaction.commit().unwrap();
    assert_eq!(db.calls_and_rows("SELECT nests(n) + $1 FROM generate_series($2, $3) n", true), (1, 95));
    assert_eq!(db.calls("SELECT n AS nested_in_portal"), (0, 95));
    assert_eq!(db.calls("SELECT pg_backend_pid() > $1"), (1, 0));
    assert_eq!(db.entries().len(), 3, "{:#?}", db.entries());
}

#[test]
fn many_cursors_open_at_once_count_each_their_own() {
    let db = ALONE.database();
    let mut session = db.session_with(&["pgss_rs.track_utility=off"]);
    let mut transaction = session.transaction().unwrap();
    let mut portals = Vec::new();
    for _ in 0..200 {
        portals.push(transaction.bind("SELECT generate_series(1, 9)", &[]).unwrap());
    }
    // ended in another order than they were opened
    for n in (0..200).step_by(2).chain((1..200).step_by(2).rev()) {
        assert_eq!(transaction.query_portal(&portals[n], 4).unwrap().len(), 4);
    }
    for n in (0..200).rev() {
        assert_eq!(transaction.query_portal(&portals[n], 0).unwrap().len(), 5);
    }
    transaction.commit().unwrap();
    assert_eq!(db.calls_and_rows("SELECT generate_series($1, $2)", true), (200, 1800));
}
