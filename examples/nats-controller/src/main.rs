//! A controller whose objects are keys of a bucket in NATS JetStream: the key `config.web` becomes
//! the ConfigMap `web`, and its size the key `size.web` of another bucket.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::controller::{Action, Attempt, Cause, Reconciler};
use capi_ipam_controller::manager::{self, BoxError, Identity, Manager};
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_nats::{
    Bucket, BucketOptions, Connection, Garbage, KvObject, NatsFlags, Secondaries, SecondaryError,
    SecondaryKeys,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

/// The value of a key. The controller writes the status.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Config {
    data: BTreeMap<String, String>,
    status: Option<String>,
}

struct Configs {
    bucket: Bucket<Config>,
    maps: Arc<Secondaries<Config, ConfigMap>>,
    sizes: Arc<SecondaryKeys<Config, usize>>,
}

impl Reconciler for Configs {
    type Object = KvObject<Config>;
    type State = ();
    type Error = SecondaryError;

    async fn reconcile(
        &self,
        object: Arc<KvObject<Config>>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, SecondaryError> {
        let name = object.key.strip_prefix("config.").unwrap_or_default();
        let size = format!("size.{name}");
        if attempt.cause == Cause::Deleted {
            self.maps.delete(name, &object).await?;
            self.sizes.delete(&size, &object).await?;
        }
        let Some(config) = &object.value else {
            return Ok(Action::AwaitChange);
        };
        let fill = |map: &mut ConfigMap| map.data = Some(config.data.clone());
        let mut applied = self.maps.apply(name, &object, fill).await;
        if applied.is_ok() {
            applied = self.sizes.apply(&size, &object, &config.data.len()).await;
        }
        let status = match &applied {
            Ok(()) => "ready".to_owned(),
            Err(error) => error_chain(error),
        };
        let set = |config: &mut Config| config.status = Some(status);
        self.bucket.write_status(&object, set).await?;
        applied.map(|()| Action::AwaitChange)
    }

    fn retry(&self, _: &SecondaryError, failures: u32) -> Retry {
        Retry::After(RetryPolicy::default().delay(failures.min(9)))
    }
}

#[derive(clap::Args)]
struct Flags {
    #[command(flatten)]
    nats: NatsFlags,
    /// Accept a bucket with a single replica.
    #[arg(long)]
    single: bool,
}

async fn set_up(manager: &mut Manager, flags: &Flags) -> Result<(), BoxError> {
    let settings = flags.nats.settings("nats-controller")?;
    let opening = Connection::open(&settings);
    let connection = manager.initialize("NATS", opening).await?;
    let mut options = BucketOptions::creating();
    options.single = flags.single;
    let bucket = Bucket::open(&connection, "example", &options).await?;
    let sizes = Bucket::open(&connection, "example-sizes", &options).await?;

    // The key of a secondary that somebody changes or deletes is reconciled.
    let mut controller = manager.controller("config");
    let api = Api::default_namespaced(manager.client.clone());
    let maps = Secondaries::new(&bucket, api, (), controller.trigger());
    let watched = Api::default_namespaced(manager.client.clone());
    controller.watch(maps.watch(watched, manager.health.register_watch("ConfigMap")));
    let sizes = SecondaryKeys::new(&bucket, &sizes, controller.trigger());
    controller.watch(sizes.watch(manager.health.register_watch("Size"))?);

    let gate = manager.health.register_watch("Config");
    let keys = bucket.source("config", Arc::new(()), gate.clone())?;
    let garbage = Garbage::new(&bucket, maps.clone(), Duration::from_mins(10));
    manager.add_background_task("garbage of maps", vec![gate.clone()], garbage);
    let garbage = Garbage::new(&bucket, sizes.clone(), Duration::from_mins(10));
    manager.add_background_task("garbage of sizes", vec![gate], garbage);
    let configs = Configs {
        bucket,
        maps,
        sizes,
    };
    manager.run_controller(controller, keys, configs);
    Ok(())
}

fn main() -> ExitCode {
    let identity = Identity::new("nats-controller", env!("CARGO_PKG_VERSION"));
    manager::run(identity, set_up)
}
