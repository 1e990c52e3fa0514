//! Secondaries of deleted keys, with a real API server.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{ResourceClient, connect as connect_to_api_server};
use capi_ipam_controller::controller::ControllerBuilder;
use capi_ipam_nats::{Bucket, BucketOptions, Garbage, KvObject, Pass, Secondaries, SecondaryError};
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options as PlaneOptions};
use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::wait::eventually;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::support::{Item, Watched, connect, create, impatient, open, settings, single};
use crate::writes::delete_bucket;

/// A pass that deletes nothing.
fn kept(kept: usize) -> Pass {
    Pass { deleted: 0, kept }
}

/// A pass that deletes.
fn deleted(deleted: usize) -> Pass {
    Pass { deleted, kept: 0 }
}

struct World {
    _plane: ControlPlane,
    node: Node,
    client: Client,
    bucket: Bucket<Item>,
    maps: ResourceClient<ConfigMap>,
    secondaries: Arc<Secondaries<Item, ConfigMap>>,
    garbage: Garbage<Item, Secondaries<Item, ConfigMap>>,
}

impl World {
    async fn start(options: &BucketOptions) -> Self {
        let plane = ControlPlane::start(PlaneOptions::default(), &Installation::default());
        let client = connect_to_api_server(Some(plane.kubeconfig()), "test/1").await;
        let client = client.expect("the kubeconfig is valid");
        let api = Api::namespaced(client.clone(), "default");
        let maps = ResourceClient::new(api.clone(), &());
        let node = Node::start(Options::default());
        let bucket = open(&connect(&impatient(vec![node.url()])).await, options).await;
        let controller: ControllerBuilder<KvObject<Item>> = ControllerBuilder::new("items");
        let secondaries = Secondaries::new(&bucket, api, (), controller.trigger());
        let garbage = Garbage::new(&bucket, secondaries.clone(), Duration::from_secs(1));
        Self {
            _plane: plane,
            node,
            client,
            bucket,
            maps,
            secondaries,
            garbage,
        }
    }

    /// Creates a key with a secondary of the same name.
    async fn create(&self, key: &str) -> KvObject<Item> {
        create(&self.bucket, key, 1).await;
        self.write_secondary(key).await
    }

    /// Writes the secondary of a key, as a reconcile does.
    async fn write_secondary(&self, key: &str) -> KvObject<Item> {
        let watched = Watched::start(&self.bucket, "").await;
        let primary = watched.objects.get(key).expect("it exists").clone();
        let applied = self.secondaries.apply(key, &primary, |_| {}).await;
        applied.expect("it can be written");
        primary
    }

    async fn pass(&mut self) -> Pass {
        match self.garbage.pass().await {
            Ok(pass) => pass,
            Err(error) => panic!("{error}"),
        }
    }

    /// The names of the ConfigMaps that the test has created.
    async fn names(&self) -> Vec<String> {
        let maps = self.maps.list().await.expect("they can be listed");
        let mut names: Vec<_> = maps.iter().map(ResourceExt::name_any).collect();
        names.retain(|name| name != "kube-root-ca.crt");
        names.sort();
        names
    }

    /// Makes the API server refuse the deletion of the ConfigMap `stuck`.
    async fn refuse_deletion(&self) {
        let policy = json!({
            "metadata": { "name": "stuck" },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                    "operations": ["DELETE"],
                }] },
                "validations": [{ "expression": "request.name != 'stuck'" }],
            },
        });
        let binding = json!({
            "metadata": { "name": "stuck" },
            "spec": { "policyName": "stuck", "validationActions": ["Deny"] },
        });
        let policy: ValidatingAdmissionPolicy =
            serde_json::from_value(policy).expect("it is a policy");
        let binding = serde_json::from_value(binding).expect("it is a binding");
        let policies = ResourceClient::new(Api::all(self.client.clone()), &());
        let created = policies.create(&policy).await;
        created.expect("it can be created");
        let created = self.bindings().create(&binding).await;
        created.expect("it can be created");
        self.deletion_is_refused(true).await;
    }

    fn bindings(&self) -> ResourceClient<ValidatingAdmissionPolicyBinding> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// Lets the API server delete the ConfigMap `stuck` again.
    async fn allow_deletion(&self) {
        let bindings = self.bindings();
        let binding = bindings.get("stuck").await.expect("it can be read");
        let uid = binding
            .and_then(|binding| binding.uid())
            .expect("it exists");
        let deleted = bindings.delete("stuck", &uid).await;
        deleted.expect("it can be deleted");
        self.deletion_is_refused(false).await;
    }

    /// Waits until the API server refuses the deletion of the ConfigMap `stuck`, or does not.
    #[allow(clippy::disallowed_methods, reason = "the client has no dry run")]
    async fn deletion_is_refused(&self, expected: bool) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        eventually("the policy is applied", || async {
            let dry_run = DeleteParams::default().dry_run();
            let attempt = maps.delete("stuck", &dry_run);
            (attempt.await.is_err() == expected).then_some(())
        })
        .await;
    }

    /// Some passes delete nothing.
    async fn nothing_is_deleted(&mut self, kept_secondaries: usize) {
        for _ in 0..3 {
            assert_eq!(self.pass().await, kept(kept_secondaries));
        }
    }
}

