//! A headless Chromium for the tests of the page.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use capi_ipam_testing::patience::Patience;
use capi_ipam_testing::ports::free_port;
use capi_ipam_testing::process::{Supervised, TemporaryFolder};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// How long the start of the browser or a condition of the page may take, on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// A browser with one window and an empty profile.
pub(crate) struct Browser {
    // Dropped in this order: the session before its server.
    pub(crate) driver: Client,
    _process: Supervised,
    _folder: TemporaryFolder,
}

impl Browser {
    /// Starts chromedriver and a browser.
    pub(crate) async fn start() -> Self {
        let (folder, port) = (TemporaryFolder::new("kubectl-ipam-browser-"), free_port());
        let log = folder.path().join("chromedriver.log");
        let process = Supervised::spawn(&chromedriver(), &[format!("--port={port}")], &[], &log);
        let profile = format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        );
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            // A page of another site, in the tests of the page's own checks.
            "--host-resolver-rules=MAP evil.example 127.0.0.1",
            "--window-size=1280,900",
            &profile,
        ];
        let capabilities = json!({
            "goog:chromeOptions": { "args": flags }, "goog:loggingPrefs": { "browser": "ALL" },
        });
        let capabilities = capabilities.as_object().expect("an object").clone();
        let (server, patience) = (format!("http://127.0.0.1:{port}"), Patience::new(TIMEOUT));
        let driver = loop {
            match ClientBuilder::new(HttpConnector::new())
                .capabilities(capabilities.clone())
                .connect(&server)
                .await
            {
                Ok(driver) => break driver,
                Err(error) if patience.is_over() => {
                    panic!("no browser: {error}\n{}", process.output_tail())
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        Self {
            driver,
            _process: process,
            _folder: folder,
        }
    }

    /// Closes the browser.
    pub(crate) async fn close(self) {
        self.driver
            .close()
            .await
            .expect("the browser can be closed");
    }

    /// Opens an address.
    pub(crate) async fn open(&self, address: &str) {
        self.driver
            .goto(address)
            .await
            .unwrap_or_else(|error| panic!("{address}: {error}"));
    }

    /// Runs the body of a function in the page, and returns its result.
    pub(crate) async fn run(&self, script: &str) -> Value {
        let result = self.driver.execute(script, Vec::new()).await;
        result.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true.
    pub(crate) async fn wait_for(&self, expression: &str) {
        let script =
            format!("try {{ return Boolean({expression}) }} catch (error) {{ return false }}");
        let patience = Patience::new(TIMEOUT);
        while self.run(&script).await != json!(true) {
            if patience.is_over() {
                let text = self.run("return document.body.innerText").await;
                let text = text.as_str().unwrap_or_default();
                panic!(
                    "not true: {expression}; the page is:\n{text}\n{}",
                    self.log().await
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Presses keys, one after the other.
    pub(crate) async fn press(&self, keys: &str) {
        let press = |value| [KeyAction::Down { value }, KeyAction::Up { value }];
        let actions = keys.chars().flat_map(press);
        let actions = actions.fold(KeyActions::new("keyboard".to_owned()), InputSource::then);
        self.driver
            .perform_actions(actions)
            .await
            .expect("the keys can be pressed");
    }

    /// Sets the size of the page, also below the smallest size of a window.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
    }

    /// Sets the color scheme of the system: `light` or `dark`.
    pub(crate) async fn set_color_scheme(&self, name: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": name }] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) {
        self.send(
            "goog/cdp/execute",
            json!({ "cmd": command, "params": parameters }),
        )
        .await;
    }

    /// Sends a command that WebDriver does not define.
    async fn send(&self, path: &'static str, body: Value) -> Value {
        let answer = self
            .driver
            .issue_cmd(OwnCommand {
                path,
                body: body.clone(),
            })
            .await;
        answer.unwrap_or_else(|error| panic!("{path} {body}: {error}"))
    }

    /// The messages of the console since the last call, with violations of the
    /// Content-Security-Policy.
    pub(crate) async fn log(&self) -> String {
        let entries = self.send("se/log", json!({ "type": "browser" })).await;
        let entries = entries.as_array().expect("a list").iter();
        let lines: Vec<_> = entries
            .map(|entry| format!("{}: {}", entry["level"], entry["message"]))
            .collect();
        lines.join("\n")
    }
}

/// A command of chromedriver.
#[derive(Debug)]
struct OwnCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for OwnCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// The driver of Debian's Chromium, which `ensure.sh` installs if it is missing.
fn chromedriver() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/control-plane/ensure.sh");
    let output = Command::new(script)
        .arg("chromium")
        .output()
        .expect("the script can be started");
    assert!(
        output.status.success(),
        "no Chromium: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("chromedriver")
}
