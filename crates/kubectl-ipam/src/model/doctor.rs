//! The checks of `doctor` and `status`: pure functions from a [`Snapshot`] to findings. Each check
//! is in one file, and in one line of [`CHECKS`].

mod addresses;
mod addressings;
mod causes;
mod claims;
mod definitions;
mod deletion;
mod duplicates;
mod examination;
mod gateways;
mod lease;
mod managers;
mod manifest;
mod names;
mod networks;
mod overlaps;
mod paused;
mod permissions;
mod pool_sets;
mod pools;
mod registries;
mod replicas;
mod selection;
pub(crate) mod snapshot;
mod waiting;
mod webhooks;

use self::examination::Examination;
pub(crate) use self::lease::is_held;
pub(crate) use self::names::grouped;
pub(crate) use self::selection::{Selection, retain};
pub(crate) use self::snapshot::{LeaseRow, Snapshot};
pub(crate) use self::waiting::{is_old, is_unprocessed};
use super::finding::{Check, FindingList, Unchecked};
use super::slices::without_effect;
use crate::objects::Kind;

/// A function that makes checks.
type Examine = fn(&Snapshot) -> Examination;

/// All checks, each with its function.
const CHECKS: &[(&[Check], Examine)] = &[
    (&[Check::MissingDefinition], definitions::missing),
    (&[Check::OutdatedDefinition], definitions::outdated),
    (&[Check::NoLeader], lease::leaderless),
    (&[Check::ReplicasNotReady], replicas::not_ready),
    (&[Check::MissingPermission], permissions::missing),
    (&[Check::WebhookMissing], webhooks::missing),
    (&[Check::WebhookUntrusted], webhooks::untrusted),
    (
        &[Check::ClusterWebhookUntrusted],
        webhooks::untrusted_mutations,
    ),
    (&[Check::WebhookUnavailable], webhooks::unavailable),
    (&[Check::WebhookFailing], webhooks::failing),
    (&[Check::ConversionFailing], definitions::unconverted),
    (&[Check::CertificateInvalid], webhooks::certificates),
    (&[Check::SeveralManagers], managers::several),
    (&[Check::DuplicateAddress], duplicates::duplicates),
    (
        &[Check::LostAddress, Check::OrphanAddress],
        addresses::unreferenced,
    ),
    (&[Check::MissingPool], addresses::missing_pools),
    (&[Check::UnknownPoolKind], claims::unknown_kinds),
    (&[Check::ClusterNotFound], waiting::missing_clusters),
    (
        &[
            Check::PoolNotReady,
            Check::MoveStalled,
            Check::AddressesOutOfRange,
            Check::KeptInNetwork,
        ],
        pools::reported,
    ),
    (
        &[
            Check::NetworkNotReady,
            Check::BlockConflict,
            Check::BlockSizeDiffers,
            Check::ExclusionsDiffer,
        ],
        networks::reported,
    ),
    (&[Check::PoolSetNotReady], pool_sets::not_ready),
    (&[Check::RegistryNotReady], registries::not_ready),
    (&[Check::ClusterAddressingNotReady], addressings::not_ready),
    (&[Check::StaleCluster], registries::stale),
    (&[Check::RecordWithoutSlice], registries::without_slice),
    (&[Check::UnreadableObject], unreadable),
    (&[Check::PoolExhausted], waiting::exhausted),
    (&[Check::NotReconciled], waiting::not_reconciled),
    (&[Check::ClaimsWait], waiting::other_reasons),
    (&[Check::PoolDeleting], deletion::pools),
    (&[Check::ReleaseBlocked], deletion::blocked),
    (&[Check::Paused], paused::paused),
    (&[Check::AbandonedReservation], addresses::abandoned),
    (&[Check::PoolsOverlap], overlaps::overlaps),
    (&[Check::UnusableGateway], gateways::unusable),
    (&[Check::OutdatedGateway], gateways::outdated),
    (&[Check::SliceWithoutEffect], slices),
    (
        &[
            Check::AddressNotInUse,
            Check::AddressConflict,
            Check::ReleasedEarly,
            Check::RestoredWithoutAddress,
        ],
        claims::reported,
    ),
    (
        &[Check::InvalidReservation],
        addresses::invalid_reservations,
    ),
    (&[Check::AddressQuarantined], addresses::quarantined),
    (&[Check::OutdatedOwner], addresses::outdated_owners),
];

/// Adds the result of some checks.
fn add(list: &mut FindingList, checks: &[Check], examination: Examination) {
    list.findings.extend(examination.findings);
    let Some(unknown) = examination.unknown else {
        list.checks.extend(checks);
        return;
    };
    if unknown.partly {
        list.checks.extend(checks);
    }
    for check in checks {
        list.unchecked.push(Unchecked {
            check: *check,
            reason: unknown.reason.clone(),
            partly: unknown.partly,
            missing: unknown.missing.clone(),
        });
    }
}

/// Makes all checks.
pub(crate) fn diagnosis(snapshot: &Snapshot) -> FindingList {
    let mut found = FindingList {
        waiting: Selection::default().waiting(snapshot),
        ..FindingList::default()
    };
    for (checks, examine) in CHECKS {
        add(&mut found, checks, examine(snapshot));
    }
    found.findings = causes::arrange(found.findings);
    found.checks.sort_unstable();
    found
}

/// Objects that cannot be decoded.
fn unreadable(snapshot: &Snapshot) -> Examination {
    let repair = "correct or delete the objects: kubectl edit";
    let texts = snapshot.unreadable.iter();
    let findings = texts.map(|text| Check::UnreadableObject.finding("objects", text, repair));
    let missing = [
        snapshot.objects.lacking(&Kind::ALL),
        snapshot.registries.missing.clone(),
    ];
    Examination::complete(findings).with_unknown(missing.concat(), snapshot.has_objects())
}

/// Slices that have no effect.
fn slices(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking_of_pools_and(&[Kind::Slice]), || {
        without_effect(objects)
    })
}

#[cfg(test)]
mod tests;
