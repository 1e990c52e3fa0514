//! The claims that concern the provider.

use capi_ipam_provider::api::IPAddressClaim;

use super::{Cause, ClaimRow, ServedKinds, UnservedClaim};

/// A claim of the provider, or one that it does not serve.
#[derive(Clone, Debug)]
pub(crate) enum ClaimEntry {
    Served(ClaimRow),
    Unserved(Box<UnservedClaim>),
}

impl ClaimEntry {
    pub(super) fn of(claim: &IPAddressClaim, served: &ServedKinds) -> Option<Self> {
        match UnservedClaim::of(claim, served) {
            Some(other) if served.omits_others && other.cause == Cause::OtherProvider => None,
            Some(unserved) => Some(Self::Unserved(Box::new(unserved))),
            None => ClaimRow::of(claim).map(Self::Served),
        }
    }
}
