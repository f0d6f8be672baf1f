//! The box a run was made on: whoever reads the numbers has to know it.

use std::fs;
use std::hint::black_box;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

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
    /// Of one reading of the system's clock, ns: the median of many.
    pub clock_cost_ns: f64,
    /// Processes ready to run, averaged over the last minute, before the load began.
    pub load_average: f64,
    /// Fraction of all CPU time that others used just before the load began; `None`: unknown.
    pub busy_before: Option<f64>,
    /// Who runs the virtual machine, as it says itself.
    pub hypervisor: Option<String>,
    /// How the kernel chooses the frequency; `None`: it does not, as in most virtual machines.
    pub governor: Option<String>,
    /// Whether two CPUs share a core.
    pub smt: Option<bool>,
    pub transparent_huge_pages: Option<String>,
}

/// How long to look at an idle box.
const IDLE_LOOK: Duration = Duration::from_millis(300);

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
            clock_cost_ns: clock_cost_ns(),
            load_average: load_average.unwrap_or(0.0),
            busy_before: busy_fraction(IDLE_LOOK),
            hypervisor: dmi(),
            governor: known(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            smt: known(read("/sys/devices/system/cpu/smt/active")).map(|active| active == "1"),
            transparent_huge_pages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        }
    }
}

/// What all CPUs did since the box started, in ticks of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTimes {
    all: u64,
    idle: u64,
    steal: u64,
}

impl CpuTimes {
    /// `None` outside Linux.
    pub fn now() -> Option<Self> {
        Self::parse(&read("/proc/stat"))
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; the guests' that follow are in user and nice already.
        let times: Vec<u64> = line.split_ascii_whitespace().take(8).filter_map(|t| t.parse().ok()).collect();
        let [_, _, _, idle, iowait, _, _, steal] = times[..] else { return None };
        Some(CpuTimes { all: times.iter().sum(), idle: idle + iowait, steal })
    }

    /// Fraction of all CPU time since then that the hypervisor gave to others.
    pub fn steal_since(self, before: Self) -> f64 {
        (self.steal.saturating_sub(before.steal)) as f64 / self.all.saturating_sub(before.all).max(1) as f64
    }

    fn busy_since(self, before: Self) -> f64 {
        let idle = self.idle.saturating_sub(before.idle) as f64;
        1.0 - (idle / self.all.saturating_sub(before.all).max(1) as f64).min(1.0)
    }
}

fn busy_fraction(over: Duration) -> Option<f64> {
    let before = CpuTimes::now()?;
    sleep(over);
    Some(CpuTimes::now()?.busy_since(before))
}

fn clock_cost_ns() -> f64 {
    const READINGS: u32 = 1000;
    let mut costs: Vec<f64> = (0..31)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..READINGS {
                black_box(Instant::now());
            }
            start.elapsed().as_nanos() as f64 / f64::from(READINGS)
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

/// Vendor and product that the firmware names.
fn dmi() -> Option<String> {
    let part = |name: &str| known(read(&format!("/sys/class/dmi/id/{name}")));
    known([part("sys_vendor"), part("product_name")].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// The one in brackets.
fn chosen(options: &str) -> Option<String> {
    let (_, rest) = options.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn known(text: String) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn non_empty(text: String) -> String {
    known(text).unwrap_or_else(unknown)
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

    #[test]
    fn steal_and_idle_are_told_apart() {
        let times = |line: &str| CpuTimes::parse(line).unwrap();
        let before = times("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1\n");
        let after = times("cpu  150 0 120 900 10 0 0 20 7 7\n");
        assert_eq!(after.steal_since(before), 0.1);
        assert!((after.busy_since(before) - 0.45).abs() < 1e-9);
        assert_eq!(CpuTimes::parse("intr 5\n"), None);
    }

    #[test]
    fn the_chosen_option_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen(""), None);
    }
}
