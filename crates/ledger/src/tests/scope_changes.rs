//! A pool never changes its scope without an explicit change of the pool or of a valid network,
//! whatever two managers observe, and in whatever order.

#![allow(
    clippy::option_option,
    reason = "an absent selector differs from an empty one"
)]

use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;
use capi_ipam_api::{MemberPhase, PoolNetwork};

use super::*;

const POOLS: [&str; 3] = ["p", "q", "r"];
const NETWORKS: [&str; 2] = ["lab", "other"];
const SITES: [Option<&str>; 3] = [None, Some("a"), Some("b")];

#[derive(Clone, Debug, PartialEq)]
struct PoolObject {
    generation: i64,
    /// The labels, as an index of `SITES`.
    site: usize,
    names: Option<usize>,
    /// The network that it leaves by its annotation.
    leaves: Option<usize>,
    is_decodable: bool,
    status: Option<Option<PoolNetwork>>,
}

#[derive(Clone, Debug, PartialEq)]
struct NetworkObject {
    uid: usize,
    generation: i64,
    /// The label that it selects; `Some(None)` for all pools.
    selector: Option<Option<usize>>,
    allows: Allows,
    is_valid: bool,
    is_deleting: bool,
    length: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Allows {
    All,
    None,
    Labelled,
}

/// The reservations, by slot: the number of the pool.
type Reservations = BTreeMap<Slot, usize>;

/// What is stored, or what a manager has observed of it.
#[derive(Clone, Debug, PartialEq)]
struct Objects {
    pools: [PoolObject; POOLS.len()],
    networks: [Option<NetworkObject>; NETWORKS.len()],
    /// The number of networks that were created: a network that is created again has another uid.
    created: usize,
    has_label: bool,
    reservations: Reservations,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Pools,
    Network(usize),
    Namespaces,
    Reservations,
}

const KINDS: [Kind; 5] = [
    Kind::Pools,
    Kind::Network(0),
    Kind::Network(1),
    Kind::Namespaces,
    Kind::Reservations,
];

#[derive(Clone, Debug)]
enum Step {
    Label(usize, usize),
    Name(usize, Option<usize>),
    /// The annotation that makes a pool with addresses in use leave its network.
    Leave(usize, Option<usize>),
    Decode(usize, bool),
    Select(usize, Option<Option<usize>>),
    Allow(usize, Allows),
    Validate(usize, bool),
    Delete(usize),
    /// The object vanishes although pools belong to it.
    Force(usize),
    /// The object is created, or restored without its status.
    Create(usize),
    Length(usize, Option<u8>),
    LabelNamespace(bool),
    /// A manager observes the current objects of a kind.
    Observe(usize, Kind),
    Restart(usize, Vec<Kind>),
    Allocate(usize, usize, u8),
    Release(u8),
    WriteStatus(usize, usize),
    Move(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pool = || 0..POOLS.len();
    let network = || 0..NETWORKS.len();
    let manager = || 0..2_usize;
    let selector = prop_oneof![
        Just(None),
        Just(Some(None)),
        (0..SITES.len()).prop_map(|site| Some(Some(site)))
    ];
    let allows =
        prop_oneof![4 => Just(Allows::All), 1 => Just(Allows::None), 2 => Just(Allows::Labelled)];
    let length = prop_oneof![4 => Just(Some(32)), 1 => Just(Some(28)), 1 => Just(None)];
    let step = prop_oneof![
        2 => (pool(), 0..SITES.len()).prop_map(|(pool, site)| Step::Label(pool, site)),
        2 => (pool(), proptest::option::of(network())).prop_map(|(pool, name)| Step::Name(pool, name)),
        1 => (pool(), proptest::option::of(network())).prop_map(|(pool, name)| Step::Leave(pool, name)),
        2 => (pool(), any::<bool>()).prop_map(|(pool, is_valid)| Step::Decode(pool, is_valid)),
        2 => (network(), selector).prop_map(|(network, selector)| Step::Select(network, selector)),
        1 => (network(), allows).prop_map(|(network, allows)| Step::Allow(network, allows)),
        2 => (network(), any::<bool>()).prop_map(|(network, is_valid)| Step::Validate(network, is_valid)),
        1 => network().prop_map(Step::Delete),
        1 => network().prop_map(Step::Force),
        3 => network().prop_map(Step::Create),
        1 => (network(), length).prop_map(|(network, length)| Step::Length(network, length)),
        1 => any::<bool>().prop_map(Step::LabelNamespace),
        12 => (manager(), proptest::sample::select(&KINDS[..])).prop_map(|(by, kind)| Step::Observe(by, kind)),
        1 => (manager(), Just(KINDS.to_vec()).prop_shuffle()).prop_map(|(by, kinds)| Step::Restart(by, kinds)),
        4 => (manager(), pool(), 1..=8_u8).prop_map(|(by, pool, last)| Step::Allocate(by, pool, last)),
        1 => (1..=8_u8).prop_map(Step::Release),
        4 => (manager(), pool()).prop_map(|(by, pool)| Step::WriteStatus(by, pool)),
        2 => manager().prop_map(Step::Move),
    ];
    proptest::collection::vec(step, 0..80)
}

impl PoolObject {
    /// What is known of a pool after it is observed in this state: the metadata only, if it cannot
    /// be decoded.
    fn followed_by(&self, observed: &Self) -> Self {
        if observed.is_decodable {
            return observed.clone();
        }
        Self {
            generation: observed.generation,
            site: observed.site,
            is_decodable: false,
            ..self.clone()
        }
    }
}

impl Objects {
    fn new() -> Self {
        let pool = PoolObject {
            generation: 1,
            site: 1,
            names: None,
            leaves: None,
            is_decodable: true,
            status: None,
        };
        let lab = NetworkObject {
            uid: 0,
            generation: 1,
            selector: Some(Some(1)),
            allows: Allows::All,
            is_valid: true,
            is_deleting: false,
            length: Some(32),
        };
        Self {
            pools: std::array::from_fn(|_| pool.clone()),
            networks: [Some(lab), None],
            created: 1,
            has_label: true,
            reservations: BTreeMap::new(),
        }
    }

