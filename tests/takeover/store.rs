//! Objects as JSON, read and written as by other programs: with their field manager, as whole
//! objects, and in their version.

use capi_ipam_api::names::SKIP_VALIDATE_DELETE;
use capi_ipam_controller::client::connect;
use kube::{Client, client::Body};
use support::{prelude::*, wait::TIMEOUT};

use crate::go_provider::claim;

/// The field manager that creates claims.
pub(crate) const CONSUMER: &str = "capv-manager";
/// The field manager of the Go provider. It is that of this provider too.
pub(crate) const GO_PROVIDER: &str = "manager";
/// The field manager that creates pools.
pub(crate) const OPERATOR: &str = "kubectl-create";
/// The field manager that restores objects.
pub(crate) const RESTORE: &str = "velero-server";

/// The API group of the contract and of the pools.
pub(crate) const GROUP: &str = "ipam.cluster.x-k8s.io";

/// The code of a request that was not answered in time, which the API server returns too.
const NO_ANSWER: u16 = 504;

/// A JSON client of the API server.
#[derive(Clone)]
pub(crate) struct Store {
    client: Client,
}

impl Store {
    pub(crate) async fn new(plane: &ControlPlane) -> Self {
        Self {
            client: connect(Some(plane.kubeconfig()), "consumer")
                .await
                .expect("the kubeconfig is valid"),
        }
    }

    /// Retries while the API server returns 429, and a read that is not answered in time.
    async fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, (u16, String)> {
        let patience = Patience::new(TIMEOUT);
        loop {
            let is_retried = |code: u16| {
                code == 429 || (code == NO_ANSWER && method == "GET" && !patience.is_over())
            };
            match self.try_call(method, path, body).await {
                Err((code, _)) if is_retried(code) => {
                    tokio::time::sleep(Duration::from_millis(100)).await
                }
                output => return output,
            }
        }
    }

    async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, (u16, String)> {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        let request = request.body(body).expect("the test writes valid requests");
        let answer = self
            .client
            .send(request)
            .await
            .map_err(|error| (NO_ANSWER, error.to_string()))?;
        let code = answer.status().as_u16();
        let text = answer
            .into_body()
            .collect_bytes()
            .await
            .expect("the answer has a body");
        let answer: Value = serde_json::from_slice(&text).expect("the API server writes JSON");
        if code < 300 {
            Ok(answer)
        } else {
            Err((code, answer["message"].to_string()))
        }
    }

    async fn write(&self, method: &str, path: &str, manager: &str, object: &Value) -> Value {
        let output = self
            .call(method, &format!("{path}?fieldManager={manager}"), object)
            .await;
        output.unwrap_or_else(|(code, text)| panic!("{method} {path}: {code} {text}\n{object}"))
    }

    /// Creates an object.
    pub(crate) async fn create(&self, manager: &str, object: &Value) -> Value {
        self.write("POST", &folder_of(object), manager, object)
            .await
    }

    /// Replaces an object that has not changed since it was read.
    pub(crate) async fn replace(&self, manager: &str, object: &Value) -> Value {
        self.write("PUT", &path_of(object), manager, object).await
    }

    /// Replaces the status of an object that has not changed since it was read.
    pub(crate) async fn replace_status(&self, manager: &str, object: &Value) -> Value {
        self.write(
            "PUT",
            &format!("{}/status", path_of(object)),
            manager,
            object,
        )
        .await
    }

    /// Reads an object of the API group, in the newest version.
    pub(crate) async fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.get_in(version(kind), kind, namespace, name).await
    }

    /// Reads an object in a version.
    pub(crate) async fn get_in(
        &self,
        version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Value> {
        let path = format!("{}/{name}", folder(version, kind, namespace));
        match self.call("GET", &path, &Value::Null).await {
            Ok(found) => Some(found),
            Err((404, _)) => None,
            Err((code, text)) => panic!("GET {path}: {code} {text}"),
        }
    }

    /// Reads an object that must exist.
    pub(crate) async fn get_existing(&self, kind: &str, namespace: &str, name: &str) -> Value {
        self.get(kind, namespace, name)
            .await
            .unwrap_or_else(|| panic!("{kind} {namespace}/{name} does not exist"))
    }

    /// All objects of a kind.
    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self
            .call("GET", &folder(version(kind), kind, ""), &Value::Null)
            .await;
        let mut list = list.unwrap_or_else(|(code, text)| panic!("{kind}: {code} {text}"));
        let mut items: Vec<Value> = list["items"]
            .as_array_mut()
            .expect("a list has items")
            .drain(..)
            .collect();
        for item in &mut items {
            (item["kind"], item["apiVersion"]) = (json!(kind), json!(version(kind)));
        }
        items
    }

    /// Deletes an object, which may exist until its finalizers are removed.
    pub(crate) async fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let path = format!("{}/{name}", folder(version(kind), kind, namespace));
        self.call("DELETE", &path, &Value::Null)
            .await
            .unwrap_or_else(|error| panic!("DELETE {path}: {error:?}"));
    }

    /// Changes an object, with retries on conflicts.
    pub(crate) async fn change(
        &self,
        manager: &str,
        (kind, namespace, name): (&str, &str, &str),
        change: impl Fn(&mut Value),
    ) -> Value {
        for _ in 0..20 {
            let mut object = self.get_existing(kind, namespace, name).await;
            change(&mut object);
            let path = format!("{}?fieldManager={manager}", path_of(&object));
            match self.call("PUT", &path, &object).await {
                Ok(written) => return written,
                Err((409, _)) => {}
                Err((code, text)) => panic!("PUT {path}: {code} {text}\n{object}"),
            }
        }
        panic!("{kind} {namespace}/{name} keeps changing")
    }

    /// Creates a namespace unless it exists.
    pub(crate) async fn namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match self.call("POST", "/api/v1/namespaces", &namespace).await {
            Ok(_) | Err((409, _)) => {}
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}

