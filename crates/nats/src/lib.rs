//! Objects in buckets of NATS JetStream.
//!
//! A bucket stores values under keys. This crate reads and writes them the way a controller needs:
//!
//! - every write names the revision that it replaces, so of several writers one wins, unless the
//!   bucket is restored from a backup while they run; a write without an answer is read back, and
//!   never repeated blindly;
//! - reads are answered by the leader of the bucket, not by a replica that may be behind;
//! - the keys of a bucket are a source of a controller; it finds gaps, and buckets that were
//!   restored or created again, and lists again;
//! - Kubernetes objects ([`Secondaries`]) and keys of other buckets ([`SecondaryKeys`]) can belong
//!   to a key, and are deleted when the key is deleted, but not when the bucket is lost
//!   ([`Garbage`]);
//! - every operation has a deadline, and fails at once without a connection;
//! - what the server or the bucket lacks is one line of text at the start.
//!
//! # Example
//! ```no_run
//! use std::convert::Infallible;
//! use std::sync::Arc;
//!
//! use capi_ipam_controller::controller::{Action, reconcile_fn};
//! use capi_ipam_controller::manager::{BoxError, Manager};
//! use capi_ipam_nats::{Bucket, BucketOptions, Connection, Created, KvError, KvObject, Settings};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Deserialize, Serialize)]
//! struct Block {
//!     cluster: String,
//! }
//!
//! async fn set_up(manager: &mut Manager) -> Result<(), BoxError> {
//!     let connection = Connection::open(&Settings {
//!         servers: vec!["nats://nats-0.nats:4222".to_owned(), "nats://nats-1.nats:4222".to_owned()],
//!         name: "capi-ipam".to_owned(),
//!         ..Settings::default()
//!     })
//!     .await?;
//!     let bucket: Bucket<Block> = Bucket::open(&connection, "ipam", &BucketOptions::default()).await?;
//!
//!     // One of several clusters gets the block.
//!     let wanted = Block { cluster: "west-1".to_owned() };
//!     match bucket.create("block.backbone.10.0.0.0-26", &wanted).await? {
//!         Created::Now(held) => match bucket.delete(&held).await {
//!             Err(KvError::Conflict { .. }) => tracing::info!("it has another holder now"),
//!             other => other?,
//!         },
//!         Created::Taken(other) => tracing::info!(holder = ?other.value, "it is taken"),
//!     }
//!
//!     // A controller reconciles all blocks.
//!     let blocks = bucket.source("block", Arc::new(()), manager.health.register_watch("Block"))?;
//!     let reconciler = reconcile_fn(async |block: Arc<KvObject<Block>>| {
//!         tracing::info!(key = block.key, value = ?block.value, "reconciled");
//!         Ok::<_, Infallible>(Action::AwaitChange)
//!     });
//!     manager.run("blocks", blocks, reconciler);
//!     Ok(())
//! }
//! ```
//!
//! # What the servers need
//! NATS 2.12.3 or later, as a cluster of three with `jetstream { sync_interval: always }`. Earlier
//! versions lose acknowledged writes when members of a cluster change. By default a server writes
//! its disk every two minutes, and a loss of power loses what it acknowledged since. Even with
//! these settings an acknowledged write can be lost with the disks of two servers. So safety never
//! rests on one acknowledged write: confirm it with a second one, and assert again what is held at
//! the start, after each list, and regularly.
//!
//! **Restore.** A bucket that is restored from an old backup uses its revisions again. So a write
//! that replaces a revision of before the restore can overwrite another write. Stop all writers
//! before a restore, and start them after it.
//!
//! A bucket is created with [`BucketOptions::create`], or by hand with
//! `nats kv add BUCKET --replicas 3 --storage file --marker-ttl 24h`.
//!
//! The user of a bucket needs these permissions and no others, with `BUCKET` for its name:
//!
//! | | subjects |
//! |---|---|
//! | publish | `$KV.BUCKET.>`, `$JS.API.STREAM.INFO.KV_BUCKET`, `$JS.API.STREAM.MSG.GET.KV_BUCKET`, `$JS.API.CONSUMER.CREATE.KV_BUCKET.>`, `$JS.API.CONSUMER.DELETE.KV_BUCKET.*`, `$JS.FC.KV_BUCKET.>` |
//! | publish, to create the bucket | `$JS.API.STREAM.CREATE.KV_BUCKET` |
//! | subscribe | `_INBOX.>` |
//!
//! # Dependencies
//! Of this workspace, `capi-ipam-controller`, which does not know this crate. The crate knows no
//! addresses.

mod api;
mod bucket;
mod connection;
mod decision;
mod error;
mod flags;
mod garbage;
mod key;
mod object;
pub mod owner;
mod secondary;
mod secondary_keys;
mod source;
mod version;
mod watch;

pub use self::bucket::{Bucket, BucketOptions, Created};
pub use self::connection::{Connection, ConnectionError, Credentials, Deadlines, Settings, Tls};
pub use self::error::{Failure, Invalid, KvError};
pub use self::flags::NatsFlags;
pub use self::garbage::{Garbage, Pass};
pub use self::object::{KvObject, Operation, Owner, Value};
pub use self::secondary::{Secondaries, Secondary, SecondaryError, SecondaryStore};
pub use self::secondary_keys::SecondaryKeys;
pub use self::source::KvSource;
