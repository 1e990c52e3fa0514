//! Many bound claims at once: copies of one that the manager bound, written straight into etcd while no manager runs.
//!
//! Whatever the manager made for its claim is copied: every object of the API group that has the claim's uid in it. The
//! copies have their own names, uids and addresses. The API server is away meanwhile: it would keep all that was written
//! in the last minutes, some 20 GiB of it, which no server has that has had the claims for a while.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use capi_ipam::calls::{addresses, claims, GROUP, reservations};
use capi_ipam::claim_watch::ClaimWatch;
use capi_ipam::consumer::Consumer;
use capi_ipam::cluster::Cluster;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{handshake, SendRequest};
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde_json::{json, Value};

/// How many objects one transaction of etcd writes; it allows 128.
const AT_ONCE: usize = 100;
/// The name of the claim that is copied; the copies have other digits.
const FIRST: &str = "seeded-0000000";

/// Makes a namespace with a pool and so many claims that are bound, and no manager running. Says how long the writing
/// took.
pub(crate) async fn seed(stage: &mut Cluster<'_>, count: usize) -> (Consumer, Duration) {
    let mut consumer = stage.consumer("seeded", 1).await;
    let mut manager = stage.start().await;
    let (_, made) = consumer.bind(&[FIRST.to_owned()], None).await;
    stage.settle(Some(&manager)).await;
    manager.stop();
    drop(manager);
    let uid = &made[0].uid;
    let mut etcd = Etcd::connect(&stage.plane.etcd_url()).await;
    let originals = Originals::read(&mut etcd, uid).await;
    let started = Instant::now();
    consumer.watch.end();
    stage.plane.stop_api_server();
    let mut batch = Vec::with_capacity(AT_ONCE);
    for number in 1..count {
        for (kind, object) in originals.objects.iter().enumerate() {
            batch.push(originals.copy(object, uid, number, kind));
            if batch.len() == AT_ONCE {
                etcd.put(&std::mem::take(&mut batch)).await;
            }
        }
    }
    if !batch.is_empty() {
        etcd.put(&batch).await;
    }
    tokio::task::block_in_place(|| stage.plane.start_api_server());
    for folder in [claims(&consumer.namespace), addresses(&consumer.namespace), reservations()] {
        let found = consumer.calls.count_when_loaded(&folder).await;
        assert_eq!(found, count, "the API server has all copies in {folder}");
    }
    consumer.watch = ClaimWatch::start(&consumer.calls, &consumer.namespace).await;
    let took = started.elapsed();
    stage.settle(None).await;
    (consumer, took)
}

/// What the manager made for the first claim.
struct Originals {
    /// Keys and values.
    objects: Vec<(String, String)>,
    address: String,
    /// The uid of each object.
    uids: Vec<String>,
}

impl Originals {
    async fn read(etcd: &mut Etcd, uid: &str) -> Self {
        let mut objects = etcd.read(&format!("/registry/{GROUP}/")).await;
        objects.retain(|(_, value)| value.contains(uid));
        let parsed = objects.iter().map(|(_, value)| serde_json::from_str::<Value>(value));
        let parsed: Vec<Value> = parsed.collect::<Result<_, _>>().expect("objects of definitions are stored as JSON");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let address = parsed.iter().find(|object| object["kind"] == "IPAddress").expect("the claim has an IPAddress");
        let address = text(&address["spec"]["address"]).expect("an IPAddress has an address");
        let uids = parsed.iter().map(|object| text(&object["metadata"]["uid"]).expect("objects have a uid"));
        Self { uids: uids.collect(), objects, address }
    }

    /// An object as it is for the claim of another number.
    fn copy(&self, (key, value): &(String, String), claim: &str, number: usize, kind: usize) -> (String, String) {
        let name = format!("seeded-{number:07}");
        let base: Ipv4Addr = self.address.parse().expect("the pool is one of IPv4 addresses");
        let place = u32::try_from(number).expect("there are fewer claims than addresses");
        let address = Ipv4Addr::from(u32::from(base) + place).to_string();
        let uid = |kind: usize| format!("{number:08x}-5eed-4000-8000-{kind:012x}");
        let claim_kind = self.uids.iter().position(|uid| uid == claim).expect("the claim is among the objects");
        let replace = |text: &str| {
            let text = text.replace(FIRST, &name).replace(&self.address, &address).replace(claim, &uid(claim_kind));
            text.replace(&self.uids[kind], &uid(kind))
        };
        (replace(key), replace(value))
    }
}

/// Speaks to etcd through its gateway for JSON.
struct Etcd {
    connection: SendRequest<Full<Bytes>>,
    host: String,
}

impl Etcd {
    async fn connect(url: &str) -> Self {
        let host = url.strip_prefix("http://").expect("etcd speaks plain HTTP here").to_owned();
        let stream = tokio::net::TcpStream::connect(&host).await.expect("etcd listens");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("etcd speaks HTTP");
        tokio::spawn(connection);
        Self { connection: sender, host }
    }

    async fn call(&mut self, path: &str, body: &Value) -> Value {
        let request = http::Request::post(path).header("host", &self.host);
        let request = request.body(Full::from(body.to_string())).expect("the request is written as it should be");
        self.connection.ready().await.expect("etcd keeps the connection");
        let answer = self.connection.send_request(request).await.expect("etcd answers");
        let code = answer.status();
        let text = answer.into_body().collect().await.expect("the answer has a body").to_bytes();
        assert!(code.is_success(), "etcd says {code}: {}", String::from_utf8_lossy(&text));
        serde_json::from_slice(&text).expect("etcd answers in JSON")
    }

    /// All keys that begin so, and their values.
    async fn read(&mut self, prefix: &str) -> Vec<(String, String)> {
        // The digit 0 comes after the slash at the prefix's end.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let answer = self.call("/v3/kv/range", &json!({"key": encoded(prefix), "range_end": encoded(&end)})).await;
        let pairs = answer["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        pairs.iter().map(|pair| (decoded(&pair["key"]), decoded(&pair["value"]))).collect()
    }

    async fn put(&mut self, pairs: &[(String, String)]) {
        let put =
            |(key, value): &(String, String)| json!({"requestPut": {"key": encoded(key), "value": encoded(value)}});
        let puts: Vec<Value> = pairs.iter().map(put).collect();
        self.call("/v3/kv/txn", &json!({"success": puts})).await;
    }
}

/// The text in base64.
fn encoded(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec())).expect("bytes can be written as text")
}

fn decoded(value: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(value.clone()).expect("etcd writes bytes in base64");
    String::from_utf8(bytes.0).expect("the objects are stored as JSON")
}
