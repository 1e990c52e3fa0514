//! Runs one plan.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::FutureExt;
use kube::Client;
use support::prelude::*;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    fault::Plan,
    observer::Observer,
    oracle::{self, Rule, Violation},
    proxy::{Entry, Proxy},
    request::Write,
    workload,
    world::in_order,
};

/// How long the provider may take to come to rest after the last fault.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How long no write may happen then.
const QUIET: Duration = Duration::from_secs(2);
/// The maximum time until no write happens.
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum age of an aged manager: longer than a create request can be late.
const AGE: Duration = Duration::from_secs(31);
/// How often one kind of write may happen to one object.
const MAX_WRITES: usize = 15;
/// The same for counts of pools, which change often; for reservations, whose name is the next free
/// address for any claim; and for the status of waiting claims, which two managers with different
/// counts write alternately.
const MAX_FREQUENT_WRITES: usize = 100;

const FLAGS: [&str; 2] = ["--sweep-interval=500ms", "--sweep-grace=500ms"];

/// The result of a plan.
#[derive(Clone, Debug)]
pub struct Report {
    pub plan: Plan,
    /// The violations; empty for a passed plan.
    pub failures: Vec<String>,
    /// Whether the fault was injected.
    pub happened: bool,
    pub took: Duration,
    /// How long it took from the end of the workload until the state was correct.
    pub converged: Duration,
    /// The writes of the first manager.
    pub journal: Vec<Entry>,
    /// The number of events of its watches, by kind.
    pub changes: HashMap<String, usize>,
    /// The number of its reads of single objects, by kind.
    pub reads: HashMap<String, usize>,
    /// Violations, changes, writes and logs, for a failure.
    pub story: String,
}

/// A manager behind a proxy, which is restarted when it is killed.
struct Leader {
    proxy: Arc<Proxy>,
    manager: Arc<Mutex<Manager>>,
    keeper: JoinHandle<()>,
}

impl Leader {
    async fn start(plane: &Arc<ControlPlane>, proxy: Proxy, flags: Vec<String>) -> Self {
        let proxy = Arc::new(proxy);
        let manager = Arc::new(Mutex::new(launch(plane, &proxy, flags.clone()).await));
        let ready = Arc::clone(&manager);
        spawn_blocking(move || lock(&ready).wait_until_ready())
            .await
            .expect("the manager gets ready");
        let keeper = tokio::spawn(keep(
            Arc::clone(plane),
            Arc::clone(&proxy),
            Arc::clone(&manager),
            flags,
        ));
        Self {
            proxy,
            manager,
            keeper,
        }
    }

    /// The log of the manager, and an error if it has exited.
    async fn end(self) -> (String, Option<String>) {
        self.keeper.abort();
        let manager = Arc::clone(&self.manager);
        let end = move || {
            let mut manager = lock(&manager);
            let ended = (!manager.is_running()).then(|| "the manager has exited".to_owned());
            manager.kill();
            let forbidden = manager
                .was_forbidden()
                .then(|| "the manager lacks a permission".to_owned());
            (manager.log(), ended.or(forbidden))
        };
        spawn_blocking(end).await.expect("a manager can be killed")
    }
}

/// The flags of a manager.
fn flags(plan: &Plan, number: usize, namespace: &str, webhooks: Option<&Webhooks>) -> Vec<String> {
    let all = FLAGS.into_iter().map(str::to_owned);
    let own = plan.workload.flags(number, namespace);
    let webhooks = webhooks.map(Webhooks::flags);
    all.chain(own)
        .chain(webhooks.into_iter().flatten())
        .collect()
}

async fn launch(plane: &Arc<ControlPlane>, proxy: &Arc<Proxy>, flags: Vec<String>) -> Manager {
    let (plane, kubeconfig) = (Arc::clone(plane), proxy.kubeconfig().to_owned());
    // Missing permissions are checked at the end.
    let launch = move || {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Manager::launch(&plane, &kubeconfig, &flags).may_lack_permissions()
    };
    spawn_blocking(launch)
        .await
        .expect("a manager can be started")
}

/// Restarts the manager whenever it must be killed.
async fn keep(
    plane: Arc<ControlPlane>,
    proxy: Arc<Proxy>,
    manager: Arc<Mutex<Manager>>,
    flags: Vec<String>,
) {
    loop {
        proxy.crashed().await;
        let old = Arc::clone(&manager);
        spawn_blocking(move || lock(&old).kill())
            .await
            .expect("a manager can be killed");
        proxy.revive();
        let new = launch(&plane, &proxy, flags.clone()).await;
        *lock(&manager) = new;
    }
}

fn lock(manager: &Mutex<Manager>) -> MutexGuard<'_, Manager> {
    manager.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a plan.
