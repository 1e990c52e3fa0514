use std::time::Duration;

use capi_ipam_api::{AccessRules, AllowedNamespaces};

use super::grants::TURN_TIMEOUT;
use super::*;

fn claim(name: &str) -> NamespacedName {
    NamespacedName::new("n", name)
}

impl Supply<'_> {
    /// What a claim of a group gets that may have no further address.
    fn blocked(self, group: &Group) -> Outcome<()> {
        Outcome::NotNow(self.describe(group))
    }
}

fn free(free: u128) -> Supply<'static> {
    Supply {
        free,
        ..Supply::default()
    }
}

fn is_served(
    queue: &mut WaitQueue,
    claim: &NamespacedName,
    priority: Priority,
    free: u128,
) -> bool {
    queue.request(claim, &priority.into(), self::free(free)) == Outcome::Offer(())
}

#[test]
fn oldest_claim_is_served_before_new_claims() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    for (name, priority) in [("b", 2), ("a", 1), ("c", 2)] {
        assert!(!is_served(&mut queue, &claim(name), priority, 0));
    }
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
    assert!(
        !is_served(&mut queue, &claim("new"), 3, 1),
        "the free address is held for a"
    );
    assert!(is_served(&mut queue, &claim("a"), 1, 1));
    queue.forget(&claim("a"));
    assert_eq!(
        queue.grant(free(2), Freed::default(), now),
        [claim("b"), claim("c")]
    );
}

#[test]
fn unused_turn_passes_on_and_the_position_is_kept() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    assert!(!is_served(&mut queue, &claim("a"), 1, 0));
    assert!(!is_served(&mut queue, &claim("b"), 2, 0));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
    assert!(
        !queue.end_turn(&claim("a"), now),
        "granted during a reconcile"
    );
    let later = now + Duration::from_millis(1);
    assert!(queue.end_turn(&claim("a"), later));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("b")]);
    assert!(!is_served(&mut queue, &claim("a"), 1, 1));
    queue.forget(&claim("b"));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
}

#[test]
fn queue_position_survives_a_failed_turn() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    assert!(!is_served(&mut queue, &claim("a"), 1, 0));
    assert!(!is_served(&mut queue, &claim("b"), 2, 0));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
    assert!(
        !is_served(&mut queue, &claim("a"), 1, 0),
        "the address was allocated elsewhere"
    );
    assert!(!queue.end_turn(&claim("a"), now + Duration::from_millis(1)));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
}

#[test]
fn turn_expires_when_the_claim_is_not_reconciled() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    assert!(!is_served(&mut queue, &claim("a"), 1, 0));
    assert!(!is_served(&mut queue, &claim("b"), 2, 0));
    assert_eq!(queue.grant(free(1), Freed::default(), now), [claim("a")]);
    assert_eq!(
        queue.grant(free(1), Freed::default(), now + TURN_TIMEOUT),
        [claim("b")]
    );
}

#[test]
fn claim_that_waits_for_the_pool_has_a_queue_position() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    for (name, priority) in [("young", 3), ("old", 1), ("middle", 2)] {
        assert!(queue.wait_for_pool(&claim(name), &priority.into()));
        assert!(!queue.wait_for_pool(&claim(name), &priority.into()));
    }
    assert_eq!(queue.pool_changed().len(), 3);
    assert_eq!(
        queue.grant(free(2), Freed::default(), now),
        [claim("old"), claim("middle")]
    );
    assert!(!is_served(&mut queue, &claim("young"), 3, 2));
    assert!(is_served(&mut queue, &claim("middle"), 2, 2));
}

#[test]
fn no_claim_waits_while_addresses_are_free() {
    let mut queue = WaitQueue::default();
    assert!(is_served(&mut queue, &claim("a"), 1, 1));
    assert!(queue.is_empty());
}
/// A claim `NAME` of namespace `NAMESPACE`.
fn of(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

fn per_namespace(limit: usize) -> Quota {
    let namespaces = AllowedNamespaces::All;
    Quota::new(&AccessRules {
        namespaces,
        per_namespace: Some(limit),
        per_cluster: None,
        headroom: None,
    })
}

fn limited(quota: &Quota) -> Supply<'_> {
    Supply {
        free: 3,
        quota: Some(quota),
        ..Supply::default()
    }
}

