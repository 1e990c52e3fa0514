//! Records of an earlier version, in which blocks had no quarantine.

use jiff::Timestamp;
use support::prelude::*;

use crate::restored::administrator;
use crate::site::{Hub, NETWORK, Site, key_of};

async fn put(hub: &Hub, key: &str, record: Value) {
    let jetstream = administrator(hub).await;
    let subject = format!("$KV.ipam.{key}");
    let sent = jetstream.publish(subject, record.to_string().into()).await;
    sent.expect("it is sent").await.expect("it is stored");
}

/// A block that another cluster was returning is in quarantine, for the default time.
#[tokio::test]
async fn records_of_an_earlier_version_are_understood() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let excluded = json!({"north": ["10.0.1.1"]});
    let network = json!({"network": NETWORK, "size": 4, "sizeOf": "north", "excluded": excluded});
    put(&site.hub, &format!("network.{NETWORK}"), network).await;
    let now = Timestamp::from_second(Timestamp::now().as_second()).expect("it is valid");
    for (block, empty_since) in [("10.0.1.0/30", Some(now)), ("10.0.1.4/30", None)] {
        let record = json!({
            "network": NETWORK, "block": block, "cluster": "north", "since": now, "emptySince": empty_since,
        });
        put(&site.hub, &key_of(NETWORK, block), record).await;
    }
    site.west.create_pool("p", "10.0.1.0-10.0.1.11").await;
    let bound = site.west.bind("p", &numbered("w-", 4)).await;
    assert!(bound.values().any(|address| address == "10.0.1.9"));
    site.west.wait_for_blocks(&["10.0.1.8/30"]).await;
}
