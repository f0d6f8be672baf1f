//! The CPU time of one process or thread, in ns, as Linux's scheduler accounts for it.

use std::fs::File;
use std::os::unix::fs::FileExt;

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

    #[test]
    fn the_time_on_the_cpu_is_the_first_field() {
        assert_eq!(first_field(b"159574 12 1\n"), Some(159_574));
        assert_eq!(first_field(b""), None);
    }
}
