//! The claims that concern the provider.

use capi_ipam_provider::api::IPAddressClaim;

use crate::objects::{Cause, ClaimRow, ServedKinds, UnservedClaim};

/// A claim of the provider, or one that is probably meant for it.
#[derive(Debug)]
pub(super) enum ClaimEntry {
    Served(ClaimRow),
    /// The kind of its pool does not exist, so nobody processes it. There are few.
    Unserved(Box<UnservedClaim>),
}

impl ClaimEntry {
    /// `None` for a claim of another provider, of which there can be many.
    pub(super) fn of(claim: &IPAddressClaim, served: &ServedKinds) -> Option<Self> {
        if let Some(row) = ClaimRow::of(claim) {
            return Some(Self::Served(row));
        }
        let unserved = UnservedClaim::of(claim, served)?;
        if unserved.cause == Cause::OtherProvider {
            return None;
        }
        Some(Self::Unserved(Box::new(unserved)))
    }

    pub(super) fn served(&self) -> Option<&ClaimRow> {
        match self {
            Self::Served(row) => Some(row),
            Self::Unserved(_) => None,
        }
    }

    pub(super) fn unserved(&self) -> Option<&UnservedClaim> {
        match self {
            Self::Served(_) => None,
            Self::Unserved(claim) => Some(claim),
        }
    }
}
