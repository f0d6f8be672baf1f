//! What holds of any bytes, for what reads bytes that somebody else wrote: statements and the statistics file. The load
//! driver's scripts are in `script.rs`, a module of the driver's. See [`harness`] for how it is tried.

mod harness;
mod lists;
mod pool;
mod secrets;
mod snapshot;
mod statement;
mod text;

use harness::{Input, Target};

const SECRET: &[u8] = b"s3cret";

fn has_secret(text: &[u8]) -> bool {
    text.windows(SECRET.len()).any(|w| w == SECRET)
}

macro_rules! targets {
    ($($name:ident: $holds:path;)*) => {
        $(#[test]
        fn $name() {
            static TARGET: Target = Target { name: stringify!($name), holds: $holds };
            TARGET.test();
        })*
    };
}

targets! {
    text: text::holds;
    statement: statement::holds;
    lists: lists::holds;
    secrets: secrets::holds;
    pool: pool::holds;
    snapshot: snapshot::holds;
}
