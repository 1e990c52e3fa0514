//! A headless Chromium, driven with the WebDriver protocol (W3C) through chromedriver.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::process::{Supervised, TemporaryFolder};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// Codes of keys without a character.
pub mod keys {
    pub const TAB: &str = "\u{e004}";
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const PAGE_UP: &str = "\u{e00e}";
    pub const PAGE_DOWN: &str = "\u{e00f}";
    pub const HOME: &str = "\u{e011}";
    pub const LEFT: &str = "\u{e012}";
    pub const UP: &str = "\u{e013}";
    pub const RIGHT: &str = "\u{e014}";
    pub const DOWN: &str = "\u{e015}";
}

/// How long a condition of the page may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A browser with one window and an empty profile.
pub struct Browser {
    client: Client<HttpConnector, Full<Bytes>>,
    session: String,
    driver: Supervised,
    _folder: TemporaryFolder,
}

impl Browser {
    /// Starts chromedriver and a browser.
    pub async fn start() -> Self {
        let (folder, port) = (TemporaryFolder::new("kubectl-ipam-browser-"), free_port());
        let log = folder.path().join("chromedriver.log");
        let driver = Supervised::spawn(&chromedriver(), &[format!("--port={port}")], &[], &log);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let session = format!("http://127.0.0.1:{port}");
        let mut browser = Self { client, session, driver, _folder: folder };
        let start = Instant::now();
        while browser.request("GET", "/status", &Value::Null).await.is_err() {
            assert!(start.elapsed() < TIMEOUT, "chromedriver does not start:\n{}", browser.driver.output_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let profile = format!("--user-data-dir={}", browser._folder.path().join("profile").display());
        let flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,900", &profile,
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": flags },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let created = browser.request("POST", "/session", &capabilities).await;
        let created = created.unwrap_or_else(|error| panic!("{error}\n{}", browser.driver.output_tail()));
        let id = created["sessionId"].as_str().expect("a session has an id");
        browser.session = format!("{}/session/{id}", browser.session);
        browser
    }

    async fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(format!("{}{path}", self.session));
        let request = request.header("content-type", "application/json").body(Full::from(text));
        let request = request.map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let is_success = response.status().is_success();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let mut answer: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        if is_success { Ok(answer["value"].take()) } else { Err(answer["value"]["message"].to_string()) }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.request("POST", path, &body).await.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// Opens an address.
    pub async fn open(&self, address: &str) {
        self.post("/url", json!({ "url": address })).await;
    }

    /// Runs the body of a function in the page, and returns its result.
    pub async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Evaluates an expression until it is true; returns how long it took.
    pub async fn wait_for(&self, expression: &str) -> Duration {
        let start = Instant::now();
        loop {
            let script = format!("try {{ return Boolean({expression}) }} catch (error) {{ return false }}");
            if self.run(&script).await == json!(true) {
                return start.elapsed();
            }
            if start.elapsed() > TIMEOUT {
                let text = self.run("return document.body.innerText").await;
                panic!("not true: {expression}; the page is:\n{}\n{}", text.as_str().unwrap_or_default(), self.log().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Presses keys, one after the other.
    pub async fn press(&self, keys: &[&str]) {
        let press = |key: &&str| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let actions: Vec<Value> = keys.iter().flat_map(press).collect();
        let source = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("/actions", json!({ "actions": [source] })).await;
    }

    /// Types a text.
    pub async fn write(&self, text: &str) {
        let keys: Vec<String> = text.chars().map(String::from).collect();
        self.press(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }

    /// Sends a command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": parameters })).await
    }

    /// Sets the size of the page, also below the smallest size of a window.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the color scheme of the system: `light` or `dark`.
    pub async fn set_color_scheme(&self, name: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": name }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Writes a picture of the whole page as PNG.
    pub async fn screenshot(&self, path: &Path) {
        let wanted = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.devtools("Page.captureScreenshot", wanted).await;
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the folder can be created");
        let text = answer["data"].as_str().expect("a picture");
        std::fs::write(path, decode(text)).expect("the picture can be written");
    }

    /// The messages of the console since the last call, with violations of the Content-Security-Policy.
    pub async fn log(&self) -> String {
        let entries = self.post("/se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| format!("{}: {}\n", entry["level"], entry["message"])).collect()
    }

    /// The requests that failed or were made to other servers, by address.
    pub async fn resources(&self) -> Vec<String> {
        let names = self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)").await;
        names.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    }
}

/// The driver of Debian's Chromium, which `ensure.sh` installs if it is missing.
fn chromedriver() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane/ensure.sh");
    let output = Command::new(script).arg("chromium").output().expect("the script can be started");
    assert!(output.status.success(), "no Chromium: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("chromedriver")
}

/// Decodes base64.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(value).collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
