//! The rule that decides which scope a pool has, and whether it must not allocate because of a
//! network.
//!
//! The scope is a recorded fact, not a consequence of what can be read at the moment. A pool
//! changes it only by an explicit, valid change: of the pool, or of a network that exists, is valid
//! and is not being deleted. While a network is invalid, being deleted, unreadable, missing or not
//! restored yet, its pools stay in it and do not allocate: the addresses of one of them can be in
//! use by another.
//!
//! A pool with addresses in use leaves its network only by an explicit word: its annotation
//! `leave-network`, or the name of another network. A field or a label that is missing is none:
//! another writer may have removed it, which does not know it.
//!
//! The rule is a function of plain values, without effects. All managers come to the same result
//! for the same record and the same objects.

use std::sync::Arc;

use capi_ipam_api::{NetworkRefusal, PoolKey, Scope};

/// What is recorded of the scope of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing: the pool never was in a network, as far as is known. Its status, or the
    /// reservations of its claims, can still show that it was.
    #[default]
    Unknown,
    /// The pool has left its network by an explicit change: what still is in the network is no
    /// evidence.
    Left {
        /// Whether another manager has recorded since that the pool is in a network.
        is_contested: bool,
    },
    /// The pool is in a network.
    Network(NetworkRecord),
}

/// The record of a pool that is in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkRecord {
    pub(crate) name: Arc<str>,
    /// Whether the specification of the pool names the network. Otherwise the network selects the
    /// pool.
    pub(crate) is_named: bool,
    /// Whether this is only known from the status or the reservations of the pool, or another
    /// manager has recorded since that the pool is not in the network.
    pub(crate) is_inherited: bool,
}

impl Record {
    /// The pool has left its network, and no manager has recorded otherwise since.
    pub(crate) const LEFT: Self = Self::Left {
        is_contested: false,
    };

    fn network(name: &Arc<str>, is_named: bool) -> Self {
        Self::Network(NetworkRecord {
            name: name.clone(),
            is_named,
            is_inherited: false,
        })
    }

    fn inherited(name: &Arc<str>) -> Self {
        Self::Network(NetworkRecord {
            name: name.clone(),
            is_named: false,
            is_inherited: true,
        })
    }

    /// The scope of a pool with this record.
    pub(crate) fn scope(&self, pool: &PoolKey) -> Scope {
        match self {
            Self::Unknown | Self::Left { .. } => Scope::Pool(pool.clone()),
            Self::Network(network) => Scope::Network(network.name.clone()),
        }
    }

    /// Notes that the status of the pool has changed from `before` to `after`. If it differs from
    /// this record, another manager has written it, and may have observed an explicit change that
    /// this one has not.
    pub(crate) fn note_status_change(
        &mut self,
        before: Option<&StatusRecord>,
        after: Option<&StatusRecord>,
    ) {
        match self {
            Self::Unknown => {}
            Self::Left { is_contested } => {
                *is_contested |= matches!(after, Some(StatusRecord::Member(_)));
            }
            // A status that did not name the network before can be older than this record.
            Self::Network(known) => {
                let was_recorded =
                    matches!(before, Some(StatusRecord::Member(name)) if *name == known.name);
                known.is_inherited |= was_recorded;
            }
        }
    }
}

/// What `status.network` of a pool states: a manager has recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusRecord {
    /// The pool belongs to the network.
    Member(Arc<str>),
    /// The pool has left the network.
    Left(Arc<str>),
}

/// Whether pools can join or leave a network now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkState {
    /// It is valid and can be used.
    Ready,
    /// It is valid, and its finalizer or the length of its blocks is not set yet.
    Initializing,
    /// It is valid and being deleted.
    Deleting,
    /// Its specification is not valid, or the object cannot be decoded.
    Invalid,
    /// It does not exist, or is not known yet.
    Missing,
}

/// A network, in relation to one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkForPool {
    pub(crate) name: Arc<str>,
    pub(crate) state: NetworkState,
    /// Whether `spec.pools` matches the labels of the pool, as far as it can be read.
    pub(crate) selects: bool,
    /// Whether `spec.namespaces` allows the namespace of the pool.
    pub(crate) allows: bool,
    /// The length of the blocks of the network and that of the pool, if they differ.
    pub(crate) lengths: Option<(u8, u8)>,
}

