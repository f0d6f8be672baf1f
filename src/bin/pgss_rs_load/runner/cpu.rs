//! CPU time, as Linux's scheduler accounts for it, on which CPU a session runs, and when its two sides take turns there.

use std::fs::File;
use std::os::unix::fs::FileExt;
#[cfg(target_os = "linux")]
use std::process::{Command, Stdio};

use crate::error::Result;

/// Ties the calling thread (`pid` 0) or a process to the CPU of a session: the same one for a client's thread and for
/// its server processes, the next one for the next client.
///
/// Client and server take turns, so they lose little by sharing a CPU, and it is where the kernel puts them once every
/// CPU is busy. Left alone it takes its time, though: for seconds each statement may wake an idle CPU, at a multiple of
/// the statement's own time, in one arm and not in the other.
#[cfg(target_os = "linux")]
pub fn pin(pid: i32, session: u32) -> Result<()> {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::{Pid, getpid};

    use crate::error::Error;

    let tie = || {
        // The main thread is never tied: its set is that of the whole driver.
        let allowed = sched_getaffinity(getpid())?;
        let cpus: Vec<usize> =
            (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
        let mut one = CpuSet::new();
        one.set(cpus[session as usize % cpus.len()])?;
        sched_setaffinity(Pid::from_raw(pid), &one)
    };
    tie().map_err(|e: nix::Error| Error::Failed(format!("cannot tie a session to a CPU ({e}): try --no-pin")))
}

/// Only Linux can.
#[cfg(not(target_os = "linux"))]
pub fn pin(_pid: i32, _session: u32) -> Result<()> {
    Ok(())
}

/// While it lives, no process started by this thread, nor this thread or those it starts, interrupts another that has just
/// woken it: they are under the policy SCHED_BATCH, which is inherited and takes no privilege.
///
/// Client and server of a session share a CPU. Under the usual policy whoever is woken runs at once if it has had less of the
/// CPU lately, and the waker goes on later. So how often a statement switches between the two, 1 to 4 times, depends on how
/// long both sides take, thus on the arm: of 10 microseconds added to a statement 0.3 microseconds were missing from the
/// server's CPU time, and 2 were too many in the elapsed time. Without that, each side runs until it waits, in both arms.
#[derive(Debug)]
pub struct Turns(());

impl Turns {
    /// `None` where it cannot be had: it takes Linux and util-linux's `chrt`.
    pub fn begin() -> Option<Self> {
        set_policy("-b").then_some(Turns(()))
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        set_policy("-o");
    }
}

#[cfg(target_os = "linux")]
fn set_policy(option: &str) -> bool {
    let thread = nix::unistd::gettid().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args([option, "-p", "0", &thread]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    chrt.status().is_ok_and(|status| status.success())
}

#[cfg(not(target_os = "linux"))]
fn set_policy(_option: &str) -> bool {
    false
}

/// The CPU time of one process or thread, in ns.
///
/// Reads /proc/PID/schedstat, whose first field is the time spent on a CPU. It is exact to the ns for a process that
/// waits, as a server process does between two statements.
#[derive(Debug)]
pub struct CpuClock(File);

impl CpuClock {
    /// `None` where there is no such file.
    pub fn of_process(pid: i32) -> Option<Self> {
        Self::open(&format!("/proc/{pid}/schedstat"))
    }

    pub fn of_this_thread() -> Option<Self> {
        Self::open("/proc/thread-self/schedstat")
    }

    fn open(path: &str) -> Option<Self> {
        let clock = CpuClock(File::open(path).ok()?);
        clock.now().map(|_| clock)
    }

    pub fn now(&self) -> Option<u64> {
        let mut bytes = [0; 96];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        first_field(&bytes[..length])
    }
}

fn first_field(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn processes_started_meanwhile_take_turns_and_later_ones_do_not() {
        let policy = || {
            let shown =
                Command::new("chrt").args(["-p", &nix::unistd::gettid().to_string()]).output().unwrap();
            String::from_utf8(shown.stdout).unwrap().lines().next().unwrap().to_owned()
        };
        let of_child = || {
            let shown = Command::new("sh").args(["-c", "chrt -p $$"]).output().unwrap();
            String::from_utf8(shown.stdout).unwrap().lines().next().unwrap().to_owned()
        };
        let turns = Turns::begin().unwrap();
        assert!(policy().ends_with("SCHED_BATCH") && of_child().ends_with("SCHED_BATCH"));
        drop(turns);
        assert!(policy().ends_with("SCHED_OTHER") && of_child().ends_with("SCHED_OTHER"));
    }

    #[test]
    fn the_time_on_the_cpu_is_the_first_field() {
        assert_eq!(first_field(b"159574 12 1\n"), Some(159_574));
        assert_eq!(first_field(b""), None);
    }
}
