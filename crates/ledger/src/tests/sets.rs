//! Sets of pools.

use capi_ipam_api::{PoolSet, PoolSetKey, PoolSetKind};

use super::*;

const LISTED: [&str; 3] = ["a", "b", "c"];

fn set_key() -> PoolSetKey {
    PoolSetKey {
        kind: PoolSetKind::Namespaced,
        namespace: Some("n".into()),
        name: "s".into(),
    }
}

fn apply_set(ledger: &mut Ledger, spec: serde_json::Value) {
    let set = json!({
        "metadata": {"namespace": "n", "name": "s", "uid": "set", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": spec,
    });
    let set: PoolSet = serde_json::from_value(set).unwrap();
    ledger.apply_set(&set_key(), Some(SetInfo::of(&set_key(), &set)));
}

fn listed(names: &[&str]) -> serde_json::Value {
    let pools: Vec<_> = names
        .iter()
        .map(|name| json!({"kind": "InClusterIPPool", "name": name}))
        .collect();
    json!({ "pools": pools })
}

/// Pool `name` with addresses 10.0.N.1 to 10.0.N.`count`, where N is its place in the alphabet.
fn apply_member(ledger: &mut Ledger, name: &str, count: u8, labels: serde_json::Value) {
    let number = name.as_bytes()[0] - b'a';
    let addresses = format!("10.0.{number}.1-10.0.{number}.{count}");
    ledger.apply_pool(&pool(json!({
        "metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"addresses": [addresses]},
    })));
}

/// Three pools with these numbers of addresses, and a set of them.
fn with_set(counts: [u8; 3]) -> Ledger {
    let mut ledger = ledger();
    for (name, count) in LISTED.into_iter().zip(counts) {
        apply_member(&mut ledger, name, count, json!({"zone": name}));
    }
    apply_set(&mut ledger, listed(&LISTED));
    take(&mut ledger);
    ledger
}

fn names(pools: Vec<PoolKey>) -> String {
    let names: Vec<String> = pools.iter().map(|pool| pool.name.to_string()).collect();
    names.join("")
}

fn free_members(ledger: &Ledger, name: &str, domains: Domains<'_>) -> String {
    let uid = format!("uid-{name}");
    names(ledger.free_members(&set_key(), &claim(name), Uid::of(&uid), domains))
}

/// Requests an address of each member as the handler does. Returns the pool.
fn request(ledger: &mut Ledger, name: &str) -> Option<String> {
    let uid = Uid::of(format!("uid-{name}").as_str());
    ledger.set_or_wait(&set_key(), &claim(name));
    let free = ledger.free_members(&set_key(), &claim(name), uid, Domains::Any);
    let all = ledger.members(&set_key(), Domains::Any);
    for pool in free.iter().chain(&all) {
        ledger.try_member(&set_key(), &claim(name), pool);
        if let Outcome::Offer(slot) = ledger.propose(pool, &claim(name), 1) {
            ledger.leave_set(&set_key(), &claim(name));
            let reservation = reserved(pool, &slot, name);
            ledger.insert_reservation(&reservation);
            return Some(pool.name.to_string());
        }
    }
    None
}

fn reserved(pool: &PoolKey, slot: &Slot, name: &str) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("r-{name}")},
        "spec": {"scope": slot.scope.name(), "address": slot.block.to_string(), "claimRef": held_by(name),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool.name}},
    }))
    .unwrap()
}

/// The address of the claim is free again.
fn release(ledger: &mut Ledger, name: &str) {
    let uid = Uid::of(format!("uid-{name}").as_str());
    let held = ledger.addresses().held_by(&claim(name), uid);
    for held in held {
        ledger.remove_reservation_of(&held.slot, &held.uid);
    }
}

#[test]
fn only_members_with_free_addresses_are_tried() {
    let mut ledger = with_set([1, 2, 1]);
    assert_eq!(free_members(&ledger, "x", Domains::Any), "abc");
    let bound: Vec<_> = ["1", "2", "3", "4", "5"]
        .map(|name| request(&mut ledger, name).unwrap_or_default())
        .into();
    assert_eq!(bound, ["a", "b", "b", "c", ""]);
    assert_eq!(free_members(&ledger, "x", Domains::Any), "");
    release(&mut ledger, "2");
    assert_eq!(names(ledger.members(&set_key(), Domains::Any)), "abc");
}

