//! What the page asks about pools, claims and addresses.

use capi_ipam_api::{InClusterKind, PoolKey};
use jiff::Timestamp;
use serde_json::json;

use super::sample::{bind, lease, pool, reference, sample, sample_of, wait};
use crate::error::MissingRight;
use crate::model::{Answer, Check, MapPart, OutageCause};
use crate::objects::Kind;

#[test]
fn what_may_not_be_listed_is_unknown() {
    let state = sample();
    let right = |resource: &str| MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    };
    let web = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
    let all = state.overview();
    assert!(all.waiting.is_some() && all.bound.is_some() && state.search("10.0.0.10").is_complete);
    assert!(
        state
            .pool(&web, MapPart::default())
            .unwrap()
            .unwrap()
            .window
            .is_some()
    );

    state.update(|tables| {
        tables.objects.list_mut(Kind::Claim).missing(MissingRight {
            verb: "watch",
            ..right("claims")
        })
    });
    assert!(
        state.overview().waiting.is_some(),
        "a list that is not watched is read again"
    );
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Claim)
            .missing(right("claims"))
    });
    let unknown = state.overview();
    assert_eq!((unknown.waiting, unknown.bound), (None, None));
    assert!(unknown.pools.iter().all(|pool| pool.line.waiting.is_none()));
    assert_eq!(
        state
            .pool(&web, MapPart::default())
            .unwrap()
            .unwrap()
            .waiting_count,
        None
    );
    assert!(!state.search("web-1").is_complete);

    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Reservation)
            .missing(right("reservations"))
    });
    let pool = state.pool(&web, MapPart::default()).unwrap().unwrap();
    assert!(
        pool.window.is_none() && pool.details.counts.free.is_none(),
        "what is free is unknown"
    );
    let missing = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "none");
    assert!(state.pool(&missing, MapPart::default()).unwrap().is_none());
    state.update(|tables| {
        tables
            .objects
            .list_mut(Kind::Pool(InClusterKind::IPPool))
            .missing(right("pools"))
    });
    assert!(
        state.pool(&missing, MapPart::default()).is_err(),
        "it is unknown whether there is such a pool"
    );
}

#[test]
fn findings_of_doctor_mark_their_pools() {
    let state = sample();
    let web = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
    let finding = || {
        let pools = state.overview().pools;
        let row = pools.into_iter().find(|pool| pool.line.pool.name == "web");
        row.unwrap().finding.map(|finding| finding.check)
    };
    state.examine();
    state.examine();
    let before = state.overview().findings;
    let pool = reference("InClusterIPPool", "web");
    bind(&state, "team-a", "twin", &pool, "10.0.0.10", 24);
    state.examine();
    assert_eq!(finding(), None, "it can be a change in progress");
    state.examine();
    assert_eq!(finding(), Some(Check::DuplicateAddress));
    assert_eq!(state.overview().findings, before + 1);
    let shown = state.pool(&web, MapPart::default()).unwrap().unwrap();
    assert_eq!(shown.findings[0].check, Check::DuplicateAddress);
    let all = state.findings();
    let is_named = all
        .iter()
        .any(|it| it.finding.check == Check::DuplicateAddress && it.pools[0].name == "web");
    assert!(is_named, "{all:?}");
}

#[test]
fn search_finds_parts_and_lists_the_best_first() {
    let state = sample();
    let part = state.search("172.16.1");
    let first: Vec<_> = part
        .holders
        .iter()
        .take(2)
        .map(|it| it.address.as_str())
        .collect();
    assert_eq!(first, ["172.16.1.0", "172.16.1.1"]);
    assert_eq!(part.holders.len(), 100);
    assert!(part.totals.holders > 1000, "{:?}", part.totals);
    assert_eq!(
        state.search("10.0.0.").pools[0].name,
        "web",
        "by its addresses"
    );

    let names = state.search("node-");
    assert_eq!((names.claims.len(), names.totals.claims), (100, 6_000));
    let first: Vec<_> = names
        .claims
        .iter()
        .take(3)
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(first, ["node-2", "node-3", "node-4"]);
    assert_eq!(
        state.search("WEB-7").claims[0].name,
        "web-7",
        "the exact name is first"
    );

    let prefix = state.search("172.16.0.0/16");
    assert_eq!((prefix.holders.len(), prefix.totals.holders), (100, 6_000));
    let reserved = state.search("10.0.0.203");
    assert_eq!((reserved.holders.len(), reserved.totals.holders), (1, 1));
}

