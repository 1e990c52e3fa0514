//! Waits for the results of a provider: bound and deleted claims, reasons and events.

use std::collections::BTreeMap;
use std::time::Duration;

use capi_ipam_provider::api::IPAddress;
use capi_ipam_provider::controller::client::ResourceClient;
use capi_ipam_provider::controller::ready::require;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};

use super::{Consumer, answered, ready, retry_unanswered};
use crate::wait::{
    EVENT_TIMEOUT, MESSAGE_TIMEOUT, consistently, eventually, eventually_ok, eventually_ok_within,
    eventually_within,
};

impl Consumer {
    /// Waits until all these claims are bound, and returns the address of each.
    pub async fn wait_for_addresses(&self, names: &[String]) -> BTreeMap<String, String> {
        let what = format!("{} claims are bound", names.len());
        eventually_ok_within(Duration::from_mins(5), &what, || async {
            let claims = self.claims().list().await;
            let claims = claims.map_err(|error| error.to_string())?;
            let mut unbound: BTreeMap<&str, String> = BTreeMap::new();
            for name in names {
                unbound.insert(name, "it does not exist".to_owned());
            }
            for claim in claims {
                let name = claim.name_any();
                if claim.bound_address().is_some() {
                    unbound.remove(name.as_str());
                } else if let Some(found) = unbound.get_mut(name.as_str()) {
                    *found = format!("{:?}", claim.status);
                }
            }
            match unbound.first_key_value() {
                None => Ok(()),
                Some((name, status)) => Err(format!(
                    "{} are not, such as {name}: {status}",
                    unbound.len()
                )),
            }
        })
        .await;
        let all = self.allocated_addresses().await;
        names
            .iter()
            .map(|name| (name.clone(), all[name].clone()))
            .collect()
    }

    /// Waits until a claim is bound, for as long as `timeout`, and does not look at its IPAddress.
    pub async fn wait_until_bound(&self, name: &str, timeout: Duration) {
        let what = format!("claim {}/{name} is bound", self.namespace);
        eventually_within(timeout, &what, || async {
            let claim = answered(self.claims().get(name).await)??;
            claim.bound_address().map(drop)
        })
        .await;
    }

    /// Waits until a claim is bound, asserts that claim and IPAddress are consistent, and returns
    /// the address.
    pub async fn wait_for_address(&self, name: &str) -> String {
        self.wait_for_ip_address(name).await.spec.address
    }

