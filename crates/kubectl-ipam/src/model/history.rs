//! What an allocation log says of an address.

use capi_ipam_api::AllocationEvent;
use capi_ipam_ip::{Block, parse_block};
use serde_json::Value;

/// The lines of an allocation log about an address or prefix, and about prefixes and addresses that
/// overlap with it.
pub(crate) struct History {
    block: Block,
    /// The number of lines that were read.
    lines: usize,
    events: Vec<AllocationEvent>,
    /// The numbers of the lines that are not those of a log.
    pub(crate) bad_lines: Vec<usize>,
}

impl History {
    pub(crate) fn of(block: Block) -> Self {
        Self {
            block,
            lines: 0,
            events: Vec::new(),
            bad_lines: Vec::new(),
        }
    }

    /// Takes the next line. Empty lines and those of other targets are left out.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.lines = self.lines.saturating_add(1);
        if line.trim_ascii().is_empty() {
            return;
        }
        match parse(line) {
            Some((event, block)) if block.overlaps(self.block) => self.events.push(event),
            Some(_) => {}
            None if is_of_other_target(line) => {}
            None => self.bad_lines.push(self.lines),
        }
    }

    /// The events in the order of their time.
    pub(crate) fn into_events(self) -> Vec<AllocationEvent> {
        let mut events = self.events;
        events.sort_by_key(|event| event.time.0);
        events
    }
}

fn parse(line: &[u8]) -> Option<(AllocationEvent, Block)> {
    let event: AllocationEvent = serde_json::from_slice(line).ok()?;
    let block = parse_block(&event.address, false).ok()?;
    Some((event, block))
}

fn is_of_other_target(line: &[u8]) -> bool {
    let found: Value = serde_json::from_slice(line).unwrap_or_default();
    let target = found.get("target").and_then(Value::as_str);
    target.is_some_and(|target| target != "allocations")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(time: &str, address: &str, claim: &str) -> Vec<u8> {
        let line = json!({
            "time": time, "target": "allocations", "event": "Allocated", "cause": "ClaimCreated",
            "address": address, "pool": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"},
            "claim": {"namespace": "n", "name": claim, "uid": "u"}, "later": "field",
        });
        line.to_string().into_bytes()
    }

    fn found(address: &str, lines: &[Vec<u8>]) -> (Vec<String>, Vec<usize>) {
        let mut history = History::of(parse_block(address, false).unwrap());
        lines.iter().for_each(|line| history.add(line));
        let bad = history.bad_lines.clone();
        let events = history.into_events();
        (
            events
                .into_iter()
                .map(|event| event.claim.unwrap().name)
                .collect(),
            bad,
        )
    }

    #[test]
    fn events_of_the_address_are_sorted_by_time() {
        let lines = [
            line("2026-01-02T00:00:00.000000Z", "10.0.0.7", "second"),
            line("2026-01-01T00:00:00.000000Z", "10.0.0.7", "first"),
            line("2026-01-01T00:00:00.000000Z", "10.0.0.70", "other"),
            line("2026-01-03T00:00:00Z", "fd00::/64", "prefix"),
        ];
        assert_eq!(
            found("10.0.0.7", &lines),
            (vec!["first".into(), "second".into()], vec![])
        );
        assert_eq!(found("fd00::5", &lines).0, ["prefix"]);
        assert_eq!(found("fd00::/48", &lines).0, ["prefix"]);
    }

    #[test]
    fn bad_lines_are_numbered() {
        let torn = line("2026-01-02T00:00:00Z", "10.0.0.7", "torn");
        let lines = [
            b"INFO a text".to_vec(),
            line("2026-01-02T00:00:00Z", "10.0.0.7", "good"),
            Vec::new(),
            torn[..40].to_vec(),
            line("2026-01-02T00:00:00Z", "10.0.0", "address"),
            br#"{"target":"capi_ipam","level":"INFO"}"#.to_vec(),
            b"\xff\r".to_vec(),
        ];
        assert_eq!(
            found("10.0.0.7", &lines),
            (vec!["good".into()], vec![1, 4, 5, 7])
        );
    }
}
