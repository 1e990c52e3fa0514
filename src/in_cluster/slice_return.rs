//! Returns slices that their owners no longer need.
//!
//! A slice without an address in use is first marked as empty. An allocation from a marked slice
//! removes the mark first, and a slice is deleted only with the resource version of the mark as
//! precondition: so a slice of which an address is being allocated is not returned. A manager that
//! has not observed the mark during the grace period can allocate an address of a returned slice.
//! It is then in the wrong slice, and still unique.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{PoolKey, SliceOwner, SliceOwnerKind};
use capi_ipam_controller::client::{CallError, Deleted, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_controller::{clock, patch};
use capi_ipam_ledger::{Ledger, SliceRetention, SliceStep, SliceView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, Resource};
use tokio::time::Instant;
use tracing::{debug, info};

use super::context::Context;
use super::kinds::pool_client;
use super::options::InClusterOptions;
use super::slices::{describe, pool_object};

/// The maximum time between two checks of all slices.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// The minimum time between two lists of all Clusters.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// Marks and returns slices.
pub(super) struct SliceReturn {
    context: Arc<Context>,
    client: Client,
    interval: Duration,
    grace: Duration,
    clusters: Option<(Instant, HashSet<NamespacedName>)>,
}

impl BackgroundTask for SliceReturn {
    async fn run_once(&mut self) -> NextRun {
        self.pass().await;
        NextRun::After(self.interval)
    }
}

impl SliceReturn {
    pub(super) fn new(context: Arc<Context>, client: Client, options: &InClusterOptions) -> Self {
        Self {
            context,
            client,
            interval: options.sweep_interval.min(MAX_INTERVAL),
            grace: options.sweep_grace,
            clusters: None,
        }
    }

    async fn pass(&mut self) {
        let mut slices = self.context.ledger.read(Ledger::slices);
        slices.retain(|slice| {
            let namespace = slice.pool.namespace.as_deref();
            !slice.is_pinned && self.context.selection.includes_namespace(namespace)
        });
        if slices.is_empty() {
            return;
        }
        let labels: HashSet<(PoolKey, Arc<SliceOwner>)> = slices
            .iter()
            .filter(|slice| slice.is_in_use && slice.owner.kind == SliceOwnerKind::Label)
            .map(|slice| (slice.pool.clone(), Arc::clone(&slice.owner)))
            .collect();
        let has_empty = |slice: &SliceView| {
            slice.empty_since.is_some() && slice.owner.kind == SliceOwnerKind::Cluster
        };
        if slices.iter().any(has_empty) {
            self.list_clusters().await;
        }
        let now = clock::now().0.as_second();
        let grace = i64::try_from(self.grace.as_secs()).unwrap_or(i64::MAX);
        for slice in slices {
            let exists = |owner: &SliceOwner| match owner.kind {
                SliceOwnerKind::Label => {
                    labels.contains(&(slice.pool.clone(), Arc::clone(&slice.owner)))
                }
                // It owns blocks of networks, which are not among the slices of pools.
                SliceOwnerKind::ManagementCluster => true,
                SliceOwnerKind::Namespace => self
                    .context
                    .ledger
                    .read(|ledger| ledger.networks().namespace_exists(&owner.name)),
                // Without a list, nothing is known.
                SliceOwnerKind::Cluster => self.clusters.as_ref().is_none_or(|(_, clusters)| {
                    let namespace = owner.namespace.as_deref().unwrap_or_default();
                    clusters.contains(&NamespacedName::new(namespace, &owner.name))
                }),
            };
            let result = match slice.next_step(now, grace, self.context.restore_timeout, exists) {
                None => continue,
                Some(SliceStep::MarkEmpty) => self.mark(&slice, Some(clock::now())).await,
                Some(SliceStep::ClearMark) => self.mark(&slice, None).await,
                Some(SliceStep::Return) => self.return_slice(&slice).await,
            };
            if let Err(error) = result {
                debug!(
                    slice = slice.name(),
                    error = error_chain(&error),
                    "cannot update a slice, will retry"
                );
            }
        }
    }

    /// Lists the Clusters of all namespaces, unless this was done recently.
    async fn list_clusters(&mut self) {
        let now = Instant::now();
        let interval = LIST_INTERVAL.min(self.interval.saturating_mul(2));
        if self
            .clusters
            .as_ref()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) < interval)
        {
            return;
        }
        let mut found = HashSet::new();
        // A Cluster that cannot be decoded exists: its metadata is enough.
        let page = |page: Vec<MaybeInvalid<capi_ipam_provider::api::Cluster>>| {
            found.extend(
                page.iter()
                    .map(|cluster| NamespacedName::of(cluster.meta())),
            );
        };
        match self.context.contract.clusters("").for_each_page(page).await {
            Ok(()) => self.clusters = Some((now, found)),
            Err(error) => debug!(
                error = error_chain(&error),
                "cannot list the Clusters, will retry"
            ),
        }
    }

    /// Sets or removes the time since which a slice is empty.
    async fn mark(&self, slice: &SliceView, since: Option<Time>) -> Result<(), CallError> {
        let name = slice.name();
        let Some(found) = self.context.slices.get(&name).await? else {
            self.context
                .ledger
                .change(|ledger| ledger.remove_slice_of(&slice.scope(), slice.block, &slice.uid));
            return Ok(());
        };
        // The cached state may be older than the last change of another manager.
        if found.metadata.resource_version.as_deref() != Some(&slice.version) {
            self.context
                .ledger
                .change(|ledger| ledger.insert_slice(&found));
            return Ok(());
        }
        let mut wanted = found.clone();
        wanted.spec.empty_since = since;
        if let Some(written) = patch::write(&self.context.slices, &found, &wanted).await? {
            self.context
                .ledger
                .change(|ledger| ledger.insert_slice(&written));
        }
        Ok(())
    }

    /// Deletes a slice, after live reads that its owner, or its pool, does not exist if that is the
    /// reason.
    async fn return_slice(&self, slice: &SliceView) -> Result<(), CallError> {
        if slice.retention == SliceRetention::NoPool
            && pool_client(&self.client, &slice.pool)
                .get(&slice.pool.name)
                .await?
                .is_some()
        {
            return Ok(());
        }
        if slice.retention == SliceRetention::Owner && self.owner_exists(&slice.owner).await? {
            return Ok(());
        }
        let ledger = &self.context.ledger;
        if !ledger
            .change(|ledger| ledger.begin_slice_return(&slice.scope(), slice.block, &slice.uid))
        {
            return Ok(());
        }
        let name = slice.name();
        match self
            .context
            .slices
            .delete_unchanged(&name, &slice.uid, &slice.version)
            .await
        {
            // It waits for a finalizer: the next check deletes it again.
            Ok(Deleted::Terminating(found)) => {
                ledger.change(|ledger| ledger.insert_slice(&found));
                Ok(())
            }
            Ok(Deleted::Gone) => {
                ledger.change(|ledger| {
                    ledger.remove_slice_of(&slice.scope(), slice.block, &slice.uid)
                });
                info!(slice = name, owner = %slice.owner, "returned a slice");
                let pool = pool_object(ledger, &slice.pool);
                let owner = describe(&slice.pool, &slice.owner);
                let message = format!(
                    "slice {} of {owner} is returned: no address of it is in use",
                    slice.block
                );
                self.context.events.normal(
                    &pool,
                    &slice.pool.kind,
                    "SliceReturned",
                    "Return",
                    &message,
                );
                Ok(())
            }
            Err(error) => {
                ledger.change(|ledger| {
                    ledger.cancel_slice_return(&slice.scope(), slice.block, &slice.uid)
                });
                if error.is_conflict() {
                    match self.context.slices.get(&name).await? {
                        Some(found) => ledger.change(|ledger| ledger.insert_slice(&found)),
                        None => ledger.change(|ledger| {
                            ledger.remove_slice_of(&slice.scope(), slice.block, &slice.uid);
                        }),
                    }
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    /// Whether an owner exists. A Cluster, which was only missing in a list, is read. For other
    /// owners the caches are decisive: the slice has no address that could be lost.
    async fn owner_exists(&self, owner: &SliceOwner) -> Result<bool, CallError> {
        Ok(match (owner.kind, &owner.namespace) {
            (SliceOwnerKind::Cluster, Some(namespace)) => self
                .context
                .contract
                .clusters(namespace)
                .get(&owner.name)
                .await?
                .is_some(),
            _ => false,
        })
    }
}
