//! Leader election: one replica is active, the others are standbys. The protocol is that of
//! client-go, implemented by the crate `k8s-controller`.
//!
//! Safety must not depend on the lease: a replica that was paused may act shortly after it has lost
//! the lease. Use preconditions of the API server where two writers would do harm.
//!
//! Needs `get`, `create` and `update` on `leases` in `coordination.k8s.io`.

mod observer;

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_controller::LeaderElection;
use kube::Client;
use tokio_util::sync::CancellationToken;

pub(crate) use self::observer::observe_lease;
use crate::client::{REQUEST_TIMEOUT, RequestPolicy, own_namespace};
use crate::options::Options;

/// The lease was lost and the work cancelled. The process has to end, so that no other task acts
/// without the lease.
#[derive(Debug, thiserror::Error)]
#[error("the lease was lost; another replica may be the leader now, so this process ends")]
pub struct LeaseLost;

/// The request policy for the lease, for a client that is used for nothing else.
///
/// That client sends one request at a time over one connection. If the connection is dead, a read
/// is answered over another one after a quarter of the renew deadline, so the leader keeps the
/// lease, and a standby takes over slightly later. A read and a write together take no longer than
/// the renew deadline.
pub(crate) fn request_policy(options: &Options) -> RequestPolicy {
    RequestPolicy {
        timeout: REQUEST_TIMEOUT.min(options.leader_elect_renew_deadline / 2),
        retry_reads: true,
    }
}

/// Acquires the lease `name`, then runs `work` and renews the lease until it is finished. Releases
/// the lease then, and returns the result. `None` if shutdown was requested before the lease was
/// acquired.
pub async fn run<T>(
    client: Client,
    options: &Options,
    name: &str,
    identity: &str,
    stop: CancellationToken,
    work: impl Future<Output = T>,
) -> Result<Option<T>, LeaseLost> {
    let namespace = own_namespace(&client, &options.leader_election_namespace);
    let election = LeaderElection::new(client, &namespace, name, identity)
        .with_lease_duration(options.leader_elect_lease_duration)
        .with_renew_deadline(options.leader_elect_renew_deadline)
        .with_retry_period(options.leader_elect_retry_period);
    let leading = AtomicBool::new(false);
    let led = election.with_lease(async {
        leading.store(true, Ordering::Relaxed);
        work.await
    });
    let stopped_as_standby = async {
        stop.cancelled().await;
        if leading.load(Ordering::Relaxed) {
            // The work stops as well, and the lease is released at its end.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        outcome = led => match outcome {
            Some(value) => {
                // Released already, unless a concurrent renewal came after that.
                election.release().await;
                Ok(Some(value))
            }
            None => Err(LeaseLost),
        },
        () = stopped_as_standby => Ok(None),
    }
}

/// A unique holder identity for this process: the host name, in a pod the name of the pod, and a
/// random number.
pub(crate) fn holder_identity() -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    format!(
        "{}_{:016x}",
        host.as_deref().map_or("manager", str::trim),
        rand::random::<u64>()
    )
}
