//! Claims and reservations from another cluster: `clusterctl move`, or a restored backup.

use capi_ipam_api::IPReservation;
use capi_ipam_provider::api::IPAddress;
use support::prelude::*;

use crate::{consumer, environment};

/// The metadata of a claim that had an address in its source cluster, and of a copied claim.
fn with_finalizer() -> Value {
    json!({"finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]})
}

async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    create_pool(&consumer).await;
    consumer
}

async fn create_pool(consumer: &Consumer) {
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
}

fn managed_fields(manager: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": "Update", "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
           "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn creator() -> Value {
    managed_fields(
        "machine-controller",
        &json!({"f:spec": {".": {}, "f:poolRef": {}}}),
    )
}

fn restore_managed_fields(consumer: &Consumer, name: &str, fields: &[Value]) {
    let patch = format!("--patch={}", json!({"metadata": {"managedFields": fields}}));
    let namespace = format!("--namespace={}", consumer.namespace);
    environment().control_plane.kubectl(&[
        "patch",
        "ipaddressclaim",
        name,
        &namespace,
        "--type=merge",
        &patch,
    ]);
}

/// A consumer with a claim that was created as `clusterctl move` and Velero do: its managed fields
/// are restored after its creation. The pool is created last, since the claim is bound if they are
/// not restored within seconds.
async fn with_restored_claim(name: &str) -> Consumer {
    let consumer = consumer().await;
    copy_claim(&consumer, name, json!({})).await;
    let finalizer = json!({".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}});
    let served = managed_fields(
        "capi-ipam-in-cluster",
        &json!({"f:metadata": {"f:finalizers": finalizer}}),
    );
    restore_managed_fields(&consumer, name, &[creator(), served]);
    create_pool(&consumer).await;
    consumer
}

/// Creates a claim with our finalizer, like a copy of another one.
async fn copy_claim(consumer: &Consumer, name: &str, mut metadata: Value) {
    metadata["finalizers"] = with_finalizer()["finalizers"].take();
    consumer
        .create_claim_with_metadata(name, "web", metadata)
        .await;
}

#[tokio::test]
async fn restored_claim_waits_for_its_address() {
    let consumer = with_restored_claim("a").await;
    assert_contains(
        &consumer.wait_for_reason("a", "AwaitingAddress").await,
        "ipam.cluster.x-k8s.io/ReleaseAddress",
    );
    // Other claims are bound meanwhile. A reconcile of the waiting claim at the same time can leave
    // the first address to it.
    consumer.create_claim("b", "web").await;
    let other = consumer.wait_for_address("b").await;
    let made = consumer.create_address("a", "web", "10.0.0.7").await;
    let address = consumer.wait_for_ip_address("a").await;
    assert_eq!((address.uid(), &address.spec), (made.uid(), &made.spec));
    consumer
        .wait_for_reservations("web", &[(&other, "b"), ("10.0.0.7", "a")])
        .await;
    consumer.release("a").await;
}

/// The managed fields of a claim to which an admission policy added the finalizer do not contain
/// it.
#[tokio::test]
async fn restored_claim_with_the_finalizer_of_a_policy_waits() {
    let consumer = consumer().await;
    copy_claim(&consumer, "a", json!({})).await;
    restore_managed_fields(&consumer, "a", &[creator()]);
    create_pool(&consumer).await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    consumer.create_address("a", "web", "10.0.0.7").await;
    consumer.assert_address("a", "10.0.0.7").await;
}

#[tokio::test]
async fn copied_claim_is_bound_within_seconds() {
    let consumer = with_pool().await;
    copy_claim(&consumer, "a", json!({})).await;
    // The timeout of a claim that was moved is an hour.
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn restored_claim_with_a_cluster_waits_for_its_address() {
    let consumer = with_pool().await;
    consumer.create_cluster("alpha", false).await;
    copy_claim(&consumer, "a", json!({"clusterName": "alpha"})).await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    consumer.create_address("a", "web", "10.0.0.7").await;
    consumer.assert_address("a", "10.0.0.7").await;
}

#[tokio::test]
async fn removed_finalizer_lets_a_restored_claim_allocate() {
    let consumer = with_restored_claim("a").await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    remove_finalizer(&consumer, "a").await;
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn reservation_lets_a_restored_claim_keep_its_address() {
    let consumer = with_restored_claim("a").await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    // As `kubectl ipam reserve` does.
    consumer.reserve_for("web", "10.0.0.7", "a").await;
    remove_finalizer(&consumer, "a").await;
    consumer.assert_address("a", "10.0.0.7").await;
    // The user chose the address, so no machine has another one.
    assert_eq!(replaced(&consumer, "a").await, None);
}

#[tokio::test]
async fn request_lets_a_restored_claim_keep_its_address() {
    let consumer = with_restored_claim("a").await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    let requests = json!({"spec": {"allocation": {"requests": true}}});
    let patch = format!("--patch={requests}");
    let namespace = format!("--namespace={}", consumer.namespace);
    let arguments = [
        "patch",
        "inclusterippool",
        "web",
        &namespace,
        "--type=merge",
        &patch,
    ];
    environment().control_plane.kubectl(&arguments);
    consumer
        .modify(&consumer.claims(), "a", |claim| {
            claim["metadata"]["annotations"] =
                json!({"ipam.cluster.x-k8s.io/requested-address": "10.0.0.7"});
            claim["metadata"]["finalizers"] = json!([]);
        })
        .await;
    consumer.assert_address("a", "10.0.0.7").await;
    assert_eq!(replaced(&consumer, "a").await, None);
}

/// The command of the documentation keeps the finalizers of other controllers, wherever they stand.
#[tokio::test]
async fn documented_command_removes_only_the_finalizer_of_the_provider() {
    let consumer = with_restored_claim("machine-0").await;
    consumer
        .wait_for_reason("machine-0", "AwaitingAddress")
        .await;
    let others = ["example.com/a", "example.com/b"];
    consumer
        .modify(&consumer.claims(), "machine-0", |claim| {
            let own = with_finalizer()["finalizers"][0].clone();
            claim["metadata"]["finalizers"] = json!([others[0], own, others[1]]);
        })
        .await;
    consumer.reserve_for("web", "10.0.0.7", "machine-0").await;
    run_documented_patch(&consumer);
    consumer.assert_address("machine-0", "10.0.0.7").await;
    let claims = consumer.claims();
    let found = claims.get("machine-0").await;
    let found = found.expect("claims can be read").expect("it exists");
    let left: Vec<&str> = found.finalizers().iter().map(String::as_str).collect();
    let own = "ipam.cluster.x-k8s.io/ReleaseAddress";
    assert_eq!(left, [others[0], others[1], own]);
}

/// Runs the `kubectl patch` of docs/upgrade-and-move.md in the namespace of the test.
fn run_documented_patch(consumer: &Consumer) {
    let page = include_str!("../../docs/upgrade-and-move.md");
    let blocks = page.split("```");
    let block = blocks
        .filter(|block| block.starts_with("sh"))
        .find(|block| block.contains("kubectl patch ipaddressclaims"))
        .expect("the page has the command");
    let command = block.find("kubectl patch").and_then(|at| block.get(at..));
    let plane = &environment().control_plane;
    // kubectl uses the namespace of the context.
    let script = format!(
        "kubectl() {{ \"$KUBECTL\" --kubeconfig=\"$FILE\" --namespace=\"$SPACE\" \"$@\"; }}\n{}",
        command.unwrap_or_default()
    );
    let output = std::process::Command::new("sh")
        .args(["-euc", &script])
        .env("KUBECTL", plane.kubectl_program())
        .env("FILE", plane.kubeconfig())
        .env("SPACE", &consumer.namespace)
        .output()
        .expect("a shell can be started");
    assert!(output.status.success(), "{output:?}");
}

/// Removes the finalizer of the provider, which is the only one.
async fn remove_finalizer(consumer: &Consumer, name: &str) {
    consumer.set_finalizers(&consumer.claims(), name, &[]).await;
}

#[tokio::test]
async fn restored_claim_can_be_deleted_while_waiting() {
    let consumer = with_restored_claim("a").await;
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
}

/// The label of each object that Velero restores. The API server does not keep the managed fields of
/// an object that is created: all its fields are of the writer, now.
fn velero_labels() -> Value {
    json!({"velero.io/restore-name": "r"})
}

/// Creates an IPAddress as Velero restores it before its claim: with its finalizer and a label, and
/// without owners.
async fn restore_address(consumer: &Consumer, name: &str, address: &str) {
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    let restored: IPAddress = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": name, "namespace": consumer.namespace, "labels": velero_labels(),
                     "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"]},
        "spec": {"claimRef": {"name": name}, "address": address, "prefix": 24, "poolRef": pool},
    }));
    let created = consumer.addresses().create(&restored).await;
    created.expect("the IPAddress can be created");
}

