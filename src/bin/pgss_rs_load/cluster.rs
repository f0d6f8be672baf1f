//! Throwaway PostgreSQL servers: `initdb` into a temporary directory, a Unix-domain socket only, gone at the end.
//!
//! The load driver measures on these, and the tests in `pg_test/cluster/` include this file by path; it therefore
//! uses nothing of the driver's.
//!
//! ```ignore
//! let mut cluster = Cluster::builder("/path/to/pg_config")
//!     .setting("shared_preload_libraries", "pgss_rs")
//!     .start()?;
//! connect(cluster.socket_dir(), cluster.port()); // user and database "postgres", no password
//! cluster.restart(Shutdown::Fast)?;
//! ```
//!
//! Who cleans up:
//! - dropping a [`Cluster`] stops the server and removes its directory; a panic or an early return drops it too;
//! - each server runs under a small shell that holds the reading end of a pipe whose writing end is the caller's.
//!   Should the caller vanish without a drop (SIGKILL), the pipe closes, and the shell stops the server and removes
//!   the directory. A parent-death signal would not do: it is cleared by the change of user, and bound to a thread.
//! - the shell and the server have a process group of their own, so that a Ctrl-C meant for the caller does not
//!   stop the server under it.
//!
//! PostgreSQL refuses to run as root. When the caller is root, everything runs as the user `postgres`.

#![allow(dead_code, reason = "the driver and the tests each use a part of this")]

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

/// The name of the superuser and of the database to connect to.
pub const SUPERUSER: &str = "postgres";

/// Part of the socket's name only, unless the server is to listen on TCP.
const PORT: u16 = 5432;
const PRELOAD: &str = "shared_preload_libraries";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Lines of the server's log shown when it does not start.
const LOG_TAIL: usize = 20;

/// Runs `$3...` with its output in `$1/$2` and says its process id. Ends with its status; when stdin closes first,
/// ends it and removes `$1`. The `trap` makes the last step whole once it has begun.
const SUPERVISOR: &str = r#"
root=$1 log=$2
shift 2
exec 3<&0 </dev/null
"$@" 3<&- >>"$root/$log" 2>&1 &
server=$!
( read -r _ <&3; trap '' TERM; kill -s QUIT "$server" 2>/dev/null; exit 0 ) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo "$server"
wait "$server"
status=$?
kill -s TERM "$watcher" 2>/dev/null
if wait "$watcher"; then rm -rf "$root"; fi
exit "$status"
"#;

/// What went wrong, in words for the user.
#[derive(Debug)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error {
    pub fn new(text: &str) -> Self {
        Error(text.to_owned())
    }
}

impl std::error::Error for Error {}

type Result<T> = std::result::Result<T, Error>;

/// Gives an I/O error the words of what was being done.
fn doing<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> Result<T> {
    result.map_err(|e| Error(format!("cannot {}: {e}", what())))
}

/// How a server is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Waits until every session has ended by itself.
    Smart,
    /// Ends the sessions, then shuts down cleanly.
    Fast,
    /// Stops at once; the next start recovers as after a crash.
    Immediate,
}

impl Shutdown {
    fn signal(self) -> Signal {
        match self {
            Shutdown::Smart => Signal::SIGTERM,
            Shutdown::Fast => Signal::SIGINT,
            Shutdown::Immediate => Signal::SIGQUIT,
        }
    }
}

