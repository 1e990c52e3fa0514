//! Leader election: of several managers one works. The protocol is client-go's, by the crate `k8s-controller`.
//!
//! The lease makes for peace, not for safety: what must never happen twice is guarded by the API server itself.
//! Needs `get`, `create` and `update` on `leases` in `coordination.k8s.io`.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_controller::LeaderElection;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::client::{REQUEST_TIMEOUT, own_namespace, Patience};
use crate::options::Options;

/// How work under a lease ended.
#[derive(Debug)]
pub enum Outcome<T> {
    /// The work came to its end; the lease has been given back.
    Finished(T),
    /// The lease was lost and the work broken off. The process has to end, so that nothing outlives the lease.
    Lost,
    /// Shutdown was asked for before the lease was obtained.
    NeverLed,
}

/// How long answers about the lease are waited for, by a client with a connection of its own.
///
/// One call is under way at a time, so that client has one connection. When it is dead, a read gets its answer over
/// another one after a quarter of the renew deadline: who leads goes on leading, and who waits takes over that much later.
/// Two calls, a read and a write, take no longer than the renew deadline.
pub fn patience(options: &Options) -> Patience {
    Patience { deadline: REQUEST_TIMEOUT.min(options.leader_elect_renew_deadline / 2), repeats_reads: true }
}

/// Waits for the lease `name`, then runs `work` while keeping it.
pub async fn run<T>(
    client: Client,
    options: &Options,
    name: &str,
    identity: &str,
    stop: CancellationToken,
    work: impl Future<Output = T>,
) -> Outcome<T> {
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
    let asked_to_stop = async {
        stop.cancelled().await;
        if leading.load(Ordering::Relaxed) {
            // The work has been told too; its end gives the lease back.
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        outcome = led => match outcome {
            Some(value) => {
                // It is given back already, unless a renewal under way was faster.
                election.release().await;
                Outcome::Finished(value)
            }
            None => Outcome::Lost,
        },
        () = asked_to_stop => Outcome::NeverLed,
    }
}

/// A name for this process that no other has: the host name, which in a pod is the pod's, and a random number.
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.or_else(|| Some(std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned()));
    format!("{}_{:016x}", host.as_deref().unwrap_or("manager"), rand::random::<u64>())
}
