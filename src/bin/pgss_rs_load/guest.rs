//! On an existing server: what is checked before, what is left behind (nothing), and how its sessions become arms.

use std::sync::Arc;

use crate::arm::{Arm, Module};
use crate::cli::{Mode, Plan};
use crate::client::Session;
use crate::error::{self, Error, Result};
use crate::remote::Target;
use crate::workload::{Workload, create_pgbench_tables};

/// Holds all tables that are created.
const SCHEMA: &str = "pgss_rs_load";

/// What is on the server for one run. Dropping it removes that.
#[derive(Debug)]
pub struct Guest {
    target: Target,
    /// Modules whose settings the arms flip.
    modules: Vec<Module>,
    /// The schema, if one was created here.
    schema: Option<String>,
    /// What sessions set before anything else.
    search_path: Option<String>,
}

impl Guest {
    /// Checks that the run is possible and allowed, then creates the tables that the load needs.
    pub fn enter(plan: &Plan, target: &Target) -> Result<Arc<Self>> {
        refuse_impossible(plan)?;
        let mut session = target.connect()?;
        let mut modules = Vec::new();
        for module in plan.arms.iter().filter_map(|arm| arm.module()) {
            if !modules.contains(&module) {
                check_settings(&mut session, module)?;
                modules.push(module);
            }
        }
        let scripts = plan.workload == Workload::Script;
        let writes = plan.workload.needs_tables() || plan.request.init.is_some();
        if writes && !plan.request.allow_writes {
            return Err(Error::Request(match plan.workload {
                Workload::Script => format!(
                    "scripts may write, and this is {target}: add --allow-writes if they may. Their tables are yours, and \
                     what they do to them stays"
                ),
                workload => format!(
                    "{} needs tables in {target}: add --allow-writes if they may be created there, in a schema of their own \
                     that is dropped at the end. Workloads without tables, such as now, do without",
                    workload.name()
                ),
            }));
        }
        let mut guest = Guest { target: target.clone(), modules, schema: None, search_path: None };
        if writes {
            // Of several machines that load the server at once, each has tables of its own.
            let schema = match plan.request.start_at {
                Some(_) => format!("{SCHEMA}_{}", session.backend_pid()),
                None => SCHEMA.to_owned(),
            };
            create_schema(&mut session, target, &schema)?;
            let own = format!("SET search_path = {schema}");
            guest.schema = Some(schema);
            session.execute(&own)?;
            plan.workload.set_up(&mut session, plan.scale)?;
            if plan.request.scripts.iter().any(|weighted| weighted.script.uses_pgbench_tables()) {
                create_pgbench_tables(&mut session, i64::from(plan.scale))?;
            }
            if let Some(sql) = &plan.request.init {
                session.execute(sql)?;
            }
            // Scripts may be about the user's own tables, too.
            guest.search_path = Some(if scripts { format!("{own}, \"$user\", public") } else { own });
        }
        Ok(Arc::new(guest))
    }

    /// A session with everything switched off.
    pub fn connect(&self) -> Result<Session> {
        let mut session = self.target.connect()?;
        if let Some(search_path) = &self.search_path {
            session.execute(search_path)?;
        }
        for module in &self.modules {
            session.execute(&module.flip(Arm::Off))?;
        }
        Ok(session)
    }

