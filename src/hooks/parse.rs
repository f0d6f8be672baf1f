//! After a statement's analysis.

use super::key;
use crate::pg::parse::{self, Analysed, ParseHooks};
use crate::pg::server;
use crate::{guc, nesting, store};

struct Parse;

impl ParseHooks for Parse {
    /// Whatever the sample rate is now, the statement may be executed under another; the same goes for `track` at the
    /// top level.
    #[inline(always)]
    fn knows(queryid: u64) -> bool {
        let level = nesting::level();
        if level != 0 && !guc::tracks(level) {
            return true;
        }
        store::carries(queryid, server::user(), level == 0)
    }

    fn analysed(mut analysed: Analysed) {
        if server::is_parallel_worker() {
            return;
        }
        if let Some(statement) = nesting::placed(&analysed.statement) {
            analysed.statement = statement;
        }
        store::carry(&analysed, &key(analysed.statement.queryid, nesting::level()));
    }
}

pub fn init() {
    parse::install::<Parse>();
}
