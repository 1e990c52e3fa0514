//! Requests to the API server: the kubeconfig, the served versions, lists in pages, reviews, and
//! writes.

mod config;
mod failure;
mod read;
mod review;
mod warnings;
mod write;

pub(crate) use self::config::{KubeconfigNames, namespace};
pub(crate) use self::failure::root_cause;
pub(crate) use self::read::{
    CLUSTERS, Cluster, OtherKind, PAGE_SIZE, WATCH_TIMEOUT, lease_selector, named,
    provider_selector,
};
pub(crate) use self::warnings::with_warnings;
pub(crate) use self::write::{Created, Identity};
