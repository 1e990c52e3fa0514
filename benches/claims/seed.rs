//! Seeds many bound claims: copies of one that the manager bound, written directly to etcd while no
//! manager runs.
//!
//! Every object of the API group that contains the uid of the claim is copied, with new names, uids
//! and addresses. The API server is stopped meanwhile: it would keep the events of the last minutes
//! in memory, about 20 GiB, which a server that has run for a while does not.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use support::control_plane::ControlPlane;
use support::wait::eventually_within;

use crate::api::{GROUP, folder};
use crate::claim_watch::ClaimWatch;
use crate::cluster::Cluster;
use crate::consumer::Consumer;

/// The number of objects per transaction of etcd, which allows 128.
const BATCH: usize = 100;
const PREFIX: &str = "seeded";

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
    format!("{PREFIX}-{number}")
}

/// Creates a namespace with a pool and `count` bound claims, without a running manager.
pub(crate) async fn seed(cluster: &mut Cluster<'_>, count: usize, state: Seeded) -> Consumer {
    let mut consumer = cluster.consumer("seeds", 1).await;
    let mut manager = cluster.start().await;
    let (_, made) = consumer.bind(PREFIX, 1, 0, None).await;
    cluster.settle(Some(&manager)).await;
    manager.stop();
    let originals = Originals::read(&cluster.plane, &made[0].uid, state);
    consumer.watch.stop();
    cluster.plane.stop_api_server();
    tokio::task::block_in_place(|| {
        originals.write_copies(&cluster.plane, count);
        cluster.plane.start_api_server();
    });
    for plural in ["ipaddressclaims", "ipaddresses", "ipreservations"] {
        let expected = if state != Seeded::Complete && plural == "ipreservations" {
            1
        } else {
            count
        };
        let (api, folder) = (&consumer.api, &folder("", plural));
        let what = format!("the API server has {expected} {plural}");
        eventually_within(Duration::from_mins(5), &what, || async move {
            (api.version_and_count(folder).await.ok()?.1 == expected).then_some(())
        })
        .await;
    }
    consumer.watch = ClaimWatch::start(&consumer.api, &consumer.namespace).await;
    consumer.present = count;
    cluster.settle(None).await;
    consumer
}

/// The objects of the first claim.
struct Originals {
    /// Keys and values.
    objects: Vec<(String, String)>,
    uids: Vec<String>,
    address: Ipv4Addr,
}

impl Originals {
    fn read(plane: &ControlPlane, claim: &str, state: Seeded) -> Self {
        let mut originals = Self {
            objects: Vec::new(),
            uids: Vec::new(),
            address: Ipv4Addr::UNSPECIFIED,
        };
        // The digit 0 follows the slash at the end of the prefix.
        let range = json!({
            "key": encoded(&format!("/registry/{GROUP}/")), "range_end": encoded(&format!("/registry/{GROUP}0")),
        });
        let found = plane
            .call_etcd("/v3/kv/range", &range)
            .expect("etcd responds");
        for pair in found["kvs"].as_array().into_iter().flatten() {
            let (key, value) = (decoded(&pair["key"]), decoded(&pair["value"]));
            if !value.contains(claim) {
                continue;
            }
            let mut object: Value =
                serde_json::from_str(&value).expect("objects of definitions are JSON");
            originals
                .uids
                .extend(object["metadata"]["uid"].as_str().map(str::to_owned));
            match object["kind"].as_str() {
                Some("IPReservation") if state != Seeded::Complete => continue,
                Some("IPAddress") => {
                    let address = object["spec"]["address"].as_str().map(str::parse);
                    originals.address = address
                        .and_then(Result::ok)
                        .expect("it has an IPv4 address");
                    if state == Seeded::WithoutOwners {
                        let metadata = object["metadata"]
                            .as_object_mut()
                            .expect("objects have metadata");
                        metadata.retain(|field, _| field != "ownerReferences" && field != "labels");
                    }
                }
                _ => {}
            }
            originals.objects.push((key, object.to_string()));
        }
        originals
    }

    /// Writes the copies of all claims but the first.
    fn write_copies(&self, plane: &ControlPlane, count: usize) {
        let copies: Vec<(usize, &(String, String))> = (1..count)
            .flat_map(|number| self.objects.iter().map(move |object| (number, object)))
            .collect();
        for batch in copies.chunks(BATCH) {
            let put = |&(number, (key, value)): &(usize, &(String, String))| {
                let [key, value] = [key, value].map(|text| encoded(&self.copy(text, number)));
                json!({"requestPut": {"key": key, "value": value}})
            };
            let puts: Vec<Value> = batch.iter().map(put).collect();
            plane
                .call_etcd("/v3/kv/txn", &json!({ "success": puts }))
                .expect("etcd writes the objects");
        }
    }

    /// A key or value for the claim with another number.
    fn copy(&self, text: &str, number: usize) -> String {
        let place = u32::try_from(number).expect("there are fewer claims than addresses");
        let address = Ipv4Addr::from(u32::from(self.address) + place);
        let mut text = text.replace(&name(0), &name(number));
        for (kind, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("{number:08x}-5eed-4000-8000-{kind:012x}"));
        }
        text.replace(&self.address.to_string(), &address.to_string())
    }
}

/// The text in base64.
fn encoded(text: &str) -> Value {
    json!(ByteString(text.as_bytes().to_vec()))
}

fn decoded(value: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(value.clone()).expect("etcd writes base64");
    String::from_utf8(bytes.0).expect("the objects are stored as JSON")
}
