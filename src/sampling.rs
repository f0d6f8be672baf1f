//! The draw of this backend's top-level statements, and what they share by it.

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

/// So many of the next statements are not drawn.
static SKIP: Local<u64> = Local::new(0);
/// Whether the rate was set since the last draw.
static RESET: Local<bool> = Local::new(false);

/// Number of the last draw that was won below rate 1.
static WON: Local<u64> = Local::new(0);
/// Number of the one that what runs now is under.
static CLUSTER: Local<u64> = Local::new(0);
static CLUSTERS: LocalRef<Clusters> = LocalRef::new(Clusters::new());

/// Weight of the top-level statement that begins now; 0 when it is not looked at.
#[inline(always)]
pub fn draw() -> f64 {
    match guc::drawing() {
        Drawing::Nothing => 0.0,
        _ if server::is_parallel_worker() => 0.0,
        Drawing::All => 1.0,
        _ if skips() => 0.0,
        _ => draw_at(guc::sample_rate()),
    }
}

/// Whether the statement that begins now is one of those that are not drawn without a draw. Only while some are drawn.
#[inline(always)]
pub fn skips() -> bool {
    let skip = SKIP.get();
    if skip > 0 {
        SKIP.set(skip - 1);
    }
    skip > 0
}

/// The rate is set: what was drawn for the old one is void.
pub fn rate_set() {
    SKIP.set(0);
    RESET.set(true);
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
        SKIP.set(drawn.skip);
        if drawn.weight > 0.0 {
            WON.set(WON.get() + 1);
            CLUSTER.set(WON.get());
        }
        drawn.weight
    })
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
/// each that is recorded.
#[inline(always)]
pub fn shared(cluster: u64, key: &Key, weight: f64, nanoseconds: u64) -> Shared {
    if weight > 1.0 { shared_below_rate_1(cluster, key, weight, nanoseconds) } else { Shared::NOTHING }
}

#[inline(never)]
fn shared_below_rate_1(number: u64, key: &Key, weight: f64, nanoseconds: u64) -> Shared {
    let shared = CLUSTERS.with(|c| c.add(Cluster { number, weight }, key, weight, nanoseconds));
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
