//! Building blocks of a Kubernetes controller, independent of IP addresses and of Cluster API.
//!
//! - [`manager`]: the process around controllers: flags, logging, leader election, probes, what is
//!   opened before the first reconcile and closed after the last one, graceful shutdown;
//! - [`controller`]: the reconcile loop of one kind: work queue, retries with backoff, requeueing,
//!   compact cache, objects with a finalizer, sources that are added and removed while it runs;
//! - [`watch`]: watches that recover from errors, skip invalid objects and detect a restored etcd,
//!   and other [sources](watch::Source) of objects;
//! - [`client`]: API requests with a timeout and a typed error that says whether a write may have
//!   been applied;
//! - [`patch`] and [`finalizer`]: writes with uid and resourceVersion as preconditions;
//! - [`references`]: finalizers with which an object keeps others that it uses;
//! - [`ready`]: whether an object on which others depend is ready;
//! - [`expectations`]: the writes of this process that its watches have not shown yet;
//! - [`events`]: Kubernetes events, published in the background and limited in rate;
//! - [`upgrade`]: steps that a new version of a program runs once in each cluster;
//! - [`health`], [`metrics`] and [`diagnostics`]: probes and metrics, and the servers of both;
//! - [`traces`]: spans that are exported to an OpenTelemetry collector;
//! - [`observed`]: what is known of the objects of a kind, from watches and responses in any order;
//! - [`expiring_map`]: maps whose entries expire;
//! - [`namespaced_name`], [`uid`] and [`resource_version`]: the identity of an object and of a
//!   state of it;
//! - [`discovery`], [`leader`], [`logging`], [`log_limit`], [`options`], [`retry`],
//!   [`clock`] and [`server_clock`]: smaller parts of these.
//!
//! # Dependencies
//! kube, k8s-openapi, tokio, clap, axum (probes and metrics only) and tracing. Of this workspace it
//! uses `capi-ipam-objects`, whose modules it re-exports. It has no types of Cluster API, and no
//! TLS server, webhook or certificate code.
//!
//! # Invariants
//! - Every request other than a watch has a timeout, which the API server gets too. A silent watch
//!   is reopened.
//! - No write is repeated automatically.
//!   [`CallError::outcome_is_unknown`](client::CallError::outcome_is_unknown) tells the caller that
//!   it has to read the object before it decides anything.
//! - Patches, replacements and deletions name the uid of the object, so they never change another
//!   object of that name.
//! - An object is never reconciled by two tasks at the same time, and only after all kinds that its
//!   controller watches are listed.
//! - [`EventHandler`](watch::EventHandler)s see a change before the reconciler does.
//! - A panic, an error or a hang in a reconcile affects that object only. A panic in a watch ends
//!   the process.
//!
//! # Example
//! A manager with one controller, which reports the size of every `ConfigMap`:
//!
//! ```no_run
//! use std::convert::Infallible;
//! use std::sync::Arc;
//!
//! use capi_ipam_controller::controller::{Action, reconcile_fn};
//! use capi_ipam_controller::manager::{self, Identity};
//! use capi_ipam_controller::watch::Keyed;
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! fn main() -> std::process::ExitCode {
//!     manager::main(Identity::new("sizes", env!("CARGO_PKG_VERSION")), async |manager| {
//!         let maps = manager.watch(manager.watch_api(&()));
//!         let reconciler = reconcile_fn(async |object: Arc<ConfigMap>| {
//!             let size: usize = object.data.iter().flatten().map(|(key, value)| key.len() + value.len()).sum();
//!             tracing::info!(object = %object.key(), size, "reconciled");
//!             Ok::<_, Infallible>(Action::AwaitChange)
//!         });
//!         manager.run("configmaps", maps, reconciler);
//!         Ok(())
//!     })
//! }
//! ```

pub use capi_ipam_objects::{
    absence, clock, expiring_map, managed_fields, namespaced_name, observed, ready,
    resource_version, uid,
};

pub mod client;
pub mod controller;
pub mod diagnostics;
pub mod discovery;
pub mod events;
pub mod expectations;
pub mod finalizer;
pub mod health;
pub mod leader;
pub mod log_limit;
pub mod logging;
pub mod manager;
pub mod metrics;
pub mod options;
pub mod patch;
pub mod priority;
pub mod references;
pub mod retry;
pub mod server;
pub mod server_clock;
pub mod traces;
pub mod upgrade;
pub mod watch;

mod error;
mod flag_values;
mod identity;
mod restores;
