//! The state of each part of the provider: the findings of the checks of the part, and what the
//! cluster shows of it.

use std::collections::BTreeSet;

use capi_ipam_api::{counted, names};
use jiff::Timestamp;

use super::doctor::snapshot::{DeploymentRow, LeaseRow, Snapshot, WebhookMode};
use super::finding::{Check, FindingList, Part, PartLine, PartState, Severity};
use super::registry::RegistryFacts;
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
            | Check::ClusterWebhookUntrusted
            | Check::WebhookFailing
            | Check::ConversionFailing => Self::Webhooks,
            Check::CertificateInvalid => Self::Certificate,
            Check::AbandonedReservation => Self::Sweeper,
            Check::PoolNotReady
            | Check::PoolSetNotReady
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
            | Check::AddressQuarantined
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
            | Check::AddressConflict
            | Check::Paused
            | Check::ClusterAddressingNotReady
            | Check::OutdatedOwner => Self::Claims,
        }
    }

    /// Whether claims are served although the part has an error: it is about single objects.
    pub(crate) fn is_of_objects(self) -> bool {
        self >= Self::Sweeper
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
    let has = |state: PartState| {
        let mut of_provider = parts.iter().filter(|line| !line.part.is_of_objects());
        of_provider.any(|line| line.state == state)
    };
    match (has(PartState::Error), has(PartState::Unknown)) {
        (true, _) => Some(false),
        (false, true) => None,
        (false, false) => Some(true),
    }
}

fn line(part: Part, diagnosis: &FindingList, snapshot: &Snapshot) -> PartLine {
    let findings = diagnosis.findings.iter();
    let of_part = findings.filter(|finding| Part::of(finding.check) == part);
    let mut unchecked = diagnosis.unchecked.iter();
    let is_unchecked = unchecked.any(|unchecked| Part::of(unchecked.check) == part);
    let unserved = unserved(part, snapshot);
    let state = match of_part.map(|finding| finding.severity).min() {
        Some(Severity::Error) => PartState::Error,
        Some(Severity::Warning) => PartState::Warning,
        _ if is_unchecked || unserved.is_some() => PartState::Unknown,
        Some(Severity::Note) | None => PartState::Ok,
    };
    // The list of a kind that is not served is empty, which says nothing.
    let detail = unserved.or_else(|| facts(part, diagnosis, snapshot));
    PartLine {
        part,
        state,
        detail: detail.unwrap_or_default(),
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
fn facts(part: Part, diagnosis: &FindingList, snapshot: &Snapshot) -> Option<String> {
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
            is_known.then(|| counted(count, "reservation", "reservations"))
        }
        Part::Pools => {
            let pools = counted(objects.pools().len(), "pool", "pools");
            let networks = counted(objects.networks.iter().count(), "network", "networks");
            let is_known = objects.has(&Kind::POOLS) && objects.has(&[Kind::Network]);
            is_known.then(|| format!("{pools}, {networks}"))
        }
        Part::Registries => registries(snapshot),
        Part::Claims => Some(claims(snapshot, diagnosis.waiting?)),
    }
}

/// The registries, with the identity of this management cluster in each.
fn registries(snapshot: &Snapshot) -> Option<String> {
    let name = |facts: &RegistryFacts| match &facts.cluster {
        Some(cluster) => format!("{} (as {cluster})", facts.row.name),
        None => facts.row.name.clone(),
    };
    let registries = snapshot.registries.known()?;
    joined(registries.iter().map(name))
}

/// What is known, separated by commas; `None` if it is nothing.
fn joined(texts: impl IntoIterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.into_iter().collect();
    (!texts.is_empty()).then(|| texts.join(", "))
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
    joined(leases.map(|lease| holder(lease, snapshot.now)))
}

fn holder(lease: &LeaseRow, now: Timestamp) -> String {
    let Some(holder) = lease.holder() else {
        return format!(
            "no holder in {}; the last one released the lease",
            lease.namespace
        );
    };
    let age = lease.renewed.map(|renewed| now.duration_since(renewed));
    let seconds = age.unwrap_or_default().as_secs().max(0);
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
    joined(texts)
}

fn permissions(snapshot: &Snapshot) -> Option<String> {
    let deployments = snapshot.deployments.seen().iter();
    let accounts = deployments.map(|it| format!("{}/{}", it.namespace, it.account));
    Some(format!("service account {}", joined(accounts)?))
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
    let mut texts = Vec::new();
    for row in webhooks.iter().flat_map(|it| it.certificates.seen()) {
        if let Ok(facts) = &row.facts {
            texts.push(format!("{}, valid until {}", row.secret, facts.not_after));
        }
    }
    let is_known =
        snapshot.webhooks.is_complete() && webhooks.iter().all(|it| it.certificates.is_complete());
    joined(texts).or_else(|| is_known.then(|| "no Secret".to_owned()))
}

/// The claims, of which this many wait.
fn claims(snapshot: &Snapshot, waiting: u64) -> String {
    let (mut bound, mut deleting) = (0, 0);
    for claim in snapshot.objects.served() {
        if claim.is_deleting() {
            deleting += 1;
        } else if claim.bound.is_some() {
            bound += 1;
        }
    }
    format!("{bound} bound, {waiting} wait, {deleting} in deletion")
}
