use capi_ipam_api::RegistryCluster;
use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_controller::metrics::Metrics;
use capi_ipam_controller::watch::EventHandler;
use capi_ipam_ip::Block;
use capi_ipam_registry::{BlockRecord, Entry, Key, Record, RegistryRecord};
use serde_json::json;

use super::*;
use crate::in_cluster::blocks::measured::RequestMetrics;
use crate::in_cluster::blocks::measured::tests::ReadOnly;

fn opened() -> OpenRegistry {
    opened_with(ReadOnly::default())
}

fn opened_with(backend: ReadOnly) -> OpenRegistry {
    opened_after(backend, Before::default())
}

fn opened_after(backend: ReadOnly, before: Before) -> OpenRegistry {
    let identity = Identity {
        id: "west".to_owned(),
        uid: Some("w".to_owned()),
    };
    let requests = RequestMetrics::register(&Metrics::default());
    let backend = MeasuredRegistry::new(Arc::new(backend), "site", requests);
    let ledger = Arc::new(SharedLedger::read_only());
    OpenRegistry::new(
        "site".to_owned(),
        identity,
        backend,
        ledger,
        Arc::default(),
        before,
    )
}

fn version(revision: u64) -> Version {
    Version::Bucket {
        incarnation: None,
        revision,
    }
}

fn sign_of_life(id: &str, revision: u64) -> Entry {
    Entry {
        key: format!("cluster.{id}"),
        version: version(revision),
        value: Ok(Record::Cluster(ClusterRecord::default())),
    }
}

fn list(registry: &OpenRegistry, entries: &[Entry]) {
    registry.restored();
    registry.init();
    for entry in entries {
        EventHandler::apply(registry, entry);
    }
    registry.init_done();
}

#[test]
fn success_of_one_requester_ends_no_problem_of_another_one() {
    use Requester::{Driver, Heartbeat, Watch};

    let now = Instant::now();
    let mut state = State::default();
    for requester in [Driver, Watch, Heartbeat] {
        state.failed(requester, format!("{requester:?}"), now);
    }
    assert_eq!(state.problem().unwrap(), "Heartbeat");
    state.succeeded(Heartbeat);
    assert_eq!(state.problem().unwrap(), "Watch");
    assert!(!state.needs_probe);
    state.succeeded(Watch);
    assert_eq!(state.problem().unwrap(), "Driver");
    state.succeeded(Driver);
    assert_eq!(state.problem(), None);
}

#[test]
fn driver_tries_again_after_an_interval() {
    let now = Instant::now();
    let mut state = State::default();
    state.failed(Requester::Watch, String::new(), now);
    assert!(state.allows_requests(now), "another connection");
    state.failed(Requester::Driver, String::new(), now);
    assert!(!state.allows_requests(now));
    assert!(state.allows_requests(now + PROBE_INTERVAL));
    state.failed(Requester::Heartbeat, String::new(), now);
    assert!(!state.allows_requests(now + PROBE_INTERVAL));
}

/// The watch of a restored registry never shows it.
#[test]
fn lost_sign_of_life_does_not_prevent_the_next_one() {
    let registry = opened();
    let signs = [sign_of_life("west", 5), sign_of_life("east", 7)];
    list(&registry, &signs);
    registry.wrote_heartbeat(version(9), None, Instant::now());
    list(&registry, &signs[..1]);
    assert!(registry.is_recovering());
    let state = registry.state.lock();
    assert!(state.unseen_heartbeat.is_none() && !state.has_shown_life);
}

#[test]
fn block_may_be_taken_when_the_watch_has_shown_the_sign_of_life() {
    let registry = opened();
    assert!(!registry.shows_life());
    list(&registry, &[]);
    registry.wrote_heartbeat(version(5), None, Instant::now());
    registry.note_sign_of_life();
    assert!(!registry.shows_life());
    EventHandler::apply(&registry.records, &sign_of_life("west", 5));
    registry.note_sign_of_life();
    assert!(registry.shows_life());
    // The watch is interrupted before it shows the next one.
    registry.wrote_heartbeat(version(6), None, Instant::now());
    assert!(!registry.shows_life());
}

#[test]
fn list_without_known_records_begins_a_recovery() {
    let registry = opened();
    let west = sign_of_life("west", 5);
    list(&registry, &[west.clone(), sign_of_life("east", 6)]);
    list(&registry, &[west.clone(), sign_of_life("east", 6)]);
    assert!(!registry.is_recovering() && !registry.is_awaited());
    list(&registry, &[west.clone(), sign_of_life("east", 4)]);
    assert!(registry.is_recovering());
    let awaited = Trouble::Restored(vec!["east".to_owned()]);
    assert_eq!(registry.trouble(), Some(awaited));
    for revision in [7, 8] {
        assert!(registry.is_recovering());
        EventHandler::apply(&registry.records, &sign_of_life("east", revision));
        registry.checked_records(true, Instant::now());
    }
    assert!(!registry.is_recovering());
    // Others may have noticed the loss later, and still wait for this management cluster.
    assert!(registry.is_awaited());
}

