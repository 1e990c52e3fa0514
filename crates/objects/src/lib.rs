//! Kubernetes objects as values: their identity, their versions, and what is known of a kind.
//!
//! - [`namespaced_name`], [`uid`] and [`resource_version`]: the identity of an object and of a
//!   state of it;
//! - [`observed`]: what is known of the objects of a kind, from lists, watch events and responses
//!   in any order;
//! - [`maybe_invalid`]: an object, or the reason why it cannot be decoded;
//! - [`managed_fields`]: who last changed an object;
//! - [`finalizer`]: the finalizers of an object;
//! - [`references`]: what is written so that an object keeps others that it uses;
//! - [`ready`]: whether an object on which others depend is ready;
//! - [`absence`]: why the counterpart of an object is missing;
//! - [`clock`]: the time of the API server;
//! - [`expiring_map`]: maps whose entries expire.
//!
//! # Dependencies
//! The types of kube and k8s-openapi. The crate sends no request and has no client, no runtime and
//! no task: what is built on it can be tested and modelled as plain code.

pub mod absence;
pub mod clock;
pub mod expiring_map;
pub mod finalizer;
pub mod managed_fields;
pub mod maybe_invalid;
pub mod namespaced_name;
pub mod observed;
pub mod ready;
pub mod references;
pub mod resource_version;
pub mod uid;
