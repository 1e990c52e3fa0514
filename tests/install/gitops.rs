//! Health in Argo CD, by a real Lua interpreter, and the objects of other operators.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use support::clusterctl::documents;
use support::control_plane::{ensure, kustomize};
use support::prelude::*;
use support::repository::in_repository;

/// Kinds without a health check: users do not apply them.
const UNTRACKED: [&str; 1] = ["IPSlice"];

/// A value as an expression of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(lua).collect();
            format!("{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(key, value): (&String, &Value)| format!("[{}] = {}", json!(key), lua(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// The health of an object, and the message.
fn health_of(plane: &ControlPlane, object: &str, namespace: &str) -> (String, String) {
    let namespace = format!("--namespace={namespace}");
    let found = plane.kubectl(&["get", object, &namespace, "--output=json"]);
    let found: Value = serde_json::from_str(&found).expect("kubectl writes JSON");
    let check = in_repository("config/argocd/health.lua");
    let check = fs::read_to_string(check).expect("the script can be read");
    let file = plane.folder().join("health.lua");
    let script = format!(
        "obj = {}\nlocal function check()\n{check}\nend\nlocal found = check()\nprint(found.status)\nprint(found.message)\n",
        lua(&found)
    );
    fs::write(&file, script).expect("a file can be written");
    let program = PathBuf::from(ensure(&["lua"])).join("glua");
    let output = Command::new(program).arg(&file).output();
    let output = output.expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, message) = text
        .split_once('\n')
        .unwrap_or_else(|| panic!("{output:?}"));
    (status.to_owned(), message.trim_end().to_owned())
}

