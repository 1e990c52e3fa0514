//! The oracle detects each violation in handwritten histories.

use super::*;
use crate::world::Name;

fn name(name: &str) -> Name {
    ("n".to_owned(), name.to_owned())
}

fn pool_name() -> PoolName {
    ("InClusterIPPool".to_owned(), name("p"))
}

fn claim(uid: &str) -> Claim {
    Claim {
        uid: uid.into(),
        pool: pool_name(),
        held: true,
        ..Claim::default()
    }
}

fn bound(uid: &str) -> Claim {
    Claim {
        bound: Some("a".to_owned()),
        ..claim(uid)
    }
}

fn deleting(uid: &str) -> Claim {
    Claim {
        deleting: true,
        ..bound(uid)
    }
}

fn address_of(uid: &str, owner: &str, value: &str) -> Address {
    Address {
        uid: uid.into(),
        owner: Some(owner.into()),
        pool: pool_name(),
        value: value.into(),
        ..Address::default()
    }
}

/// The IPAddress that a late write creates for claim `a`.
fn late_address(owner: &str) -> Object {
    Object::Address(name("a"), address_of("late", owner, "10.0.0.1"))
}

fn pool_in(network: Option<&str>) -> Pool {
    Pool {
        uid: "p".into(),
        network: network.map(str::to_owned),
        ..Pool::default()
    }
}

fn rules(violations: Vec<Violation>) -> Vec<Rule> {
    let rules = violations.into_iter().map(|violation| violation.rule);
    rules.collect()
}

/// A history that is built step by step.
#[derive(Default)]
struct History(Vec<Change>);

impl History {
    fn with_pool() -> Self {
        Self::default().pool((2, 2, 0, 0))
    }

    /// Claim `a` is bound.
    fn with_claim() -> Self {
        Self::with_pool().bind("a", "1", "10.0.0.1")
    }

    fn push(mut self, object: Object, gone: bool) -> Self {
        let version = self.0.len() as u64 + 1;
        self.0.push(Change {
            version,
            object,
            gone,
        });
        self
    }

    fn pool(self, counts: (i64, i64, i64, i64)) -> Self {
        let pool = Pool {
            addresses: vec!["10.0.0.1-10.0.0.2".to_owned()],
            counts: Some(counts),
            ..pool_in(None)
        };
        self.push(Object::Pool(pool_name(), pool), false)
    }

    fn claim(self, named: &str, mut claim: Claim) -> Self {
        claim.bound = claim.bound.map(|_| named.to_owned());
        self.push(Object::Claim(name(named), claim), false)
    }

    fn delete_claim(self, claim: Claim) -> Self {
        self.push(Object::Claim(name("a"), claim), true)
    }

    fn put_address(self, named: &str, owner: &str, address: &str, gone: bool) -> Self {
        let uid = format!("{named}-{owner}-{address}");
        let address = address_of(&uid, owner, address);
        self.push(Object::Address(name(named), address), gone)
    }

    fn address(self, named: &str, owner: &str, address: &str) -> Self {
        self.put_address(named, owner, address, false)
    }

    /// Deletes the IPAddress of claim `a`.
    fn delete_address(self) -> Self {
        self.put_address("a", "1", "10.0.0.1", true)
    }

    fn put_reservation(self, named: &str, holder: &str, gone: bool) -> Self {
        let made = Reservation {
            uid: format!("{named}-{holder}"),
            holder: Some(holder.into()),
            value: named.into(),
            ..Reservation::default()
        };
        self.push(Object::Reservation(named.into(), made), gone)
    }

    fn reservation(self, named: &str, holder: &str) -> Self {
        self.put_reservation(named, holder, false)
    }

    fn delete_reservation(self, holder: &str) -> Self {
        self.put_reservation("10.0.0.1", holder, true)
    }

    /// A claim that is bound correctly.
    fn bind(self, named: &str, uid: &str, address: &str) -> Self {
        self.claim(named, claim(uid))
            .reservation(address, uid)
            .address(named, uid, address)
            .claim(named, bound(uid))
    }

