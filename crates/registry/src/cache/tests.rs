use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::entry::Version;
use crate::record::Problem;

/// A version in the bucket that the watch shows.
fn at(revision: u64) -> Version {
    Version::Bucket {
        incarnation: Some("1".into()),
        revision,
    }
}

fn entry(key: &str, version: Version, cluster: &str) -> Entry {
    let json = match Key::parse(key) {
        Some(Key::Block { network, block }) => format!(
            r#"{{"network": "{network}", "block": "{}", "cluster": "{cluster}"}}"#,
            crate::cidr(block)
        ),
        _ => format!(r#"{{"cluster": "{cluster}", "process": "a"}}"#),
    };
    Entry {
        key: key.to_owned(),
        version,
        value: crate::decode(key, &json),
    }
}

fn deleted(key: &str, version: Version) -> Entry {
    Entry {
        key: key.to_owned(),
        version,
        value: Err(Problem::Deleted),
    }
}

/// The cache sees the record of the block `BLOCK` in a version.
fn see(cache: &RecordCache, revision: u64, cluster: &str) {
    respond(cache, &entry(BLOCK, at(revision), cluster));
}

/// The cache sees the response to a request that was sent just now.
fn respond(cache: &RecordCache, entry: &Entry) {
    cache.apply_response(entry, cache.list_number());
}

fn assert_holder(cache: &RecordCache, expected: Option<&str>) {
    let known = cache.get(&Key::parse(BLOCK).unwrap());
    let holder = known.as_deref().map(|entry| match entry.record() {
        Some(Record::Block(record)) => record.cluster.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(holder, expected);
}

const BLOCK: &str = "block.lab.10.0.0.0-26";

#[test]
fn later_version_counts_in_any_order() {
    let cache = RecordCache::default();
    see(&cache, 7, "west");
    see(&cache, 6, "east");
    assert_holder(&cache, Some("west"));
    // The answer to an own write does not say in which bucket it was.
    let own = Version::Bucket {
        incarnation: None,
        revision: 8,
    };
    respond(&cache, &entry(BLOCK, own, "north"));
    assert_holder(&cache, Some("north"));
    see(&cache, 7, "west");
    assert_holder(&cache, Some("north"));
}

#[test]
fn late_answer_does_not_bring_a_deleted_record_back() {
    let cache = RecordCache::default();
    cache.remove(&deleted(BLOCK, at(8)));
    see(&cache, 7, "west");
    assert_holder(&cache, None);
    see(&cache, 9, "east");
    cache.remove(&deleted(BLOCK, at(8)));
    assert_holder(&cache, Some("east"));
}

#[test]
fn response_does_not_bring_back_what_a_later_list_lacks() {
    let cache = RecordCache::default();
    let before = cache.list_number();
    let handler: &dyn EventHandler<Entry> = &cache;
    handler.init();
    cache.apply_response(&entry(BLOCK, at(7), "west"), before);
    handler.init_done();
    assert_holder(&cache, None);
    cache.apply_response(&entry(BLOCK, at(7), "west"), before);
    assert_holder(&cache, None);
    // A record that the list has is not less than what it shows.
    cache.apply_response(&entry(BLOCK, at(7), "west"), cache.list_number());
    assert_holder(&cache, Some("west"));
    cache.apply_response(&entry(BLOCK, at(8), "east"), before);
    assert_holder(&cache, Some("east"));
}

#[test]
fn response_from_before_a_restore_does_not_count() {
    let cache = RecordCache::default();
    see(&cache, 5, "east");
    let before = cache.list_number();
    let handler: &dyn EventHandler<Entry> = &cache;
    handler.restored();
    cache.apply_response(&entry(BLOCK, at(9), "west"), before);
    assert_holder(&cache, Some("east"));
}

#[test]
fn record_that_a_read_has_not_found_counts_again() {
    let cache = RecordCache::default();
    let held = entry(BLOCK, at(7), "west");
    respond(&cache, &held);
    cache.forget(&entry(BLOCK, at(6), "west"));
    assert_holder(&cache, Some("west"));
    cache.forget(&held);
    assert_holder(&cache, None);
    respond(&cache, &held);
    assert_holder(&cache, Some("west"));
}

#[test]
fn list_removes_what_it_does_not_contain() {
    let cache = RecordCache::default();
    assert!(!cache.is_complete());
    let other = "block.lab.10.0.0.64-26";
    see(&cache, 1, "west");
    cache.init();
    respond(&cache, &entry(other, at(2), "west"));
    cache.init_done();
    assert!(cache.is_complete());
    assert_eq!(cache.blocks("lab").len(), 1);
    // A record that is written during a list stays.
    cache.init();
    see(&cache, 3, "west");
    respond(&cache, &entry(other, at(2), "west"));
    cache.init_done();
    assert_eq!(cache.blocks("lab").len(), 2);
}

#[test]
fn watch_has_shown_what_precedes_its_last_event() {
    let cache = RecordCache::default();
    let handler: &dyn EventHandler<Entry> = &cache;
    let own = Version::Bucket {
        incarnation: None,
        revision: 5,
    };
    let other = "block.lab.10.0.0.64-26";
    respond(&cache, &entry(BLOCK, own.clone(), "west"));
    assert!(
        !cache.has_watched(&own),
        "the answer to a write is no event"
    );
    // A list shows the last write of each name in any order.
    handler.init();
    handler.apply(&entry(other, at(6), "east"));
    assert!(!cache.has_watched(&own));
    handler.init_done();
    assert!(cache.has_watched(&own));
    assert!(!cache.has_watched(&at(7)));
    handler.delete(&deleted(other, at(7)));
    assert!(cache.has_watched(&at(7)));
    // After an interruption the next list has to be complete.
    handler.init();
    assert!(!cache.has_watched(&own));
}

#[test]
fn blocks_of_a_cluster_are_found_by_their_records() {
    let cache = RecordCache::default();
    for (key, cluster) in [
        ("block.lab.10.0.0.0-26", "west"),
        ("block.lab.10.0.0.64-26", "west"),
        ("block.site.10.0.0.0-26", "east"),
        ("block.test.10.0.0.0-26", "north"),
        ("network.other", "west"),
    ] {
        respond(&cache, &entry(key, at(1), cluster));
    }
    let mut contended = entry("block.test.10.0.0.0-26", at(2), "north");
    if let Ok(Record::Block(record)) = &mut contended.value {
        record.contenders.push("west".to_owned());
    }
    respond(&cache, &contended);
    let mut found = Vec::new();
    for (network, block, _) in cache.blocks_naming("west") {
        found.push(format!("{network} {}", crate::cidr(block)));
    }
    let expected = ["lab 10.0.0.0/26", "lab 10.0.0.64/26", "test 10.0.0.0/26"];
    assert_eq!(found, expected);
}

#[test]
fn changed_blocks_are_remembered_until_they_are_taken() {
    let cache = RecordCache::default();
    let changed = || match cache.take_changed_blocks() {
        ChangedBlocks::These(blocks) => Some(blocks.len()),
        ChangedBlocks::Many => None,
    };
    assert_eq!(changed(), Some(0));
    see(&cache, 1, "west");
    see(&cache, 2, "east");
    respond(&cache, &entry("cluster.west", at(3), "west"));
    assert_eq!(changed(), Some(1));
    see(&cache, 2, "east");
    assert_eq!(changed(), Some(0), "nothing has changed");
    cache.remove(&deleted(BLOCK, at(4)));
    assert_eq!(changed(), Some(1));
    // A list does not contain the record.
    see(&cache, 5, "east");
    cache.init();
    cache.init_done();
    assert_eq!(changed(), Some(1));
    for number in 0..=MAX_CHANGED_BLOCKS {
        let (high, low) = (number / 256, number % 256);
        let key = format!("block.lab.10.0.{high}.{low}-32");
        respond(&cache, &entry(&key, at(6), "west"));
    }
    assert_eq!(changed(), None);
    assert_eq!(changed(), Some(0));
}

#[test]
fn clusters_that_exclude_other_addresses_are_found() {
    let cache = RecordCache::default();
    assert!(cache.differing_exclusions("west").is_empty());
    for (id, exclusions) in [
        ("west", &[("lab", "1"), ("site", "1")][..]),
        ("east", &[("lab", "2"), ("site", "1"), ("test", "2")]),
        ("north", &[("lab", "3")]),
        ("south", &[("lab", "1")]),
        ("old", &[]),
    ] {
        let mut sign = entry(&format!("cluster.{id}"), at(1), id);
        if let Ok(Record::Cluster(record)) = &mut sign.value {
            let texts = exclusions
                .iter()
                .map(|(network, hash)| [*network, *hash].map(str::to_owned));
            record.exclusions = texts.map(|[network, hash]| (network, hash)).collect();
        }
        respond(&cache, &sign);
    }
    let differing = cache.differing_exclusions("west");
    let differing: Vec<_> = differing
        .iter()
        .map(|(network, ids)| (&**network, ids.join(" ")))
        .collect();
    let expected = [("lab", "east north"), ("site", "")];
    assert_eq!(
        differing,
        expected.map(|(network, ids)| (network, ids.to_owned()))
    );
    assert!(cache.differing_exclusions("old").is_empty());
}

#[test]
fn restored_registry_shows_earlier_versions() {
    let cache = RecordCache::default();
    see(&cache, 100, "west");
    cache.remove(&deleted("cluster.west", at(99)));
    cache.restored();
    // The response of a server that is behind is no loss.
    see(&cache, 7, "east");
    respond(&cache, &entry("cluster.west", at(6), "west"));
    assert_holder(&cache, Some("east"));
    assert_eq!(cache.clusters().len(), 1);
    assert!(!cache.has_lost_writes());
    cache.restored();
    EventHandler::apply(&cache, &entry(BLOCK, at(5), "east"));
    assert!(cache.has_lost_writes());
    cache.note_loss();
    assert!(!cache.has_lost_writes());
}

#[test]
fn list_that_shows_all_writes_is_no_loss() {
    let cache = RecordCache::default();
    see(&cache, 11, "west");
    respond(&cache, &entry("cluster.west", at(12), "west"));
    cache.restored();
    cache.init();
    EventHandler::apply(&cache, &entry(BLOCK, at(11), "west"));
    EventHandler::delete(&cache, &deleted("cluster.west", at(14)));
    cache.init_done();
    assert!(!cache.has_lost_writes());
}

#[test]
fn versions_that_a_registry_has_lost_are_accepted_again() {
    let cache = RecordCache::default();
    see(&cache, 11, "west");
    // The servers have lost the last writes, and so the list does not contain the record.
    cache.restored();
    cache.init();
    cache.init_done();
    assert_holder(&cache, None);
    assert!(cache.has_lost_writes());
    for revision in [10, 11] {
        see(&cache, revision, "east");
        assert_holder(&cache, Some("east"));
    }
}

#[test]
fn list_without_a_restore_remembers_what_was_deleted() {
    let cache = RecordCache::default();
    see(&cache, 11, "west");
    cache.init();
    cache.init_done();
    see(&cache, 11, "west");
    assert_holder(&cache, None);
    see(&cache, 12, "east");
    assert_holder(&cache, Some("east"));
}

#[test]
fn entries_are_found_by_kind_and_network() {
    let cache = RecordCache::default();
    for key in [
        "block.lab.fd00-0000-0000-0000-0000-0000-0000-0000-64",
        "block.lab.10.0.0.64-26",
        BLOCK,
        "block.lab.a.10.0.0.0-26",
        "block.la.10.0.0.0-26",
        "cluster.west",
        "network.lab",
        "garbage",
    ] {
        respond(&cache, &entry(key, at(1), "west"));
    }
    let blocks = cache.blocks("lab");
    let names: Vec<_> = blocks
        .iter()
        .map(|(block, _)| crate::cidr(*block))
        .collect();
    assert_eq!(names, ["10.0.0.0/26", "10.0.0.64/26", "fd00::/64"]);
    let clusters: Vec<_> = cache.clusters().into_keys().collect();
    assert_eq!(clusters, ["west".into()]);
    assert_eq!(cache.network("lab"), None, "it cannot be decoded");
    // The network is no record here.
    assert_eq!(cache.problems().len(), 2);
    let block = Block::new("10.0.0.0".parse().unwrap(), 26);
    assert!(cache.block("lab", block).is_some());
    assert_eq!(cache.entries().len(), 8);
}

#[test]
fn each_change_but_a_sign_of_life_wakes_the_listener() {
    let cache = RecordCache::default();
    let is_woken = || cache.changed().now_or_never().is_some();
    assert!(!is_woken());
    see(&cache, 1, "west");
    assert!(is_woken());
    see(&cache, 1, "west");
    assert!(!is_woken());
    // There can be many clusters, and nobody waits for their signs of life.
    for revision in [5, 6] {
        respond(&cache, &entry("cluster.west", at(revision), "west"));
        assert!(!is_woken());
    }
    cache.remove(&deleted(BLOCK, at(7)));
    assert!(is_woken());
}

proptest! {
    /// Whatever the order in which states of one bucket arrive, the last one counts.
    #[test]
    fn order_of_arrival_does_not_matter(
        states in proptest::collection::vec(any::<bool>(), 1..8),
        order in any::<prop::sample::Index>(),
        repetitions in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let at_revision = |index: usize, exists: bool| {
            let version = at(index as u64 + 1);
            if exists {
                entry(BLOCK, version, &format!("c{index}"))
            } else {
                deleted(BLOCK, version)
            }
        };
        let mut all: Vec<_> = states.iter().enumerate().map(|(index, exists)| at_revision(index, *exists)).collect();
        let last = all.last().cloned().unwrap();
        for index in repetitions {
            let copy = index.get(&all).clone();
            all.push(copy);
        }
        let start = order.index(all.len());
        all.rotate_left(start);
        let cache = RecordCache::default();
        for state in &all {
            respond(&cache, state);
        }
        let found = cache.get(&Key::parse(BLOCK).unwrap());
        let expected = (!last.is_deleted()).then_some(&last);
        prop_assert_eq!(found.as_deref(), expected);
    }
}
