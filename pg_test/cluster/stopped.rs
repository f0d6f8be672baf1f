//! A backend that is stopped (SIGSTOP) while it holds an entry's lock: others skip what they would have added to that
//! entry, and count it; nobody waits for it, readers neither; and it all goes on when the backend does, or the server starts
//! anew.
//!
//! There is no hook for this in the library. The backend does little else than add to one entry, so it is stopped again
//! and again until it happens to hold the lock.

use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postgres::{Client, NoTls};

use crate::cluster::{Cluster, SUPERUSER, Shutdown};
use crate::servers::{connect, distinct, number, observe, rows, start_with_pgss_rs};

const OBJECTS: &str = "
    CREATE FUNCTION busy() RETURNS void LANGUAGE plpgsql AS 'BEGIN LOOP PERFORM 7; END LOOP; END';
    CREATE FUNCTION once() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 7; END'";
/// What both execute, nested.
const HOT: &str = "query = 'SELECT $1' AND NOT toplevel";

/// The backend that adds to the entry.
struct Holder {
    pid: i32,
    session: JoinHandle<()>,
}

impl Holder {
    fn start(cluster: &Cluster) -> Self {
        let mut session = session(cluster);
        let pid = number(&mut session, "SELECT pg_backend_pid()") as i32;
        let session = std::thread::spawn(move || assert!(session.batch_execute("SELECT busy()").is_err()));
        Holder { pid, session }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).unwrap();
    }

    /// Stops it, and tells whether it is.
    fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        };
        while !is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Stops it with the entry's lock held: somebody else has skipped a call because of that.
    fn stop_with_the_lock(&self, other: &mut Client, observer: &mut Client) {
        let before = skipped(observer);
        loop {
            std::thread::sleep(Duration::from_micros(rand::random::<u64>() % 1000));
            self.stop();
            other.batch_execute("SELECT once()").unwrap();
            if skipped(observer) > before {
                return;
            }
            self.signal(Signal::SIGCONT);
        }
    }
}

fn session(cluster: &Cluster) -> Client {
    let mut config = crate::servers::config(cluster, SUPERUSER);
    config.options("-c pgss_rs.track=all").connect(NoTls).unwrap()
}

fn skipped(observer: &mut Client) -> f64 {
    number(observer, "SELECT skipped FROM pgss_rs_info")
}

fn told(observer: &mut Client, what: &str, of: &str) -> f64 {
    number(observer, &format!("SELECT coalesce(sum({what}), 0) FROM pgss_rs_stats WHERE {of}"))
}

/// What works while a lock is held by a backend that is stopped.
fn assert_others_go_on(cluster: &Cluster, observer: &mut Client) {
    let before = skipped(observer);
    let others: Vec<_> = (0..4)
        .map(|_| {
            let mut other = session(cluster);
            std::thread::spawn(move || (0..5).for_each(|_| other.batch_execute("SELECT once()").unwrap()))
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(skipped(observer), before + 20.0);
    assert_eq!(rows(observer, &format!("SELECT calls FROM pgss_rs_stats WHERE {HOT}")).len(), 0);
    // all else is counted, what is new and what has to make room for it
    let mut other = session(cluster);
    let calls = told(observer, "calls", "query = 'SELECT once()'");
    for n in 0..300 {
        other.batch_execute(&(distinct(n) + ", 1")).unwrap();
        assert!(other.batch_execute("SELECT 1 / 0").is_err());
    }
    other.batch_execute("SELECT 'last', 'of', 'them'").unwrap();
    assert_eq!(told(observer, "calls", "query = 'SELECT $1, $2, $3'"), 1.0);
    assert!(calls >= 20.0);
    // every reader, and resets
    for sql in [
        "SELECT count(*) FROM pgss_rs_stats",
        "SELECT count(*) FROM pgss_rs_errors()",
        "SELECT count(*) FROM pgss_rs_histogram((SELECT queryid FROM pgss_rs_stats LIMIT 1))",
        "SELECT count(*) FROM pgss_rs_stats_and_reset(true)",
        "SELECT pgss_rs_reset(0, 0, 0, true)",
        "SELECT pgss_rs_reset()",
    ] {
        rows(observer, sql);
    }
    // the entry stays, as nobody could remove it
    assert_eq!(number(observer, "SELECT entries FROM pgss_rs_info"), 1.0);
}

#[test]
fn what_a_stopped_backend_holds_is_skipped_until_it_goes_on_or_the_server_starts_anew() {
    let mut cluster = start_with_pgss_rs(&[
        ("pgss_rs.max", "100"),
        ("pgss_rs.save_interval", "1s"),
        ("restart_after_crash", "on"),
    ]);
    connect(&cluster, SUPERUSER).batch_execute(OBJECTS).unwrap();
    let mut observer = observe(&cluster);
    let mut other = session(&cluster);
    let holder = Holder::start(&cluster);
    holder.stop_with_the_lock(&mut other, &mut observer);
    assert_others_go_on(&cluster, &mut observer);

    // it goes on, and everybody with it
    holder.signal(Signal::SIGCONT);
    let at_first = loop {
        let calls = told(&mut observer, "calls", HOT);
        if calls > 0.0 {
            break calls;
        }
    };
    while told(&mut observer, "calls", HOT) == at_first {}
    holder.signal(Signal::SIGINT);
    holder.session.join().unwrap();
    let (calls, missed) = (told(&mut observer, "calls", HOT), skipped(&mut observer));
    (0..10).for_each(|_| other.batch_execute("SELECT once()").unwrap());
    assert_eq!((told(&mut observer, "calls", HOT), skipped(&mut observer)), (calls + 10.0, missed));

    // or it is killed, and the server starts anew
    let holder = Holder::start(&cluster);
    holder.stop_with_the_lock(&mut other, &mut observer);
    cluster.crash(holder.pid).unwrap();
    holder.session.join().unwrap();
    assert_counts(&cluster);

    // or an immediate stop ends it
    let (mut observer, mut other) = (observe(&cluster), session(&cluster));
    let holder = Holder::start(&cluster);
    holder.stop_with_the_lock(&mut other, &mut observer);
    cluster.restart(Shutdown::Immediate).unwrap();
    holder.session.join().unwrap();
    assert_counts(&cluster);
}

fn assert_counts(cluster: &Cluster) {
    let (mut observer, mut other) = (observe(cluster), session(cluster));
    let calls = told(&mut observer, "calls", HOT);
    (0..10).for_each(|_| other.batch_execute("SELECT once()").unwrap());
    assert_eq!((told(&mut observer, "calls", HOT), skipped(&mut observer)), (calls + 10.0, 0.0));
}
