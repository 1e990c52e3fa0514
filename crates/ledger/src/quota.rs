//! How many addresses of a pool each namespace and each Cluster have: a structure without clock,
//! lock or I/O.

#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use capi_ipam_api::{AccessRules, OverLimit, SliceOwner};
use capi_ipam_objects::namespaced_name::NamespacedName;

/// A claim that has an address, or requests one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consumer {
    pub(crate) claim: NamespacedName,
    /// The Cluster of the claim, in its namespace.
    cluster: Option<Arc<str>>,
    /// The owner of slices to which the claim belongs; only while it requests an address.
    owner: Option<Arc<SliceOwner>>,
}

impl Consumer {
    pub(crate) fn new(claim: NamespacedName, cluster: Option<Arc<str>>) -> Self {
        Self {
            claim,
            cluster,
            owner: None,
        }
    }

    /// Adds the owner of slices to which the claim belongs.
    pub(crate) fn with_owner(self, owner: Option<Arc<SliceOwner>>) -> Self {
        Self { owner, ..self }
    }

    /// What can have a limit: the namespace, the Cluster, and the owner of slices.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Group> {
        let namespace: Arc<str> = self.claim.namespace().into();
        let cluster = self.cluster.clone();
        let cluster = cluster.map(|cluster| Group::Cluster(namespace.clone(), cluster));
        let owner = self.owner.clone().map(Group::Owner);
        let namespace = Group::Namespace(namespace);
        [Some(namespace), cluster, owner].into_iter().flatten()
    }
}

/// The claims that share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Group {
    /// The claims of a namespace.
    Namespace(Arc<str>),
    /// The claims of a Cluster: its namespace and name.
    Cluster(Arc<str>, Arc<str>),
    /// The claims of an owner of slices.
    Owner(Arc<SliceOwner>),
}

impl Group {
    /// Whether a claim is one of the group.
    pub(crate) fn includes(&self, consumer: &Consumer) -> bool {
        match self {
            Self::Namespace(namespace) => **namespace == *consumer.claim.namespace(),
            Self::Cluster(namespace, cluster) => {
                **namespace == *consumer.claim.namespace()
                    && consumer.cluster.as_ref() == Some(cluster)
            }
            Self::Owner(owner) => consumer.owner.as_ref() == Some(owner),
        }
    }
}

/// A limit that a claim would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The maximum number of addresses.
    pub limit: usize,
    /// The Cluster, if that is the limit of a Cluster; otherwise it is that of the namespace.
    pub cluster: Option<Arc<str>>,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, cluster } = self;
        match cluster {
            Some(cluster) => write!(
                formatter,
                "Cluster {cluster} uses {limit} of {limit} addresses that the pool allows each Cluster \
                 (spec.limits.perCluster)"
            ),
            None => write!(
                formatter,
                "the namespace uses {limit} of {limit} addresses that the pool allows each namespace \
                 (spec.limits.perNamespace)"
            ),
        }
    }
}

/// The claims with addresses of a pool, by namespace and Cluster. A claim can have two addresses
/// for a moment, and counts once.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    per_namespace: Option<usize>,
    per_cluster: Option<usize>,
    /// The claims with addresses, and the number of their addresses.
    claims: HashMap<NamespacedName, (Consumer, usize)>,
    /// The number of claims with addresses.
    used: HashMap<Group, usize>,
    /// The groups that have fewer addresses since this was last taken.
    freed: Vec<Group>,
}

impl Quota {
    pub(crate) fn new(rules: &AccessRules) -> Self {
        Self {
            per_namespace: rules.per_namespace,
            per_cluster: rules.per_cluster,
            claims: HashMap::new(),
            used: HashMap::new(),
            freed: Vec::new(),
        }
    }

    /// Records that a claim has one address more or less.
    pub(crate) fn charge(&mut self, consumer: &Consumer, is_added: bool) {
        if is_added {
            let known = self.claims.entry(consumer.claim.clone());
            let (_, count) = known.or_insert_with(|| (consumer.clone(), 0));
            *count += 1;
            if *count == 1 {
                self.count(consumer, true);
            }
            return;
        }
        let Some((_, count)) = self.claims.get_mut(&consumer.claim) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0
            && let Some((known, _)) = self.claims.remove(&consumer.claim)
        {
            self.count(&known, false);
        }
    }

