//! pgss_rs
