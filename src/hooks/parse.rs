//! After a statement's analysis.

use super::key;
use crate::pg::parse::{self, Analysed, ParseHooks};
use crate::pg::server;
use crate::{guc, nesting, store};

struct Parse;

impl ParseHooks for Parse {
    /// Whatever the sample rate is now, the statement may be executed under another; the same goes for `track` at the
    /// top level.
    fn analysed(mut analysed: Analysed) {
        if let Some(statement) = nesting::placed(&analysed.statement) {
            analysed.statement = statement;
        }
        let level = nesting::level();
        if (level == 0 || guc::tracks(level)) && !server::is_parallel_worker() {
            store::carry(&analysed, level == 0, || key(analysed.statement.queryid, level));
        }
    }
}

pub fn init() {
    parse::install::<Parse>();
}
