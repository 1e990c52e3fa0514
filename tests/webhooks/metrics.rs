//! Authentication and authorization of metrics: the API server reviews tokens and access, and the
//! manager needs only the permissions of `config/rbac`.

use capi_ipam_api::InClusterKind::IPPool;
use support::{ports::free_port, prelude::*};

use crate::api_client::post_review;

fn token(plane: &ControlPlane, account: &str) -> String {
    let token = plane.kubectl(&["-n", NAMESPACE, "create", "token", account]);
    format!("authorization: Bearer {}\r\n", token.trim())
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_an_authorized_token() {
    let plane = ControlPlane::new();
    for account in ["curious", "prometheus"] {
        plane.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", account]);
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "metrics-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    plane.kubectl_apply(&role.to_string());
    let subject = format!("--serviceaccount={NAMESPACE}:prometheus");
    plane.kubectl(&[
        "create",
        "clusterrolebinding",
        "metrics-reader",
        "--clusterrole=metrics-reader",
        &subject,
    ]);

    let (webhooks, port) = (Webhooks::new(&plane), free_port());
    let own = webhooks.flags();
    let diagnostics = format!("--diagnostics-address=127.0.0.1:{port}");
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain([diagnostics.as_str(), "--leader-elect"])
        .collect();
    let manager = Manager::launch(&plane, plane.provider_kubeconfig(), &flags);
    manager.wait_for_log("acquired leadership lease");
    manager.wait_until_ready();
    webhooks.register(&plane);
    // A claim, so that metrics are not zero.
    let consumer = Consumer::new(&plane).await;
    let pool = consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.bind("a", "web").await;
    let pool = serde_json::to_value(pool).expect("a pool is JSON");
    assert!(
        post_review(&webhooks, IPPool, "CREATE", &Value::Null, &pool)
            .await
            .is_ok()
    );

    let response = webhooks.get(port, "/metrics", "").await;
    assert!(
        response.starts_with("HTTP/1.1 401 ") && response.contains("a bearer token is needed"),
        "{response}"
    );
    for bad in [
        "authorization: Bearer nonsense\r\n",
        "authorization: Basic YTpi\r\n",
        "authorization: Bearer\r\n",
    ] {
        let response = webhooks.get(port, "/metrics", bad).await;
        assert!(response.starts_with("HTTP/1.1 401 "), "{bad}: {response}");
    }
    let response = webhooks
        .get(port, "/metrics", &token(&plane, "curious"))
        .await;
    let user = format!("system:serviceaccount:{NAMESPACE}:curious may not get /metrics");
    assert!(
        response.starts_with("HTTP/1.1 403 ") && response.contains(&user),
        "{response}"
    );
    let prometheus = token(&plane, "prometheus");
    let response = webhooks.get(port, "/metrics", &prometheus).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    let path = "/validate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool";
    let reviews = |labels: &str| {
        let name = format!("webhook_reviews_total{{{labels}}} ");
        let counts: Vec<&str> = response
            .lines()
            .filter_map(|line| line.strip_prefix(&name))
            .collect();
        counts
            .iter()
            .filter_map(|count| count.parse::<u32>().ok())
            .sum::<u32>()
    };
    assert!(
        reviews(&format!("path=\"{path}\",outcome=\"allowed\"")) > 0,
        "{response}"
    );
    assert!(
        reviews("path=\"/convert\",outcome=\"converted\"") > 0,
        "{response}"
    );
    let panics: Vec<&str> = response
        .lines()
        .filter(|line| line.contains("outcome=\"panic\""))
        .collect();
    assert!(
        panics
            .iter()
            .all(|line| line.ends_with(" 0") || line.ends_with(" 0.0")),
        "{panics:?}"
    );
    // Only this path is allowed.
    let response = webhooks.get(port, "/", &prometheus).await;
    assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
    // The webhook port serves no metrics.
    let response = webhooks.get(webhooks.port(), "/metrics", &prometheus).await;
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
}