    fn edit_pool(&mut self, pool: usize, edit: impl FnOnce(&mut PoolObject)) {
        self.pools[pool].generation += 1;
        edit(&mut self.pools[pool]);
    }

    fn edit_network(&mut self, network: usize, edit: impl FnOnce(&mut NetworkObject)) {
        if let Some(found) = &mut self.networks[network] {
            found.generation += 1;
            edit(found);
        }
    }

    fn pool(&self, index: usize) -> Pool {
        let PoolObject {
            generation,
            site,
            names,
            leaves,
            status,
            ..
        } = &self.pools[index];
        let name = POOLS[index];
        let status = status
            .as_ref()
            .map(|network| json!({"observedGeneration": 1, "network": network}));
        pool(json!({
            "metadata": {"name": name, "uid": name, "generation": generation, "labels": {"site": SITES[*site]},
                         "annotations": {LEAVE_NETWORK_ANNOTATION: leaves.map(|network| NETWORKS[network])}},
            "spec": {"network": names.map(|network| NETWORKS[network])},
            "status": status,
        }))
    }

    fn network(&self, index: usize) -> Option<IPNetwork> {
        let NetworkObject {
            uid,
            generation,
            selector,
            allows,
            is_valid,
            is_deleting,
            length,
        } = self.networks[index].as_ref()?;
        let name = NETWORKS[index];
        let selector = selector.map(|site| match site.map(|site| SITES[site]) {
            Some(Some(site)) => json!({"matchLabels": {"site": site}}),
            Some(None) => {
                json!({"matchExpressions": [{"key": "site", "operator": "DoesNotExist"}]})
            }
            None => json!({}),
        });
        let namespaces = match allows {
            Allows::All => json!({"from": "All"}),
            Allows::None => json!({"from": "None"}),
            Allows::Labelled => {
                json!({"from": "Selector", "selector": {"matchLabels": {"tenant": "a"}}})
            }
        };
        let excluded = if *is_valid {
            json!(null)
        } else {
            json!(["fd00::9-fd00::1"])
        };
        let deletion = is_deleting.then_some("2026-01-01T00:00:00Z");
        Some(lab(json!({
            "metadata": {"name": name, "uid": format!("{name}-{uid}"), "generation": generation,
                         "deletionTimestamp": deletion},
            "spec": {"pools": selector, "namespaces": namespaces, "excluded": excluded},
            "status": {"blockLengths": {"ipv4": length}},
        })))
    }

    fn selects(&self, network: usize, pool: usize) -> bool {
        let selector = self.networks[network]
            .as_ref()
            .and_then(|network| network.selector);
        selector.is_some_and(|site| site.is_none_or(|site| site == self.pools[pool].site))
    }

