//! The controller of keys against a real nats-server and a real API server.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

use std::path::Path;

use capi_ipam_nats::{Bucket, BucketOptions, Connection, Created, KvObject, Settings};
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options as PlaneOptions};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::wait::{consistently, eventually};
use serde_json::{Value, json};

struct World {
    plane: ControlPlane,
    node: Node,
}

impl World {
    fn start() -> Self {
        Self {
            plane: ControlPlane::start(PlaneOptions::default(), &Installation::default()),
            node: Node::start(Options::default()),
        }
    }

    /// Starts the program. It becomes the leader when the lease of an earlier one expires.
    fn launch(&self) -> Manager {
        let program = Path::new(env!("CARGO_BIN_EXE_nats-controller"));
        let nats = format!("--nats-servers={}", self.node.url());
        let flags = [
            "--single",
            nats.as_str(),
            "--leader-elect",
            "--leader-elect-lease-duration=8s",
            "--leader-elect-renew-deadline=7s",
            "--leader-elect-retry-period=500ms",
        ];
        let kubeconfig = self.plane.kubeconfig();
        let manager = Manager::start_program(&self.plane, program, kubeconfig, &flags);
        manager.wait_until_ready();
        manager
    }

    /// The bucket of keys as another program uses it.
    async fn bucket(&self) -> Bucket<Value> {
        self.bucket_of("example").await
    }

    async fn bucket_of(&self, name: &str) -> Bucket<Value> {
        let settings = Settings {
            servers: vec![self.node.url()],
            ..Settings::default()
        };
        let connection = Connection::open(&settings).await.expect("it runs");
        let options = BucketOptions {
            create: true,
            single: true,
            ..BucketOptions::default()
        };
        let bucket = Bucket::open(&connection, name, &options).await;
        bucket.expect("it is created")
    }

    async fn read(&self, key: &str) -> Option<KvObject<Value>> {
        let read = self.bucket().await.read(key).await;
        read.expect("it answers")
    }

    /// Writes a key, whatever it contains.
    async fn put(&self, key: &str, text: &str) {
        let value = json!({ "data": { "text": text } });
        eventually("the key is written", || async {
            let bucket = self.bucket().await;
            match bucket.create(key, &value).await.ok()? {
                Created::Now(_) => Some(()),
                // The controller may write its status at the same time.
                Created::Taken(held) => bucket.update(&held, &value).await.ok().map(drop),
            }
        })
        .await;
    }

    async fn delete(&self, key: &str) {
        eventually("the key is deleted", || async {
            let held = self.read(key).await.expect("it exists");
            self.bucket().await.delete(&held).await.ok()
        })
        .await;
    }

    /// Publishes a text as the value of a key.
    async fn publish(&self, key: &str, text: &'static str) {
        let jetstream = self.jetstream().await;
        let published = jetstream
            .publish(format!("$KV.example.{key}"), text.into())
            .await;
        published.expect("it is sent").await.expect("it is stored");
    }

    async fn jetstream(&self) -> async_nats::jetstream::Context {
        let client = async_nats::connect(self.node.url()).await;
        async_nats::jetstream::new(client.expect("it runs"))
    }

    /// The status of a key.
    async fn status(&self, key: &str) -> Option<String> {
        let value = self.read(key).await?.value?;
        Some(value.get("status")?.as_str()?.to_owned())
    }

    /// The text in a ConfigMap; `None` if it does not exist.
    fn text(&self, name: &str) -> Option<String> {
        let get = ["get", "configmap", name, "--ignore-not-found", "-o=json"];
        let object: Value = serde_json::from_str(&self.plane.kubectl(&get)).ok()?;
        let text = object.pointer("/data/text").and_then(Value::as_str);
        Some(text.unwrap_or_default().to_owned())
    }

    async fn wait_for_text(&self, name: &str, expected: Option<&str>) {
        eventually(&format!("{name} is {expected:?}"), || async {
            (self.text(name).as_deref() == expected).then_some(())
        })
        .await;
    }

    /// Waits until the other bucket has the size of a ConfigMap, or does not have it.
    async fn wait_for_size(&self, name: &str, expected: Option<u64>) {
        let sizes = self.bucket_of("example-sizes").await;
        let key = format!("size.{name}");
        eventually(&format!("{key} is {expected:?}"), || async {
            let found = sizes.read(&key).await.ok()?;
            let size = found.and_then(|found| found.value?.as_u64());
            (size == expected).then_some(())
        })
        .await;
    }

