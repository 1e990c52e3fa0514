//! Pure decisions: how to change the Secret, and when to switch to the certificate in it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::https::Validity;

/// The state of the Secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecretState {
    /// The validity of the CAs, the newest first; or why they are unusable.
    pub(super) cas: Result<Vec<Validity>, Reason>,
    /// Whether the key of the newest CA is usable.
    pub(super) ca_key: Result<(), Reason>,
    /// The validity of the serving certificate, if its key matches, a CA signed it, and it has all
    /// names.
    pub(super) serving: Result<Validity, Reason>,
}

/// Why a certificate is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The Secret does not exist or is empty.
    Missing,
    /// The existing one is unusable.
    Unusable(&'static str),
    /// At most a third of the lifetime is left.
    Expiring,
    /// It is not valid yet by the clock of this machine.
    NotYetValid,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there is none",
            Self::Unusable(problem) => problem,
            Self::Expiring => "at most a third of its lifetime is left",
            Self::NotYetValid => "it is not valid yet; check the clocks",
        })
    }
}

/// How to change the Secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// No change.
    Keep,
    /// Remove expired CAs.
    Prune,
    /// Issue a serving certificate, signed by the newest CA.
    IssueCert(Reason),
    /// Create a CA and issue a serving certificate. Old CAs stay in the bundle until they expire.
    RotateCa(Reason),
}

/// Decides how to change the Secret.
pub(super) fn decide(state: &SecretState, now: Timestamp) -> Action {
    let (cas, newest) = match &state.cas {
        Err(reason) => return Action::RotateCa(*reason),
        Ok(cas) => match cas.first() {
            None => return Action::RotateCa(Reason::Missing),
            Some(newest) => (cas, newest),
        },
    };
    if let Err(reason) = state.ca_key.and_then(|()| check_validity(*newest, now)) {
        return Action::RotateCa(reason);
    }
    if let Err(reason) = state
        .serving
        .and_then(|serving| check_validity(serving, now))
    {
        return Action::IssueCert(reason);
    }
    if cas.iter().any(|ca| ca.not_after < now) {
        Action::Prune
    } else {
        Action::Keep
    }
}

fn check_validity(validity: Validity, now: Timestamp) -> Result<(), Reason> {
    let (life, left) = (
        validity.not_after.duration_since(validity.not_before),
        validity.not_after.duration_since(now),
    );
    if validity.not_before > now {
        Err(Reason::NotYetValid)
    } else if left.saturating_mul(3) <= life {
        Err(Reason::Expiring)
    } else {
        Ok(())
    }
}

/// The certificate that is served now, compared with the one in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActiveCert {
    /// It is the one in the Secret.
    pub(super) is_current: bool,
    /// The same CA signed both.
    pub(super) has_same_ca: bool,
    /// Its CA is in the bundle of the Secret.
    pub(super) is_trusted: bool,
    /// When it expires.
    pub(super) not_after: Timestamp,
}

/// When to switch to the certificate in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// It is served already.
    Done,
    /// Now.
    Now,
    /// Later: API servers may not trust it yet, and they do trust the active one.
    Later(Duration),
}

