//! What is said at the start when something is not usable.

use std::time::{Duration, Instant};

use capi_ipam_nats::{
    Bucket, BucketOptions, Connection, ConnectionError, Credentials, Invalid, KvError, Settings,
    Tls,
};
use capi_ipam_testing::nats::{Cluster, Node, Options};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::certificates::{Certificates, Validity};
use crate::support::{BUCKET, Item, chain, connect, create, open, replicated, settings, single};

/// The error of a connection that has to fail.
pub(crate) async fn refused(settings: &Settings) -> ConnectionError {
    let error = Connection::open(settings).await.expect_err("it is refused");
    println!("{}", chain(&error));
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

/// The error of a bucket that has to be refused.
async fn not_opened(connection: &Connection, options: &BucketOptions) -> Invalid {
    let error = Bucket::<Item>::open(connection, BUCKET, options).await;
    let error = error.expect_err("it is refused");
    println!("{}", chain(&error));
    assert!(!error.to_string().contains('\n'), "{error}");
    match error {
        KvError::Invalid(invalid) => invalid,
        other => panic!("{}", chain(&other)),
    }
}

/// A server with TLS, its certificates, and settings of a client of it.
fn encrypted(server: Validity, client: Validity) -> (Node, Certificates, Settings) {
    let certificates = Certificates::new(server, client);
    let node = Node::start(Options {
        tls: Some(certificates.server_files()),
        verify_clients: true,
        ..Options::default()
    });
    let mut settings = settings(vec![node.url()]);
    settings.tls = Some(Tls {
        authorities: certificates.authority().to_owned(),
        identity: Some(certificates.client()),
    });
    (node, certificates, settings)
}

#[tokio::test]
async fn encrypted_connection_with_client_certificate_works() {
    let (_node, _certificates, settings) = encrypted(Validity::Valid, Validity::Valid);
    let bucket = open(&connect(&settings).await, &single()).await;
    create(&bucket, "a", 1).await;
}

#[tokio::test]
async fn expired_server_certificate_is_named() {
    let (_node, _certificates, settings) = encrypted(Validity::Expired, Validity::Valid);
    let error = refused(&settings).await;
    let is_named = matches!(error, ConnectionError::ServerCertificateExpired { .. });
    assert!(is_named, "{}", chain(&error));
}

#[tokio::test]
async fn expired_client_certificate_is_named() {
    let (_node, _certificates, settings) = encrypted(Validity::Valid, Validity::Expired);
    let error = refused(&settings).await;
    let is_named = matches!(error, ConnectionError::ClientCertificateExpired { .. });
    assert!(is_named, "{}", chain(&error));
}

#[tokio::test]
async fn unknown_authority_is_refused() {
    let (_node, _certificates, mut settings) = encrypted(Validity::Valid, Validity::Valid);
    let other = Certificates::new(Validity::Valid, Validity::Valid);
    settings.tls = Some(Tls {
        authorities: other.authority().to_owned(),
        identity: None,
    });
    let error = refused(&settings).await;
    let is_named = matches!(error, ConnectionError::Tls { .. });
    assert!(is_named, "{}", chain(&error));
}

#[tokio::test]
async fn server_without_tls_is_refused_if_tls_is_configured() {
    let node = Node::start(Options::default());
    let certificates = Certificates::new(Validity::Valid, Validity::Valid);
    let mut settings = settings(vec![node.url()]);
    settings.tls = Some(Tls {
        authorities: certificates.authority().to_owned(),
        identity: None,
    });
    refused(&settings).await;
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let node = Node::start(Options {
        authorization: Some("user: ipam, password: right".to_owned()),
        ..Options::default()
    });
    let mut settings = settings(vec![node.url()]);
    let password = |password: &str| Credentials::Password {
        user: "ipam".to_owned(),
        password: password.to_owned(),
    };
    let wrong = [
        Credentials::None,
        Credentials::Token("right".to_owned()),
        password("wrong"),
    ];
    for credentials in wrong {
        settings.credentials = credentials;
        let error = refused(&settings).await;
        let is_named = matches!(error, ConnectionError::Credentials { .. });
        assert!(is_named, "{:?}: {}", settings.credentials, chain(&error));
    }
    settings.credentials = password("right");
    connect(&settings).await;
}

/// The server is one that only introduces itself.
#[tokio::test]
async fn old_server_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it has an address").port();
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let info = "INFO {\"server_name\":\"old\",\"version\":\"2.12.2\",\
                    \"max_payload\":1048576,\"headers\":true,\"jetstream\":true}\r\n";
        stream.write_all(info.as_bytes()).await.expect("a client");
        stream.write_all(b"PONG\r\n").await.expect("a client");
        stream
    };
    let settings = settings(vec![format!("nats://127.0.0.1:{port}")]);
    let (_stream, error) = tokio::join!(serve, refused(&settings));
    let ConnectionError::Invalid(invalid) = error else {
        panic!("{error}");
    };
    assert!(matches!(invalid, Invalid::Version { .. }), "{invalid}");
}

#[tokio::test]
async fn unreachable_server_is_named() {
    let settings = settings(vec!["nats://localhost:1".to_owned()]);
    let error = refused(&settings).await;
    let is_named = matches!(error, ConnectionError::Unreachable { .. });
    assert!(is_named, "{}", chain(&error));
}

#[tokio::test]
async fn paused_server_ends_the_attempt_to_connect() {
    let mut node = Node::start(Options::default());
    node.pause();
    let mut settings = settings(vec![node.url()]);
    settings.deadlines.connect = Duration::from_millis(200);
    refused(&settings).await;
    node.resume();
}

