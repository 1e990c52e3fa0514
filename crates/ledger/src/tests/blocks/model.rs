//! Allocation in a network that shares blocks agrees with a naive model, after any sequence of
//! changes.

use capi_ipam_contract::IPAddress;

use super::*;

/// The pools contain addresses of 10.0.0.0/27: eight blocks of four addresses.
const ADDRESSES: u8 = 32;
const POOLS: [(&str, u8, u8); 2] = [("p", 1, 30), ("q", 9, 18)];

#[derive(Clone, Debug)]
enum Step {
    /// The watch or a response shows the slice of a block.
    Slice(u8, Shown, bool),
    /// A response is older than what is known.
    LateResponse(u8, Shown),
    UndecodableSlice(u8),
    DeleteSlice(u8),
    /// A list shows the slices of the blocks whose bits are set.
    List(u8),
    Network(NetworkStep),
    Identity(bool),
    /// The registry is listed and shows the blocks whose bits are set, or it is not known what it
    /// shows.
    Recorded(Option<u8>),
    BlockRecorded(u8, bool),
    BeginReturn(u8),
    CancelReturn(u8),
    Propose(usize, Option<u8>),
    /// The candidate with this index is dropped or reserved.
    EndProposal(usize, bool),
    Unreserve(usize),
    Address(u8, bool),
}

#[derive(Clone, Copy, Debug)]
enum NetworkStep {
    Sharing,
    NotSharing,
    Undecodable,
    Remove,
}

/// What a slice says.
#[derive(Clone, Copy, Debug)]
struct Shown {
    is_ours: bool,
    is_confirmed: bool,
    has_conflict: bool,
    is_marked: bool,
    is_deleting: bool,
}

impl Shown {
    fn is_usable(self) -> bool {
        self.is_confirmed && !self.has_conflict && !self.is_marked && !self.is_deleting
    }
}

struct ModelSlice {
    uid: String,
    version: u64,
    /// `None` if the object cannot be decoded.
    shown: Option<Shown>,
    is_returning: bool,
}

/// What the test knows.
#[derive(Default)]
struct Known {
    slices: BTreeMap<u8, ModelSlice>,
    shares_blocks: bool,
    /// Whether the network exists and is valid.
    is_valid: bool,
    network_uid: u64,
    /// Whether the identity of this management cluster is the owner of most slices.
    identity: Option<bool>,
    /// The blocks that the registry shows, once it is listed.
    recorded: Option<BTreeSet<u8>>,
    candidates: BTreeSet<u8>,
    reservations: BTreeMap<u8, IPReservation>,
    addresses: BTreeSet<u8>,
    sequence: u64,
}

impl Known {
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn is_restricted(&self) -> bool {
        self.shares_blocks || !self.slices.is_empty()
    }

    fn is_usable(&self, address: u8) -> bool {
        if !self.is_restricted() {
            return true;
        }
        let Some(slice) = self.slices.get(&(address / 4)) else {
            return false;
        };
        let Some(shown) = slice.shown else {
            return false;
        };
        let is_recorded = match &self.recorded {
            Some(recorded) => !self.shares_blocks || recorded.contains(&(address / 4)),
            None => true,
        };
        let is_ours = self.identity == Some(shown.is_ours) && is_recorded;
        is_ours && shown.is_usable() && !slice.is_returning
    }

    fn is_used(&self, address: u8) -> bool {
        self.candidates.contains(&address)
            || self.reservations.contains_key(&address)
            || self.addresses.contains(&address)
    }

    fn block_is_used(&self, index: u8) -> bool {
        (index * 4..index * 4 + 4).any(|address| self.is_used(address))
    }

    fn can_allocate(&self, address: u8) -> bool {
        self.is_usable(address) && !self.is_used(address)
    }
}

fn identity(is_ours: bool) -> &'static str {
    if is_ours { "west" } else { "east" }
}

fn object(index: u8, uid: &str, version: u64, shown: Shown) -> IPSlice {
    let time = "2026-01-01T00:00:00Z";
    let conflict = json!({"cluster": "north", "since": time});
    slice(
        index * 4,
        json!({
            "metadata": {"uid": uid, "resourceVersion": version.to_string(),
                         "deletionTimestamp": shown.is_deleting.then_some(time)},
            "spec": {"owner": {"name": identity(shown.is_ours)},
                     "confirmedAt": shown.is_confirmed.then_some(time),
                     "conflict": shown.has_conflict.then_some(conflict),
                     "emptySince": shown.is_marked.then_some(time)},
        }),
    )
}

