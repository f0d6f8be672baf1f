//! A headless browser of the Chromium family, told what to do over its debugging pipe (Chrome DevTools Protocol).
//!
//! `BROWSER` names the program; else it is the first that is found of those that distributions have (.ci/setup installs
//! one).

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

const PROGRAMS: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];

/// Neither a window nor a network. The sandbox is left out since it does not run for root; the pages are our own.
const OPTIONS: [&str; 9] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// The pipe's ends have to be its file descriptors 3 and 4.
const PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// A running browser with one page. Dropping it, also in a panic, ends it and removes its profile.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    profile: PathBuf,
    session: String,
    last_id: u64,
    /// Not yet looked at.
    events: VecDeque<Value>,
}

/// A colour scheme that the reader may prefer.
pub const SCHEMES: [&str; 2] = ["light", "dark"];

impl Browser {
    pub fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let profile = std::env::temp_dir().join(format!("pgss_rs_browser_{}_{number}", std::process::id()));
        std::fs::create_dir(&profile).unwrap();
        let mut process = Command::new("/bin/sh")
            .args(["-c", PIPES, "sh"])
            .arg(program())
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let (session, events) = (String::new(), VecDeque::new());
        let mut browser = Browser { process, to, from, profile, session, last_id: 0, events };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = text(&browser.call("Target.attachToTarget", attach)["sessionId"]);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// As a reader with this colour scheme and a window of this width sees it.
    pub fn open(&mut self, file: &Path, scheme: &str, width: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.events.clear();
        let path = file.canonicalize().unwrap();
        self.call("Page.navigate", json!({"url": format!("file://{}", path.display())}));
        let loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(loaded) {
            let message = self.receive();
            self.events.push_back(message);
        }
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let arguments = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", arguments);
        assert!(result["exceptionDetails"].is_null(), "{result:#}");
        result["result"]["value"].clone()
    }

    /// What the page complained of, and what it wanted from elsewhere, since it was opened.
    pub fn complaints(&mut self) -> Vec<String> {
        // Whatever is still on its way is there before this is answered.
        self.evaluate("1");
        let mut complaints = Vec::new();
        for event in self.events.drain(..) {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                    complaints.push(params.to_string());
                }
                "Network.requestWillBeSent" if params["type"] != "Document" => {
                    complaints.push(format!("asked for {}", params["request"]["url"]));
                }
                _ => {}
            }
        }
        complaints
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].take();
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&bytes).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("BROWSER") {
        return named.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = PROGRAMS
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |directory| directory.join(name)))
        .find(|program| program.is_file());
    found.unwrap_or_else(|| {
        panic!("none of {PROGRAMS:?} is installed (.ci/setup does it), and BROWSER names none")
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text but {value}")).to_owned()
}
