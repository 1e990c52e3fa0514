//! Every state of the claims and IPAddresses of a namespace, by watches.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capi_ipam_provider::api::{ContractVersion, IPAddress, IPAddressClaim};
use capi_ipam_provider::controller::resource_version::ResourceVersion;
use futures::TryStreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::rules::{Rule, Violation, check_unique, describe_address};
use super::scene::Scene;

/// Watches from its start until it is dropped.
pub(super) struct Recorder {
    history: Arc<Mutex<History>>,
    watches: [JoinHandle<()>; 2],
}

/// The IPAddresses of a namespace, the resource versions at which claims are bound, and the first
/// violation.
#[derive(Debug, Default)]
struct History {
    /// The name of an IPAddress that must not be deleted.
    kept: String,
    present: BTreeMap<String, IPAddress>,
    /// The resource version of the first state of an IPAddress, by the uid of its claim.
    created: BTreeMap<String, u64>,
    /// The resource version of the first state of a claim that is bound, by its uid.
    bound: BTreeMap<String, u64>,
    violation: Option<Violation>,
}

impl History {
    /// `is_listed`: the IPAddress may be older than its resource version.
    fn put(&mut self, address: IPAddress, is_listed: bool) {
        if let Some(version) = version_of(&address) {
            let version = if is_listed { 0 } else { version };
            let claims = address
                .owner_references()
                .iter()
                .filter(|owner| owner.controller == Some(true));
            for claim in claims {
                self.created.entry(claim.uid.clone()).or_insert(version);
            }
        }
        self.present.insert(address.name_any(), address);
        if let Err(violation) = check_unique(self.present.values()) {
            self.violation.get_or_insert(violation);
        }
    }

    fn remove(&mut self, address: &IPAddress) {
        self.present.remove(&address.name_any());
        if address.name_any() == self.kept {
            let expected = format!("the IPAddress of claim {} is not deleted", self.kept);
            self.violation.get_or_insert(Violation::new(
                Rule::Lasting,
                expected,
                describe_address(address),
            ));
        }
    }

    fn put_claim(&mut self, claim: &IPAddressClaim) {
        if let (Some(_), Some(version)) = (claim.bound_address(), version_of(claim)) {
            self.bound
                .entry(claim.uid().unwrap_or_default())
                .or_insert(version);
        }
    }

    /// The first violation. Resource versions order the changes of both kinds.
    fn check(&self) -> Result<(), Violation> {
        let early = self.bound.iter().find_map(|(uid, bound)| {
            let created = self.created.get(uid).filter(|created| *created > bound)?;
            let expected =
                format!("the claim with uid {uid} is bound after its IPAddress is created");
            let seen = format!("bound at resource version {bound}, IPAddress created at {created}");
            Some(Violation::new(Rule::Order, expected, seen))
        });
        self.violation.clone().or(early).map_or(Ok(()), Err)
    }
}

/// The resource version of an object, if it is a number, as with etcd.
fn version_of<K: Resource>(object: &K) -> Option<u64> {
    ResourceVersion::of(object.meta()).map(ResourceVersion::get)
}

/// The objects of one kind in a [`History`].
trait Recorded:
    Resource<DynamicType = ContractVersion, Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
    /// A list begins: it contains all objects.
    fn restart(_: &mut History) {}
    /// A new state of an object, from a list or an event.
    fn put(self, history: &mut History, is_listed: bool);
    /// An object is deleted.
    fn remove(&self, _: &mut History) {}
}

impl Recorded for IPAddress {
    fn restart(history: &mut History) {
        history.present.clear();
    }

    fn put(self, history: &mut History, is_listed: bool) {
        history.put(self, is_listed);
    }

    fn remove(&self, history: &mut History) {
        history.remove(self);
    }
}

impl Recorded for IPAddressClaim {
    fn put(self, history: &mut History, _: bool) {
        history.put_claim(&self);
    }
}

/// Applies an event. Returns the resource version to continue from; `None` after an error.
fn apply<K: Recorded>(history: &mut History, event: WatchEvent<K>) -> Option<String> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            let version = object.resource_version();
            object.put(history, false);
            version
        }
        WatchEvent::Deleted(object) => {
            object.remove(history);
            object.resource_version()
        }
        WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version),
        WatchEvent::Error(_) => None,
    }
}

