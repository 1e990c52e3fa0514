//! Controllers of pools of container networks.

use crate::{Framework, rows};

/// Pool controllers such as those of Whereabouts and its successors.
pub(crate) fn cni() -> Framework {
    Framework {
        name: "Pool controllers of a CNI",
        introduction: "A controller of this kind reconciles pools whose allocations belong to pods. Here an allocation \
            belongs to an `IPAddressClaim`, and the reconciler of claims owns it.",
        rows: rows! {
            "`SetupIPPoolReconciler`, `SetupWithManager`" => capi_ipam_provider::prelude::WatchedPools.new: "Watches the pools, and wakes the claims that wait for one.";
            "`IPPoolReconciler`" => capi_ipam_provider::prelude::PoolProvider: "Allocates and releases. It does not compare pools with pods.";
            "`reconcileInterval`" => capi_ipam_provider::advanced::SweepOptions: "How often objects that nobody needs are looked for.";
            "Cleanup of orphaned allocations" => capi_ipam_provider::advanced::AbandonedObjects: "An allocation is released only after live reads, and after a grace period.";
            "`OverlappingRangeReconciler`" => capi_ipam_provider::advanced::run_repair: "Runs one repair. Each repair names what it finds, and what a live read has to confirm.";
            "`ReconcilerOptions.CleanupTerminating`" => capi_ipam_provider::prelude::PoolProvider.release_terminating_after: "For each pool, with a duration.";
            "`ReconcilerOptions.VerifyNetworkStatus`" => capi_ipam_provider::advanced::AddressUse: "Reports whether machines have their addresses. It frees none.";
            "Verification with a backend" => capi_ipam_provider::prelude::PoolProvider.verify: "A claim whose address the backend does not know is reported.";
            "`NewPatchHelper`, `PatchHelper.Patch`" => capi_ipam_provider::controller::patch::write: "Compares two values, and sends at most one request for each of object and status, with the version that was read as precondition.";
            "`PatchHelper.HasChanges`" => capi_ipam_provider::controller::patch::Changes.is_empty: "The changes are a value, which is computed without a request.";
            "Finalizer and status of a pool" => capi_ipam_provider::prelude::PoolOptions: "The reconciler of the framework writes both.";
            "Conditions with kstatus reasons" => capi_ipam_provider::advanced::Reported: "`Ready`, `Reconciling` and `Stalled` follow from the outcome of each attempt, also for other kinds.";
        },
    }
}
