//! The names of addresses and prefixes in denials and warnings.

use std::fmt::Write as _;

use capi_ipam_ip::Block;

/// The maximum number of blocks that a message names.
const MAX_NAMED: usize = 10;

/// Names some of the blocks, and counts the others.
pub(super) fn named(blocks: &[Block]) -> String {
    let names: Vec<String> = blocks
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    let mut text = names.join(", ");
    if blocks.len() > names.len() {
        let _ = write!(text, " and {} more", blocks.len() - names.len());
    }
    text
}
