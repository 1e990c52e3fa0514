//! The conditions of a pool.

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{
    AddressCounts, Audience, NetworkRefusal, OverLimit, PoolKey, SliceCounts, advice, counted,
    names,
};
use capi_ipam_ledger::{DrainingUse, MAX_OVERLAPS, MissingBlock, PoolReport};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::in_cluster::deletion_check::DeletionBlocker;
use crate::in_cluster::errors::{block_reason, describe_missing_block};

/// Whether a transition to this condition is reported by a warning event.
pub(super) fn is_warning(condition: &Condition) -> bool {
    match condition.type_.as_ref() {
        conditions::READY => {
            let problems = [
                conditions::INVALID_SPEC,
                conditions::INITIALIZATION_FAILED,
                conditions::NETWORK_NOT_FOUND,
                conditions::NETWORK_NOT_ALLOWED,
                conditions::NETWORK_NOT_READY,
                conditions::BLOCK_LENGTH_MISMATCH,
            ];
            problems.contains(&condition.reason())
        }
        // The first two repeat what Ready reports. The spec requests the last one.
        conditions::RECONCILING | conditions::STALLED | conditions::DRAINING => false,
        _ => condition.status == "True",
    }
}

/// The state of a pool from which its conditions are computed.
pub(super) struct PoolSnapshot<'a> {
    pub(super) report: &'a PoolReport,
    /// Why the API server rejects our finalizer.
    pub(super) finalizer_error: Option<&'a str>,
    pub(super) blocker: Option<&'a DeletionBlocker>,
    /// Why the pool stays in its network, which it would have left; `None` if it would not.
    pub(super) kept_in_network: Option<String>,
}

