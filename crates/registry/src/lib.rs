//! The registry of blocks that several management clusters share.
//!
//! A registry is a set of records under names: which cluster holds a block of a network, which
//! clusters there are, and how large the blocks of a network are. This crate reads and writes them; which
//! block a cluster takes, and when it returns one, is decided elsewhere.
//!
//! - [`Key`]: the names; [`Record`]: the records; [`Entry`]: what a registry shows under a name, also
//!   if that is not a record;
//! - [`Backend`]: the operations, which both backends have: [`NatsRegistry`] (cargo feature `nats`,
//!   on by default) and [`KubernetesRegistry`]; [`Registry`] is one of the two; [`open()`]: connects
//!   to the one that an `IPRegistry` specifies, with the credentials in its Secret;
//! - [`RecordCache`]: all records in memory, from the watch and from the answers to own writes;
//!   [`list()`]: reads them once.
//!
//! # What a registry needs
//! **NATS**: a bucket as `capi-ipam-nats` describes it, and a user with the permissions listed there,
//! for this bucket only. The bucket is created by an administrator.
//!
//! **Another API server**: the objects of `manifests/registry.yaml`. A management cluster is a service
//! account there, in the namespace `capi-ipam-registry`, whose name is the id of the cluster. The role
//! of these accounts allows IPBlocks only. A ValidatingAdmissionPolicy lets each write:
//!
//! | record | allowed |
//! |---|---|
//! | `block`, `cluster` with its own id | everything |
//! | `block` of another cluster | add and remove its own id in `contenders` |
//! | `network` | create it with its own id in `sizeOf` |
//!
//! Users outside of the namespace, such as administrators, are limited by their roles only.
//!
//! # Dependencies
//! Of this workspace, `capi-ipam-api` (the kind `IPBlock` and the records), `capi-ipam-ip`,
//! `capi-ipam-controller` and, with the feature `nats`, `capi-ipam-nats`.
//!
//! # Invariants
//! - Of several writers that create a record, or replace the same version of it, one wins.
//! - A write without an answer is read back, and never repeated blindly.
//! - What exists and cannot be read as a record is an [`Entry`] with a [`Problem`]: it has a holder.
//! - The failure of a registry never ends the process, and has no effect on its readiness after the
//!   first list.

mod backend;
mod cache;
mod entry;
mod error;
mod key;
mod kubernetes;
mod list;
#[cfg(feature = "nats")]
mod nats;
mod open;
mod record;
mod source;

pub use self::backend::{Backend, Created, RecordChanges, Registry};
pub use self::cache::{ChangedBlocks, RecordCache};
pub use self::entry::{Entry, Version};
pub use self::error::{Cause, RegistryError};
pub use self::key::Key;
pub use self::kubernetes::KubernetesRegistry;
pub use self::list::{ListError, list};
#[cfg(feature = "nats")]
pub use self::nats::NatsRegistry;
pub use self::open::{IDENTITY_NAMESPACE, OpenError, SecretRef, open, secret_of};
pub use self::record::{Problem, Record, cidr, decode, hand_over};
pub use capi_ipam_api::{BlockRecord, ClusterRecord, NetworkRecord, RegistryRecord};
#[cfg(feature = "nats")]
pub use capi_ipam_nats::{BucketOptions, Credentials, Deadlines, Settings as NatsSettings, Tls};
