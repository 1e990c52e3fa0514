//! The oracle detects each violation in handwritten histories.

use super::*;
use crate::world::Name;

fn name(name: &str) -> Name {
    ("n".to_owned(), name.to_owned())
}

fn pool_name() -> PoolName {
    ("InClusterIPPool".to_owned(), name("p"))
}

fn claim(uid: &str, bound: bool) -> Claim {
    let bound = bound.then(|| "a".to_owned());
    Claim {
        uid: uid.into(),
        pool: pool_name(),
        bound,
        held: true,
        ..Claim::default()
    }
}

fn address_of(owner: &str, value: &str) -> Address {
    Address {
        owner: Some(owner.into()),
        pool: pool_name(),
        value: value.into(),
        ..Address::default()
    }
}

/// A history that is built step by step.
#[derive(Default)]
struct History(Vec<Change>);

impl History {
    fn with_pool() -> Self {
        let mut history = Self::default();
        history.pool(Some((2, 2, 0, 0)));
        history
    }

    fn push(&mut self, object: Object, gone: bool) {
        let version = self.0.len() as u64 + 1;
        self.0.push(Change {
            version,
            object,
            gone,
        });
    }

    fn pool(&mut self, counts: Option<(i64, i64, i64, i64)>) {
        let addresses = vec!["10.0.0.1-10.0.0.2".to_owned()];
        self.push(
            Object::Pool(
                pool_name(),
                Pool {
                    uid: "p".into(),
                    addresses,
                    counts,
                    ..Pool::default()
                },
            ),
            false,
        );
    }

    fn claim(&mut self, named: &str, mut claim: Claim) {
        claim.bound = claim.bound.map(|_| named.to_owned());
        self.push(Object::Claim(name(named), claim), false);
    }

    fn address(&mut self, named: &str, owner: &str, address: &str, gone: bool) {
        let uid = format!("{named}-{owner}-{address}");
        let address = Address {
            uid,
            ..address_of(owner, address)
        };
        self.push(Object::Address(name(named), address), gone);
    }

    fn reservation(&mut self, named: &str, holder: &str, gone: bool) {
        let uid = format!("{named}-{holder}");
        let made = Reservation {
            uid,
            holder: Some(holder.into()),
            value: named.into(),
            ..Reservation::default()
        };
        self.push(Object::Reservation(named.into(), made), gone);
    }

    /// A claim that is bound correctly.
    fn bind_claim(&mut self, named: &str, uid: &str, address: &str) {
        self.claim(named, claim(uid, false));
        self.reservation(address, uid, false);
        self.address(named, uid, address, false);
        self.claim(named, claim(uid, true));
    }

    fn ever(&self) -> Vec<Rule> {
        ever(&self.0, false)
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    }

    fn at_rest(&self) -> Vec<Rule> {
        at_rest(&World::after(&self.0))
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    }

    fn overall(&self) -> Vec<Rule> {
        overall(&self.0)
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    }
}

#[test]
fn regular_lifecycle_has_no_violation() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.pool(Some((2, 1, 1, 0)));
    assert_eq!(
        (history.ever(), history.at_rest(), history.overall()),
        (vec![], vec![], vec![])
    );
    history.claim(
        "a",
        Claim {
            deleting: true,
            ..claim("1", true)
        },
    );
    assert_eq!(history.at_rest(), [Rule::Served]);
    history.address("a", "1", "10.0.0.1", true);
    history.reservation("10.0.0.1", "1", true);
    history.push(Object::Claim(name("a"), claim("1", true)), true);
    history.pool(Some((2, 2, 0, 0)));
    assert_eq!(
        (history.ever(), history.at_rest(), history.overall()),
        (vec![], vec![], vec![])
    );
}

#[test]
fn deletion_of_the_newer_reservation_is_detected() {
    let moved = |is_marked: bool| {
        let mut history = History::with_pool();
        history.bind_claim("a", "1", "10.0.0.1");
        let (holder, value) = (Some("1".to_owned()), "10.0.0.1".to_owned());
        let copy = Reservation {
            uid: "n".into(),
            holder,
            value,
            ..Reservation::default()
        };
        history.push(
            Object::Reservation("n.10.0.0.1".into(), copy.clone()),
            false,
        );
        history.reservation("10.0.0.1", "1", false);
        if is_marked {
            history.push(Object::Reservation("n.10.0.0.1".into(), copy), false);
        }
        history.reservation("10.0.0.1", "1", true);
        history.ever()
    };
    assert_eq!((moved(false), moved(true)), (vec![Rule::Moved], vec![]));
}

