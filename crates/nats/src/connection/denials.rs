//! Denied requests. A server does not answer a request that the user may not send. It reports the
//! denial beside the requests, and names the subject.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// The number of denials that are kept.
const MAX_DENIALS: usize = 32;

/// The last denials of a connection.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<VecDeque<String>>);

impl Denials {
    /// Records an error that a server reports, if it is a denial.
    pub(crate) fn record(&self, error: &str) {
        if !error.to_lowercase().contains("permissions violation") {
            return;
        }
        let mut denials = self.0.lock();
        if denials.len() == MAX_DENIALS {
            denials.pop_front();
        }
        denials.push_back(error.to_owned());
    }

    /// Forgets the denials that name a subject. A request whose caller did not wait for it leaves
    /// one, and the next request of the subject must not be taken for denied.
    pub(crate) fn forget(&self, subject: &str) {
        self.of(subject);
    }

    /// Takes the denials that name a subject, and returns the last one.
    pub(crate) fn of(&self, subject: &str) -> Option<String> {
        let quoted = format!("\"{}\"", subject.to_lowercase());
        let mut denials = self.0.lock();
        let names_it = |denial: &String| denial.to_lowercase().contains(&quoted);
        let found = denials
            .iter()
            .rev()
            .find(|denial| names_it(denial))
            .cloned();
        denials.retain(|denial| !names_it(denial));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_belongs_to_its_subject_once() {
        let denials = Denials::default();
        denials.record("Permissions Violation for Publish to \"$KV.ipam.a\"");
        denials.record("stale connection");
        assert_eq!(denials.of("$KV.ipam"), None);
        assert!(denials.of("$KV.ipam.a").is_some());
        assert_eq!(denials.of("$KV.ipam.a"), None);
    }

    #[test]
    fn forgotten_denial_is_not_found() {
        let denials = Denials::default();
        for subject in ["a", "b"] {
            denials.record(&format!(
                "Permissions Violation for Publish to \"{subject}\""
            ));
        }
        denials.forget("a");
        assert_eq!(denials.of("a"), None);
        assert!(denials.of("b").is_some());
    }

    #[test]
    fn number_of_denials_is_bounded() {
        let denials = Denials::default();
        for number in 0..=MAX_DENIALS {
            denials.record(&format!(
                "Permissions Violation for Publish to \"{number}\""
            ));
        }
        assert_eq!(denials.of("0"), None);
        assert!(denials.of("1").is_some());
    }
}
