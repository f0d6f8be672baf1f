//! Why the driver ends early, and with which exit status.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster;

pub type Result<T> = std::result::Result<T, Error>;

/// Set by Ctrl-C and SIGTERM. Whatever waits looks at it.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The user wants to stop: whatever runs ends soon with [`Error::Interrupted`].
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// `Err` once the user wants to stop.
pub fn check_interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// A line on stderr; that nobody reads it is no reason to fail.
pub fn tell(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[derive(Debug)]
pub enum Error {
    /// Ctrl-C or a request to terminate.
    Interrupted,
    /// Whoever read the report has had enough, as `head` has. No reason for a message.
    Unread,
    /// What was asked for cannot be done here; the text says what can.
    Request(String),
    /// A statement failed on the server in a way that may come right when its transaction is tried again: a deadlock or
    /// a conflict with another transaction. The session can be used on.
    Conflict(String),
    /// Anything that went wrong on the way.
    Failed(String),
}

impl Error {
    /// 130 and 141 are what a shell reports for a program ended by Ctrl-C, and by writing to nobody.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Error::Interrupted => 130,
            Error::Unread => 141,
            Error::Request(_) => 2,
            Error::Conflict(_) | Error::Failed(_) => 1,
        })
    }
}

impl Error {
    /// With other words for what happened on the server or the way there.
    pub fn reworded(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Error::Conflict(text) => Error::Conflict(words(text)),
            Error::Failed(text) => Error::Failed(words(text)),
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Interrupted => f.write_str("interrupted; what was started or created is gone"),
            Error::Unread => f.write_str("nobody reads the report any more"),
            Error::Request(text) | Error::Conflict(text) | Error::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<cluster::Error> for Error {
    fn from(error: cluster::Error) -> Self {
        Error::Failed(error.to_string())
    }
}