#[test]
fn deletion_without_a_cooldown_is_detected() {
    let deleted = |has_cooldown, released| {
        let mut history = History::default();
        history.push(
            Object::Pool(
                pool_name(),
                Pool {
                    uid: "p".into(),
                    has_cooldown,
                    ..Pool::default()
                },
            ),
            false,
        );
        let made = Reservation {
            uid: "r".into(),
            holder: Some("1".into()),
            pool: pool_name(),
            ..Reservation::default()
        };
        history.push(Object::Reservation("r".into(), made.clone()), false);
        history.push(
            Object::Reservation("r".into(), Reservation { released, ..made }),
            true,
        );
        history.ever()
    };
    assert_eq!(deleted(true, false), [Rule::CooledDown]);
    assert_eq!(
        (deleted(true, true), deleted(false, false)),
        (vec![], vec![])
    );
}

#[test]
fn temporary_double_binding_is_detected() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.bind_claim("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), [Rule::Reserved, Rule::OneClaim]);
    history.claim(
        "a",
        Claim {
            deleting: true,
            ..claim("1", true)
        },
    );
    history.address("a", "1", "10.0.0.1", true);
    assert!(history.ever().contains(&Rule::OneClaim));

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim(
        "a",
        Claim {
            deleting: true,
            ..claim("1", true)
        },
    );
    history.bind_claim("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), [Rule::Reserved, Rule::OneObject]);
}

#[test]
fn unbound_duplicate_is_tolerated_only_temporarily() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim("b", claim("2", false));
    history.address("b", "2", "10.0.0.1", false);
    assert_eq!(history.ever(), []);
    assert!(history.at_rest().contains(&Rule::OneObject));
}

#[test]
fn address_created_during_release_has_no_owner() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim(
        "a",
        Claim {
            deleting: true,
            ..claim("1", true)
        },
    );
    history.address("a", "1", "10.0.0.1", true);
    history.push(
        Object::Address(
            name("a"),
            Address {
                uid: "late".into(),
                ..address_of("1", "10.0.0.1")
            },
        ),
        false,
    );
    history.reservation("10.0.0.1", "1", true);
    history.bind_claim("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), []);
    history.push(
        Object::Claim(
            name("a"),
            Claim {
                deleting: true,
                ..claim("1", true)
            },
        ),
        true,
    );
    assert_eq!(history.ever(), [Rule::Order]);
    assert_eq!(ever(&history.0, true), []);
}

#[test]
fn address_adopted_by_a_later_claim_belongs_to_it() {
    let mut history = History::with_pool();
    history.claim("a", claim("2", false));
    let late = Address {
        uid: "late".into(),
        ..address_of("1", "10.0.0.1")
    };
    history.push(Object::Address(name("a"), late.clone()), false);
    history.reservation("10.0.0.1", "2", false);
    history.push(
        Object::Address(
            name("a"),
            Address {
                owner: Some("2".into()),
                ..late
            },
        ),
        false,
    );
    history.claim("a", claim("2", true));
    assert_eq!(history.ever(), []);
    history.reservation("10.0.0.1", "2", true);
    assert_eq!(history.ever(), [Rule::Reserved]);
}

#[test]
fn pools_of_one_network_share_their_addresses() {
    let mut history = History::default();
    for pool in ["p", "q"] {
        let addresses = vec!["10.0.0.1-10.0.0.2".to_owned()];
        let pool_of = Pool {
            uid: pool.into(),
            addresses,
            network: Some("lab".into()),
            ..Pool::default()
        };
        history.push(
            Object::Pool(("InClusterIPPool".into(), name(pool)), pool_of),
            false,
        );
    }
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim(
        "b",
        Claim {
            pool: ("InClusterIPPool".into(), name("q")),
            ..claim("2", false)
        },
    );
    let pool = ("InClusterIPPool".to_owned(), name("q"));
    let address = Address {
        uid: "u".into(),
        owner: Some("2".into()),
        pool,
        value: "10.0.0.1".into(),
        ..Address::default()
    };
    history.push(Object::Address(name("b"), address), false);
    history.claim("b", claim("2", true));
    assert_eq!(history.ever(), [Rule::OneClaim, Rule::Reserved]);
}

