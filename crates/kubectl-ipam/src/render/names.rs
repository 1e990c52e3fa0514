//! The names of `-o name`, as kubectl writes them: `RESOURCE.GROUP/NAME`, without the namespace.

use capi_ipam_api::names::{CLUSTER_GROUP, GROUP};

use crate::model::{
    BlockLine, Check, ClaimLine, ClusterAddresses, Finding, Holder, NetworkLine, PoolName,
    RecordChange, RegistryLine, Report,
};

pub(crate) fn names(report: &Report) -> Vec<String> {
    match report {
        Report::PoolList { pools } => pools.iter().map(|line| of_pool(&line.pool)).collect(),
        Report::NetworkList { networks } => {
            let name = |network: &NetworkLine| own("ipnetwork", &network.name);
            networks.iter().map(name).collect()
        }
        Report::ClaimList { claims } => {
            let name = |claim: &ClaimLine| own("ipaddressclaim", &claim.name);
            claims.iter().map(name).collect()
        }
        Report::ClusterList { clusters } => {
            let name = |line: &ClusterAddresses| format!("cluster.{CLUSTER_GROUP}/{}", line.name);
            clusters.iter().map(name).collect()
        }
        Report::HolderList { holders, .. } => match holders {
            Some(holders) => holders.iter().filter_map(of_holder).collect(),
            None => Vec::new(),
        },
        Report::FindingList(list) => of_findings(&list.findings),
        Report::PoolDetails(details) => vec![of_pool(&details.pool)],
        Report::RolloutPlan { pools, .. } => {
            let short = pools.iter().filter(|pool| pool.short > 0);
            short.map(|pool| of_pool(&pool.pool)).collect()
        }
        Report::AllocationHistory { events, .. } => {
            let claims = events.iter().filter_map(|event| event.claim.as_ref());
            claims
                .map(|claim| own("ipaddressclaim", &claim.name))
                .collect()
        }
        Report::ReservationChange(change) => vec![own("ipreservation", &change.name)],
        Report::RegistryList { registries } => {
            let name = |line: &RegistryLine| own("ipregistry", &line.name);
            registries.iter().map(name).collect()
        }
        Report::RegistryCheck(check) => {
            let block = |block: &BlockLine| block.block.clone();
            check.blocks.iter().map(block).collect()
        }
        Report::RegistryRelease(release) => {
            let record = |change: &RecordChange| change.record.clone();
            release.changes.iter().map(record).collect()
        }
    }
}

/// An object of the API group of the provider.
fn own(kind: &str, name: &str) -> String {
    format!("{}.{GROUP}/{name}", kind.to_lowercase())
}

fn of_pool(pool: &PoolName) -> String {
    own(&pool.kind, &pool.name)
}

/// The IPAddress, or the reservation if there is none.
fn of_holder(holder: &Holder) -> Option<String> {
    let address = holder
        .ip_address
        .known()
        .and_then(|name| name.split_once('/'));
    match address {
        Some((_, name)) => Some(own("ipaddress", name)),
        None => holder
            .reservation
            .known()
            .map(|name| own("ipreservation", name)),
    }
}

/// The objects of findings, each once. A finding about no single object has none.
fn of_findings(findings: &[Finding]) -> Vec<String> {
    let mut names = Vec::new();
    for name in findings.iter().filter_map(of_finding) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The object of a finding: `ipaddressclaim team-a/vm-5`, or `claims of InClusterIPPool a/web`.
fn of_finding(finding: &Finding) -> Option<String> {
    // It does not exist.
    if finding.check == Check::MissingPool {
        return None;
    }
    let is_of_webhook = matches!(
        finding.check,
        Check::WebhookUnavailable | Check::WebhookUntrusted | Check::WebhookFailing
    );
    if is_of_webhook {
        let resource = "validatingwebhookconfiguration.admissionregistration.k8s.io";
        return Some(format!("{resource}/{}", finding.object));
    }
    let (before, name) = finding.object.rsplit_once(' ')?;
    let kind = before.rsplit(' ').next().unwrap_or(before);
    let name = name.rsplit('/').next().unwrap_or(name);
    resource(&kind.to_lowercase()).map(|resource| format!("{resource}/{name}"))
}

/// The resource of a kind in lower case, with its API group.
fn resource(kind: &str) -> Option<String> {
    let resource = match kind {
        "inclusterippool"
        | "globalinclusterippool"
        | "inclusterprefixpool"
        | "globalinclusterprefixpool"
        | "ippoolset"
        | "globalippoolset"
        | "ipnetwork"
        | "ipregistry"
        | "ipslice"
        | "ipreservation"
        | "ipaddress"
        | "clusteraddressing"
        | "ipaddressclaim" => format!("{kind}.{GROUP}"),
        "cluster" => "cluster.cluster.x-k8s.io".to_owned(),
        "mutatingwebhookconfiguration" => format!("{kind}.admissionregistration.k8s.io"),
        "customresourcedefinition" => format!("{kind}.apiextensions.k8s.io"),
        "deployment" => "deployment.apps".to_owned(),
        "lease" => "lease.coordination.k8s.io".to_owned(),
        // The core group has no name.
        "secret" | "serviceaccount" => kind.to_owned(),
        _ => return None,
    };
    Some(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_the_names_that_kubectl_accepts() {
        let finding = |check: Check, object: &str| check.finding(object, "", "");
        let own = |name: &str| {
            let (kind, name) = name.split_once('/').unwrap();
            Some(format!("{kind}.ipam.cluster.x-k8s.io/{name}"))
        };
        let other = |name: &str| Some(name.to_owned());
        for (check, object, expected) in [
            (
                Check::LostAddress,
                "ipaddressclaim lab/lost",
                own("ipaddressclaim/lost"),
            ),
            (
                Check::PoolNotReady,
                "GlobalInClusterIPPool broken",
                own("globalinclusterippool/broken"),
            ),
            (
                Check::NotReconciled,
                "claims of InClusterIPPool a/web",
                own("inclusterippool/web"),
            ),
            (
                Check::NoLeader,
                "lease system/7bb.x",
                other("lease.coordination.k8s.io/7bb.x"),
            ),
            (
                Check::Paused,
                "Cluster a/prod",
                other("cluster.cluster.x-k8s.io/prod"),
            ),
            (
                Check::CertificateInvalid,
                "secret system/cert",
                other("secret/cert"),
            ),
            (
                Check::WebhookFailing,
                "hooks",
                other("validatingwebhookconfiguration.admissionregistration.k8s.io/hooks"),
            ),
            (Check::DuplicateAddress, "address 10.0.0.4", None),
            (Check::UnreadableObject, "objects", None),
        ] {
            assert_eq!(of_finding(&finding(check, object)), expected, "{object}");
        }
        let twice = finding(Check::LostAddress, "ipaddressclaim lab/lost");
        assert_eq!(of_findings(&[twice.clone(), twice]).len(), 1);
    }
}
