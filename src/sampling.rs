//! The draw of this backend's top-level statements, and what they share by it.

use crate::budget::Budget;
use crate::cost;
use crate::draw::{Draw, Random};
use crate::guc::{self, Drawing};
use crate::key::Key;
use crate::pg::local::{Local, LocalRef};
use crate::pg::server;
use crate::variance::{Cluster, Clusters, Shared};
use rand::rngs::{SmallRng, SysRng};
use rand::{Rng, SeedableRng};

struct Backend(SmallRng);

impl Random for Backend {
    fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// Seeded at the first draw below rate 1, never before the backend is forked: all would draw alike.
static DRAW: LocalRef<Option<Draw<Backend>>> = LocalRef::new(None);

/// So many of the next statements are not drawn, for which this need not be thought about again: nothing but this counts.
static SKIP: Local<u64> = Local::new(0);
/// So many are not drawn after those.
static HELD: Local<u64> = Local::new(0);
/// Whether the rate was set since the last draw.
static RESET: Local<bool> = Local::new(false);

/// Number of the last draw that was won below rate 1.
static WON: Local<u64> = Local::new(0);
/// Number of the one that what runs now is under.
static CLUSTER: Local<u64> = Local::new(0);
static CLUSTERS: LocalRef<Clusters> = LocalRef::new(Clusters::new());

/// Weight of the top-level statement that begins now; 0 when it is not looked at. `queryid` as far as it is known, or 0.
#[inline(always)]
pub fn draw(queryid: impl FnOnce() -> u64) -> f64 {
    match guc::drawing() {
        Drawing::Nothing => 0.0,
        _ if server::is_parallel_worker() => 0.0,
        Drawing::All => 1.0,
        _ if guc::is_bounded() => draw_within_budget(queryid()),
        _ if skips() => 0.0,
        _ => draw_at(guc::sample_rate()),
    }
}

/// Whether the statement that begins now is one of those that are not drawn without a draw. Only while some are drawn.
#[inline(always)]
pub fn skips() -> bool {
    hold();
    let left = HELD.get();
    if left > 0 {
        HELD.set(left - 1);
    }
    left > 0
}

/// Whether it is, told at a glance: only what was [`release`]d and nobody has asked to [`hold`] since.
#[inline(always)]
pub fn skips_at_a_glance() -> bool {
    let left = SKIP.get();
    if left > 0 {
        SKIP.set(left - 1);
    }
    left > 0
}

/// A statement that is not drawn begins, and those after it can be told at a glance.
#[inline(always)]
pub fn release() {
    SKIP.set(HELD.replace(0));
}

/// The statement that begins next may be under a draw that was made already, or none of the client's.
#[inline(always)]
pub fn hold() {
    HELD.set(HELD.get() + SKIP.replace(0));
}

/// What was drawn for the old rate is void.
pub fn settings_changed() {
    SKIP.set(0);
    HELD.set(0);
    RESET.set(true);
}

static BUDGET: LocalRef<Option<Budget>> = LocalRef::new(None);

#[inline(never)]
fn draw_within_budget(queryid: u64) -> f64 {
    let rate = guc::sample_rate();
    if queryid != 0 {
        let weight = thin(queryid, rate);
        if weight > 0.0 {
            won();
        }
        return weight;
    }
    if skips() {
        return 0.0;
    }
    let weight = draw_at(with_budget(|b| b.probability_unnamed(rate)).unwrap_or(rate));
    if weight > 0.0 {
        with_budget(|b| b.saw_unnamed(weight, rate));
    }
    weight
}

/// Weight of a statement with an identifier where the rate, 0 to 1, is thinned according to how often it comes; 0 when it is
/// not looked at.
fn thin(queryid: u64, rate: f64) -> f64 {
    let probability = with_budget(|b| b.probability(queryid ^ queryid >> 32, rate)).unwrap_or(rate);
    let happens = DRAW.with(|draw| draw.get_or_insert_with(seed).happens(probability));
    if happens == Some(true) { 1.0 / probability } else { 0.0 }
}

/// Calls `f` with the budget, and ends the window if it is over by that. The gap that was drawn for the old probability is
/// void then. Not before `f`: where a gap has just come to its end, the statement that it led to would lose its draw.
fn with_budget<R>(f: impl FnOnce(&mut Budget) -> R) -> Option<R> {
    BUDGET.with(|budget| {
        let budget = budget.get_or_insert_with(Budget::default);
        let result = f(budget);
        if budget.is_over() {
            let thinned = budget.next(cost::per_recording(), guc::max_overhead() / 100.0);
            cost::thinned(thinned);
            settings_changed();
        }
        result
    })
}

/// What a nested statement is worth that starts under a draw of this weight: that, or more or 0 if it is thinned once more.
#[inline(always)]
pub fn weight_of_nested(queryid: u64, drawn: f64) -> f64 {
    if drawn > 0.0 && guc::is_bounded() && guc::drawing() != Drawing::All {
        drawn * thin(queryid, 1.0)
    } else {
        drawn
    }
}

/// A statement of the client's was recorded.
#[inline(always)]
pub fn took(weight: f64, nanoseconds: u64) {
    if guc::is_bounded() {
        with_budget(|b| b.took(weight, nanoseconds));
    }
}

#[inline(never)]
fn draw_at(rate: f64) -> f64 {
    let drawn = DRAW.with(|draw| {
        let draw = draw.get_or_insert_with(seed);
        if RESET.replace(false) {
            draw.forget();
        }
        draw.draw(rate)
    });
    drawn.map_or(0.0, |drawn| {
        HELD.set(drawn.skip);
        if drawn.weight > 0.0 {
            won();
        }
        drawn.weight
    })
}

fn won() {
    WON.set(WON.get() + 1);
    CLUSTER.set(WON.get());
}

/// Number of the draw that what runs now is under. Means nothing where that is not looked at, or everything is.
#[inline(always)]
pub fn cluster() -> u64 {
    CLUSTER.get()
}

/// What runs from now on is under an earlier draw, as [`cluster`] told it.
#[inline(always)]
pub fn set_cluster(number: u64) {
    CLUSTER.set(number);
}

/// What an execution shares with others of its draw, for [`Event::shared`](crate::counters::Event::shared). Once for
/// each that is recorded. `drawn`: the draw's weight.
#[inline(always)]
pub fn shared(cluster: u64, drawn: f64, key: &Key, weight: f64, nanoseconds: u64) -> Shared {
    if weight > 1.0 { shared_below_rate_1(cluster, drawn, key, weight, nanoseconds) } else { Shared::NOTHING }
}

#[inline(never)]
fn shared_below_rate_1(number: u64, drawn: f64, key: &Key, weight: f64, nanoseconds: u64) -> Shared {
    let shared = CLUSTERS.with(|c| c.add(Cluster { number, weight: drawn }, key, weight, nanoseconds));
    shared.unwrap_or(Shared::NOTHING)
}

#[cold]
fn seed() -> Draw<Backend> {
    let random = SmallRng::try_from_rng(&mut SysRng).unwrap_or_else(|_| {
        let pid = u64::from(std::process::id());
        SmallRng::seed_from_u64(pid << 32 ^ server::now() as u64)
    });
    Draw::new(Backend(random))
}