    /// Whether pools can join a network, or stay in it and allocate.
    fn is_usable(&self, network: usize) -> bool {
        let Some(found) = &self.networks[network] else {
            return false;
        };
        let is_allowed = match found.allows {
            Allows::All => true,
            Allows::None => false,
            Allows::Labelled => self.has_label,
        };
        found.is_valid && !found.is_deleting && is_allowed && found.length == Some(32)
    }
}

fn reserved(slot: &Slot, pool: usize) -> IPReservation {
    let claim = held_by(&format!("{}-{}", POOLS[pool], slot.block.base()));
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("{}-{pool}", slot.reservation_name())},
        "spec": {"scope": slot.scope.name(), "address": slot.block.base().to_string(), "claimRef": claim,
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": POOLS[pool]}},
    }))
    .unwrap()
}

struct Manager {
    ledger: Ledger,
    /// What it has observed.
    seen: Objects,
    /// The networks that each pool has named since the start.
    named: [BTreeSet<usize>; POOLS.len()],
}

impl Manager {
    fn started(objects: &Objects, kinds: &[Kind]) -> Self {
        let mut empty = Objects::new();
        empty.networks = [None, None];
        let mut manager = Self {
            ledger: ledger(),
            seen: empty,
            named: Default::default(),
        };
        // Whether a pool is in use is not known before.
        Observe::<IPReservation>::init(&mut manager.ledger);
        for kind in kinds {
            manager.observe(objects, *kind);
            if *kind == Kind::Reservations {
                Observe::<IPReservation>::init_done(&mut manager.ledger);
            }
        }
        manager
    }

    fn observe(&mut self, objects: &Objects, kind: Kind) {
        let Self {
            ledger,
            seen,
            named,
        } = self;
        match kind {
            Kind::Pools => {
                for (pool, named) in named.iter_mut().enumerate() {
                    observe_pool(ledger, objects, pool);
                    seen.pools[pool] = seen.pools[pool].followed_by(&objects.pools[pool]);
                    named.extend(seen.pools[pool].names);
                }
            }
            Kind::Network(network) => {
                match objects.network(network) {
                    Some(found) => ledger.apply_network(&found),
                    None => remove_network(ledger, NETWORKS[network]),
                }
                seen.networks[network].clone_from(&objects.networks[network]);
            }
            Kind::Namespaces => {
                let labels = objects
                    .has_label
                    .then(|| ("tenant".to_owned(), "a".to_owned()));
                set_namespace(ledger, "n", &labels.into_iter().collect());
                seen.has_label = objects.has_label;
            }
            Kind::Reservations => {
                objects
                    .reservations
                    .iter()
                    .for_each(|(slot, pool)| ledger.apply(&reserved(slot, *pool)));
                for (slot, pool) in &seen.reservations {
                    if objects.reservations.get(slot) != Some(pool) {
                        ledger.delete(&reserved(slot, *pool));
                    }
                }
                seen.reservations.clone_from(&objects.reservations);
            }
        }
    }

    fn scope(&self, pool: usize) -> Scope {
        scope_of(&self.ledger, POOLS[pool])
    }

    fn can_allocate(&self, pool: usize) -> bool {
        self.ledger
            .pools()
            .pool_info(&named(POOLS[pool]))
            .is_some_and(|info| info.can_allocate())
    }
}

/// A pool that cannot be decoded shows its metadata only.
fn observe_pool(ledger: &mut Ledger, objects: &Objects, pool: usize) {
    let object = objects.pool(pool);
    if objects.pools[pool].is_decodable {
        ledger.apply_pool(&object);
    } else {
        let invalid = Invalid {
            spec: serde_json::Value::Null,
            error: "no list".to_owned(),
            metadata: Box::new(object.metadata),
        };
        ledger.apply_invalid_pool(&named(POOLS[pool]), &invalid);
    }
}

fn index_of(scope: &Scope) -> Option<usize> {
    NETWORKS
        .iter()
        .position(|network| scope.network() == Some(network))
}