impl PoolSnapshot<'_> {
    /// Changes the conditions in `list`, which are those of this `generation` then.
    pub(super) fn update(&self, list: &mut Vec<Condition>, generation: Option<i64>, now: &Time) {
        let ready = self.ready().with_observed_generation(generation);
        conditions::set_ready(list, ready, now.clone());
        for condition in [self.exhausted(), self.overlaps(), self.out_of_range()] {
            let condition = condition.with_observed_generation(generation);
            conditions::set(list, condition, now.clone());
        }
        let optional = [
            (conditions::OVER_LIMIT, self.over_limit()),
            (conditions::SLICES_EXHAUSTED, self.slices_exhausted()),
            (conditions::DRAINING, self.draining()),
            (conditions::KEPT_IN_NETWORK, self.kept_in_network()),
        ];
        for (type_, condition) in optional {
            match condition {
                Some(condition) => {
                    let condition = condition.with_observed_generation(generation);
                    conditions::set(list, condition, now.clone());
                }
                None => {
                    conditions::remove(list, type_);
                }
            }
        }
    }

    fn ready(&self) -> Condition {
        let condition = |ready, reason, message: String| {
            Condition::new(conditions::READY, ready, reason, message)
        };
        if self.report.info.deleting {
            let message = self
                .blocker
                .map(|blocker| deletion_message(&self.report.key, blocker));
            condition(false, conditions::DELETING, message.unwrap_or_default())
        } else if let Some(refusal @ NetworkRefusal::LengthMismatch { .. }) =
            &self.report.info.network_problem
        {
            condition(false, network_reason(refusal), refusal.to_string())
        } else if let Err(problems) = &self.report.info.usable {
            condition(false, conditions::INVALID_SPEC, problems.to_string())
        } else if let Some(refusal) = &self.report.info.network_problem {
            condition(false, network_reason(refusal), refusal.to_string())
        } else if let Some(error) = self.finalizer_error {
            let message = format!(
                "cannot add the finalizer {}, will retry: {error}",
                names::PROTECT_POOL
            );
            condition(false, conditions::INITIALIZATION_FAILED, message)
        } else if self.report.info.paused {
            let message = format!(
                "the pool is paused; {}: remove its annotation {}",
                advice::PAUSED,
                names::PAUSED_ANNOTATION
            );
            condition(false, conditions::PAUSED_REASON, message)
        } else {
            condition(true, conditions::POOL_READY, String::new())
        }
    }

    fn exhausted(&self) -> Condition {
        if self.report.info.usable.is_ok() && self.report.counts.free == 0 {
            let counts = describe_counts(self.report.counts, self.report.cooldown_end);
            if let Some(missing) = &self.report.missing_block {
                return exhausted_in_blocks(&counts, missing);
            }
            let message = format!(
                "no address is free ({counts}); {}",
                advice::exhausted(
                    &self.report.counts,
                    self.report.info.scope.network().is_some()
                )
            );
            return Condition::new(
                conditions::EXHAUSTED,
                true,
                conditions::NO_FREE_ADDRESS,
                message,
            );
        }
        Condition::new(conditions::EXHAUSTED, false, conditions::ADDRESSES_FREE, "")
    }

    fn overlaps(&self) -> Condition {
        if self.report.overlapping.is_empty() {
            return Condition::new(conditions::OVERLAPPING, false, conditions::NO_OVERLAP, "");
        }
        let at_least = if self.report.overlapping.len() >= MAX_OVERLAPS {
            "at least "
        } else {
            ""
        };
        let pools = Audience::of_pool(&self.report.key).pools(&self.report.overlapping);
        let advice = advice::overlap(&self.report.info.scope, self.report.has_one_length);
        let problem = advice::overlap_problem(self.report.shared, &format!("{at_least}{pools}"));
        let message = format!("{problem}; {advice}");
        Condition::new(
            conditions::OVERLAPPING,
            true,
            conditions::POOLS_OVERLAP,
            message,
        )
    }

    fn over_limit(&self) -> Option<Condition> {
        let OverLimit {
            groups,
            addresses,
            not_allowed,
        } = self.report.over_limit?;
        let mut parts = Vec::new();
        if addresses > 0 {
            parts.push(format!(
                "{} {} more than spec.limits allows",
                counted(
                    groups,
                    "namespace or Cluster has",
                    "namespaces or Clusters have"
                ),
                counted(addresses, "address", "addresses")
            ));
        }
        if not_allowed > 0 {
            let addresses = counted(not_allowed, "address is", "addresses are");
            parts.push(format!(
                "{addresses} in namespaces that spec.allowedNamespaces does not allow"
            ));
        }
        if parts.is_empty() {
            return Some(Condition::new(
                conditions::OVER_LIMIT,
                false,
                conditions::WITHIN_LIMITS,
                "",
            ));
        }
        let message = format!(
            "{}; they stay in use until they are released",
            parts.join(", and ")
        );
        Some(Condition::new(
            conditions::OVER_LIMIT,
            true,
            conditions::LIMITS_EXCEEDED,
            message,
        ))
    }

    fn slices_exhausted(&self) -> Option<Condition> {
        let SliceCounts {
            total,
            assigned,
            free,
        } = self.report.slices?;
        if free > 0 {
            return Some(Condition::new(
                conditions::SLICES_EXHAUSTED,
                false,
                conditions::SLICES_FREE,
                "",
            ));
        }
        let unassigned = total.saturating_sub(assigned);
        let rest = if unassigned > 0 {
            let others = counted(unassigned, "other has", "others have");
            format!(", and {others} addresses in use")
        } else {
            String::new()
        };
        let advice = if total > 0 {
            advice::NO_FREE_SLICE
        } else {
            "add addresses for a slice"
        };
        let message = format!("{assigned} of {total} slices are assigned{rest}; {advice}");
        Some(Condition::new(
            conditions::SLICES_EXHAUSTED,
            true,
            conditions::NO_FREE_SLICE,
            message,
        ))
    }

    fn draining(&self) -> Option<Condition> {
        let DrainingUse { addresses, claims } = self.report.draining.as_ref()?;
        if *addresses == 0 {
            let message = "no address of spec.draining is in use; remove its entries together with the addresses";
            return Some(Condition::new(
                conditions::DRAINING,
                false,
                conditions::DRAINED,
                message,
            ));
        }
        let claims = Audience::of_pool(&self.report.key).claims(claims, *addresses);
        let by_claims = if claims.is_empty() {
            claims
        } else {
            format!(" by the {claims}")
        };
        let message = if *addresses == 1 {
            format!("1 address of spec.draining is in use{by_claims}; waiting for its release")
        } else {
            format!(
                "{addresses} addresses of spec.draining are in use{by_claims}; waiting for their release"
            )
        };
        Some(Condition::new(
            conditions::DRAINING,
            true,
            conditions::ADDRESSES_IN_USE,
            message,
        ))
    }

    fn kept_in_network(&self) -> Option<Condition> {
        let message = self.kept_in_network.clone()?;
        let type_ = conditions::KEPT_IN_NETWORK;
        Some(Condition::new(
            type_,
            true,
            conditions::ADDRESSES_IN_USE,
            message,
        ))
    }

    fn out_of_range(&self) -> Condition {
        let count = self.report.counts.out_of_range;
        if count == 0 {
            return Condition::new(
                conditions::OUT_OF_RANGE,
                false,
                conditions::ALL_IN_RANGE,
                "",
            );
        }
        let in_blocks = i64::try_from(self.report.in_unusable_blocks).unwrap_or(count);
        let removed = counted(
            count - in_blocks,
            "address in use is no longer in the pool",
            "addresses in use are no longer in the pool",
        );
        let in_other_blocks = counted(
            in_blocks,
            "address in use is in a block of the network that this management cluster does not have to itself",
            "addresses in use are in blocks of the network that this management cluster does not have to itself",
        );
        let (reason, addresses) = if in_blocks == 0 {
            (conditions::ADDRESSES_OUT_OF_RANGE, removed)
        } else if in_blocks < count {
            let both = format!("{removed}; {in_other_blocks}");
            (conditions::ADDRESSES_OUT_OF_RANGE, both)
        } else {
            (conditions::ADDRESSES_IN_OTHER_BLOCKS, in_other_blocks)
        };
        let stay = if count == 1 {
            "it stays in use until it is released"
        } else {
            "they stay in use until they are released"
        };
        let list = advice::show(&self.report.key);
        let message = format!("{addresses}; {stay}; to list them: {list}");
        Condition::new(conditions::OUT_OF_RANGE, true, reason, message)
    }
}