#[test]
fn member_with_most_free_addresses_is_first() {
    let mut ledger = with_set([2, 4, 3]);
    let mut spec = listed(&LISTED);
    spec["choose"] = json!("MostFree");
    apply_set(&mut ledger, spec);
    let bound = ["1", "2", "3", "4"].map(|name| request(&mut ledger, name).unwrap());
    assert_eq!(bound, ["b", "b", "c", "a"], "of equal ones, the first one");
    assert_eq!(free_members(&ledger, "x", Domains::Any), "bca");
}

#[test]
fn failure_domain_decides_by_the_label_of_the_pool() {
    let mut ledger = with_set([1, 1, 1]);
    let zone = |name: &str| json!({"topology.kubernetes.io/zone": name});
    for (name, label) in [("a", "west"), ("b", "east"), ("c", "east")] {
        apply_member(&mut ledger, name, 1, zone(label));
    }
    let free = |ledger: &Ledger, domains| free_members(ledger, "x", domains);
    assert_eq!(free(&ledger, Domains::Only("east")), "bc");
    assert_eq!(free(&ledger, Domains::First("east")), "bca");
    assert_eq!(free(&ledger, Domains::Only("north")), "");
    assert_eq!(free(&ledger, Domains::First("north")), "abc");
    apply_member(&mut ledger, "c", 1, zone("west"));
    assert_eq!(free(&ledger, Domains::Only("east")), "b");
}

#[test]
fn waiting_claim_is_woken_by_any_member_and_leaves_the_others() {
    let mut ledger = with_set([1, 1, 0]);
    for name in ["1", "2"] {
        request(&mut ledger, name).unwrap();
    }
    assert_eq!(request(&mut ledger, "3"), None);
    assert_eq!(request(&mut ledger, "4"), None);
    take(&mut ledger);
    release(&mut ledger, "2");
    assert_eq!(take(&mut ledger), [claim("3")], "the first one");
    assert_eq!(free_members(&ledger, "3", Domains::Any), "b");
    assert_eq!(request(&mut ledger, "3").as_deref(), Some("b"));
    take(&mut ledger);
    release(&mut ledger, "1");
    assert_eq!(take(&mut ledger), [claim("4")], "3 waits for nothing");
    assert_eq!(request(&mut ledger, "4").as_deref(), Some("a"));
    assert_eq!(
        ledger.pools.get(&named("a")).unwrap().wait_queue.waiting(),
        0
    );
}

#[test]
fn turns_in_several_members_are_for_the_next_claims() {
    let mut ledger = with_set([1, 1, 0]);
    for name in ["1", "2"] {
        request(&mut ledger, name).unwrap();
    }
    for name in ["3", "4"] {
        assert_eq!(request(&mut ledger, name), None);
    }
    take(&mut ledger);
    release(&mut ledger, "1");
    release(&mut ledger, "2");
    assert_eq!(take(&mut ledger), [claim("3"), claim("3")]);
    request(&mut ledger, "3").unwrap();
    assert_eq!(take(&mut ledger), [claim("4")]);
    assert!(request(&mut ledger, "4").is_some());
}

#[test]
fn claims_of_the_pool_and_of_the_set_have_one_order() {
    let mut ledger = with_set([1, 0, 0]);
    request(&mut ledger, "1").unwrap();
    assert_eq!(
        ledger.propose(&named("a"), &claim("direct"), 1),
        Outcome::NO_ADDRESS
    );
    assert_eq!(request(&mut ledger, "of-set"), None);
    take(&mut ledger);
    release(&mut ledger, "1");
    assert_eq!(take(&mut ledger), [claim("direct")]);
}

#[test]
fn recorded_member_is_that_of_reservation_or_attempt() {
    let mut ledger = with_set([1, 1, 1]);
    let uid = Uid::of("uid-x");
    assert_eq!(ledger.recorded_pool(&claim("x"), uid), None);
    let slot = Slot {
        scope: Scope::Pool(named("c")),
        block: Block::address([10, 0, 2, 1].into()),
    };
    ledger
        .addresses_mut()
        .remember_attempt(uid, &named("c"), &slot);
    assert_eq!(ledger.recorded_pool(&claim("x"), uid), Some(named("c")));
    request(&mut ledger, "x").unwrap();
    assert_eq!(ledger.recorded_pool(&claim("x"), uid), Some(named("a")));
    apply_set(&mut ledger, listed(&["b"]));
    assert_eq!(
        ledger.recorded_pool(&claim("x"), uid),
        Some(named("a")),
        "it has left the set"
    );
    // Another manager has chosen another member, and created the IPAddress.
    let mut other = reserved(&named("c"), &slot, "x");
    other.metadata.uid = Some("other".to_owned());
    ledger.insert_reservation(&other);
    let mut address = address_of_set("x", "InClusterIPPool/c");
    address.spec.address = "10.0.2.1".to_owned();
    ledger.apply(&address);
    assert_eq!(ledger.recorded_pool(&claim("x"), uid), Some(named("c")));
}