/// The sweeper of the test releases after 2 seconds what has no claim.
#[tokio::test]
async fn restored_addresses_wait_for_their_claims() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.40").await;
    let restored: BTreeMap<String, String> = (1..=30)
        .map(|number| (format!("m{number}"), format!("10.0.0.{number}")))
        .collect();
    for (name, address) in &restored {
        restore_address(&consumer, name, address).await;
    }
    // One that was not restored is released.
    let web =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer
        .create_leftover_address("left", web, "10.0.0.40")
        .await;
    until("the other IPAddress is deleted", async || {
        let left = consumer.allocated_addresses().await;
        Some(!left.contains_key("left"))
    })
    .await;
    let is_kept = || async { consumer.allocated_addresses().await == restored };
    consistently("all restored IPAddresses are kept", is_kept).await;
    consumer.bind_to("other", "web", "10.0.0.31").await;
    for (name, address) in &restored {
        copy_claim(&consumer, name, json!({})).await;
        consumer.assert_address(name, address).await;
    }
}

/// Reservations are restored before all objects of namespaces. The claim has another uid.
#[tokio::test]
async fn restored_reservation_waits_for_its_claim() {
    let consumer = with_pool().await;
    let reserve = async |address: &str, claim: &str, is_restored: bool| {
        let uid = "6101ef08-5b98-40af-8a1f-bc85701b2e47";
        let scope = format!("p.{}.web", consumer.namespace);
        let labels = if is_restored {
            velero_labels()
        } else {
            json!({})
        };
        let reservation: IPReservation = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("{scope}.{address}"), "labels": labels},
            "spec": {
                "scope": scope, "address": address,
                "poolRef": {"kind": "InClusterIPPool", "namespace": consumer.namespace, "name": "web"},
                "claimRef": {"namespace": consumer.namespace, "name": claim, "uid": uid},
            },
        }));
        let created = consumer.reservations().create(&reservation).await;
        created.expect("the reservation can be created");
    };
    reserve("10.0.0.1", "restored", true).await;
    reserve("10.0.0.2", "gone", false).await;
    let only_the_restored_one = || async {
        let all = consumer.reservations().list().await;
        let all = all.expect("reservations can be read");
        let scope = format!("p.{}.web", consumer.namespace);
        let left = all.iter().filter(|found| found.spec.scope == scope);
        let left: Vec<&str> = left.map(|found| found.spec.address.as_str()).collect();
        left == ["10.0.0.1"]
    };
    eventually("the other reservation is released", || async {
        only_the_restored_one().await.then_some(())
    })
    .await;
    consistently("the restored reservation is kept", only_the_restored_one).await;
    consumer.bind_to("other", "web", "10.0.0.2").await;
    // The claim keeps the reservation with its IPAddress, which is restored next.
    restore_address(&consumer, "restored", "10.0.0.1").await;
    copy_claim(&consumer, "restored", json!({})).await;
    consumer.assert_address("restored", "10.0.0.1").await;
    let expected = [("10.0.0.1", "restored"), ("10.0.0.2", "other")];
    consumer.wait_for_reservations("web", &expected).await;
}