#[tokio::test]
async fn secondary_of_a_deleted_key_is_deleted_in_the_second_pass() {
    let mut world = World::start(&single()).await;
    let held = world.create("deleted").await;
    world.create("exists").await;
    let mut foreign = ConfigMap::default();
    foreign.metadata.name = Some("foreign".to_owned());
    let created = world.maps.create(&foreign).await;
    created.expect("it can be created");
    world.nothing_is_deleted(0).await;
    world.bucket.delete(&held).await.expect("it is ours");
    assert_eq!(world.pass().await, kept(0));
    assert_eq!(world.pass().await, deleted(1));
    assert_eq!(world.names().await, ["exists", "foreign"]);
    // The secondary of a key that exists again stays.
    let held = world.create("again").await;
    world.bucket.delete(&held).await.expect("it is ours");
    assert_eq!(world.pass().await, kept(0));
    create(&world.bucket, "again", 2).await;
    world.nothing_is_deleted(0).await;
}

#[tokio::test]
async fn expired_marker_deletes_nothing() {
    let options = BucketOptions {
        marker_ttl: Duration::from_secs(1),
        ..single()
    };
    let mut world = World::start(&options).await;
    let held = world.create("a").await;
    world.create("b").await;
    world.bucket.delete(&held).await.expect("it is ours");
    let bucket = world.bucket.clone();
    eventually("the marker expires", || async {
        let read = bucket.read("a").await.expect("it answers");
        read.is_none().then_some(())
    })
    .await;
    world.nothing_is_deleted(1).await;
    assert_eq!(world.names().await, ["a", "b"]);
}

#[tokio::test]
async fn missing_key_is_garbage_after_a_duration_as_an_opt_in() {
    let options = BucketOptions {
        marker_ttl: Duration::from_secs(1),
        ..single()
    };
    let mut world = World::start(&options).await;
    for key in ["a", "b", "exists"] {
        let held = world.create(key).await;
        if key != "exists" {
            world.bucket.delete(&held).await.expect("it is ours");
        }
    }
    let bucket = world.bucket.clone();
    eventually("the markers expire", || async {
        let [a, b] = [bucket.read("a").await, bucket.read("b").await];
        (a.expect("it answers").is_none() && b.expect("it answers").is_none()).then_some(())
    })
    .await;
    world.garbage = world.garbage.missing_after(Duration::from_hours(1));
    world.nothing_is_deleted(2).await;
    world.garbage = world.garbage.missing_after(Duration::ZERO);
    // A key that exists again has its secondary.
    create(&world.bucket, "b", 2).await;
    assert_eq!(world.pass().await, deleted(1));
    assert_eq!(world.names().await, ["b", "exists"]);
    // One pass that finds a key missing is not enough.
    let garbage = Garbage::new(&world.bucket, world.secondaries.clone(), Duration::ZERO);
    world.garbage = garbage.missing_after(Duration::ZERO);
    let held = world.create("c").await;
    world.bucket.delete(&held).await.expect("it is ours");
    eventually("the marker expires", || async {
        let read = bucket.read("c").await.expect("it answers");
        read.is_none().then_some(())
    })
    .await;
    assert_eq!(world.pass().await, kept(1));
    assert_eq!(world.pass().await, deleted(1));
}

