use super::*;

#[tokio::test]
async fn cache_is_pending_until_it_is_listed() {
    let health = Health::default();
    assert!(health.pending().is_empty());
    let claims = health.register("claims").unwrap();
    claims.failing("forbidden");
    assert_eq!(health.pending(), ["claims: forbidden"]);
    claims.ready();
    claims.wait().await;
    assert!(health.pending().is_empty());
}

#[test]
fn second_component_with_a_name_does_not_displace_the_first() {
    let health = Health::default();
    let first = health.register("claims").unwrap();
    assert_eq!(
        health.register("claims").unwrap_err(),
        NameTaken("claims".to_owned())
    );
    assert!(health.require("claims").is_err());
    let second = health.register_watch("claims");
    second.ready();
    assert_eq!(health.pending(), ["claims: being listed"]);
    first.ready();
    assert!(first.is_ready() && second.is_ready() && health.pending().is_empty());
    assert!(health.register("claims (2)").is_err());
    assert!(
        !health.detached().register("claims").unwrap().is_ready(),
        "other processes have other components"
    );
}

#[test]
fn process_is_ready_without_its_caches() {
    let health = Health::default();
    let (_claims, certificate) = (
        health.register("claims").unwrap(),
        health.require("certificate").unwrap(),
    );
    assert_eq!(health.problems(), ["certificate: not ready yet"]);
    assert_eq!(health.pending().len(), 2);
    certificate.ready();
    assert!(health.problems().is_empty());
    assert_eq!(health.pending(), ["claims: being listed"]);
}

#[test]
fn ready_process_shows_what_is_in_progress() {
    let health = Health::default();
    let claims = health.register("claims").unwrap();
    assert_eq!(
        response(&health, &health.pending()).1,
        "not ready:\n- claims: being listed\n"
    );
    claims.ready();
    assert_eq!(
        response(&health, &health.pending()),
        (StatusCode::OK, "ok".to_owned())
    );
    claims.set_progress(Some(7));
    let text = "ok; in progress:\n- claims: 7 objects of low priority are left";
    assert_eq!(
        response(&health, &health.pending()),
        (StatusCode::OK, text.to_owned())
    );
}

#[test]
fn lasting_refusal_makes_the_process_not_ready() {
    let health = Health::default();
    let detached = health.detached().register("claims").unwrap();
    detached.ready();
    let ago = |seconds| {
        Instant::now()
            .checked_sub(Duration::from_secs(seconds))
            .unwrap()
    };
    assert_eq!(detached.refused("forbidden"), Duration::ZERO);
    assert!(
        health.problems().is_empty(),
        "it has not lasted long enough"
    );
    health
        .process
        .refusals
        .lock()
        .get_mut("claims")
        .unwrap()
        .first = ago(12);
    assert!(detached.refused("forbidden") >= Duration::from_secs(12));
    assert_eq!(health.problems(), ["claims: forbidden"]);
    assert_eq!(
        health.pending(),
        ["claims: forbidden"],
        "its objects are out of date"
    );
    assert_eq!(
        health.caches(),
        BTreeMap::from([("claims".to_owned(), false)])
    );
    detached.accepted();
    assert!(health.problems().is_empty());

    detached.refused("forbidden");
    let set = |first, last| {
        let mut refusals = health.process.refusals.lock();
        let refusal = refusals.get_mut("claims").unwrap();
        (refusal.first, refusal.last) = (ago(first), ago(last));
    };
    set(60, 31);
    assert!(health.problems().is_empty(), "the refusal was not repeated");
    assert_eq!(detached.refused("forbidden"), Duration::ZERO);
    assert!(health.pending().is_empty(), "it is not registered here");
}

#[test]
fn refusal_of_an_unlisted_kind_counts_at_once() {
    let health = Health::default();
    let claims = health.register_watch("claims");
    claims.refused("forbidden");
    assert_eq!(health.problems(), ["claims: forbidden"]);
    assert_eq!(health.pending(), ["claims: forbidden"]);
    claims.ready();
    assert!(health.problems().is_empty() && health.pending().is_empty());
}

#[test]
fn refusal_of_an_optional_kind_does_not_count() {
    let health = Health::default();
    let optional = health.optional();
    let gate = optional.register_watch("racks");
    for _ in 0..2 {
        assert_eq!(gate.refused("forbidden"), Duration::ZERO);
    }
    assert!(health.problems().is_empty() && health.pending().is_empty());
    assert!(health.process.refusals.lock().is_empty());
    // Who uses it sees why it waits.
    assert_eq!(optional.pending(), ["racks: forbidden"]);
    // Other kinds count.
    health.register_watch("nodes").refused("forbidden");
    assert_eq!(health.problems(), ["nodes: forbidden"]);
}

#[test]
fn missing_kind_makes_the_process_not_ready() {
    let health = Health::default();
    let awaited = health.detached().await_kind("claims");
    assert_eq!(
        health.pending(),
        ["claims: the API server is asked whether it serves this kind"]
    );
    assert_eq!(
        health.caches(),
        BTreeMap::from([("claims".to_owned(), false)])
    );
    awaited.waits("no answer", false);
    assert!(health.problems().is_empty(), "it may be served");
    assert_eq!(health.pending(), ["claims: no answer"]);
    awaited.waits("not served", true);
    assert_eq!(health.problems(), ["claims: not served"]);
    assert_eq!(health.pending(), ["claims: not served"]);
    drop(awaited);
    assert!(
        health.problems().is_empty() && health.pending().is_empty() && health.caches().is_empty()
    );
    assert_eq!(
        health.register_watch("claims").name,
        "claims",
        "the name is not in use"
    );
}

#[test]
fn component_can_be_not_ready_again() {
    let health = Health::default();
    let start = health.register("start").unwrap();
    start.ready();
    start.not_ready("the controllers are being set up");
    assert_eq!(
        health.pending(),
        ["start: the controllers are being set up"]
    );
    assert_eq!(
        health.caches(),
        BTreeMap::from([("start".to_owned(), false)])
    );
    start.ready();
    assert!(health.pending().is_empty());
}

#[tokio::test]
async fn fatal_error_is_returned() {
    let health = Health::default();
    health
        .detached()
        .register("claims")
        .unwrap()
        .fatal("no longer served");
    assert_eq!(health.fatal_error().await, "claims: no longer served");
}

#[test]
fn metric_shows_listed_caches() {
    let (health, metrics) = (Health::default(), crate::metrics::Metrics::default());
    health.register_metrics(&metrics);
    let (claims, _pools, _gate) = (
        health.register("claims").unwrap(),
        health.register("pools").unwrap(),
        health.require("gate").unwrap(),
    );
    claims.ready();
    let text = metrics.encode().unwrap();
    assert!(
        text.contains("cache_synced{cache=\"claims\"} 1\ncache_synced{cache=\"pools\"} 0\n"),
        "{text}"
    );
    claims.count_restart("expired");
    let text = metrics.encode().unwrap();
    assert!(
        text.contains("watch_restarts_total{kind=\"claims\",reason=\"expired\"} 1\n"),
        "{text}"
    );
}