#[test]
fn promise_in_a_member_is_tried_first_and_one_elsewhere_is_not() {
    let mut ledger = with_set([1, 1, 1]);
    apply_member(&mut ledger, "d", 1, json!({}));
    for (pool, number) in [("d", 3), ("c", 2)] {
        let slot = Slot {
            scope: Scope::Pool(named(pool)),
            block: Block::address([10, 0, number, 1].into()),
        };
        let mut promise = reserved(&named(pool), &slot, "vip");
        promise.metadata.uid = Some(pool.to_owned());
        promise.spec.claim_ref.as_mut().unwrap().uid = None;
        ledger.insert_reservation(&promise);
    }
    assert_eq!(free_members(&ledger, "vip", Domains::Any), "cab");
    assert_eq!(free_members(&ledger, "x", Domains::Any), "ab");
    apply_member(
        &mut ledger,
        "b",
        2,
        json!({"topology.kubernetes.io/zone": "east"}),
    );
    assert_eq!(free_members(&ledger, "vip", Domains::Only("east")), "cb");
    assert_eq!(free_members(&ledger, "vip", Domains::First("east")), "cba");
}

#[test]
fn selected_members_follow_labels_and_wake_claims() {
    let mut ledger = with_set([0, 0, 0]);
    apply_set(
        &mut ledger,
        json!({"selector": {"matchLabels": {"zone": "b"}}}),
    );
    assert_eq!(names(ledger.members(&set_key(), Domains::Any)), "b");
    assert_eq!(request(&mut ledger, "1"), None);
    take(&mut ledger);
    apply_member(&mut ledger, "c", 1, json!({"zone": "b"}));
    assert!(take(&mut ledger).contains(&claim("1")));
    assert_eq!(free_members(&ledger, "1", Domains::Any), "c");
    let global: Pool = serde_json::from_value(json!({
        "kind": "GlobalInClusterIPPool",
        "metadata": {"name": "g", "uid": "g", "labels": {"zone": "b"}, "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": {"addresses": ["10.1.0.1"], "prefix": 24},
    }))
    .unwrap();
    ledger.apply_pool(&global);
    assert_eq!(names(ledger.members(&set_key(), Domains::Any)), "bcg");
    ledger.remove_pool(&named("c"));
    assert_eq!(names(ledger.members(&set_key(), Domains::Any)), "bg");
    assert_eq!(free_members(&ledger, "1", Domains::Any), "g");
}

#[test]
fn claims_wait_for_a_set_that_does_not_exist() {
    let mut ledger = ledger();
    let lookup = |ledger: &mut Ledger| ledger.set_or_wait(&set_key(), &claim("1"));
    assert_eq!(lookup(&mut ledger), PoolLookup::NotSeenYet);
    assert_eq!(lookup(&mut ledger), PoolLookup::Missing);
    apply_set(&mut ledger, listed(&["a"]));
    assert_eq!(take(&mut ledger), [claim("1")]);
    assert!(matches!(lookup(&mut ledger), PoolLookup::Found(_)));
    // A list that does not show it, and one that shows it undecodable.
    ledger.begin_set_list(PoolSetKind::Namespaced);
    ledger.apply_set(&set_key(), None);
    ledger.end_set_list(PoolSetKind::Namespaced);
    assert!(matches!(lookup(&mut ledger), PoolLookup::Found(_)));
    // Lists of both kinds at the same time.
    ledger.begin_set_list(PoolSetKind::Namespaced);
    ledger.apply_set(&set_key(), None);
    ledger.begin_set_list(PoolSetKind::Global);
    ledger.end_set_list(PoolSetKind::Namespaced);
    ledger.end_set_list(PoolSetKind::Global);
    assert!(matches!(lookup(&mut ledger), PoolLookup::Found(_)));
    ledger.begin_set_list(PoolSetKind::Namespaced);
    ledger.end_set_list(PoolSetKind::Namespaced);
    assert_eq!(lookup(&mut ledger), PoolLookup::Missing);
    ledger.leave_set(&set_key(), &claim("1"));
    assert_eq!(
        lookup(&mut ledger),
        PoolLookup::NotSeenYet,
        "nothing is left of it"
    );
}

#[test]
fn report_sums_the_members_and_notifies_once() {
    let mut ledger = with_set([1, 2, 3]);
    apply_set(&mut ledger, listed(&["a", "b", "lost"]));
    request(&mut ledger, "1").unwrap();
    assert_eq!(ledger.take_effects().sets, [set_key()]);
    let report = ledger.set_report(&set_key()).unwrap();
    let counts = &report.counts;
    assert_eq!((counts.pools, counts.total, counts.free), (2, 3, 2));
    assert_eq!((report.ready, report.missing), (2, vec![named("lost")]));
    request(&mut ledger, "2").unwrap();
    request(&mut ledger, "3").unwrap();
    assert_eq!(ledger.take_effects().sets, [set_key()]);
    request(&mut ledger, "4");
    assert!(
        ledger.take_effects().sets.is_empty(),
        "it is notified already"
    );
}

/// The IPAddress 10.0.0.1 of a claim of the set.
fn address_of_set(name: &str, member: &str) -> IPAddress {
    let mut address = address(name, 1);
    address.spec.pool_ref.kind = "IPPoolSet".to_owned();
    address.spec.pool_ref.name = "s".to_owned();
    let owner = json!([{"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": name,
                        "uid": format!("uid-{name}")}]);
    address.metadata.owner_references = Some(serde_json::from_value(owner).unwrap());
    annotate(&mut address, Some(member.to_owned()));
    address
}

fn annotate(address: &mut IPAddress, member: Option<String>) {
    let key = "ipam.cluster.x-k8s.io/member-pool".to_owned();
    address.metadata.annotations = member.map(|member| BTreeMap::from([(key, member)]));
}

#[test]
fn address_of_a_set_is_in_use_in_its_member() {
    let mut ledger = with_set([2, 1, 1]);
    let mut address = address_of_set("1", "InClusterIPPool/a");
    request(&mut ledger, "1");
    ledger.apply(&address);
    let counts = ledger.pools().counts(&named("a"));
    assert_eq!((counts.used, counts.free), (1, 1));
    // Without the annotation it is of the pool that is known.
    annotate(&mut address, None);
    ledger.apply(&address);
    assert_eq!(ledger.pools().counts(&named("a")).used, 1);
    annotate(&mut address, Some("InClusterIPPool/b".to_owned()));
    // A user can write any annotation: the address stays in use where it is.
    ledger.apply(&address);
    assert_eq!(ledger.pools().counts(&named("a")).used, 1);
    assert_eq!(ledger.pools().counts(&named("b")).out_of_range, 0);
    annotate(&mut address, None);
    ledger.delete(&address);
    assert_eq!(ledger.pools().counts(&named("a")).used, 0);
}

#[test]
fn reservation_decides_of_which_member_an_address_is() {
    let pool = named("a");
    let slot = Slot {
        scope: Scope::Pool(pool.clone()),
        block: Block::address([10, 0, 0, 1].into()),
    };
    let reservation = reserved(&pool, &slot, "1");
    // A user has edited the annotation while no manager ran.
    let address = address_of_set("1", "InClusterIPPool/b");
    for reservation_is_first in [true, false] {
        let mut ledger = with_set([2, 1, 1]);
        if reservation_is_first {
            ledger.insert_reservation(&reservation);
        }
        ledger.apply(&address);
        ledger.insert_reservation(&reservation);
        let used = |name| ledger.pools().counts(&named(name)).used;
        assert_eq!((used("a"), used("b")), (1, 0), "{reservation_is_first}");
        let others = ledger.pools().counts(&named("b")).out_of_range;
        assert_eq!(others, 0, "{reservation_is_first}");
        let uid = Uid::of("uid-1");
        assert_eq!(
            ledger.member_of_address(&address, Some(uid)),
            Some(pool.clone())
        );
        ledger.delete(&address);
        ledger.remove_reservation_of(&slot, "r-1");
        assert_eq!(ledger.pools().counts(&pool).free, 2);
    }
}

#[test]
fn address_that_a_list_lacks_is_of_no_known_member() {
    let mut ledger = with_set([2, 1, 1]);
    ledger.apply(&address_of_set("1", "InClusterIPPool/a"));
    Observe::<IPAddress>::init(&mut ledger);
    Observe::<IPAddress>::init_done(&mut ledger);
    assert_eq!(ledger.pools().counts(&named("a")).used, 0);
    // Another IPAddress of the name, in another member.
    let mut other = address_of_set("1", "InClusterIPPool/b");
    other.spec.address = "10.0.1.1".to_owned();
    ledger.apply(&other);
    assert_eq!(ledger.pools().counts(&named("a")).used, 0);
    assert_eq!(ledger.pools().counts(&named("b")).used, 1);
}

/// A user has edited the annotation of an IPAddress that an earlier claim has left behind: no other
/// claim gets the address, in whatever order pools and IPAddresses are observed.
#[test]
fn annotation_of_a_pool_without_the_address_does_not_free_it() {
    for (annotation, pools_are_first) in [
        ("InClusterIPPool/b", true),
        ("InClusterIPPool/b", false),
        ("InClusterIPPool/unknown", false),
        ("", true),
        ("", false),
    ] {
        let address = address_of_set("1", annotation);
        let mut ledger = with_set(if pools_are_first {
            [1, 0, 0]
        } else {
            [0, 0, 0]
        });
        ledger.apply(&address);
        apply_member(&mut ledger, "a", 1, json!({}));
        let counts = ledger.pools().counts(&named("a"));
        assert_eq!(
            (counts.used, counts.free),
            (1, 0),
            "{annotation} {pools_are_first}"
        );
        let found = ledger.member_of_address(&address, Some(Uid::of("uid-2")));
        assert_eq!(found, Some(named("a")), "{annotation} {pools_are_first}");
        ledger.delete(&address);
        assert_eq!(ledger.pools().counts(&named("a")).free, 1);
        assert_eq!(ledger.pools().counts(&named("b")).out_of_range, 0);
    }
}

#[test]
fn claim_that_another_manager_has_served_leaves_the_set() {
    let mut ledger = with_set([0, 0, 0]);
    assert_eq!(request(&mut ledger, "1"), None);
    let mut address = address_of_set("1", "");
    annotate(&mut address, None);
    ledger.apply(&address);
    for name in LISTED {
        assert!(
            !ledger
                .pools
                .get(&named(name))
                .unwrap()
                .wait_queue
                .waits(&claim("1")),
            "{name}"
        );
    }
}

/// A step of the model. Claims are numbers.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The claim is created, and requests an address.
    Create(u8),
    /// The same, and the process ends between the reservation and its response.
    Crash(u8),
    /// A user changes the annotation of the IPAddress, or removes it.
    Annotate(u8, u8),
    /// The claim is deleted.
    Delete(u8),
    /// The set has these members.
    Members(u8),
}

