//! What is to be done, as a function of what is known: with the Secret, and with the certificate in it.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::https::Validity;

/// What is in the Secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The authorities, the newest first; or why there are none.
    pub(super) authorities: Result<Vec<Validity>, Reason>,
    /// Whether there is the key of the newest.
    pub(super) key: Result<(), Reason>,
    /// The certificate to serve with: its key is there, an authority signed it, and all names are in it.
    pub(super) serving: Result<Validity, Reason>,
}

/// Why something new is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// There is no Secret, or nothing in it.
    Missing,
    /// What is there cannot be used.
    Damaged(&'static str),
    /// A third of its time is left, or less.
    Ending,
    /// By the clock of this machine it is not valid yet.
    NotYetValid,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there was none",
            Self::Damaged(what) => what,
            Self::Ending => "not much of its time is left",
            Self::NotYetValid => "it is not valid yet; are the clocks right?",
        })
    }
}

/// What is to be done with the Secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// All is well.
    Keep,
    /// Drop the authorities that are no longer valid.
    Prune,
    /// Make a certificate by the newest authority.
    Serving(Reason),
    /// Make an authority and a certificate by it. The old ones stay trusted as long as they are valid.
    Authority(Reason),
}

/// What is to be done with the Secret.
pub(super) fn decide(found: &Found, now: Timestamp) -> Action {
    let (authorities, newest) = match &found.authorities {
        Err(reason) => return Action::Authority(*reason),
        Ok(authorities) => match authorities.first() {
            None => return Action::Authority(Reason::Missing),
            Some(newest) => (authorities, newest),
        },
    };
    if let Err(reason) = found.key.and_then(|()| fresh(*newest, now)) {
        return Action::Authority(reason);
    }
    if let Err(reason) = found.serving.and_then(|serving| fresh(serving, now)) {
        return Action::Serving(reason);
    }
    if authorities.iter().any(|authority| authority.until < now) { Action::Prune } else { Action::Keep }
}

fn fresh(validity: Validity, now: Timestamp) -> Result<(), Reason> {
    let (life, left) = (validity.until.duration_since(validity.from), validity.until.duration_since(now));
    if validity.from > now {
        Err(Reason::NotYetValid)
    } else if left.saturating_mul(3) <= life {
        Err(Reason::Ending)
    } else {
        Ok(())
    }
}

/// The certificate that is served, compared with the one in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// It is the same.
    pub(super) is_offered: bool,
    /// The same authority signed both.
    pub(super) has_same_authority: bool,
    /// Its authority is among those that API servers are to trust.
    pub(super) is_trusted: bool,
    /// When it ends.
    pub(super) until: Timestamp,
}

/// When to serve with the certificate in the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    /// It is served.
    Done,
    /// At once.
    Now,
    /// API servers are not sure yet to trust it; they do trust the one that is served.
    Later(Duration),
}

