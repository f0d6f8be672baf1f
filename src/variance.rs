//! What executions that share a draw add to the variances of their entry's totals.
//!
//! A draw decides over a cluster: a top-level statement and everything nested in it, all statements that a rule makes
//! of one, all that the deferred triggers of one commit execute. Let it be won with probability p, and let each
//! execution that is recorded carry the weight W: 1/p, or more where it was thinned once more by itself. Then the
//! estimated variance of an entry's total of y is
//!
//! ```text
//! sum over executions of W(W-1)y^2  +  sum over pairs j, k of one cluster, in both orders, of (1-p) Wj yj Wk yk
//! ```
//!
//! (Horvitz and Thompson 1952, for inclusion probabilities of 1/W, jointly 1/(p Wj Wk) within a cluster, and independent
//! otherwise. Where all W are w = 1/p it is w(w-1)Y^2 for what one draw adds to the entry, Y: cluster sampling.) What
//! is recorded whatever is drawn has weight 1, and no part in either sum.
//!
//! The second sum grows execution by execution, each bringing its pairs with those that came before. So nobody needs to
//! know when a cluster is complete: statements may fail, and portals of several clusters take turns.

use crate::counters::NS_PER_MS;
use crate::key::Key;

/// A draw that was won.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cluster {
    /// From 1 on, in the order of the draws.
    pub number: u64,
    /// 1/p.
    pub weight: f64,
}

/// What a cluster had added to an entry before, times 1-p: sums of weights, and of weights times ms.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Shared {
    pub calls: f64,
    pub ms: f64,
}

impl Shared {
    /// Nothing: the first or only execution of its draw.
    pub const NOTHING: Shared = Shared { calls: 0.0, ms: 0.0 };
}

/// What a cluster has added to an entry so far.
#[derive(Clone, Copy, Default)]
struct Sum {
    number: u64,
    key: Key,
    calls: f64,
    ms: f64,
}

impl Sum {
    fn is(&self, number: u64, key: &Key) -> bool {
        self.number == number && self.key == *key
    }
}

/// What the latest clusters of a backend have added to their entries.
///
/// Of fixed size: where it is too small for a cluster's entries (from some hundred on, or when as many were nested in
/// others while a portal waited) some pairs are lost, which makes the error a little too small. So does an entry that is
/// evicted or reset half-way make it too large.
pub struct Clusters {
    /// At the top a cluster has one entry.
    top: Sum,
    /// Of nested statements: sets of [`WAYS`], one for each hash; in a set, the oldest gives way.
    nested: Vec<Sum>,
}

const WAYS: usize = 8;
const SETS: usize = 128;

impl Clusters {
    pub const fn new() -> Self {
        let key = Key { queryid: 0, userid: 0, dbid: 0, toplevel: true };
        Clusters { top: Sum { number: 0, key, calls: 0.0, ms: 0.0 }, nested: Vec::new() }
    }

    /// Adds one execution with its weight to what its cluster has added to `key`'s entry. What that was before.
    pub fn add(&mut self, cluster: Cluster, key: &Key, weight: f64, nanoseconds: u64) -> Shared {
        let sum = if key.toplevel { Some(&mut self.top) } else { self.place(cluster.number, key) };
        let Some(sum) = sum else { return Shared::NOTHING };
        if !sum.is(cluster.number, key) {
            *sum = Sum { number: cluster.number, key: *key, calls: 0.0, ms: 0.0 };
        }
        let not_drawn = 1.0 - 1.0 / cluster.weight;
        let shared = Shared { calls: not_drawn * sum.calls, ms: not_drawn * sum.ms };
        sum.calls += weight;
        sum.ms += weight * (nanoseconds as f64 / NS_PER_MS);
        shared
    }

    /// Where the sum of a nested entry is, or is to be. `None` without memory.
    fn place(&mut self, number: u64, key: &Key) -> Option<&mut Sum> {
        if self.nested.is_empty() {
            self.nested.try_reserve_exact(SETS * WAYS).ok()?;
            self.nested.resize(SETS * WAYS, Sum::default());
        }
        // as in `Key::hash`
        let hash = (key.hash() ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = (hash >> (u64::BITS - SETS.ilog2())) as usize;
        let sums = &mut self.nested[set * WAYS..][..WAYS];
        let known = sums.iter().position(|sum| sum.is(number, key));
        let oldest = || (0..WAYS).min_by_key(|n| sums[*n].number);
        let at = known.or_else(oldest)?;
        Some(&mut sums[at])
    }
}

impl Default for Clusters {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(queryid: u64, toplevel: bool) -> Key {
        Key { queryid, userid: 10, dbid: 5, toplevel }
    }

    /// The variance of calls and of time after executions (cluster, entry, ms) with the cluster's weight.
    fn variances(clusters: &mut Clusters, of: &Key, executions: &[(Cluster, Key, f64)]) -> (f64, f64) {
        let (mut calls, mut time) = (0.0, 0.0);
        for (cluster, key, ms) in executions {
            let (w, shared) =
                (cluster.weight, clusters.add(*cluster, key, cluster.weight, (ms * NS_PER_MS) as u64));
            if key == of {
                calls += w * (w - 1.0 + 2.0 * shared.calls);
                time += w * ms * ((w - 1.0) * ms + 2.0 * shared.ms);
            }
        }
        (calls, time)
    }

    #[test]
    fn what_one_draw_adds_is_squared_once() {
        for toplevel in [true, false] {
            let mut clusters = Clusters::new();
            let (entry, cluster) = (key(1, toplevel), Cluster { number: 1, weight: 4.0 });
            let executions = [1.0, 2.0, 3.5].map(|ms| (cluster, entry, ms));
            // 4 * 3 * 3^2, 4 * 3 * 6.5^2
            assert_eq!(variances(&mut clusters, &entry, &executions), (108.0, 507.0));
        }
    }

    #[test]
    fn draws_and_entries_are_apart_however_they_take_turns() {
        let mut clusters = Clusters::new();
        let [one, two] = [1, 2].map(|number| Cluster { number, weight: 2.0 });
        let executions: Vec<_> = (0..30)
            .map(|n| (if n % 2 == 0 { one } else { two }, key(n / 2 % 3, false), 1.0))
            .chain([(one, key(7, true), 1.0)])
            .collect();
        // five times in each of two draws: 2 * 1 * 5^2, twice
        assert_eq!(variances(&mut clusters, &key(0, false), &executions), (100.0, 100.0));
    }

    #[test]
    fn hundreds_of_entries_nested_in_one_statement_lose_no_pair() {
        let mut clusters = Clusters::new();
        let cluster = Cluster { number: 1, weight: 2.0 };
        for round in 0..3 {
            for n in 0..400 {
                let shared = clusters.add(cluster, &key(n, false), 2.0, 1_000_000);
                assert_eq!(shared.calls, f64::from(round), "entry {n}");
            }
        }
    }

    #[test]
    fn more_entries_than_there_is_room_for_lose_pairs_and_nothing_else() {
        let mut clusters = Clusters::new();
        let cluster = Cluster { number: 1, weight: 2.0 };
        for round in 0..3 {
            for n in 0..10_000 {
                let shared = clusters.add(cluster, &key(n, false), 2.0, 1_000_000);
                assert!(shared.calls <= f64::from(round) && shared.ms <= f64::from(round));
            }
        }
        assert_eq!(clusters.nested.len(), SETS * WAYS);
    }
}
