//! The slices of a pool: contiguous blocks of its addresses, each for the claims of one owner.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::address_metadata::is_qualified_name;
use super::field_problem::FieldProblem;
use super::slice::{SliceOwner, SliceOwnerKind};
use super::visibility::counted;

/// The maximum size of a slice.
pub(super) const MAX_SIZE: i64 = 1 << 20;

/// What is wrong with spec.slices.label, in the words of definitions and webhooks.
pub(super) const LABEL_REQUIRED: &str =
    "must be set with per: Label; write the name of a label of claims, such as topology/rack";
pub(super) const LABEL_WITHOUT_EFFECT: &str =
    "must not be set unless per is Label; remove it, or write per: Label";
pub(super) const NO_OWNER: &str = "must be Cluster, Namespace or Label; a ManagementCluster owns blocks of networks (spec.blocks of an IPNetwork)";
pub(super) const NO_LABEL_NAME: &str = "must be the name of a label, such as topology/rack";

/// How a pool is divided into slices, each for the claims of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlicePolicy {
    /// Number of addresses, or prefixes, of a slice: a power of two. Immutable while spec.slices is
    /// set.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub size: i64,
    /// Owner of a slice: the Cluster of a claim, its Namespace, or the value of a Label of the
    /// claim.
    pub per: SliceOwnerKind,
    /// Name of the label of claims, such as topology/rack; only with per: Label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Maximum number of slices of an owner. Several active managers can exceed it by one slice
    /// each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub most_each: Option<i64>,
    /// Seconds for which a slice without an address in use stays with its owner. By default it
    /// stays until the owner is deleted; the value of a label counts as deleted when no claim with
    /// it has an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub keep_seconds: Option<i64>,
}

/// What the slices of a pool mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRules {
    /// The number of addresses of a slice is two to the power of this.
    pub shift: u32,
    /// The kind of the owners.
    pub per: SliceOwnerKind,
    /// The label whose value is the owner.
    pub label: Option<String>,
    /// The maximum number of slices of an owner.
    pub most_each: Option<usize>,
    /// How long a slice without an address in use stays with its owner, in seconds; `None`: until
    /// the owner is deleted.
    pub keep_seconds: Option<i64>,
}

impl SlicePolicy {
    /// Parses the policy of a pool whose specification lists `total` addresses or prefixes of
    /// `length` bits. Fails with all problems.
    pub fn rules(&self, total: u128, length: u8) -> Result<SliceRules, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        let mut problem = |field, value: Value, text: String| {
            problems.push(FieldProblem::new(field, value, text))
        };
        let size = u128::try_from(self.size)
            .ok()
            .filter(|size| size.is_power_of_two() && self.size <= MAX_SIZE);
        match size {
            None => {
                let text = format!("must be a power of two between 1 and {MAX_SIZE}");
                problem("spec.slices.size", self.size.into(), text);
            }
            Some(size) if size > total || size.ilog2() > u32::from(length) => {
                let addresses = counted(total, "address", "addresses");
                let text = format!("must not be larger than the pool, which has {addresses}");
                problem("spec.slices.size", self.size.into(), text);
            }
            Some(_) => {}
        }
        if self.per == SliceOwnerKind::ManagementCluster {
            let value = "ManagementCluster".into();
            problem("spec.slices.per", value, NO_OWNER.to_owned());
        }
        match (self.per, self.label.as_deref()) {
            (SliceOwnerKind::Label, None) => {
                problem("spec.slices.label", Value::Null, LABEL_REQUIRED.to_owned());
            }
            (SliceOwnerKind::Label, Some(label)) if !is_qualified_name(label) => {
                let text = NO_LABEL_NAME.to_owned();
                problem("spec.slices.label", label.into(), text);
            }
            (SliceOwnerKind::Label, Some(_)) | (_, None) => {}
            (_, Some(label)) => {
                problem(
                    "spec.slices.label",
                    label.into(),
                    LABEL_WITHOUT_EFFECT.to_owned(),
                );
            }
        }
        for (field, value, min) in [
            ("spec.slices.mostEach", self.most_each, 1),
            ("spec.slices.keepSeconds", self.keep_seconds, 0),
        ] {
            if let Some(value) = value.filter(|value| *value < min) {
                problem(field, value.into(), format!("must be at least {min}"));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(SliceRules {
            shift: size.map_or(0, u128::ilog2),
            per: self.per,
            label: self.label.clone(),
            most_each: self
                .most_each
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
            keep_seconds: self.keep_seconds,
        })
    }
}

impl SliceRules {
    /// The number of addresses of a slice.
    pub fn size(&self) -> u128 {
        1_u128.checked_shl(self.shift).unwrap_or(u128::MAX)
    }

    /// The owner to which a claim belongs; `None` if it has no cluster name, or not the label.
    pub fn owner_of(
        &self,
        namespace: &str,
        cluster: Option<&str>,
        labels: &BTreeMap<String, String>,
    ) -> Option<SliceOwner> {
        let of = |namespace: Option<&str>, name: &str| SliceOwner {
            kind: self.per,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        match self.per {
            SliceOwnerKind::Cluster => cluster.map(|name| of(Some(namespace), name)),
            SliceOwnerKind::Namespace => Some(of(None, namespace)),
            SliceOwnerKind::Label => labels
                .get(self.label.as_deref()?)
                .filter(|value| !value.is_empty())
                .map(|value| of(None, value)),
            // No pool has such a policy.
            SliceOwnerKind::ManagementCluster => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> SlicePolicy {
        SlicePolicy {
            size: 64,
            ..SlicePolicy::default()
        }
    }

    #[test]
    fn owner_depends_on_the_kind() {
        let labels = BTreeMap::from([("rack".to_owned(), "r1".to_owned())]);
        let owner = |per, label: Option<&str>, cluster: Option<&str>| {
            let policy = SlicePolicy {
                per,
                label: label.map(str::to_owned),
                ..policy()
            };
            policy
                .rules(256, 32)
                .unwrap()
                .owner_of("ns", cluster, &labels)
                .map(|owner| owner.to_string())
        };
        assert_eq!(
            owner(SliceOwnerKind::Cluster, None, Some("a")).as_deref(),
            Some("Cluster ns/a")
        );
        assert_eq!(owner(SliceOwnerKind::Cluster, None, None), None);
        assert_eq!(
            owner(SliceOwnerKind::Namespace, None, None).as_deref(),
            Some("namespace ns")
        );
        assert_eq!(
            owner(SliceOwnerKind::Label, Some("rack"), None).as_deref(),
            Some("label value r1")
        );
        assert_eq!(owner(SliceOwnerKind::Label, Some("row"), None), None);
    }
}
