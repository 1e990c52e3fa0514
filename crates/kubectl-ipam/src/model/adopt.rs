//! Reservations for addresses that Machines use and no IPAddress has.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use capi_ipam_api::{IPReservation, NamedPool, PoolKey, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Ledger;
use capi_ipam_provider::api::{IPAddressClaim, Machine};

use crate::objects::{Objects, PoolRow, ReservationRow};
use crate::user_reservation::{promised_to, reservation};
use capi_ipam_rollout::machine_index;

/// What can be reserved, by address, and why the other addresses cannot.
#[derive(Debug, Default)]
pub(crate) struct Adoption {
    pub(crate) reservations: Vec<IPReservation>,
    pub(crate) left_out: Vec<String>,
}

/// An address of a Machine, and the claim that gets it.
struct Proposal<'a> {
    slot: Slot,
    pool: &'a PoolKey,
    claim: NamespacedName,
    /// The Machine and the address.
    what: String,
}

/// What is known of pools, claims and addresses.
struct Known<'a> {
    pools: Vec<&'a PoolRow>,
    /// The addresses that have an IPAddress, and the claims of these.
    allocated: HashSet<Slot>,
    bound: HashSet<NamespacedName>,
    reserved: HashMap<&'a Slot, &'a ReservationRow>,
    /// The claims that have a reservation.
    promised: HashSet<NamespacedName>,
    /// The claims without an IPAddress, by namespace and name of their Machine.
    waiting: HashMap<NamespacedName, Vec<(PoolKey, NamespacedName)>>,
    /// Names of claims, with the placeholders `{machine}`, `{infrastructure}` and `{pool}`.
    template: Option<&'a str>,
}

/// Finds the pool and the claim of each address that Machines report and no IPAddress has. `ledger`
/// has the sets that claims name.
pub(crate) fn adopt(
    machines: &[Machine],
    claims: &[IPAddressClaim],
    (objects, ledger): (&Objects, &Ledger),
    template: Option<&str>,
) -> Adoption {
    let reservations = objects.reservations.iter();
    let promised = objects
        .reservations
        .iter()
        .filter_map(|row| row.claim.clone());
    let mut known = Known {
        pools: objects.pools(),
        allocated: HashSet::new(),
        bound: HashSet::new(),
        reserved: reservations.map(|row| (&row.slot, row)).collect(),
        promised: promised.collect(),
        waiting: HashMap::new(),
        template,
    };
    for row in objects.addresses.iter() {
        known.bound.insert(row.claim_key());
        known.allocated.insert(Slot {
            scope: objects.scope_of(&row.pool),
            block: row.block,
        });
    }
    let index = machine_index(machines);
    for claim in claims {
        let key = NamespacedName::of(&claim.metadata);
        let machine = index.get(key.namespace()).and_then(|it| it.find(claim));
        if let (Some((machine, _)), Some(named)) = (machine, NamedPool::of_claim(claim))
            && !known.bound.contains(&key)
        {
            let machine = NamespacedName::new(key.namespace(), machine);
            let waiting = known.waiting.entry(machine).or_default();
            let pools = ledger.pools_of(&named).into_iter();
            waiting.extend(pools.map(|pool| (pool, key.clone())));
        }
    }
    let mut adoption = Adoption::default();
    let mut proposals = Vec::new();
    // The claim of a Machine that is being deleted does not come.
    let is_kept = |machine: &&Machine| machine.metadata.deletion_timestamp.is_none();
    for machine in machines.iter().filter(is_kept) {
        for address in machine.ip_addresses() {
            match known.proposal(machine, address) {
                Ok(proposal) => proposals.extend(proposal),
                Err(problem) => adoption.left_out.push(problem),
            }
        }
    }
    adoption.add(proposals);
    adoption.left_out.sort();
    adoption
}

