//! Test kit for Cluster API IPAM providers.
//!
//! Tests against a real API server find what unit tests with a fake one cannot: rejected writes,
//! conflicts, finalizers, lost watches. This crate starts etcd and kube-apiserver with the CRDs of
//! Cluster API, runs the program of a provider against them, and checks the program as a whole.
//!
//! - [`conformance`]: checks in one call that a program fulfills the IPAM provider contract, also
//!   when it is killed;
//! - [`control_plane`]: etcd and kube-apiserver for one test, with options, an audit log and
//!   restarts;
//! - [`manager`]: the program of a provider as a separate process, with its probes and its log;
//! - [`nats`]: nats-server, one node or a cluster of three, with faults;
//! - [`consumer`]: creates claims, addresses and Clusters, and waits for results;
//! - [`proxy`]: a server between a program and the API server, for faults;
//! - [`wait`], [`patience`]: polling, with limits that are longer on a busy machine;
//! - [`process`], [`ports`]: child processes that never outlive a test, free ports.
//!
//! # Dependencies
//! Of this workspace, `capi-ipam-provider` only. The crate knows no kind of pool. The programs of
//! the control plane are those in the folder `KUBEBUILDER_ASSETS`, or
//! `hack/control-plane/ensure.sh` of this repository builds them with Go, once on a machine. A git
//! dependency contains the script.
//!
//! # Invariants
//! - Every function reports a failure by a panic with a message, except for the checks of
//!   [`conformance`], whose results are in the report. The crate is for tests only.
//! - Programs and temporary folders never outlive the process that created them, also when it is
//!   killed.
//! - A control plane serves one test. Nothing is shared with other control planes, except for a
//!   template of the installed objects in the build folder, which makes the start fast.
//! - Providers are observed by the API only. No check reads their memory, logs or stores.
//!
//! # Example
//! The conformance test of a provider, `tests/conformance.rs` in its package:
//!
//! ```no_run
//! use capi_ipam_testing::conformance::{self, Pool, Provider};
//! use capi_ipam_testing::control_plane::Installation;
//!
//! const POOL: &str = "
//! apiVersion: example.com/v1
//! kind: ExamplePool
//! metadata: {name: example}
//! spec: {addresses: 10.0.0.1-10.0.0.8}
//! ";
//!
//! # const CRD: &str = "";
//! # const PROGRAM: &str = "";
//! // PROGRAM is env!("CARGO_BIN_EXE_provider") in a package with the program `provider`, and CRD is the YAML of the
//! // CustomResourceDefinition.
//! let provider = Provider::new(PROGRAM, Pool::new(POOL, 8)).installation(Installation::of(CRD));
//! conformance::run(&provider).assert_passed();
//! ```

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

pub mod conformance;
pub mod consumer;
pub mod control_plane;
pub mod manager;
pub mod nats;
pub mod patience;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod wait;