/// Whether what a manager has observed permits that a pool leaves or joins a network.
fn is_explicit(manager: &Manager, pool: usize, from: &Scope, to: &Scope) -> bool {
    let (seen, object) = (&manager.seen, &manager.seen.pools[pool]);
    let status = object.status.clone().flatten();
    let may_leave = index_of(from).is_none_or(|network| {
        let is_valid = seen.networks[network]
            .as_ref()
            .is_some_and(|network| network.is_valid);
        let is_deselected =
            is_valid && !seen.selects(network, pool) && object.names != Some(network);
        // It may have named another network in between, which has not accepted it.
        let was_named = !manager.named[pool].is_empty();
        let is_unnamed = was_named && object.names.is_none();
        let has_left = is_deselected || is_unnamed;
        let is_in_use = seen
            .reservations
            .iter()
            .any(|(slot, by)| *by == pool && slot.scope == *from);
        // With addresses in use it needs an explicit word. Another manager may not have observed
        // them.
        let is_recorded = status.as_ref().is_none_or(|status| {
            status.name != NETWORKS[network] || status.phase == MemberPhase::Leaving
        });
        let may_leave = !is_in_use || object.leaves == Some(network) || is_recorded;
        let names_another = object
            .names
            .is_some_and(|other| other != network && seen.is_usable(other));
        (has_left && may_leave) || names_another
    });
    let may_join = index_of(to).is_none_or(|network| {
        let asks = object
            .names
            .map_or_else(|| seen.selects(network, pool), |name| name == network);
        let is_reserved = seen
            .reservations
            .iter()
            .any(|(slot, by)| *by == pool && index_of(&slot.scope) == Some(network));
        let is_recorded = status
            .as_ref()
            .is_some_and(|status| status.name == NETWORKS[network]);
        // With addresses in use it is kept in the network, and allocates.
        (asks && seen.is_usable(network))
            || is_reserved
            || (is_recorded && !manager.can_allocate(pool))
    });
    may_leave && may_join
}

/// Whether a manager has adopted the scope of a pool that another one has recorded, after an
/// explicit change that it has not observed itself. It does so only for a pool that cannot
/// allocate. The pool may have left that scope since.
fn is_adopted(manager: &Manager, pool: usize, could_allocate: bool, scope: &Scope) -> bool {
    let status = manager.seen.pools[pool].status.clone().flatten();
    let member = status.filter(|status| status.phase != MemberPhase::Leaving);
    let own = Scope::Pool(named(POOLS[pool]));
    let recorded = member.map_or(own, |status| Scope::Network(status.name.as_str().into()));
    let is_recorded = recorded == *scope && !(could_allocate && manager.can_allocate(pool));
    is_recorded || (!could_allocate && is_explicit(manager, pool, &recorded, scope))
}

