//! The state of a control plane after its first start: the data of etcd, with the CRDs and the
//! other objects of an installation, and the certificates of the API server. Later control planes
//! start with a copy, which saves the installation of all these objects.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::definitions::hash_installed;
use super::options::Installation;
use super::programs::programs;
use crate::process::{TemporaryFolder, built};

/// How long a template is used. The certificates in it are valid for a year.
const MAX_AGE: Duration = Duration::from_hours(24);
/// The file that marks a complete template.
const COMPLETE: &str = "complete";
/// The folders of a control plane that a template contains.
const FOLDERS: [&str; 2] = ["etcd", "certificates"];

/// Copies the template of an installation into the folder of a control plane. The first caller of
/// all processes creates it: `install` installs the objects in a new control plane, stops it, and
/// returns its folder.
pub(super) fn copy_template(
    installation: &Installation,
    folder: &Path,
    install: impl FnOnce() -> Arc<TemporaryFolder>,
) {
    let templates = built("control-plane");
    let template = templates.join(format!("{:016x}", inputs(installation)));
    fs::create_dir_all(templates).expect("the build folder is writable");
    let lock = File::create(template.with_extension("lock")).expect("the build folder is writable");
    lock.lock().expect("a file can be locked");
    if !is_complete(&template) {
        if template.exists() {
            fs::remove_dir_all(&template).expect("the build folder is writable");
        }
        fs::create_dir(&template).expect("the build folder is writable");
        let installed = install();
        for name in FOLDERS {
            copy(&installed.path().join(name), &template.join(name))
                .expect("a template can be written");
        }
        File::create(template.join(COMPLETE)).expect("the build folder is writable");
    }
    for name in FOLDERS {
        copy(&template.join(name), &folder.join(name)).expect("a template can be copied");
    }
}

fn is_complete(template: &Path) -> bool {
    let created = fs::metadata(template.join(COMPLETE)).and_then(|complete| complete.modified());
    created.is_ok_and(|created| {
        SystemTime::now()
            .duration_since(created)
            .is_ok_and(|age| age < MAX_AGE)
    })
}

/// A hash of everything that the template depends on.
fn inputs(installation: &Installation) -> u64 {
    let mut hasher = DefaultHasher::new();
    for program in ["etcd", "kube-apiserver"].map(|name| programs().join(name)) {
        program.hash(&mut hasher);
        let metadata = fs::metadata(&program).expect("the programs of the control plane exist");
        (metadata.len(), metadata.modified().ok()).hash(&mut hasher);
    }
    hash_installed(installation, &mut hasher);
    hasher.finish()
}

/// Copies a folder without the zeros at the end of its files: etcd allocates 64 MB for a log that
/// is almost empty.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if entry
            .path()
            .extension()
            .is_none_or(|extension| extension != "tmp")
        {
            let mut content = fs::read(entry.path())?;
            if target
                .extension()
                .is_some_and(|extension| extension == "wal")
            {
                let used = content
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| (last + 1).next_multiple_of(8));
                content.truncate(used);
            }
            fs::write(&target, content)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
        }
    }
    Ok(())
}
