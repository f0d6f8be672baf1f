//! After a statement's analysis.

use super::{draw_for_parsed, key};
use crate::cost::{self, Turn};
use crate::guc::{self, Drawing};
use crate::pg::parse::{self, Analysed, Identify, ParseHooks};
use crate::pg::server;
use crate::{nesting, store};

struct Parse;

impl ParseHooks for Parse {
    /// A statement of the client's that is analysed to be executed once is drawn for now, and goes without an identifier
    /// if it is not drawn. What may be executed again, under another draw, always has one; so has what is nested, which
    /// functions keep, and what a utility statement contains, whose draw it shares.
    #[inline(always)]
    fn identifies(once: impl FnOnce() -> bool) -> Identify {
        if nesting::level() != 0 || nesting::is_in_utility() || !once() {
            Identify::Anew
        } else if matches!(guc::drawing(), Drawing::All | Drawing::Timed) || draw_for_parsed() {
            Identify::ByText
        } else {
            Identify::No
        }
    }

    #[inline(always)]
    fn squashes() -> bool {
        guc::squashes_lists()
    }

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

    #[inline(always)]
    fn identifying(identify: impl FnOnce()) {
        static TURN: Turn = Turn::new();
        if TURN.has_come() { cost::of_analysis(identify) } else { identify() }
    }

    #[inline(always)]
    fn era() -> u32 {
        store::era()
    }

    #[inline(always)]
    fn found(queryid: u64) {
        store::seek(&key(queryid, 0));
    }

    fn analysed(mut analysed: Analysed) {
        if server::is_parallel_worker() {
            return;
        }
        let placed = nesting::placed(&analysed.statement);
        if let Some(statement) = placed {
            analysed.statement = statement;
        }
        let key = key(analysed.statement.queryid, nesting::level());
        store::carry(&analysed, &key, placed.is_some());
    }
}

pub fn init() {
    parse::install::<Parse>();
}