    fn leave(&self, schema: &str) -> Result<()> {
        let mut session = self.target.connect()?;
        session.see_it_through();
        let tables = session.query(&format!(
            "SELECT format('DROP TABLE %s', c.oid::regclass) FROM pg_class c
             WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'p')
                 AND relowner = current_user::regrole AND NOT relispartition"
        ))?;
        for row in tables {
            if let Some(Some(sql)) = row.first() {
                session.execute(sql)?;
            }
        }
        // Without CASCADE: what others have put there is not ours to drop.
        session.execute(&format!("DROP SCHEMA {schema}"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(schema) = &self.schema
            && let Err(error) = self.leave(schema)
        {
            error::tell(format_args!(
                "pgss_rs_load: the schema {schema} is still there ({error}).\nTo remove it: DROP SCHEMA {schema} CASCADE;"
            ));
        }
    }
}

/// What the server says it is.
pub fn version_of(target: &Target) -> Result<String> {
    let rows = target.connect()?.query("SHOW server_version")?;
    let version = rows.into_iter().flatten().flatten().next().unwrap_or_default();
    Ok(format!("PostgreSQL {version}"))
}

/// The arms that can be run, and a note for each that cannot. Those that the user named are left as they are.
pub fn available(plan: &Plan, target: &Target) -> Result<(Vec<Arm>, Vec<String>)> {
    let theirs = Some(Module::PgStatStatements);
    if plan.arms_are_given || !plan.arms.iter().any(|arm| arm.module() == theirs) {
        return Ok((plan.arms.clone(), Vec::new()));
    }
    let loaded =
        target.connect()?.query("SELECT 1 FROM pg_settings WHERE name = 'pg_stat_statements.track'")?;
    if !loaded.is_empty() {
        return Ok((plan.arms.clone(), Vec::new()));
    }
    let arms = plan.arms.iter().copied().filter(|arm| arm.module() != theirs).collect();
    Ok((arms, vec!["pg_stat_statements is not loaded by this server: its arm is left out".to_owned()]))
}

fn refuse_impossible(plan: &Plan) -> Result<()> {
    let refused = |what: &str| {
        Err(Error::Request(format!("with --dsn there is no {what}: it takes a throwaway server")))
    };
    match plan.mode {
        Mode::Restart => refused("restart"),
        Mode::Calibrate => refused("calibrate"),
        Mode::Pgbench => refused("comparison with pgbench"),
        _ if !plan.request.libraries.is_empty() => refused("--library"),
        _ if !plan.settings.is_empty() => refused("--setting"),
        _ if plan.max_entries.is_some() => refused("--max-entries"),
        _ => Ok(()),
    }
}

/// Whether the module is loaded, and its settings may be set.
fn check_settings(session: &mut Session, module: Module) -> Result<()> {
    for setting in module.settings() {
        let rows = session.query(&format!(
            "SELECT count(*), coalesce(bool_or(context = 'user' OR has_parameter_privilege(name, 'SET')), false)
             FROM pg_settings WHERE name = '{setting}'"
        ))?;
        let found: Vec<Option<&str>> = rows.iter().flatten().map(Option::as_deref).collect();
        match found[..] {
            [Some("1"), Some("t")] => {}
            [Some("1"), _] => {
                let user = session.query("SELECT quote_ident(current_user)")?;
                let user = user.into_iter().flatten().flatten().next().unwrap_or_default();
                let settings = module.settings().join(", ");
                return Err(Error::Request(format!(
                    "{user} may not set {setting}. A superuser can allow it: GRANT SET ON PARAMETER {settings} TO {user};"
                )));
            }
            _ => {
                return Err(Error::Request(format!(
                    "{} is not loaded by this server: leave its arms out, or add it to shared_preload_libraries",
                    module.name()
                )));
            }
        }
    }
    Ok(())
}

fn create_schema(session: &mut Session, target: &Target, schema: &str) -> Result<()> {
    let there = session.query(&format!("SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'"))?;
    if !there.is_empty() {
        return Err(Error::Request(format!(
            "in {target} there is a schema {schema} already, of a run that goes on or was cut off: wait, or DROP SCHEMA \
             {schema} CASCADE"
        )));
    }
    session.execute(&format!("CREATE SCHEMA {schema}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Arguments;
    use crate::cluster::Cluster;
    use crate::env::Machine;
    use crate::report::{Results, Run};
    use crate::runner::{self, Site};

    fn server(preload: &str) -> Cluster {
        let pg_config = std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned());
        Cluster::builder(pg_config).setting("shared_preload_libraries", preload).start().unwrap()
    }

    fn run_as(user: &str, cluster: &Cluster, arguments: &[&str]) -> Result<Run> {
        let dsn = format!(
            "host={} port={} user={user} dbname=postgres",
            cluster.socket_dir().display(),
            cluster.port()
        );
        let common = ["pgss_rs_load", "--dsn", &dsn, "--clients=2", "--duration=1", "--arms=off,pgss_rs@0.5"];
        let plan = Arguments::parse_from(common.iter().chain(arguments)).plans(2)?.remove(0);
        let Some(target) = plan.request.target.clone() else { panic!("a target") };
        runner::run(plan, &Site::Existing(target), &Machine::here())
    }

    fn one(session: &mut Session, sql: &str) -> String {
        session.query(sql).unwrap()[0][0].clone().unwrap()
    }

    const SCHEMAS: &str = "SELECT count(*) FROM pg_namespace WHERE nspname = 'pgss_rs_load'";

    #[test]
    fn a_role_that_may_set_the_settings_leaves_everything_as_it_was() {
        let cluster = server("pgss_rs");
        let mut owner = Session::connect(&cluster.socket()).unwrap();
        owner
            .execute(
                "CREATE EXTENSION pgss_rs; CREATE ROLE dba LOGIN; GRANT CREATE ON DATABASE postgres TO dba;
                 GRANT SET ON PARAMETER pgss_rs.track, pgss_rs.sample_rate TO dba;
                 CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, abalance int);
                 INSERT INTO pgbench_accounts VALUES (1, 4711); GRANT ALL ON pgbench_accounts TO dba",
            )
            .unwrap();

        let Results::Cost(cost) = run_as("dba", &cluster, &["cost"]).unwrap().results else { panic!("cost") };
        assert!(
            cost.comparisons.len() == 1
                && cost.comparisons[0].cpu.is_none()
                && cost.comparisons[0].blocks > 0
        );

        let refused = run_as("dba", &cluster, &["throughput", "--workload=tpcb"]).unwrap_err().to_string();
        assert!(refused.contains("--allow-writes") && one(&mut owner, SCHEMAS) == "0", "{refused}");

        let run = run_as("dba", &cluster, &["latency", "--workload=now", "--rate-per-second=200"]).unwrap();
        let Results::Latency(latency) = run.results else { panic!("latency") };
        assert!(latency.arms.iter().all(|arm| arm.completed > 0), "{:?}", latency.arms);

        owner.execute("SELECT pgss_rs_reset()").unwrap();
        let run = run_as("dba", &cluster, &["throughput", "--workload=tpcb", "--allow-writes"]).unwrap();
        let Results::Throughput(throughput) = run.results else { panic!("throughput") };
        assert!(throughput.arms.iter().all(|arm| arm.transactions > 0));
        let looked_at =
            "SELECT sum(sampled_calls) < sum(calls) * 0.6 AND sum(sampled_calls) > sum(calls) * 0.4
                         FROM pgss_rs_stats WHERE query LIKE 'INSERT INTO pgbench_history%'";
        assert_eq!(one(&mut owner, looked_at), "t");
        assert_eq!(one(&mut owner, SCHEMAS), "0");
        assert_eq!(one(&mut owner, "SELECT sum(abalance) FROM pgbench_accounts"), "4711");
    }

    #[test]
    fn what_is_missing_is_told_before_anything_is_done() {
        let cluster = server("pgss_rs");
        let mut owner = Session::connect(&cluster.socket()).unwrap();
        owner.execute("CREATE ROLE plain LOGIN; CREATE SCHEMA pgss_rs_load").unwrap();
        let refused = |user, arguments: &[&str]| run_as(user, &cluster, arguments).unwrap_err().to_string();
        let error = refused("plain", &["cost"]);
        assert!(
            error.contains("GRANT SET ON PARAMETER pgss_rs.track, pgss_rs.sample_rate TO plain;"),
            "{error}"
        );
        let error = refused("postgres", &["throughput", "--allow-writes"]);
        assert!(error.contains("schema pgss_rs_load already"), "{error}");
        assert_eq!(one(&mut owner, SCHEMAS), "1");
        assert!(refused("postgres", &["restart"]).contains("throwaway"));
        let script = std::env::temp_dir().join(format!("pgss_rs_guest_{}.sql", std::process::id()));
        std::fs::write(&script, "SELECT 1;").unwrap();
        let error = refused("postgres", &["throughput", "-f", &script.to_string_lossy()]);
        std::fs::remove_file(&script).unwrap();
        assert!(error.starts_with("scripts may write") && error.contains("--allow-writes"), "{error}");
        assert!(refused("postgres", &["cost", "--setting=work_mem=1MB"]).contains("--setting"));

        let target = |arguments: &[&str]| {
            let dsn = format!("host={} user=postgres dbname=postgres", cluster.socket_dir().display());
            let plan = Arguments::parse_from([&["pgss_rs_load", "--dsn", &dsn], arguments].concat()).plans(2);
            let plan = plan.unwrap().remove(0);
            let target = plan.request.target.clone().unwrap();
            available(&plan, &target).unwrap()
        };
        let (arms, notes) = target(&["throughput"]);
        assert_eq!(arms.iter().map(Arm::to_string).collect::<Vec<_>>().join(","), "off,pgss_rs,pgss_rs@0.1");
        assert!(notes[0].contains("its arm is left out"), "{notes:?}");
        assert_eq!(target(&["throughput", "--arms=off,pg_stat_statements"]).0.len(), 2);

        let bare = server("");
        let error = run_as("postgres", &bare, &["cost"]).unwrap_err().to_string();
        assert!(error.starts_with("pgss_rs is not loaded by this server"), "{error}");
    }
}
