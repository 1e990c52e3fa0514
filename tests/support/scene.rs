//! What most tests begin with.

use super::consumer::Consumer;
use super::control_plane::ControlPlane;
use super::manager::Manager;

/// A new control plane, and a user of the in-cluster provider in one namespace.
pub async fn scene() -> (ControlPlane, Consumer) {
    let plane = ControlPlane::new();
    let consumer = Consumer::new(&plane).await;
    (plane, consumer)
}

/// A new control plane, a running manager with these flags, and a user in one namespace.
pub async fn scene_with_manager(flags: &[&str]) -> (ControlPlane, Manager, Consumer) {
    let plane = ControlPlane::new();
    let manager = Manager::start(&plane, flags);
    let consumer = Consumer::new(&plane).await;
    (plane, manager, consumer)
}

/// The users of two namespaces.
pub async fn two_consumers(plane: &ControlPlane) -> (Consumer, Consumer) {
    (Consumer::new(plane).await, Consumer::new(plane).await)
}