/// When to serve with the certificate in the Secret. `in_place` says for how long its authority has been where API
/// servers read it; they take up to `settle` to do so.
pub(super) fn take_up(served: Option<&Served>, in_place: Option<Duration>, settle: Duration, now: Timestamp) -> Switch {
    let Some(served) = served else { return Switch::Now };
    if served.is_offered {
        return Switch::Done;
    }
    let rest = settle.saturating_sub(in_place.unwrap_or_default());
    let left = Duration::try_from(served.until.duration_since(now)).unwrap_or_default();
    let is_settled = in_place.is_some() && rest.is_zero();
    if served.has_same_authority || !served.is_trusted || left.is_zero() || is_settled {
        Switch::Now
    } else {
        Switch::Later(rest.min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn from_until(from: i64, until: i64) -> Validity {
        Validity { from: at(from), until: at(until) }
    }

    /// What is there at second 100: all of it good.
    fn good() -> Found {
        Found { authorities: Ok(vec![from_until(0, 1000)]), key: Ok(()), serving: Ok(from_until(50, 200)) }
    }

    #[test]
    fn what_is_good_is_kept_until_a_third_of_its_time_is_left() {
        for (now, action) in [
            (50, Action::Keep),
            (149, Action::Keep),
            (150, Action::Serving(Reason::Ending)),
            (500, Action::Serving(Reason::Ending)),
            (49, Action::Serving(Reason::NotYetValid)),
            (-1, Action::Authority(Reason::NotYetValid)),
            (666, Action::Serving(Reason::Ending)),
            (667, Action::Authority(Reason::Ending)),
            (1001, Action::Authority(Reason::Ending)),
        ] {
            assert_eq!(decide(&good(), at(now)), action, "{now}");
        }
    }

    #[test]
    fn an_authority_is_made_when_there_is_none_to_sign_with() {
        let damaged = Reason::Damaged("broken");
        for (found, reason) in [
            (Found { authorities: Err(Reason::Missing), ..good() }, Reason::Missing),
            (Found { authorities: Err(damaged), ..good() }, damaged),
            (Found { authorities: Ok(Vec::new()), ..good() }, Reason::Missing),
            (Found { key: Err(damaged), ..good() }, damaged),
            // Whatever else is wrong.
            (Found { key: Err(damaged), serving: Err(Reason::Missing), ..good() }, damaged),
            (Found { authorities: Ok(vec![from_until(0, 120), from_until(0, 1000)]), ..good() }, Reason::Ending),
        ] {
            assert_eq!(decide(&found, at(100)), Action::Authority(reason), "{found:?}");
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_replaced_by_the_authority_that_is_there() {
        for reason in [Reason::Missing, Reason::Damaged("broken")] {
            let found = Found { serving: Err(reason), ..good() };
            assert_eq!(decide(&found, at(100)), Action::Serving(reason));
        }
    }

    #[test]
    fn old_authorities_stay_to_their_last_second() {
        let found = Found { authorities: Ok(vec![from_until(0, 1000), from_until(0, 110)]), ..good() };
        assert_eq!(decide(&found, at(100)), Action::Keep);
        assert_eq!(decide(&found, at(110)), Action::Keep);
        assert_eq!(decide(&found, at(111)), Action::Prune);
        // What writes anyway prunes too.
        assert_eq!(decide(&found, at(150)), Action::Serving(Reason::Ending));
    }

    #[test]
    fn a_certificate_is_taken_up_when_it_is_trusted_for_sure_or_nothing_is_lost() {
        let [second, ten] = [1, 10].map(Duration::from_secs);
        let old = Served { is_offered: false, has_same_authority: false, is_trusted: true, until: at(200) };
        for (served, in_place, expected) in [
            (None, None, Switch::Now),
            (Some(Served { is_offered: true, ..old }), None, Switch::Done),
            (Some(Served { is_offered: true, is_trusted: false, ..old }), Some(ten), Switch::Done),
            (Some(Served { has_same_authority: true, ..old }), None, Switch::Now),
            (Some(old), None, Switch::Later(ten)),
            (Some(old), Some(Duration::ZERO), Switch::Later(ten)),
            (Some(old), Some(second), Switch::Later(Duration::from_secs(9))),
            (Some(old), Some(ten), Switch::Now),
            // Nobody trusts the old one any more; or soon nobody will.
            (Some(Served { is_trusted: false, ..old }), None, Switch::Now),
            (Some(Served { until: at(99), ..old }), None, Switch::Now),
            (Some(Served { until: at(100), ..old }), Some(second), Switch::Now),
            (Some(Served { until: at(101), ..old }), Some(second), Switch::Later(second)),
            (Some(Served { until: at(101), ..old }), None, Switch::Later(second)),
        ] {
            assert_eq!(take_up(served.as_ref(), in_place, ten, at(100)), expected, "{served:?} {in_place:?}");
        }
    }
}
