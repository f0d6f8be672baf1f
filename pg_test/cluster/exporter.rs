//! Debian's prometheus-postgres-exporter, run as README tells its users, shows our numbers.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postgres::NoTls;

use crate::cluster::{Cluster, SUPERUSER};
use crate::servers::{config, major, number, observe, start_with_pgss_rs, value};

const PROGRAM: &str = "prometheus-postgres-exporter";
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A running exporter. Dropping it, also in a panic, ends it and removes its files.
struct Exporter {
    process: Child,
    port: u16,
    files: PathBuf,
}

impl Exporter {
    /// Watches a database as a role, with queries from a file's text.
    fn start(cluster: &Cluster, database: &str, role: &str, queries: &str) -> Self {
        let files = std::env::temp_dir().join(format!("pgss_rs_exporter_{}", std::process::id()));
        fs::create_dir(&files).unwrap();
        fs::write(files.join("queries.yaml"), queries).unwrap();
        let log = File::create(files.join("log")).unwrap();
        // nobody else is to be given the port in the moment between
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let source = format!(
            "host={} port={} user={role} dbname={database} sslmode=disable",
            cluster.socket_dir().display(),
            cluster.port()
        );
        let process = Command::new(PROGRAM)
            .arg(format!("--extend.query-path={}", files.join("queries.yaml").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .env("DATA_SOURCE_NAME", source)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {PROGRAM} (.ci/setup installs it): {e}"));
        let mut exporter = Exporter { process, port, files };
        exporter.wait_ready();
        exporter
    }

    fn wait_ready(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = self.process.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "no answer ({ended:?}):\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.files.join("log")).unwrap()
    }

    /// The page of metrics.
    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.split(' ').nth(1) == Some("200"), "{answer}");
        page.to_owned()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.files);
    }
}

/// Values of a metric's samples that have all these labels.
fn samples(page: &str, metric: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    page.lines()
        .filter_map(|line| line.strip_prefix(metric))
        .filter(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
        .map(|rest| rest.rsplit(' ').next().unwrap().parse().unwrap())
        .collect()
}

fn readme_queries() -> String {
    let page = fs::read_to_string("README.md").unwrap();
    let (_, yaml) = page.split_once("```yaml\n").unwrap();
    yaml.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_exporter_shows_calls_rows_and_seconds_of_a_statement() {
    let cluster = start_with_pgss_rs(&[]);
    let mut observer = observe(&cluster);
    observer
        .batch_execute(
            "CREATE ROLE app LOGIN; CREATE ROLE prometheus LOGIN IN ROLE pg_monitor;
             ALTER ROLE prometheus SET search_path = pgss_compat, \"$user\", public;
             CREATE TABLE sale AS SELECT id FROM generate_series(1, 10) AS id; GRANT SELECT ON sale TO app",
        )
        .unwrap();
    let mut app = config(&cluster, SUPERUSER).user("app").connect(NoTls).unwrap();
    let of = "FROM pgss_rs_stats WHERE query = 'SELECT id, pg_sleep($1) FROM sale WHERE id <= $2'";

    let exporter = Exporter::start(&cluster, SUPERUSER, "prometheus", &readme_queries());
    for calls in [7.0, 14.0] {
        for _ in 0..7 {
            app.batch_execute("SELECT id, pg_sleep(0.002) FROM sale WHERE id <= 3").unwrap();
        }
        let page = exporter.scrape();
        let log = exporter.log();
        assert_eq!(samples(&page, "pg_up", &[]), [1.0], "{log}");
        assert_eq!(samples(&page, "pg_exporter_last_scrape_error", &[]), [0.0], "{log}");
        assert_eq!(samples(&page, "pg_exporter_user_queries_load_error", &[]), [0.0], "{log}");
        // this release reads the server's own pg_stat_bgwriter by the columns that it had before 17
        let known = |line: &str| major() >= 17 && line.contains("name=bgwriter");
        assert!(log.lines().all(|line| !line.contains("level=error") || known(line)), "{log}");

        let id = value(&mut observer, &format!("SELECT queryid {of}"));
        let labels = [("rolname", "app"), ("datname", SUPERUSER), ("queryid", &id)];
        let of_statement = |name: &str| samples(&page, &format!("pg_stat_statements_{name}"), &labels);
        assert_eq!(of_statement("calls"), [calls]);
        assert_eq!(of_statement("rows"), [3.0 * calls]);
        let expected = number(&mut observer, &format!("SELECT total_exec_time {of}")) / 1000.0;
        let seconds = of_statement("seconds");
        assert_eq!(seconds.len(), 1);
        assert!((seconds[0] - expected).abs() < 1e-9 * expected, "{seconds:?} s, {expected} s");
        // three rows of two milliseconds each
        assert!((0.006 * calls..60.0).contains(&seconds[0]), "{seconds:?}");
    }
}
