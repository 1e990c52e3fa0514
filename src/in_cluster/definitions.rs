//! Whether the API server serves definitions with all fields that this version has.
//!
//! A definition of an older version, or of the Go provider, has fewer fields, and the API server
//! removes the others from all objects that it returns: pools look as if they were in no network.
//! So nothing that depends on networks is allocated then. No pool, network or registry is written,
//! also not its status, since a write removes these fields for good.
//!
//! When the fields are back, no watch has to show an object again: its resourceVersion is the same.
//! So the process ends, and the next one reads the objects of all kinds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::crds::{self, CrdError};
use capi_ipam_api::installed::DEFINITIONS;
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

use super::shared_ledger::SharedLedger;

/// The time between two checks. A pool that a watch shows with fewer fields causes one at once.
const INTERVAL: Duration = Duration::from_secs(15);

/// How long an API server may answer with an earlier definition after it was changed.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Delay before a failed check is repeated.
const CHECK_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The delay before an object is reconciled again that cannot be written while a definition lacks
/// fields.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The maximum number of fields that a message names.
const MAX_NAMED: usize = 3;

/// Reads the served definitions, each only after a change.
pub(super) struct Definitions {
    objects: ResourceClient<CustomResourceDefinition>,
    metadata: ResourceClient<PartialObjectMeta<CustomResourceDefinition>>,
    /// The missing fields of each definition in the version that was read.
    known: HashMap<String, (Option<String>, Vec<String>)>,
}

impl Definitions {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            objects: ResourceClient::new(Api::all(client.clone()), &()),
            metadata: ResourceClient::new(Api::all(client.clone()), &()),
            known: HashMap::new(),
        }
    }

    /// Which served definition lacks fields of the specification, and what to do; `None` if all are
    /// complete.
    pub(super) async fn problem(&mut self) -> Result<Option<String>, DefinitionError> {
        for name in DEFINITIONS {
            let missing = self.missing_fields(name).await;
            let missing = missing.map_err(|source| DefinitionError { name, source })?;
            if !missing.is_empty() {
                return Ok(Some(describe(name, &missing)));
            }
        }
        Ok(None)
    }

    async fn missing_fields(&mut self, name: &str) -> Result<Vec<String>, ReadError> {
        let metadata = self.metadata.get(name).await?;
        let version = metadata.and_then(|found| found.metadata.resource_version);
        if let Some((known, missing)) = self.known.get(name)
            && *known == version
        {
            return Ok(missing.clone());
        }
        let mut missing = Vec::new();
        // Without a definition nothing is served: the watches report that.
        if let Some(served) = self.objects.get(name).await? {
            for own in crds::all()? {
                if own.name_any() == name {
                    missing = crds::missing_fields(&served, &own);
                }
            }
        }
        // Fields of the status are written again, and those of v1alpha1 are derived.
        missing.retain(|field| field.starts_with("spec.") && !field.contains(' '));
        self.known
            .insert(name.to_owned(), (version, missing.clone()));
        Ok(missing)
    }
}

/// A definition cannot be compared.
#[derive(Debug, thiserror::Error)]
#[error("cannot compare CustomResourceDefinition {name}")]
pub(super) struct DefinitionError {
    name: &'static str,
    source: ReadError,
}

/// Why a definition cannot be compared.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    Call(#[from] CallError),
    /// That of this version cannot be generated.
    #[error(transparent)]
    Own(#[from] CrdError),
}

fn describe(definition: &str, missing: &[String]) -> String {
    let named: Vec<&str> = missing.iter().take(MAX_NAMED).map(String::as_str).collect();
    let mut fields = named.join(", ");
    let others = missing.len().saturating_sub(named.len());
    if others > 0 {
        fields = format!("{fields} and {others} more");
    }
    format!(
        "CustomResourceDefinition {definition} is older than the manager and lacks {fields}: the API server removes \
         these fields from all objects; apply the CustomResourceDefinitions of version {} again",
        env!("CARGO_PKG_VERSION")
    )
}

/// Checks the definitions as long as the manager runs.
pub(super) struct CheckDefinitions {
    definitions: Definitions,
    ledger: Arc<SharedLedger>,
    /// The process is not ready while a definition lacks fields.
    gate: ReadinessGate,
    reported: Option<String>,
    /// Why the last check failed.
    failure: Option<String>,
    /// Whether the last check has found that the fields are back.
    is_settling: bool,
}

impl CheckDefinitions {
    /// Reports what the first check has found. A definition that could not be read may lack fields.
    pub(super) fn new(
        definitions: Definitions,
        first: Result<Option<String>, DefinitionError>,
        ledger: Arc<SharedLedger>,
        gate: ReadinessGate,
    ) -> Self {
        let mut check = Self {
            definitions,
            ledger,
            gate,
            reported: None,
            failure: None,
            is_settling: false,
        };
        match first.unwrap_or_else(|error| Some(error_chain(&error))) {
            Some(problem) => check.report(problem),
            None => check.gate.ready(),
        }
        check
    }

    fn report(&mut self, problem: String) {
        self.ledger
            .change(|ledger| ledger.set_definitions_problem(Some(&problem)));
        self.gate.not_ready(&problem);
        if self.reported.as_ref() != Some(&problem) {
            warn!("{problem}");
        }
        self.reported = Some(problem);
    }
}

impl BackgroundTask for CheckDefinitions {
    async fn run_once(&mut self) -> NextRun {
        let was_settling = std::mem::take(&mut self.is_settling);
        let earlier_failure = self.failure.take();
        match self.definitions.problem().await {
            // What is known stays in force: an API server that does not answer has changed nothing.
            Err(error) => {
                let failure = error_chain(&error);
                if earlier_failure.as_ref() != Some(&failure) {
                    info!("{failure}, will retry");
                }
                self.failure = Some(failure);
                NextRun::After(CHECK_RETRY_DELAY)
            }
            Ok(Some(problem)) => {
                self.report(problem);
                NextRun::After(INTERVAL)
            }
            Ok(None)
                if !self
                    .ledger
                    .read(|ledger| ledger.networks().have_definitions_problem()) =>
            {
                NextRun::After(INTERVAL)
            }
            Ok(None) if !was_settling => {
                self.is_settling = true;
                NextRun::After(SETTLE_TIME)
            }
            Ok(None) => {
                self.gate.fatal(
                    "the CustomResourceDefinitions have all fields again: a new process has to read the objects",
                );
                NextRun::OnNotification
            }
        }
    }

    async fn notified(&self) {
        self.ledger.fields_lost().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_the_missing_fields_are_named() {
        let missing = ["spec.a", "spec.b", "spec.c", "spec.d"].map(str::to_owned);
        let text = describe("pools.example.com", &missing);
        assert!(
            text.contains("lacks spec.a, spec.b, spec.c and 1 more:"),
            "{text}"
        );
    }
}
