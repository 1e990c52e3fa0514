//! Metrics, for those who may see them: the API server says who that is, and the manager may ask it with the permissions
//! of `config/rbac` and no more.

use capi_ipam::api::InClusterKind::IPPool;
use capi_ipam::ask::ask;
use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::ports::free_port;
use capi_ipam::support::webhooks::Webhooks;
use serde_json::{json, Value};

fn token(plane: &ControlPlane, account: &str) -> String {
    let token = plane.kubectl(&["-n", NAMESPACE, "create", "token", account]);
    format!("authorization: Bearer {}\r\n", token.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_those_whom_the_api_server_lets_see_them() {
    let plane = ControlPlane::start(Options::default());
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

    let (webhooks, port) = (Webhooks::new(&plane), free_port());
    let own = webhooks.flags();
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{port}");
    let flags: Vec<&str> = own.iter().map(String::as_str).chain([diagnostics.as_str(), "--leader-elect"]).collect();
    let manager = Manager::launch(&plane, plane.provider_kubeconfig(), &flags);
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

    let answer = webhooks.get(port, "/metrics", "").await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("a bearer token is needed"), "{answer}");
    for bad in ["authorization: Bearer nonsense\r\n", "authorization: Basic YTpi\r\n", "authorization: Bearer\r\n"] {
        let answer = webhooks.get(port, "/metrics", bad).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{bad}: {answer}");
    }
    let answer = webhooks.get(port, "/metrics", &token(&plane, "curious")).await;
    let user = format!("system:serviceaccount:{NAMESPACE}:curious may not get /metrics");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(&user), "{answer}");
    let prometheus = token(&plane, "prometheus");
    let answer = webhooks.get(port, "/metrics", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let path = "/validate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool";
    assert!(answer.contains(&format!("webhook_reviews_total{{path=\"{path}\",outcome=\"allowed\"}}")), "{answer}");
    assert!(answer.contains("webhook_reviews_total{path=\"/convert\",outcome=\"converted\"}"), "{answer}");
    assert!(!answer.contains("outcome=\"panic\""), "{answer}");
    // It is that one path that is allowed.
    let answer = webhooks.get(port, "/", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // The port of the webhooks shows no metrics.
    let answer = webhooks.get(webhooks.port(), "/metrics", &prometheus).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
