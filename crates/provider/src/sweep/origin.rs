//! Who created an IPAddress.

use capi_ipam_controller::finalizer;

use crate::api::{IPAddress, names};
use crate::index::AddressRecord;

/// Who created an IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A provider, for a claim: it has the finalizer of the provider, or a claim as owner.
    Provider,
    /// A user: it has neither.
    Manual,
}

impl Origin {
    /// `None` if that is unknown: it is being deleted and no longer has the finalizer of the
    /// provider.
    fn of(is_protected: bool, is_deleted: bool, has_owner: bool) -> Option<Self> {
        match (is_protected, is_deleted, has_owner) {
            (true, ..) | (false, false, true) => Some(Self::Provider),
            (false, true, _) => None,
            (false, false, false) => Some(Self::Manual),
        }
    }

    pub(super) fn of_record(record: &AddressRecord) -> Option<Self> {
        Self::of(record.protected, record.deleting, record.claim.is_some())
    }

    pub(super) fn of_address(address: &IPAddress) -> Option<Self> {
        let is_protected = finalizer::is_set(address, names::PROTECT_ADDRESS);
        Self::of(
            is_protected,
            address.metadata.deletion_timestamp.is_some(),
            address.claim_uid().is_some(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_in_deletion_without_finalizer_has_no_known_origin() {
        assert_eq!(Origin::of(true, true, false), Some(Origin::Provider));
        assert_eq!(Origin::of(false, false, true), Some(Origin::Provider));
        assert_eq!(Origin::of(false, false, false), Some(Origin::Manual));
        assert_eq!(Origin::of(false, true, true), None);
    }
}