impl NetworkForPool {
    /// Whether the specification can be relied on.
    fn is_valid(&self) -> bool {
        matches!(
            self.state,
            NetworkState::Ready | NetworkState::Initializing | NetworkState::Deleting
        )
    }

    /// Whether pools can join the network.
    fn is_open(&self) -> bool {
        matches!(self.state, NetworkState::Ready | NetworkState::Initializing)
    }

    /// Why the pool must not allocate addresses of the network.
    fn refusal(&self, is_named: bool) -> Option<NetworkRefusal> {
        let name = self.name.clone();
        match self.state {
            NetworkState::Missing if is_named => Some(NetworkRefusal::NotFound(name)),
            NetworkState::Missing => Some(NetworkRefusal::Lost(name)),
            NetworkState::Invalid => Some(NetworkRefusal::Invalid(name)),
            _ if !self.allows => Some(NetworkRefusal::NotAllowed(name)),
            NetworkState::Deleting => Some(NetworkRefusal::Deleting(name)),
            _ => {
                let (theirs, ours) = self.lengths?;
                Some(NetworkRefusal::LengthMismatch {
                    network: name,
                    theirs,
                    ours,
                })
            }
        }
    }
}

/// What decides on the scope of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) record: &'a Record,
    /// The network that the specification of the pool names.
    pub(crate) named: Option<&'a Arc<str>>,
    /// What the status of the pool states.
    pub(crate) status: Option<&'a StatusRecord>,
    /// The network in which claims have reservations of the pool.
    pub(crate) reserved_in: Option<&'a Arc<str>>,
    /// The networks that select the pool, ordered by name.
    pub(crate) selecting: &'a [NetworkForPool],
    /// What the pool has in networks.
    pub(crate) usage: PoolUsage<'a>,
    /// The network that the pool leaves according to its annotation.
    pub(crate) leaves: Option<&'a Arc<str>>,
}

impl Facts<'_> {
    /// Whether the pool leaves its network, of which neither the pool nor the network says any more
    /// that the pool belongs to it. Another manager may have recorded that it has left: it has not
    /// observed the addresses in use, and moves them.
    fn may_leave(&self, known: &NetworkRecord) -> bool {
        let is_elsewhere = match self.status {
            Some(StatusRecord::Member(name)) => *name != known.name,
            Some(StatusRecord::Left(_)) => true,
            None => false,
        };
        let is_recorded = is_elsewhere && known.is_inherited;
        is_recorded || self.leaves == Some(&known.name) || !self.usage.may_use(&known.name)
    }
}

/// What a pool has in the networks to which it may belong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolUsage<'a> {
    /// Not all reservations and IPAddresses are listed: the pool may have some in any network.
    Unknown,
    /// What is known of the pool.
    Known {
        /// Whether an IPAddress is of the pool. It is in the scope of the pool.
        has_addresses: bool,
        /// The scopes in which addresses of the pool are reserved or proposed.
        holds: &'a [(Scope, usize)],
    },
}

impl Default for PoolUsage<'_> {
    fn default() -> Self {
        Self::Known {
            has_addresses: false,
            holds: &[],
        }
    }
}

impl PoolUsage<'_> {
    /// Whether the pool may have addresses in use in a network to which it belongs.
    pub(crate) fn may_use(self, network: &Arc<str>) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known {
                has_addresses,
                holds,
            } => has_addresses || holds.iter().any(|(scope, _)| is_network(scope, network)),
        }
    }
}

fn is_network(scope: &Scope, network: &Arc<str>) -> bool {
    match scope {
        Scope::Network(name) => name == network,
        Scope::Pool(_) => false,
    }
}

/// The scope of a pool, and whether it can allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// The record from now on. It contains the scope.
    pub(crate) record: Record,
    /// Why the pool does not allocate, and nothing of it is moved to another scope.
    pub(crate) refusal: Option<NetworkRefusal>,
    /// The network that the pool joins once the network is initialized. It does not allocate until
    /// then.
    pub(crate) awaited: Option<Arc<str>>,
    /// Whether the pool would leave its network if it had no addresses in use there.
    pub(crate) is_kept: bool,
    /// Whether nothing says any more that the pool belongs to its network: whether it has addresses
    /// in use there decides.
    pub(crate) depends_on_use: bool,
}

