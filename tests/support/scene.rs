//! What most tests begin with.

use super::consumer::Consumer;
use super::control_plane::ControlPlane;

/// A new control plane, and a user of the in-cluster provider in one namespace.
pub async fn scene() -> (ControlPlane, Consumer) {
    let plane = ControlPlane::new();
    let consumer = Consumer::new(&plane).await;
    (plane, consumer)
}
