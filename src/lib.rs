//! In-cluster IP address management (IPAM) provider for Kubernetes Cluster API.
//!
//! It allocates the addresses of IPAddressClaims from pools that are objects of the management
//! cluster. The program is `manager`. To write a provider for other kinds of pools, use the crate
//! [`capi_ipam_provider`].
//!
//! # Architecture
//!
//! | Crate or module | Purpose | Uses |
//! |---|---|---|
//! | [`capi_ipam_ip`] | addresses, ranges, prefixes and sets of them; no Kubernetes, no async, no I/O | |
//! | [`capi_ipam_controller`] | parts of any controller: client, watches, work queue, patches, leader election, manager | |
//! | [`capi_ipam_webhook`] | server for admission and conversion webhooks, and its certificates | controller |
//! | [`capi_ipam_provider`] | kinds of the IPAM contract, and the reconciler of claims; knows no kind of pool | controller |
//! | [`capi_ipam_api`] | kinds of this provider and their CustomResourceDefinitions; no I/O | ip, provider |
//! | [`capi_ipam_ledger`] | index of the addresses in use, the free addresses and the waiting claims; no requests | ip, controller, provider, api |
//! | [`in_cluster`] | allocation and release, controllers of pools, sweeper | ip, controller, provider, api, ledger |
//! | [`admission`] | validation and conversion of pools and reservations: pure functions | ip, webhook, api |
//! | [`app`] | the program: flags and wiring | all |
//!
//! Cargo enforces the boundaries of the crates, and `tests/architecture.rs` further rules.
//!
//! # Invariants
//! - An address of a scope is allocated to at most one claim. The API server guarantees this: the
//!   name of an [`IPReservation`](capi_ipam_api::IPReservation) is derived from the scope and the
//!   address, and only one client can create it. Caches, leader election and webhooks are
//!   optimizations that correctness does not depend on.
//! - Nothing that holds an address is released because a watch, a cache or a list no longer shows
//!   it. A live read confirms it first.
//! - A reservation exists before its IPAddress is created, and until its IPAddress is removed.
//! - All state is in the cluster. A restarted or another replica continues from there.

pub mod admission;
pub mod app;
pub mod in_cluster;