#[test]
fn bound_claim_without_its_address_is_detected() {
    let mut history = History::with_pool();
    history.claim("a", claim("1", true));
    assert_eq!(history.ever(), [Rule::Lasting]);

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.address("a", "1", "10.0.0.1", true);
    assert_eq!(history.ever(), [Rule::Lasting]);
    let mut history = History::with_pool();
    history.address("a", "0", "10.0.0.1", false);
    history.claim("a", claim("1", true));
    assert_eq!(history.ever(), [Rule::Lasting]);

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.address("a", "1", "10.0.0.2", false);
    assert_eq!(history.ever(), [Rule::Lasting, Rule::Reserved]);

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim(
        "a",
        Claim {
            deleting: true,
            in_use: true,
            ..claim("1", true)
        },
    );
    history.address("a", "1", "10.0.0.1", true);
    assert_eq!(history.ever(), [Rule::Lasting], "its machine exists");

    for (release_requested, reason) in [
        (true, None),
        (false, Some("ReleasedEarly")),
        (true, Some("ReleasedEarly")),
    ] {
        let mut history = History::with_pool();
        history.bind_claim("a", "1", "10.0.0.1");
        let reason = reason.map(str::to_owned);
        let is_reported = release_requested && reason.is_some();
        let kept = Claim {
            deleting: true,
            in_use: true,
            release_requested,
            reason,
            ..claim("1", true)
        };
        history.claim("a", kept);
        history.address("a", "1", "10.0.0.1", true);
        let expected: &[Rule] = if is_reported { &[] } else { &[Rule::Lasting] };
        assert_eq!(history.ever(), expected, "requested and reported");
        let late = Address {
            uid: "late".into(),
            ..address_of("1", "10.0.0.1")
        };
        history.push(Object::Address(name("a"), late), false);
        history.reservation("10.0.0.1", "1", true);
        let expected: &[Rule] = if is_reported {
            &[]
        } else {
            &[Rule::Lasting, Rule::Reserved]
        };
        assert_eq!(history.ever(), expected, "created again by a late write");
    }
}

#[test]
fn bound_address_without_reservation_is_detected() {
    let mut history = History::with_pool();
    history.claim("a", claim("1", false));
    history.address("a", "1", "10.0.0.1", false);
    assert_eq!(history.ever(), []);
    history.claim("a", claim("1", true));
    assert_eq!(history.ever(), [Rule::Reserved]);

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.claim(
        "a",
        Claim {
            deleting: true,
            ..claim("1", true)
        },
    );
    history.reservation("10.0.0.1", "1", true);
    history.address("a", "1", "10.0.0.1", true);
    assert_eq!(
        history.ever(),
        [Rule::Reserved],
        "the reservation is deleted last"
    );
}

#[test]
fn address_deleted_before_its_claim_is_detected() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    let address = World::after(&history.0).addresses[&name("a")].clone();
    history.push(
        Object::Address(
            name("a"),
            Address {
                deleting: true,
                ..address
            },
        ),
        false,
    );
    history.pool(Some((2, 1, 1, 0)));
    assert_eq!(history.at_rest(), [Rule::Lasting]);
}

#[test]
fn address_outside_every_pool_is_detected() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.3");
    assert_eq!(history.ever(), [Rule::InRange]);
}

#[test]
fn premature_deletion_is_detected() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.push(
        Object::Claim(
            name("a"),
            Claim {
                deleting: true,
                held: false,
                in_use: true,
                ..claim("1", true)
            },
        ),
        false,
    );
    assert_eq!(history.ever(), [Rule::Order]);
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.push(
        Object::Claim(
            name("a"),
            Claim {
                deleting: true,
                ..claim("1", true)
            },
        ),
        true,
    );
    assert_eq!(history.ever(), [Rule::Order]);
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.push(Object::Claim(name("a"), claim("1", true)), true);
    assert_eq!(
        history.ever(),
        [],
        "the API server removed it without a release"
    );
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.push(Object::Pool(pool_name(), Pool::default()), true);
    assert_eq!(history.ever(), [Rule::Order]);
}

