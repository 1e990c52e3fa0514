//! The pools of a file.

use capi_ipam_api::{
    FieldProblem, Pool, PoolKey, PoolSpec, Scope, is_dns_label, is_dns_subdomain, names,
};
use capi_ipam_ledger::PoolInfo;
use serde_json::{Value, json};

use super::super::difference::differences;
use super::super::existing::{ExistingPool, Metadata};
use super::super::record::{IMPORT_LABEL, WantedPool};
use super::super::table;
use super::{Action, Change, PlannedPool, Planner, Update, metadata_fields, missing_metadata};
use crate::model::{FieldChange, ImportProblem};

impl Planner<'_> {
    /// Plans a pool, unless it has problems. `out_of_bounds` matters only if the pool is written.
    pub(super) fn pool(
        &mut self,
        line: u64,
        wanted: WantedPool,
        out_of_bounds: Vec<ImportProblem>,
    ) -> Result<(), String> {
        let WantedPool { pool, spec } = wanted;
        let key = PoolKey::of(&pool);
        if let Some(other) = self.pool_lines.insert(key.clone(), line) {
            return Err(format!("{key} is also in line {other}"));
        }
        let metadata = wanted_metadata(&pool);
        let existing = self.existing.pools.get(&key);
        let scope = self.scope_after(&key, &pool, &metadata, existing);
        // Reservations of the file are compared with it also if the pool has a problem.
        self.pools
            .insert(key.clone(), PlannedPool::new(&pool.spec, scope.clone()));
        let Some(existing) = existing else {
            let problems = self.problems.len();
            self.check_names(line, &key);
            self.check_spec(line, &key, &pool.spec, &scope, out_of_bounds);
            self.changed_pools.insert(key.clone());
            if self.problems.len() > problems {
                return Ok(());
            }
            let mut fields = metadata_fields(&Metadata::default(), &metadata);
            fields.extend(spec_fields(None, &pool.spec));
            let action = Action::CreatePool(key, self.new_pool(&pool, metadata, &spec));
            self.plan.pools.push(Change {
                line: Some(line),
                action,
                fields,
                follows_pool: false,
            });
            return Ok(());
        };
        let is_same = existing.spec == pool.spec
            || self.is_table && table::has_columns_of(&existing.spec, &pool.spec);
        let missing = missing_metadata(&metadata, &existing.metadata);
        if is_same && missing.is_empty() {
            self.is_unchanged();
            return Ok(());
        }
        self.require_own(&existing.metadata).map_err(|why| {
            let differs = if is_same {
                "other labels or annotations"
            } else {
                "another specification"
            };
            format!("{key} exists with {differs} and {why}; change it with kubectl edit")
        })?;
        let problems = self.problems.len();
        if !is_same {
            let lost = if self.is_table {
                table::fields_without_column(&existing.spec)
            } else {
                Vec::new()
            };
            if !lost.is_empty() {
                let lost = lost.join(", ");
                return Err(format!(
                    "{key} has {lost}, for which a table has no column; import it as YAML or JSON"
                ));
            }
            self.check_spec(line, &key, &pool.spec, &scope, out_of_bounds);
        }
        self.changed_pools.insert(key.clone());
        if self.problems.len() > problems {
            return Ok(());
        }
        let mut fields = metadata_fields(&existing.metadata, &missing);
        if !is_same {
            fields.extend(spec_fields(Some(&existing.spec), &pool.spec));
        }
        let update = Update {
            spec: (!is_same).then_some(spec),
            metadata: missing,
        };
        let action = Action::UpdatePool(key, existing.version.clone(), Box::new(update));
        self.plan.pools.push(Change {
            line: Some(line),
            action,
            fields,
            follows_pool: false,
        });
        Ok(())
    }

    /// The scope of a pool after the import. A network can select the pool by the labels that it
    /// will have.
    fn scope_after(
        &self,
        key: &PoolKey,
        pool: &Pool,
        metadata: &Metadata,
        existing: Option<&ExistingPool>,
    ) -> Scope {
        let mut labels = metadata.labels.clone();
        if let Some(existing) = existing {
            let has_same_labels = missing_metadata(metadata, &existing.metadata)
                .labels
                .is_empty();
            if has_same_labels && existing.spec.network() == pool.spec.network() {
                return existing.scope.clone();
            }
            for (name, value) in &existing.metadata.labels {
                labels.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if let Some(network) = pool.spec.network() {
            return Scope::Network(network.into());
        }
        let mut labelled = pool.clone();
        labelled.metadata.labels = Some(labels);
        let declared = PoolInfo::of(&labelled);
        self.existing.networks.preview_pool(key, declared).after
    }

    /// The object to create: the document of the file, with the metadata that users own and the
    /// label of the import.
    fn new_pool(&self, pool: &Pool, metadata: Metadata, spec: &Value) -> Value {
        let Metadata {
            mut labels,
            annotations,
        } = metadata;
        labels.insert(IMPORT_LABEL.to_owned(), self.import.to_owned());
        let mut object = json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::POOL_VERSION),
            "kind": pool.kind,
            "metadata": { "name": pool.metadata.name, "labels": labels },
            "spec": spec,
        });
        if let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(namespace) = pool
                .metadata
                .namespace
                .as_ref()
                .filter(|_| !pool.kind.is_global())
            {
                fields.insert("namespace".to_owned(), json!(namespace));
            }
            if !annotations.is_empty() {
                fields.insert("annotations".to_owned(), json!(annotations));
            }
        }
        object
    }

    /// Names that the API server refuses.
    fn check_names(&mut self, line: u64, key: &PoolKey) {
        if !is_dns_subdomain(&key.name) {
            let text = "must consist of at most 253 lower case letters, digits, dashes and dots, with a letter or digit \
                        at both ends and beside each dot";
            self.problem(line, format!("{key}: metadata.name: {text}"));
        }
        if key
            .namespace
            .as_deref()
            .is_some_and(|namespace| !is_dns_label(namespace))
        {
            self.problem(
                line,
                format!("{key}: metadata.namespace: no namespace can have this name"),
            );
        }
    }

    /// What is wrong with a specification that has to be written.
    fn check_spec(
        &mut self,
        line: u64,
        key: &PoolKey,
        spec: &PoolSpec,
        scope: &Scope,
        out_of_bounds: Vec<ImportProblem>,
    ) {
        let named = |problem: ImportProblem| ImportProblem {
            problem: format!("{key}: {}", problem.problem),
            ..problem
        };
        self.problems.extend(out_of_bounds.into_iter().map(named));
        let usable = spec.usable();
        let of_fields = spec.field_problems(usable.as_ref().ok());
        for problem in usable.err().unwrap_or_default() {
            self.problem(line, format!("{key}: {problem}"));
        }
        for FieldProblem { field, value, text } in of_fields {
            self.problem(
                line,
                format!("{key}: {field}: Invalid value: {value}: {text}"),
            );
        }
        self.check_length(line, key, scope);
    }

    /// Pools of a network allocate blocks of one length. The API server sees only what exists, not
    /// the file.
    fn check_length(&mut self, line: u64, key: &PoolKey, scope: &Scope) {
        let usable = self.pools.get(key).and_then(|pool| pool.usable.as_ref());
        let (Some(network), Some(usable)) = (scope.network(), usable) else {
            return;
        };
        let (family, length) = (usable.family, usable.length);
        let first = self
            .lengths
            .entry((network.to_owned(), family))
            .or_insert_with(|| (length, key.clone()));
        if first.0 != length {
            let (other, first) = first.clone();
            let problem = format!(
                "{key}: spec.network: allocates {family} blocks of length {length}, and {first} of length {other}; use \
                 another network for one of them"
            );
            self.problem(line, problem);
        }
    }
}

/// The fields in which a specification changes.
fn spec_fields(old: Option<&PoolSpec>, new: &PoolSpec) -> Vec<FieldChange> {
    let value = |spec: &PoolSpec| serde_json::to_value(spec).unwrap_or_default();
    differences("spec", old.map(value).as_ref(), Some(&value(new)))
}

/// The labels and annotations of a pool of the file.
fn wanted_metadata(pool: &Pool) -> Metadata {
    let mut metadata = Metadata::of(&pool.metadata);
    metadata.labels.remove(IMPORT_LABEL);
    metadata
}
