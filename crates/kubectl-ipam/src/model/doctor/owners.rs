//! The owner references of IPAddresses.

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::{AddressRow, Kind};

/// IPAddresses whose owner references the garbage collector cannot resolve once `v1beta1` is no
/// longer served.
pub(super) fn outdated(snapshot: &Snapshot) -> Examination {
    let addresses = snapshot.objects.addresses.sorted();
    let missing = snapshot.objects.lacking(&[Kind::Address]);
    let has_some = !addresses.is_empty();
    Examination::complete(outdated_owners(&addresses)).with_unknown(missing, has_some)
}

fn outdated_owners(addresses: &[&AddressRow]) -> Option<Finding> {
    let mut outdated = addresses.to_vec();
    outdated.retain(|address| address.has_old_owner);
    let named = match outdated.as_slice() {
        [] => return None,
        [one] => format!("IPAddress {}", one.key),
        [first, ..] => format!("{} IPAddresses, such as {},", outdated.len(), first.key),
    };
    let problem = format!(
        "the owner references of {named} are in the version v1beta1, which Cluster API v1.16 does not serve"
    );
    let repair = "the provider rewrites 10 a second, except those of paused Clusters and claims: unpause them before \
                  Cluster API is upgraded";
    Some(Check::OutdatedOwner.finding("ipaddresses", problem, repair))
}

#[cfg(test)]
mod tests {
    use capi_ipam_provider::api::IPAddress;
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_in_an_old_version_are_one_finding() {
        let row = |name: &str, version: &str| {
            let owner = json!({"apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": "IPAddressClaim",
                               "name": name, "uid": "u"});
            let address: IPAddress = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": name, "ownerReferences": [owner]},
                "spec": {"address": "10.0.0.1", "prefix": 24, "claimRef": {"name": name},
                         "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
            }))
            .unwrap();
            AddressRow::of(&address).unwrap()
        };
        let rows = [
            row("a", "v1beta2"),
            row("b", "v1beta1"),
            row("c", "v1beta1"),
        ];
        let [a, b, c] = &rows;
        assert_eq!(outdated_owners(&[a]), None);
        let found = outdated_owners(&[a, b, c]).unwrap();
        assert!(
            found.problem.contains("of 2 IPAddresses, such as n/b,"),
            "{}",
            found.problem
        );
    }
}
