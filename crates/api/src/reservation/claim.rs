//! The claim of a reservation, and whether it can ever get the address.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PoolKey;
use crate::dns::{is_dns_label, is_dns_subdomain};

/// A reference to a claim from a cluster-scoped object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationClaim {
    /// Namespace of the claim.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Uid of the claim; omitted if the address is only promised to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub uid: Option<String>,
    /// Cluster of the claim, by which spec.limits of a global pool counts; omitted without a
    /// cluster name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster: Option<String>,
}

/// Why no claim can ever get an address that is reserved for this namespace and name. Displayed
/// with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimProblem {
    /// No namespace can have this name.
    #[error(
        "spec.claimRef.namespace: {namespace:?} is not the name of a namespace: at most 63 lower case letters, digits \
         and dashes, without a dash at either end"
    )]
    Namespace {
        /// The namespace in the claim reference.
        namespace: String,
    },
    /// No claim can have this name.
    #[error(
        "spec.claimRef.name: {name:?} is not the name of a claim: at most 253 lower case letters, digits, dashes and \
         dots, with a letter or digit at both ends and beside each dot"
    )]
    Name {
        /// The name in the claim reference.
        name: String,
    },
    /// A namespaced pool allocates addresses only to claims of its namespace.
    #[error(
        "spec.claimRef.namespace: {pool} allocates only to claims of its namespace, not of {namespace}"
    )]
    OtherNamespace {
        /// The pool of the reservation.
        pool: PoolKey,
        /// The namespace in the claim reference.
        namespace: String,
    },
}

impl ClaimProblem {
    /// The path of the field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Name { .. } => "spec.claimRef.name",
            Self::Namespace { .. } | Self::OtherNamespace { .. } => "spec.claimRef.namespace",
        }
    }

    /// The text without the path of the field.
    pub fn detail(&self) -> String {
        let text = self.to_string();
        let detail = text
            .strip_prefix(self.field())
            .and_then(|rest| rest.strip_prefix(": "));
        detail.unwrap_or(&text).to_owned()
    }
}

impl ReservationClaim {
    /// Returns why no claim with this namespace and name can ever get an address of `pool`: the
    /// reservation would only withdraw the address from the pool. `spec.allowedNamespaces` of a
    /// global pool is no reason: who promises an address to a claim decides that the claim gets it.
    pub fn problem(&self, pool: &PoolKey) -> Option<ClaimProblem> {
        let namespace = self.namespace.clone();
        if !is_dns_label(&namespace) {
            return Some(ClaimProblem::Namespace { namespace });
        }
        if !is_dns_subdomain(&self.name) {
            return Some(ClaimProblem::Name {
                name: self.name.clone(),
            });
        }
        match &pool.namespace {
            Some(own) if **own != *namespace => Some(ClaimProblem::OtherNamespace {
                pool: pool.clone(),
                namespace,
            }),
            Some(_) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InClusterKind;

    fn claim(namespace: &str, name: &str) -> ReservationClaim {
        ReservationClaim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..ReservationClaim::default()
        }
    }

    #[test]
    fn impossible_claim_has_a_problem_with_its_field() {
        let pool = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
        let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "shared");
        let field = |claim: &ReservationClaim, pool: &PoolKey| {
            claim.problem(pool).map(|problem| problem.field())
        };
        let (namespace, name) = (Some("spec.claimRef.namespace"), Some("spec.claimRef.name"));
        assert_eq!(field(&claim("team-a", "vm-1.example"), &pool), None);
        assert_eq!(field(&claim("team-b", "vm-1"), &global), None);
        assert_eq!(field(&claim("team-b", "vm-1"), &pool), namespace);
        for wrong in ["Bad_Claim", "a b", "", "-a", "a.", "a..b", &"a".repeat(254)] {
            assert_eq!(field(&claim("team-a", wrong), &pool), name, "{wrong}");
        }
        for wrong in ["Team", "team.a", "", "a-", &"a".repeat(64)] {
            assert_eq!(field(&claim(wrong, "vm-1"), &global), namespace, "{wrong}");
        }
    }

    #[test]
    fn problem_is_displayed_with_the_path_of_its_field() {
        let pool = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
        let problem = claim("kube-system", "x").problem(&pool).unwrap();
        assert_eq!(
            problem.to_string(),
            "spec.claimRef.namespace: InClusterIPPool team-a/web allocates only to claims of its namespace, not of \
             kube-system"
        );
        assert_eq!(
            problem.detail(),
            "InClusterIPPool team-a/web allocates only to claims of its namespace, not of kube-system"
        );
    }
}
