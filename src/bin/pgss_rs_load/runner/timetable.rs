//! When the load begins and each slice of it, where several machines load one server (`--start-at`): all of them put it on
//! the same arm at the same time, by their clocks and without talking to each other.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::rounds::Division;
use crate::error::{Error, Result, check_interrupted};

/// How often a wait looks whether the user wants to stop.
const GLANCE: Duration = Duration::from_millis(100);

/// When slices begin.
#[derive(Debug)]
pub struct Timetable {
    /// `None`: each as soon as the one before has ended.
    start: Option<Instant>,
    division: Division,
}

impl Timetable {
    /// `start_at`: seconds since 1970.
    pub fn new(start_at: Option<u64>, division: Division) -> Result<Self> {
        Ok(Timetable { start: start_at.map(instant).transpose()?, division })
    }

    /// Waits until a slice, counted from 0, begins. What is left then of its warm-up, in which clocks that differ a little
    /// and what a machine was late are made up for.
    pub fn wait_for(&self, slice: u32) -> Result<Duration> {
        let Division { slice: length, warm_up, .. } = self.division;
        let Some(start) = self.start else { return Ok(warm_up) };
        // As long as the warm-up again for the end of the slice before.
        let begin = start + (length + 2 * warm_up) * slice;
        wait_until(begin)?;
        let left = (begin + warm_up).checked_duration_since(Instant::now());
        left.ok_or_else(|| {
            Error::Failed(format!(
                "slice {slice} should have begun {} ms ago: this machine is out of step with the others, try fewer clients",
                begin.elapsed().as_millis()
            ))
        })
    }
}

/// Waits until the load begins, if that has been set.
pub fn wait_for_start(start_at: Option<u64>) -> Result<()> {
    match start_at {
        Some(seconds) => wait_until(instant(seconds)?),
        None => Ok(()),
    }
}

fn instant(seconds: u64) -> Result<Instant> {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Duration::from_secs(seconds).checked_sub(passed) {
        Some(left) => Ok(Instant::now() + left),
        None => Err(Error::Request(format!(
            "--start-at was over {:.1} s before everything was prepared: give all machines a later one",
            (passed - Duration::from_secs(seconds)).as_secs_f64()
        ))),
    }
}

fn wait_until(then: Instant) -> Result<()> {
    loop {
        check_interrupted()?;
        match then.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(GLANCE)),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIVISION: Division =
        Division { rounds: 8, slice: Duration::from_secs(100), warm_up: Duration::from_secs(50) };

    fn starting(start: Instant) -> Timetable {
        Timetable { start: Some(start), division: DIVISION }
    }

    #[test]
    fn what_a_machine_is_late_is_taken_from_the_warm_up() {
        let free = Timetable { start: None, division: DIVISION };
        assert_eq!(free.wait_for(3).unwrap(), DIVISION.warm_up);
        // The third slice began 20 s ago.
        let left = starting(Instant::now() - Duration::from_secs(2 * 200 + 20)).wait_for(2).unwrap();
        assert!(left <= Duration::from_secs(30) && left > Duration::ZERO, "{left:?}");
        let late = starting(Instant::now() - Duration::from_secs(2 * 200 + 51)).wait_for(2).unwrap_err();
        assert!(late.to_string().contains("out of step"), "{late}");
    }

    #[test]
    fn a_start_that_is_over_is_refused() {
        assert!(instant(1).unwrap_err().to_string().contains("a later one"));
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(instant(passed + 1000).unwrap() > Instant::now() + Duration::from_secs(900));
    }
}
