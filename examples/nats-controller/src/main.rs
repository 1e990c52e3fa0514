//! A controller whose objects are keys of a bucket in NATS JetStream: the key `config.web` becomes
//! the ConfigMap `web`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{ResourceClient, error_chain};
use capi_ipam_controller::controller::{Action, Attempt, Cause, Reconciler};
use capi_ipam_controller::manager::{self, BoxError, Identity, Manager};
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_nats::owner::{self, TriggerOwner};
use capi_ipam_nats::{Bucket, BucketOptions, Connection, Garbage, KvObject, SecondaryError};
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
    maps: ResourceClient<ConfigMap>,
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
        let maps = &self.maps;
        let name = object.key.strip_prefix("config.").unwrap_or_default();
        if attempt.cause == Cause::Deleted {
            self.bucket.delete_secondary(maps, name, &object).await?;
        }
        let Some(mut config) = object.value.clone() else {
            return Ok(Action::AwaitChange);
        };
        let fill = |map: &mut ConfigMap| map.data = Some(config.data.clone());
        let applied = self.bucket.apply_secondary(maps, name, &object, fill).await;
        let status = match &applied {
            Ok(()) => "ready".to_owned(),
            Err(error) => error_chain(error),
        };
        if config.status.as_ref() != Some(&status) {
            config.status = Some(status);
            self.bucket.update(&object, &config).await?;
        }
        applied.map(|()| Action::AwaitChange)
    }

    fn retry(&self, _: &SecondaryError, failures: u32) -> Retry {
        Retry::After(RetryPolicy::default().delay(failures.min(9)))
    }
}

#[derive(clap::Args)]
struct Flags {
    /// URLs of the NATS servers.
    #[arg(long, required = true, value_delimiter = ',')]
    nats: Vec<String>,
    /// Accept a bucket with a single replica.
    #[arg(long)]
    single: bool,
}

async fn set_up(manager: &mut Manager, flags: &Flags) -> Result<(), BoxError> {
    let settings = capi_ipam_nats::Settings::new(flags.nats.clone());
    let opening = Connection::open(&settings);
    let connection = manager.initialize("NATS", opening).await?;
    let mut options = BucketOptions::creating();
    options.single = flags.single;
    let bucket = Bucket::open(&connection, "example", &options).await?;

    let mut controller = manager.controller("config");
    let maps = ResourceClient::new(Api::default_namespaced(manager.client.clone()), &());
    // The key of a ConfigMap that somebody changes or deletes is reconciled.
    let handler = Arc::new(TriggerOwner::new(bucket.name(), controller.trigger()));
    let watched = Api::default_namespaced(manager.client.clone());
    let watched = manager.watch::<ConfigMap>(watched);
    controller.watch(watched.handler(handler).labels(owner::BUCKET_LABEL));

    let gate = manager.health.register_watch("Config");
    let keys = bucket.source("config", Arc::new(()), gate.clone())?;
    let garbage = Garbage::new(&bucket, maps.clone(), Duration::from_mins(10));
    manager.add_background_task("garbage", vec![gate], garbage);
    manager.run_controller(controller, keys, Configs { bucket, maps });
    Ok(())
}

fn main() -> ExitCode {
    let identity = Identity::new("nats-controller", env!("CARGO_PKG_VERSION"));
    manager::run(identity, set_up)
}
