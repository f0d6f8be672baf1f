//! Under what conditions a run was made: the servers' settings, steal time, and what of all that may have spoilt it.

use std::collections::BTreeMap;

use super::Server;
use crate::cli::{Mode, Plan};
use crate::env::{CpuTimes, Machine};
use crate::error::Result;
use crate::report::Conditions;
use crate::report::grid::counted;

/// Of the server's own: what a reader asks for first.
const SETTINGS: &str = "'server_version', 'debug_assertions', 'shared_preload_libraries', 'shared_buffers', 'work_mem',
    'max_connections', 'huge_pages', 'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'autovacuum',
    'checkpoint_timeout', 'max_wal_size', 'jit', 'compute_query_id', 'track_activities', 'track_io_timing',
    'track_functions', 'log_statement', 'log_min_duration_statement', 'max_parallel_workers_per_gather', 'plan_cache_mode'";

/// From these fractions of all CPU time on, others spoil a measurement.
const BUSY: f64 = 0.1;
const STEAL: f64 = 0.01;
/// From this on, ns, the clock is a part of what a timed statement costs that most boxes do not have.
const SLOW_CLOCK: f64 = 100.0;

/// As they are now. `before`: taken when the run began.
pub fn conditions(
    plan: &Plan,
    machine: &Machine,
    servers: &[Server],
    before: Option<CpuTimes>,
) -> Result<Conditions> {
    let server = servers.last().map_or(Ok(BTreeMap::new()), settings)?;
    let steal = CpuTimes::now().zip(before).map(|(now, before)| now.steal_since(before));
    let warnings = warnings(plan, machine, &server, steal);
    Ok(Conditions { server, steal, warnings })
}

fn settings(server: &Server) -> Result<BTreeMap<String, String>> {
    let sql = format!(
        "SELECT name, CASE source WHEN 'session' THEN reset_val ELSE current_setting(name) END FROM pg_settings
         WHERE name IN ({SETTINGS}) OR name LIKE 'pgss_rs.%' OR name LIKE 'pg_stat_statements.%'"
    );
    let pair = |row: Vec<Option<String>>| match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(name), Some(value)]) => Some((name, value)),
        _ => None,
    };
    let mut session = server.connect()?;
    if let Some(module) = server.module() {
        // This session is none of the load; what it sets is not shown.
        session.execute(&module.flip(crate::arm::Arm::Off))?;
    }
    Ok(session.query(&sql)?.into_iter().filter_map(pair).collect())
}

/// What may have spoilt the measurement.
fn warnings(
    plan: &Plan,
    machine: &Machine,
    server: &BTreeMap<String, String>,
    steal: Option<f64>,
) -> Vec<String> {
    let on = |name: &str| server.get(name).is_some_and(|value| value == "on");
    let mut warnings = Vec::new();
    let mut warn = |when: bool, text: String| {
        if when {
            warnings.push(text);
        }
    };
    warn(
        on("debug_assertions"),
        "the server was built with assertions: no figure here is one of production".to_owned(),
    );
    warn(
        on("pgss_rs.debug_assertions"),
        "pgss_rs is a debug build, not optimised: install it with cargo pgrx install --release".to_owned(),
    );
    warn(
        cfg!(debug_assertions),
        "pgss_rs_load is a debug build and takes more CPU than it should".to_owned(),
    );
    let busy = machine.busy_before.unwrap_or(0.0);
    let loaded = machine.load_average > machine.cpus as f64 / 2.0;
    warn(
        busy > BUSY || loaded,
        format!(
            "this box was busy with something else before the load began ({:.0} % of its CPU time, load average {:.2}): \
             expect wide intervals",
            100.0 * busy,
            machine.load_average
        ),
    );
    let stolen = steal.unwrap_or(0.0);
    warn(stolen > STEAL, format!("the hypervisor gave {:.1} % of the CPU time to others", 100.0 * stolen));
    let crowded = plan.mode != Mode::Latency && plan.clients as usize > machine.cpus;
    warn(
        crowded,
        format!(
            "{} clients share {}: elapsed times hold the wait for one, and TPS is what the CPUs give",
            plan.clients,
            counted(machine.cpus as u64, "CPU")
        ),
    );
    if let Some(governor) = machine.governor.as_deref().filter(|governor| *governor != "performance") {
        warn(true, format!("the CPU's frequency is governed by {governor}: performance is steadier"));
    }
    warn(
        machine.clock_cost_ns > SLOW_CLOCK,
        format!(
            "the clock source {} takes {:.0} ns a reading, and modules that time statements pay it twice for each",
            machine.clock_source, machine.clock_cost_ns
        ),
    );
    let logs = server.get("log_statement").is_some_and(|value| value != "none");
    warn(logs, "the server logs statements, which costs more than counting them".to_owned());
    warnings
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;

    fn machine() -> Machine {
        Machine {
            cpu_model: String::new(),
            cpus: 4,
            virtual_machine: true,
            memory: 0,
            kernel: String::new(),
            clock_source: "hpet".to_owned(),
            clock_cost_ns: 25.0,
            load_average: 0.1,
            busy_before: Some(0.01),
            hypervisor: None,
            governor: None,
            smt: None,
            transparent_huge_pages: None,
        }
    }

    fn warned(clients: &str, machine: &Machine, server: &[(&str, &str)], steal: Option<f64>) -> String {
        let plan =
            Arguments::parse_from(["pgss_rs_load", "throughput", "--clients", clients]).plans(4).unwrap();
        let server = server.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let all = warnings(&plan[0], machine, &server, steal);
        // The tests themselves are a debug build.
        all.iter()
            .filter(|w| !w.starts_with("pgss_rs_load is a debug"))
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_quiet_box_with_production_builds_is_not_warned_of() {
        let server =
            [("debug_assertions", "off"), ("pgss_rs.debug_assertions", "off"), ("log_statement", "none")];
        assert_eq!(warned("4", &machine(), &server, Some(0.001)), "");
        assert_eq!(warned("4", &machine(), &[], None), "");
    }

    #[test]
    fn each_thing_that_spoils_a_measurement_is_named() {
        let quiet = machine();
        let of_server = |name, value| warned("4", &quiet, &[(name, value)], None);
        assert!(of_server("debug_assertions", "on").starts_with("the server was built with assertions"));
        assert!(of_server("pgss_rs.debug_assertions", "on").starts_with("pgss_rs is a debug build"));
        assert!(of_server("log_statement", "all").starts_with("the server logs"));
        assert!(warned("5", &quiet, &[], None).starts_with("5 clients share 4 CPUs"));
        assert!(warned("4", &quiet, &[], Some(0.05)).contains("gave 5.0 %"));
        let busy = Machine { busy_before: Some(0.4), ..quiet.clone() };
        assert!(warned("4", &busy, &[], None).contains("40 % of its CPU time"));
        let saving = Machine { governor: Some("powersave".to_owned()), ..quiet.clone() };
        assert!(warned("4", &saving, &[], None).contains("powersave"));
        let slow = Machine { clock_cost_ns: 900.0, ..quiet };
        assert!(warned("4", &slow, &[], None).contains("hpet takes 900 ns"));
    }
}
