//! A manager starts with blocks of its management cluster.

use std::sync::Arc;

use capi_ipam_registry::{Entry, Record};
use support::prelude::*;

use crate::faults::start_with_api_server;
use crate::interceptor::{Held, Interceptor};
use crate::site::{Hub, ManagementCluster, NETWORK, key_of};

/// Longer than a manager waits for the list of all records: then the IPSlices decide on blocks of whose records
/// nothing is known.
const WAIT: Duration = Duration::from_secs(8);

/// Creates a claim that requests an address. It has the same name.
async fn request(cluster: &ManagementCluster, address: &str) {
    let metadata = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": address}});
    let consumer = &cluster.consumer;
    consumer
        .create_claim_with_metadata(address, "p", metadata)
        .await;
}

/// The record of a block of the network.
async fn record(hub: &Hub, block: &str) -> Entry {
    let found = hub.open().await.read(&key_of(NETWORK, block)).await;
    let found = found.expect("the record can be read");
    found.expect("the record exists")
}

/// Names east in the record of a block, as the holder or as one that uses addresses of it.
async fn name_east(hub: &Hub, block: &str, is_holder: bool) {
    let held = record(hub, block).await;
    let Some(Record::Block(known)) = held.record() else {
        panic!("it is the record of a block");
    };
    let mut changed = known.clone();
    let east = "east".to_owned();
    if is_holder {
        changed.cluster = east;
    } else {
        changed.contenders.push(east);
    }
    let registry = hub.open().await;
    let written = registry.update(&held, &Record::Block(changed)).await;
    written.expect("the record can be written");
}

/// The records of the own blocks are read one by one. Only those are used that the registry shows as those of
/// this cluster alone, before the list of all records and as long as there is none.
#[tokio::test(flavor = "multi_thread")]
async fn own_blocks_are_used_before_all_records_are_listed() {
    let interceptor = Arc::new(Interceptor::default());
    let hub = Hub::kubernetes();
    let west = start_with_api_server(&interceptor, &hub, "west").await;
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    west.create_network(NETWORK, blocks).await;
    west.create_pool("p", "10.0.1.0-10.0.1.255").await;
    for address in ["10.0.1.1", "10.0.1.5", "10.0.1.9", "10.0.1.13"] {
        request(&west, address).await;
        west.consumer.wait_for_address(address).await;
    }
    west.kill();
    name_east(&hub, "10.0.1.4/30", false).await;
    name_east(&hub, "10.0.1.8/30", true).await;
    let lost = record(&hub, "10.0.1.12/30").await;
    let deleted = hub.open().await.delete(&lost).await;
    deleted.expect("the record can be deleted");

    interceptor.hold(Held::RecordLists, true);
    let others = ["10.0.1.6", "10.0.1.10", "10.0.1.14"];
    for address in others {
        request(&west, address).await;
    }
    request(&west, "10.0.1.2").await;
    west.restart();
    west.consumer.wait_for_address("10.0.1.2").await;
    tokio::time::sleep(WAIT).await;
    for address in others {
        let found = west.consumer.addresses().get(address).await;
        let found = found.expect("addresses can be read");
        assert!(found.is_none(), "{address} is in use");
    }

    // The list shows that a record is missing, which is written again.
    interceptor.hold(Held::RecordLists, false);
    west.consumer.wait_for_address("10.0.1.14").await;
    let text = west.wait_for_conflict("True").await;
    for block in ["10.0.1.4/30", "10.0.1.8/30"] {
        assert!(text.contains(block), "{text}");
    }
}
