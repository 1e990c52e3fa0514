//! The status of reservations and slices: whether they have an effect.

use capi_ipam_api::ProblemStatus;
use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient};
use capi_ipam_controller::observed::ObjectVersion;
use capi_ipam_controller::{clock, patch};
use kube::Resource;
use tracing::info;

/// Writes into the status of the object of this name that it has this problem, or that it has none,
/// if it still is in the state `judged`. Nothing is written if the status says so
/// already. Returns the object; `None` if it is another one, or in a state that the watch has not
/// shown yet.
pub(super) async fn report_problem<K: ApiObject + Resource<DynamicType = ()>>(
    client: &ResourceClient<K>,
    name: &str,
    judged: ObjectVersion,
    problem: Option<&str>,
    status_of: impl Fn(&mut K) -> &mut Option<ProblemStatus>,
) -> Result<Option<K>, CallError> {
    let Some(found) = client.get(name).await? else {
        return Ok(None);
    };
    if ObjectVersion::of(found.meta()) != judged {
        return Ok(None);
    }
    let generation = found.meta().generation;
    let mut wanted = found.clone();
    let status = status_of(&mut wanted);
    *status = ProblemStatus::updated(status.as_ref(), problem, generation, clock::now());
    let Some(written) = patch::write(client, &found, &wanted).await? else {
        return Ok(Some(found));
    };
    let kind = K::kind(&());
    info!(%kind, name, problem, "changed the status");
    Ok(Some(written))
}
