//! The box a run was made on: whoever reads the numbers has to know it.

use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu_model: String,
    /// CPUs this process may use.
    pub cpus: usize,
    pub virtual_machine: bool,
    /// Bytes; 0: unknown.
    pub memory: u64,
    pub kernel: String,
    /// What the kernel tells the time with; a slow one makes every timed statement dearer.
    pub clock_source: String,
    /// Processes ready to run, averaged over the last minute, before the load began.
    pub load_average: f64,
}

impl Machine {
    /// What is not known (outside Linux) reads "unknown".
    pub fn here() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let load_average = read("/proc/loadavg").split(' ').next().and_then(|v| v.parse().ok());
        Machine {
            cpu_model: field("model name").unwrap_or_else(unknown),
            cpus: available_parallelism().map_or(1, usize::from),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            memory: memory(&read("/proc/meminfo")).unwrap_or(0),
            kernel: non_empty(read("/proc/sys/kernel/osrelease")),
            clock_source: non_empty(read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            load_average: load_average.unwrap_or(0.0),
        }
    }
}

fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn non_empty(text: String) -> String {
    let text = text.trim();
    if text.is_empty() { unknown() } else { text.to_owned() }
}

fn unknown() -> String {
    "unknown".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_777_216));
        assert_eq!(memory(""), None);
    }
}
