//! The sweep: deletes IPAddresses whose claim no longer exists, and releases their addresses.
//!
//! They remain when somebody removes the finalizer of a claim, or when a restore contains them
//! without their claim. One that was restored waits for its claim as long as a restored claim waits
//! for its IPAddress. An IPAddress that a user created without a claim is reported and kept.
//! [`ReleaseAbandoned`](crate::advanced::ReleaseAbandoned) decides when and how many are deleted, and [`UnclaimedAddresses`] which
//! ones: live reads show that they have no claim, and the deletion has the version that was read as
//! precondition.
//!
//! Every process sweeps all namespaces, also those that it does not manage: it watches the claims
//! of all of them, and live reads decide.

mod origin;
mod unclaimed;

pub(super) use self::unclaimed::UnclaimedAddresses;
