//! The state of each part of the provider: the findings of the checks of the part, and what the
//! cluster shows of it.

use std::collections::BTreeSet;

use capi_ipam_api::names;
use jiff::Timestamp;

use super::doctor::{DeploymentRow, LeaseRow, Snapshot, WebhookMode};
use super::finding::{Check, FindingList, Part, PartLine, PartState, Severity, counted};
use crate::objects::Kind;

impl Part {
    const ALL: [Self; 10] = [
        Self::Definitions,
        Self::Lease,
        Self::Probes,
        Self::Permissions,
        Self::Webhooks,
        Self::Certificate,
        Self::Sweeper,
        Self::Pools,
        Self::Registries,
        Self::Claims,
    ];

    /// The part that a check is about.
    pub(crate) fn of(check: Check) -> Self {
        match check {
            Check::MissingDefinition | Check::OutdatedDefinition => Self::Definitions,
            Check::NoLeader | Check::SeveralManagers => Self::Lease,
            Check::ReplicasNotReady | Check::WebhookUnavailable => Self::Probes,
            Check::MissingPermission => Self::Permissions,
            Check::WebhookMissing
            | Check::WebhookUntrusted
            | Check::WebhookFailing
            | Check::ConversionFailing => Self::Webhooks,
            Check::CertificateInvalid => Self::Certificate,
            Check::AbandonedReservation => Self::Sweeper,
            Check::PoolNotReady
            | Check::NetworkNotReady
            | Check::MoveStalled
            | Check::PoolExhausted
            | Check::PoolDeleting
            | Check::PoolsOverlap
            | Check::UnusableGateway
            | Check::OutdatedGateway
            | Check::SliceWithoutEffect
            | Check::AddressesOutOfRange
            | Check::KeptInNetwork => Self::Pools,
            Check::RegistryNotReady
            | Check::BlockConflict
            | Check::BlockSizeDiffers
            | Check::ExclusionsDiffer
            | Check::StaleCluster
            | Check::RecordWithoutSlice => Self::Registries,
            Check::DuplicateAddress
            | Check::LostAddress
            | Check::OrphanAddress
            | Check::InvalidReservation
            | Check::MissingPool
            | Check::UnknownPoolKind
            | Check::ClusterNotFound
            | Check::UnreadableObject
            | Check::NotReconciled
            | Check::ClaimsWait
            | Check::ReleaseBlocked
            | Check::ReleasedEarly
            | Check::RestoredWithoutAddress
            | Check::AddressNotInUse
            | Check::Paused
            | Check::OutdatedOwner => Self::Claims,
        }
    }

    /// Whether claims are served although the part has an error: it is about single objects.
    pub(crate) fn is_of_objects(self) -> bool {
        matches!(
            self,
            Self::Sweeper | Self::Pools | Self::Registries | Self::Claims
        )
    }
}

/// The state of each part.
pub(crate) fn parts(diagnosis: &FindingList, snapshot: &Snapshot) -> Vec<PartLine> {
    let has_registries = !matches!(snapshot.registries.known(), Some(none) if none.is_empty());
    let mut lines = Vec::new();
    for part in Part::ALL {
        if part != Part::Registries || has_registries {
            lines.push(line(part, diagnosis, snapshot));
        }
    }
    lines
}

/// Whether the provider works, whatever is wrong with single objects; `None` if this is unknown.
pub(crate) fn health(parts: &[PartLine]) -> Option<bool> {
    let of_provider = parts.iter().filter(|line| !line.part.is_of_objects());
    let states: Vec<PartState> = of_provider.map(|line| line.state).collect();
    if states.contains(&PartState::Error) {
        Some(false)
    } else if states.contains(&PartState::Unknown) {
        None
    } else {
        Some(true)
    }
}

fn line(part: Part, diagnosis: &FindingList, snapshot: &Snapshot) -> PartLine {
    let findings = diagnosis.findings.iter();
    let of_part = findings.filter(|finding| Part::of(finding.check) == part);
    let worst = of_part.map(|finding| finding.severity).min();
    let mut unchecked = diagnosis.unchecked.iter();
    let is_unchecked = unchecked.any(|unchecked| Part::of(unchecked.check) == part);
    let unserved = unserved(part, snapshot);
    let state = match worst {
        Some(Severity::Error) => PartState::Error,
        Some(Severity::Warning) => PartState::Warning,
        _ if is_unchecked || unserved.is_some() => PartState::Unknown,
        Some(Severity::Note) | None => PartState::Ok,
    };
    // The list of a kind that is not served is empty, which says nothing.
    let detail = match unserved {
        Some(problem) => problem,
        None => facts(part, snapshot).unwrap_or_default(),
    };
    PartLine {
        part,
        state,
        detail,
    }
}

/// The kind without which nothing is known of a part, if the API server does not serve it.
fn unserved(part: Part, snapshot: &Snapshot) -> Option<String> {
    let needed: &[&str] = match part {
        Part::Sweeper => &["ipreservations"],
        Part::Pools => &["inclusterippools", "globalinclusterippools"],
        Part::Claims => &["ipaddressclaims", "ipaddresses"],
        _ => &[],
    };
    let row = snapshot
        .definitions
        .iter()
        .find(|row| !row.is_supported && needed.contains(&row.plural))?;
    Some(format!(
        "the API server does not serve {}.{}",
        row.plural, row.group
    ))
}