impl Decision {
    fn stay(record: Record, refusal: Option<NetworkRefusal>) -> Self {
        Self {
            record,
            refusal,
            awaited: None,
            is_kept: false,
            depends_on_use: false,
        }
    }

    /// Whether the pool can allocate, as far as networks are concerned.
    pub(crate) fn can_allocate(&self) -> bool {
        self.refusal.is_none() && self.awaited.is_none()
    }

    /// Whether the pool cannot allocate because of this network.
    fn depends_on(&self, network: &Arc<str>) -> bool {
        self.awaited.as_ref() == Some(network)
            || self
                .refusal
                .as_ref()
                .is_some_and(|refusal| refusal.concerns(network))
    }

    /// The pool is a member of a network that accepts it, or becomes one when the network is
    /// initialized.
    fn join(network: &NetworkForPool, is_named: bool, before: Record) -> Self {
        if network.state == NetworkState::Initializing {
            return Self {
                record: before,
                refusal: None,
                awaited: Some(network.name.clone()),
                is_kept: false,
                depends_on_use: false,
            };
        }
        Self::stay(Record::network(&network.name, is_named), None)
    }
}

/// Decides on the scope of a pool. `find` returns the state of a network that need not exist.
pub(crate) fn decide(facts: &Facts<'_>, find: impl Fn(&Arc<str>) -> NetworkForPool) -> Decision {
    let decide_from = |record: Record| match facts.named {
        Some(name) => decide_by_name(record, &find(name)),
        None => decide_by_selection(&record, facts, &find),
    };
    let decision = decide_from(with_evidence(facts));
    match recorded_by_another(&decision, facts) {
        Some(record) => decide_from(record),
        None => decision,
    }
}

/// Decides on the scope of a pool whose specification is not valid, or cannot be decoded, and which
/// so allocates nothing. What it names is no explicit change, and no change of a network is.
pub(crate) fn keep(facts: &Facts<'_>) -> Decision {
    Decision::stay(with_evidence(facts), None)
}

/// The record, with what the status and the reservations of the pool show about the time before
/// this process.
fn with_evidence(facts: &Facts<'_>) -> Record {
    match (facts.record, facts.status) {
        (Record::Unknown, Some(StatusRecord::Member(name))) => Record::inherited(name),
        (Record::Unknown, Some(StatusRecord::Left(_))) => Record::LEFT,
        (Record::Unknown, None) => facts.reserved_in.map_or(Record::Unknown, Record::inherited),
        (record, _) => record.clone(),
    }
}

/// What another manager has recorded of a pool that cannot allocate. The managers can have observed
/// a change and a network that became unusable in different orders, or one of them was started in
/// between. They agree by the status, which is what all of them see: a manager whose own statement
/// another one has replaced follows it. It never follows a status that can be older than its own
/// record, and while it can allocate it follows none, so the other one does.
fn recorded_by_another(decision: &Decision, facts: &Facts<'_>) -> Option<Record> {
    if decision.can_allocate() {
        return None;
    }
    match (&decision.record, facts.status?) {
        (Record::Network(known), StatusRecord::Member(name)) if known.name == *name => None,
        // The pool has joined a network that is not usable any more: it must not allocate in either
        // scope.
        (_, StatusRecord::Member(name)) if decision.depends_on(name) => {
            Some(Record::network(name, facts.named == Some(name)))
        }
        (Record::Network(known), StatusRecord::Member(name)) if known.is_inherited => {
            Some(Record::inherited(name))
        }
        (Record::Left { is_contested: true }, StatusRecord::Member(name)) => {
            Some(Record::inherited(name))
        }
        // The status of a pool that is in no network names any network in which it still has
        // reservations.
        (Record::Network(known), StatusRecord::Left(_)) if known.is_inherited => Some(Record::LEFT),
        _ => None,
    }
}

fn decide_by_name(record: Record, network: &NetworkForPool) -> Decision {
    let record = match record {
        Record::Network(known) if known.name == network.name => Record::Network(NetworkRecord {
            is_named: true,
            ..known
        }),
        record => record,
    };
    match network.refusal(true) {
        Some(refusal) => Decision::stay(record, Some(refusal)),
        None => Decision::join(network, true, record),
    }
}

