//! Statements within functions: here everything is nested, as the tests themselves run inside one. Each test's
//! statements differ from all others in more than constants and names, which do not make a statement another.

use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use super::*;

    fn calls(query: &str) -> Option<i64> {
        Spi::get_one::<i64>(&format!(
            "SELECT sum(calls)::bigint FROM pgss_rs_stats WHERE NOT toplevel AND query = $q${query}$q$"
        ))
        .unwrap()
    }

    #[pg_test]
    fn nested_statements_are_counted_apart_and_normalised() {
        for n in 0..7 {
            Spi::run(&format!("SELECT {n}, 'counted', {n}")).unwrap();
        }
        assert_eq!(calls("SELECT $1, $2, $3"), Some(7));
    }

    #[pg_test]
    fn a_caught_error_counts_no_call_and_leaves_the_level() {
        Spi::run(
            "DO $do$ BEGIN \
               FOR i IN 1..3 LOOP \
                 BEGIN \
                   PERFORM 1 / 0; \
                 EXCEPTION WHEN division_by_zero THEN \
                   PERFORM 2, 'after', true, 1.5; \
                 END; \
               END LOOP; \
             END $do$",
        )
        .unwrap();
        // but it has an entry, where the errors are counted
        assert_eq!(calls("SELECT $1 / $2"), Some(0));
        assert_eq!(calls("SELECT $1, $2, $3, $4"), Some(3));
    }

    #[pg_test]
    fn trigger_statements_are_nested_in_the_statement_that_fires_them() {
        Spi::run(
            "CREATE TABLE fired (a int); CREATE TABLE log (a int); \
             CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN INSERT INTO log VALUES (NEW.a); RETURN NULL; END'; \
             CREATE TRIGGER t AFTER INSERT ON fired FOR EACH ROW EXECUTE FUNCTION fire()",
        )
        .unwrap();
        Spi::run("INSERT INTO fired SELECT generate_series(1, 5)").unwrap();
        assert_eq!(calls("INSERT INTO log VALUES (NEW.a)"), Some(5));
        assert_eq!(calls("INSERT INTO fired SELECT generate_series($1, $2)"), Some(1));
    }

    #[pg_test]
    fn only_one_call_is_seen_through_a_cursor_read_in_portions() {
        let rows = Spi::connect_mut(|client| {
            let mut cursor = client.open_cursor("SELECT generate_series(1, 95) AS portions", &[]);
            let mut rows = 0;
            loop {
                let got = cursor.fetch(10).unwrap().len();
                rows += got;
                if got == 0 {
                    return rows;
                }
            }
        });
        assert_eq!(rows, 95);
        let row = Spi::get_two::<i64, i64>(
            "SELECT calls, rows FROM pgss_rs_stats WHERE query = 'SELECT generate_series($1, $2) AS portions'",
        );
        assert_eq!(row, Ok((Some(1), Some(95))));
    }
}
