//! Compares the addresses of bound claims with those that their Machines report, for pools with
//! `verify: Report`.
//!
//! The check only reports: a condition and an event on the claim, and a metric of the pool. It runs
//! every few minutes and lists the claims and Machines of one namespace after the other, in pages,
//! at a limited rate. Without such a pool it sends no request, unless a claim still has the
//! condition.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::PoolKey;
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_provider::advanced::{AddressUse, ClaimCache, ClaimReporter, ProviderSetup};
use capi_ipam_provider::api::IPAddressClaim;
use tracing::debug;

use super::context::Context;
use super::machines::MachineAddresses;
use super::metrics::{PoolMetrics, UseCounts};

/// How often it is determined, in memory, whether other pools are checked now.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The time between two pages of a list.
const PAGE_DELAY: Duration = Duration::from_millis(100);
/// The time between two writes.
const WRITE_DELAY: Duration = Duration::from_millis(20);
/// How many writes may fail before the check of a namespace ends.
const MAX_FAILURES: u32 = 10;

/// The addresses of one namespace that are checked: index of the pool and address, by name of the
/// claim.
type Addresses = HashMap<String, (usize, Block)>;
/// How many addresses are not in use, by pool.
type Counts = BTreeMap<PoolKey, usize>;

/// The check of the addresses in use.
pub(super) struct UseCheck {
    context: Arc<Context>,
    claims: ClaimCache,
    reporter: ClaimReporter,
    metrics: PoolMetrics,
    interval: Duration,
    /// When the addresses of all pools were last checked.
    last: Option<Instant>,
    /// The pools that the last pass has checked, in order.
    pools: Vec<PoolKey>,
    /// The counts of each namespace, as of the last time that its check was complete.
    counts: HashMap<String, Counts>,
}

impl BackgroundTask for UseCheck {
    async fn run_once(&mut self) -> NextRun {
        let pools = self
            .context
            .ledger
            .read(|ledger| ledger.pools().verified_pools());
        let is_due = self.last.is_none_or(|last| last.elapsed() >= self.interval);
        if is_due {
            self.pools.clear();
            self.last = Some(Instant::now());
        }
        if is_due || pools != self.pools {
            self.pass(pools).await;
        }
        NextRun::After(POLL_INTERVAL.min(self.interval))
    }
}

impl UseCheck {
    pub(super) fn new(
        setup: &ProviderSetup<'_>,
        context: Arc<Context>,
        metrics: PoolMetrics,
        interval: Duration,
    ) -> Self {
        let (claims, reporter) = (setup.claim_cache(), ClaimReporter::new(setup));
        Self {
            context,
            claims,
            reporter,
            metrics,
            interval,
            last: None,
            pools: Vec::new(),
            counts: HashMap::new(),
        }
    }

    /// Checks the addresses of the pools that were not among those of the last pass: a user who may
    /// write one pool does not cause that those of all others are read again.
    async fn pass(&mut self, pools: Vec<PoolKey>) {
        let added: Vec<PoolKey> = pools
            .iter()
            .filter(|pool| self.pools.binary_search(pool).is_err())
            .cloned()
            .collect();
        self.pools = pools;
        for (namespace, names) in self.outdated() {
            if let Err(error) = self.clear(&namespace, &names).await {
                debug!(
                    namespace,
                    error = error_chain(&error),
                    "cannot remove the conditions AddressInUse"
                );
            }
        }
        let all = self
            .context
            .ledger
            .read(|ledger| ledger.addresses_of(&added));
        let is_kept = |pool: &PoolKey, namespace: &String| {
            let is_checked_now = added.binary_search(pool).is_ok();
            self.pools.binary_search(pool).is_ok()
                && (!is_checked_now || all.contains_key(namespace))
        };
        retain_counts(&mut self.counts, is_kept);
        for (namespace, addresses) in all {
            match self.check(&namespace, &addresses, &added).await {
                Ok(counts) => {
                    replace_counts(self.counts.entry(namespace).or_default(), &added, counts);
                }
                Err(error) => debug!(
                    namespace,
                    error = error_chain(&error),
                    "cannot check the addresses in use"
                ),
            }
        }
        self.metrics
            .set_not_in_use(total(&self.pools, &self.counts));
    }

    /// Checks the addresses of some pools in a namespace, and returns how many are not in use.
    async fn check(
        &self,
        namespace: &str,
        addresses: &Addresses,
        pools: &[PoolKey],
    ) -> Result<Counts, CallError> {
        let mut counts = Counts::new();
        // Another process reports on the claims that this one does not reconcile.
        if !addresses
            .keys()
            .any(|name| self.is_checked(namespace, name))
        {
            return Ok(counts);
        }
        let machines = self.machines(namespace).await?;
        self.for_each_claim(namespace, |name, claim| {
            let (pool, block) = addresses
                .get(name)
                .filter(|_| self.is_checked(namespace, name))?;
            let found = machines.use_of(claim, *block);
            if let (AddressUse::NotInUse(_), Some(pool)) = (&found, pools.get(*pool)) {
                let count = counts.entry(pool.clone()).or_default();
                *count += 1;
            }
            Some(Some(found))
        })
        .await?;
        Ok(counts)
    }

    /// The claims that have the condition although their pool is not checked, or although their
    /// address was released, by namespace. No manager may have run when that changed.
    fn outdated(&self) -> BTreeMap<String, HashSet<String>> {
        let mut outdated = BTreeMap::<_, HashSet<_>>::new();
        for (claim, reference) in self.claims.with_reported_use() {
            let (namespace, name) = claim.parts();
            let pool = PoolKey::from_reference(&reference, Some(namespace))
                .or_else(|| self.member(&claim));
            let is_unchecked = pool.is_none_or(|pool| self.pools.binary_search(&pool).is_err());
            if is_unchecked || self.is_released(namespace, name) {
                outdated
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(name.to_owned());
            }
        }
        outdated
    }

