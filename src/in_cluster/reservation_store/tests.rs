use std::sync::atomic::{AtomicUsize, Ordering};

use capi_ipam_api::{InClusterKind, Scope};
use capi_ipam_controller::controller::ControllerBuilder;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Outcome;
use capi_ipam_provider::api::IPAddressClaim;
use http::{Method, Request, Response};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::Value;

use super::super::shared_ledger::SharedLedger;
use super::*;

const UID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e47";
const OTHER_UID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e48";
const CLAIM_UID: &str = "0001ef08-5b98-00af-8a1f-0085701b2e47";

/// How the API server answers a request.
#[derive(Clone, Debug)]
enum Answer {
    Object(Value),
    NotFound,
    Conflict,
    AlreadyExists,
    Forbidden,
    /// The outcome of a write is unknown.
    Unknown,
}

impl Answer {
    fn response(&self) -> Response<Body> {
        let (code, reason) = match self {
            Self::Object(_) => (200, ""),
            Self::NotFound => (404, "NotFound"),
            Self::Conflict => (409, "Conflict"),
            Self::AlreadyExists => (409, "AlreadyExists"),
            Self::Forbidden => (403, "Forbidden"),
            Self::Unknown => (500, "InternalError"),
        };
        let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason});
        let body = if let Self::Object(object) = self {
            object
        } else {
            &status
        };
        Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()))
            .unwrap()
    }
}

fn pool() -> PoolKey {
    PoolKey::new(InClusterKind::GlobalIPPool, None, "p")
}

fn slot() -> Slot {
    Slot {
        scope: Scope::Pool(pool()),
        block: Block::address([10, 0, 0, 5].into()),
    }
}

fn claim() -> ReservationClaim {
    ReservationClaim {
        namespace: "n".into(),
        name: "c".into(),
        uid: Some(CLAIM_UID.into()),
        cluster: None,
    }
}

/// A reservation of the claim, changed by a merge patch.
fn object(uid: &str, version: &str, change: &Value) -> Value {
    let mut object = serde_json::to_value(build(&slot(), &pool(), claim())).unwrap();
    json_patch::merge(
        &mut object,
        &json!({"metadata": {"uid": uid, "resourceVersion": version}}),
    );
    json_patch::merge(&mut object, change);
    object
}

fn released(version: &str) -> Value {
    object(
        UID,
        version,
        &json!({"spec": {"releasedAt": "2026-01-01T00:00:00Z"}}),
    )
}

fn known() -> KnownReservation {
    KnownReservation {
        slot: slot(),
        pool: pool(),
        uid: UID.into(),
        version: "7".into(),
    }
}

fn attempt(pool: &PoolKey) -> Attempt<'_> {
    Attempt {
        claim: Uid::of(CLAIM_UID),
        pool,
    }
}

