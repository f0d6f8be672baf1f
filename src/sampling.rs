//! The draw of this backend's top-level statements.

use crate::draw::{Draw, Random};
use crate::guc::{self, Drawing};
use crate::pg::local::LocalRef;
use crate::pg::server;
use crate::variance;
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

/// Weight of the top-level statement that begins now; 0 when it is not looked at.
#[inline(always)]
pub fn draw() -> f64 {
    match guc::drawing() {
        Drawing::Nothing => 0.0,
        _ if server::is_parallel_worker() => 0.0,
        Drawing::All => 1.0,
        Drawing::Some => draw_at(guc::sample_rate()),
    }
}

#[inline(never)]
fn draw_at(rate: f64) -> f64 {
    if variance::is_open() {
        variance::close(); // left over from a statement that failed
    }
    DRAW.with(|draw| draw.get_or_insert_with(seed).weight(rate)).unwrap_or(0.0)
}

#[cold]
fn seed() -> Draw<Backend> {
    let random = SmallRng::try_from_rng(&mut SysRng).unwrap_or_else(|_| {
        let pid = u64::from(std::process::id());
        SmallRng::seed_from_u64(pid << 32 ^ server::now() as u64)
    });
    Draw::new(Backend(random))
}