    /// Like [`Consumer::wait_for_address`], and returns the IPAddress.
    pub async fn wait_for_ip_address(&self, name: &str) -> IPAddress {
        let claim = eventually_ok(
            &format!("claim {}/{name} is bound", self.namespace),
            || async {
                let claim = self
                    .claims()
                    .get(name)
                    .await
                    .map_err(|error| error.to_string())?
                    .ok_or("it does not exist")?;
                if claim.bound_address().is_some() {
                    Ok(claim)
                } else {
                    Err(format!("{:?}", ready(&claim)))
                }
            },
        )
        .await;
        assert_eq!(
            claim.bound_address(),
            Some(name),
            "the IPAddress has the claim's name"
        );
        assert!(
            claim
                .finalizers()
                .iter()
                .any(|all| all == "ipam.cluster.x-k8s.io/ReleaseAddress"),
            "{claim:?}"
        );
        assert_eq!(require(&claim), Ok(()));
        let reason = ready(&claim).reason;
        assert_eq!(reason.as_deref(), Some("AddressAllocated"), "{claim:?}");
        let addresses = self.addresses();
        let address = retry_unanswered(|| addresses.get(name))
            .await
            .expect("addresses can be read");
        let address = address.expect("the IPAddress exists");
        assert_eq!(address.spec.claim_ref.name, name);
        assert_eq!(address.spec.pool_ref, claim.spec.pool_ref);
        let owners = address.owner_references();
        assert!(
            owners
                .iter()
                .any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref()
                    && owner.controller == Some(true)
                    && owner.block_owner_deletion == Some(true))
        );
        assert!(
            owners
                .iter()
                .any(|owner| owner.name == claim.spec.pool_ref.name
                    && owner.controller == Some(false))
        );
        assert!(
            address
                .finalizers()
                .iter()
                .any(|all| all == "ipam.cluster.x-k8s.io/ProtectAddress")
        );
        address
    }

    /// Waits until an unbound claim reports a reason, and returns the message.
    pub async fn wait_for_reason(&self, name: &str, reason: &str) -> String {
        eventually_ok(
            &format!("claim {}/{name} reports {reason}", self.namespace),
            || async {
                let claim = self
                    .claims()
                    .get(name)
                    .await
                    .map_err(|error| error.to_string())?
                    .ok_or("it does not exist")?;
                let ready = ready(&claim);
                assert_ne!(
                    ready.status, "True",
                    "claim {name} is bound, though {reason} was expected"
                );
                if ready.reason.as_deref() == Some(reason) {
                    Ok(ready.message.unwrap_or_default())
                } else {
                    Err(format!("{ready:?}"))
                }
            },
        )
        .await
    }

    /// Waits until a bound claim reports `Ready=False` with a reason, and returns the message.
    pub async fn wait_until_unready(&self, name: &str, reason: &str) -> String {
        eventually(
            &format!("claim {}/{name} reports {reason}", self.namespace),
            || async {
                let ready = ready(&self.claims().get(name).await.ok().flatten()?);
                (ready.status == "False" && ready.reason.as_deref() == Some(reason))
                    .then(|| ready.message.unwrap_or_default())
            },
        )
        .await
    }

    /// Waits until a claim reports `Ready=False` with a reason and a message that contains a text,
    /// and returns the message. The first message with that reason can be that of a request that
    /// took too long.
    pub async fn wait_for_message(&self, name: &str, reason: &str, part: &str) -> String {
        let what = format!(
            "claim {}/{name} reports {reason} with {part:?}",
            self.namespace
        );
        eventually_ok_within(MESSAGE_TIMEOUT, &what, || async {
            let claim = self
                .claims()
                .get(name)
                .await
                .map_err(|error| error.to_string())?
                .ok_or("it does not exist")?;
            let ready = ready(&claim);
            let is_wanted = ready.status == "False" && ready.reason.as_deref() == Some(reason);
            match &ready.message {
                Some(text) if is_wanted && text.contains(part) => Ok(text.clone()),
                _ => Err(format!("{ready:?}")),
            }
        })
        .await
    }

    /// Waits until an event about an object of that name has a type, a reason and a note that
    /// contains a text, and returns the note.
    pub async fn wait_for_event(&self, name: &str, kind: &str, reason: &str, part: &str) -> String {
        let what = format!(
            "an event {kind} {reason} with {part:?} about {}/{name}",
            self.namespace
        );
        eventually_within(EVENT_TIMEOUT, &what, || async {
            let events = answered(self.list_events(name).await)?.into_iter();
            let mut wanted = events.filter(|(of_kind, why, _)| of_kind == kind && why == reason);
            wanted.find_map(|(_, _, note)| note.contains(part).then_some(note))
        })
        .await
    }

    /// Asserts that a claim stays unbound for half a second.
    pub async fn assert_stays_unbound(&self, name: &str) {
        consistently(
            &format!("claim {}/{name} is unbound", self.namespace),
            || async {
                let claims = self.claims();
                let claim = retry_unanswered(|| claims.get(name))
                    .await
                    .expect("claims can be read");
                claim.expect("the claim exists").bound_address().is_none()
            },
        )
        .await;
    }

    /// Waits until claim and IPAddress do not exist.
    pub async fn wait_until_deleted(&self, name: &str) {
        eventually(
            &format!("claim {}/{name} and its address are gone", self.namespace),
            || async {
                let claim = answered(self.claims().get(name).await)?;
                let address = answered(self.addresses().get(name).await)?;
                (claim.is_none() && address.is_none()).then_some(())
            },
        )
        .await;
    }

    /// Waits until the namespace does not exist. The namespace controller deletes one kind after
    /// the other in it, and tries again with growing delays.
    pub async fn wait_until_namespace_deleted(&self) {
        let namespaces: ResourceClient<Namespace> =
            ResourceClient::new(Api::all(self.client.clone()), &());
        let what = format!("namespace {} is gone", self.namespace);
        eventually_within(Duration::from_mins(5), &what, || async {
            answered(namespaces.get(&self.namespace).await)?
                .is_none()
                .then_some(())
        })
        .await;
    }
}
