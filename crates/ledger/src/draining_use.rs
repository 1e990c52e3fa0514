//! Who uses a pool, and the draining parts of it, for messages.

use capi_ipam_api::{DrainingStatus, PoolKey, Scope};
use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::Ledger;

/// The maximum number of claims that a message about a pool names.
const MAX_NAMED: usize = 3;

/// What is in use in the draining parts of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainingUse {
    /// The number of addresses in use.
    pub addresses: usize,
    /// The claims of the lowest of these addresses.
    pub claims: Vec<NamespacedName>,
}

impl DrainingUse {
    /// The status of the pool.
    pub fn status(&self) -> DrainingStatus {
        DrainingStatus {
            addresses: i64::try_from(self.addresses).unwrap_or(i64::MAX),
        }
    }
}

impl Ledger {
    /// What is in use in the draining parts of a pool; `None` if its spec names none.
    pub(super) fn draining_use(&self, pool: &PoolKey) -> Option<DrainingUse> {
        let entry = self.pools.get(pool)?;
        if !entry.info()?.is_draining {
            return None;
        }
        let in_use = entry.draining_in_use();
        let scope = entry.scope(pool);
        let mut claims = Vec::new();
        for block in in_use {
            if claims.len() >= MAX_NAMED {
                break;
            }
            claims.extend(self.claim_of(pool, &scope, *block).cloned());
        }
        Some(DrainingUse {
            addresses: in_use.len(),
            claims,
        })
    }

    /// The claims of the lowest addresses of a pool that are in use, at most as many as a message
    /// names.
    pub(super) fn first_claims(&self, pool: &PoolKey) -> Vec<NamespacedName> {
        let mut lowest: Vec<(Block, Scope)> = Vec::new();
        for scope in self.pools.scopes_with(pool) {
            for (block, usage) in self.addresses.usage_in(&scope) {
                let is_lower = lowest.len() < MAX_NAMED
                    || lowest.last().is_some_and(|(highest, _)| block < *highest);
                if is_lower && usage.is_in_use_of(pool) {
                    lowest.push((block, scope.clone()));
                    lowest.sort_unstable_by_key(|(block, _)| *block);
                    lowest.truncate(MAX_NAMED);
                }
            }
        }
        let claims = lowest
            .iter()
            .filter_map(|(block, scope)| self.claim_of(pool, scope, *block));
        claims.cloned().collect()
    }

    /// The claim of a pool that uses a block, or has reserved it.
    fn claim_of(&self, pool: &PoolKey, scope: &Scope, block: Block) -> Option<&NamespacedName> {
        let usage = self.addresses.scope(scope)?.usage.get(&block)?;
        if let Some(owner) = usage.owners.iter().find(|owner| owner.pool == *pool) {
            return Some(&owner.name);
        }
        usage.reservation.as_ref()?.claim.as_ref()
    }
}
