//! The registry at another API server.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use capi_ipam_registry::{KubernetesRegistry, Registry, RegistryError};
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options, embedded_kubeconfig};
use capi_ipam_testing::proxy::{ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb};
use hyper::Request;
use hyper::body::Incoming;
use kube::Client;
use serde_json::{Value, json};

use crate::support::{self, block_key};

/// What an administrator applies to the API server.
static MANIFEST: LazyLock<String> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/registry.yaml");
    fs::read_to_string(path).expect("it is committed")
});

/// An API server with the kind and the policy.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
}

/// Opens the registry with the kubeconfig in a file.
pub(crate) async fn open_with(path: &Path) -> Result<Registry, RegistryError> {
    let kubeconfig = embedded_kubeconfig(path);
    let opened = KubernetesRegistry::open(&kubeconfig, "test/1").await?;
    Ok(Arc::new(opened))
}

impl support::World for World {
    async fn start() -> Self {
        Self {
            plane: ControlPlane::start(Options::default(), &Installation::of(MANIFEST.as_str())),
        }
    }

    async fn open(&self) -> Result<Registry, RegistryError> {
        open_with(self.plane.kubeconfig()).await
    }

    async fn open_denied() -> RegistryError {
        let world = Self::start().await;
        let kubeconfig = embedded_kubeconfig(world.plane.kubeconfig());
        let mut content: Value = serde_json::from_str(&kubeconfig).expect("it is JSON");
        content["users"][0]["user"]["token"] = json!("another");
        let opened = KubernetesRegistry::open(&content.to_string(), "test/1").await;
        opened.expect_err("the token is another one")
    }

    fn kill(&mut self) {
        self.plane.stop_api_server();
    }

    fn start_again(&mut self) {
        self.plane.start_api_server();
    }

    /// The API server refuses most of what is no record.
    fn bad_records() -> Vec<(String, String)> {
        let time =
            r#"{"network": "lab", "block": "10.0.25.0/26", "cluster": "a", "since": "yesterday"}"#;
        let other = r#"{"network": "lab", "block": "fd00::/64", "cluster": "a"}"#;
        vec![
            (block_key(100), time.to_owned()),
            (
                "block.lab.fd00-0000-0000-0000-0000-0000-0000-0001-64".to_owned(),
                other.to_owned(),
            ),
        ]
    }

    async fn write_bad(&self, key: &str, text: &str) {
        let record: Value = serde_json::from_str(text).expect("it is JSON");
        // As if a later version of the kind had another schema.
        let loose = r#"[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec", "value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}, {"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations"}]"#;
        let definition = "crd/ipblocks.ipam.cluster.x-k8s.io";
        // A second time, the rules are gone already.
        let _ = self
            .plane
            .try_kubectl(&["patch", definition, "--type=json", "--patch", loose]);
        let object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPBlock",
            "metadata": {"name": key}, "spec": {"block": record},
        });
        capi_ipam_testing::wait::eventually_ok("the schema is loose", || async {
            let file = self.plane.folder().join("bad.json");
            fs::write(&file, object.to_string()).expect("it can be written");
            let file = file.display().to_string();
            self.plane
                .try_kubectl(&["create", "--validate=false", "-f", &file])
        })
        .await;
    }

    async fn without_answers<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        operation: impl FnOnce(Registry) -> F + Send,
    ) -> T {
        let upstream = ProxyServer::upstream(&self.plane).await;
        let accept = move || {
            let upstream = upstream.clone();
            move |request| break_after_write(upstream.clone(), request)
        };
        let proxy = ProxyServer::start(&self.plane, "without-answers", accept).await;
        let registry = open_with(proxy.kubeconfig()).await.expect("it runs");
        operation(registry).await
    }
}

/// Forwards a request, and breaks the connection instead of answering a write.
async fn break_after_write(
    upstream: Client,
    request: Request<Incoming>,
) -> Result<ProxyResponse, Broken> {
    let forward = Forward::receive(upstream, request).await?;
    let response = forward.send().await?;
    match ApiRequest::of(&forward.method, &forward.path).verb {
        Verb::Read | Verb::Watch => Ok(response),
        _ => Err(Broken),
    }
}
