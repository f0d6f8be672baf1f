//! Why an arm lost: what its sessions waited for more often than the baseline's, and what the module counted.

use super::chart::number;
use super::document::{Comparison, Cost, Finding, Results, Run, Watched};
use super::grid::counted;

/// A wait's share of the looks has to exceed the baseline's by this, and by three standard errors.
const SMALLEST_SHARE: f64 = 0.01;
const STANDARD_ERRORS: f64 = 3.0;

/// What the module's own counters say, and how.
const COUNTERS: [(&str, &str); 5] = [
    ("lock_waits", "found an entry's lock held"),
    ("index_lock_waits", "found a lock of the index held"),
    ("text_lock_waits", "found the lock for texts held"),
    ("evictions", "gave up entries for want of room"),
    ("skipped", "skipped records"),
];

/// Sentences; none where nothing was watched.
pub fn of(run: &Run) -> Vec<String> {
    let arms: Vec<(&str, Option<&Watched>, bool)> = match &run.results {
        Results::Cost(cost) => return of_cost(cost),
        Results::Calibration(_) | Results::Efficiency(_) => return Vec::new(),
        Results::Throughput(throughput) => throughput
            .arms
            .iter()
            .map(|arm| {
                let lost =
                    arm.finding == Some(Finding::Difference) && arm.change.is_some_and(|c| c.estimate < 0.0);
                (&*arm.arm, arm.watched.as_ref(), lost)
            })
            .collect(),
        Results::Latency(latency) => latency
            .arms
            .iter()
            .map(|arm| {
                let worse = arm.percentiles.iter().any(|p| {
                    p.finding == Some(Finding::Difference) && p.change.is_some_and(|c| c.estimate > 0.0)
                });
                (&*arm.arm, arm.watched.as_ref(), worse)
            })
            .collect(),
    };
    let Some((_, Some(baseline), _)) = arms.first() else { return Vec::new() };
    let others = arms.iter().skip(1).filter_map(|(arm, watched, lost)| Some((arm, (*watched)?, *lost)));
    others.filter_map(|(arm, watched, lost)| of_arm(arm, watched, baseline, lost)).collect()
}

/// Waits cannot be told apart there: both arms are the same session. What the module counted can be, server by server.
fn of_cost(cost: &Cost) -> Vec<String> {
    let counted = |comparison: &Comparison| {
        let parts = counters(comparison.watched.as_ref()?);
        (!parts.is_empty()).then(|| format!("the server of {}: {}.", comparison.arm, parts.join("; ")))
    };
    cost.comparisons.iter().filter_map(counted).collect()
}

fn of_arm(arm: &str, watched: &Watched, baseline: &Watched, lost: bool) -> Option<String> {
    if !lost {
        return None;
    }
    let mut parts: Vec<String> = waits(watched, baseline);
    if parts.is_empty() {
        let text = "no wait stands out against off: what it lost is processor time within the statements";
        parts.push(text.to_owned());
    }
    parts.extend(counters(watched));
    Some(format!("{arm}: {}.", parts.join("; ")))
}

/// Waits that were seen more often than on the baseline's server. That a session waits for its client is none.
fn waits(watched: &Watched, baseline: &Watched) -> Vec<String> {
    let (n, m) = (sessions(watched), sessions(baseline));
    if n == 0.0 || m == 0.0 {
        return Vec::new();
    }
    let mut excesses = Vec::new();
    for (state, count) in
        watched.states.iter().filter(|(state, _)| state.contains(':') && state != "Client:ClientRead")
    {
        let share = *count as f64 / n;
        let usual =
            baseline.states.iter().find(|(other, _)| other == state).map_or(0, |(_, c)| *c) as f64 / m;
        let error = (share * (1.0 - share) / n + usual * (1.0 - usual) / m).sqrt();
        if share - usual > (STANDARD_ERRORS * error).max(SMALLEST_SHARE) {
            excesses.push((share, usual, state));
        }
    }
    excesses.sort_by(|a, b| (b.0 - b.1).total_cmp(&(a.0 - a.1)));
    let percent = |share: f64| number(100.0 * share, 1);
    let said = |(share, usual, state): (f64, f64, &String)| {
        format!(
            "its sessions waited for {state} in {} % of the looks (off: {} %)",
            percent(share),
            percent(usual)
        )
    };
    excesses.into_iter().map(said).collect()
}

fn sessions(watched: &Watched) -> f64 {
    watched.states.iter().map(|(_, count)| *count as f64).sum()
}

fn counters(watched: &Watched) -> Vec<String> {
    let value = |name: &str| watched.counters.iter().find(|(n, _)| n == name).map_or(0, |(_, value)| *value);
    let said = |(name, what): &(&str, &str)| {
        let count = value(name);
        let rate = count as f64 / watched.seconds;
        (count > 0 && watched.seconds > 0.0).then(|| {
            format!("it {what} {} ({} a second)", counted(count, "time"), super::chart::significant(rate))
        })
    };
    COUNTERS.iter().filter_map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(states: &[(&str, u64)], counters: &[(&str, u64)]) -> Watched {
        let owned = |pairs: &[(&str, u64)]| pairs.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        Watched { looks: 100, states: owned(states), counters: owned(counters), seconds: 10.0 }
    }

    #[test]
    fn a_wait_that_off_has_not_is_the_cause() {
        let off = watched(&[("running", 380), ("LWLock:WALWrite", 20)], &[]);
        let arm = watched(
            &[
                ("running", 260),
                ("LWLock:pg_stat_statements", 120),
                ("LWLock:WALWrite", 20),
                ("Client:ClientRead", 90),
            ],
            &[("evictions", 1500), ("skipped", 0)],
        );
        assert_eq!(
            of_arm("x", &arm, &off, true).unwrap(),
            "x: its sessions waited for LWLock:pg_stat_statements in 24.5 % of the looks (off: 0.0 %); it gave up \
             entries for want of room 1,500 times (150 a second)."
        );
    }

    #[test]
    fn without_such_a_wait_the_loss_is_processor_time_and_no_loss_has_no_cause() {
        let same = watched(&[("running", 380), ("LWLock:WALWrite", 20)], &[]);
        assert!(of_arm("x", &same, &same, true).unwrap().contains("processor time"));
        assert_eq!(of_arm("x", &same, &same, false), None);
    }

    #[test]
    fn few_looks_name_no_cause() {
        let off = watched(&[("running", 10)], &[]);
        let arm = watched(&[("running", 9), ("LWLock:a", 1)], &[]);
        assert!(waits(&arm, &off).is_empty());
    }

    #[test]
    fn in_cost_the_counters_of_an_arms_server_are_told() {
        let interval = serde_json::json!({"estimate": 1.0, "low": 0.0, "high": 2.0});
        let measure =
            serde_json::json!({"off": 9.0, "change": interval, "noise": interval, "finding": "difference"});
        let comparison = |arm: &str, skipped: u64| {
            serde_json::json!({"arm": arm, "blocks": 1, "statements": 9, "wall": measure, "cpu": null,
                "watched": {"looks": 0, "states": [], "counters": [["skipped", skipped]], "seconds": 4.0}})
        };
        let cost =
            serde_json::json!({"comparisons": [comparison("pgss_rs", 8), comparison("pgss_rs@0.1", 0)]});
        let said = of_cost(&serde_json::from_value(cost).unwrap());
        assert_eq!(said, ["the server of pgss_rs: it skipped records 8 times (2.00 a second)."]);
    }
}
