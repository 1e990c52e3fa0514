//! Registries of blocks, and what their records say.

use std::sync::Arc;

use capi_ipam_api::{BlockLengths, IPRegistry};

use super::*;
use crate::model::registry::tests::entries;
use crate::model::registry::{of_record, plan, unknown_block};
use crate::model::{
    BlockLine, BlockState, RegistryCheck, RegistryFacts, RegistryRelease, Unread, registry_lines,
};
use crate::objects::RegistryRow;

fn now() -> Timestamp {
    style().now
}

/// What the registry of three management clusters shows.
fn records() -> Vec<(&'static str, Value)> {
    let block = |address: &str, cluster: &str, contenders: &[&str]| {
        json!({
            "network": "region", "block": format!("{address}/26"), "cluster": cluster, "contenders": contenders,
            "used": 7,
        })
    };
    let cluster = |id: &str, seen: &str| json!({"cluster": id, "process": "1", "seen": seen, "exclusions": {"region": id}});
    vec![
        ("block.region.10.0.0.0-26", block("10.0.0.0", "west-1", &[])),
        ("block.region.10.0.0.64-26", block("10.0.0.64", "east", &[])),
        (
            "block.region.10.0.0.128-26",
            block("10.0.0.128", "east", &["west-1"]),
        ),
        ("block.region.10.0.0.192-26", json!({})),
        ("cluster.east", cluster("east", "2026-01-05T01:04:05Z")),
        ("cluster.west-1", cluster("west-1", "2026-01-05T03:03:35Z")),
        (
            "network.region",
            json!({"network": "region", "size": 64, "sizeOf": "east"}),
        ),
    ]
}

fn registry(records: Result<&[(&str, Value)], &str>) -> RegistryFacts {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "RegistryUnreachable", "message": "refused",
    });
    let conditions = if records.is_err() {
        json!([condition])
    } else {
        json!([{"type": "Ready", "status": "True"}])
    };
    let clusters = json!([{"id": "east", "blocks": 2, "lastSeen": "2026-01-05T02:00:00Z"}]);
    let object: IPRegistry = serde_json::from_value(json!({
        "metadata": {"name": "site"}, "spec": {"clusterID": "west-1"},
        "status": {"conditions": conditions, "clusters": clusters},
    }))
    .unwrap();
    RegistryFacts {
        row: RegistryRow::from(object),
        cluster: Some("west-1".to_owned()),
        records: match records {
            Ok(records) => Ok(Arc::new(entries(records))),
            Err(reason) => Err(Unread::new(reason.to_owned())),
        },
    }
}

fn region() -> NetworkRow {
    let network: IPNetwork = serde_json::from_value(json!({
        "metadata": {"name": "region"},
        "spec": {"blocks": {"registry": "site", "size": 64}},
        "status": {"blocks": {"held": 1, "spare": 0, "others": 3, "conflicts": 1}},
    }))
    .unwrap();
    NetworkRow::from(network)
}

#[test]
fn registries_show_clusters_and_networks() {
    let by_records = registry(Ok(&records()));
    let report = Report::RegistryList {
        registries: registry_lines(&[by_records], &[&region()], now()),
    };
    golden("registry.txt", &text(&report, style()));
    let wide = Style {
        wide: true,
        ..style()
    };
    golden("registry-wide.txt", &text(&report, wide));
    for (format, file) in [
        (Format::Json, "registry.json"),
        (Format::Yaml, "registry.yaml"),
        (Format::Name, "registry-name.txt"),
    ] {
        let text = output::format(&report, &[], format, style()).unwrap();
        golden(file, &text);
    }
}

#[test]
fn registry_that_cannot_be_read_is_shown_by_its_status() {
    let by_status = registry(Err("no route"));
    let report = Report::RegistryList {
        registries: registry_lines(&[by_status], &[&region()], now()),
    };
    let wide = Style {
        wide: true,
        ..style()
    };
    golden("registry-status.txt", &text(&report, wide));
}

#[test]
fn check_shows_who_has_the_blocks_in_use() {
    let rows = [
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.64",
        "10.0.0.129",
        "10.0.0.193",
        "10.0.1.4",
    ]
    .iter()
    .enumerate()
    .map(|(number, it)| address(&format!("vm-{number}"), it));
    let mut pool = web();
    pool.network = Some("region".to_owned());
    let objects = Objects::of([pool], rows, [], []);
    let records = entries(&records());
    let checked = |size| {
        let mut check = RegistryCheck {
            registry: "site".to_owned(),
            network: "region".to_owned(),
            cluster_id: "west-1".to_owned(),
            size,
            blocks: Vec::new(),
            problems: Vec::new(),
        };
        check.run(BlockLengths::default(), &objects, &records);
        check
    };
    let check = checked(64);
    assert!(check.has_problems());
    let report = Report::RegistryCheck(check);
    golden("registry-check.txt", &text(&report, style()));
    let other = text(&Report::RegistryCheck(checked(32)), style());
    let expected = "blocks of the network have 64 addresses in the registry, as management cluster east has set first, \
                    not 32";
    assert!(other.contains(expected), "{other}");
}

#[test]
fn release_lists_the_records_that_it_changes() {
    let plan = plan(&entries(&records()), "east", "west-1", now()).unwrap();
    let report = Report::RegistryRelease(RegistryRelease {
        registry: "site".to_owned(),
        cluster: "east".to_owned(),
        last_seen: plan.seen,
        dry_run: true,
        changes: plan.lines(),
    });
    golden("registry-release.txt", &text(&report, style()));
    let mut changes = plan.lines();
    changes.truncate(1);
    changes[0].used = Some(1);
    let lines = record_change_lines(&changes, false);
    assert!(lines.ends_with(", with 1 address in use\n"), "{lines}");
}

#[test]
fn who_names_the_management_cluster_of_a_block() {
    let records = entries(&records());
    let mut blocks = Vec::new();
    for number in [0, 64, 128, 192] {
        let block = Block::new(std::net::Ipv4Addr::new(10, 0, 0, number).into(), 26);
        let entry = records.block("region", block);
        let line = of_record("region", block, entry.as_deref(), Some("west-1"));
        blocks.push(line);
    }
    let block = Block::new("10.0.1.0".parse().unwrap(), 26);
    blocks.push(unknown_block("region", block, "no route".to_owned()));
    golden("who-blocks.txt", &block_holders(&blocks));
    let of = |state| -> Vec<BlockLine> {
        let of_state = blocks.iter().filter(|block| block.state == state);
        of_state.cloned().collect()
    };
    let other = no_holder("10.0.0.70", true, &of(BlockState::Other));
    assert!(
        other.contains("Management cluster east can have it in use"),
        "{other}"
    );
    let unknown = no_holder("10.0.0.70", true, &of(BlockState::Unknown));
    assert!(
        unknown.contains("It is unknown whether another one"),
        "{unknown}"
    );
    let own = no_holder("10.0.0.70", true, &of(BlockState::Held));
    assert_eq!(own, "\nNothing holds 10.0.0.70.\n");
}
