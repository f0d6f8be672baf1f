//! Tests that run inside a server, each in a transaction of its own that is rolled back: what the SQL functions
//! return, and what nested statements are counted as. What needs a client or a server of its own is in `cluster/`.

mod nested;
mod surface;

/// What pgrx's test framework asks for: how to set up the server.
pub fn setup(_options: Vec<&str>) {}

pub fn postgresql_conf_options() -> Vec<&'static str> {
    vec!["shared_preload_libraries = 'pgss_rs'", "pgss_rs.track = 'all'", "pgss_rs.max = 500"]
}
