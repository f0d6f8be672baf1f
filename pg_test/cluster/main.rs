//! Tests that start servers of their own: what takes a restart, a crash, many sessions, other modules or another
//! set of preloaded libraries. One file for each theme; [`servers`] starts the servers and reads what was recorded.
//!
//! The library is tested as it is installed for `PG_CONFIG` (default: `pg_config`).

#[path = "../../src/bin/pgss_rs_load/client.rs"]
#[allow(dead_code, reason = "the load driver's; the tests use a part of it")]
mod client;
#[path = "../../src/bin/pgss_rs_load/cluster.rs"]
mod cluster;
#[path = "../../src/bin/pgss_rs_load/error.rs"]
#[allow(dead_code, reason = "the load driver's; the tests use a part of it")]
mod error;

mod browser;
mod servers;

#[path = "../clients.rs"]
mod clients;

mod calling;
mod clock;
mod concurrency;
mod crashes;
mod encodings;
mod errors;
mod exporter;
mod failures;
mod faults;
mod histogram;
mod identifiers;
mod level;
mod loading;
mod persist;
mod portals;
mod privileges;
mod readme;
mod reads;
mod reliability;
mod report;
mod rows;
mod sampling;
mod security;
mod settings;
mod soak;
mod squash;
mod standby;
mod stopped;
mod storms;
mod table;
mod text;
mod updates;
mod usage;