/// Executes a step, and checks that no manager changes the scope of a pool without an explicit
/// change.
fn execute(objects: &mut Objects, managers: &mut [Manager; 2], step: &Step) {
    match step {
        Step::Label(pool, site) => objects.edit_pool(*pool, |pool| pool.site = *site),
        Step::Name(pool, network) => objects.edit_pool(*pool, |pool| pool.names = *network),
        Step::Leave(pool, network) => objects.edit_pool(*pool, |pool| pool.leaves = *network),
        Step::Decode(pool, is_valid) => {
            objects.edit_pool(*pool, |pool| pool.is_decodable = *is_valid);
        }
        Step::Select(network, selector) => {
            objects.edit_network(*network, |it| it.selector = *selector);
        }
        Step::Allow(network, allows) => objects.edit_network(*network, |it| it.allows = *allows),
        Step::Validate(network, is_valid) => {
            objects.edit_network(*network, |it| it.is_valid = *is_valid);
        }
        Step::Delete(network) => objects.edit_network(*network, |it| it.is_deleting = true),
        Step::Force(network) => objects.networks[*network] = None,
        Step::Create(network) => {
            if objects.networks[*network].is_none() {
                let created = Objects::new().networks[0].clone();
                objects.networks[*network] = created.map(|created| NetworkObject {
                    uid: objects.created,
                    ..created
                });
                objects.created += 1;
            }
        }
        Step::Length(network, length) => objects.edit_network(*network, |it| it.length = *length),
        Step::LabelNamespace(has_label) => objects.has_label = *has_label,
        Step::Observe(by, kind) => {
            let manager = &mut managers[*by];
            let pools = 0..POOLS.len();
            let before: Vec<_> = pools
                .map(|pool| (manager.scope(pool), manager.can_allocate(pool)))
                .collect();
            manager.observe(objects, *kind);
            for (pool, (before, could_allocate)) in before.iter().enumerate() {
                let after = manager.scope(pool);
                let is_permitted = *before == after
                    || is_explicit(manager, pool, before, &after)
                    || is_adopted(manager, pool, *could_allocate, &after);
                assert!(
                    is_permitted,
                    "{}: {before} -> {after}, {:?}",
                    POOLS[pool], manager.seen
                );
            }
        }
        Step::Restart(by, kinds) => {
            managers[*by] = Manager::started(objects, kinds);
            let manager = &managers[*by];
            for (pool, name) in POOLS.iter().enumerate() {
                let Some(Some(status)) = &objects.pools[pool].status else {
                    continue;
                };
                // It allocates nothing until its status can be read.
                if !objects.pools[pool].is_decodable {
                    continue;
                }
                let recorded = Scope::Network(status.name.as_str().into());
                let after = manager.scope(pool);
                let is_permitted = status.phase == MemberPhase::Leaving
                    || recorded == after
                    || is_explicit(manager, pool, &recorded, &after);
                assert!(
                    is_permitted,
                    "{name}: {recorded} -> {after} after a restart, {:?}",
                    manager.seen
                );
            }
        }
        Step::Allocate(by, pool, last) => {
            let slot = Slot {
                scope: managers[*by].scope(*pool),
                block: block(*last),
            };
            if managers[*by].can_allocate(*pool) {
                objects.reservations.entry(slot).or_insert(*pool);
            }
        }
        Step::Release(last) => objects
            .reservations
            .retain(|slot, _| slot.block != block(*last)),
        Step::WriteStatus(by, pool) => write_status(objects, &managers[*by], *pool),
        Step::Move(by) => move_reservations(objects, &managers[*by]),
    }
    for manager in &*managers {
        for (pool, name) in POOLS.iter().enumerate() {
            let network = index_of(&manager.scope(pool));
            let is_usable = manager.seen.pools[pool].is_decodable
                && network.is_none_or(|network| manager.seen.is_usable(network));
            assert!(
                is_usable || !manager.can_allocate(pool),
                "{name} allocates, {:?}",
                manager.seen
            );
        }
    }
}

/// A status is written with the version of the object as precondition.
fn write_status(objects: &mut Objects, manager: &Manager, pool: usize) {
    let is_decodable = objects.pools[pool].is_decodable;
    if is_decodable && manager.seen.pools[pool] == objects.pools[pool] {
        objects.pools[pool].status = Some(pool_network(&manager.ledger, &named(POOLS[pool])));
    }
}

fn move_reservations(objects: &mut Objects, manager: &Manager) {
    for misplaced in manager.ledger.misplaced(100, |_| true) {
        let target = Slot {
            scope: misplaced.scope,
            block: misplaced.slot.block,
        };
        if let Some(pool) = objects.reservations.get(&misplaced.slot).copied()
            && *objects.reservations.entry(target).or_insert(pool) == pool
        {
            objects.reservations.remove(&misplaced.slot);
        }
    }
}

proptest! {
    #[test]
    fn scope_changes_only_by_an_explicit_change(steps in steps()) {
        let mut objects = Objects::new();
        let mut managers = [(); 2].map(|()| Manager::started(&objects, &KINDS));
        for step in &steps {
            execute(&mut objects, &mut managers, step);
        }
        // In the end both managers observe everything, and agree.
        for pool in 0..POOLS.len() {
            execute(&mut objects, &mut managers, &Step::Decode(pool, true));
        }
        let rounds = [0, 1].into_iter().cycle().take(8);
        for by in rounds {
            for pool in 0..POOLS.len() {
                execute(&mut objects, &mut managers, &Step::WriteStatus(by, pool));
            }
            execute(&mut objects, &mut managers, &Step::Move(by));
            for (observer, kind) in [0, 1].into_iter().flat_map(|observer| KINDS.map(|kind| (observer, kind))) {
                execute(&mut objects, &mut managers, &Step::Observe(observer, kind));
            }
        }
        for pool in POOLS.map(named) {
            let [one, other] = [&managers[0], &managers[1]].map(|manager| {
                let info = manager.ledger.pools().pool_info(&pool).unwrap();
                (info.scope.clone(), info.network_problem.clone(), info.initialized, pool_network(&manager.ledger, &pool))
            });
            prop_assert_eq!(one, other, "{}: {:?}", pool, objects);
        }
    }
}
