//! The load driver.
mod cluster;
fn main() {}
