//! Metrics, for those who may see them: the API server says who that is, and the manager may ask it with the permissions
//! of `config/rbac` and no more.

use std::path::Path;

use capi_ipam::api::InClusterKind::IPPool;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::ask::ask;
use crate::support::consumer::Consumer;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;
use crate::support::webhooks::{Webhooks, free_port};

const NAMESPACE: &str = "capi-ipam-in-cluster-system";

/// The whole answer to a request for metrics.
async fn get(webhooks: &Webhooks, port: u16, path: &str, authorization: &str) -> String {
    let mut stream = webhooks.stream_to(port, "http/1.1").await.expect("a connection can be made");
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{authorization}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("there is an answer");
    answer
}

fn token(plane: &ControlPlane, account: &str) -> String {
    let token = plane.kubectl(&["-n", NAMESPACE, "create", "token", account]);
    format!("authorization: Bearer {}\r\n", token.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_whom_the_api_server_lets_see_them() {
    let plane = ControlPlane::start(Options { enforce_owner_references: true, ..Options::default() });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/rbac");
    for file in ["service_account.yaml", "role.yaml", "role_binding.yaml"] {
        plane.kubectl(&["apply", "-f", &folder.join(file).display().to_string()]);
    }
    for account in ["curious", "prometheus"] {
        plane.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", account]);
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    plane.kubectl_apply(&role.to_string());
    let subject = format!("--serviceaccount={NAMESPACE}:prometheus");
    plane.kubectl(&["create", "clusterrolebinding", "metrics-reader", "--clusterrole=metrics-reader", &subject]);

    let account = "capi-ipam-in-cluster-controller-manager";
    let own_token = plane.kubectl(&["-n", NAMESPACE, "create", "token", account]);
    let kubeconfig = plane.kubeconfig_for(account, own_token.trim());
    let (webhooks, port) = (Webhooks::new(&plane), free_port());
    let own = webhooks.flags();
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{port}");
    let election = format!("--leader-election-namespace={NAMESPACE}");
    let flags: Vec<&str> =
        own.iter().map(String::as_str).chain([diagnostics.as_str(), "--leader-elect", election.as_str()]).collect();
    let manager = Manager::launch(&plane, &kubeconfig, &flags);
    manager.wait_for_log("acquired leadership lease");
    manager.wait_until_ready();
    webhooks.wire(&plane);
    // Something to count.
    let consumer = Consumer::new(&plane).await;
    let pool = consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    let pool = serde_json::to_value(pool).expect("a pool is JSON");
    assert!(ask(&webhooks, IPPool, "CREATE", &Value::Null, &pool).await.is_ok());

    let answer = get(&webhooks, port, "/metrics", "").await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("a bearer token is needed"), "{answer}");
    for bad in ["authorization: Bearer nonsense\r\n", "authorization: Basic YTpi\r\n", "authorization: Bearer\r\n"] {
        let answer = get(&webhooks, port, "/metrics", bad).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{bad}: {answer}");
    }
    let answer = get(&webhooks, port, "/metrics", &token(&plane, "curious")).await;
    let user = format!("system:serviceaccount:{NAMESPACE}:curious may not get /metrics");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(&user), "{answer}");
    let prometheus = token(&plane, "prometheus");
    let answer = get(&webhooks, port, "/metrics", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let path = "/validate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool";
    assert!(answer.contains(&format!("webhook_reviews_total{{path=\"{path}\",outcome=\"allowed\"}}")), "{answer}");
    assert!(answer.contains("webhook_reviews_total{path=\"/convert\",outcome=\"converted\"}"), "{answer}");
    assert!(!answer.contains("outcome=\"panic\""), "{answer}");
    // It is that one path that is allowed.
    let answer = get(&webhooks, port, "/", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // The port of the webhooks shows no metrics.
    let answer = get(&webhooks, webhooks.port(), "/metrics", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(!manager.log().contains("orbidden"), "{}", manager.log());
}