fn in_use(last: u8) -> IPAddress {
    address(&format!("x{last}"), last)
}

fn reserved(last: u8, uid: u64) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": in_lab(last).reservation_name(), "uid": format!("r{uid}")},
        "spec": {"scope": "n.lab", "address": block(last).to_string(), "claimRef": held_by(&format!("c{uid}")),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
    }))
    .unwrap()
}

struct Run {
    ledger: Ledger,
    known: Known,
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            ledger: Ledger::default(),
            known: Known::default(),
        };
        run.network(NetworkStep::NotSharing);
        for (name, first, last) in POOLS {
            let range = format!("10.0.0.{first}-10.0.0.{last}");
            run.ledger.apply_pool(&member(name, &range));
        }
        run
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Slice(index, shown, is_watched) => self.show(index, shown, is_watched),
            Step::LateResponse(index, shown) => {
                if let Some(known) = self.known.slices.get(&index) {
                    let old = object(index, &known.uid, known.version - 1, shown);
                    self.ledger.insert_slice(&old);
                }
            }
            Step::UndecodableSlice(index) => self.show_undecodable(index),
            Step::DeleteSlice(index) => {
                if let Some(known) = self.known.slices.remove(&index) {
                    let last = object(index, &known.uid, known.version, USABLE);
                    self.ledger.delete(&last);
                }
            }
            Step::List(bits) => self.list(bits),
            Step::Network(step) => self.network(step),
            Step::Identity(is_ours) => {
                self.ledger
                    .set_management_cluster("site", identity(is_ours));
                self.known.identity = Some(is_ours);
            }
            Step::Recorded(bits) => {
                let is_set = |index: &u8| bits.is_some_and(|bits| bits & (1 << index) != 0);
                let indexes = (0..ADDRESSES / 4).filter(is_set);
                self.known.recorded = bits.map(|_| indexes.clone().collect());
                let blocks = indexes.map(|index| ("lab".into(), four(index * 4)));
                let blocks = bits.map(|_| blocks.collect());
                self.ledger.set_recorded_blocks("site", blocks);
            }
            Step::BlockRecorded(index, is_recorded) => {
                let block = four(index * 4);
                self.ledger
                    .set_block_recorded("site", "lab", block, is_recorded);
                if let Some(recorded) = &mut self.known.recorded {
                    recorded.remove(&index);
                    recorded.extend(is_recorded.then_some(index));
                }
            }
            Step::BeginReturn(index) => self.begin_return(index),
            Step::CancelReturn(index) => {
                if let Some(known) = self.known.slices.get_mut(&index) {
                    self.ledger
                        .cancel_slice_return(&scope(), four(index * 4), &known.uid);
                    known.is_returning = false;
                }
            }
            Step::Propose(pool, requested) => self.propose(pool, requested),
            Step::EndProposal(index, is_reserved) => self.end_proposal(index, is_reserved),
            Step::Unreserve(index) => {
                let last = self.known.reservations.keys().nth(index).copied();
                if let Some(found) = last.and_then(|last| self.known.reservations.remove(&last)) {
                    self.ledger.delete(&found);
                }
            }
            Step::Address(last, is_added) => {
                if is_added {
                    self.ledger.apply(&in_use(last));
                    self.known.addresses.insert(last);
                } else {
                    self.ledger.delete(&in_use(last));
                    self.known.addresses.remove(&last);
                }
            }
        }
    }

    /// The uid of the slice of a block that exists, or a new one; and its next version.
    fn next_version(&mut self, index: u8) -> (String, u64) {
        let next = self.known.next();
        // Two apart: there is a version between any two of them.
        let version = 10 + next * 2;
        match self.known.slices.get(&index) {
            Some(known) => (known.uid.clone(), version),
            None => (format!("s{next}"), version),
        }
    }

    fn know(&mut self, index: u8, uid: String, version: u64, shown: Option<Shown>) {
        let before = self.known.slices.remove(&index);
        let slice = ModelSlice {
            uid,
            version,
            shown,
            is_returning: before.is_some_and(|before| before.is_returning),
        };
        self.known.slices.insert(index, slice);
    }

    fn show(&mut self, index: u8, shown: Shown, is_watched: bool) {
        let (uid, version) = self.next_version(index);
        let found = object(index, &uid, version, shown);
        if is_watched {
            self.ledger.apply(&found);
        } else {
            self.ledger.insert_slice(&found);
        }
        self.know(index, uid, version, Some(shown));
    }

    fn show_undecodable(&mut self, index: u8) {
        let (uid, version) = self.next_version(index);
        let found = Invalid {
            spec: serde_json::Value::Null,
            error: "no date".to_owned(),
            metadata: Box::new(object(index, &uid, version, USABLE).metadata),
        };
        Observe::<IPSlice>::apply_invalid(&mut self.ledger, &found);
        self.know(index, uid, version, None);
    }

    fn list(&mut self, bits: u8) {
        Observe::<IPSlice>::init(&mut self.ledger);
        let listed = |index: &u8| bits & (1 << index) != 0;
        self.known.slices.retain(|index, _| listed(index));
        let indexes: Vec<u8> = self.known.slices.keys().copied().collect();
        for index in indexes {
            match self.known.slices[&index].shown {
                Some(shown) => self.show(index, shown, true),
                None => self.show_undecodable(index),
            }
        }
        Observe::<IPSlice>::init_done(&mut self.ledger);
    }

    fn network(&mut self, step: NetworkStep) {
        if self.known.network_uid == 0 {
            self.known.network_uid = self.known.next();
        }
        let metadata = json!({"metadata": {"uid": format!("lab{}", self.known.network_uid)}});
        match step {
            NetworkStep::Sharing => self.ledger.apply_network(&sharing(metadata)),
            NetworkStep::NotSharing => self.ledger.apply_network(&lab(metadata)),
            NetworkStep::Undecodable => {
                let found = Invalid {
                    spec: serde_json::Value::Null,
                    error: "no date".to_owned(),
                    metadata: Box::new(lab(metadata).metadata),
                };
                Observe::<IPNetwork>::apply_invalid(&mut self.ledger, &found);
            }
            NetworkStep::Remove => {
                remove_network(&mut self.ledger, "lab");
                self.known.network_uid = 0;
            }
        }
        match step {
            NetworkStep::Sharing => self.known.shares_blocks = true,
            NetworkStep::NotSharing | NetworkStep::Remove => self.known.shares_blocks = false,
            NetworkStep::Undecodable => {}
        }
        self.known.is_valid = matches!(step, NetworkStep::Sharing | NetworkStep::NotSharing);
    }

    fn begin_return(&mut self, index: u8) {
        let is_used = self.known.block_is_used(index);
        let Some(known) = self.known.slices.get_mut(&index) else {
            assert!(!begin_return(&mut self.ledger, index * 4, "s"));
            return;
        };
        let begins = begin_return(&mut self.ledger, index * 4, &known.uid);
        assert_eq!(begins, !is_used, "return of block {index}");
        known.is_returning |= begins;
    }

    /// A new claim requests an address. It does not wait if it gets none.
    fn propose(&mut self, pool: usize, requested: Option<u8>) {
        let (pool, first, last) = POOLS[pool];
        let name = format!("c{}", self.known.next());
        let attributes = ClaimAttributes {
            requested: requested.map(block),
            ..ClaimAttributes::from(1)
        };
        let outcome = self.ledger.propose(&named(pool), &claim(&name), attributes);
        self.ledger.prune_wait_queues(|_| false);
        let known = &self.known;
        let among: Vec<u8> = match requested {
            Some(requested) => vec![requested],
            None => (first..=last).collect(),
        };
        let is_in_pool = |address: &u8| (first..=last).contains(address);
        let mut possible = among.iter().copied().filter(is_in_pool);
        let expected = possible.find(|address| known.is_valid && known.can_allocate(*address));
        let proposed = match &outcome {
            Outcome::Offer(slot) => (0..ADDRESSES).find(|last| in_lab(*last) == *slot),
            _ => None,
        };
        assert_eq!(proposed, expected, "{pool} {requested:?}: {outcome:?}");
        // The claim says that it needs a block if there is one that helps.
        let is_missing = |address: &u8| is_in_pool(address) && !known.is_usable(*address);
        let needs_block = match requested {
            Some(requested) => is_missing(&requested) && !known.is_used(requested),
            None => among.iter().any(is_missing),
        };
        let says_so = matches!(
            outcome,
            Outcome::NotNow(
                Reason::NeedsBlock(_) | Reason::Unavailable(Unavailable::NeedsBlock(_))
            )
        );
        if known.is_valid && proposed.is_none() {
            assert_eq!(says_so, needs_block, "{pool} {requested:?}: {outcome:?}");
        }
        self.known.candidates.extend(proposed);
    }

    fn end_proposal(&mut self, index: usize, is_reserved: bool) {
        let Some(last) = self.known.candidates.iter().nth(index).copied() else {
            return;
        };
        self.known.candidates.remove(&last);
        if is_reserved {
            let found = reserved(last, self.known.next());
            self.ledger.insert_reservation(&found);
            self.known.reservations.insert(last, found);
        } else {
            self.ledger.drop_candidate(&in_lab(last));
        }
    }

    fn check(&self) {
        let Self { ledger, known } = self;
        let addresses = 0..ADDRESSES;
        for address in addresses.clone() {
            let is_usable = ledger.is_block_usable("lab", block(address));
            assert_eq!(is_usable, known.is_usable(address), "{address}");
        }
        let used = addresses.clone().filter(|last| known.is_used(*last));
        let scope = Scope::Network("lab".into());
        assert_eq!(
            ledger.addresses().usage_count(&scope),
            used.count(),
            "nothing is freed"
        );
        if known.is_valid {
            for (pool, first, last) in POOLS {
                let counts = ledger.pools().counts(&named(pool));
                let usable = (first..=last).filter(|last| known.is_usable(*last));
                let free = (first..=last).filter(|last| known.can_allocate(*last));
                let total = i64::try_from(usable.count()).unwrap();
                assert_eq!(counts.total, total, "{pool}");
                assert_eq!(counts.free, i64::try_from(free.count()).unwrap(), "{pool}");
            }
        }
        self.check_views();
    }

    fn check_views(&self) {
        let Self { ledger, known } = self;
        let Some(found) = ledger.network_blocks("lab") else {
            assert!(!known.is_restricted());
            return;
        };
        assert!(known.is_restricted());
        let mut expected = Vec::new();
        for index in 0..ADDRESSES / 4 {
            // Without the size of the specification, blocks without a slice have no size.
            let is_used = known.block_is_used(index);
            let has_slice = known.slices.contains_key(&index);
            if has_slice || (is_used && known.shares_blocks) {
                expected.push((four(index * 4), has_slice, is_used));
            }
        }
        let shown = found.blocks.iter();
        let shown: Vec<_> = shown
            .map(|view| (view.block, view.slice.is_some(), view.is_used))
            .collect();
        assert_eq!(shown, expected);
    }
}