    fn ever(&self) -> Vec<Rule> {
        rules(ever(&self.0, false))
    }

    fn at_rest(&self) -> Vec<Rule> {
        rules(at_rest(&World::after(&self.0)))
    }

    fn overall(&self) -> Vec<Rule> {
        rules(overall(&self.0))
    }

    fn assert_has_no_violation(&self) {
        assert_eq!(self.ever(), []);
        assert_eq!(self.at_rest(), []);
        assert_eq!(self.overall(), []);
    }
}

#[test]
fn regular_lifecycle_has_no_violation() {
    let history = History::with_claim().pool((2, 1, 1, 0));
    history.assert_has_no_violation();
    let history = history.claim("a", deleting("1"));
    assert_eq!(history.at_rest(), [Rule::Served]);
    let history = history.delete_address().delete_reservation("1");
    let history = history.delete_claim(bound("1")).pool((2, 2, 0, 0));
    history.assert_has_no_violation();
}

#[test]
fn deletion_of_the_newer_reservation_is_detected() {
    let moved = |is_marked: bool| {
        let copy = Reservation {
            uid: "n".into(),
            holder: Some("1".to_owned()),
            value: "10.0.0.1".to_owned(),
            ..Reservation::default()
        };
        let copy = || Object::Reservation("n.10.0.0.1".into(), copy.clone());
        let mut history = History::with_claim().push(copy(), false);
        history = history.reservation("10.0.0.1", "1");
        if is_marked {
            history = history.push(copy(), false);
        }
        history.delete_reservation("1").ever()
    };
    assert_eq!((moved(false), moved(true)), (vec![Rule::Moved], vec![]));
}

#[test]
fn deletion_without_a_cooldown_is_detected() {
    let deleted = |has_cooldown, released| {
        let pool = Pool {
            has_cooldown,
            ..pool_in(None)
        };
        let put = |released| {
            let made = Reservation {
                uid: "r".into(),
                holder: Some("1".into()),
                pool: pool_name(),
                released,
                ..Reservation::default()
            };
            Object::Reservation("r".into(), made)
        };
        let history = History::default().push(Object::Pool(pool_name(), pool), false);
        let history = history.push(put(false), false).push(put(released), true);
        history.ever()
    };
    assert_eq!(deleted(true, false), [Rule::CooledDown]);
    assert_eq!(deleted(true, true), []);
    assert_eq!(deleted(false, false), []);
}