pub async fn run(plane: &Arc<ControlPlane>, plan: Plan) -> Report {
    let start = Instant::now();
    let consumer = Consumer::new(plane).await;
    let client = consumer.client.clone();
    let observer = Observer::start(&client).await;
    let mut leaders = Vec::new();
    let webhooks = plan.workload.has_webhook().then(|| Webhooks::new(plane));
    for number in 0..plan.managers {
        let fault = plan.fault.clone().filter(|_| number == 0);
        let proxy = Proxy::start(plane, number, fault).await;
        leaders.push(
            Leader::start(
                plane,
                proxy,
                flags(&plan, number, &consumer.namespace, webhooks.as_ref()),
            )
            .await,
        );
    }
    let proxies: Vec<Arc<Proxy>> = leaders
        .iter()
        .map(|leader| Arc::clone(&leader.proxy))
        .collect();

    if plan.aged {
        tokio::time::sleep(AGE).await;
    }

    let mut failures = Vec::new();
    let webhook = webhooks
        .as_ref()
        .map(|webhooks| workload::Webhook { plane, webhooks });
    let work = plan.workload.run(&consumer, plan.managers, webhook);
    failures.extend(Box::pin(caught(work)).await);
    if webhooks.is_some() {
        tokio::task::block_in_place(|| Webhooks::unregister_of_clusters(plane));
    }
    let worked = Instant::now();
    failures.extend(come_to_rest(&observer, &client, &proxies).await);
    let converged = worked.elapsed();
    failures.extend(be_quiet(&proxies).await);
    failures.extend(summary(&plan, &observer, &proxies));
    let journal = proxies[0].journal();
    let changes = proxies[0].changes();
    let reads = proxies[0].reads();

    failures.extend(caught(Box::pin(workload::clean_up(&consumer))).await);
    failures.extend(leave_nothing(&observer).await);
    failures.extend(caught(observer.catch_up(&client)).await);
    let late = has_late_write(&proxies);
    failures.extend(texts(&oracle::ever(
        &observer.changes(),
        late || plan.may_be_overtaken(),
    )));
    if !late && !plan.may_be_in_another_slice() {
        failures.extend(texts(&oracle::in_another_slice(&observer.changes())));
    }
    if failures.is_empty() {
        failures.extend(summary(&plan, &observer, &proxies));
    }
    proxies
        .iter()
        .for_each(|proxy| failures.extend(texts(&too_often(&proxy.journal()))));
    let happened = plan.fault.is_none() || proxies[0].has_happened();
    let seen = observer.changes();
    let mut story = Vec::new();
    story.extend(
        in_order(&seen)
            .into_iter()
            .map(|change| format!("{change:?}")),
    );
    for leader in leaders {
        let journal = leader.proxy.journal();
        let (log, failure) = leader.end().await;
        failures.extend(failure);
        let line = |entry: &Entry| {
            let Entry {
                at,
                write,
                name,
                code,
                fault,
            } = entry;
            format!(
                "{:>8.3} {write:?} {name} {code:?} {fault:?}",
                at.duration_since(start).as_secs_f32()
            )
        };
        story.extend(journal.iter().map(line));
        story.push(log);
    }
    story.insert(0, format!("{}\n{}\n", plan.line(), failures.join("\n")));
    if !failures.is_empty() {
        // Leftovers must not affect the next plan.
        force_delete_all(plane, &consumer.namespace).await;
    }
    Report {
        plan,
        failures,
        happened,
        took: start.elapsed(),
        converged,
        journal,
        changes,
        reads,
        story: story.join("\n"),
    }
}

/// The violations of the whole history, where they are applicable.
fn summary(plan: &Plan, observer: &Observer, proxies: &[Arc<Proxy>]) -> Vec<String> {
    let may_repeat = plan.may_repeat() || has_late_write(proxies);
    if may_repeat {
        Vec::new()
    } else {
        texts(&oracle::overall(&observer.changes()))
    }
}

/// Whether a write was not answered in time although no fault was injected, as on a loaded machine.
/// Like one with the fault [`WriteFault::Late`](crate::fault::WriteFault::Late) it may be applied
/// later.
fn has_late_write(proxies: &[Arc<Proxy>]) -> bool {
    proxies
        .iter()
        .any(|proxy| proxy.journal().iter().any(is_late))
}

fn is_late(entry: &Entry) -> bool {
    entry.write != Write::Event
        && entry.fault.is_none()
        && entry.code.is_none_or(|code| code == 504)
}

/// The message of a panic, if the future panics.
async fn caught(work: impl Future<Output = ()>) -> Option<String> {
    let panic = AssertUnwindSafe(work).catch_unwind().await.err()?;
    let text = panic.downcast_ref::<String>().map(String::as_str);
    Some(
        text.or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a message")
            .to_owned(),
    )
}

