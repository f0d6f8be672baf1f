//! Tests that start servers of their own.