#[tokio::test]
async fn new_bucket_deletes_nothing_of_the_old_one() {
    let mut world = World::start(&single()).await;
    for key in ["a", "b"] {
        world.create(key).await;
    }
    delete_bucket(&world.node).await;
    let missing = world.garbage.pass().await;
    assert!(
        matches!(missing, Err(SecondaryError::Bucket(_))),
        "{missing:?}"
    );
    let connection = connect(&settings(vec![world.node.url()])).await;
    open(&connection, &single()).await;
    world.nothing_is_deleted(2).await;
    // Keys of the new bucket prove nothing, and neither do its markers.
    world.create("c").await;
    let again = create(&world.bucket, "a", 1).await;
    world.bucket.delete(&again).await.expect("it is ours");
    world.nothing_is_deleted(2).await;
    // When the key is there again and its secondary is written, everything is as before.
    create(&world.bucket, "b", 1).await;
    world.nothing_is_deleted(1).await;
    assert_eq!(world.names().await, ["a", "b", "c"]);
}

#[tokio::test]
async fn restored_backup_deletes_nothing_that_it_lost() {
    let mut world = World::start(&single()).await;
    world.create("kept").await;
    let old = create(&world.bucket, "again", 1).await;
    world.bucket.delete(&old).await.expect("it is ours");
    world.node.stop();
    let backup = world.node.back_up();
    world.node.start_again();
    world.node.wait_until_healthy();
    let bucket = world.bucket.clone();
    eventually("the server answers", || async {
        bucket.read("kept").await.ok()
    })
    .await;
    for key in ["again", "lost.1", "lost.2"] {
        world.create(key).await;
    }
    world.node.stop();
    world.node.restore(&backup);
    world.node.start_again();
    world.node.wait_until_healthy();
    eventually("the server answers", || async {
        bucket.read("kept").await.ok()
    })
    .await;
    world.nothing_is_deleted(3).await;
    // More writes than the backup has lost.
    for key in ["new.1", "new.2", "new.3", "new.4"] {
        world.create(key).await;
    }
    world.nothing_is_deleted(3).await;
    // The marker of the first deletion is in the backup. The reconcile of it deletes nothing.
    let watched = Watched::start(&world.bucket, "").await;
    let marker = watched.markers.first().expect("it is in the backup");
    let ended = world.secondaries.delete("again", marker).await;
    ended.expect("the API server answers");
    let expected = [
        "again", "kept", "lost.1", "lost.2", "new.1", "new.2", "new.3", "new.4",
    ];
    assert_eq!(world.names().await, expected);
}

#[tokio::test]
async fn reconcile_of_a_deletion_deletes_the_secondary_of_its_key() {
    let world = World::start(&single()).await;
    let held = world.create("a").await;
    world.create("b").await;
    world.bucket.delete(&held).await.expect("it is ours");
    let watched = Watched::start(&world.bucket, "").await;
    let marker = watched.markers.first().expect("it was deleted");
    for name in ["b", "missing", "a"] {
        let ended = world.secondaries.delete(name, marker).await;
        ended.expect("the API server answers");
    }
    assert_eq!(world.names().await, ["b"]);
}

#[tokio::test]
async fn refused_deletion_does_not_keep_a_pass_from_others() {
    let mut world = World::start(&single()).await;
    for key in ["other.1", "stuck", "zone.1"] {
        let held = world.create(key).await;
        world.bucket.delete(&held).await.expect("it is ours");
    }
    world.refuse_deletion().await;
    assert_eq!(world.pass().await, kept(0));
    let refused = world.garbage.pass().await;
    assert!(
        matches!(refused, Err(SecondaryError::Kubernetes(_))),
        "{refused:?}"
    );
    assert_eq!(world.names().await, ["stuck"]);
    world.allow_deletion().await;
    assert_eq!(world.pass().await, deleted(1));
}

#[tokio::test]
async fn pass_after_an_interruption_is_a_first_one() {
    let mut world = World::start(&single()).await;
    let held = world.create("a").await;
    world.bucket.delete(&held).await.expect("it is ours");
    assert_eq!(world.pass().await, kept(0));
    world.node.pause();
    assert!(world.garbage.pass().await.is_err());
    world.node.resume();
    let bucket = world.bucket.clone();
    eventually("the server answers", || async {
        bucket.read("a").await.ok()
    })
    .await;
    assert_eq!(world.pass().await, kept(0));
    assert_eq!(world.pass().await, deleted(1));
}
