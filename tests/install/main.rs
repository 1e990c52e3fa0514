//! The provider as operators install it: the released files, clusterctl, and the core manager of
//! Cluster API beside it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

mod cluster_class;
mod finalizer_at_creation;
mod gitops;
mod init;
mod installed;
mod manifests;
mod markdown;
mod moving;
mod readme;
mod reclaim;
mod tenants;
mod versions;
mod workload_cluster;
