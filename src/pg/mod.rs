pub mod spin;
