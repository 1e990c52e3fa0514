//! The permissions of the provider.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::examination::Examination;
use super::manifest::apply_for;
use super::names::MAX_NAMED;
use super::snapshot::{DeploymentRow, Rule, Snapshot};
use crate::model::finding::{Check, Finding};

/// The roles of the manifests.
const ROLES: &str = include_str!("../../../../../config/rbac/role.yaml");

/// The roles that a manager needs; the others are for users.
const NEEDED: [&str; 2] = [
    "capi-ipam-in-cluster-manager-role",
    "capi-ipam-in-cluster-leader-election-role",
];

#[derive(Deserialize)]
struct Role {
    metadata: RoleMetadata,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct RoleMetadata {
    name: String,
}

/// Permissions of the manifests that the service account of a Deployment does not have.
pub(super) fn missing(snapshot: &Snapshot) -> Examination {
    let deployments = &snapshot.deployments;
    if deployments.known().is_some_and(Vec::is_empty) {
        let reason = "the manager has no Deployment in this cluster, so its user is unknown";
        return Examination::not_visible(reason, false);
    }
    Examination::of_each(deployments, |deployment| {
        let rules = &deployment.rules;
        match rules.known() {
            None => Examination::default().with_unknown(rules.missing.clone(), false),
            Some(None) => {
                let reason = "the API server does not list all permissions of the service account";
                Examination::not_visible(reason, false)
            }
            Some(Some(granted)) => Examination::complete(finding(deployment, granted)),
        }
    })
}

fn finding(deployment: &DeploymentRow, granted: &[Rule]) -> Option<Finding> {
    let missing: Vec<String> = required()
        .iter()
        .flat_map(|rule| ungranted(rule, granted))
        .collect();
    if missing.is_empty() {
        return None;
    }
    // A binding that is missing takes all permissions: the number says so before the first names.
    let problem = match missing.get(..MAX_NAMED) {
        Some(first) if missing.len() > MAX_NAMED => format!(
            "{} permissions are missing, first: {}",
            missing.len(),
            first.join("; ")
        ),
        _ => format!("it may not {}", missing.join(", ")),
    };
    let (namespace, account) = (&deployment.namespace, &deployment.account);
    let object = format!("serviceaccount {namespace}/{account}");
    Some(Check::MissingPermission.finding(object, problem, apply_for(deployment)))
}

/// The rules of the manifests. They are part of the program, so they can be parsed.
fn required() -> Vec<Rule> {
    let roles: Vec<Role> = serde_saphyr::from_multiple(ROLES).unwrap_or_default();
    let needed = roles
        .into_iter()
        .filter(|role| NEEDED.contains(&role.metadata.name.as_str()));
    needed.flat_map(|role| role.rules).collect()
}

/// The verbs and resources of a rule that no granted rule contains, such as `list ipreservations`.
fn ungranted(rule: &Rule, granted: &[Rule]) -> Vec<String> {
    let mut missing = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            let lacks = |verb: &&String| {
                !granted
                    .iter()
                    .any(|it| grants(it, group, resource, verb, &rule.resource_names))
            };
            let verbs: Vec<&str> = rule
                .verbs
                .iter()
                .filter(lacks)
                .map(String::as_str)
                .collect();
            if !verbs.is_empty() {
                missing.push(format!("{} {resource}.{group}", verbs.join(", ")));
            }
        }
    }
    missing
}

fn grants(rule: &Rule, group: &str, resource: &str, verb: &str, names: &BTreeSet<String>) -> bool {
    let has = |set: &BTreeSet<String>, value: &str| set.contains("*") || set.contains(value);
    let has_names = rule.resource_names.is_empty()
        || !names.is_empty() && names.is_subset(&rule.resource_names);
    let is_about = has(&rule.api_groups, group) && has(&rule.resources, resource);
    is_about && has(&rule.verbs, verb) && has_names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_the_manifests_are_parsed() {
        let required = required();
        let is_lease = |rule: &Rule| rule.resources.contains("leases");
        let is_claim = |rule: &Rule| rule.resources.contains("ipaddressclaims");
        assert!(required.iter().any(is_lease) && required.iter().any(is_claim));
        for rule in &required {
            assert_eq!(ungranted(rule, &required), Vec::<String>::new());
        }
    }

    #[test]
    fn verb_that_no_rule_grants_is_missing() {
        let set = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let rule = |group: &str, resource: &str, verbs: &[&str], names: &[&str]| Rule {
            api_groups: set(&[group]),
            resources: set(&[resource]),
            verbs: set(verbs),
            resource_names: set(names),
        };
        let needed = rule("g", "pools", &["list", "watch"], &[]);
        let one = rule("g", "leases", &["update"], &["a"]);
        let missing = ["list, watch pools.g".to_owned()];
        for (needed, granted, expected) in [
            (&needed, rule("g", "pools", &["*"], &[]), &[][..]),
            (&needed, rule("*", "*", &["list", "watch"], &[]), &[]),
            (&needed, rule("other", "pools", &["*"], &[]), &missing),
            (&needed, rule("g", "pools", &["*"], &["a"]), &missing),
            (
                &needed,
                rule("g", "pools", &["list"], &[]),
                &["watch pools.g".to_owned()],
            ),
            (&one, rule("g", "leases", &["update"], &["a", "b"]), &[]),
            (
                &one,
                rule("g", "leases", &["update"], &["b"]),
                &["update leases.g".to_owned()],
            ),
        ] {
            assert_eq!(
                ungranted(needed, std::slice::from_ref(&granted)),
                expected,
                "{granted:?}"
            );
        }
    }
}