/// What consumers and operators do.
impl Store {
    /// Creates a claim.
    pub(crate) async fn create_claim(
        &self,
        namespace: &str,
        name: &str,
        pool: (&str, &str),
    ) -> Value {
        self.create(CONSUMER, &claim("v1beta2", namespace, name, pool))
            .await
    }

    /// Creates a pool that may be deleted while it is in use.
    pub(crate) async fn create_pool(&self, namespace: &str, name: &str, spec: Value) -> Value {
        let annotations = json!({SKIP_VALIDATE_DELETE: ""});
        let pool = json!({
            "apiVersion": version("InClusterIPPool"), "kind": "InClusterIPPool",
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
            "spec": spec,
        });
        self.create(OPERATOR, &pool).await
    }

    pub(crate) async fn create_cluster(&self, namespace: &str, name: &str, paused: bool) {
        let infrastructure =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name});
        let cluster = json!({
            "apiVersion": version("Cluster"), "kind": "Cluster",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"paused": paused, "infrastructureRef": infrastructure},
        });
        self.create(OPERATOR, &cluster).await;
    }

    pub(crate) async fn unpause_cluster(&self, namespace: &str, name: &str) {
        self.change(OPERATOR, ("Cluster", namespace, name), |cluster| {
            cluster["spec"]["paused"] = json!(false)
        })
        .await;
    }

    /// Waits until a claim is bound, and returns its address.
    pub(crate) async fn wait_for_address(&self, namespace: &str, name: &str) -> String {
        until(&format!("{namespace}/{name} is bound"), async || {
            let claim = self.get("IPAddressClaim", namespace, name).await?;
            Some(text(&claim, "/status/addressRef/name") == name)
        })
        .await;
        let address = self.get_existing("IPAddress", namespace, name).await;
        text(&address, "/spec/address").to_owned()
    }

    /// Waits until a claim and its IPAddress do not exist.
    pub(crate) async fn wait_until_deleted(&self, namespace: &str, name: &str) {
        until(&format!("{namespace}/{name} is gone"), async || {
            let claim = self.get("IPAddressClaim", namespace, name).await;
            let address = self.get("IPAddress", namespace, name).await;
            Some(claim.is_none() && address.is_none())
        })
        .await;
    }
}

/// The string at a JSON pointer, or an empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Namespace and name.
pub(crate) fn key(object: &Value) -> (String, String) {
    (
        text(object, "/metadata/namespace").to_owned(),
        text(object, "/metadata/name").to_owned(),
    )
}

/// Whether an object has a finalizer.
pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| all.iter().any(|present| present == finalizer))
}

/// Adds a finalizer to an object.
pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(all) => all.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

/// Removes a finalizer from an object.
pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(all) = object["metadata"]["finalizers"].as_array_mut() {
        all.retain(|present| present != finalizer);
    }
}

fn version(kind: &str) -> &'static str {
    match kind {
        "Cluster" => "cluster.x-k8s.io/v1beta2",
        "Lease" => "coordination.k8s.io/v1",
        "IPAddressClaim" | "IPAddress" => "ipam.cluster.x-k8s.io/v1beta2",
        _ => "ipam.cluster.x-k8s.io/v1alpha2",
    }
}

fn folder(version: &str, kind: &str, namespace: &str) -> String {
    let plural = if kind == "IPAddress" {
        "ipaddresses".to_owned()
    } else {
        format!("{}s", kind.to_lowercase())
    };
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("/namespaces/{namespace}")
    };
    format!("/apis/{version}{namespace}/{plural}")
}

fn folder_of(object: &Value) -> String {
    folder(
        text(object, "/apiVersion"),
        text(object, "/kind"),
        text(object, "/metadata/namespace"),
    )
}

fn path_of(object: &Value) -> String {
    format!("{}/{}", folder_of(object), text(object, "/metadata/name"))
}