/// A store whose API server answers each write and each read in the same way. Counts the reads.
fn store(write: Answer, read: Answer) -> (ReservationStore, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reads);
    let answer = move |request: Request<Body>| {
        let is_read = request.method() == Method::GET;
        if is_read {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let response = if is_read {
            read.response()
        } else {
            write.response()
        };
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let trigger = ControllerBuilder::<IPAddressClaim, ()>::new("claims").trigger();
    let ledger = Arc::new(SharedLedger::new(trigger, |_| {}, |_| {}, |_| {}));
    let client = ResourceClient::new(Api::all(client), &());
    (
        ReservationStore::new(client, ledger, RestoreDetector::default()),
        reads,
    )
}

/// Whether a claim can get the only address of the pool.
fn is_free(ledger: &SharedLedger) -> bool {
    let pool = json!({
        "kind": "GlobalInClusterIPPool",
        "metadata": {"name": "p", "uid": "pool", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": {"addresses": ["10.0.0.5"], "prefix": 24},
    });
    ledger.change(|ledger| ledger.apply_pool(&serde_json::from_value(pool).unwrap()));
    matches!(
        ledger.change(|ledger| ledger.propose(&self::pool(), &NamespacedName::new("n", "new"), 1)),
        Outcome::Offer(_)
    )
}

/// The result of a write, its reads, and whether the ledger remembers the attempt.
async fn write(answer: Answer, read: Answer) -> (&'static str, usize, bool) {
    let (store, reads) = store(answer, read);
    let pool = pool();
    store.ledger.change(|ledger| {
        ledger.insert_reservation(&serde_json::from_value(released("7")).unwrap())
    });
    let result = match store
        .take_over(&known(), &pool, &claim(), Some(attempt(&pool)))
        .await
    {
        Ok(WriteResult::Done(_)) => "done",
        Ok(WriteResult::Changed(_)) => "changed",
        Ok(WriteResult::Gone) => "gone",
        Err(_) => "failed",
    };
    if result == "gone" {
        assert_eq!(
            store
                .ledger
                .read(|ledger| ledger.addresses().known_reservation(&slot())),
            None
        );
    }
    let is_remembered = store
        .ledger
        .read(|ledger| ledger.attempt(Uid::of(CLAIM_UID), &pool))
        .is_some();
    (result, reads.load(Ordering::Relaxed), is_remembered)
}

#[tokio::test]
async fn read_decides_what_a_failed_write_means() {
    let ours = || Answer::Object(object(UID, "8", &json!({})));
    let of_other = || Answer::Object(object(OTHER_UID, "9", &json!({})));
    let unchanged = || Answer::Object(released("7"));
    let changed = || Answer::Object(released("8"));
    let undecodable = || Answer::Object(object(UID, "8", &json!({"spec": {"releasedAt": 5}})));

    assert_eq!(write(ours(), Answer::Unknown).await, ("done", 0, false));
    assert_eq!(
        write(Answer::NotFound, Answer::Unknown).await,
        ("gone", 0, false)
    );
    assert_eq!(
        write(Answer::Forbidden, Answer::Unknown).await,
        ("failed", 0, false),
        "nothing was written"
    );
    for (error, is_unknown) in [(Answer::Conflict, false), (Answer::Unknown, true)] {
        let write = async |read: Answer| write(error.clone(), read).await;
        assert_eq!(write(ours()).await, ("done", 1, false), "{error:?}");
        assert_eq!(write(of_other()).await, ("changed", 1, false), "{error:?}");
        assert_eq!(write(changed()).await, ("changed", 1, false), "{error:?}");
        assert_eq!(
            write(undecodable()).await,
            ("changed", 1, false),
            "{error:?}"
        );
        assert_eq!(
            write(Answer::NotFound).await,
            ("gone", 1, false),
            "{error:?}"
        );
        assert_eq!(
            write(unchanged()).await,
            ("failed", 1, is_unknown),
            "it may still be applied"
        );
        assert_eq!(
            write(Answer::Unknown).await,
            ("failed", 1, is_unknown),
            "it may have been applied"
        );
    }
}

async fn create(answer: Answer, read: Answer) -> (&'static str, bool) {
    let (store, _) = store(answer, read);
    let (pool, claim) = (pool(), claim());
    let wanted = build(&slot(), &pool, claim.clone());
    let is_ours = |found: &IPReservation| ownership(found, &claim) == Ownership::Ours;
    let result = match store
        .create(&slot(), &wanted, Some(attempt(&pool)), is_ours)
        .await
    {
        Ok(CreateResult::Created(_)) => "created",
        Ok(CreateResult::Exists(_)) => "exists",
        Ok(CreateResult::Taken(_)) => "taken",
        Err(_) => "failed",
    };
    if result != "failed" {
        assert!(!is_free(&store.ledger), "the name is taken");
    }
    (
        result,
        store
            .ledger
            .read(|ledger| ledger.attempt(Uid::of(CLAIM_UID), &pool))
            .is_some(),
    )
}

#[tokio::test]
async fn read_decides_what_a_failed_creation_means() {
    let ours = || Answer::Object(object(UID, "8", &json!({})));
    let of_other = || {
        Answer::Object(object(
            UID,
            "8",
            &json!({"spec": {"claimRef": {"name": "other"}}}),
        ))
    };
    let undecodable = || Answer::Object(object(UID, "8", &json!({"spec": {"claimRef": 5}})));

    assert_eq!(create(ours(), Answer::Unknown).await, ("created", false));
    assert_eq!(
        create(Answer::Forbidden, Answer::Unknown).await,
        ("failed", false),
        "nothing was written"
    );
    for error in [Answer::AlreadyExists, Answer::Unknown] {
        assert_eq!(
            create(error.clone(), ours()).await,
            ("exists", false),
            "{error:?}"
        );
        assert_eq!(
            create(error.clone(), of_other()).await,
            ("taken", false),
            "{error:?}"
        );
        assert_eq!(
            create(error.clone(), undecodable()).await,
            ("taken", false),
            "{error:?}"
        );
        for read in [Answer::NotFound, Answer::Unknown] {
            assert_eq!(
                create(error.clone(), read).await,
                ("failed", true),
                "it may be created later"
            );
        }
    }
}

#[tokio::test]
async fn earlier_version_of_a_known_reservation_ends_the_epoch() {
    let (store, _) = store(Answer::Unknown, Answer::Object(released("6")));
    store.ledger.change(|ledger| {
        ledger.insert_reservation(&serde_json::from_value(object(UID, "7", &json!({}))).unwrap())
    });
    let before = store.restores.epoch();
    store.read(&slot()).await.unwrap();
    assert_ne!(store.restores.epoch(), before);
}

#[tokio::test]
async fn read_that_finds_nothing_removes_what_was_known() {
    let (store, _) = store(Answer::Unknown, Answer::NotFound);
    store.ledger.change(|ledger| {
        ledger.insert_reservation(&serde_json::from_value(object(UID, "7", &json!({}))).unwrap())
    });
    assert!(store.get(&slot()).await.unwrap().is_none());
    assert_eq!(
        store
            .ledger
            .read(|ledger| ledger.addresses().known_reservation(&slot())),
        None
    );
}

#[tokio::test]
async fn deletion_that_waits_for_a_finalizer_is_done() {
    let terminating =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let terminating = Answer::Object(object(UID, "8", &terminating));
    for answer in [terminating.clone(), Answer::Conflict, Answer::Unknown] {
        let (store, _) = store(answer, terminating.clone());
        assert!(matches!(
            store.delete(&known()).await,
            Ok(WriteResult::Done(_))
        ));
        assert!(!is_free(&store.ledger), "its address is not free");
    }
    let (store, _) = store(Answer::NotFound, Answer::NotFound);
    assert!(matches!(
        store.delete(&known()).await,
        Ok(WriteResult::Gone)
    ));
}

#[tokio::test]
async fn problem_is_not_reported_of_a_later_reservation() {
    let judged = serde_json::from_value(json!({"uid": UID, "resourceVersion": "7"})).unwrap();
    let judged = ObjectVersion::of(&judged);
    let name = slot().reservation_name();
    let spec = json!({"spec": {"claimRef": null}});
    for (uid, version, is_reported) in
        [(UID, "7", true), (UID, "8", false), (OTHER_UID, "7", false)]
    {
        let found = Answer::Object(object(uid, version, &spec));
        let (store, _) = store(found.clone(), found);
        let reported = store.report(&name, judged, Some("spec.address: no")).await;
        assert_eq!(reported.unwrap(), is_reported, "{uid} {version}");
    }
    // No status is written.
    let later = Answer::Object(object(OTHER_UID, "9", &spec));
    let (store, _) = store(Answer::Forbidden, later);
    assert!(!store.report(&name, judged, None).await.unwrap());
}
