//! The registry in a bucket of one nats-server.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_registry::{
    BucketOptions, Credentials, Deadlines, NatsRegistry, NatsSettings, Registry, RegistryError,
};
use capi_ipam_testing::nats::{Node, Options};
use tokio::time::sleep;

use crate::support::{self, assert_one_line, block_key, create, update};
use capi_ipam_controller::client::error_chain;

/// The name of the bucket.
pub(crate) const BUCKET: &str = "ipam";

/// Settings with deadlines that are long enough for a busy machine.
pub(crate) fn settings(servers: Vec<String>) -> NatsSettings {
    NatsSettings {
        name: "test".to_owned(),
        deadlines: Deadlines {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(10),
        },
        ..NatsSettings::new(servers)
    }
}

/// Options of a bucket with one replica, whose watches notice everything soon.
pub(crate) fn options() -> BucketOptions {
    BucketOptions {
        single: true,
        create: true,
        heartbeat: Duration::from_millis(500),
        check_interval: Duration::from_millis(500),
        ..BucketOptions::default()
    }
}

/// Opens the bucket, which is created.
async fn open(settings: &NatsSettings) -> Result<Registry, RegistryError> {
    let opened = NatsRegistry::open(settings, BUCKET, &options()).await?;
    Ok(Arc::new(opened))
}

/// One server.
pub(crate) struct World {
    node: Node,
}

impl support::World for World {
    async fn start() -> Self {
        Self {
            node: Node::start(Options::default()),
        }
    }

    async fn open(&self) -> Result<Registry, RegistryError> {
        open(&settings(vec![self.node.url()])).await
    }

    async fn open_denied() -> RegistryError {
        let node = Node::start(Options {
            authorization: Some("token: secret".to_owned()),
            ..Options::default()
        });
        let settings = NatsSettings {
            credentials: Credentials::Token("another".to_owned()),
            ..settings(vec![node.url()])
        };
        open(&settings).await.expect_err("the token is another one")
    }

    fn kill(&mut self) {
        self.node.kill();
    }

    fn start_again(&mut self) {
        self.node.start_again();
        self.node.wait_until_healthy();
    }

    fn bad_records() -> Vec<(String, String)> {
        let large = format!("{{\"later\": \"{}\"}}", "x".repeat(100_000));
        let records = [
            (block_key(100), "{"),
            (block_key(101), "{}"),
            (block_key(102), large.as_str()),
            (
                block_key(103),
                r#"{"network": "other", "block": "10.0.25.192/26", "cluster": "a"}"#,
            ),
            ("block.lab.garbage".to_owned(), "{}"),
        ];
        records.map(|(key, text)| (key, text.to_owned())).into()
    }

    async fn write_bad(&self, key: &str, text: &str) {
        let client = async_nats::connect(self.node.url()).await;
        let jetstream = async_nats::jetstream::new(client.expect("it runs"));
        let subject = format!("$KV.{BUCKET}.{key}");
        let sent = jetstream.publish(subject, text.to_owned().into()).await;
        sent.expect("it is sent").await.expect("it is stored");
    }

    async fn without_answers<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &mut self,
        operation: impl FnOnce(Registry) -> F + Send,
    ) -> T {
        let deadline = Duration::from_secs(3);
        let mut settings = settings(vec![self.node.url()]);
        settings.deadlines.request = deadline;
        let registry = open(&settings).await.expect("it runs");
        self.node.pause();
        let running = tokio::spawn(operation(registry));
        // After the deadline of the write, and before that of the read that follows it.
        sleep(deadline.mul_f64(1.3)).await;
        self.node.resume();
        running.await.expect("no panic")
    }
}

/// The permissions that the crate for NATS documents, without that to create the bucket.
#[tokio::test]
async fn user_of_the_bucket_needs_no_other_permissions() {
    let publish = [
        "$KV.ipam.>",
        "$JS.API.STREAM.INFO.KV_ipam",
        "$JS.API.STREAM.MSG.GET.KV_ipam",
        "$JS.API.CONSUMER.CREATE.KV_ipam.>",
        "$JS.API.CONSUMER.DELETE.KV_ipam.*",
        "$JS.FC.KV_ipam.>",
    ];
    let authorization = format!(
        "users: [{{ user: admin, password: secret }}, {{ user: ipam, password: secret, \
         permissions: {{ publish: {publish:?}, subscribe: [\"_INBOX.>\"] }} }}]"
    );
    let node = Node::start(Options {
        authorization: Some(authorization),
        ..Options::default()
    });
    let as_user = |user: &str| NatsSettings {
        credentials: Credentials::Password {
            user: user.to_owned(),
            password: "secret".to_owned(),
        },
        ..settings(vec![node.url()])
    };
    open(&as_user("admin")).await.expect("it is created");
    let limited = as_user("ipam");
    let existing = BucketOptions {
        create: false,
        ..options()
    };
    let opened = NatsRegistry::open(&limited, BUCKET, &existing).await;
    let registry: Registry = Arc::new(opened.expect("it may"));
    let watched = support::Watched::complete(&registry).await;
    let held = create(&registry, &block_key(1), "west").await;
    let held = update(&registry, &held, "west").await;
    watched.until_holders(&["west"]).await;
    registry.delete(&held).await.expect("it may");
    watched.until_holders(&[]).await;
    create(&registry, &block_key(1), "east").await;
    let denied = NatsRegistry::open(&limited, "other", &existing).await;
    let denied = denied.expect_err("it may not");
    let text = error_chain(&denied);
    assert!(matches!(denied, RegistryError::Forbidden { .. }), "{text}");
    assert_one_line(&text);
}

/// An empty bucket in the place of one that was lost would hide the loss.
#[tokio::test]
async fn missing_bucket_is_not_created() {
    let node = Node::start(Options::default());
    let settings = settings(vec![node.url()]);
    let error = NatsRegistry::open(&settings, BUCKET, &BucketOptions::default()).await;
    let error = error.expect_err("it is missing");
    let text = error_chain(&error);
    assert!(matches!(error, RegistryError::Invalid { .. }), "{text}");
    assert!(text.contains("does not exist"), "{text}");
    assert_one_line(&text);
}
