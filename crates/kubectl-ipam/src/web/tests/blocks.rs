//! The blocks of networks that management clusters share.

use serde_json::json;

use super::sample::{
    break_blocks, many_blocks, own_block, receive, record, sample, shared_network,
};
use crate::error::MissingRight;
use crate::model::{BlockLine, BlockState, ClusterState, NetworkBlocks};
use crate::objects::Kind;
use crate::web::state::State;

/// A block of the table of a network.
fn block_of<'a>(blocks: &'a NetworkBlocks, block: &str) -> Option<&'a BlockLine> {
    blocks.blocks.iter().find(|line| line.block == block)
}

fn blocks(state: &State, network: &str) -> NetworkBlocks {
    state.blocks(network).unwrap().unwrap()
}

#[test]
fn holders_of_blocks_are_shown() {
    let state = sample();
    let all = state.overview();
    let region = all.networks.iter().find(|it| it.line.name == "region");
    let summary = region.unwrap().blocks.clone().unwrap();
    assert_eq!(
        (summary.held, summary.total.as_deref(), summary.conflicts),
        (Some(5), Some("64"), 0)
    );
    assert!(all.networks[0].blocks.is_none(), "backbone shares none");
    let shown = blocks(&state, "region");
    assert_eq!(shown.cluster_id.as_deref(), Some("west-1"));
    assert_eq!(shown.registry.state.ready, "True");
    assert!(shown.read.is_some() && shown.unread.is_none() && shown.is_complete);
    let clusters: Vec<_> = shown
        .clusters
        .iter()
        .map(|line| (line.cluster.as_str(), line.blocks, line.state))
        .collect();
    assert_eq!(
        clusters[..3],
        [
            ("east-1", 11, ClusterState::Alive),
            ("east-2", 6, ClusterState::Alive),
            ("north", 2, ClusterState::Stale)
        ]
    );
    assert_eq!((shown.blocks.len(), shown.more_blocks), (31, 0));
    assert_eq!(shown.blocks[0].block, "10.40.0.0/26", "the own ones first");

    let own = block_of(&shown, "10.40.0.64/26").unwrap();
    assert_eq!((own.state, own.used), (BlockState::Held, Some(25)));
    let other = block_of(&shown, "10.40.1.64/26").unwrap();
    assert_eq!((other.state, other.used), (BlockState::Other, Some(5)));
    assert_eq!(other.clusters, ["east-1"]);
    assert!(block_of(&shown, "10.40.15.0/26").is_none(), "free");

    assert!(state.blocks("backbone").unwrap().is_none());
    assert!(state.blocks("none").unwrap().is_none());
}

#[test]
fn broken_blocks_say_what_is_wrong() {
    let state = sample();
    break_blocks(&state);
    let campus = blocks(&state, "campus");
    assert!(campus.conflict.as_ref().unwrap().starts_with("2 blocks"));
    assert_eq!(campus.command, "kubectl ipam registry check campus");
    assert!(
        campus.read.is_some() && campus.unread.is_some(),
        "the last known records"
    );
    let of = |block: &str| block_of(&campus, block).unwrap();
    assert_eq!(of("10.40.2.0/27").state, BlockState::Other, "another size");
    let conflict = of("10.40.0.64/26");
    assert_eq!(campus.blocks[0], *conflict, "the most urgent first");
    assert_eq!(conflict.state, BlockState::Conflict);
    assert_eq!(conflict.clusters, ["west-1", "east-1"]);
    assert_eq!(of("10.40.0.128/26").clusters, ["west-1", "unknown"]);
    assert!(
        of("10.40.0.192/26")
            .note
            .as_ref()
            .unwrap()
            .contains("not confirmed")
    );
    assert!(
        of("10.40.1.0/26")
            .note
            .as_ref()
            .unwrap()
            .contains("no IPSlice")
    );
    assert_eq!(of("10.40.1.64/26").clusters, ["east-1", "north"]);
    let texts = campus.clusters.iter().map(|line| line.cluster.as_str());
    for text in texts.chain(of("10.40.1.192/26").clusters.iter().map(String::as_str)) {
        assert!(text.chars().count() <= 121, "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
    }

    // Without the records, it is unknown who has the other blocks.
    let branch = blocks(&state, "branch");
    assert!(branch.read.is_none());
    assert!(branch.unread.unwrap().contains("secrets"));
    let clusters: Vec<_> = branch
        .clusters
        .iter()
        .map(|line| (line.cluster.as_str(), line.blocks))
        .collect();
    assert_eq!(clusters, [("east-1", 12), ("north", 1)]);
    assert_eq!(branch.blocks.len(), 3);

    // What may not be listed is unknown.
    let right = |resource: &str| MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    };
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Address)
            .missing(right("addresses"))
    });
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Registry)
            .missing(right("registries"))
    });
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Slice)
            .missing(right("slices"))
    });
    let part = blocks(&state, "region");
    assert!(!part.is_complete);
    assert_eq!(block_of(&part, "10.40.0.64/26").unwrap().used, None);
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Network)
            .missing(right("networks"))
    });
    assert!(state.blocks("none").is_err());
}

#[test]
fn table_of_very_many_blocks_has_a_bounded_size() {
    let state = sample();
    many_blocks(&state);
    let shown = blocks(&state, "fabric");
    assert_eq!((shown.clusters.len(), shown.more_clusters), (16, 83));
    assert_eq!((shown.blocks.len(), shown.more_blocks), (500, 9_500));
    assert_eq!(shown.total, "16384");
    let size = serde_json::to_string(&shown).unwrap().len();
    assert!(size < 200_000, "{size} bytes");
}

#[test]
fn records_that_cannot_be_read_leave_the_last_known_ones() {
    let state = sample();
    let status = json!({});
    shared_network(&state, ("lab", "lab-registry"), "10.41.0.0/24", &status);
    own_block(&state, "lab", "10.41.0.0", 1, &json!({}));
    let unknown = blocks(&state, "lab");
    assert_eq!(
        (unknown.read, &unknown.unread),
        (None, &None),
        "not read yet"
    );
    assert_eq!(unknown.registry.exists, Some(false));
    let of_east = record("lab", "10.41.0.64", &json!({ "cluster": "east" }));
    receive(&state, "lab-registry", Ok(&[of_east]));
    let read = blocks(&state, "lab").read;
    receive(&state, "lab-registry", Err("no answer"));
    let last = blocks(&state, "lab");
    assert_eq!(
        (last.read, last.unread.as_deref()),
        (read, Some("no answer"))
    );
    let other = block_of(&last, "10.41.0.64/26").unwrap();
    assert_eq!(other.state, BlockState::Other);
    let version = state.overview().version;
    receive(&state, "lab-registry", Ok(&[]));
    assert!(
        state.overview().version > version,
        "the page gets the change"
    );
    let again = blocks(&state, "lab");
    assert!(again.unread.is_none() && block_of(&again, "10.41.0.64/26").is_none());
}
