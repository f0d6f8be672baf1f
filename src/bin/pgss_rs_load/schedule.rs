//! In which order what is measured. Pure: the seed decides, so a run can be repeated.
//!
//! `cost` works in blocks of four slices, ABBA or BAAB: a drift that is linear over the block cancels out, and so does
//! whatever the first slice of a block suffers. `throughput` works in rounds, each with every arm once in random order.

use std::ops::RangeInclusive;

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// Statements per slice. Short, so that the four slices of a block see the same machine; long against the reading of
/// the clocks. Of random length, so as not to fall into step with anything periodic.
const SLICE_LENGTH: RangeInclusive<u32> = 50..=250;

/// One of the two arms of a comparison: `A` is the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Side {
    A,
    B,
}

/// The order of a block's slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Order {
    Abba,
    Baab,
}

impl Order {
    pub fn sides(self) -> [Side; 4] {
        match self {
            Order::Abba => [Side::A, Side::B, Side::B, Side::A],
            Order::Baab => [Side::B, Side::A, Side::A, Side::B],
        }
    }

    fn reversed(self) -> Self {
        match self {
            Order::Abba => Order::Baab,
            Order::Baab => Order::Abba,
        }
    }
}

/// Four slices of one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which comparison, from 0.
    pub comparison: usize,
    pub order: Order,
    /// Statements per slice.
    pub length: u32,
}

/// An endless sequence of blocks. Any `2 * comparisons` of them, counted from the start, hold every comparison in both
/// orders.
#[derive(Debug)]
pub struct Blocks {
    rng: Xoshiro256PlusPlus,
    comparisons: usize,
    pending: Vec<(usize, Order)>,
    /// The orders still owed to each comparison: `None` when both are free to choose.
    owed: Vec<Option<Order>>,
}

impl Blocks {
    pub fn new(comparisons: usize, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Blocks { rng, comparisons, pending: Vec::new(), owed: vec![None; comparisons] }
    }

    fn refill(&mut self) {
        for comparison in 0..self.comparisons {
            let order = match self.owed[comparison].take() {
                Some(order) => order,
                None => {
                    let order = if self.rng.random() { Order::Abba } else { Order::Baab };
                    self.owed[comparison] = Some(order.reversed());
                    order
                }
            };
            self.pending.push((comparison, order));
        }
        self.pending.shuffle(&mut self.rng);
    }
}

impl Iterator for Blocks {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        if self.pending.is_empty() {
            self.refill();
        }
        let (comparison, order) = self.pending.pop()?;
        Some(Block { comparison, order, length: self.rng.random_range(SLICE_LENGTH) })
    }
}

/// The rounds of a throughput run: each a permutation of `0..arms`.
pub fn rounds(arms: usize, rounds: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut round: Vec<usize> = (0..arms).collect();
    (0..rounds)
        .map(|_| {
            round.shuffle(&mut rng);
            round.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let blocks = |seed| Blocks::new(3, seed).take(50).collect::<Vec<_>>();
        assert_eq!(blocks(1), blocks(1));
        assert_ne!(blocks(1), blocks(2));
        assert_eq!(rounds(4, 20, 1), rounds(4, 20, 1));
        assert_ne!(rounds(4, 20, 1), rounds(4, 20, 2));
    }

    #[test]
    fn each_side_has_the_same_mean_position_in_a_block() {
        for order in [Order::Abba, Order::Baab] {
            let sum = |side| -> usize { (0..4).filter(|i| order.sides()[*i] == side).sum() };
            assert_eq!(sum(Side::A), sum(Side::B));
        }
    }

    #[test]
    fn every_comparison_comes_as_often_in_either_order() {
        let blocks: Vec<Block> = Blocks::new(3, 42).take(2 * 3 * 10).collect();
        for cycle in blocks.chunks(2 * 3) {
            for comparison in 0..3 {
                let count =
                    |order| cycle.iter().filter(|b| b.comparison == comparison && b.order == order).count();
                assert_eq!((count(Order::Abba), count(Order::Baab)), (1, 1));
            }
        }
    }

    #[test]
    fn slices_have_between_50_and_250_statements() {
        let lengths: Vec<u32> = Blocks::new(1, 3).take(5000).map(|b| b.length).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&50), Some(&250)));
    }

    #[test]
    fn every_arm_comes_once_a_round_and_at_every_place() {
        let rounds = rounds(3, 60, 9);
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
        for place in 0..3 {
            assert!((0..3).all(|arm| rounds.iter().any(|round| round[place] == arm)));
        }
    }
}
