//! Registries of blocks that management clusters share.

use std::sync::Arc;

use capi_ipam_api::{IPNetwork, IPRegistry, IPSlice};

use super::*;
use crate::model::registry::tests::entries;
use crate::model::{RegistryFacts, Unread};
use crate::objects::{NetworkRow, RegistryRow, SliceRow};

/// A registry with a condition and these records, or a reason why they cannot be read.
fn registry(ready: &Value, records: Result<&[(&str, Value)], &str>) -> RegistryFacts {
    let seen = json!([
        {"id": "east", "blocks": 12, "lastSeen": ago(1201)},
        {"id": "north", "blocks": 1, "lastSeen": ago(1200)},
        {"id": "west", "blocks": 1, "lastSeen": ago(7200)},
    ]);
    let object: IPRegistry = serde_json::from_value(json!({
        "metadata": {"name": "site"},
        "spec": {"clusterID": "west"},
        "status": {"conditions": [ready], "clusters": seen},
    }))
    .unwrap();
    let records = match records {
        Ok(records) => Ok(Arc::new(entries(records))),
        Err(reason) => Err(Unread::new(reason.to_owned())),
    };
    RegistryFacts {
        row: RegistryRow::from(object),
        cluster: Some("west".to_owned()),
        records,
    }
}

fn with_registry(ready: &Value, records: Result<&[(&str, Value)], &str>) -> Snapshot {
    Snapshot {
        registries: Readable::complete(vec![registry(ready, records)]),
        ..empty()
    }
}

fn ready() -> Value {
    json!({"type": "Ready", "status": "True"})
}

fn block(address: &str, cluster: &str) -> (String, Value) {
    let record = json!({"network": "lab", "block": format!("{address}/26"), "cluster": cluster});
    (format!("block.lab.{address}-26"), record)
}

#[test]
fn repair_of_a_registry_depends_on_the_reason() {
    let edit = "correct what the message names: kubectl edit ipregistries site";
    let missing = "registry cannot be used: bucket ipam does not exist: create it";
    for (reason, message, repair) in [
        ("RegistryUnreachable", "refused", "repair the registry, or"),
        (
            "ClusterIDInUse",
            "west",
            "set a different spec.clusterID in the copy",
        ),
        ("InvalidSpec", "spec.nats.servers: x", edit),
        ("InvalidSpec", missing, "create what the message names"),
    ] {
        let mut condition = not_ready(reason);
        condition["message"] = json!(message);
        let snapshot = with_registry(&condition, Ok(&[]));
        let text = format!("error IPRegistry site: {reason}: {message}");
        assert_eq!(found(&snapshot, Check::RegistryNotReady), [text]);
        let found = finding(&snapshot, Check::RegistryNotReady).repair;
        assert!(found.starts_with(repair), "{found}");
    }
    assert!(found(&with_registry(&ready(), Ok(&[])), Check::RegistryNotReady).is_empty());
}

