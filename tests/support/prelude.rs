//! What most tests use.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::time::{Duration, Instant};

pub use capi_ipam_api::InClusterKind;
pub use capi_ipam_controller::client::ResourceClient;
pub use capi_ipam_provider::api::IPAddressClaim;
pub use futures::future::join_all;
pub use kube::{Api, ResourceExt};
pub use serde_json::{Value, json};

pub use crate::consumer::{
    Consumer, answered, assert_contains, create, numbered, object, read, ready, retry_unanswered,
    unique,
};
pub use crate::control_plane::{ControlPlane, NAMESPACE, Options};
pub use crate::manager::Manager;
pub use crate::patience::Patience;
pub use crate::scene::{scene, scene_with_manager, two_consumers};
pub use crate::wait::{
    consistently, eventually, eventually_ok, eventually_within, until, until_within,
};
pub use crate::webhooks::Webhooks;
