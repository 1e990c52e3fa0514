//! The mutants that the fault plans or a test must detect, as patches; `hack/faults/mutants.sh`
//! builds and tests them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fault::Plan;

/// A change of the program may invalidate a patch, or the format of plans.
#[test]
fn every_mutant_applies_and_has_a_detector() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(root.join("tests/faults/mutants")).expect("the folder can be read");
    let mut found = 0;
    for file in files.map(|file| file.expect("the folder can be read").path()) {
        let name = file.display();
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plans: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("plan: "))
            .collect();
        let has_test = text.lines().any(|line| line.starts_with("test: "));
        assert!(
            has_test || !plans.is_empty(),
            "{name} has neither a plan nor a test"
        );
        for plan in plans {
            serde_json::from_str::<Plan>(plan)
                .unwrap_or_else(|error| panic!("{name}: {plan}: {error}"));
        }
        let output = Command::new("git")
            .args(["apply", "--check"])
            .arg(&file)
            .current_dir(root)
            .output();
        let output = output.expect("git runs");
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        found += 1;
    }
    assert!(found >= 20, "{found} mutants");
}
