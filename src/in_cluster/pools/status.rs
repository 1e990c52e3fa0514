//! What the conditions of a pool say.

use crate::api::conditions::{self, Condition};
use crate::api::{AddressCounts, Audience, names, PoolKey, Scope};
use crate::in_cluster::allocate::describe_counts;
use crate::in_cluster::ledger::{MAX_OVERLAPS, PoolInfo};
use crate::in_cluster::pool_use::Obstacle;

/// Whether an operator should hear of it by an event.
pub(super) fn is_warning(condition: &Condition) -> bool {
    match condition.type_.as_ref() {
        conditions::READY => {
            let problems = [conditions::INVALID_SPEC, conditions::INITIALIZATION_FAILED];
            problems.contains(&condition.reason.as_deref().unwrap_or_default())
        }
        _ => condition.status == "True",
    }
}

/// What is known of a pool when its status is written.
pub(super) struct Seen<'a> {
    pub(super) key: &'a PoolKey,
    pub(super) facts: &'a PoolInfo,
    pub(super) counts: AddressCounts,
    /// When the next cool-down ends, in seconds since 1970.
    pub(super) cooldown_end: Option<i64>,
    /// Why the API server refuses our finalizer.
    pub(super) refused: Option<&'a str>,
    pub(super) overlapping: Vec<PoolKey>,
    pub(super) obstacle: Option<&'a Obstacle>,
}

impl Seen<'_> {
    /// All conditions of the pool.
    pub(super) fn conditions(&self) -> [Condition; 4] {
        [self.ready(), self.exhausted(), self.overlaps(), self.out_of_range()]
    }

    fn ready(&self) -> Condition {
        let condition = |ready, reason, message: String| Condition::new(conditions::READY, ready, reason, message);
        if self.facts.deleting {
            let why = match self.obstacle {
                Some(Obstacle::Addresses(count)) => format!("waits until {count} addresses are released"),
                Some(Obstacle::Reservation(name)) => {
                    format!("waits until IPReservation {name} is released; delete the claim that holds it")
                }
                Some(Obstacle::UnknownAddress) => {
                    "waits until an IPAddress that names this pool is deleted; its address cannot be read, or it has just \
                     been created"
                        .to_owned()
                }
                None => String::new(),
            };
            condition(false, conditions::DELETING, why)
        } else if let Err(problems) = &self.facts.usable {
            condition(false, conditions::INVALID_SPEC, problems.to_string())
        } else if let Some(why) = self.refused {
            let message = format!("cannot add the finalizer {}, will retry: {why}", names::PROTECT_POOL);
            condition(false, conditions::INITIALIZATION_FAILED, message)
        } else if self.facts.paused {
            let message = format!("remove the annotation {} to go on", names::PAUSED_ANNOTATION);
            condition(false, conditions::PAUSED_REASON, message)
        } else {
            condition(true, conditions::POOL_READY, String::new())
        }
    }

    fn exhausted(&self) -> Condition {
        if self.facts.usable.is_ok() && self.counts.free == 0 {
            let counts = describe_counts(self.counts, self.cooldown_end);
            let message = format!("no address is free ({counts}); add addresses or release claims");
            return Condition::new(conditions::EXHAUSTED, true, conditions::NO_FREE_ADDRESS, message);
        }
        Condition::new(conditions::EXHAUSTED, false, conditions::ADDRESSES_FREE, "")
    }

    fn overlaps(&self) -> Condition {
        if self.overlapping.is_empty() {
            return Condition::new(conditions::OVERLAPPING, false, conditions::NO_OVERLAP, "");
        }
        let at_least = if self.overlapping.len() >= MAX_OVERLAPS { "at least " } else { "" };
        let pools = Audience::of_pool(self.key).pools(&self.overlapping);
        let advice = match &self.facts.scope {
            Scope::Pool(_) => "give all of them the same spec.network where they are one network",
            Scope::Network(_) => "they are not of this pool's network",
        };
        let message = format!("the same addresses can be allocated by {at_least}{pools}; {advice}");
        Condition::new(conditions::OVERLAPPING, true, conditions::POOLS_OVERLAP, message)
    }

    fn out_of_range(&self) -> Condition {
        let count = self.counts.out_of_range;
        if count == 0 {
            return Condition::new(conditions::OUT_OF_RANGE, false, conditions::ALL_IN_RANGE, "");
        }
        let message =
            format!("{count} addresses in use are not among the pool's any more; they stay in use until released");
        Condition::new(conditions::OUT_OF_RANGE, true, conditions::ADDRESSES_OUT_OF_RANGE, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, Value};

    use crate::api::{InClusterIPPool, InClusterKind};
    use super::*;

    fn said(change: &Value, counts: AddressCounts, overlapping: usize) -> Vec<(String, String, String)> {
        let mut pool =
            json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24}});
        json_patch::merge(&mut pool, change);
        let pool = serde_json::from_value::<InClusterIPPool>(pool).unwrap();
        let (key, facts) = (PoolKey::of(&pool), PoolInfo::of(&pool));
        let other =
            |index| PoolKey { kind: InClusterKind::GlobalIPPool, namespace: None, name: format!("o{index}").into() };
        let overlapping = (0..overlapping).map(other).collect();
        let obstacle = Some(&Obstacle::Addresses(3));
        let seen = Seen { key: &key, facts: &facts, counts, cooldown_end: None, refused: None, overlapping, obstacle };
        let told = |condition: Condition| {
            assert!(!condition.reason.as_deref().unwrap_or_default().is_empty());
            let text = condition.message.unwrap_or_default();
            (format!("{}={}", condition.type_, condition.status), condition.reason.unwrap().into_owned(), text)
        };
        seen.conditions().map(told).into()
    }

    #[test]
    fn each_condition_says_what_is_wrong() {
        let some_free = AddressCounts { total: 4, free: 1, used: 3, ..AddressCounts::default() };
        let fine = said(&json!({}), some_free, 0);
        let states: Vec<&str> = fine.iter().map(|(state, _, _)| state.as_str()).collect();
        assert_eq!(states, ["Ready=True", "Exhausted=False", "Overlapping=False", "OutOfRange=False"]);

        let bad = said(
            &json!({}),
            AddressCounts { total: 3, free: 0, used: 3, out_of_range: 2, ..AddressCounts::default() },
            12,
        );
        assert_eq!(bad[1].1, conditions::NO_FREE_ADDRESS);
        assert!(bad[2].2.contains("GlobalInClusterIPPool o0, ") && bad[2].2.contains(" and 7 more; "), "{}", bad[2].2);
        assert!(bad[3].2.starts_with("2 addresses"), "{}", bad[3].2);

        let reasons = [
            (json!({"spec": {"prefix": 99}}), conditions::INVALID_SPEC),
            (json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}), conditions::PAUSED_REASON),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), conditions::DELETING),
        ];
        for (change, reason) in reasons {
            assert_eq!(said(&change, some_free, 0)[0].1, reason);
        }
        let empty_and_invalid = said(&json!({"spec": {"prefix": 99}}), AddressCounts::default(), 0);
        assert_eq!(empty_and_invalid[1].0, "Exhausted=False");
    }
}
