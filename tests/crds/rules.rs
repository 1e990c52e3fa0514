//! Validation by the CRDs when an object is created.

#[path = "rules/addresses.rs"]
mod addresses;
#[path = "rules/all_pools.rs"]
mod all_pools;
#[path = "rules/go_provider.rs"]
mod go_provider;
#[path = "rules/networks.rs"]
mod networks;
#[path = "rules/policies.rs"]
mod policies;
#[path = "rules/prefixes.rs"]
mod prefixes;
#[path = "rules/reservations.rs"]
mod reservations;

use serde_json::Value;

use self::addresses::pools_of_addresses;
use self::all_pools::what_pools_have_in_common;
use self::go_provider::pools_of_the_go_provider_are_accepted;
use self::networks::networks;
use self::policies::access_of_global_pools;
use self::prefixes::pools_of_prefixes;
use self::reservations::reservations;
use super::entries::{entries_are_read_as_by_the_provider, the_longest_lists_are_accepted};
use super::{COMMITTED, ControlPlane, Options};

#[test]
fn api_server_validates_objects_by_the_crd_rules() {
    let plane = ControlPlane::start(Options::default());
    assert_crds_accepted(&plane);
    pools_of_addresses(&plane);
    pools_of_prefixes(&plane);
    what_pools_have_in_common(&plane);
    networks(&plane);
    access_of_global_pools(&plane);
    reservations(&plane);
    entries_are_read_as_by_the_provider(&plane);
    the_longest_lists_are_accepted(&plane);
    pools_of_the_go_provider_are_accepted(&plane);
}

fn assert_crds_accepted(plane: &ControlPlane) {
    let file = format!("--filename={COMMITTED}");
    let answer = plane.try_kubectl(&["replace", "--dry-run=server", "--warnings-as-errors", &file]);
    assert!(answer.is_ok(), "the API server warns: {answer:?}");
    let definitions = plane.kubectl(&["get", "--output=json", &file]);
    let definitions: Value = serde_json::from_str(&definitions).expect("a list");
    let definitions = definitions["items"].as_array().expect("items");
    assert_eq!(definitions.len(), 8);
    for definition in definitions {
        let conditions = definition["status"]["conditions"]
            .as_array()
            .expect("conditions");
        let is = |name: &str| {
            conditions
                .iter()
                .any(|all| all["type"] == name && all["status"] == "True")
        };
        assert!(
            is("Established") && is("NamesAccepted") && !is("NonStructuralSchema"),
            "{conditions:?}"
        );
    }
}