/// The condition Exhausted of a pool without a free address in the blocks that this management
/// cluster has of the network. It is exhausted if it gets no further block.
fn exhausted_in_blocks(counts: &str, missing: &MissingBlock) -> Condition {
    let in_blocks =
        format!("no address is free in the blocks of this management cluster ({counts})");
    if missing.registry.is_some() && missing.obstacle.is_none() {
        let message = format!(
            "{in_blocks}; another block of network {} is taken for the next claim",
            missing.network
        );
        return Condition::new(
            conditions::EXHAUSTED,
            false,
            conditions::BLOCK_NEEDED,
            message,
        );
    }
    let message = format!("{in_blocks}; {}", describe_missing_block(missing));
    Condition::new(conditions::EXHAUSTED, true, block_reason(missing), message)
}

/// What a pool in deletion waits for, and what to do.
fn deletion_message(pool: &PoolKey, blocker: &DeletionBlocker) -> String {
    match blocker {
        DeletionBlocker::Addresses { count, claims } => {
            let addresses = counted(*count, "address", "addresses");
            let claims = Audience::of_pool(pool).claims(claims, *count);
            let of_claims = if claims.is_empty() {
                claims
            } else {
                format!(" ({claims})")
            };
            format!(
                "waiting for {addresses} to be released{of_claims}; {}",
                advice::pool_deleting(pool)
            )
        }
        DeletionBlocker::Reservation(name) => format!(
            "waiting for IPReservation {name} to be released; delete the claim that it names: kubectl get \
             ipreservations {name}"
        ),
        DeletionBlocker::UnknownAddress => {
            "waiting for an IPAddress of this pool to be deleted; its address is not valid, or it has just been created"
                .to_owned()
        }
        DeletionBlocker::Undecodable(object) => format!(
            "{object} cannot be decoded and may have an address of this pool; correct or delete it"
        ),
    }
}

fn network_reason(refusal: &NetworkRefusal) -> &'static str {
    match refusal {
        NetworkRefusal::NotFound(_) | NetworkRefusal::Lost(_) => conditions::NETWORK_NOT_FOUND,
        NetworkRefusal::LengthMismatch { .. } => conditions::BLOCK_LENGTH_MISMATCH,
        NetworkRefusal::NotAllowed(_) => conditions::NETWORK_NOT_ALLOWED,
        NetworkRefusal::Invalid(_)
        | NetworkRefusal::Deleting(_)
        | NetworkRefusal::Ambiguous(..)
        | NetworkRefusal::DefinitionOutdated(_) => conditions::NETWORK_NOT_READY,
    }
}

/// Describes the counts of a pool without free addresses. `cooldown_end` is in seconds since the
/// Unix epoch.
pub(in crate::in_cluster) fn describe_counts(
    counts: AddressCounts,
    cooldown_end: Option<i64>,
) -> String {
    let end = cooldown_end.and_then(|end| jiff::Timestamp::from_second(end).ok());
    advice::describe_counts(&counts, end.map(|end| end.to_string()).as_deref())
}

#[cfg(test)]
mod tests;