/// Asks `pg_config` for one value, such as `--bindir`, `--pkglibdir` or `--version`.
pub fn pg_config(pg_config: &Path, option: &str) -> Result<String> {
    let run = Command::new(pg_config).arg(option).stdin(Stdio::null()).output();
    let output = doing(run, || format!("run {} {option}", pg_config.display()))?;
    if !output.status.success() {
        return Err(Error(format!("{} {option} failed ({})", pg_config.display(), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The settings of a server to be.
#[derive(Clone, Debug)]
pub struct Builder {
    pg_config: PathBuf,
    settings: Vec<(String, String)>,
    library: Option<PathBuf>,
    /// Listens on the loopback address.
    loopback: bool,
    /// Certificate and key, PEM.
    certificate: Option<(String, String)>,
    environment: Vec<(String, String)>,
}

impl Builder {
    /// Listens on the loopback address, too, at a port that is free now.
    pub fn on_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    /// Encrypts TCP connections of those who want it. Both are PEM.
    pub fn certificate(mut self, certificate: &str, key: &str) -> Self {
        self.certificate = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Preloads a library by its file, a copy of which goes beside the data directory, before those that the settings name.
    pub fn preload_file(mut self, library: &Path) -> Self {
        self.library = Some(library.to_owned());
        self
    }

    /// Adds a line to postgresql.conf. The value is quoted here; of several for one name the last counts.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a variable to the environment of the server and of what makes it.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Creates the server and starts it. When it does not start, the error shows the end of its log.
    pub fn start(self) -> Result<Cluster> {
        let bin = PathBuf::from(pg_config(&self.pg_config, "--bindir")?);
        let account = Account::for_servers()?;
        let root = create_root(account.as_ref())?;
        let port = if self.loopback { free_port()? } else { PORT };
        let mut cluster = Cluster { bin, root, port, account, environment: self.environment, server: None };
        cluster.initdb()?;
        // Nothing here has to survive the machine.
        cluster.set("fsync", "off")?;
        cluster.set("listen_addresses", if self.loopback { "127.0.0.1" } else { "" })?;
        cluster.set("unix_socket_directories", &cluster.root.display().to_string())?;
        cluster.set("port", &port.to_string())?;
        if let Some((certificate, key)) = &self.certificate {
            cluster.add_file("server.crt", certificate)?;
            cluster.add_file("server.key", key)?;
            cluster.set("ssl", "on")?;
        }
        for (name, value) in &self.settings {
            cluster.set(name, value)?;
        }
        if let Some(library) = &self.library {
            let copy = cluster.copy_library(library)?;
            let others = self.settings.iter().rfind(|(name, _)| name == PRELOAD);
            let others = others.map_or_else(String::new, |(_, names)| format!(", {names}"));
            cluster.set(PRELOAD, &format!("\"{}\"{others}", copy.display()))?;
        }
        cluster.start()?;
        Ok(cluster)
    }
}

/// A throwaway server. Dropping it stops the server and removes everything.
#[derive(Debug)]
pub struct Cluster {
    bin: PathBuf,
    /// Holds the data directory, the socket and the logs.
    root: PathBuf,
    port: u16,
    account: Option<Account>,
    environment: Vec<(String, String)>,
    server: Option<Supervised>,
}

impl Cluster {
    /// A server of the installation that `pg_config` belongs to. A name without a slash is looked up in PATH.
    pub fn builder(pg_config: impl AsRef<Path>) -> Builder {
        Builder {
            pg_config: pg_config.as_ref().to_owned(),
            settings: Vec::new(),
            library: None,
            loopback: false,
            certificate: None,
            environment: Vec::new(),
        }
    }

    /// A hot standby of this running server, with its settings: a base backup that follows it.
    pub fn standby(&self) -> Result<Cluster> {
        let root = create_root(self.account.as_ref())?;
        let mut standby = Cluster {
            bin: self.bin.clone(),
            root,
            port: self.port,
            account: self.account.clone(),
            environment: self.environment.clone(),
            server: None,
        };
        let mut command = Command::new(self.bin.join("pg_basebackup"));
        command.arg("-D").arg(standby.data_dir()).arg("-h").arg(self.socket_dir());
        command.args(["-p", &self.port.to_string(), "-U", SUPERUSER]);
        command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        standby.run("pg_basebackup", &command)?;
        standby.set("unix_socket_directories", &standby.root.display().to_string())?;
        standby.start()?;
        Ok(standby)
    }

    /// The directory of the socket: a client's `host`.
    pub fn socket_dir(&self) -> &Path {
        &self.root
    }

    /// A client's `port`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket itself.
    pub fn socket(&self) -> PathBuf {
        self.root.join(format!(".s.PGSQL.{}", self.port))
    }

    /// The data directory (PGDATA).
    pub fn data_dir(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The whole server log, of all starts so far.
    pub fn log(&self) -> String {
        read_lossy(&self.root.join("server.log"))
    }

    /// The postmaster's process id while it runs.
    pub fn postmaster_pid(&mut self) -> Option<i32> {
        if self.is_running() { self.server.as_ref().map(|s| s.pid.as_raw()) } else { None }
    }

    /// Whether the postmaster is there; not whether it accepts connections.
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|s| matches!(s.shell.try_wait(), Ok(None)))
    }

    /// Adds a line to postgresql.conf, for the next start or [`Cluster::reload`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let path = self.data_dir().join("postgresql.conf");
        let line = format!("{name} = '{}'\n", value.replace('\'', "''"));
        let append =
            fs::OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(line.as_bytes()));
        doing(append, || format!("write {}", path.display()))
    }

    /// Copies a library to where the server may read it; for `shared_preload_libraries` or CREATE FUNCTION.
    pub fn copy_library(&self, library: &Path) -> Result<PathBuf> {
        let stem = library.file_stem().unwrap_or_default();
        // Each in a directory of its own: builds to compare have the same name.
        let directory = (0..).map(|n| self.root.join(format!("library{n}"))).find(|path| !path.exists());
        let directory = directory.unwrap_or_else(|| self.root.join("library"));
        let copy = directory.join(stem).with_extension("so");
        let copied =
            fs::DirBuilder::new().mode(0o755).create(&directory).and_then(|()| fs::copy(library, &copy));
        doing(copied, || format!("copy {} to {}", library.display(), copy.display()))?;
        doing(fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)), || {
            format!("open {}", copy.display())
        })?;
        Ok(copy)
    }

    /// Puts a file into the data directory that only the server may read.
    fn add_file(&self, name: &str, text: &str) -> Result<()> {
        let path = self.data_dir().join(name);
        let owner = self.account.as_ref();
        let written = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
            .and_then(|()| chown(&path, owner.map(|a| a.uid), owner.map(|a| a.gid)));
        doing(written, || format!("write {}", path.display()))
    }

    /// The text of postgresql.conf.
    pub fn configuration(&self) -> String {
        read_lossy(&self.data_dir().join("postgresql.conf"))
    }

    /// Puts a text in place of postgresql.conf's, for the next start or [`Cluster::reload`].
    pub fn configure(&mut self, text: &str) -> Result<()> {
        let path = self.data_dir().join("postgresql.conf");
        doing(fs::write(&path, text), || format!("write {}", path.display()))
    }

    /// Makes the server read its configuration again. It does so soon, not at once.
    pub fn reload(&mut self) -> Result<()> {
        self.signal(Signal::SIGHUP)
    }

    /// Starts a stopped server and waits until it accepts connections; nothing to do when it runs.
    pub fn start(&mut self) -> Result<()> {
        if self.is_running() {
            return self.wait_ready();
        }
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let seen = self.log().len();
            let mut command = Command::new(self.bin.join("postgres"));
            command.arg("-D").arg(self.data_dir());
            self.server = Some(self.supervise(&command, "server.log")?);
            let Err(error) = self.wait_ready() else { return Ok(()) };
            // After a killed postmaster its children need a moment to see it and to let go of the shared memory.
            let orphans = self.log()[seen..].contains("pre-existing shared memory block");
            if !orphans || self.is_running() || Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(5 * POLL);
        }
    }

    /// Waits until the server accepts connections, as it does again some time after the crash of a backend.
    pub fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !accepts_connections(&self.socket()) {
            if !self.is_running() {
                return Err(Error(format!("the server did not start; its log ends:\n{}", self.log_tail())));
            }
            if Instant::now() > deadline {
                return Err(Error(format!(
                    "the server accepts no connections after {} s; its log ends:\n{}",
                    START_TIMEOUT.as_secs(),
                    self.log_tail()
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the server and waits for its end; nothing to do when it is stopped.
    pub fn stop(&mut self, how: Shutdown) -> Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.signal(how.signal())?;
        self.wait_stopped(STOP_TIMEOUT)
    }

    /// Stops the server and starts it again.
    pub fn restart(&mut self, how: Shutdown) -> Result<()> {
        self.stop(how)?;
        self.start()
    }

    /// Kills the postmaster with SIGKILL. Its children end by themselves; [`Cluster::start`] waits for that.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.wait_stopped(STOP_TIMEOUT)
    }

    /// Kills one process of the server, such as a backend, with SIGKILL: the postmaster ends all others and starts
    /// anew with fresh shared memory. [`Cluster::wait_ready`] waits for the end of that, if it has begun.
    pub fn kill_process(&self, pid: i32) -> Result<()> {
        kill(Pid::from_raw(pid), Signal::SIGKILL)
            .map_err(|e| Error(format!("cannot kill process {pid}: {e}")))
    }

    /// Kills a backend as [`Cluster::kill_process`] does and waits until the server has started anew.
    pub fn crash(&mut self, backend: i32) -> Result<()> {
        /// In the log when no process of the old shared memory is left.
        const STARTS_ANEW: &str = "all server processes terminated; reinitializing";
        let seen = self.log().len();
        self.kill_process(backend)?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.log()[seen..].contains(STARTS_ANEW) {
            if Instant::now() > deadline {
                return Err(Error(format!("the server did not notice the end of process {backend}")));
            }
            std::thread::sleep(POLL);
        }
        self.wait_ready()
    }

    fn initdb(&self) -> Result<()> {
        let mut command = Command::new(self.bin.join("initdb"));
        command.arg("-D").arg(self.data_dir()).args(["-A", "trust", "-U", SUPERUSER]);
        command.args(["--no-locale", "-E", "UTF8", "--no-sync", "--no-instructions"]);
        self.run("initdb", &command)
    }

    /// Runs a program to its end, as the server's account.
    fn run(&self, name: &str, command: &Command) -> Result<()> {
        let log = format!("{name}.log");
        let mut run = self.supervise(command, &log)?;
        let status = doing(run.wait(), || format!("wait for {name}"))?;
        if !status.success() {
            let log = read_lossy(&self.root.join(log));
            return Err(Error(format!("{name} failed ({status}):\n{}", tail(&log))));
        }
        Ok(())
    }

    fn supervise(&self, command: &Command, log: &str) -> Result<Supervised> {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(SUPERVISOR).arg("sh").arg(&self.root).arg(log);
        shell.arg(command.get_program()).args(command.get_args());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        shell.current_dir(&self.root).process_group(0);
        for variable in ["PGDATA", "PGPORT", "PGHOST", "PGOPTIONS", "PGUSER", "PGDATABASE"] {
            shell.env_remove(variable);
        }
        shell.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(account) = &self.account {
            shell.uid(account.uid).gid(account.gid).env("HOME", &self.root).env("USER", &account.name);
        }
        Supervised::spawn(shell)
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        match self.postmaster_pid() {
            Some(pid) => {
                kill(Pid::from_raw(pid), signal).map_err(|e| Error(format!("cannot signal the server: {e}")))
            }
            None => Err(Error("the server is not running".to_owned())),
        }
    }

    fn wait_stopped(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while self.is_running() {
            if Instant::now() > deadline {
                return Err(Error(format!(
                    "the server did not stop within {} s; its log ends:\n{}",
                    timeout.as_secs(),
                    self.log_tail()
                )));
            }
            std::thread::sleep(POLL);
        }
        self.server = None;
        Ok(())
    }

    fn log_tail(&self) -> String {
        tail(&self.log())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.stop(Shutdown::Immediate).is_err() {
            // Also without its postmaster no backend stays.
            let _ = self.kill();
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A process under the supervising shell, which ends when the process does.
#[derive(Debug)]
struct Supervised {
    shell: Child,
    pid: Pid,
}

impl Supervised {
    fn spawn(mut shell: Command) -> Result<Self> {
        let mut shell = doing(shell.spawn(), || "start /bin/sh for a server".to_owned())?;
        let mut line = String::new();
        let said = shell.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        match (said, line.trim().parse()) {
            (Some(Ok(_)), Ok(pid)) => Ok(Supervised { shell, pid: Pid::from_raw(pid) }),
            _ => Err(Error("the shell that was to start a server ended".to_owned())),
        }
    }

    /// Unlike [`Child::wait`] this leaves the pipe open, whose end would mean that the caller is gone.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.shell.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Whom the servers run as.
#[derive(Clone, Debug)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// `None`: as the caller.
    fn for_servers() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        match User::from_name("postgres") {
            Ok(Some(user)) => {
                Ok(Some(Account { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }))
            }
            _ => Err(Error(
                "PostgreSQL does not run as root, and there is no user \"postgres\": run this as another user".to_owned(),
            )),
        }
    }
}

fn free_port() -> Result<u16> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    doing(bound, || "find a free port".to_owned()).map(|address| address.port())
}

fn create_root(account: Option<&Account>) -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short, since a socket's path may have no more than about a hundred bytes.
        let root = std::env::temp_dir().join(format!("pgss_rs.{}.{n}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&root) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            created => doing(created, || format!("create {}", root.display()))?,
        }
        if let Some(account) = account {
            let given = chown(&root, Some(account.uid), Some(account.gid));
            doing(given, || format!("give {} to {}", root.display(), account.name))?;
        }
        return Ok(root);
    }
}

/// Opens a session and closes it again. A server that is starting or recovering answers with an error.
fn accepts_connections(socket: &Path) -> bool {
    /// Of an AuthenticationOk.
    const AUTHENTICATION: u8 = b'R';
    let attempt = || -> io::Result<u8> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        let parameters = format!("user\0{SUPERUSER}\0database\0{SUPERUSER}\0\0");
        let length = u32::try_from(8 + parameters.len()).map_err(io::Error::other)?;
        let mut startup = length.to_be_bytes().to_vec();
        startup.extend_from_slice(&(3u32 << 16).to_be_bytes());
        startup.extend_from_slice(parameters.as_bytes());
        stream.write_all(&startup)?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        // Goodbye. The server may have gone first.
        let _ = stream.write_all(&[b'X', 0, 0, 0, 4]);
        Ok(kind[0])
    };
    attempt().is_ok_and(|kind| kind == AUTHENTICATION)
}

fn read_lossy(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed() -> String {
        std::env::var("PG_CONFIG").unwrap_or_else(|_| "pg_config".to_owned())
    }

    #[test]
    fn a_server_starts_restarts_survives_a_kill_and_leaves_nothing() {
        let mut cluster = Cluster::builder(installed()).setting("work_mem", "5MB").start().unwrap();
        assert!(cluster.log().contains("ready to accept connections"));
        let pid = cluster.postmaster_pid();

        cluster.restart(Shutdown::Fast).unwrap();
        assert_ne!(cluster.postmaster_pid(), pid);
        assert!(cluster.log().contains("database system is shut down"));

        cluster.kill().unwrap();
        assert!(!cluster.is_running());
        cluster.start().unwrap();
        assert!(cluster.log().contains("automatic recovery in progress"));

        let root = cluster.socket_dir().to_owned();
        drop(cluster);
        assert!(!root.exists());
    }

    #[test]
    fn a_server_that_does_not_start_shows_its_log_and_leaves_nothing() {
        let error = Cluster::builder(installed()).setting("work_mem", "much").start().unwrap_err();
        assert!(error.to_string().contains("work_mem"), "{error}");
    }

    #[test]
    fn a_missing_pg_config_is_named() {
        let error = Cluster::builder("/nowhere/pg_config").start().unwrap_err();
        assert!(error.to_string().contains("/nowhere/pg_config --bindir"), "{error}");
    }
}