impl Recorder {
    /// Starts to watch. The IPAddress with the name `kept` must not be deleted.
    pub(super) fn start(scene: &Scene, kept: &str) -> Self {
        let history = Arc::new(Mutex::new(History {
            kept: kept.to_owned(),
            ..History::default()
        }));
        let watches = [
            tokio::spawn(watch(api::<IPAddress>(scene), Arc::clone(&history))),
            tokio::spawn(watch(api::<IPAddressClaim>(scene), Arc::clone(&history))),
        ];
        Self { history, watches }
    }

    /// The first violation that the watches have delivered.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .check()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
    }
}

fn api<K: Recorded>(scene: &Scene) -> Api<K> {
    Api::all_with(scene.consumer.client.clone(), &ContractVersion::V1Beta2)
        .constrain(&scene.consumer.namespace)
}

async fn watch<K: Recorded>(api: Api<K>, history: Arc<Mutex<History>>) {
    let locked = || history.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Ok(list) = api.list(&ListParams::default()).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        K::restart(&mut locked());
        list.items
            .into_iter()
            .for_each(|object| object.put(&mut locked(), true));
        let mut from = list.metadata.resource_version;
        while let Some(version) = from.take() {
            let Ok(events) = api.watch(&WatchParams::default(), &version).await else {
                break;
            };
            let mut events = std::pin::pin!(events);
            from = Some(version);
            while let Ok(Some(event)) = events.try_next().await {
                from = apply(&mut locked(), event);
                if from.is_none() {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, name: &str, address: &str) -> WatchEvent<IPAddress> {
        let spec = json!({ "address": address, "prefix": 24, "poolRef": { "kind": "ListPool", "name": "list" } });
        let object = json!({ "metadata": { "name": name, "resourceVersion": "7" }, "spec": spec });
        serde_json::from_value(json!({ "type": kind, "object": object })).unwrap()
    }

    /// The rule that a sequence of events violates.
    fn violated(events: &[(&str, &str, &str)]) -> Option<Rule> {
        let mut history = History {
            kept: "kept".to_owned(),
            ..History::default()
        };
        for (kind, name, address) in events {
            assert_eq!(
                apply(&mut history, event(kind, name, address)).as_deref(),
                Some("7")
            );
        }
        history.check().err().map(|violation| violation.rule)
    }

    #[test]
    fn address_may_be_reused_after_deletion_only() {
        let [a, b] = [("ADDED", "a", "10.0.0.1"), ("ADDED", "b", "10.0.0.1")];
        assert_eq!(
            violated(&[
                a,
                ("MODIFIED", "a", "10.0.0.1"),
                ("DELETED", "a", "10.0.0.1"),
                b
            ]),
            None
        );
        assert_eq!(
            violated(&[a, b, ("DELETED", "a", "10.0.0.1")]),
            Some(Rule::Unique)
        );
    }

    #[test]
    fn deletion_of_a_kept_address_is_detected() {
        let kept = ("ADDED", "kept", "10.0.0.1");
        assert_eq!(violated(&[kept, ("MODIFIED", "kept", "10.0.0.1")]), None);
        assert_eq!(
            violated(&[kept, ("DELETED", "kept", "10.0.0.1")]),
            Some(Rule::Lasting)
        );
    }

    #[test]
    fn claim_bound_before_its_address_is_detected() {
        let bound_at = |bound: &str, created: &str| {
            let mut history = History::default();
            let claim = json!({
                "metadata": { "name": "a", "uid": "u", "resourceVersion": bound },
                "spec": { "poolRef": {} }, "status": { "addressRef": { "name": "a" } },
            });
            history.put_claim(&serde_json::from_value(claim).unwrap());
            let owner = json!({ "apiVersion": "v1", "kind": "IPAddressClaim", "name": "a", "uid": "u", "controller": true });
            let metadata =
                json!({ "name": "a", "resourceVersion": created, "ownerReferences": [owner] });
            history.put(
                serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap(),
                false,
            );
            history.check().err().map(|violation| violation.rule)
        };
        assert_eq!(bound_at("8", "7"), None);
        assert_eq!(bound_at("7", "8"), Some(Rule::Order));
    }
}
