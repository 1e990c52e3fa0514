//! The provider as operators get it: the released files, clusterctl, Cluster API's own manager beside it.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code: a failure ends the test")]

#[path = "../support/mod.rs"]
mod support;

mod init;
mod installed;
mod manifests;
mod markdown;
mod moving;
mod readme;
mod tenants;
