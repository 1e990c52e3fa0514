//! `history`, with the lines and the commands of docs/allocation-log.md.

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};

use super::{commands, definitions, run, shell};

const PAGE: &str = include_str!("../../../../docs/allocation-log.md");

/// The blocks of a language in the page.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = PAGE.split(&fence).skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn documented_commands_print_what_the_page_says() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let file = plane.folder().join("allocations.log");
    std::fs::write(&file, blocks("json")[0]).expect("a file can be written");
    let commands = commands(PAGE, "## History of an address");
    assert_eq!(commands.len(), 3);
    for (command, expected) in commands.iter().zip(blocks("text")) {
        assert_eq!(
            shell(&plane, command),
            (Some(0), expected.to_owned()),
            "{command}"
        );
    }
}

#[test]
fn bad_lines_are_named_and_no_cluster_is_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("log");
    let lines = format!("INFO text\n{}{{\"target\":", blocks("json")[0]);
    std::fs::write(&file, lines).expect("a file can be written");
    let path = file.display().to_string();
    let missing = folder.path().join("missing");
    let (code, output, errors) = run(
        &missing,
        &["history", "10.0.0.7", "--from", &path, "-o", "name"],
    );
    let claim = |name: &str| format!("ipaddressclaim.ipam.cluster.x-k8s.io/{name}\n");
    let expected = [claim("vm-1").repeat(3), claim("vm-2")].concat();
    assert_eq!((code, output), (0, expected));
    assert_eq!(errors, "warning: 2 lines not of an allocation log: 1, 6\n");

    let (code, _, errors) = run(&missing, &["history", "10.0.0.7", "--from", "/nowhere"]);
    assert_eq!(code, 7, "{errors}");
    assert!(errors.contains("/nowhere"), "{errors}");
    let (code, _, errors) = run(&missing, &["history", "10.0.0.8", "--from", &path]);
    assert_eq!(code, 0);
    assert!(errors.ends_with("Nothing found.\n"), "{errors}");
}
