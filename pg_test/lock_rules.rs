//! Every test in here runs with the lock rules checked ([`crate::lock_rules`]), which this one shows.

#![cfg(debug_assertions)] // else there are no rules to check

use crate::lock_rules::{Lock, taken};
use pgrx::prelude::*;

#[pg_schema]
mod tests {
    use super::*;

    #[pg_test]
    fn locks_of_each_kind_are_taken_under_the_rules() {
        let before = [Lock::Spin, Lock::Partition, Lock::Texts].map(taken);
        Spi::run(
            "DO $$BEGIN
               FOR n IN 1 .. 64 LOOP
                 EXECUTE 'SELECT ' || array_to_string(ARRAY(
                   SELECT CASE n >> bit & 1 WHEN 0 THEN '+2' ELSE '-2' END FROM generate_series(0, 6) bit), ' ');
                 BEGIN PERFORM 1 / (n - n); EXCEPTION WHEN division_by_zero THEN END;
               END LOOP;
             END$$",
        )
        .unwrap();
        for reader in ["pgss_rs_stats", "pgss_rs_errors()", "pgss_rs_info"] {
            Spi::run(&format!("SELECT * FROM {reader}")).unwrap();
        }
        let after = [Lock::Spin, Lock::Partition, Lock::Texts].map(taken);
        for (before, after) in before.into_iter().zip(after) {
            assert!(after >= before + 64, "{before} {after}");
        }
    }
}
