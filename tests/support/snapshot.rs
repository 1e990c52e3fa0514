//! Snapshots of etcd.

use std::path::Path;

use capi_ipam_testing::control_plane::ControlPlane;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be created");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Stops etcd and the API server, takes a snapshot of the data, and starts them again.
pub fn take_snapshot(control_plane: &mut ControlPlane) {
    with_data(control_plane, copy);
}

/// Stops etcd and the API server, restores the snapshot, and starts them again.
pub fn restore_snapshot(control_plane: &mut ControlPlane) {
    with_data(control_plane, |data, snapshot| {
        std::fs::remove_dir_all(data).expect("the data can be removed");
        copy(snapshot, data);
    });
}

/// Stops etcd and the API server, calls `change` with the folders of the data and of the snapshot,
/// and starts them again.
fn with_data(control_plane: &mut ControlPlane, change: impl FnOnce(&Path, &Path)) {
    control_plane.stop_api_server();
    control_plane.stop_etcd();
    change(
        &control_plane.etcd_data(),
        &control_plane.folder().join("snapshot"),
    );
    control_plane.start_etcd();
    control_plane.start_api_server();
}
