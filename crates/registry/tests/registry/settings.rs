//! Settings that cannot be used.

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{KubernetesRegistry, RegistryError};

use crate::support::assert_one_line;

#[tokio::test]
async fn kubeconfig_that_cannot_be_used_is_named() {
    let with_program = "
apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: 'https://hub'}}]
users: [{name: hub, user: {exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}}}]
contexts: [{name: hub, context: {cluster: hub, user: hub}}]
current-context: hub
";
    for (kubeconfig, expected) in [
        ("", "kubeconfig"),
        ("a: [", "kubeconfig"),
        (with_program, "exec"),
    ] {
        let error = KubernetesRegistry::open(kubeconfig, "test/1").await;
        let error = error.expect_err("it cannot be used");
        let text = error_chain(&error);
        assert!(matches!(error, RegistryError::Invalid { .. }), "{text}");
        assert!(text.contains(expected), "{text}");
        assert_one_line(&text);
    }
}
