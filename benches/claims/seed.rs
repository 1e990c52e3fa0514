//! Seeds many bound claims: copies of one that the manager bound, written directly to etcd while no
//! manager runs.
//!
//! Every object of the API group that contains the uid of the claim is copied, with new names, uids
//! and addresses. The API server is stopped meanwhile: it would keep the events of the last minutes
//! in memory, about 20 GiB, which a server that has run for a while does not.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::api_client::{GROUP, addresses, claims, reservations};
use crate::claim_watch::ClaimWatch;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use support::control_plane::ControlPlane;

/// The number of objects per transaction of etcd, which allows 128.
const BATCH: usize = 100;
/// The name of the claim that is copied; the copies have other digits.
const FIRST: &str = "seeded-0000000";

/// What the copies lack. The first claim is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seeded {
    /// Nothing.
    Complete,
    /// The owners and labels of the IPAddresses, and the reservations: as after a restore.
    WithoutOwners,
    /// The reservations: as the Go provider leaves them.
    WithoutReservations,
}

/// The name of the claim with a number.
pub(crate) fn name(number: usize) -> String {
    format!("seeded-{number:07}")
}

/// Creates a namespace with a pool and `count` bound claims, without a running manager. Returns how
/// long the writes took.
pub(crate) async fn seed(
    cluster: &mut Cluster<'_>,
    count: usize,
    state: Seeded,
) -> (Consumer, Duration) {
    let mut consumer = cluster.consumer("seeded", 1).await;
    let mut manager = cluster.start().await;
    let (_, made) = consumer.bind(&[FIRST.to_owned()], None).await;
    cluster.settle(Some(&manager)).await;
    manager.stop();
    drop(manager);
    let uid = &made[0].uid;
    let mut originals = Originals::read(&cluster.plane, uid);
    originals.remove(state);
    let started = Instant::now();
    consumer.watch.stop();
    cluster.plane.stop_api_server();
    tokio::task::block_in_place(|| {
        write_copies(&cluster.plane, &originals, uid, count);
        cluster.plane.start_api_server();
    });
    for folder in [
        claims(&consumer.namespace),
        addresses(&consumer.namespace),
        reservations(),
    ] {
        let is_left_out = state != Seeded::Complete && folder == reservations();
        let found = consumer.api.count_when_loaded(&folder).await;
        assert_eq!(
            found,
            if is_left_out { 1 } else { count },
            "the API server has all copies in {folder}"
        );
    }
    consumer.watch = ClaimWatch::start(&consumer.api, &consumer.namespace).await;
    let took = started.elapsed();
    cluster.settle(None).await;
    (consumer, took)
}

/// Writes the copies of all claims but the first.
fn write_copies(plane: &ControlPlane, originals: &Originals, uid: &str, count: usize) {
    let mut batch = Vec::with_capacity(BATCH);
    for number in 1..count {
        for (kind, object) in originals.objects.iter().enumerate() {
            batch.push(originals.copy(object, uid, number, kind));
            if batch.len() == BATCH {
                put(plane, &std::mem::take(&mut batch));
            }
        }
    }
    if !batch.is_empty() {
        put(plane, &batch);
    }
}

/// The objects of the first claim.
struct Originals {
    /// Keys and values.
    objects: Vec<(String, String)>,
    address: String,
    /// The uid of each object.
    uids: Vec<String>,
}

impl Originals {
    fn read(plane: &ControlPlane, uid: &str) -> Self {
        let mut objects = read(plane, &format!("/registry/{GROUP}/"));
        objects.retain(|(_, value)| value.contains(uid));
        let parsed = objects
            .iter()
            .map(|(_, value)| serde_json::from_str::<Value>(value));
        let parsed: Vec<Value> = parsed
            .collect::<Result<_, _>>()
            .expect("objects of definitions are stored as JSON");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let address = parsed
            .iter()
            .find(|object| object["kind"] == "IPAddress")
            .expect("the claim has an IPAddress");
        let address = text(&address["spec"]["address"]).expect("an IPAddress has an address");
        let uids = parsed
            .iter()
            .map(|object| text(&object["metadata"]["uid"]).expect("objects have a uid"));
        Self {
            uids: uids.collect(),
            objects,
            address,
        }
    }

    /// Removes what the copies lack.
    fn remove(&mut self, state: Seeded) {
        if state == Seeded::Complete {
            return;
        }
        let all = std::mem::take(&mut self.objects)
            .into_iter()
            .zip(std::mem::take(&mut self.uids));
        for ((key, value), uid) in all {
            let mut object: Value =
                serde_json::from_str(&value).expect("objects of definitions are stored as JSON");
            match object["kind"].as_str() {
                Some("IPReservation") => continue,
                Some("IPAddress") if state == Seeded::WithoutOwners => {
                    let metadata = object["metadata"]
                        .as_object_mut()
                        .expect("an object has metadata");
                    metadata.remove("ownerReferences");
                    metadata.remove("labels");
                }
                _ => {}
            }
            self.objects.push((key, object.to_string()));
            self.uids.push(uid);
        }
    }

    /// A copy of an object for the claim with another number.
    fn copy(
        &self,
        (key, value): &(String, String),
        claim: &str,
        number: usize,
        kind: usize,
    ) -> (String, String) {
        let name = name(number);
        let base: Ipv4Addr = self
            .address
            .parse()
            .expect("the pool is one of IPv4 addresses");
        let place = u32::try_from(number).expect("there are fewer claims than addresses");
        let address = Ipv4Addr::from(u32::from(base) + place).to_string();
        let uid = |kind: usize| format!("{number:08x}-5eed-4000-8000-{kind:012x}");
        let claim_kind = self
            .uids
            .iter()
            .position(|uid| uid == claim)
            .expect("the claim is among the objects");
        let replace = |text: &str| {
            let text = text
                .replace(FIRST, &name)
                .replace(&self.address, &address)
                .replace(claim, &uid(claim_kind));
            text.replace(&self.uids[kind], &uid(kind))
        };
        (replace(key), replace(value))
    }
}

/// All keys of etcd with a prefix, and their values.
fn read(plane: &ControlPlane, prefix: &str) -> Vec<(String, String)> {
    // The digit 0 follows the slash at the end of the prefix.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    let range = json!({"key": encoded(prefix), "range_end": encoded(&end)});
    let answer = plane
        .call_etcd("/v3/kv/range", &range)
        .expect("etcd responds");
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    pairs
        .map(|pair| (decoded(&pair["key"]), decoded(&pair["value"])))
        .collect()
}

/// Writes keys and values to etcd in one transaction.
fn put(plane: &ControlPlane, pairs: &[(String, String)]) {
    let put = |(key, value): &(String, String)| json!({"requestPut": {"key": encoded(key), "value": encoded(value)}});
    let puts: Vec<Value> = pairs.iter().map(put).collect();
    plane
        .call_etcd("/v3/kv/txn", &json!({"success": puts}))
        .expect("etcd writes the objects");
}

/// The text in base64.
fn encoded(text: &str) -> Value {
    serde_json::to_value(ByteString(text.as_bytes().to_vec()))
        .expect("bytes can be written as text")
}

fn decoded(value: &Value) -> String {
    let bytes: ByteString =
        serde_json::from_value(value.clone()).expect("etcd writes bytes in base64");
    String::from_utf8(bytes.0).expect("the objects are stored as JSON")
}
