//! What a claim reports about a conflict of its address: another host answers at it.

use jiff::SignedDuration;

use crate::{IPAddressClaim, names};

/// The maximum length of the reason of a quarantine, in bytes. A longer text is truncated.
pub const MAX_REASON_LENGTH: usize = 256;

/// For how long an address is quarantined if nothing else is requested.
pub const DEFAULT_QUARANTINE: SignedDuration = SignedDuration::from_hours(24);

/// The longest quarantine.
pub const MAX_QUARANTINE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The conflict that the annotation [`names::CONFLICT_ANNOTATION`] of a claim reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressConflict {
    /// The text of the annotation; never empty.
    pub reason: String,
    /// For how long the address is quarantined when the claim is released.
    pub duration: SignedDuration,
    /// Why the annotation [`names::QUARANTINE_FOR_ANNOTATION`] has no effect: the default applies.
    pub problem: Option<String>,
}

impl IPAddressClaim {
    /// The conflict that the claim reports; `None` without the annotation.
    pub fn conflict(&self) -> Option<AddressConflict> {
        let annotations = self.metadata.annotations.as_ref()?;
        let reason = quarantine_reason(annotations.get(names::CONFLICT_ANNOTATION)?);
        let requested = annotations.get(names::QUARANTINE_FOR_ANNOTATION);
        let (duration, problem) = match requested.map(|text| parse_quarantine(text)) {
            Some(Ok(duration)) => (duration, None),
            Some(Err(problem)) => (DEFAULT_QUARANTINE, Some(problem)),
            None => (DEFAULT_QUARANTINE, None),
        };
        Some(AddressConflict {
            reason,
            duration,
            problem,
        })
    }
}

/// The reason of a quarantine in the form that a reservation accepts: not empty, and not too long.
pub fn quarantine_reason(text: &str) -> String {
    let text = text.trim();
    let end = text.floor_char_boundary(MAX_REASON_LENGTH);
    let reason = text.get(..end).unwrap_or_default().trim_end();
    if reason.is_empty() {
        "no reason given".to_owned()
    } else {
        reason.to_owned()
    }
}

/// Parses the duration of a quarantine, such as `24h` or `1h30m`.
///
/// # Errors
/// If the text is no duration, or the duration is shorter than a second or longer than
/// [`MAX_QUARANTINE`].
pub fn parse_quarantine(text: &str) -> Result<SignedDuration, String> {
    // Times of the API have whole seconds.
    let parsed = text.parse::<SignedDuration>().ok();
    let parsed = parsed.map(|duration| SignedDuration::from_secs(duration.as_secs()));
    let is_allowed = |duration: &SignedDuration| {
        *duration >= SignedDuration::from_secs(1) && *duration <= MAX_QUARANTINE
    };
    parsed.filter(is_allowed).ok_or_else(|| {
        format!("{text:?} is not a duration from 1s to 720h; use for example 24h or 1h30m")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conflict(annotations: &serde_json::Value) -> Option<AddressConflict> {
        let claim = json!({"metadata": {"name": "c", "annotations": annotations},
            "spec": {"poolRef": {"kind": "Pool", "name": "p"}}});
        serde_json::from_value::<IPAddressClaim>(claim)
            .unwrap()
            .conflict()
    }

    #[test]
    fn conflict_has_a_reason_and_a_limited_duration() {
        assert_eq!(conflict(&json!({})), None);
        assert_eq!(
            conflict(&json!({ names::QUARANTINE_FOR_ANNOTATION: "1h" })),
            None
        );
        let found = conflict(&json!({ names::CONFLICT_ANNOTATION: " ARP reply \n" })).unwrap();
        assert_eq!(found.reason, "ARP reply");
        assert_eq!((found.duration, found.problem), (DEFAULT_QUARANTINE, None));
        for (text, hours) in [("1h30m", 1.5), ("48h", 48.0), ("720h", 720.0)] {
            let annotations =
                json!({ names::CONFLICT_ANNOTATION: "", names::QUARANTINE_FOR_ANNOTATION: text });
            let found = conflict(&annotations).unwrap();
            assert_eq!(found.reason, "no reason given");
            assert!(
                (found.duration.as_secs_f64() - hours * 3600.0).abs() < 1.0,
                "{text}"
            );
        }
        for text in ["", "0s", "-1h", "1h ago", "721h", "soon", "24"] {
            let annotations =
                json!({ names::CONFLICT_ANNOTATION: "x", names::QUARANTINE_FOR_ANNOTATION: text });
            let found = conflict(&annotations).unwrap();
            assert_eq!(found.duration, DEFAULT_QUARANTINE, "{text}");
            assert!(found.problem.unwrap().contains("720h"), "{text}");
        }
    }

    #[test]
    fn long_reason_is_truncated_between_characters() {
        let reason = quarantine_reason(&"ä".repeat(MAX_REASON_LENGTH));
        assert_eq!(reason.len(), MAX_REASON_LENGTH);
        let reason = quarantine_reason(&format!("x{}", "ä".repeat(MAX_REASON_LENGTH)));
        assert_eq!(reason.len(), MAX_REASON_LENGTH - 1);
    }
}
