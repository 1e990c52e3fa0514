//! The objects of Cluster API that create Machines.

use kube::core::DynamicObject;

/// The plural of the kind MachineDeployment, in the API group of Cluster API.
pub const DEPLOYMENTS: &str = "machinedeployments";
/// The plurals of the kinds of this group that create Machines. Control planes are in other groups.
pub const WORKLOADS: [&str; 3] = [DEPLOYMENTS, "machinesets", "machinepools"];

/// The API group and the kind of the control plane that a Cluster names.
pub fn control_plane(cluster: &DynamicObject) -> Option<(&str, &str)> {
    let reference = cluster.data.pointer("/spec/controlPlaneRef")?;
    let text = |field: &str| reference.get(field)?.as_str();
    // A reference of v1beta1 has the version, too.
    let group = text("apiGroup").or_else(|| Some(text("apiVersion")?.split_once('/')?.0));
    group.zip(text("kind"))
}