/// What the cluster shows of a part; `None` if nothing.
fn facts(part: Part, snapshot: &Snapshot) -> Option<String> {
    let objects = &snapshot.objects;
    match part {
        Part::Definitions => Some(definitions(snapshot)),
        Part::Lease => lease(snapshot),
        Part::Probes => probes(snapshot),
        Part::Permissions => permissions(snapshot),
        Part::Webhooks => webhooks(snapshot),
        Part::Certificate => certificate(snapshot),
        Part::Sweeper => {
            let count = objects.reservations.iter().count();
            let is_known = objects.has(&[Kind::Reservation]);
            is_known.then(|| counted(count, "reservation"))
        }
        Part::Pools => {
            let is_known = objects.has(&Kind::POOLS) && objects.has(&[Kind::Network]);
            let pools = counted(objects.pools().len(), "pool");
            let networks = counted(objects.networks.iter().count(), "network");
            is_known.then(|| format!("{pools}, {networks}"))
        }
        Part::Registries => registries(snapshot),
        Part::Claims => claims(snapshot),
    }
}

/// The registries, with the identity of this management cluster in each.
fn registries(snapshot: &Snapshot) -> Option<String> {
    let registries = snapshot.registries.known()?;
    let mut names = Vec::new();
    for facts in registries {
        names.push(match &facts.cluster {
            Some(cluster) => format!("{} (as {cluster})", facts.row.name),
            None => facts.row.name.clone(),
        });
    }
    Some(names.join(", "))
}

fn definitions(snapshot: &Snapshot) -> String {
    let served = |is_of_contract: bool| {
        let rows = snapshot.definitions.iter();
        let versions: BTreeSet<&str> = rows
            .filter(|row| row.group == names::GROUP && row.is_of_contract == is_of_contract)
            .flat_map(|row| row.versions.iter().map(String::as_str))
            .collect();
        let versions: Vec<&str> = versions.into_iter().collect();
        versions.join(", ")
    };
    let rows = &snapshot.definitions;
    let number = rows.iter().filter(|row| row.is_supported).count();
    format!(
        "{number} of {} kinds; claims {}, pools {}",
        rows.len(),
        served(true),
        served(false)
    )
}

fn lease(snapshot: &Snapshot) -> Option<String> {
    let leases = snapshot.leases.known()?.iter();
    let texts: Vec<String> = leases.map(|lease| holder(lease, snapshot.now)).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn holder(lease: &LeaseRow, now: Timestamp) -> String {
    let Some(holder) = lease.holder() else {
        return format!(
            "no holder in {}; the last one released the lease",
            lease.namespace
        );
    };
    let seconds = lease
        .renewed
        .map(|renewed| now.duration_since(renewed).as_secs().max(0))
        .unwrap_or_default();
    format!("{holder} in {}, renewed {seconds}s ago", lease.namespace)
}

fn probes(snapshot: &Snapshot) -> Option<String> {
    let deployments = snapshot.deployments.seen().iter();
    let mut texts: Vec<String> = deployments
        .map(|it| {
            format!(
                "{} of {} replicas ready, {}",
                it.ready, it.replicas, it.image
            )
        })
        .collect();
    for webhook in snapshot.webhooks.seen() {
        if let (Some((_, service)), Some(Some(ready))) = (&webhook.service, webhook.ready.known()) {
            texts.push(format!("{ready} ready endpoints of {service}"));
        }
    }
    if texts.is_empty() && snapshot.deployments.is_complete() {
        texts.push(
            "no Deployment: the manager runs outside of the cluster, or not at all".to_owned(),
        );
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn permissions(snapshot: &Snapshot) -> Option<String> {
    let deployments = snapshot.deployments.seen().iter();
    let accounts: Vec<String> = deployments
        .map(|it| format!("{}/{}", it.namespace, it.account.name))
        .collect();
    (!accounts.is_empty()).then(|| format!("service account {}", accounts.join(", ")))
}

fn webhooks(snapshot: &Snapshot) -> Option<String> {
    let webhooks = snapshot.webhooks.seen();
    if webhooks.is_empty() && snapshot.webhooks.is_complete() {
        let is_served = |it: &DeploymentRow| it.webhooks != WebhookMode::Off;
        if snapshot.deployments.seen().iter().any(is_served) {
            return None;
        }
        return Some("none: pools are checked by the CustomResourceDefinitions only".to_owned());
    }
    let answers = webhooks
        .iter()
        .any(|webhook| webhook.answer.known() == Some(&Ok(())));
    answers.then(|| "the API server reaches them".to_owned())
}

fn certificate(snapshot: &Snapshot) -> Option<String> {
    let webhooks = snapshot.webhooks.seen();
    let certificates = webhooks.iter().flat_map(|it| it.certificates.seen());
    let texts: Vec<String> = certificates
        .filter_map(|row| Some((row, row.facts.as_ref().ok()?)))
        .map(|(row, facts)| format!("{}, valid until {}", row.secret, facts.not_after))
        .collect();
    if !texts.is_empty() {
        return Some(texts.join(", "));
    }
    let is_known = webhooks.iter().all(|it| it.certificates.is_complete());
    (is_known && snapshot.webhooks.is_complete()).then(|| "no Secret".to_owned())
}

fn claims(snapshot: &Snapshot) -> Option<String> {
    let objects = &snapshot.objects;
    if !objects.has(&[Kind::Claim]) {
        return None;
    }
    let served = objects.served();
    let deleting = served.iter().filter(|claim| claim.is_deleting()).count();
    let waiting = served.iter().filter(|claim| claim.is_waiting()).count();
    let bound = served
        .len()
        .saturating_sub(waiting)
        .saturating_sub(deleting);
    let unserved = objects.unserved().into_iter();
    let unserved = unserved.filter(|claim| claim.is_waiting());
    let waiting = waiting.saturating_add(unserved.count());
    Some(format!(
        "{bound} bound, {waiting} wait, {deleting} in deletion"
    ))
}
