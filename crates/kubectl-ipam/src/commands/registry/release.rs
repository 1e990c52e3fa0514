//! `registry release`: deletes the records of a management cluster that no longer exists.

use capi_ipam_controller::clock;
use capi_ipam_registry::RecordCache;

use super::change::{self, Operation};
use crate::cli::{Global, ReleaseFlags};
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::model::{Plan, plan};
use crate::render::{age, record_change_lines};

pub(super) async fn run(global: &Global, wanted: &ReleaseFlags) -> Result<Code, Error> {
    let release = Release {
        cluster: &wanted.cluster_id,
    };
    change::run(global, &wanted.change, &release).await
}

/// The release of a management cluster.
struct Release<'a> {
    cluster: &'a str,
}

impl Operation for Release<'_> {
    fn name(&self) -> String {
        format!("release management cluster {} of", self.cluster)
    }

    fn cluster(&self, _: &str) -> String {
        self.cluster.to_owned()
    }

    async fn plan(&self, _: &Cluster, records: &RecordCache, own: &str) -> Result<Plan, Error> {
        Ok(plan(records, self.cluster, own, clock::timestamp())?)
    }

    fn question(&self, plan: &Plan, _: &str) -> String {
        let changes = record_change_lines(&plan.lines(), false);
        let seen = match plan.seen {
            Some(_) => format!("was last seen {} ago", age(plan.seen, clock::timestamp())),
            None => "has no time at which it was last seen".to_owned(),
        };
        format!(
            "{changes}management cluster {} {seen}. Its addresses can be allocated again, so no machine of it may run",
            self.cluster
        )
    }
}