/// It has joined after this process had started, and the restored registry does not show it.
#[test]
fn cluster_that_joined_later_is_waited_for() {
    let registry = opened();
    let signs = ["west", "east", "north"].map(|id| sign_of_life(id, 6));
    list(&registry, &signs[..2]);
    EventHandler::apply(&registry, &signs[2]);
    list(&registry, &signs[..2]);
    let mut expected = vec!["east".to_owned(), "north".to_owned()];
    assert_eq!(
        registry.trouble(),
        Some(Trouble::Restored(expected.clone()))
    );
    // The next list shows a further loss.
    list(&registry, &signs[..1]);
    assert_eq!(
        registry.trouble(),
        Some(Trouble::Restored(expected.clone()))
    );
    for revision in [7, 8] {
        EventHandler::apply(&registry, &sign_of_life("east", revision));
        registry.checked_records(true, Instant::now());
    }
    expected.remove(0);
    assert_eq!(registry.trouble(), Some(Trouble::Restored(expected)));
}

/// The status of an IPRegistry that names its registry and these management clusters.
fn status(registry: Option<&str>, clusters: impl Iterator<Item = String>) -> IPRegistryStatus {
    let cluster = |id| RegistryCluster {
        id,
        blocks: 1,
        last_seen: None,
    };
    IPRegistryStatus {
        registry_id: registry.map(str::to_owned),
        clusters: clusters.map(cluster).collect(),
        ..IPRegistryStatus::default()
    }
}

/// The blocks of a cluster that does not use it yet are not in it.
#[test]
fn no_block_is_taken_from_a_new_registry_before_all_use_it() {
    for (known, is_recovering) in [(None, false), (Some("a"), false), (Some("b"), true)] {
        let registry = opened();
        list(&registry, &[sign_of_life("west", 5)]);
        let east = std::iter::once("east".to_owned());
        registry.begin_to_use("a", &status(known, east));
        assert_eq!(registry.is_recovering(), is_recovering, "{known:?}");
    }
}

#[test]
fn clusters_that_the_status_does_not_list_are_waited_for() {
    for (count, is_complete) in [(MAX_CLUSTERS - 1, true), (MAX_CLUSTERS, false)] {
        let registry = opened();
        list(&registry, &[sign_of_life("west", 5)]);
        let all = (0..count).map(|number| format!("c{number}"));
        registry.begin_to_use("a", &status(Some("b"), all));
        let Some(Trouble::Restored(awaited)) = registry.trouble() else {
            panic!("the registry replaces another one");
        };
        let is_listed = |id: &String| id != UNLISTED;
        assert_eq!(awaited.iter().all(is_listed), is_complete, "{awaited:?}");
    }
}

/// The check began before the loss.
#[test]
fn records_are_checked_again_after_a_loss() {
    let registry = opened();
    let signs = [sign_of_life("west", 5), sign_of_life("east", 7)];
    list(&registry, &signs);
    let since = Instant::now();
    list(&registry, &signs[..1]);
    registry.checked_records(true, since);
    assert!(!registry.state.lock().is_recorded);
    registry.checked_records(true, Instant::now());
    assert!(registry.state.lock().is_recorded);
}

/// Nobody could write until the registry was restored: the time begins then.
#[test]
fn recovery_begins_again_when_the_registry_can_be_used_again() {
    let registry = opened();
    let signs = [sign_of_life("west", 5), sign_of_life("east", 7)];
    list(&registry, &signs);
    registry.set_confirmed(Some("a"));
    list(&registry, &signs[..1]);
    let began = |registry: &OpenRegistry| {
        let state = registry.state.lock();
        state.recovery.as_ref().map(Recovery::began)
    };
    let first = began(&registry).unwrap();
    registry.set_confirmed(None);
    registry.begin_to_use("a", &status(Some("a"), std::iter::once("east".to_owned())));
    let second = began(&registry).unwrap();
    assert!(second > first);
    registry.set_problem(Requester::Watch, "no answer".to_owned());
    registry.checked_records(true, Instant::now());
    assert!(began(&registry).unwrap() > second);
}