/// Decides when to switch to the certificate in the Secret. `injected` is the time since its CA
/// bundle was written to the webhook configuration and the CustomResourceDefinitions; API servers
/// take up to `propagation` to load it.
pub(super) fn plan_switch(
    active: Option<&ActiveCert>,
    injected: Option<Duration>,
    propagation: Duration,
    now: Timestamp,
) -> Switch {
    let Some(active) = active else {
        return Switch::Now;
    };
    if active.is_current {
        return Switch::Done;
    }
    let wait = propagation.saturating_sub(injected.unwrap_or_default());
    let left = Duration::try_from(active.not_after.duration_since(now)).unwrap_or_default();
    let is_propagated = injected.is_some() && wait.is_zero();
    if active.has_same_ca || !active.is_trusted || left.is_zero() || is_propagated {
        Switch::Now
    } else {
        Switch::Later(wait.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn validity(not_before: i64, not_after: i64) -> Validity {
        Validity {
            not_before: at(not_before),
            not_after: at(not_after),
        }
    }

    /// A state that needs no change at second 100.
    fn good() -> SecretState {
        SecretState {
            cas: Ok(vec![validity(0, 1000)]),
            ca_key: Ok(()),
            serving: Ok(validity(50, 200)),
        }
    }

    #[test]
    fn certificates_are_kept_until_a_third_of_the_lifetime_is_left() {
        for (now, action) in [
            (50, Action::Keep),
            (149, Action::Keep),
            (150, Action::IssueCert(Reason::Expiring)),
            (500, Action::IssueCert(Reason::Expiring)),
            (49, Action::IssueCert(Reason::NotYetValid)),
            (-1, Action::RotateCa(Reason::NotYetValid)),
            (666, Action::IssueCert(Reason::Expiring)),
            (667, Action::RotateCa(Reason::Expiring)),
            (1001, Action::RotateCa(Reason::Expiring)),
        ] {
            assert_eq!(decide(&good(), at(now)), action, "{now}");
        }
    }

    #[test]
    fn ca_is_rotated_if_it_cannot_sign() {
        let unusable = Reason::Unusable("broken");
        for (state, reason) in [
            (
                SecretState {
                    cas: Err(Reason::Missing),
                    ..good()
                },
                Reason::Missing,
            ),
            (
                SecretState {
                    cas: Err(unusable),
                    ..good()
                },
                unusable,
            ),
            (
                SecretState {
                    cas: Ok(Vec::new()),
                    ..good()
                },
                Reason::Missing,
            ),
            (
                SecretState {
                    ca_key: Err(unusable),
                    ..good()
                },
                unusable,
            ),
            // Takes precedence over an unusable serving certificate.
            (
                SecretState {
                    ca_key: Err(unusable),
                    serving: Err(Reason::Missing),
                    ..good()
                },
                unusable,
            ),
            (
                SecretState {
                    cas: Ok(vec![validity(0, 120), validity(0, 1000)]),
                    ..good()
                },
                Reason::Expiring,
            ),
        ] {
            assert_eq!(
                decide(&state, at(100)),
                Action::RotateCa(reason),
                "{state:?}"
            );
        }
    }

    #[test]
    fn unusable_certificate_is_reissued_by_the_same_ca() {
        for reason in [Reason::Missing, Reason::Unusable("broken")] {
            let state = SecretState {
                serving: Err(reason),
                ..good()
            };
            assert_eq!(decide(&state, at(100)), Action::IssueCert(reason));
        }
    }

    #[test]
    fn old_cas_are_kept_until_they_expire() {
        let state = SecretState {
            cas: Ok(vec![validity(0, 1000), validity(0, 110)]),
            ..good()
        };
        assert_eq!(decide(&state, at(100)), Action::Keep);
        assert_eq!(decide(&state, at(110)), Action::Keep);
        assert_eq!(decide(&state, at(111)), Action::Prune);
        // Issuing a certificate prunes too.
        assert_eq!(decide(&state, at(150)), Action::IssueCert(Reason::Expiring));
    }

    #[test]
    fn switch_waits_until_the_new_ca_is_trusted() {
        let [second, ten] = [1, 10].map(Duration::from_secs);
        let old = ActiveCert {
            is_current: false,
            has_same_ca: false,
            is_trusted: true,
            not_after: at(200),
        };
        for (active, injected, expected) in [
            (None, None, Switch::Now),
            (
                Some(ActiveCert {
                    is_current: true,
                    ..old
                }),
                None,
                Switch::Done,
            ),
            (
                Some(ActiveCert {
                    is_current: true,
                    is_trusted: false,
                    ..old
                }),
                Some(ten),
                Switch::Done,
            ),
            (
                Some(ActiveCert {
                    has_same_ca: true,
                    ..old
                }),
                None,
                Switch::Now,
            ),
            (Some(old), None, Switch::Later(ten)),
            (Some(old), Some(Duration::ZERO), Switch::Later(ten)),
            (
                Some(old),
                Some(second),
                Switch::Later(Duration::from_secs(9)),
            ),
            (Some(old), Some(ten), Switch::Now),
            // The active certificate is no longer trusted, or expires soon.
            (
                Some(ActiveCert {
                    is_trusted: false,
                    ..old
                }),
                None,
                Switch::Now,
            ),
            (
                Some(ActiveCert {
                    not_after: at(99),
                    ..old
                }),
                None,
                Switch::Now,
            ),
            (
                Some(ActiveCert {
                    not_after: at(100),
                    ..old
                }),
                Some(second),
                Switch::Now,
            ),
            (
                Some(ActiveCert {
                    not_after: at(101),
                    ..old
                }),
                Some(second),
                Switch::Later(second),
            ),
            (
                Some(ActiveCert {
                    not_after: at(101),
                    ..old
                }),
                None,
                Switch::Later(second),
            ),
        ] {
            assert_eq!(
                plan_switch(active.as_ref(), injected, ten, at(100)),
                expected,
                "{active:?} {injected:?}"
            );
        }
    }
}
