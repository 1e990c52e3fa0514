//! `registry adopt`: gives the blocks of a management cluster that no longer exists to this one, which was
//! built again with the same identity.

use capi_ipam_controller::clock;
use capi_ipam_registry::RecordCache;

use super::change::{self, Operation};
use crate::cli::{ChangeFlags, Global};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::{Plan, adoption};
use crate::registry;
use crate::render::age;

pub(super) async fn run(global: &Global, flags: &ChangeFlags) -> Result<Code, Error> {
    change::run(global, flags, &Adoption).await
}

/// The adoption of the blocks.
struct Adoption;

impl Operation for Adoption {
    fn name(&self) -> String {
        "adopt the blocks of a former management cluster of".to_owned()
    }

    fn cluster(&self, own: &str) -> String {
        own.to_owned()
    }

    async fn plan(
        &self,
        cluster: &Cluster,
        records: &RecordCache,
        own: &str,
    ) -> Result<Plan, Error> {
        let Some(uid) = registry::namespace_uid(cluster).await? else {
            return Err(Error::NoClusterUid);
        };
        Ok(adoption(records, own, &uid, clock::timestamp())?)
    }

    fn question(&self, plan: &Plan, own: &str) -> String {
        let seen = age(plan.seen, clock::timestamp());
        format!(
            "management cluster {own} with another UID was last seen {seen} ago. This cluster takes over its blocks, and \
             allocates their addresses, so no machine of it may run that is not restored here"
        )
    }
}
