//! What to do about a problem, in the words of conditions, events, webhooks and `kubectl ipam
//! doctor`. Each text stands here once.

pub use capi_ipam_contract::advice::{ANOTHER_POOL, MISSING_CLUSTER, MISSING_POOL, PAUSED};

use std::fmt::Write as _;

use capi_ipam_ip::Entry;

use super::{AddressCounts, Audience, PoolKey, Scope, counted, names};

/// The maximum number of management clusters that a text lists.
const MAX_LISTED: usize = 5;

/// About an address that several bound claims have. To delete an IPAddress does not help: the
/// machine keeps the address.
pub const DUPLICATE: &str =
    "delete the machine of all but one of these claims; its controller replaces it";

/// About a pool whose owner, namespace or Cluster has as much as it may have.
pub const LIMIT: &str = "release claims, or ask the owner of the pool for a higher limit";

/// About several managers that are active at the same time and serve the same claims.
pub const SEVERAL_MANAGERS: &str = "run one manager, or all with --leader-elect in one namespace: kubectl get pods --all-namespaces --selector \
     cluster.x-k8s.io/provider=ipam-in-cluster";

/// About blocks of a network that another management cluster uses as well.
pub const BLOCK_CONFLICT: &str =
    "release the claims with addresses of these blocks in one of the two management clusters";

/// About a network from which other management clusters exclude other addresses than this one: the
/// problem, and what to do. `clusters` are their ids.
pub fn exclusions_differ(clusters: &[Box<str>]) -> String {
    let (listed, more) = clusters.split_at(clusters.len().min(MAX_LISTED));
    let mut names = listed.join(", ");
    if !more.is_empty() {
        // Writing to a String does not fail.
        let _ = write!(names, " and {} more", more.len());
    }
    let exclude = counted(
        clusters.len(),
        "other management cluster excludes",
        "other management clusters exclude",
    );
    format!(
        "{exclude} other addresses from the network: {names}; each of them can allocate the gateways of the others from \
         its own blocks; make the gateways of the pools and spec.excluded of the network equal in all of them"
    )
}

/// About a record of this management cluster in a registry, without an IPSlice of its block.
pub const RECORD_WITHOUT_SLICE: &str = "the manager uses the block again, or returns it, as soon as it can; if not, see its log and whether the network \
     exists here";

/// What is wrong with pools of other scopes that contain the same addresses, `shared` for example.
/// `pools` are the names of the others.
pub fn overlap_problem(shared: Option<Entry>, pools: &str) -> String {
    let example = shared
        .map(|shared| format!(", such as {shared},"))
        .unwrap_or_default();
    format!(
        "the same addresses{example} can be allocated by {pools}, so two machines can get one address"
    )
}

/// About pools of other scopes that contain the same addresses. `has_one_length`: all of them
/// allocate blocks of the same length. A network has one length for each family, so pools of
/// different lengths cannot be in one network.
pub fn overlap(scope: &Scope, has_one_length: bool) -> &'static str {
    match (scope, has_one_length) {
        (_, false) => {
            "exclude the shared range in all but one of them; one network cannot have them, since their blocks have \
             different lengths"
        }
        (Scope::Pool(_), true) => {
            "if they are in one network, create an IPNetwork that allows the namespaces, and name the same IPNetwork in \
             spec.network of all of them; otherwise exclude the shared range in all but one of them"
        }
        (Scope::Network(_), true) => {
            "if they are in the network of this pool, name it in their spec.network; otherwise exclude the shared range \
             in all but one of them"
        }
    }
}

/// About a claim for `missing`, a pool that does not exist, with the pools that exist instead:
/// those of the same namespace or, for a global pool, the global ones.
pub fn missing_pool<'a>(missing: &PoolKey, pools: impl IntoIterator<Item = &'a PoolKey>) -> String {
    let mut others: Vec<&PoolKey> = pools
        .into_iter()
        .filter(|pool| pool.namespace == missing.namespace)
        .collect();
    others.sort_unstable();
    let names = Audience::of_pool(missing).pools(others);
    let existing = match (&missing.namespace, names.is_empty()) {
        (Some(namespace), false) => format!("pools of the namespace {namespace}: {names}"),
        (Some(namespace), true) => format!("the namespace {namespace} has no pools"),
        (None, false) => format!("global pools: {names}"),
        (None, true) => "there are no global pools".to_owned(),
    };
    format!("{MISSING_POOL}; {existing}")
}

/// About a pool in deletion whose addresses claims have.
pub fn pool_deleting(pool: &PoolKey) -> String {
    format!(
        "delete the machines of these claims, since a deletion cannot be undone; to list them: {}",
        claims_of(pool)
    )
}

/// The command that lists the claims of a pool.
pub fn claims_of(pool: &PoolKey) -> String {
    let selection = match &pool.namespace {
        Some(namespace) => format!("--namespace {namespace}"),
        None => "--all-namespaces".to_owned(),
    };
    format!(
        "kubectl ipam claims {selection} --pool {}/{}",
        pool.kind, pool.name
    )
}