#[test]
fn temporary_double_binding_is_detected() {
    let history = History::with_claim().bind("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), [Rule::Reserved, Rule::OneClaim]);
    // It is not tolerated because it ends.
    let history = history.claim("a", deleting("1")).delete_address();
    assert!(history.ever().contains(&Rule::OneClaim));

    // A claim that is being deleted still has its address.
    let history = History::with_claim().claim("a", deleting("1"));
    let history = history.bind("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), [Rule::Reserved, Rule::OneObject]);
}

#[test]
fn unbound_duplicate_is_tolerated_only_temporarily() {
    let history = History::with_claim().claim("b", claim("2"));
    let history = history.address("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), []);
    assert!(history.at_rest().contains(&Rule::OneObject));
}

#[test]
fn address_created_during_release_has_no_owner() {
    let history = History::with_claim().claim("a", deleting("1"));
    let history = history.delete_address().push(late_address("1"), false);
    let history = history.delete_reservation("1").bind("b", "2", "10.0.0.1");
    assert_eq!(history.ever(), []);
    // The claim is deleted before that IPAddress.
    let history = history.delete_claim(deleting("1"));
    assert_eq!(history.ever(), [Rule::Order]);
    assert_eq!(ever(&history.0, true), []);
}

#[test]
fn address_adopted_by_a_later_claim_belongs_to_it() {
    let history = History::with_pool().claim("a", claim("2"));
    let history = history.push(late_address("1"), false);
    let history = history.reservation("10.0.0.1", "2");
    let history = history.push(late_address("2"), false);
    let history = history.claim("a", bound("2"));
    assert_eq!(history.ever(), []);
    let history = history.delete_reservation("2");
    assert_eq!(history.ever(), [Rule::Reserved]);
}

#[test]
fn pools_of_one_network_share_their_addresses() {
    let named = |pool: &str| ("InClusterIPPool".to_owned(), name(pool));
    let mut history = History::default();
    for pool in ["p", "q"] {
        let of_network = Pool {
            addresses: vec!["10.0.0.1-10.0.0.2".to_owned()],
            ..pool_in(Some("lab"))
        };
        history = history.push(Object::Pool(named(pool), of_network), false);
    }
    let of_other = Claim {
        pool: named("q"),
        ..claim("2")
    };
    let address = Address {
        pool: named("q"),
        ..address_of("u", "2", "10.0.0.1")
    };
    let history = history.bind("a", "1", "10.0.0.1").claim("b", of_other);
    let history = history.push(Object::Address(name("b"), address), false);
    let history = history.claim("b", bound("2"));
    assert_eq!(history.ever(), [Rule::OneClaim, Rule::Reserved]);
}

#[test]
fn bound_claim_without_its_address_is_detected() {
    let history = History::with_pool().claim("a", bound("1"));
    assert_eq!(history.ever(), [Rule::Lasting]);
    let history = History::with_claim().delete_address();
    assert_eq!(history.ever(), [Rule::Lasting]);
    let history = History::with_pool().address("a", "0", "10.0.0.1");
    let history = history.claim("a", bound("1"));
    assert_eq!(history.ever(), [Rule::Lasting]);
    let history = History::with_claim().address("a", "1", "10.0.0.2");
    assert_eq!(history.ever(), [Rule::Lasting, Rule::Reserved]);

    // A claim that is being deleted keeps its address as long as its machine exists, unless its
    // release is requested and reported.
    for (release_requested, reason) in [
        (false, None),
        (true, None),
        (false, Some("ReleasedEarly")),
        (true, Some("ReleasedEarly")),
    ] {
        let is_reported = release_requested && reason.is_some();
        let kept = Claim {
            in_use: true,
            release_requested,
            reason: reason.map(str::to_owned),
            ..deleting("1")
        };
        let expected = |violated: &[Rule]| {
            if is_reported {
                Vec::new()
            } else {
                violated.to_vec()
            }
        };
        let history = History::with_claim().claim("a", kept).delete_address();
        assert_eq!(history.ever(), expected(&[Rule::Lasting]));
        // It is created again by a late write.
        let history = history.push(late_address("1"), false);
        let history = history.delete_reservation("1");
        assert_eq!(history.ever(), expected(&[Rule::Lasting, Rule::Reserved]));
    }
}

#[test]
fn bound_address_without_reservation_is_detected() {
    let history = History::with_pool().claim("a", claim("1"));
    let history = history.address("a", "1", "10.0.0.1");
    assert_eq!(history.ever(), []);
    let history = history.claim("a", bound("1"));
    assert_eq!(history.ever(), [Rule::Reserved]);

    // The reservation is deleted last.
    let history = History::with_claim().claim("a", deleting("1"));
    let history = history.delete_reservation("1").delete_address();
    assert_eq!(history.ever(), [Rule::Reserved]);
}

#[test]
fn address_deleted_before_its_claim_is_detected() {
    let address = Address {
        deleting: true,
        ..address_of("a-1-10.0.0.1", "1", "10.0.0.1")
    };
    let history = History::with_claim().push(Object::Address(name("a"), address), false);
    assert_eq!(history.pool((2, 1, 1, 0)).at_rest(), [Rule::Lasting]);
}

#[test]
fn address_outside_every_pool_is_detected() {
    let history = History::with_pool().bind("a", "1", "10.0.0.3");
    assert_eq!(history.ever(), [Rule::InRange]);
}

#[test]
fn premature_deletion_is_detected() {
    let let_go = Claim {
        held: false,
        in_use: true,
        ..deleting("1")
    };
    let history = History::with_claim().claim("a", let_go);
    assert_eq!(history.ever(), [Rule::Order]);
    let history = History::with_claim().delete_claim(deleting("1"));
    assert_eq!(history.ever(), [Rule::Order]);
    // The API server removed it without a release.
    let history = History::with_claim().delete_claim(bound("1"));
    assert_eq!(history.ever(), []);
    let pool = Object::Pool(pool_name(), Pool::default());
    let history = History::with_claim().push(pool, true);
    assert_eq!(history.ever(), [Rule::Order]);
}

#[test]
fn bound_claim_without_finalizer_is_detected() {
    let loose = |claim: Claim| Claim {
        held: false,
        ..claim
    };
    let history = History::with_pool().claim("a", loose(claim("1")));
    let history = history.reservation("10.0.0.1", "1");
    let history = history.address("a", "1", "10.0.0.1");
    let history = history.claim("a", loose(bound("1")));
    assert_eq!(history.ever(), [Rule::Order]);
}

#[test]
fn leftover_objects_are_detected() {
    let history = History::with_pool().reservation("10.0.0.1", "dead");
    assert_eq!(history.at_rest(), [Rule::NoLeak]);

    let history = History::with_pool().address("a", "dead", "10.0.0.1");
    let history = history.pool((2, 1, 1, 0));
    assert_eq!(history.at_rest(), [Rule::NoLeak]);
    assert_eq!(history.overall(), [Rule::Once]);

    let history = History::with_claim().reservation("10.0.0.2", "1");
    let history = history.pool((2, 1, 1, 0));
    assert_eq!(history.at_rest(), [Rule::OneEach]);
    assert_eq!(history.overall(), [Rule::Once]);
}

#[test]
fn wrong_pool_counts_are_detected() {
    assert_eq!(History::with_claim().at_rest(), [Rule::Counts]);
}

#[test]
fn waiting_claim_without_a_reason_is_detected() {
    let waiting = Claim {
        reason: Some("PoolExhausted".into()),
        ..claim("3")
    };
    // The pool has free addresses.
    let history = History::with_pool().claim("c", waiting);
    assert_eq!(history.at_rest(), [Rule::Served]);
    let history = history.bind("a", "1", "10.0.0.1");
    let history = history.bind("b", "2", "10.0.0.2").pool((2, 0, 2, 0));
    assert_eq!(history.at_rest(), []);
    let history = history.claim("c", claim("3"));
    assert_eq!(history.at_rest(), [Rule::Served]);
}

#[test]
fn recreated_address_is_reported_in_the_summary() {
    let history = History::with_pool().claim("a", claim("1"));
    let history = history.reservation("10.0.0.2", "1");
    let history = history.address("a", "1", "10.0.0.2");
    let history = history.put_address("a", "1", "10.0.0.2", true);
    let history = history.put_reservation("10.0.0.2", "1", true);
    let history = history.bind("a", "1", "10.0.0.1").pool((2, 1, 1, 0));
    assert_eq!((history.ever(), history.at_rest()), (vec![], vec![]));
    assert_eq!(history.overall(), [Rule::Once, Rule::Once]);
}

#[test]
fn reservation_outside_of_the_scopes_of_its_pool_is_detected() {
    let lab = Some("lab");
    let cases = [
        (vec![lab], lab, vec![]),
        // The network has lost its pool.
        (vec![lab], None, vec![Rule::Placed]),
        // The pool asked for no network.
        (vec![None], lab, vec![Rule::Placed]),
        (vec![lab, None], lab, vec![]),
        (vec![lab, None], None, vec![]),
        (vec![None, lab], None, vec![]),
    ];
    for (networks, of_reservation, expected) in cases {
        let mut history = History::default();
        for network in &networks {
            let pool = Object::Pool(pool_name(), pool_in(*network));
            history = history.push(pool, false);
        }
        let made = Reservation {
            uid: "r".into(),
            pool: pool_name(),
            network: of_reservation.map(str::to_owned),
            ..Reservation::default()
        };
        let history = history.push(Object::Reservation("r".into(), made), false);
        assert_eq!(history.ever(), expected, "{networks:?} {of_reservation:?}");
    }
}