/// What `kubectl get --output=yaml` writes of a claim, and the claim is deleted.
async fn back_up(consumer: &Consumer, name: &str, flags: &[&str]) -> String {
    let namespace = format!("--namespace={}", consumer.namespace);
    let get = [
        &["get", "ipaddressclaim", name, &namespace, "--output=yaml"],
        flags,
    ]
    .concat();
    let yaml = environment().control_plane.kubectl(&get);
    consumer.release(name).await;
    yaml
}

/// A backup of two bound claims. Their IPAddresses are lost, and other claims have the lowest
/// addresses.
async fn with_backup(consumer: &Consumer, flags: &[&str]) -> String {
    create_pool(consumer).await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    let backup = back_up(consumer, "a", flags).await;
    consumer.bind_to("b", "web", "10.0.0.1").await;
    // The clocks of API servers can differ, so a status that is a second older shows nothing.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    backup
}

fn kubectl_with(consumer: &Consumer, command: &[&str], yaml: &str) {
    let file = environment()
        .control_plane
        .folder()
        .join(format!("{}.yaml", consumer.namespace));
    std::fs::write(&file, yaml).expect("a file can be written");
    let file = format!("--filename={}", file.display());
    environment()
        .control_plane
        .kubectl(&[command, &[&file]].concat());
}