impl<'a> Known<'a> {
    /// What an address of a Machine needs; `None` if it has an IPAddress or a reservation for its
    /// claim. Fails with the reason why it cannot be reserved.
    fn proposal(&self, machine: &Machine, address: IpAddr) -> Result<Option<Proposal<'a>>, String> {
        let key = NamespacedName::of(&machine.metadata);
        let block = Block::address(address);
        let what = format!("{address} of Machine {key}");
        let mut pools = self.pools.clone();
        pools.retain(|pool| contains(pool, block, key.namespace()));
        let is_allocated = |pool: &&PoolRow| self.allocated.contains(&pool.slot(block));
        if pools.iter().any(is_allocated) {
            return Ok(None);
        }
        let pool = match pools.as_slice() {
            [] => return Err(format!("{what} is in no pool that the Machine can use")),
            [pool] => *pool,
            [one, other, ..] => {
                let (one, other) = (&one.key, &other.key);
                return Err(format!("{what} is in {one} and in {other}"));
            }
        };
        let slot = pool.slot(block);
        let claim = self
            .claim(machine, &pool.key)
            .map_err(|problem| format!("{what} in {}: {problem}", pool.key))?;
        match self.reserved.get(&slot) {
            Some(row) if row.claim.as_ref() == Some(&claim) => Ok(None),
            Some(_) => {
                let name = slot.reservation_name();
                Err(format!("{what} has the IPReservation {name} already"))
            }
            None if self.promised.contains(&claim) => Err(format!(
                "{what}: the claim {claim} has another IPReservation"
            )),
            None => Ok(Some(Proposal {
                slot,
                pool: &pool.key,
                claim,
                what,
            })),
        }
    }

    /// The claim of a Machine that gets an address of a pool: the one that waits, or the one of the
    /// template.
    fn claim(&self, machine: &Machine, pool: &PoolKey) -> Result<NamespacedName, String> {
        let key = NamespacedName::of(&machine.metadata);
        let waiting = self.waiting.get(&key).into_iter().flatten();
        let mut waiting = waiting.filter(|(of, _)| of == pool);
        match (waiting.next(), waiting.next(), self.template) {
            (Some((_, claim)), None, _) => Ok(claim.clone()),
            (Some((_, one)), Some((_, other)), _) => {
                Err(format!("the claims {one} and {other} wait for an address"))
            }
            (None, _, None) => {
                let problem = "the name of its claim is unknown: write --claim-name";
                Err(problem.to_owned())
            }
            (None, _, Some(template)) => {
                let name = template
                    .replace("{machine}", key.name())
                    .replace("{infrastructure}", &machine.spec.infrastructure_ref.name)
                    .replace("{pool}", &pool.name);
                let claim = NamespacedName::new(key.namespace(), &name);
                match promised_to(&claim).problem(pool) {
                    Some(problem) => Err(problem.to_string()),
                    None if self.bound.contains(&claim) => {
                        Err(format!("the claim {claim} has another address"))
                    }
                    None => Ok(claim),
                }
            }
        }
    }
}

/// Whether a claim of a namespace can get an address of a pool.
fn contains(pool: &PoolRow, block: Block, namespace: &str) -> bool {
    let of_pool = pool.key.namespace.as_deref();
    let usable = pool.usable.as_ref();
    of_pool.is_none_or(|it| it == namespace) && usable.is_ok_and(|it| it.contains(block))
}

impl Adoption {
    /// Adds the reservations, unless several Machines report one address, or several addresses are
    /// for one claim.
    fn add(&mut self, proposals: Vec<Proposal<'_>>) {
        let mut slots: HashMap<Slot, usize> = HashMap::new();
        // A claim gets one address, of one pool.
        let mut claims: HashMap<NamespacedName, usize> = HashMap::new();
        for proposal in &proposals {
            *slots.entry(proposal.slot.clone()).or_default() += 1;
            *claims.entry(proposal.claim.clone()).or_default() += 1;
        }
        let mut found = BTreeMap::new();
        for proposal in proposals {
            let Proposal { what, claim, .. } = &proposal;
            if slots.get(&proposal.slot) > Some(&1) {
                let problem = format!("{what} is an address of another Machine, too");
                self.left_out.push(problem);
            } else if claims.get(claim) > Some(&1) {
                let problem = format!("{what} is not the only address for the claim {claim}");
                self.left_out.push(problem);
            } else {
                let new = reservation(&proposal.slot, proposal.pool, Some(claim));
                found.insert(proposal.slot, new);
            }
        }
        self.reservations = found.into_values().collect();
    }
}

#[cfg(test)]
mod tests;
