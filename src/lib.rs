//! pgss_rs
pub mod carried;
pub mod counters;
pub mod draw;
pub mod key;
pub mod normalize;
#[allow(unsafe_code)]
pub mod pg;
pub mod table;
pub mod textpool;