/// Servers that accept connections and never answer, and their URLs.
async fn silent_servers(count: usize) -> (Vec<TcpListener>, Vec<String>) {
    let mut listeners = Vec::new();
    let mut urls = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        urls.push(format!("nats://{address}"));
        listeners.push(listener);
    }
    (listeners, urls)
}

#[tokio::test]
async fn silent_servers_have_one_deadline() {
    let (_silent, urls) = silent_servers(20).await;
    let mut settings = settings(urls);
    settings.deadlines.connect = Duration::from_secs(1);
    let began = Instant::now();
    refused(&settings).await;
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}

/// The servers are tried in random order.
#[tokio::test]
async fn server_beside_silent_ones_is_found() {
    let node = Node::start(Options::default());
    let (_silent, mut urls) = silent_servers(3).await;
    urls.push(node.url());
    connect(&settings(urls)).await;
}

#[tokio::test]
async fn server_without_jetstream_is_named() {
    let node = Node::start(Options {
        without_jetstream: true,
        ..Options::default()
    });
    let connection = connect(&settings(vec![node.url()])).await;
    let invalid = not_opened(&connection, &single()).await;
    assert!(matches!(invalid, Invalid::NoJetStream { .. }), "{invalid}");
}

#[tokio::test]
async fn account_without_jetstream_is_named() {
    let node = Node::start(Options {
        configuration: "accounts { A: { users: [{user: a, password: a}] } }".to_owned(),
        ..Options::default()
    });
    let mut settings = settings(vec![node.url()]);
    settings.credentials = Credentials::Password {
        user: "a".to_owned(),
        password: "a".to_owned(),
    };
    let invalid = not_opened(&connect(&settings).await, &single()).await;
    assert!(matches!(invalid, Invalid::NoJetStream { .. }), "{invalid}");
}

#[tokio::test]
async fn missing_bucket_is_named() {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    let options = BucketOptions {
        create: false,
        ..single()
    };
    let invalid = not_opened(&connection, &options).await;
    assert!(matches!(invalid, Invalid::Missing { .. }), "{invalid}");
}

#[tokio::test]
async fn too_few_replicas_are_named() {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    // One server cannot have three replicas.
    let invalid = not_opened(&connection, &replicated()).await;
    assert!(matches!(invalid, Invalid::Replicas { .. }), "{invalid}");
    // A bucket that exists has one.
    open(&connection, &single()).await;
    let invalid = not_opened(&connection, &replicated()).await;
    assert!(matches!(invalid, Invalid::Replicas { .. }), "{invalid}");
}

#[tokio::test]
async fn bucket_of_another_shape_is_named() {
    let node = Node::start(Options::default());
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let config = async_nats::jetstream::stream::Config {
        name: "KV_ipam".to_owned(),
        subjects: vec!["$KV.ipam.>".to_owned()],
        max_messages_per_subject: 1,
        max_age: Duration::from_hours(1),
        allow_message_ttl: true,
        ..Default::default()
    };
    jetstream.create_stream(config).await.expect("it is valid");
    let connection = connect(&settings(vec![node.url()])).await;
    let invalid = not_opened(&connection, &single()).await;
    let Invalid::Shape { problems, .. } = &invalid else {
        panic!("{invalid}");
    };
    let texts = problems.join("\n");
    assert!(texts.contains("discard"), "{texts}");
    assert!(texts.contains("expire"), "{texts}");
}

#[tokio::test]
async fn cluster_of_three_creates_a_replicated_bucket() {
    let cluster = Cluster::start(&Options::default());
    let connection = connect(&settings(cluster.urls())).await;
    let bucket = open(&connection, &replicated()).await;
    create(&bucket, "a", 1).await;
}

/// The permissions that the documentation of the crate lists.
#[tokio::test]
async fn limited_user_needs_the_documented_permissions_only() {
    let publish = [
        "$KV.ipam.>",
        "$JS.API.STREAM.INFO.KV_ipam",
        "$JS.API.STREAM.MSG.GET.KV_ipam",
        "$JS.API.STREAM.CREATE.KV_ipam",
        "$JS.API.CONSUMER.CREATE.KV_ipam.>",
        "$JS.API.CONSUMER.DELETE.KV_ipam.*",
        "$JS.FC.KV_ipam.>",
    ];
    let authorization = format!(
        "users: [{{ user: ipam, password: secret, permissions: \
         {{ publish: {publish:?}, subscribe: [\"_INBOX.>\"] }} }}]"
    );
    let node = Node::start(Options {
        authorization: Some(authorization),
        ..Options::default()
    });
    let mut settings = settings(vec![node.url()]);
    settings.credentials = Credentials::Password {
        user: "ipam".to_owned(),
        password: "secret".to_owned(),
    };
    settings.deadlines.request = Duration::from_secs(5);
    let connection = connect(&settings).await;
    let bucket = open(&connection, &single()).await;
    let held = create(&bucket, "a", 1).await;
    let mut watched = crate::support::Watched::start(&bucket, "").await;
    bucket.delete(&held).await.expect("it may");
    watched
        .until("the deletion arrives", |watched| watched.objects.is_empty())
        .await;
    let other = Bucket::<Item>::open(&connection, "other", &single()).await;
    let error = chain(&other.expect_err("it may not"));
    assert!(error.contains("denies"), "{error}");
}