async fn wait_for_health(
    plane: &ControlPlane,
    namespace: &str,
    object: &str,
    expected: (&str, &str),
) {
    let what = format!("{object} is {expected:?}");
    eventually_ok(&what, async || {
        let (status, message) = health_of(plane, object, namespace);
        let is_expected = status == expected.0 && message.contains(expected.1);
        is_expected
            .then_some(())
            .ok_or(format!("{status}: {message}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_shows_the_health_of_objects() {
    let plane = ControlPlane::new();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.clone();
    consumer.create_pool("web", "10.0.0.1-10.0.0.2").await;
    let check = async |object: &str, status: &str, message: &str| {
        wait_for_health(&plane, &namespace, object, (status, message)).await;
    };
    check(
        "inclusterippool/web",
        "Progressing",
        "waiting for the manager",
    )
    .await;
    let _manager = Manager::start(&plane, &[]);
    check("inclusterippool/web", "Healthy", "").await;
    consumer.bind_to("bound", "web", "10.0.0.1").await;
    check(
        "ipaddressclaim/bound",
        "Healthy",
        "bound to IPAddress bound",
    )
    .await;
    consumer.bind_to("kept", "web", "10.0.0.2").await;
    consumer.create_claim("waiting", "web").await;
    check("ipaddressclaim/waiting", "Progressing", "no free address").await;
    consumer.pause_pool("web").await;
    check("inclusterippool/web", "Suspended", "paused").await;
    consumer.resume_pool("web").await;
    let missing = json!({"addresses": ["10.1.0.1"], "prefix": 24, "network": "missing"});
    consumer.create_pool("lost", missing).await;
    check("inclusterippool/lost", "Degraded", "missing").await;
    let kept = consumer.reserve("lost", "10.1.0.1", Value::Null).await;
    let kept = format!("ipreservation/{}", kept.name_any());
    check(&kept, "Healthy", "").await;
    consumer.delete_pool("web").await;
    check("inclusterippool/web", "Progressing", "being deleted").await;
}

#[test]
fn argo_cd_knows_all_kinds() {
    let folder = support::process::TemporaryFolder::new("capi-ipam-argocd-");
    let component = in_repository("config/argocd");
    let relative = folder.path().join("component");
    std::os::unix::fs::symlink(&component, &relative).expect("a link can be created");
    fs::write(
        folder.path().join("kustomization.yaml"),
        "configMapGenerator:\n- {name: argocd-cm, namespace: argocd, literals: [url=https://argocd.example]}\n\
         generatorOptions: {disableNameSuffixHash: true}\ncomponents: [component]\n",
    )
    .expect("a file can be written");
    let rendered = kustomize(folder.path());
    let map: Value = serde_saphyr::from_str(&rendered).expect("kustomize writes YAML");
    let data = map["data"].as_object().expect("it has data");
    assert!(data.contains_key("url"), "other settings are kept");
    let definitions = in_repository("config/crd/ipam.cluster.x-k8s.io.yaml");
    let definitions = fs::read_to_string(definitions).expect("it can be read");
    let mut kinds = vec!["IPAddressClaim".to_owned()];
    for definition in documents(&definitions) {
        let kind = definition["spec"]["names"]["kind"].as_str();
        kinds.push(kind.expect("it is a definition").to_owned());
    }
    for kind in kinds {
        let key = format!("resource.customizations.health.ipam.cluster.x-k8s.io_{kind}");
        assert_eq!(
            data.contains_key(&key),
            !UNTRACKED.contains(&&*kind),
            "{kind}"
        );
    }
}

#[test]
fn cluster_api_operator_accepts_the_provider() {
    let plane = ControlPlane::start(Options {
        bare: true,
        ..Options::default()
    });
    let definitions = PathBuf::from(ensure(&["cluster-api-operator"]));
    let definition = definitions.join("operator.cluster.x-k8s.io_ipamproviders.yaml");
    plane.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &definition.display().to_string(),
    ]);
    plane.wait_until_served("ipamproviders.operator.cluster.x-k8s.io");
    let page = fs::read_to_string(in_repository("docs/gitops.md")).expect("it can be read");
    let (_, commands) = page.split_once("```sh\n").expect("it has commands");
    let (commands, _) = commands.split_once("```").expect("they end");
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_contains(commands, version);
    for command in commands.replace("\\\n", " ").lines() {
        let mut arguments = command.split_whitespace();
        assert_eq!(arguments.next(), Some("kubectl"));
        let in_place = |argument: &str| {
            let mut argument = argument.to_owned();
            for folder in ["manifests/", "config/"] {
                let path = in_repository(folder).display().to_string();
                argument = argument.replace(&format!("={folder}"), &format!("={path}"));
            }
            argument
        };
        let arguments: Vec<String> = arguments.map(in_place).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        plane.kubectl(&arguments);
    }
    let found = plane.kubectl(&[
        "get",
        "ipamprovider/in-cluster",
        "--namespace=capi-ipam-in-cluster-system",
        "--output=jsonpath={.spec.version}",
    ]);
    assert_eq!(found, version);
}

/// What the definition of `CAPIProvider` in Rancher Turtles 0.24 says about the fields that the page
/// sets, and about those that exclude them.
fn turtles_definition() -> Value {
    let text = json!({"type": "string"});
    let labels = json!({"type": "object", "additionalProperties": text});
    let selector = json!({"type": "object", "properties": {"matchLabels": labels}});
    let fetch_config = json!({
        "type": "object", "properties": {"url": text, "selector": selector},
    });
    let spec = json!({
        "type": "object",
        "required": ["type"],
        "properties": {"type": text, "name": text, "version": text, "fetchConfig": fetch_config},
        "x-kubernetes-validations": [
            {"rule": "!has(self.version) || self.version.matches('^v[0-9]+[.][0-9]+[.][0-9]+(-[0-9A-Za-z.-]+)?$')"},
            {"rule": "!has(self.fetchConfig) || has(self.fetchConfig.url) != has(self.fetchConfig.selector)"},
        ],
    });
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "capiproviders.turtles-capi.cattle.io"},
        "spec": {
            "group": "turtles-capi.cattle.io",
            "names": {"kind": "CAPIProvider", "plural": "capiproviders"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

#[test]
fn turtles_accepts_the_provider() {
    let plane = ControlPlane::start(Options {
        bare: true,
        ..Options::default()
    });
    let file = plane.folder().join("object.yaml");
    let file = file.to_str().expect("UTF-8");
    fs::write(file, turtles_definition().to_string()).expect("it can be written");
    plane.kubectl(&["apply", "-f", file]);
    plane.wait_until_served("capiproviders.turtles-capi.cattle.io");
    plane.kubectl(&["create", "namespace", "capi-ipam-in-cluster-system"]);
    let folder = in_repository("config/rancher-turtles");
    let kustomize = format!("--kustomize={}", folder.display());
    plane.kubectl(&["apply", "--validate=strict", &kustomize]);
    let found = plane.kubectl(&[
        "get",
        "capiprovider/in-cluster",
        "--namespace=capi-ipam-in-cluster-system",
        "--output=jsonpath={.spec.type} {.spec.name} {.spec.version}",
    ]);
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(found, format!("ipam in-cluster {version}"));
}