/// Others would conclude from it that its records are written.
#[test]
fn refused_records_show_no_life_after_a_recovery() {
    let mut registry = opened();
    // The process runs for long.
    registry.opened_at = Instant::now().checked_sub(RECOVERY_TIMEOUT).unwrap();
    let identity = Entry {
        key: Key::Registry.to_string(),
        version: version(1),
        value: Ok(Record::Registry(RegistryRecord { id: "a".to_owned() })),
    };
    let signs = [identity, sign_of_life("west", 5), sign_of_life("east", 7)];
    list(&registry, &signs);
    registry.set_confirmed(Some("a"));
    registry.checked_records(true, Instant::now());
    assert!(registry.may_show_life());
    list(&registry, &signs[..2]);
    for revision in [8, 9] {
        EventHandler::apply(&registry, &sign_of_life("east", revision));
        registry.checked_records(false, Instant::now());
    }
    assert!(!registry.is_recovering());
    assert!(!registry.may_show_life());
}

/// What others have written before may be among the lost writes.
#[test]
fn sign_of_life_during_a_recovery_shows_no_earlier_writes() {
    let registry = opened();
    let signs = [sign_of_life("west", 5), sign_of_life("east", 7)];
    list(&registry, &signs);
    let show = |revision| {
        let began = Instant::now();
        registry.wrote_heartbeat(version(revision), None, began);
        EventHandler::apply(&registry, &sign_of_life("west", revision));
        registry.signs_of_life.is_seen_since("site", began)
    };
    assert!(show(8));
    list(&registry, &signs[..1]);
    assert!(registry.is_recovering());
    assert!(!show(9));
}

fn entry(key: &str, revision: u64, record: Record) -> Entry {
    Entry {
        key: key.to_owned(),
        version: version(revision),
        value: Ok(record),
    }
}

const BLOCK: &str = "block.lab.10.0.0.4-30";

/// What a registry with the identity `a` has of a cluster and of a block.
fn records(uid: &str, holder: &str, contender: Option<&str>) -> Vec<Entry> {
    let sign = ClusterRecord {
        uid: Some(uid.to_owned()),
        writes: Some(6),
        ..ClusterRecord::default()
    };
    let block = BlockRecord {
        cluster: holder.to_owned(),
        contenders: contender.into_iter().map(str::to_owned).collect(),
        ..BlockRecord::default()
    };
    let id = RegistryRecord { id: "a".to_owned() };
    vec![
        entry("registry", 1, Record::Registry(id)),
        entry("cluster.west", 5, Record::Cluster(sign)),
        entry(BLOCK, 7, Record::Block(block)),
    ]
}

/// The ledger has the block of [`records`].
fn insert_slice(registry: &OpenRegistry) {
    let slice = json!({
        "metadata": {"name": "n.lab.10.0.0.4-30", "uid": "s", "resourceVersion": "5"},
        "spec": {"scope": "n.lab", "block": "10.0.0.4/30", "registry": "site",
                 "owner": {"kind": "ManagementCluster", "name": "west"},
                 "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z"},
    });
    let slice = serde_json::from_value(slice).unwrap();
    registry.ledger.change(|ledger| ledger.insert_slice(&slice));
}

/// Whether the block is used after its record was read from a registry that had the identity `id`.
async fn uses_block(registry: &OpenRegistry, id: &str) -> bool {
    let block = Block::new([10, 0, 0, 4].into(), 30);
    insert_slice(registry);
    let keys = vec![Key::parse(BLOCK).unwrap()];
    if !registry.read_own_blocks(id, keys).await.unwrap_or(false) {
        return false;
    }
    let ledger = &registry.ledger;
    ledger.change(|ledger| ledger.set_management_cluster("site", "west"));
    ledger.read(|ledger| ledger.is_block_usable("lab", block))
}

#[tokio::test]
async fn own_block_is_used_before_the_list() {
    let own = records("w", "west", None);
    let contested = records("w", "west", Some("east"));
    let foreign = records("w", "east", None);
    let of_other_uid = records("other", "west", None);
    for (entries, id, unread, expected) in [
        (&own[..], "a", "", true),
        (&contested, "a", "", false),
        (&foreign, "a", "", false),
        (&own[..2], "a", "", false),
        (&of_other_uid, "a", "", false),
        (&own, "b", "", false),
        (&own[1..], "a", "", false),
        (&own, "a", "registry", false),
        (&own, "a", "cluster.west", false),
        (&own, "a", BLOCK, false),
    ] {
        let entries = entries.to_vec();
        let what = format!("{id} {unread} {entries:?}");
        let registry = opened_with(ReadOnly { entries, unread });
        assert_eq!(uses_block(&registry, id).await, expected, "{what}");
        // Nothing is taken before the list.
        assert!(!registry.is_confirmed());
    }
}

