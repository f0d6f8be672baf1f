//! The progress bar, on stderr; where that is no terminal, one line that says how long to wait.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error;

/// Goes away when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// `total`: what is to be measured.
    pub fn new(total: Duration) -> Self {
        if !std::io::stderr().is_terminal() {
            error::tell(format_args!(
                "Measuring for {} s, after the preparation of the servers ...",
                total.as_secs()
            ));
        }
        let bar = ProgressBar::new(total.as_millis() as u64);
        if let Ok(style) = ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {percent:>3} %  {msg}")
        {
            bar.set_style(style);
        }
        Progress { bar }
    }

    /// What is being done now.
    pub fn say(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// How much has been measured.
    pub fn at(&self, measured: Duration) {
        self.bar.set_position(measured.as_millis() as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
