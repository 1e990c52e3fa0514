//! A real Prometheus.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::Path,
};

use support::{ports::free_port, prelude::*, process::Supervised};

use crate::{program, rules};

/// The flags of a manager whose metrics Prometheus scrapes from a port.
pub(crate) fn scraped(port: u16) -> [String; 2] {
    [
        format!("--diagnostics-address=127.0.0.1:{port}"),
        "--insecure-diagnostics".to_owned(),
    ]
}

/// The shipped rules without their patience: an alert fires as soon as its expression has a result,
/// and the trend of 6 hours is that of 20 seconds. The rule tests in `alerts` check the durations.
fn impatient_rules() -> Value {
    let mut rules = rules();
    for group in rules["groups"].as_array_mut().into_iter().flatten() {
        for rule in group["rules"].as_array_mut().into_iter().flatten() {
            rule["for"] = json!("0s");
            let expression = rule["expr"].as_str().expect("a rule has an expression");
            rule["expr"] = json!(expression.replace("[6h:5m]", "[20s:1s]"));
        }
    }
    rules
}

/// A running Prometheus.
pub(crate) struct Prometheus {
    _process: Supervised,
    port: u16,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes these ports each second, with the shipped rules.
    pub(crate) fn start(folder: &Path, targets: &[u16]) -> Self {
        let port = free_port();
        let targets: Vec<String> = targets
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let configuration = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "ipam", "honor_labels": true,
                "static_configs": [{"targets": targets}],
            }],
        });
        fs::write(folder.join("rules.yaml"), impatient_rules().to_string())
            .expect("the folder is writable");
        let file = folder.join("prometheus.yaml");
        fs::write(&file, configuration.to_string()).expect("the folder is writable");
        let arguments = [
            format!("--config.file={}", file.display()),
            format!(
                "--storage.tsdb.path={}",
                folder.join("prometheus").display()
            ),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let process = Supervised::spawn(
            &program("prometheus"),
            &arguments,
            &[],
            &folder.join("prometheus.log"),
        );
        Self {
            _process: process,
            port,
        }
    }

    /// The result of a query; `None` while Prometheus starts.
    pub(crate) fn query(&self, query: &str) -> Option<Result<Vec<Value>, Value>> {
        let encoded = query
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect::<Vec<_>>()
            .concat();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        write!(
            stream,
            "GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: localhost\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        let is_success = answer["status"] == "success";
        Some(if is_success {
            Ok(answer["data"]["result"].as_array().cloned()?)
        } else {
            Err(answer)
        })
    }

    /// Waits until a query has a result.
    pub(crate) async fn wait_for(&self, query: &str) -> Vec<Value> {
        eventually(&format!("{query} has a result"), || async {
            match self.query(query)? {
                Ok(result) => (!result.is_empty()).then_some(result),
                Err(error) => panic!("{query}: {error}"),
            }
        })
        .await
    }
    /// Waits until an alert fires, and returns its labels.
    pub(crate) async fn wait_for_alert(&self, name: &str) -> Value {
        let query = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}");
        let mut firing = self.wait_for(&query).await;
        firing.swap_remove(0)["metric"].take()
    }

    /// Waits until an alert does not fire.
    pub(crate) async fn wait_until_silent(&self, name: &str) {
        let query = format!("absent(ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}})");
        self.wait_for(&query).await;
    }
}
