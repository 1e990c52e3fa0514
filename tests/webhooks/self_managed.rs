//! Self-managed certificates: the manager runs with the permissions of `config/rbac` and
//! `config/self-managed-certs` only.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use capi_ipam_api::InClusterKind::{GlobalIPPool, IPPool};
use futures::future::join;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use support::{prelude::*, webhooks::direct::connect_trusting};

use crate::api_client::{ApiClient, JSON, PATCH};

const SECRET: &str = "capi-ipam-in-cluster-webhook-self-managed-cert";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/capi-ipam-in-cluster-validating-webhook-configuration";
const DEFINITIONS: [&str; 2] = [
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inclusterippools.ipam.cluster.x-k8s.io",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/globalinclusterippools.ipam.cluster.x-k8s.io",
];

/// A cluster with webhook configurations without CA bundles.
struct Cluster {
    plane: ControlPlane,
    webhooks: Webhooks,
    consumer: Consumer,
    client: ApiClient,
}

impl Cluster {
    /// Starts it with the permissions in these folders.
    async fn start(permissions: &[&str]) -> Self {
        let plane = ControlPlane::new();
        permissions.iter().for_each(|folder| permit(&plane, folder));
        // So that the webhook denies, and not the CRD.
        plane.drop_rules();
        let webhooks = Webhooks::without_certificate(&plane);
        webhooks.register_with_ca(&plane, "");
        let consumer = Consumer::new(&plane).await;
        let client = ApiClient::new(&consumer);
        Self {
            plane,
            webhooks,
            consumer,
            client,
        }
    }

    async fn permitted() -> Self {
        Self::start(&["config/self-managed-certs"]).await
    }

    fn manager(&self, flags: &[&str]) -> Manager {
        self.manager_at(&self.webhooks, flags)
    }

    /// Starts a manager without waiting for readiness.
    fn manager_at(&self, webhooks: &Webhooks, flags: &[&str]) -> Manager {
        let port = format!("--webhook-port={}", webhooks.port());
        let own = [
            "--leader-elect",
            &port,
            "--webhook-certs=self-managed",
            "--webhook-cert-hosts=127.0.0.1",
            "--webhook-cert-interval=200ms",
        ];
        Manager::launch(
            &self.plane,
            self.plane.provider_kubeconfig(),
            &[&own[..], flags].concat(),
        )
    }

    /// The values in the Secret, if it exists.
    async fn secret(&self) -> Option<BTreeMap<String, ByteString>> {
        let secrets: ResourceClient<Secret> = ResourceClient::new(
            Api::namespaced(self.consumer.client.clone(), NAMESPACE),
            &(),
        );
        let secret = secrets.get(SECRET).await.expect("secrets can be read")?;
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        secret.data
    }

    async fn value(&self, key: &str) -> String {
        let data = self.secret().await.expect("the Secret exists");
        String::from_utf8(data[key].0.clone()).expect("it is PEM")
    }

    /// The CA bundles of all webhooks, each in PEM.
    async fn bundles(&self) -> Vec<String> {
        let configuration = self.client.get(CONFIGURATION).await;
        let webhooks = configuration["webhooks"]
            .as_array()
            .expect("there are webhooks")
            .clone();
        let mut configs: Vec<Value> = webhooks
            .into_iter()
            .map(|webhook| webhook["clientConfig"].clone())
            .collect();
        for definition in DEFINITIONS {
            configs.push(
                self.client.get(definition).await["spec"]["conversion"]["webhook"]["clientConfig"]
                    .clone(),
            );
        }
        let bundle = |config: Value| {
            let bytes: Option<ByteString> =
                serde_json::from_value(config["caBundle"].clone()).expect("it is base64");
            String::from_utf8(bytes.unwrap_or_default().0).expect("it is PEM")
        };
        configs.into_iter().map(bundle).collect()
    }