/// The former connection has found another cluster with this identity.
#[test]
fn suspension_lasts_until_the_registry_shows_the_cluster() {
    let registry = opened();
    insert_slice(&registry);
    registry.ledger.change(|ledger| {
        ledger.set_management_cluster("site", "west");
        ledger.suspend_blocks_of("site", true);
    });
    let is_usable = || {
        let block = Block::new([10, 0, 0, 4].into(), 30);
        let ledger = &registry.ledger;
        ledger.read(|ledger| ledger.is_block_usable("lab", block))
    };
    registry.check_cluster();
    assert!(!is_usable());
    list(&registry, &records("w", "west", None));
    registry.check_cluster();
    assert!(!is_usable(), "it is not known to be the registry");
    registry.begin_to_use("a", &IPRegistryStatus::default());
    assert!(is_usable());
}

#[test]
fn suspension_is_known_after_a_restart() {
    let status = IPRegistryStatus {
        identity_in_use: true,
        ..IPRegistryStatus::default()
    };
    let condition = Condition::new(
        conditions::READY,
        false,
        conditions::CLUSTER_ID_IN_USE,
        "by another cluster",
    );
    let earlier = IPRegistryStatus {
        conditions: vec![condition],
        ..IPRegistryStatus::default()
    };
    assert!(Before::of(Some(&earlier), None).is_disturbed);
    let registry = opened_after(ReadOnly::default(), Before::of(Some(&status), None));
    assert!(registry.is_suspended());
    list(&registry, &records("w", "west", None));
    registry.begin_to_use("a", &status);
    assert!(
        registry.is_suspended(),
        "another one may write with this identity"
    );
    // The process knows better than the status.
    let next = Before::of(Some(&status), Some(&opened()));
    assert!(!opened_after(ReadOnly::default(), next).is_suspended());
}

/// The servers of the registry are replaced by those of a copy.
#[test]
fn writes_are_known_after_a_change_of_the_settings() {
    let former = opened();
    list(&former, &records("w", "west", None));
    former.begin_to_use("a", &IPRegistryStatus::default());
    former.wrote_heartbeat(version(9), Some(9), Instant::now());
    for (id, is_lost) in [("a", true), ("b", false)] {
        let before = Before::of(None, Some(&former));
        let registry = opened_after(ReadOnly::default(), before);
        list(&registry, &records("w", "west", None));
        registry.begin_to_use(id, &status(Some(id), std::iter::empty()));
        assert_eq!(registry.is_recovering(), is_lost, "{id}");
    }
}

/// Wrong servers, and then those of a copy.
#[test]
fn writes_are_known_after_another_registry_was_open() {
    let first = opened();
    list(&first, &records("w", "west", None));
    first.begin_to_use("a", &IPRegistryStatus::default());
    first.wrote_heartbeat(version(9), Some(9), Instant::now());
    let begin = |before: Before| {
        let registry = opened_after(ReadOnly::default(), before);
        list(&registry, &records("w", "west", None));
        registry
    };
    let copy = |before: &OpenRegistry| {
        let copy = begin(Before::of(None, Some(before)));
        copy.begin_to_use("a", &status(Some("a"), std::iter::empty()));
        copy.is_recovering()
    };
    let wrong = begin(Before::of(None, Some(&first)));
    wrong.set_confirmed(None);
    assert!(copy(&wrong));
    // The servers have the other one for a while.
    first.set_confirmed(None);
    assert!(copy(&first));
    // Its own records were read, and the others not.
    let unlisted = opened_after(ReadOnly::default(), Before::of(None, Some(&first)));
    unlisted.confirm_own_records("a");
    assert!(copy(&unlisted));
}

/// What the list shows until its end counts, and a loss is noticed.
#[tokio::test]
async fn list_decides_on_blocks_whose_records_were_read() {
    let entries = records("w", "west", None);
    let read = ReadOnly {
        entries: entries.clone(),
        unread: "",
    };
    let registry = opened_with(read);
    assert!(uses_block(&registry, "a").await);
    registry.init();
    let is_usable = || {
        let block = Block::new([10, 0, 0, 4].into(), 30);
        let ledger = &registry.ledger;
        ledger.read(|ledger| ledger.is_block_usable("lab", block))
    };
    for entry in &entries {
        EventHandler::apply(&registry, entry);
        assert!(is_usable(), "{entry:?}");
    }
    let changed = records("w", "west", Some("east")).remove(2);
    let changed = Entry {
        version: version(8),
        ..changed
    };
    EventHandler::apply(&registry, &changed);
    assert!(!is_usable());
    registry.init_done();
    assert!(!registry.is_confirmed() && !registry.is_recovering());
    let east = std::iter::once("east".to_owned());
    let status = IPRegistryStatus {
        writes: Some(7),
        ..status(Some("a"), east)
    };
    registry.begin_to_use("a", &status);
    assert!(registry.is_confirmed() && registry.is_recovering());
    assert!(!is_usable());
}