/// A network that shares blocks through the registry "site", with these conditions.
fn network(conditions: &Value) -> Snapshot {
    let object: IPNetwork = serde_json::from_value(json!({
        "metadata": {"name": "lab"}, "spec": {"blocks": {"registry": "site", "size": 64}},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    let mut snapshot = empty();
    snapshot.objects.add_network(NetworkRow::from(object));
    snapshot
}

#[test]
fn what_a_network_reports_is_found_with_its_repair() {
    let of_type = |type_: &str| json!({"type": type_, "status": "True", "message": "about it"});
    for (condition, check, severity, repair) in [
        (
            not_ready("RegistryNotFound"),
            Check::NetworkNotReady,
            "error",
            "create the IPRegistry site",
        ),
        (
            not_ready("NetworkRecordInvalid"),
            Check::NetworkNotReady,
            "error",
            "correct the record network.lab of the registry, or delete it: the management clusters write it again",
        ),
        (
            not_ready("InvalidSpec"),
            Check::NetworkNotReady,
            "error",
            "correct it: kubectl edit ipnetworks lab",
        ),
        (
            not_ready("BlockSizeDiffers"),
            Check::BlockSizeDiffers,
            "error",
            "use the size of the other management clusters: kubectl edit ipnetworks lab",
        ),
        (
            of_type("BlockConflict"),
            Check::BlockConflict,
            "error",
            "release the claims with addresses of these blocks in one of the two management clusters",
        ),
        (
            of_type("ExclusionsDiffer"),
            Check::ExclusionsDiffer,
            "warning",
            "apply the same pools and the same IPNetwork to all management clusters",
        ),
    ] {
        let findings = diagnosis(&network(&json!([condition]))).findings;
        let [found] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert_eq!(
            (found.check, word(found.severity).as_str()),
            (check, severity)
        );
        let texts = [&found.object, &found.problem, &found.repair];
        assert_eq!(texts, ["IPNetwork lab", "about it", repair]);
    }
    let equal = json!({"type": "ExclusionsDiffer", "status": "False", "message": ""});
    for condition in [equal, not_ready("Deleting")] {
        let findings = diagnosis(&network(&json!([condition]))).findings;
        assert!(findings.is_empty(), "{findings:?}");
    }
}

#[test]
fn cluster_without_a_sign_of_life_is_found() {
    let text = |severity: &str, count: &str| {
        format!(
            "{severity} IPRegistry site: management cluster east has given no sign of life for more than 10 minutes, and \
             has {count}"
        )
    };
    // The times of the status are rounded down. Another finding reports this cluster.
    let by_status = with_registry(&ready(), Err("refused"));
    let expected = [text("warning", "12 blocks")];
    assert_eq!(found(&by_status, Check::StaleCluster), expected);
    let cluster = |id: &str, seconds: i64| {
        let record = json!({"cluster": id, "process": "1", "seen": ago(seconds)});
        (format!("cluster.{id}"), record)
    };
    let (east, north) = (cluster("east", 601), cluster("north", 600));
    let records = [(&*east.0, east.1.clone()), (&*north.0, north.1.clone())];
    let by_records = with_registry(&ready(), Ok(&records));
    let expected = [text("note", "0 blocks")];
    assert_eq!(found(&by_records, Check::StaleCluster), expected);
    let (name, record) = block("10.0.0.0", "east");
    let records = [(&*east.0, east.1.clone()), (&*name, record)];
    let by_records = with_registry(&ready(), Ok(&records));
    let expected = [text("warning", "1 block")];
    assert_eq!(found(&by_records, Check::StaleCluster), expected);
}

#[test]
fn record_without_a_slice_is_found() {
    let blocks = [
        block("10.0.0.0", "west"),
        block("10.0.0.64", "west"),
        block("10.0.0.128", "east"),
    ];
    let mut records: Vec<(&str, Value)> = Vec::new();
    for (name, record) in &blocks {
        records.push((name, record.clone()));
    }
    let mut snapshot = with_registry(&ready(), Ok(&records));
    let slice: IPSlice = serde_json::from_value(json!({
        "metadata": {"name": "n.lab.10.0.0.0-26"},
        "spec": {"scope": "n.lab", "block": "10.0.0.0/26",
                 "owner": {"kind": "ManagementCluster", "name": "west"}},
    }))
    .unwrap();
    snapshot.objects.add_slice(SliceRow::from(slice));
    let without = found(&snapshot, Check::RecordWithoutSlice);
    assert_eq!(without.len(), 1, "{without:?}");
    let begin = "warning block 10.0.0.64/26 of IPNetwork lab: IPRegistry site has a record";
    assert!(without[0].starts_with(begin), "{without:?}");
}

#[test]
fn records_that_cannot_be_read_are_unknown() {
    let diagnosis = diagnosis(&with_registry(&ready(), Err("refused")));
    let mut unchecked = diagnosis.unchecked.iter();
    let unknown = unchecked.find(|it| it.check == Check::RecordWithoutSlice);
    let reason = &unknown.unwrap().reason;
    let expected = "the records of IPRegistry site cannot be read from here: refused";
    assert_eq!(reason, expected);
}