    /// Waits until all webhooks have the CA bundle of the Secret, and returns it.
    async fn injected(&self) -> String {
        eventually("the CA bundles are injected", || async {
            let data = self.secret().await?;
            let bundle = String::from_utf8(data["ca.crt"].0.clone()).expect("it is PEM");
            self.bundles()
                .await
                .iter()
                .all(|found| *found == bundle)
                .then_some(bundle)
        })
        .await
    }

    /// Waits until the API server calls the webhooks for validation and conversion.
    async fn wait_until_working(&self) {
        until("the webhook denies an invalid pool", async || {
            let bad = json!({"addresses": ["10.0.0.1", "fd00::1"], "prefix": 24});
            let response = self.client.dry_run_create(IPPool, "bad", &bad).await;
            assert!(!response.is_ok(), "{response:?}");
            Some(response.code == 422)
        })
        .await;
        for kind in [IPPool, GlobalIPPool] {
            let old = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(),
                             "metadata": {"name": "old"}, "spec": {"subnet": "10.1.0.0/24"}});
            eventually("a pool is converted", || async {
                let path = format!("{}?dryRun=All", self.client.path(kind, "v1alpha1", ""));
                self.client
                    .call("POST", &path, JSON, &old)
                    .await
                    .is_ok()
                    .then_some(())
            })
            .await;
        }
    }

    /// The number of writes of all clients to the objects that the manager maintains.
    fn writes(&self) -> u64 {
        let kinds = [
            "secrets",
            "validatingwebhookconfigurations",
            "customresourcedefinitions",
        ];
        let counts = self.plane.request_count().into_iter();
        let writes = counts.filter(|(key, _)| {
            key.verb != "GET"
                && key.verb != "LIST"
                && key.verb != "WATCH"
                && key.subresource.is_empty()
        });
        writes
            .filter(|(key, _)| kinds.contains(&key.resource.as_str()))
            .map(|(_, count)| count)
            .sum()
    }

    async fn damage(&self, operations: Value) {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        self.client
            .call("PATCH", &path, PATCH, &operations)
            .await
            .into_object();
    }
}

fn apply(plane: &ControlPlane, file: &str) {
    plane.kubectl(&["apply", "-f", &committed(file)]);
}

fn committed(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(file)
        .display()
        .to_string()
}

fn permit(plane: &ControlPlane, folder: &str) {
    for file in ["role.yaml", "role_binding.yaml"] {
        apply(plane, &format!("{folder}/{file}"));
    }
}

