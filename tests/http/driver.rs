//! A headless Chromium by WebDriver (<https://www.w3.org/TR/webdriver2/>), as much of it as the tests need.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;

use crate::support::PATIENCE;

/// A browser with one window. It ends when it is dropped.
pub struct Browser {
    driver: Child,
    agent: Agent,
    session: String,
    _profile: TempDir,
}

/// No traffic of its own, no graphics, a profile that nobody else has.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
];

impl Browser {
    /// Starts one; `None` if none is installed, which `scripts/setup browser` mends.
    pub fn start(width: u32, height: u32) -> Option<Browser> {
        let program = program("chromedriver")?;
        let mut driver = Command::new(program)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = said.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("started successfully on port ")?;
            Some(rest.trim_end_matches('.').to_owned())
        });
        let port = port.expect("chromedriver says its port");
        let config =
            Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
        let profile = tempfile::Builder::new().prefix("ym-browser-").tempdir().unwrap();
        let mut flags: Vec<String> = FLAGS.iter().map(ToString::to_string).collect();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        flags.push(format!("--window-size={width},{height}"));
        let mut browser = Browser {
            driver,
            agent: config.into(),
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": flags } } } });
        let session = browser.post("", &wanted);
        browser.session = format!("{}/{}", browser.session, session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        let request = self.agent.post(format!("{}{command}", self.session)).content_type("application/json");
        let mut response = request.send(body.to_string()).unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(response.status().is_success(), "{command} {body}: {answer}");
        answer["value"].clone()
    }

    /// Goes to an address and waits until it is loaded.
    pub fn go(&self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Runs the body of a function and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text that a person sees in the first element that fits.
    pub fn text(&self, selector: &str) -> String {
        let text =
            self.run(&format!("return document.querySelector({})?.innerText ?? null", json!(selector)));
        text.as_str().unwrap_or_else(|| panic!("there is no {selector}")).to_owned()
    }

    /// Presses keys.
    pub fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
            })
            .collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Lights go off, or on.
    pub fn dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.chrome("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Makes the window so wide, also narrower than a desktop's window can be.
    pub fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.chrome("Emulation.setDeviceMetricsOverride", &size);
    }

    /// A picture of the window, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        let taken = self.chrome("Page.captureScreenshot", &json!({ "format": "png" }));
        base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    fn chrome(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends the browser with the session; both fail only if they have ended.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
}