/// The command that shows the addresses of a pool and their holders.
pub fn show(pool: &PoolKey) -> String {
    let selection = match &pool.namespace {
        Some(namespace) => format!(" --namespace {namespace}"),
        None => String::new(),
    };
    format!("kubectl ipam show {}/{}{selection}", pool.kind, pool.name)
}

/// Why a pool stays in a network to which it does not say any more that it belongs, and what to do.
/// `has_lost_name`: `spec.network` was removed; otherwise the selector of the network does not
/// match any more. `writer` is the last one that the pool records: a write that only removes fields
/// is not recorded.
pub fn kept_in_network(
    pool: &PoolKey,
    network: &str,
    has_lost_name: bool,
    writer: Option<&str>,
) -> String {
    let by = match writer {
        Some(writer) => format!(" (last recorded writer of the pool: {writer})"),
        None => String::new(),
    };
    let (change, undo) = if has_lost_name {
        (
            "spec.network was removed",
            format!("set spec.network to {network} again"),
        )
    } else {
        (
            "the selector of the network and the labels of the pool do not match any more",
            format!("restore the labels, or set spec.network to {network}"),
        )
    };
    format!(
        "{change}{by}, and addresses of the pool are in use in IPNetwork {network}: the pool stays in the network; to \
         stay, {undo}; to leave, {}",
        leave_network(pool, network)
    )
}

/// The command with which a pool leaves a network although addresses of it are in use there.
pub fn leave_network(pool: &PoolKey, network: &str) -> String {
    let selection = match &pool.namespace {
        Some(namespace) => format!(" --namespace {namespace}"),
        None => String::new(),
    };
    format!(
        "kubectl annotate{selection} {} {} {}={network}",
        pool.kind.plural(),
        pool.name,
        names::LEAVE_NETWORK_ANNOTATION
    )
}

/// What was removed from a pool, and what to do. `fields` is not empty. `writer` is the last one
/// that the pool records: a write that only removes fields is not recorded.
pub fn fields_removed(fields: &str, writer: Option<&str>) -> String {
    let by = match writer {
        Some(writer) => format!(" (last recorded writer of the pool: {writer})"),
        None => String::new(),
    };
    format!(
        "{fields} was removed from the pool{by}, and has no effect any more; a client that does not know these fields \
         removes them with each write: set them in a way that it keeps (docs/pools.md)"
    )
}

/// About a pool or an owner of slices without a free address in a slice.
pub const NO_FREE_SLICE: &str = "add addresses, or release the claims of an owner";

/// The addresses of a pool by their use, so that the numbers add up to the total. `cooldown_end` is
/// when the next cool-down ends.
pub fn describe_counts(counts: &AddressCounts, cooldown_end: Option<&str>) -> String {
    let mut text = format!("{} in total, {} in use", counts.total, counts.used);
    if counts.out_of_range > 0 {
        let _ = write!(text, ", {} more in use out of range", counts.out_of_range);
    }
    if counts.reserved > 0 {
        // A reservation precedes its IPAddress, so some of them can become used ones at once.
        let _ = write!(text, ", {} reserved or being allocated", counts.reserved);
    }
    if counts.drained > 0 {
        let drained = counts.drained;
        let _ = write!(text, ", {drained} not allocated because of spec.draining");
    }
    if counts.quarantined > 0 {
        let _ = write!(text, ", {} quarantined", counts.quarantined);
    }
    if counts.cooling_down > 0 {
        let _ = write!(text, ", {} cooling down", counts.cooling_down);
        if let Some(end) = cooldown_end {
            let _ = write!(text, " until {end}");
        }
    }
    text
}

/// About a network, or a claim for an address of it, whose registry does not exist.
pub fn missing_registry(registry: &str) -> String {
    format!("create the IPRegistry {registry}")
}

/// About a network whose record in the registry cannot be decoded: the problem, and what to do.
pub fn undecodable_network_record(network: &str) -> String {
    let repair = repair_network_record(network);
    format!("the record network.{network} of the registry cannot be decoded; {repair}")
}

/// About the same network: what to do.
pub fn repair_network_record(network: &str) -> String {
    format!(
        "correct the record network.{network} of the registry, or delete it: the management clusters write it again"
    )
}

/// About a pool without a free address: what can make one of them free. In a network, an address
/// that another pool has in use counts as reserved.
pub fn exhausted(counts: &AddressCounts, is_in_network: bool) -> String {
    let mut choices = vec!["add addresses"];
    if counts.used > 0 {
        choices.push("release claims");
    }
    if counts.reserved > 0 {
        if is_in_network {
            choices.push("release claims of other pools of its network");
        }
        choices.push("delete reservations made by hand that are not needed");
    }
    if counts.drained > 0 {
        choices.push("remove entries of spec.draining");
    }
    if counts.quarantined > 0 {
        choices.push("end quarantines that are not needed");
    }
    if counts.cooling_down > 0 {
        choices.push("wait for the end of the cool-down");
    }
    match choices.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests;
