//! Tests that run inside a server.