    /// The pool of a claim that names a set.
    fn member(&self, claim: &NamespacedName) -> Option<PoolKey> {
        let (namespace, name) = claim.parts();
        let uid = self.claims.get(namespace, name)?.uid;
        let ledger = &self.context.ledger;
        ledger.read(|ledger| ledger.recorded_pool(claim, uid))
    }

    /// Removes the condition from claims whose addresses are not checked.
    async fn clear(&self, namespace: &str, names: &HashSet<String>) -> Result<(), CallError> {
        self.for_each_claim(namespace, |name, _| names.contains(name).then_some(None))
            .await
    }

    /// Reports what `find` returns for the name and object of each claim, a page at a time:
    /// `Some(None)` removes the condition, and `None` leaves the claim alone.
    async fn for_each_claim(
        &self,
        namespace: &str,
        mut find: impl FnMut(&str, &IPAddressClaim) -> Option<Option<AddressUse>>,
    ) -> Result<(), CallError> {
        let client = self.context.contract.claims(namespace);
        let (mut token, mut failures) = (None, 0);
        loop {
            let (claims, next) = client.list_page(token.as_deref()).await?;
            for claim in claims.iter().filter_map(|claim| claim.0.as_ref().ok()) {
                let Some(name) = claim.metadata.name.as_deref() else {
                    continue;
                };
                let Some(found) = find(name, claim) else {
                    continue;
                };
                match self.reporter.report_use(claim, found.as_ref()).await {
                    Ok(false) => {}
                    Ok(true) => tokio::time::sleep(WRITE_DELAY).await,
                    Err(error) if failures < MAX_FAILURES => {
                        debug!(
                            namespace,
                            claim = name,
                            error = error_chain(&error),
                            "cannot report the address use"
                        );
                        failures += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(next) = next else { return Ok(()) };
            token = Some(next);
            tokio::time::sleep(PAGE_DELAY).await;
        }
    }

    async fn machines(&self, namespace: &str) -> Result<MachineAddresses, CallError> {
        let client = self.context.contract.machines(namespace);
        let (mut machines, mut token) = (MachineAddresses::default(), None);
        loop {
            let (page, next) = client.list_page(token.as_deref()).await?;
            // The addresses of a Machine that cannot be decoded are unknown, as without a Machine.
            page.iter()
                .filter_map(|machine| machine.0.as_ref().ok())
                .for_each(|machine| machines.insert(machine));
            let Some(next) = next else {
                return Ok(machines);
            };
            token = Some(next);
            tokio::time::sleep(PAGE_DELAY).await;
        }
    }

    /// Whether a claim of this process has no address any more, such as one that others keep after
    /// an early release.
    fn is_released(&self, namespace: &str, name: &str) -> bool {
        self.claims
            .get(namespace, name)
            .is_some_and(|claim| claim.is_managed && !claim.bound)
    }

    fn is_checked(&self, namespace: &str, name: &str) -> bool {
        self.claims
            .get(namespace, name)
            .is_some_and(|claim| claim.is_managed && claim.bound)
    }
}

/// Removes the counts of pools that are not checked any more, or have no address in the namespace.
fn retain_counts(all: &mut HashMap<String, Counts>, is_kept: impl Fn(&PoolKey, &String) -> bool) {
    for (namespace, counts) in all.iter_mut() {
        counts.retain(|pool, _| is_kept(pool, namespace));
    }
    all.retain(|_, counts| !counts.is_empty());
}

/// Replaces the counts of the pools that were checked, and keeps those of others.
fn replace_counts(counts: &mut Counts, checked: &[PoolKey], new: Counts) {
    counts.retain(|pool, _| checked.binary_search(pool).is_err());
    counts.extend(new);
}

/// The counts of all namespaces, and 0 for a pool without one.
fn total(pools: &[PoolKey], counts: &HashMap<String, Counts>) -> UseCounts {
    let of_pool = |pool: &PoolKey| counts.values().filter_map(|counts| counts.get(pool)).sum();
    pools
        .iter()
        .map(|pool| (pool.clone(), of_pool(pool)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_ipam_api::InClusterKind;

    #[test]
    fn counts_of_namespaces_are_added() {
        let pool = |name: &str| PoolKey::new(InClusterKind::GlobalIPPool, None, name);
        let (a, b, gone) = (pool("a"), pool("b"), pool("gone"));
        let counts = HashMap::from([
            ("one".to_owned(), Counts::from([(a.clone(), 2), (gone, 7)])),
            ("two".to_owned(), Counts::from([(a.clone(), 3)])),
        ]);
        assert_eq!(total(&[a.clone(), b.clone()], &counts), [(a, 5), (b, 0)]);
    }

    #[test]
    fn check_of_one_pool_keeps_the_counts_of_others() {
        let pool = |name: &str| PoolKey::new(InClusterKind::GlobalIPPool, None, name);
        let (a, b) = (pool("a"), pool("b"));
        let mut counts = Counts::from([(a.clone(), 2), (b.clone(), 3)]);
        replace_counts(&mut counts, std::slice::from_ref(&b), Counts::new());
        assert_eq!(
            counts,
            Counts::from([(a.clone(), 2)]),
            "all addresses of the checked pool are in use"
        );
        let mut all = HashMap::from([(
            "n".to_owned(),
            Counts::from([(a.clone(), 2), (b.clone(), 3)]),
        )]);
        retain_counts(&mut all, |pool, _| *pool == a);
        assert_eq!(all, HashMap::from([("n".to_owned(), counts)]));
        retain_counts(&mut all, |_, _| false);
        assert!(all.is_empty());
    }
}
