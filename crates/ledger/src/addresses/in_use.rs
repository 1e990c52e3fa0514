//! In how many scopes each address is in use: pools that overlap can allocate an address twice.

use std::collections::HashMap;

use capi_ipam_api::{Scope, Slot};
use capi_ipam_ip::Block;

/// In how many scopes each block is in use. Only equal blocks are compared: an address in a prefix
/// that another pool has allocated is not found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    /// The scopes in which an IPAddress has the block. About 30 bytes for each address in use.
    scopes: HashMap<Block, ScopeCount>,
    /// The number of blocks that scopes share.
    shared: usize,
}

/// The number of scopes in which a block is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ScopeCount {
    pools: u32,
    networks: u32,
}

impl ScopeCount {
    /// Whether two machines can have one address. Who names different networks declares that their
    /// addresses do not meet.
    fn is_shared(self) -> bool {
        self.pools > 1 || (self.pools == 1 && self.networks > 0)
    }

    fn is_zero(self) -> bool {
        self.pools == 0 && self.networks == 0
    }

    fn count(&mut self, scope: &Scope, is_added: bool) {
        let number = match scope {
            Scope::Pool(_) => &mut self.pools,
            Scope::Network(_) => &mut self.networks,
        };
        *number = if is_added {
            number.saturating_add(1)
        } else {
            number.saturating_sub(1)
        };
    }
}

impl InUse {
    /// Records that an address came into use in its scope, or is no longer in use there.
    pub(crate) fn set(&mut self, slot: &Slot, is_in_use: bool) {
        let count = self.scopes.entry(slot.block).or_default();
        let was_shared = count.is_shared();
        count.count(&slot.scope, is_in_use);
        let is_shared = count.is_shared();
        if count.is_zero() {
            self.scopes.remove(&slot.block);
        }
        match (was_shared, is_shared) {
            (false, true) => self.shared = self.shared.saturating_add(1),
            (true, false) => self.shared = self.shared.saturating_sub(1),
            _ => {}
        }
    }

    /// The number of blocks that scopes share.
    pub(crate) fn shared(&self) -> usize {
        self.shared
    }
}
