//! The mutants that the fault plans or a test must detect, as patches; `hack/faults/mutants.sh`
//! builds and tests them. That each can be applied is a test of the architecture.

use std::fs;
use std::path::Path;

use crate::fault::Plan;

/// The format of plans may change.
#[test]
fn every_mutant_has_a_detector() {
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
        found += 1;
    }
    assert!(found >= 20, "{found} mutants");
}
