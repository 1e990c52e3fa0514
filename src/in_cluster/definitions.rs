//! Whether the API server serves definitions with all fields that this version has.
//!
//! A definition of an older version, or of the Go provider, has fewer fields, and the API server
//! removes the others from all objects that it returns: pools look as if they were in no network.
//! So nothing that depends on networks is allocated then, and no pool is written, which would remove
//! its fields for good.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::crds::{self, CrdError};
use capi_ipam_api::installed::DEFINITIONS;
use capi_ipam_api::{InClusterKind, Pool, PoolKey};
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_ledger::Ledger;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use tracing::{info, warn};

use super::kinds::all_pools;
use super::shared_ledger::SharedLedger;

/// The time between two checks. A pool that a watch shows with fewer fields causes one at once.
const INTERVAL: Duration = Duration::from_secs(15);

/// How long an API server may answer with an earlier definition after it was changed.
const SETTLE_TIME: Duration = Duration::from_secs(5);

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
    pub(super) async fn problem(&mut self) -> Option<String> {
        for name in DEFINITIONS {
            match self.missing_fields(name).await {
                Ok(missing) if missing.is_empty() => {}
                Ok(missing) => return Some(describe(name, &missing)),
                Err(error) => {
                    let error = error_chain(&error);
                    return Some(format!(
                        "cannot compare CustomResourceDefinition {name}: {error}"
                    ));
                }
            }
        }
        None
    }

    async fn missing_fields(&mut self, name: &str) -> Result<Vec<String>, DefinitionError> {
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

/// Why a definition cannot be compared.
#[derive(Debug, thiserror::Error)]
enum DefinitionError {
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
    client: Client,
    /// The process is not ready while a definition lacks fields.
    gate: ReadinessGate,
    reported: Option<String>,
    /// Whether the last check has found that the fields are back.
    is_settling: bool,
}

impl CheckDefinitions {
    /// Reports what the first check has found.
    pub(super) fn new(
        definitions: Definitions,
        first: Option<String>,
        ledger: Arc<SharedLedger>,
        client: Client,
        gate: ReadinessGate,
    ) -> Self {
        let mut check = Self {
            definitions,
            ledger,
            client,
            gate,
            reported: None,
            is_settling: false,
        };
        check.report(first);
        check
    }

    /// Reads all pools with the fields that are back: the ledger may know them without, and a watch does
    /// not have to show them again, since their versions are the same.
    async fn read_pools(&self) -> Result<(), CallError> {
        for kind in InClusterKind::ALL {
            let pools = all_pools(&self.client, kind);
            let all = pools.for_each_page(|page| {
                for object in page {
                    // The watch reports one that cannot be decoded.
                    if let Ok(pool) = object.0 {
                        self.insert_known(&pool);
                    }
                }
            });
            all.await?;
        }
        Ok(())
    }

    fn insert_known(&self, pool: &Pool) {
        let key = PoolKey::of(pool);
        let known = self.ledger.read(|ledger| ledger.declared_pool(&key));
        if known.is_some() {
            self.ledger.insert_pool(pool);
        }
    }

    fn report(&mut self, problem: Option<String>) {
        self.ledger
            .change(|ledger| ledger.set_definitions_problem(problem.as_deref()));
        match &problem {
            Some(problem) => self.gate.not_ready(problem),
            None => self.gate.ready(),
        }
        match (&self.reported, &problem) {
            (before, Some(now)) if before.as_ref() != Some(now) => warn!("{now}"),
            (Some(_), None) => info!("the CustomResourceDefinitions have all fields again"),
            _ => {}
        }
        self.reported = problem;
    }
}

impl BackgroundTask for CheckDefinitions {
    async fn run_once(&mut self) -> NextRun {
        let mut problem = self.definitions.problem().await;
        let was_settling = std::mem::take(&mut self.is_settling);
        if problem.is_none() && self.ledger.read(Ledger::has_definitions_problem) {
            if !was_settling {
                self.is_settling = true;
                return NextRun::After(SETTLE_TIME);
            }
            if let Err(error) = self.read_pools().await {
                let error = error_chain(&error);
                problem = Some(format!("cannot read the pools again: {error}"));
            }
        }
        self.report(problem);
        NextRun::After(INTERVAL)
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