#[test]
fn bound_claim_without_finalizer_is_detected() {
    let mut history = History::with_pool();
    history.claim(
        "a",
        Claim {
            held: false,
            ..claim("1", false)
        },
    );
    history.reservation("10.0.0.1", "1", false);
    history.address("a", "1", "10.0.0.1", false);
    history.claim(
        "a",
        Claim {
            held: false,
            ..claim("1", true)
        },
    );
    assert_eq!(history.ever(), [Rule::Order]);
}

#[test]
fn leftover_objects_are_detected() {
    let mut history = History::with_pool();
    history.reservation("10.0.0.1", "dead", false);
    assert_eq!(history.at_rest(), [Rule::NoLeak]);
    let mut history = History::with_pool();
    history.address("a", "dead", "10.0.0.1", false);
    history.pool(Some((2, 1, 1, 0)));
    assert_eq!(history.at_rest(), [Rule::NoLeak]);
    assert_eq!(history.overall(), [Rule::Once]);

    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    history.reservation("10.0.0.2", "1", false);
    history.pool(Some((2, 1, 1, 0)));
    assert_eq!(history.at_rest(), [Rule::OneEach]);
    assert_eq!(history.overall(), [Rule::Once]);
}

#[test]
fn wrong_pool_counts_are_detected() {
    let mut history = History::with_pool();
    history.bind_claim("a", "1", "10.0.0.1");
    assert_eq!(history.at_rest(), [Rule::Counts]);
}

#[test]
fn waiting_claim_without_a_reason_is_detected() {
    let mut history = History::with_pool();
    history.claim(
        "c",
        Claim {
            reason: Some("PoolExhausted".into()),
            ..claim("3", false)
        },
    );
    assert_eq!(
        history.at_rest(),
        [Rule::Served],
        "the pool has free addresses"
    );
    history.bind_claim("a", "1", "10.0.0.1");
    history.bind_claim("b", "2", "10.0.0.2");
    history.pool(Some((2, 0, 2, 0)));
    assert_eq!(history.at_rest(), []);
    history.claim("c", claim("3", false));
    assert_eq!(history.at_rest(), [Rule::Served], "no reason is reported");
}

#[test]
fn recreated_address_is_reported_in_the_summary() {
    let mut history = History::with_pool();
    history.claim("a", claim("1", false));
    history.reservation("10.0.0.2", "1", false);
    history.address("a", "1", "10.0.0.2", false);
    history.address("a", "1", "10.0.0.2", true);
    history.reservation("10.0.0.2", "1", true);
    history.bind_claim("a", "1", "10.0.0.1");
    history.pool(Some((2, 1, 1, 0)));
    assert_eq!((history.ever(), history.at_rest()), (vec![], vec![]));
    assert_eq!(history.overall(), [Rule::Once, Rule::Once]);
}

#[test]
fn reservation_outside_of_the_scopes_of_its_pool_is_detected() {
    let placed = |networks: &[Option<&str>], of_reservation: Option<&str>| {
        let mut history = History::default();
        for network in networks {
            let pool = Pool {
                uid: "p".into(),
                network: network.map(str::to_owned),
                ..Pool::default()
            };
            history.push(Object::Pool(pool_name(), pool), false);
        }
        let network = of_reservation.map(str::to_owned);
        let made = Reservation {
            uid: "r".into(),
            pool: pool_name(),
            network,
            ..Reservation::default()
        };
        history.push(Object::Reservation("r".into(), made), false);
        history.ever()
    };
    assert_eq!(placed(&[Some("lab")], Some("lab")), []);
    assert_eq!(
        placed(&[Some("lab")], None),
        [Rule::Placed],
        "the network has lost its pool"
    );
    assert_eq!(
        placed(&[None], Some("lab")),
        [Rule::Placed],
        "the pool asked for no network"
    );
    // A pool that has left, and one that joins.
    assert_eq!(placed(&[Some("lab"), None], Some("lab")), []);
    assert_eq!(placed(&[Some("lab"), None], None), []);
    assert_eq!(placed(&[None, Some("lab")], None), []);
}