#[test]
fn clusters_of_a_namespace_have_their_addresses() {
    let state = sample_of(Some("team-b"));
    let clusters = state.clusters().unwrap();
    let names: Vec<_> = clusters
        .iter()
        .map(|it| (&*it.namespace, &*it.name))
        .collect();
    assert_eq!(names, [("team-b", "prod")]);
    assert_eq!(u64::try_from(clusters[0].problems.len()).unwrap(), 1);
    assert!(clusters[0].waiting > 0);
    state.update(|tables| tables.objects.deny(Kind::Claim));
    assert_eq!(state.clusters(), None);
}

#[test]
fn claims_of_an_unknown_kind_wait() {
    let state = sample_of(Some("team-b"));
    let before = (state.overview().waiting, state.waiting().unwrap().len());
    let kind = json!({
        "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIpPool", "name": "edge",
    });
    for (namespace, name) in [("team-b", "m1"), ("team-b", "m2"), ("team-c", "m3")] {
        wait(&state, namespace, name, &kind, 60, "", "");
    }
    let groups = state.waiting().unwrap();
    let found = (state.overview().waiting, groups.len());
    assert_eq!(found, (before.0.map(|count| count + 2), before.1 + 1));
    let group = groups
        .iter()
        .find(|group| group.reason.as_deref() == Some("UnknownPoolKind"))
        .unwrap();
    assert_eq!(
        (group.count, group.pool.kind.as_str()),
        (2, "InClusterIpPool")
    );
    let message = group.message.as_deref().unwrap_or_default();
    assert!(
        message.ends_with("did you mean InClusterIPPool?"),
        "{message}"
    );
}

#[test]
fn page_of_a_namespace_lists_its_pools_and_claims() {
    let state = sample_of(Some("team-b"));
    let overview = state.overview();
    assert_eq!(overview.namespace.as_deref(), Some("team-b"));
    let names: Vec<_> = overview
        .pools
        .iter()
        .map(|it| it.line.pool.name.as_str())
        .collect();
    assert_eq!(names, ["edge", "data-center", "six", "pods"]);
    assert_eq!(overview.waiting, Some(2));
    let groups = state.waiting().unwrap();
    assert_eq!(groups.len(), 1, "not that of team-c");
    assert!(state.search("web-1").claims.is_empty());
    assert_eq!(
        state.search("10.0.0.10").holders.len(),
        1,
        "an address is found everywhere"
    );
}

#[test]
fn outage_and_recovery_are_recorded() {
    let state = sample();
    assert_eq!(state.overview().outage, None);
    let answered = Timestamp::now();
    state.heard(Answer::None(OutageCause::Silent, "no answer".to_owned()));
    let outage = state.overview().outage.unwrap();
    assert_eq!(outage.cause, OutageCause::Silent);
    assert!(
        outage.since.unwrap() <= answered,
        "the time of the last answer"
    );
    let version = state.overview().version;
    state.heard(Answer::None(OutageCause::Silent, "no answer".to_owned()));
    assert_eq!(state.overview().version, version, "nothing has changed");
    state.heard(Answer::Leases(vec![lease(1)]));
    assert_eq!(state.overview().outage, None);
}

#[test]
fn pool_of_a_network_tells_what_others_use() {
    let state = sample();
    let data = reference("InClusterIPPool", "beside");
    let spec = json!({ "addresses": ["172.16.0.0/24"], "prefix": 16, "network": "backbone" });
    pool(
        &state,
        InClusterKind::IPPool,
        "team-b",
        "beside",
        &spec,
        &json!({}),
    );
    bind(&state, "team-b", "own", &data, "172.16.0.200", 16);
    let key = PoolKey::new(InClusterKind::IPPool, Some("team-b"), "beside");
    let shown = state.pool(&key, MapPart::default()).unwrap().unwrap();
    assert_eq!(shown.details.counts.used, Some(1));
    assert!(shown.details.counts.in_other_pools.unwrap() > 200);
    let racks = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "racks");
    let shown = state.pool(&racks, MapPart::default()).unwrap().unwrap();
    let slices = shown.details.slices.unwrap();
    assert_eq!(slices.len(), 2);
    assert_eq!(slices[0].used, Some(12));
}
