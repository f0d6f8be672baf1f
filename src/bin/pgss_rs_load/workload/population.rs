//! Workloads of many distinct statements: which one comes next. Random only through the caller's generator.
//!
//! The statements differ in the name of a CTE, which is part of core's query identifier on all of 15 to 18.

use std::fmt::Write as _;

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Zipf};

/// New statements of one client before it would meet the next one's: more than it can send in years.
const NEW_PER_CLIENT: u64 = 1 << 40;

/// The statements there are and how often each comes, as one client meets them. Hot ones, if any, have the numbers
/// from 0.
#[derive(Clone, Copy, Debug)]
pub enum Population {
    /// Each as often.
    Uniform { statements: u64 },
    /// The hot ones with this probability, else the others; each as often among its like.
    HotAndOthers { hot: u64, hot_share: f64, others: u64 },
    /// The hot ones, each as often; but one statement in so many is new: no client has sent it before.
    HotAndNew { hot: u64, one_in: u32, next_new: u64 },
    /// The statement of rank k in proportion to a power of 1/k.
    Zipf(Zipf<f64>),
}

/// Whether a transaction is of those whose latencies are shown apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    Hot,
    /// Also every transaction of a workload without hot ones.
    Other,
    /// It was rolled back, and counts for nothing.
    None,
}

/// A statement of a population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub number: u64,
    pub popularity: Popularity,
}

impl Population {
    /// `client`: from 0, among those of a server.
    pub fn hot_and_new(hot: u64, one_in: u32, client: u32) -> Self {
        Population::HotAndNew { hot, one_in, next_new: hot + u64::from(client) * NEW_PER_CLIENT }
    }

    /// By Zipf's law over so many statements.
    pub fn zipf(statements: u32, exponent: f64) -> Self {
        let zipf = Zipf::new(f64::from(statements), exponent);
        Population::Zipf(zipf.expect("a statement at least, and no negative exponent"))
    }

    pub fn has_hot(&self) -> bool {
        matches!(self, Population::HotAndOthers { .. } | Population::HotAndNew { .. })
    }

    pub fn draw(&mut self, rng: &mut Xoshiro256PlusPlus) -> Drawn {
        let hot = |number| Drawn { number, popularity: Popularity::Hot };
        let other = |number| Drawn { number, popularity: Popularity::Other };
        match self {
            Population::Uniform { statements } => other(rng.random_range(0..*statements)),
            Population::HotAndOthers { hot: count, hot_share, others } => {
                if rng.random_bool(*hot_share) {
                    hot(rng.random_range(0..*count))
                } else {
                    other(*count + rng.random_range(0..*others))
                }
            }
            Population::HotAndNew { hot: count, one_in, next_new } => {
                if rng.random_ratio(1, *one_in) {
                    *next_new += 1;
                    other(*next_new - 1)
                } else {
                    hot(rng.random_range(0..*count))
                }
            }
            Population::Zipf(zipf) => other(zipf.sample(rng) as u64 - 1),
        }
    }
}

impl Drawn {
    /// The statement's text, in place of what is in `sql`.
    pub fn write(self, sql: &mut String) {
        let Drawn { number, .. } = self;
        sql.clear();
        // Writing to a String cannot fail.
        let _ = write!(sql, "WITH c{number} AS (SELECT 1 AS n) SELECT n FROM c{number}");
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const DRAWS: usize = 1_000_000;

    fn draws(mut population: Population, count: usize) -> Vec<Drawn> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        (0..count).map(|_| population.draw(&mut rng)).collect()
    }

    fn numbers(draws: &[Drawn], popularity: Popularity) -> Vec<u64> {
        draws.iter().filter(|d| d.popularity == popularity).map(|d| d.number).collect()
    }

    #[test]
    fn four_in_five_are_hot_where_the_share_is_0_8() {
        let draws = draws(Population::HotAndOthers { hot: 1000, hot_share: 0.8, others: 3_000_000 }, DRAWS);
        let (hot, others) = (numbers(&draws, Popularity::Hot), numbers(&draws, Popularity::Other));
        // Four standard deviations.
        assert!((798_400..801_600).contains(&hot.len()), "{}", hot.len());
        assert_eq!((hot.iter().min(), hot.iter().max()), (Some(&0), Some(&999)));
        assert!(others.iter().all(|n| (1000..3_001_000).contains(n)));
        assert!(others.iter().any(|n| *n < 2000) && others.iter().any(|n| *n > 3_000_000));
    }

    #[test]
    fn new_statements_never_come_twice_from_whichever_client() {
        let of_client = |client| draws(Population::hot_and_new(50, 10, client), 100_000);
        let mut new: Vec<u64> = (0..3).flat_map(|c| numbers(&of_client(c), Popularity::Other)).collect();
        assert!((29_000..31_000).contains(&new.len()), "{}", new.len());
        assert!(new.iter().all(|n| *n >= 50));
        let count = new.len();
        new.sort_unstable();
        new.dedup();
        assert_eq!(new.len(), count);

        let hot = numbers(&of_client(1), Popularity::Hot);
        assert_eq!((hot.iter().min(), hot.iter().max()), (Some(&0), Some(&49)));
    }

    #[test]
    fn a_uniform_population_has_no_hot_statements_and_misses_none() {
        let draws = draws(Population::Uniform { statements: 4500 }, DRAWS);
        let mut numbers = numbers(&draws, Popularity::Other);
        assert_eq!(numbers.len(), DRAWS);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers, (0..4500).collect::<Vec<u64>>());
    }

    #[test]
    fn by_zipfs_law_each_rank_comes_less_often_than_the_one_before() {
        let draws = draws(Population::zipf(100_000, 1.0), DRAWS);
        let mut counts = vec![0u32; 100_000];
        draws.iter().for_each(|d| counts[d.number as usize] += 1);
        assert!(counts[..20].windows(2).all(|pair| pair[0] > pair[1]), "{:?}", &counts[..20]);
        // The sum over 1/k for k to 100,000 is 12.09.
        assert!((81_000..84_500).contains(&counts[0]), "{}", counts[0]);
        assert!(f64::from(counts[0]) / f64::from(counts[9]) > 9.0);
        let late: u32 = counts[50_000..].iter().sum();
        assert!((55_000..60_000).contains(&late), "{late}");
    }

    #[test]
    fn the_seed_decides_which_statements_come() {
        let population = || Population::hot_and_new(4950, 100, 2);
        assert_eq!(draws(population(), 10_000), draws(population(), 10_000));
    }

    #[test]
    fn a_statement_is_told_by_the_name_of_its_cte() {
        let mut sql = "old".to_owned();
        Drawn { number: 123, popularity: Popularity::Hot }.write(&mut sql);
        assert_eq!(sql, "WITH c123 AS (SELECT 1 AS n) SELECT n FROM c123");
    }
}
