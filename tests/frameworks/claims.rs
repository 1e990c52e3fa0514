//! The package that the providers of Cluster API share.

use crate::{Framework, rows};

/// `sigs.k8s.io/cluster-api-ipam-provider-in-cluster/pkg/ipamutil`.
pub(crate) fn ipamutil() -> Framework {
    Framework {
        name: "ipamutil of Cluster API",
        introduction: "Names and structure are those of ipamutil. A provider whose pools are objects of one kind needs \
            less: see `PoolProvider`.",
        rows: rows! {
            "`ClaimReconciler`" => capi_ipam_provider::prelude::ClaimReconciler: "It also waits for restored IPAddresses, reports conditions and events, and repairs what interruptions leave.";
            "`ClaimReconciler.SetupWithManager`" => capi_ipam_provider::prelude::ClaimReconciler.builder: "Returns a builder. `build` adds the controller to the manager.";
            "`ClaimReconciler.WatchFilterValue`" => capi_ipam_provider::controller::options::Options.watch_filter: "The flag `--watch-filter` sets it. `Selection` answers which objects it includes.";
            "`ClaimReconciler.Client`" => capi_ipam_provider::controller::client::ResourceClient: "Every request has a deadline, and an error says whether the outcome is unknown.";
            "`ProviderAdapter`" => capi_ipam_provider::advanced::ProviderAdapter: "`WatchedPools` implements it for a `PoolProvider`.";
            "`ProviderAdapter.SetupWithManager`" => capi_ipam_provider::advanced::ProviderSetup: "The closure of `build` receives it: it declares kinds of pools and watches.";
            "`ProviderAdapter.ClaimHandlerFor`" => capi_ipam_provider::advanced::ProviderAdapter.claim_handler: "The claim is shared, not copied.";
            "`ClaimHandler`" => capi_ipam_provider::advanced::ClaimHandler: "One for each reconcile of a claim.";
            "`ClaimHandler.FetchPool`" => capi_ipam_provider::advanced::ClaimHandler.fetch_pool: "Returns what the reconciler needs of the pool, a `PoolView`.";
            "`ClaimHandler.EnsureAddress`" => capi_ipam_provider::advanced::ClaimHandler.ensure_address: "Returns an address instead of changing the IPAddress, which the reconciler writes.";
            "`ClaimHandler.ReleaseAddress`" => capi_ipam_provider::advanced::ClaimHandler.release_address: "Called after the IPAddress is deleted, also if the pool does not exist.";
            "The builder in `SetupWithManager`" => capi_ipam_provider::advanced::ClaimReconcilerBuilder.controller: "A closure receives the controller of claims before it starts.";
            "`Reconcile` in a test" => capi_ipam_provider::prelude::ClaimReconciler.for_test: "Without a manager, against an API server. `for_test_with` takes options and a publisher of events.";
            "`*ctrl.Result` of a handler" => capi_ipam_provider::prelude::HandlerError: "Its kind decides on condition, event and retry.";
            "`NewIPAddress`" => capi_ipam_provider::advanced::new_ip_address: "For imports, with address, labels and finalizer. A provider returns an `Allocation`, and the reconciler creates the IPAddress.";
            "`ReleaseAddressFinalizer`" => capi_ipam_provider::api::names::RELEASE_ADDRESS: "The same finalizer.";
            "`ProtectAddressFinalizer`" => capi_ipam_provider::api::names::PROTECT_ADDRESS: "The same finalizer.";
        },
    }
}