#[tokio::test]
async fn claim_applied_from_a_backup_waits_for_its_address() {
    let consumer = consumer().await;
    let backup = with_backup(&consumer, &[]).await;
    kubectl_with(&consumer, &["apply"], &backup);
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    consumer.create_address("a", "web", "10.0.0.7").await;
    consumer.assert_address("a", "10.0.0.7").await;
    assert_eq!(replaced(&consumer, "a").await, None);
}

#[tokio::test]
async fn claim_with_an_older_status_entry_waits_for_its_address() {
    let consumer = consumer().await;
    let backup = with_backup(&consumer, &["--show-managed-fields"]).await;
    kubectl_with(&consumer, &["create"], &backup);
    consumer.wait_for_reason("a", "AwaitingAddress").await;
    // A new address on request is visible as well.
    remove_finalizer(&consumer, "a").await;
    consumer.assert_address("a", "10.0.0.2").await;
    assert_eq!(
        replaced(&consumer, "a").await.as_deref(),
        Some("AddressNotRestored")
    );
}

/// Without managed fields, nothing but the finalizer shows that the claim was restored.
#[tokio::test]
async fn claim_that_may_be_restored_reports_its_new_address() {
    let consumer = consumer().await;
    let backup = with_backup(&consumer, &[]).await;
    kubectl_with(&consumer, &["create"], &backup);
    consumer.assert_address("a", "10.0.0.2").await;
    assert_eq!(
        replaced(&consumer, "a").await.as_deref(),
        Some("FinalizerAtCreation")
    );
    consumer
        .wait_for_event(
            "a",
            "Warning",
            "FinalizerAtCreation",
            &format!(
                "10.0.0.2/24 from InClusterIPPool {}/web",
                consumer.namespace
            ),
        )
        .await;
    // Claims that were not restored report nothing.
    assert_eq!(replaced(&consumer, "b").await, None);
}

/// The reason of the condition of a bound claim that its address is new.
async fn replaced(consumer: &Consumer, name: &str) -> Option<String> {
    let claim = consumer.the_claim(name).await;
    let status = claim.status.expect("the claim is bound");
    assert!(status.address_ref.is_some(), "{status:?}");
    let condition = status
        .conditions
        .into_iter()
        .find(|condition| condition.type_ == "RestoredWithoutAddress")?;
    assert_eq!(condition.status, "True");
    condition.reason.map(std::borrow::Cow::into_owned)
}

#[tokio::test]
async fn only_manual_reservations_get_the_move_label() {
    let consumer = with_pool().await;
    let promise = consumer.reserve_for("web", "10.0.0.5", "vip").await;
    consumer.bind("a", "web").await;
    let labelled = |name: String| {
        let reservations = consumer.reservations();
        async move {
            let found = read(&reservations, &name).await;
            found
                .labels()
                .contains_key("clusterctl.cluster.x-k8s.io/move")
        }
    };
    eventually("it is labelled", || async {
        labelled(promise.name_any()).await.then_some(())
    })
    .await;
    let of_claim = consumer
        .reservation("web", "10.0.0.1")
        .await
        .expect("it is reserved");
    assert!(!labelled(of_claim.name_any()).await);
}