    async fn wait_for_status(&self, key: &str, expected: &str) {
        eventually(&format!("the status of {key} is {expected:?}"), || async {
            let status = self.status(key).await?;
            status.contains(expected).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn keys_become_config_maps() {
    let world = World::start();
    let manager = world.launch();
    world.put("config.web", "one").await;
    world.wait_for_text("web", Some("one")).await;
    world.wait_for_status("config.web", "ready").await;
    world.put("config.web", "two").await;
    world.wait_for_text("web", Some("two")).await;

    // What somebody changes or deletes is repaired.
    let patch = r#"{"data": {"text": "three"}}"#;
    let patched = ["patch", "configmap", "web", "--type=merge", "-p", patch];
    world.plane.kubectl(&patched);
    world.wait_for_text("web", Some("two")).await;
    world.plane.kubectl(&["delete", "configmap", "web"]);
    world.wait_for_text("web", Some("two")).await;
    world.wait_for_size("web", Some(1)).await;
    let sizes = world.bucket_of("example-sizes").await;
    let size = sizes.read("size.web").await.expect("it answers");
    let deleted = sizes.delete(&size.expect("it exists")).await;
    deleted.expect("only a change of its key writes it");
    world.wait_for_size("web", Some(1)).await;

    // A ConfigMap of somebody else stays as it is, and the key says so.
    let foreign = ["create", "configmap", "foreign", "--from-literal=text=own"];
    world.plane.kubectl(&foreign);
    world.put("config.foreign", "one").await;
    world
        .wait_for_status("config.foreign", "does not belong to key")
        .await;
    assert_eq!(world.text("foreign").as_deref(), Some("own"));

    // A value that cannot be decoded exists: its ConfigMap stays.
    world.publish("config.web", "{").await;
    manager.wait_for_log("cannot be decoded");
    world.put("config.other", "one").await;
    world.wait_for_text("other", Some("one")).await;
    assert_eq!(world.text("web").as_deref(), Some("two"));

    for key in ["config.web", "config.other", "config.foreign"] {
        world.delete(key).await;
    }
    for name in ["web", "other"] {
        world.wait_for_text(name, None).await;
        world.wait_for_size(name, None).await;
    }
    assert_eq!(world.text("foreign").as_deref(), Some("own"));
}

#[tokio::test]
async fn killed_controller_catches_up() {
    let world = World::start();
    let mut manager = world.launch();
    for key in ["config.changed", "config.deleted"] {
        world.put(key, "one").await;
        world.wait_for_status(key, "ready").await;
    }
    manager.kill();
    world.put("config.changed", "two").await;
    world.put("config.created", "one").await;
    world.delete("config.deleted").await;
    let _manager = world.launch();
    world.wait_for_text("changed", Some("two")).await;
    world.wait_for_text("created", Some("one")).await;
    world.wait_for_text("deleted", None).await;
}

#[tokio::test]
async fn controller_recovers_when_nats_returns() {
    let mut world = World::start();
    let mut manager = world.launch();
    world.put("config.web", "one").await;
    world.wait_for_status("config.web", "ready").await;
    world.node.stop();
    manager.wait_for_log("the watch is interrupted, retrying");
    world.plane.kubectl(&["delete", "configmap", "web"]);
    // The cache of the controller has the key.
    world.wait_for_text("web", Some("one")).await;
    world.node.start_again();
    world.node.wait_until_healthy();
    world.put("config.web", "two").await;
    world.wait_for_text("web", Some("two")).await;
    let log = manager.log();
    let is_report = |line: &&str| {
        line.contains("the watch is interrupted, retrying")
            && line.contains("keys of bucket example\"")
    };
    let reports: Vec<_> = log.lines().filter(is_report).collect();
    assert_eq!(reports.len(), 1, "it is said once: {reports:?}");
    assert!(manager.is_running());
}

/// Nothing is deleted because a bucket is empty.
#[tokio::test]
async fn lost_bucket_deletes_nothing() {
    let world = World::start();
    let manager = world.launch();
    world.put("config.web", "one").await;
    world.wait_for_status("config.web", "ready").await;
    let jetstream = world.jetstream().await;
    let stream = jetstream.get_stream("KV_example").await;
    let config = stream.expect("it exists").cached_info().config.clone();
    let deleted = jetstream.delete_stream("KV_example").await;
    deleted.expect("it exists");
    manager.wait_for_log("does not exist");
    let created = jetstream.create_stream(config).await;
    created.expect("it is valid");
    world.put("config.new", "two").await;
    world.wait_for_text("new", Some("two")).await;
    let world = &world;
    consistently("the ConfigMap of a lost key stays", || async move {
        world.text("web").as_deref() == Some("one")
    })
    .await;
    world.put("config.web", "three").await;
    world.wait_for_text("web", Some("three")).await;
}

#[tokio::test]
async fn server_without_jetstream_is_one_line() {
    let plane = ControlPlane::start(PlaneOptions::default(), &Installation::default());
    let node = Node::start(Options {
        without_jetstream: true,
        ..Options::default()
    });
    let program = Path::new(env!("CARGO_BIN_EXE_nats-controller"));
    let nats = format!("--nats-servers={}", node.url());
    let flags = ["--single", nats.as_str()];
    let mut manager = Manager::start_program(&plane, program, plane.kubeconfig(), &flags);
    let expected = "error: cannot set up the program: JetStream is not enabled for the account at \
                    NATS server single: enable it";
    let status = eventually("the program ends", || {
        std::future::ready(manager.exit_status())
    })
    .await;
    assert_eq!(status.code(), Some(1));
    let log = manager.log();
    assert!(log.lines().any(|line| line.starts_with(expected)), "{log}");
}