fn texts(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

/// Waits until there are no violations, and returns those that remain.
async fn come_to_rest(observer: &Observer, client: &Client, proxies: &[Arc<Proxy>]) -> Vec<String> {
    let mut patience = Patience::new(TIMEOUT);
    loop {
        if proxies.iter().any(|proxy| proxy.is_active()) {
            patience = Patience::new(TIMEOUT);
        }
        let wrong = oracle::at_rest(&observer.world());
        if wrong.is_empty() && !proxies.iter().any(|proxy| proxy.is_active()) {
            if let Some(failure) = caught(observer.catch_up(client)).await {
                return vec![failure];
            }
            if oracle::at_rest(&observer.world()).is_empty() {
                return Vec::new();
            }
        }
        if patience.is_over() {
            return texts(&wrong);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until no write happens for a while.
async fn be_quiet(proxies: &[Arc<Proxy>]) -> Option<String> {
    let patience = Patience::new(QUIET_TIMEOUT);
    let start = Instant::now();
    loop {
        let writes = proxies
            .iter()
            .flat_map(|proxy| proxy.journal())
            .filter(|entry| entry.write != Write::Event);
        let recent: Vec<Entry> = writes.filter(|entry| entry.at.elapsed() < QUIET).collect();
        if recent.is_empty() && start.elapsed() >= QUIET {
            return None;
        }
        if patience.is_over() {
            let names: Vec<String> = recent
                .iter()
                .map(|entry| format!("{:?} {}", entry.write, entry.name))
                .collect();
            return Some(format!(
                "{:?}: still written at rest: {}",
                Rule::Quiet,
                names.join(", ")
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until no object remains.
async fn leave_nothing(observer: &Observer) -> Option<String> {
    let patience = Patience::new(TIMEOUT);
    loop {
        let world = observer.world();
        let left: Vec<String> = world
            .claims
            .keys()
            .chain(world.addresses.keys())
            .map(|(_, name)| name)
            .chain(world.reservations.keys())
            .chain(world.slices.keys())
            .chain(world.pools.keys().map(|(_, (_, name))| name))
            .cloned()
            .collect();
        if left.is_empty() {
            return None;
        }
        if patience.is_over() {
            return Some(format!(
                "{:?}: left at the end: {}",
                Rule::NoLeak,
                left.join(", ")
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The writes that happened too often.
fn too_often(journal: &[Entry]) -> Vec<Violation> {
    let mut counts: HashMap<(Write, &str), usize> = HashMap::new();
    for entry in journal.iter().filter(|entry| entry.write != Write::Event) {
        *counts.entry((entry.write, &entry.name)).or_default() += 1;
    }
    let most = |write| match write {
        // The status of networks, with the counts of their pools, is among the other writes.
        Write::PoolStatus | Write::ReservationCreated | Write::ClaimReported | Write::Other => {
            MAX_FREQUENT_WRITES
        }
        _ => MAX_WRITES,
    };
    let often = counts
        .into_iter()
        .filter(|((write, _), count)| *count > most(*write));
    often
        .map(|((write, name), count)| Violation {
            rule: Rule::Quiet,
            text: format!("{write:?} of {name} {count} times"),
        })
        .collect()
}

/// Deletes all leftovers of a failed plan, including their finalizers.
async fn force_delete_all(plane: &Arc<ControlPlane>, namespace: &str) {
    let (plane, namespace) = (Arc::clone(plane), namespace.to_owned());
    let remove = move || {
        let kinds = "clusters,clusteraddressings,ipaddressclaims,ipaddresses.ipam.cluster.x-k8s.io,inclusterippools,globalinclusterippools,ipreservations,ipslices";
        let everything = ["get", kinds, "--namespace", &namespace, "--output=name"];
        let found = plane.try_kubectl(&everything).unwrap_or_default();
        for object in found.lines() {
            let at = ["--namespace", &namespace, object];
            let _ = plane.try_kubectl(
                &[
                    &[
                        "patch",
                        "--type=merge",
                        r#"--patch={"metadata":{"finalizers":null}}"#,
                    ],
                    &at[..],
                ]
                .concat(),
            );
            let _ = plane.try_kubectl(
                &[&["delete", "--wait=false", "--ignore-not-found"], &at[..]].concat(),
            );
        }
    };
    let _ = spawn_blocking(remove).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::WriteFault;

    fn journal(write: Write, count: usize) -> Vec<Entry> {
        let entry = Entry {
            at: Instant::now(),
            write,
            name: "a".to_owned(),
            code: Some(200),
            fault: None,
        };
        vec![entry; count]
    }

    #[test]
    fn unanswered_write_without_a_fault_is_late() {
        let entry = |code, fault| Entry {
            code,
            fault,
            ..journal(Write::AddressCreated, 1).remove(0)
        };
        assert!(is_late(&entry(None, None)) && is_late(&entry(Some(504), None)));
        assert!(
            !is_late(&entry(Some(409), None))
                && !is_late(&entry(None, Some(WriteFault::CrashBefore)))
        );
    }

    #[test]
    fn repeated_writes_are_detected() {
        assert!(too_often(&journal(Write::ClaimBound, MAX_WRITES)).is_empty());
        let found = too_often(&journal(Write::ClaimBound, MAX_WRITES + 1));
        assert_eq!(
            found.first().map(|violation| violation.rule),
            Some(Rule::Quiet)
        );
        assert!(too_often(&journal(Write::PoolStatus, MAX_FREQUENT_WRITES)).is_empty());
        assert!(too_often(&journal(Write::Event, 100)).is_empty());
    }
}