#[test]
fn namespace_at_its_limit_delays_no_other() {
    let (mut queue, mut quota, now) = (WaitQueue::default(), per_namespace(1), Instant::now());
    quota.charge(&Consumer::new(of("full", "bound"), None), true);
    for number in 0..1_000 {
        let answer = queue.request(
            &of("full", &format!("c{number}")),
            &1.into(),
            limited(&quota),
        );
        assert_eq!(
            answer,
            limited(&quota).blocked(&Group::Namespace("full".into()))
        );
    }
    assert_eq!(
        queue.request(&of("other", "a"), &2.into(), limited(&quota)),
        Outcome::Offer(())
    );
    quota.charge(&Consumer::new(of("other", "a"), None), true);
    assert_eq!(
        queue.grant(limited(&quota), Freed::default(), now),
        Vec::<NamespacedName>::new()
    );
    quota.charge(&Consumer::new(of("full", "bound"), None), false);
    let freed = quota.take_freed();
    assert_eq!(
        queue.grant(
            limited(&quota),
            Freed {
                groups: freed,
                ..Freed::default()
            },
            now
        ),
        [of("full", "c0")],
        "one may have an address"
    );
    assert_eq!(
        queue.request(&of("full", "c0"), &1.into(), limited(&quota)),
        Outcome::Offer(())
    );
    assert_eq!(queue.waiting(), 999);
}

#[test]
fn turns_count_against_the_limit() {
    let (mut queue, quota, now) = (WaitQueue::default(), per_namespace(1), Instant::now());
    let supply = |free| Supply {
        free,
        quota: Some(&quota),
        ..Supply::default()
    };
    for name in ["a", "b"] {
        assert_eq!(
            queue.request(&of("n", name), &1.into(), supply(0)),
            Outcome::NO_ADDRESS
        );
    }
    assert_eq!(
        queue.grant(supply(2), Freed::default(), now),
        [of("n", "a")]
    );
    assert!(queue.end_turn(&of("n", "a"), now + Duration::from_millis(1)));
    assert_eq!(
        queue.grant(supply(2), Freed::default(), now),
        [of("n", "b")],
        "the turn was not used"
    );
    queue.forget(&of("n", "b"));
    assert_eq!(
        queue.request(&of("n", "a"), &1.into(), supply(2)),
        Outcome::Offer(())
    );
    assert!(queue.is_empty() && queue.turns_of.is_empty() && queue.blocked.is_empty());
}

#[test]
fn claims_that_waited_for_the_pool_keep_their_order() {
    // Both claims are created before their pool can allocate.
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    let quota = Quota::new(&AccessRules {
        namespaces: AllowedNamespaces::All,
        per_namespace: None,
        per_cluster: Some(1),
        headroom: None,
    });
    let of_cluster = ClaimAttributes {
        cluster: Some("one".into()),
        ..1.into()
    };
    for name in ["a", "b"] {
        queue.wait_for_pool(&of("n", name), &of_cluster);
    }
    let woken = queue.pool_changed();
    assert_eq!(
        (
            woken.len(),
            queue.grant(limited(&quota), Freed::default(), now)
        ),
        (2, vec![of("n", "a")])
    );
    let group = Group::Cluster("n".into(), "one".into());
    assert_eq!(
        queue.request(&of("n", "b"), &of_cluster, limited(&quota)),
        limited(&quota).blocked(&group)
    );
    assert_eq!(
        queue.request(&of("n", "a"), &of_cluster, limited(&quota)),
        Outcome::Offer(())
    );
}

#[test]
fn removed_limits_unblock_all_claims() {
    let (mut queue, quota) = (WaitQueue::default(), per_namespace(0));
    let supply = Supply {
        free: 9,
        quota: Some(&quota),
        ..Supply::default()
    };
    for name in ["a", "b"] {
        assert_eq!(
            queue.request(&of("n", name), &1.into(), supply),
            supply.blocked(&Group::Namespace("n".into()))
        );
    }
    assert_eq!(queue.rules_changed().len(), 2);
    assert_eq!(
        queue.grant(free(1), Freed::default(), Instant::now()),
        [of("n", "a")]
    );
    assert!(queue.blocked.is_empty());
}

#[test]
fn headroom_is_left_for_some_claims() {
    let (mut queue, now) = (WaitQueue::default(), Instant::now());
    let supply = |free| Supply {
        free,
        headroom: 2,
        ..Supply::default()
    };
    let privileged = ClaimAttributes {
        priority: 9,
        uses_headroom: true,
        ..ClaimAttributes::default()
    };
    assert_eq!(
        queue.request(&claim("a"), &1.into(), supply(3)),
        Outcome::Offer(())
    );
    assert_eq!(
        queue.request(&claim("b"), &1.into(), supply(2)),
        Outcome::NO_ADDRESS
    );
    assert_eq!(
        queue.request(&claim("control-plane"), &privileged, supply(2)),
        Outcome::Offer(()),
        "it overtakes b"
    );
    assert_eq!(
        queue.request(&claim("late"), &privileged, supply(0)),
        Outcome::NO_ADDRESS
    );
    assert_eq!(
        queue.grant(supply(1), Freed::default(), now),
        [claim("late")]
    );
    assert_eq!(
        queue.grant(supply(3), Freed::default(), now),
        Vec::<NamespacedName>::new(),
        "one is for late, two are headroom"
    );
    assert_eq!(queue.grant(supply(4), Freed::default(), now), [claim("b")]);
}