const USABLE: Shown = Shown {
    is_ours: true,
    is_confirmed: true,
    has_conflict: false,
    is_marked: false,
    is_deleting: false,
};

fn shown() -> impl Strategy<Value = Shown> {
    let other = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let other = other.prop_map(|of| Shown {
        is_ours: of.0,
        is_confirmed: of.1,
        has_conflict: of.2,
        is_marked: of.3,
        is_deleting: of.4,
    });
    prop_oneof![3 => Just(USABLE), 1 => other]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..ADDRESSES / 4;
    let last = 0..ADDRESSES;
    let network = prop_oneof![
        3 => Just(NetworkStep::Sharing),
        1 => Just(NetworkStep::NotSharing),
        1 => Just(NetworkStep::Undecodable),
        1 => Just(NetworkStep::Remove),
    ];
    let step = prop_oneof![
        6 => (index.clone(), shown(), any::<bool>())
            .prop_map(|(index, shown, is_watched)| Step::Slice(index, shown, is_watched)),
        1 => (index.clone(), shown()).prop_map(|(index, shown)| Step::LateResponse(index, shown)),
        1 => index.clone().prop_map(Step::UndecodableSlice),
        2 => index.clone().prop_map(Step::DeleteSlice),
        1 => any::<u8>().prop_map(Step::List),
        3 => network.prop_map(Step::Network),
        2 => prop_oneof![3 => Just(true), 1 => Just(false)].prop_map(Step::Identity),
        1 => proptest::option::of(any::<u8>()).prop_map(Step::Recorded),
        2 => (index.clone(), any::<bool>()).prop_map(|(index, is)| Step::BlockRecorded(index, is)),
        2 => index.clone().prop_map(Step::BeginReturn),
        1 => index.prop_map(Step::CancelReturn),
        8 => (0..POOLS.len(), proptest::option::weighted(0.3, last.clone()))
            .prop_map(|(pool, requested)| Step::Propose(pool, requested)),
        3 => (0..8_usize, any::<bool>()).prop_map(|(index, is)| Step::EndProposal(index, is)),
        1 => (0..8_usize).prop_map(Step::Unreserve),
        2 => (last, any::<bool>()).prop_map(|(last, is_added)| Step::Address(last, is_added)),
    ];
    proptest::collection::vec(step, 0..50)
}

proptest! {
    #[test]
    fn allocation_agrees_with_a_naive_model(steps in steps()) {
        let mut run = Run::new();
        for step in steps {
            run.step(step);
            run.check();
        }
    }
}