fn certificates(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// Asserts that no private key was logged.
fn assert_no_key_logged(manager: &Manager) {
    assert!(
        !manager.log().contains("PRIVATE KEY"),
        "the log contains a key"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_creates_certificate_and_injects_ca_bundles() {
    let cluster = Cluster::permitted().await;
    let manager = cluster.manager(&[]);
    manager.wait_until_ready();
    let bundle = cluster.injected().await;
    assert_eq!(certificates(&bundle), 1);
    cluster.wait_until_working().await;
    let bad = json!({"addresses": ["10.0.0.1", "fd00::1"], "prefix": 24});
    cluster
        .client
        .dry_run_create(IPPool, "bad", &bad)
        .await
        .assert_denied(422, "spec.addresses", "fd00::1 is IPv6");
    let data = cluster.secret().await.expect("the Secret exists");
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    );

    // Nothing else is written, and another manager uses the same certificate.
    let before = cluster.writes();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let other = Webhooks::without_certificate(&cluster.plane);
    let second = cluster.manager_at(&other, &[]);
    second.wait_until_ready();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.writes(), before, "{}", manager.log());
    assert_eq!(cluster.secret().await, Some(data));
    connect_trusting(&bundle, other.port(), "h2")
        .await
        .expect("the second one is trusted too");
    assert!(!manager.log().contains("orbidden"), "{}", manager.log());
    assert_no_key_logged(&manager);
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_that_start_together_share_one_certificate() {
    let cluster = Cluster::permitted().await;
    let ports: Vec<Webhooks> = (0..4)
        .map(|_| Webhooks::without_certificate(&cluster.plane))
        .collect();
    let managers: Vec<Manager> = ports
        .iter()
        .map(|webhooks| cluster.manager_at(webhooks, &[]))
        .collect();
    managers
        .iter()
        .for_each(|manager| manager.wait_until_ready());
    let bundle = cluster.injected().await;
    assert_eq!(certificates(&bundle), 1);
    for (webhooks, manager) in ports.iter().zip(&managers) {
        connect_trusting(&bundle, webhooks.port(), "h2")
            .await
            .unwrap_or_else(|error| panic!("{error}: {}", manager.log()));
    }
    let made = managers.iter().map(|manager| {
        manager
            .log()
            .matches("generated a CA and a certificate")
            .count()
    });
    assert_eq!(made.sum::<usize>(), 1);
    for manager in &managers {
        assert!(
            !manager
                .log()
                .contains("cannot reconcile the self-managed certificate"),
            "{}",
            manager.log()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_and_ca_rotation_fails_no_request() {
    const SETTLE: Duration = Duration::from_secs(4);
    const TIMEOUT: Duration = Duration::from_mins(5);
    let cluster = Cluster::permitted().await;
    let interval = format!("--webhook-cert-interval={}s", SETTLE.as_secs());
    let flags = [
        interval.as_str(),
        "--webhook-cert-lifetime=40s",
        "--webhook-ca-lifetime=64s",
    ];
    let second = Webhooks::without_certificate(&cluster.plane);
    let managers = [cluster.manager(&flags), cluster.manager_at(&second, &flags)];
    managers
        .iter()
        .for_each(|manager| manager.wait_until_ready());
    cluster.wait_until_working().await;
    let (done, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let is_done = || done.load(Ordering::Relaxed);
    let renew = async {
        let first = cluster.injected().await;
        for authority in 1..=2 {
            let before = cluster.value("tls.crt").await;
            until_within(TIMEOUT, "the certificate is renewed", || async {
                Some(cluster.value("tls.crt").await != before)
            })
            .await;
            let bundle = cluster.value("ca.crt").await;
            until_within(TIMEOUT, "the CA is renewed", || async {
                let newer = cluster.value("ca.crt").await;
                Some(newer != bundle && certificates(&newer) >= 2)
            })
            .await;
            println!(
                "CA {authority} after {} requests",
                requests.load(Ordering::Relaxed)
            );
        }
        until_within(TIMEOUT, "the first CA is removed", || async {
            Some(!cluster.value("ca.crt").await.contains(first.trim()))
        })
        .await;
        done.store(true, Ordering::Relaxed);
    };
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    let create = async |kind| {
        while !is_done() {
            let response = cluster.client.dry_run_create(kind, "load", &spec).await;
            assert!(response.is_ok(), "{response:?}\n{}", managers[0].log());
            requests.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let convert = async |kind: capi_ipam_api::InClusterKind| {
        let old = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(),
                         "metadata": {"name": "old"}, "spec": {"subnet": "10.1.0.0/24"}});
        let path = format!("{}?dryRun=All", cluster.client.path(kind, "v1alpha1", ""));
        while !is_done() {
            let response = cluster.client.call("POST", &path, JSON, &old).await;
            assert!(response.is_ok(), "{response:?}\n{}", managers[0].log());
            requests.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // The API server reuses its connections; these handshakes are all new. Each webhook may be
    // called at any moment, by an API server whose CA bundle is as old as the propagation delay
    // allows.
    let connect = async |port: u16| {
        while !is_done() {
            let read = Instant::now();
            for bundle in cluster.bundles().await {
                if let Err(error) = connect_trusting(&bundle, port, "h2").await
                    && read.elapsed() < SETTLE
                {
                    panic!(
                        "{error}\n{bundle}\n{}",
                        managers.each_ref().map(|manager| manager.log()).join("\n")
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let load = join(
        join_all([IPPool, GlobalIPPool].map(create)),
        join_all([IPPool, GlobalIPPool].map(convert)),
    );
    let ports = [cluster.webhooks.port(), second.port()];
    join(renew, join(load, join_all(ports.map(connect)))).await;
    println!("{} requests, none failed", requests.load(Ordering::Relaxed));
    managers.iter().for_each(assert_no_key_logged);
}

#[tokio::test(flavor = "multi_thread")]
async fn overwritten_ca_bundles_are_restored() {
    let cluster = Cluster::permitted().await;
    let manager = cluster.manager(&[]);
    manager.wait_until_ready();
    let bundle = cluster.injected().await;
    // Applied again without CA bundles.
    cluster.webhooks.register_with_ca(&cluster.plane, "");
    assert_eq!(cluster.injected().await, bundle);
    cluster.wait_until_working().await;
    // Applied with other CA bundles.
    let others = support::webhooks::authority().pem();
    cluster.webhooks.register_with_ca(&cluster.plane, &others);
    assert_eq!(cluster.injected().await, bundle);
    // Applied without the field, which removes it.
    cluster.webhooks.register_with_ca(&cluster.plane, "");
    assert_eq!(cluster.injected().await, bundle);
    cluster.wait_until_working().await;
    // Replaced by the committed configuration, which names the service.
    for file in [
        "config/webhook/manifests.yaml",
        "config/crd/ipam.cluster.x-k8s.io.yaml",
    ] {
        cluster.plane.kubectl(&["replace", "-f", &committed(file)]);
    }
    assert_eq!(cluster.injected().await, bundle);
    assert_eq!(
        manager.log().matches("webhooks: generated").count(),
        1,
        "{}",
        manager.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_or_damaged_secret_is_regenerated() {
    let cluster = Cluster::permitted().await;
    let manager = cluster.manager(&[]);
    manager.wait_until_ready();
    let first = cluster.injected().await;
    let junk = json!(ByteString(b"junk".to_vec()));
    let replace =
        |key: &str| json!([{"op": "replace", "path": format!("/data/{key}"), "value": junk}]);
    let remove = |key: &str| json!([{"op": "remove", "path": format!("/data/{key}")}]);
    let certificate = async |why: &str| {
        let shown = || async {
            let stream = connect_trusting(&cluster.injected().await, cluster.webhooks.port(), "h2")
                .await
                .ok()?;
            Some(stream.get_ref().1.peer_certificates()?.first()?.to_vec())
        };
        eventually(why, shown).await
    };
    // Only the certificate is regenerated: the CA stays.
    for (operations, response) in [
        (replace("tls.crt"), "the certificate cannot be parsed"),
        (
            replace("tls.key"),
            "the key of the certificate cannot be parsed",
        ),
    ] {
        let before = certificate(response).await;
        cluster.damage(operations).await;
        until("another certificate is served", async || {
            Some(certificate(response).await != before)
        })
        .await;
        assert!(manager.log().contains(response), "{}", manager.log());
        assert_eq!(cluster.injected().await, first);
    }
    // The CA key is damaged: a new CA is generated, and the old one stays trusted.
    cluster.damage(remove("ca.key")).await;
    let second = eventually("there is another CA", || async {
        let bundle = cluster.injected().await;
        (bundle != first).then_some(bundle)
    })
    .await;
    assert!(certificates(&second) == 2 && second.ends_with(&first));
    cluster.wait_until_working().await;
    // The CA bundle is damaged.
    cluster.damage(replace("ca.crt")).await;
    let third = eventually("there are other CAs", || async {
        let bundle = cluster.value("ca.crt").await;
        (bundle.contains("CERTIFICATE") && bundle != second).then_some(bundle)
    })
    .await;
    assert_eq!(
        (certificates(&third), cluster.injected().await == third),
        (1, true)
    );
    cluster.wait_until_working().await;
    cluster
        .plane
        .kubectl(&["-n", NAMESPACE, "delete", "secret", SECRET]);
    until("there is another Secret", async || {
        Some(cluster.secret().await?["ca.crt"].0 != third.as_bytes())
    })
    .await;
    assert_eq!(certificates(&cluster.injected().await), 1);
    cluster.wait_until_working().await;
    assert_no_key_logged(&manager);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_permissions_are_reported_and_retried() {
    let cluster = Cluster::start(&[]).await;
    let manager = cluster.manager(&[]).may_lack_permissions();
    let reason = eventually("only the certificate is missing", || async {
        let response = manager.probe("/readyz")?;
        let missing = response
            .lines()
            .filter(|line| line.starts_with("- "))
            .collect::<Vec<_>>();
        (missing.len() == 1
            && missing[0].starts_with("- certificate for webhooks: cannot create Secret "))
        .then(|| missing[0].to_owned())
    })
    .await;
    assert!(
        reason.contains("forbidden") && reason.ends_with("are in config/self-managed-certs"),
        "{reason}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        manager
            .log()
            .matches("cannot reconcile the self-managed certificate")
            .count(),
        1,
        "{}",
        manager.log()
    );
    permit(&cluster.plane, "config/self-managed-certs");
    manager.wait_until_ready();
    cluster.wait_until_working().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_webhook_configuration_is_waited_for() {
    let cluster = Cluster::permitted().await;
    cluster
        .plane
        .kubectl(&["delete", "validatingwebhookconfiguration", "--all"]);
    let manager = cluster.manager(&[]);
    let missing = "- certificate for webhooks: there is no ValidatingWebhookConfiguration capi-ipam-in-cluster-validating";
    until("the missing configuration is reported", async || {
        Some(manager.probe("/readyz")?.contains(missing))
    })
    .await;
    // The CRDs are injected meanwhile.
    eventually("the CRDs have CA bundles", || async {
        let definition = cluster.client.get(DEFINITIONS[0]).await;
        definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
            .is_string()
            .then_some(())
    })
    .await;
    cluster.webhooks.register_with_ca(&cluster.plane, "");
    manager.wait_until_ready();
    cluster.wait_until_working().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_managed_by_cert_manager_are_skipped() {
    let cluster = Cluster::permitted().await;
    let annotation = "cert-manager.io/inject-ca-from=capi-ipam-in-cluster-system/serving-cert";
    let definition = "inclusterippools.ipam.cluster.x-k8s.io";
    cluster.plane.kubectl(&[
        "annotate",
        "validatingwebhookconfiguration",
        "--all",
        annotation,
    ]);
    cluster
        .plane
        .kubectl(&["annotate", "crd", definition, annotation]);
    let manager = cluster.manager(&[]);
    manager.wait_until_ready();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let bundles = cluster.bundles().await;
    let (last, others) = bundles.split_last().expect("there are webhooks");
    assert!(
        others.iter().all(String::is_empty) && certificates(last) == 1,
        "{bundles:?}"
    );
    assert_eq!(
        manager.log().matches("makes cert-manager inject").count(),
        2,
        "{}",
        manager.log()
    );
    let gone = "cert-manager.io/inject-ca-from-";
    cluster
        .plane
        .kubectl(&["annotate", "validatingwebhookconfiguration", "--all", gone]);
    cluster
        .plane
        .kubectl(&["annotate", "crd", definition, gone]);
    cluster.injected().await;
    cluster.wait_until_working().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_of_the_webhook_of_clusters_is_injected() {
    let folders = ["config/self-managed-certs", "config/cluster-addressing"];
    let cluster = Cluster::start(&folders).await;
    let manager = cluster.manager(&["--cluster-addressing"]);
    // The webhook need not be installed.
    manager.wait_until_ready();
    cluster.wait_until_working().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/cluster-addressing-webhook");
    let file = folder.join("manifests.yaml").display().to_string();
    cluster.plane.kubectl(&["apply", "-f", &file]);
    let bundle = cluster.value("ca.crt").await;
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/capi-ipam-in-cluster-mutating-webhook-configuration";
    eventually("the CA bundle is injected", async || {
        let configuration = cluster.client.get(path).await;
        let found = configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let found: Option<ByteString> = serde_json::from_value(found).ok()?;
        (found?.0 == bundle.as_bytes()).then_some(())
    })
    .await;
}