/// The API server, and a process with its ledger.
struct World {
    ledger: Ledger,
    members: Vec<&'static str>,
    /// The reservation of each claim that has one, as the API server has it.
    reservations: BTreeMap<u8, IPReservation>,
    /// The IPAddress of each claim that has one.
    addresses: BTreeMap<u8, IPAddress>,
    waiting: BTreeSet<u8>,
    /// The number of reservations that were created.
    created: u32,
}

impl World {
    fn start(&mut self) {
        self.ledger = with_set([1, 2, 1]);
        apply_set(&mut self.ledger, listed(&self.members));
        let addresses_are_first = self.created.is_multiple_of(2);
        for are_addresses in [addresses_are_first, !addresses_are_first] {
            if are_addresses {
                for address in self.addresses.values() {
                    self.ledger.apply(address);
                }
            } else {
                for reservation in self.reservations.values() {
                    self.ledger.apply(reservation);
                }
            }
        }
        for (number, reservation) in self.reservations.clone() {
            if !self.addresses.contains_key(&number) {
                self.bind(number, &reservation);
            }
        }
        for number in self.waiting.clone() {
            self.request(number, false);
        }
    }

    /// Creates the IPAddress of a claim.
    fn bind(&mut self, number: u8, reservation: &IPReservation) {
        let member = PoolKey::of_reservation(&reservation.spec.pool_ref).unwrap();
        let mut address = address_of_set(&number.to_string(), &member.to_member_annotation());
        address.spec.address.clone_from(&reservation.spec.address);
        self.ledger.apply(&address);
        self.addresses.insert(number, address);
    }

