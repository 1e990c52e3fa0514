//! The version of a server.

/// The oldest accepted version. Earlier ones lose writes that they acknowledged after the loss of
/// power, and after members of a cluster change.
pub(crate) const OLDEST: &str = "2.12.3";

/// Whether a server of this version is accepted. A version that cannot be parsed is not.
pub(crate) fn is_accepted(version: &str) -> bool {
    match (parse(version), parse(OLDEST)) {
        (Some(found), Some(oldest)) => found >= oldest,
        _ => false,
    }
}

/// Major, minor and patch of a version, and whether it is a release: a preview of a version is
/// older than the version.
fn parse(version: &str) -> Option<([u64; 3], bool)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let (numbers, is_release) = match version.split_once('-') {
        Some((numbers, _)) => (numbers, false),
        None => (version, true),
    };
    let mut parts = numbers.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    let numbers = [next()?, next()?, next()?];
    Some((numbers, is_release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_not_accepted() {
        for version in [
            "2.12.3",
            "2.12.10",
            "2.15.2",
            "v2.15.2",
            "3.0.0",
            "2.13.0-preview.1",
        ] {
            assert!(is_accepted(version), "{version}");
        }
        for version in [
            "2.12.2",
            "2.11.99",
            "1.99.99",
            "2.12.3-RC.1",
            "2.12",
            "",
            "dev",
        ] {
            assert!(!is_accepted(version), "{version}");
        }
    }
}
