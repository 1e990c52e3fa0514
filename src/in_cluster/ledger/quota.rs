//! How many addresses of a pool each namespace and each Cluster have: a structure without clock, lock or I/O.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::ClaimKey;
use crate::api::AccessRules;

/// On whose account a claim has an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Consumer {
    pub(super) namespace: Arc<str>,
    /// The Cluster of the claim, in its namespace.
    pub(super) cluster: Option<Arc<str>>,
}

impl Consumer {
    pub(super) fn of((namespace, _): &ClaimKey, cluster: Option<&Arc<str>>) -> Self {
        Self { namespace: namespace.as_str().into(), cluster: cluster.cloned() }
    }

    /// What can have a limit: the namespace, and the Cluster.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group> {
        let namespace = self.namespace.clone();
        let cluster = self.cluster.clone().map(|cluster| Group::Cluster(self.namespace.clone(), cluster));
        std::iter::once(Group::Namespace(namespace)).chain(cluster)
    }
}

/// The claims that share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// The claims of a namespace.
    Namespace(Arc<str>),
    /// The claims of a Cluster: its namespace and name.
    Cluster(Arc<str>, Arc<str>),
}

impl Group {
    pub(super) fn includes(&self, consumer: &Consumer) -> bool {
        match self {
            Self::Namespace(namespace) => *namespace == consumer.namespace,
            Self::Cluster(namespace, cluster) => {
                *namespace == consumer.namespace && consumer.cluster.as_ref() == Some(cluster)
            }
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
        let limit = self.limit;
        match &self.cluster {
            Some(cluster) => write!(
                formatter,
                "Cluster {cluster} has the {limit} addresses that a Cluster may have (spec.limits.perCluster)"
            ),
            None => write!(
                formatter,
                "the namespace of the claim has the {limit} addresses that a namespace may have \
                 (spec.limits.perNamespace)"
            ),
        }
    }
}

/// Addresses beyond what the rules of a pool allow. They stay in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverLimit {
    /// Namespaces and Clusters with more addresses than their limit.
    pub groups: usize,
    /// The addresses that these have beyond their limits.
    pub addresses: usize,
    /// Addresses in namespaces that may not use the pool.
    pub not_allowed: usize,
}

/// The addresses of a pool by namespace and Cluster.
#[derive(Debug)]
pub(super) struct Quota {
    per_namespace: Option<usize>,
    per_cluster: Option<usize>,
    used: HashMap<Group, usize>,
    /// The groups that have fewer addresses since this was last taken.
    freed: Vec<Group>,
}

impl Quota {
    pub(super) fn new(rules: &AccessRules) -> Self {
        let AccessRules { per_namespace, per_cluster, .. } = *rules;
        Self { per_namespace, per_cluster, used: HashMap::new(), freed: Vec::new() }
    }

    /// Records that a consumer has one address more or less.
    pub(super) fn charge(&mut self, consumer: &Consumer, is_added: bool) {
        for group in consumer.groups() {
            if is_added {
                let count = self.used.entry(group).or_default();
                *count = count.saturating_add(1);
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
    pub(super) fn take_freed(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.freed)
    }

    /// The maximum number of addresses of a group; `None` without a limit.
    pub(super) fn limit(&self, group: &Group) -> Option<usize> {
        match group {
            Group::Namespace(_) => self.per_namespace,
            Group::Cluster(..) => self.per_cluster,
        }
    }

    fn used(&self, group: &Group) -> usize {
        self.used.get(group).copied().unwrap_or_default()
    }

    /// How many more addresses a group may have; `None` without a limit.
    pub(super) fn room(&self, group: &Group) -> Option<usize> {
        Some(self.limit(group)?.saturating_sub(self.used(group)))
    }

    /// The first group of a consumer that may have no further address beyond those that `promised` counts.
    pub(super) fn full(&self, consumer: &Consumer, promised: impl Fn(&Group) -> usize) -> Option<Group> {
        consumer.groups().find(|group| self.room(group).is_some_and(|room| room <= promised(group)))
    }

    /// Describes the limit of a group.
    pub(super) fn describe(&self, group: &Group) -> LimitReached {
        let cluster = if let Group::Cluster(_, cluster) = group { Some(cluster.clone()) } else { None };
        LimitReached { limit: self.limit(group).unwrap_or_default(), cluster }
    }

    /// Whether a group has more addresses than it may have.
    pub(super) fn is_exceeded(&self, group: &Group) -> bool {
        self.limit(group).is_some_and(|limit| self.used(group) > limit)
    }

    /// Counts the addresses beyond the limits. `is_allowed` returns whether a namespace may use the pool.
    pub(super) fn over(&self, is_allowed: impl Fn(&str) -> bool) -> OverLimit {
        let mut over = OverLimit::default();
        for (group, used) in &self.used {
            let excess = self.limit(group).map(|limit| used.saturating_sub(limit)).unwrap_or_default();
            over.groups = over.groups.saturating_add(usize::from(excess > 0));
            over.addresses = over.addresses.saturating_add(excess);
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
    use crate::api::AllowedNamespaces;

    fn quota(per_namespace: Option<usize>, per_cluster: Option<usize>) -> Quota {
        Quota::new(&AccessRules { namespaces: AllowedNamespaces::All, per_namespace, per_cluster, headroom: None })
    }

    fn consumer(namespace: &str, cluster: Option<&str>) -> Consumer {
        Consumer { namespace: namespace.into(), cluster: cluster.map(Into::into) }
    }

    #[test]
    fn each_group_has_its_limit() {
        let mut quota = quota(Some(3), Some(2));
        let (one, other, none) = (consumer("a", Some("one")), consumer("a", Some("other")), consumer("a", None));
        for _ in 0..2 {
            assert_eq!(quota.full(&one, |_| 0), None);
            quota.charge(&one, true);
        }
        let full = quota.full(&one, |_| 0).unwrap();
        assert_eq!(quota.describe(&full), LimitReached { limit: 2, cluster: Some("one".into()) });
        assert_eq!(quota.full(&other, |_| 0), None);
        let namespace = Group::Namespace("a".into());
        assert_eq!(quota.full(&other, |_| 1), Some(namespace.clone()), "a claim has a turn");
        quota.charge(&none, true);
        assert_eq!(quota.full(&other, |_| 0), Some(namespace.clone()));
        assert_eq!(quota.full(&consumer("b", Some("one")), |_| 0), None, "a Cluster of another namespace");
        assert!(!quota.is_exceeded(&namespace));
        quota.charge(&none, true);
        assert!(quota.is_exceeded(&namespace));
        let over = OverLimit { groups: 1, addresses: 1, not_allowed: 0 };
        assert_eq!(quota.over(|_| true), over);
        assert_eq!(quota.over(|_| false), OverLimit { not_allowed: 4, ..over });
    }

    #[test]
    fn released_addresses_make_room() {
        let mut quota = quota(None, Some(1));
        let one = consumer("a", Some("one"));
        quota.charge(&one, true);
        quota.charge(&one, false);
        assert_eq!(quota.take_freed(), [Group::Cluster("a".into(), "one".into())], "the namespace has no limit");
        assert_eq!((quota.full(&one, |_| 0), quota.used.len()), (None, 0));
    }
}
