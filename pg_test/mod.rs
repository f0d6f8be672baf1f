//! Tests that run inside a server, each in a transaction of its own that is rolled
//! back, several at a time on one server: what the SQL functions
//! return, and what nested statements are counted as. What needs a client or a server of its own is in `cluster/`.

mod lock_rules;
mod nested;
mod surface;

/// What pgrx's test framework calls before the first test.
#[cfg(test)]
pub fn setup(_options: Vec<&str>) {}

/// The settings of its server.
#[cfg(test)]
pub fn postgresql_conf_options() -> Vec<&'static str> {
    vec!["shared_preload_libraries = 'pgss_rs'", "pgss_rs.track = 'all'", "pgss_rs.max = 500"]
}