    fn request(&mut self, number: u8, crashes: bool) {
        let (name, ledger) = (number.to_string(), &mut self.ledger);
        let (key, uid) = (claim(&name), Uid::of(&format!("uid-{name}")));
        assert!(
            ledger.recorded_pool(&key, uid).is_none() && !self.reservations.contains_key(&number)
        );
        ledger.set_or_wait(&set_key(), &key);
        let free = ledger.free_members(&set_key(), &key, uid, Domains::Any);
        let all = ledger.members(&set_key(), Domains::Any);
        for pool in free.iter().chain(&all) {
            ledger.try_member(&set_key(), &key, pool);
            let Outcome::Offer(slot) = ledger.propose(pool, &key, 1) else {
                continue;
            };
            let mut reservation = reserved(pool, &slot, &name);
            self.created += 1;
            reservation.metadata.uid = Some(format!("r-{}", self.created));
            self.reservations.insert(number, reservation.clone());
            self.waiting.remove(&number);
            if crashes {
                return self.start();
            }
            ledger.insert_reservation(&reservation);
            ledger.leave_set(&set_key(), &key);
            self.bind(number, &reservation);
            return;
        }
        self.waiting.insert(number);
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Create(number) | Step::Crash(number) => {
                let exists =
                    self.reservations.contains_key(&number) || self.waiting.contains(&number);
                if !exists {
                    self.request(number, matches!(step, Step::Crash(_)));
                }
            }
            Step::Delete(number) => {
                self.waiting.remove(&number);
                self.ledger
                    .leave_set(&set_key(), &claim(&number.to_string()));
                if let Some(address) = self.addresses.remove(&number) {
                    self.ledger.delete(&address);
                }
                if let Some(reservation) = self.reservations.remove(&number) {
                    self.ledger.delete(&reservation);
                }
            }
            Step::Annotate(number, member) => {
                if let Some(address) = self.addresses.get_mut(&number) {
                    let member = LISTED.get(usize::from(member));
                    annotate(
                        address,
                        member.map(|name| format!("InClusterIPPool/{name}")),
                    );
                    self.ledger.apply(&*address);
                }
            }
            Step::Members(mask) => {
                let of_mask = LISTED
                    .into_iter()
                    .zip(0..)
                    .filter(|(_, bit)| mask & (1 << bit) != 0);
                self.members = of_mask.map(|(name, _)| name).collect();
                apply_set(&mut self.ledger, listed(&self.members));
            }
        }
    }

    /// Reconciles the claims that are woken.
    fn settle(&mut self) {
        for _ in 0..100 {
            let woken = take(&mut self.ledger);
            if woken.is_empty() {
                return;
            }
            for claim in woken {
                let number: u8 = claim.name().parse().unwrap();
                if self.waiting.contains(&number) {
                    self.request(number, false);
                }
            }
        }
        panic!("claims are woken again and again");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..7_u8).prop_map(Step::Create),
        2 => (0..7_u8).prop_map(Step::Crash),
        4 => (0..7_u8).prop_map(Step::Delete),
        2 => (0..7_u8, 0..4_u8).prop_map(|(number, member)| Step::Annotate(number, member)),
        1 => (1..8_u8).prop_map(Step::Members),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// A claim gets one address and keeps it, whatever becomes of the members and of the process, and
    /// none waits while a member has a free address.
    #[test]
    fn claims_get_one_address_and_none_waits_in_vain(steps in steps()) {
        let mut world = World {
            ledger: ledger(),
            members: LISTED.into(),
            reservations: BTreeMap::new(),
            addresses: BTreeMap::new(),
            waiting: BTreeSet::new(),
            created: 0,
        };
        world.start();
        for step in steps {
            world.perform(step);
            world.settle();
            for (number, reservation) in &world.reservations {
                let name = number.to_string();
                let recorded = world.ledger.recorded_pool(&claim(&name), Uid::of(&format!("uid-{name}")));
                prop_assert_eq!(recorded, PoolKey::of_reservation(&reservation.spec.pool_ref));
            }
            for name in LISTED {
                let of_pool = |found: &&IPReservation| found.spec.pool_ref.name == name;
                let used = world.reservations.values().filter(of_pool).count();
                let counts = world.ledger.pools().counts(&named(name));
                prop_assert_eq!((counts.used, counts.out_of_range), (i64::try_from(used).unwrap(), 0), "{}", name);
            }
            let pools = world.ledger.members(&set_key(), Domains::Any);
            let free: i64 = pools.iter().map(|pool| world.ledger.pools().counts(pool).free).sum();
            prop_assert!(free == 0 || world.waiting.is_empty(), "{free} free, {:?} wait", world.waiting);
        }
    }
}
