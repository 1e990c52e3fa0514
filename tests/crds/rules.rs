//! Validation by the CRDs when an object is created.

#[path = "rules/go_provider.rs"]
mod go_provider;

use support::specifications::{self, Case, Denial};

use self::go_provider::pools_of_the_go_provider_are_accepted;
use super::entries::{entries_are_read_as_by_the_provider, the_longest_lists_are_accepted};
use super::table::{ADDRESSES, PREFIXES, Table};
use super::{COMMITTED, ControlPlane};
use support::prelude::*;

#[test]
fn api_server_validates_objects_by_the_crd_rules() {
    let plane = ControlPlane::new();
    assert_crds_accepted(&plane);
    let mut table = Table::new(&plane);
    specifications::all()
        .iter()
        .for_each(|case| table.check(case));
    for kind in [ADDRESSES, PREFIXES] {
        let mut empty = Case::new(kind, "case", json!({}));
        empty
            .object
            .as_object_mut()
            .expect("an object")
            .remove("spec");
        empty.crd = Some(Denial::new("spec", "Required value: spec is required"));
        table.check(&empty);
    }
    table.done();
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
    assert_eq!(definitions.len(), 11);
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
