//! The program prints what is committed.

use std::path::Path;
use std::process::Command;

#[test]
fn reference_pages_are_current() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (argument, file) in [
        ("flags", "docs/flags.md"),
        ("metrics", "docs/metrics.md"),
        ("api", "docs/api.md"),
    ] {
        let program = env!("CARGO_BIN_EXE_xtask");
        let output = Command::new(program).arg(argument).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let committed = std::fs::read(repository.join(file)).unwrap();
        assert!(output.stdout == committed, "{file}: make generate");
    }
}