    /// Counts a claim that has its first address, or that has released its last one.
    fn count(&mut self, consumer: &Consumer, is_added: bool) {
        for group in consumer.groups() {
            if is_added {
                let count = self.used.entry(group).or_default();
                *count += 1;
                continue;
            }
            if let Some(count) = self.used.get_mut(&group) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.used.remove(&group);
                }
            }
            if self.limit(&group).is_some() {
                self.freed.push(group);
            }
        }
    }

    /// The groups that have fewer addresses since the last call.
    pub(crate) fn take_freed(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.freed)
    }

    /// The maximum number of addresses of a group; `None` without a limit.
    pub(crate) fn limit(&self, group: &Group) -> Option<usize> {
        match group {
            Group::Namespace(_) => self.per_namespace,
            Group::Cluster(..) => self.per_cluster,
            Group::Owner(_) => None,
        }
    }

    /// The number of claims of a group that have addresses.
    fn used(&self, group: &Group) -> usize {
        match self.used.get(group) {
            Some(used) => *used,
            None => 0,
        }
    }

    /// How many more addresses a group may have; `None` without a limit.
    pub(crate) fn room(&self, group: &Group) -> Option<usize> {
        Some(self.limit(group)?.saturating_sub(self.used(group)))
    }

    /// The first group of a claim that may have no further address beyond those that `promised`
    /// counts; none for a claim that has an address.
    pub(crate) fn full(
        &self,
        consumer: &Consumer,
        promised: impl Fn(&Group) -> usize,
    ) -> Option<Group> {
        if self.claims.contains_key(&consumer.claim) {
            return None;
        }
        for group in consumer.groups() {
            if let Some(room) = self.room(&group)
                && room <= promised(&group)
            {
                return Some(group);
            }
        }
        None
    }

    /// Describes the limit of a group.
    pub(crate) fn describe(&self, group: &Group) -> LimitReached {
        let cluster = if let Group::Cluster(_, cluster) = group {
            Some(cluster.clone())
        } else {
            None
        };
        LimitReached {
            limit: self.limit(group).unwrap_or_default(),
            cluster,
        }
    }

    /// Whether a group has more addresses than it may have.
    pub(crate) fn is_exceeded(&self, group: &Group) -> bool {
        self.limit(group)
            .is_some_and(|limit| self.used(group) > limit)
    }

    /// The number of addresses of each claim, and of claims of each group.
    #[cfg(test)]
    pub(crate) fn used_counts(&self) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
        let claims = self.claims.values();
        let claims = claims.map(|(consumer, count)| (format!("{consumer:?}"), *count));
        let groups = self.used.iter();
        let groups = groups.map(|(group, count)| (format!("{group:?}"), *count));
        (claims.collect(), groups.collect())
    }

    /// Counts the addresses beyond the limits. `is_allowed` returns whether a namespace may use the
    /// pool.
    pub(crate) fn over(&self, is_allowed: impl Fn(&str) -> bool) -> OverLimit {
        let mut over = OverLimit::default();
        for (group, used) in &self.used {
            if let Some(limit) = self.limit(group)
                && *used > limit
            {
                let excess = used.saturating_sub(limit);
                over.groups += 1;
                over.addresses = over.addresses.saturating_add(excess);
            }
            if let Group::Namespace(namespace) = group
                && !is_allowed(namespace)
            {
                over.not_allowed = over.not_allowed.saturating_add(*used);
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_ipam_api::AllowedNamespaces;

    fn quota(per_namespace: Option<usize>, per_cluster: Option<usize>) -> Quota {
        Quota::new(&AccessRules {
            namespaces: AllowedNamespaces::All,
            per_namespace,
            per_cluster,
            headroom: None,
        })
    }

    /// A claim of a namespace and Cluster.
    fn claim(name: &str, namespace: &str, cluster: Option<&str>) -> Consumer {
        Consumer::new(
            NamespacedName::new(namespace, name),
            cluster.map(Into::into),
        )
    }

    #[test]
    fn each_group_has_its_limit() {
        let mut quota = quota(Some(3), Some(2));
        for name in ["a", "b"] {
            let one = claim(name, "n", Some("one"));
            assert_eq!(quota.full(&one, |_| 0), None);
            quota.charge(&one, true);
        }
        let full = quota.full(&claim("c", "n", Some("one")), |_| 0).unwrap();
        assert_eq!(
            quota.describe(&full),
            LimitReached {
                limit: 2,
                cluster: Some("one".into())
            }
        );
        let (namespace, other) = (Group::Namespace("n".into()), claim("d", "n", Some("other")));
        assert_eq!(quota.full(&other, |_| 0), None);
        assert_eq!(
            quota.full(&other, |_| 1),
            Some(namespace.clone()),
            "a claim has a turn"
        );
        quota.charge(&claim("e", "n", None), true);
        assert_eq!(quota.full(&other, |_| 0), Some(namespace.clone()));
        assert_eq!(
            quota.full(&claim("a", "m", Some("one")), |_| 0),
            None,
            "a Cluster of another namespace"
        );
        assert_eq!(
            quota.full(&claim("a", "n", Some("one")), |_| 0),
            None,
            "it has an address"
        );
        assert!(!quota.is_exceeded(&namespace));
        quota.charge(&claim("f", "n", None), true);
        assert!(quota.is_exceeded(&namespace));
        let over = OverLimit {
            groups: 1,
            addresses: 1,
            not_allowed: 0,
        };
        assert_eq!(quota.over(|_| true), over);
        assert_eq!(
            quota.over(|_| false),
            OverLimit {
                not_allowed: 4,
                ..over
            }
        );
    }

    #[test]
    fn claim_with_two_addresses_counts_once() {
        let mut quota = quota(None, Some(1));
        let one = claim("a", "n", Some("one"));
        quota.charge(&one, true);
        // The other reservation was created without the name of the Cluster.
        quota.charge(&claim("a", "n", None), true);
        assert!(!quota.is_exceeded(&Group::Cluster("n".into(), "one".into())));
        quota.charge(&one, false);
        assert_eq!(quota.take_freed(), []);
        quota.charge(&claim("a", "n", None), false);
        assert_eq!(
            quota.take_freed(),
            [Group::Cluster("n".into(), "one".into())],
            "the namespace has no limit"
        );
        assert!(quota.used.is_empty() && quota.claims.is_empty());
    }
}
