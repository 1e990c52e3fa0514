//! The table of specifications in `tests/data/specifications.yaml`, and what the CRDs and the
//! webhooks say about them.

use serde_json::{Value, json};

use super::repository::in_repository;

/// An object, and the verdicts about its creation.
pub struct Case {
    pub object: Value,
    pub crd: Verdict,
    pub webhook: Verdict,
    /// The exact warnings of the webhook, if the case has any expectation about them.
    pub warnings: Option<Vec<String>>,
}

/// `None` accepts.
pub type Verdict = Option<Denial>;

/// The field that is not valid, and a part of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub field: String,
    pub text: String,
}

impl Denial {
    pub fn new(field: &str, text: &str) -> Self {
        Self {
            field: field.to_owned(),
            text: text.to_owned(),
        }
    }
}

impl Case {
    /// An object that is accepted; in the namespace `default` if it is namespaced.
    pub fn new(kind: &str, name: &str, spec: Value) -> Self {
        let mut metadata = json!({ "name": name });
        if kind.starts_with("InCluster") {
            metadata["namespace"] = json!("default");
        }
        let mut object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind, "metadata": metadata,
        });
        object["spec"] = spec;
        Self {
            object,
            crd: None,
            webhook: None,
            warnings: None,
        }
    }

    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().expect("an object has a kind")
    }

    /// What an API server says that calls the webhooks: a CRD is checked first.
    pub fn both(&self) -> &Verdict {
        if self.crd.is_some() {
            &self.crd
        } else {
            &self.webhook
        }
    }
}

/// All cases, each for all kinds of its group.
pub fn all() -> Vec<Case> {
    let file = in_repository("tests/data/specifications.yaml");
    let text = std::fs::read_to_string(file).expect("the table can be read");
    let groups: Value = serde_saphyr::from_str(&text).expect("the table is YAML");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let mut all = Vec::new();
    for group in list(&groups) {
        for row in list(&group["cases"]) {
            let cases = list(&group["kinds"])
                .into_iter()
                .map(|kind| case(&kind, &row));
            all.extend(cases);
        }
    }
    all
}

fn case(kind: &Value, row: &Value) -> Case {
    let kind = kind.as_str().expect("kinds are texts");
    let verdict = |field: &str| {
        let (field, text) = row[field].as_str()?.split_once(": ")?;
        Some(Denial::new(field, text))
    };
    let text = |value: &Value| value.as_str().expect("a warning is a text").to_owned();
    let warnings = row["warnings"].as_array();
    Case {
        crd: verdict("crd"),
        webhook: verdict("webhook"),
        warnings: warnings.map(|all| all.iter().map(text).collect()),
        ..Case::new(
            kind,
            row["name"].as_str().unwrap_or("case"),
            row["spec"].clone(),
        )
    }
}
