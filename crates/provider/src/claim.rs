//! A claim as a provider sees it: what identifies it, and what it asks for.

use kube::ResourceExt;

use crate::adapter::HandlerError;
use crate::api::{IPAddressClaim, Uid};

/// A claim, as far as a provider needs it to allocate and release an address. A provider that needs
/// the whole object, such as its labels, implements
/// [`ClaimHandler`](crate::advanced::ClaimHandler).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The namespace of the claim. The pool of a [`PoolProvider`](crate::prelude::PoolProvider) is
    /// in the same namespace.
    pub namespace: String,
    /// The name of the claim. A later claim can have the same name.
    pub name: String,
    /// The uid of the claim, which no other claim ever has: the owner of the address in the
    /// backend. It is displayed as the text of `metadata.uid`.
    pub uid: Uid,
    /// The name of the pool.
    pub pool: String,
    /// The name of the Cluster that the claim belongs to: see [`IPAddressClaim::cluster_name`].
    /// `None` also when an address is released whose claim no longer exists.
    pub cluster: Option<String>,
    /// The address or the prefix that the claim requests by an annotation: see
    /// [`IPAddressClaim::requested_address`]. It is what a user has written, and need not be valid.
    /// A provider can ignore it. `None` also when an address is released whose claim no longer
    /// exists.
    pub requested: Option<String>,
}

impl Claim {
    /// Creates the value of an object.
    ///
    /// # Errors
    /// [`HandlerError::Permanent`] if the uid of the object is not a UUID: no API server has
    /// created the object.
    pub fn of(object: &IPAddressClaim) -> Result<Self, HandlerError> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let text = object.metadata.uid.as_deref().unwrap_or_default();
        let Some(uid) = Uid::parse(text) else {
            return Err(HandlerError::Permanent(format!(
                "IPAddressClaim {namespace}/{name} has the uid {text:?}, which is not a UUID; create the claim again"
            )));
        };
        Ok(Self {
            namespace,
            name,
            uid,
            pool: object.spec.pool_ref.name.clone(),
            cluster: object.cluster_name().map(str::to_owned),
            requested: object.requested_address().map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e47";

    fn object(metadata: &Value, spec: &Value) -> IPAddressClaim {
        let mut object = json!({
            "metadata": {"namespace": "n", "name": "c", "uid": UID},
            "spec": {"poolRef": {"apiGroup": "example.com", "kind": "Pool", "name": "p"}},
        });
        json_patch::merge(&mut object, &json!({"metadata": metadata, "spec": spec}));
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn claim_has_the_properties_of_its_object() {
        let metadata = json!({
            "labels": {"cluster.x-k8s.io/cluster-name": "label"},
            "annotations": {"ipam.cluster.x-k8s.io/requested-address": "10.0.0.5"},
        });
        let claim = Claim::of(&object(&metadata, &json!({"clusterName": "spec"}))).unwrap();
        assert_eq!(
            claim,
            Claim {
                namespace: "n".to_owned(),
                name: "c".to_owned(),
                uid: Uid::of(UID),
                pool: "p".to_owned(),
                cluster: Some("spec".to_owned()),
                requested: Some("10.0.0.5".to_owned()),
            }
        );
        assert_eq!(claim.uid.to_string(), UID);

        let labelled = Claim::of(&object(&metadata, &json!({}))).unwrap();
        assert_eq!(labelled.cluster.as_deref(), Some("label"));
        let bare = Claim::of(&object(&json!({}), &json!({}))).unwrap();
        assert_eq!((bare.cluster, bare.requested), (None, None));
    }

    #[test]
    fn object_without_a_uuid_is_an_error() {
        for uid in [json!(null), json!(""), json!("not-a-uuid")] {
            let error = Claim::of(&object(&json!({"uid": uid}), &json!({}))).unwrap_err();
            assert!(matches!(error, HandlerError::Permanent(_)), "{uid}");
            assert!(
                error
                    .to_string()
                    .starts_with("IPAddressClaim n/c has the uid"),
                "{error}"
            );
        }
    }
}