fn decide_by_selection(
    record: &Record,
    facts: &Facts<'_>,
    find: &impl Fn(&Arc<str>) -> NetworkForPool,
) -> Decision {
    let selecting = facts.selecting;
    let known = match record {
        Record::Network(known) => Some((known, find(&known.name))),
        Record::Unknown | Record::Left { .. } => None,
    };
    if let Some((known, network)) = &known {
        if !is_left(known, network) {
            return stay_in(known, network, selecting);
        }
        if !facts.may_leave(known) {
            return keep_in(known, network);
        }
    }
    let mut decision = select_next(record, selecting);
    decision.depends_on_use = known.is_some() && decision.record == *record;
    match &decision.record {
        // As long as the next network does not accept the pool, it stays where it is. The record no
        // longer shows that the pool named its network, so the reason is the one that a manager
        // finds that has not observed this.
        Record::Network(stays)
            if known.is_some_and(|(known, _)| known.is_named && known.name == stays.name) =>
        {
            decide_by_selection(&decision.record, facts, find)
        }
        _ => decision,
    }
}

/// The decision for a pool that is in no network, or leaves the recorded one.
fn select_next(record: &Record, selecting: &[NetworkForPool]) -> Decision {
    let (left, record) = match record {
        Record::Network(known) => (
            Some(&known.name),
            Record::Network(NetworkRecord {
                is_named: false,
                ..known.clone()
            }),
        ),
        record => (None, record.clone()),
    };
    let candidates: Vec<&NetworkForPool> = selecting
        .iter()
        .filter(|network| network.allows && Some(&network.name) != left)
        .collect();
    let open: Vec<&NetworkForPool> = candidates
        .iter()
        .copied()
        .filter(|network| network.is_open())
        .collect();
    let selected = match open.as_slice() {
        [] => candidates.first().copied(),
        [network] => Some(*network),
        [one, other, ..] => {
            let refusal = NetworkRefusal::Ambiguous(one.name.clone(), other.name.clone());
            return Decision::stay(record, Some(refusal));
        }
    };
    match selected.map(|network| (network, network.refusal(false))) {
        Some((_, Some(refusal))) => Decision::stay(record, Some(refusal)),
        Some((network, None)) => Decision::join(network, false, record),
        None if record == Record::Unknown => Decision::stay(record, None),
        // It allocates in its own scope: only another manager that does not can give way.
        None => Decision::stay(Record::LEFT, None),
    }
}

/// Whether neither the pool nor the network says any more that the pool belongs to the network: a
/// valid selector does not match, or the pool no longer has a name. If nothing of the pool is in use
/// in the network, it leaves.
fn is_left(known: &NetworkRecord, network: &NetworkForPool) -> bool {
    !network.selects && (network.is_valid() || known.is_named)
}

/// The decision for a pool that would leave its network, and has addresses in use there: it stays,
/// and allocates as before. That other networks select it changes nothing.
fn keep_in(known: &NetworkRecord, network: &NetworkForPool) -> Decision {
    let record = Record::Network(known.clone());
    let decision = match network.refusal(false) {
        Some(refusal) => Decision::stay(record, Some(refusal)),
        None => Decision::join(network, known.is_named, record),
    };
    Decision {
        is_kept: true,
        depends_on_use: true,
        ..decision
    }
}

/// The decision for a pool that stays in its network because the network selects it, or because it
/// cannot be known that it does not.
fn stay_in(
    known: &NetworkRecord,
    network: &NetworkForPool,
    selecting: &[NetworkForPool],
) -> Decision {
    let others = selecting
        .iter()
        .filter(|other| other.name != known.name && other.allows && other.is_open());
    let other = others.map(|other| &other.name).next();
    let record = Record::Network(NetworkRecord {
        is_named: false,
        ..known.clone()
    });
    match (network.refusal(false), other) {
        (Some(refusal), _) => Decision::stay(record, Some(refusal)),
        (None, Some(other)) => {
            let (one, other) = if *other < known.name {
                (other, &known.name)
            } else {
                (&known.name, other)
            };
            Decision::stay(
                record,
                Some(NetworkRefusal::Ambiguous(one.clone(), other.clone())),
            )
        }
        (None, None) => Decision::join(network, false, record),
    }
}

#[cfg(test)]
mod tests;
