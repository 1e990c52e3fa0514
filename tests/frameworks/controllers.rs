//! Frameworks for controllers of any kind.

use crate::{Framework, rows};

/// `sigs.k8s.io/controller-runtime`.
pub(crate) fn controller_runtime() -> Framework {
    Framework {
        name: "controller-runtime",
        introduction: "A controller has one cache: that of its main kind. `Store::watched` caches another kind, or an \
            event handler keeps what is needed of it.",
        rows: rows! {
            "`ctrl.NewManager`, `Manager.Start`" => capi_ipam_provider::controller::manager::run: "Parses the flags, becomes the leader, serves probes and metrics, and ends the program with one line that names the error.";
            "`manager.Manager`" => capi_ipam_provider::controller::manager::Manager: "";
            "`Manager.Add` of a `Runnable`" => capi_ipam_provider::controller::manager::Manager.add: "A task that ends stops the program. `add_background_task` adds one that is repeated.";
            "`Manager.AddReadyzCheck`" => capi_ipam_provider::controller::health::Health.register: "Returns a gate, which its owner reports to.";
            "`ctrl.NewControllerManagedBy`" => capi_ipam_provider::controller::manager::Manager.controller: "";
            "`Builder.For`" => capi_ipam_provider::controller::controller::ControllerBuilder.run: "The main source is an argument.";
            "`Builder.Owns`, `Builder.Watches`" => capi_ipam_provider::controller::controller::ControllerBuilder.watch: "The handler of the watch enqueues with a `Trigger`.";
            "`reconcile.Reconciler`" => capi_ipam_provider::controller::controller::Reconciler: "Receives the object, not its name.";
            "`reconcile.Result{}`" => capi_ipam_provider::controller::controller::Action::AwaitChange: "";
            "`Result.RequeueAfter`" => capi_ipam_provider::controller::controller::Action::Requeue: "This is no failure, and keeps the state of the attempt.";
            "`reconcile.TerminalError`" => capi_ipam_provider::controller::retry::Retry::GiveUp: "`Reconciler::retry` returns it.";
            "`workqueue.TypedRateLimiter`" => capi_ipam_provider::controller::retry::RetryPolicy: "For each object. Only a change by others ends its backoff.";
            "`MaxConcurrentReconciles`" => capi_ipam_provider::controller::options::Options.concurrency: "The flag `--concurrency`, and `ControllerBuilder::concurrency`.";
            "`handler.EventHandler`" => capi_ipam_provider::controller::watch::EventHandler: "Sees every event before the reconciler does.";
            "`handler.EnqueueRequestsFromMapFunc`" => capi_ipam_provider::controller::controller::Store.watched: "Its function calls `Trigger::enqueue`, also for objects that were deleted while the watch was interrupted.";
            "`client.FieldIndexer`" => capi_ipam_provider::controller::controller::Store.index: "For any cached kind, at any time.";
            "`client.MatchingFields`" => capi_ipam_provider::controller::controller::Store.by: "";
            "`predicate.Predicate`" => capi_ipam_provider::controller::controller::ControllerBuilder.wants: "Sees the object before and after the change.";
            "`Controller` that panics, `RecoverPanic`" => capi_ipam_provider::controller::controller::Failure: "`Reconciler::on_error` also learns of panics and time-outs.";
            "`source.Source`, `source.Channel`" => capi_ipam_provider::controller::watch::Source: "Anything that lists objects and reports their changes.";
            "Priority queue" => capi_ipam_provider::controller::controller::ControllerBuilder.priority: "Requests of low priority yield to others as well.";
            "`cache.Options.DefaultTransform`" => capi_ipam_provider::controller::controller::ControllerBuilder.transform: "";
            "`client.Reader` of the cache" => capi_ipam_provider::controller::controller::Store.get: "";
            "`Manager.GetAPIReader`" => capi_ipam_provider::controller::client::ResourceClient.get: "Always a live read.";
            "`client.MergeFrom`, `patch.Helper`" => capi_ipam_provider::controller::patch::write: "A JSON patch with uid and resourceVersion as preconditions.";
            "`controllerutil.CreateOrUpdate`" => capi_ipam_provider::controller::client::ResourceClient.get_or_create: "Followed by `patch::write`.";
            "`controllerutil.AddFinalizer`" => capi_ipam_provider::controller::finalizer::add: "One request, with a precondition.";
            "The finalizer of a reconciler" => capi_ipam_provider::controller::controller::Finalized: "Adds the finalizer before the first reconcile, and removes it after the last one.";
            "`record.EventRecorder`" => capi_ipam_provider::controller::events::EventPublisher.normal: "Repeated events are one series.";
            "`metrics.Registry`" => capi_ipam_provider::controller::metrics::Metrics.register: "";
            "`webhook.Server`, `CustomValidator`" => capi_ipam_webhook::server: "Validators are functions from a request to a decision.";
            "`envtest.Environment`" => capi_ipam_testing::control_plane::ControlPlane.start: "It counts requests, and checks the permissions of the program.";
        },
    }
}

/// The crates `kube` and `kube-runtime`.
pub(crate) fn kube_rs() -> Framework {
    Framework {
        name: "kube-rs",
        introduction: "Types of objects, `Api` and `Client` are those of `kube`. The controller loop is another one: it \
            serves namespaces in turn, knows priorities, and caches objects that need no reconcile in a compact form.",
        rows: rows! {
            "`Controller::new`" => capi_ipam_provider::controller::manager::Manager.controller: "";
            "`Controller::owns`, `Controller::watches`" => capi_ipam_provider::controller::controller::ControllerBuilder.watch: "";
            "`Controller::reconcile_on`" => capi_ipam_provider::controller::controller::Trigger.enqueue: "";
            "`Controller::run`" => capi_ipam_provider::controller::controller::ControllerBuilder.run: "The reconciler is a value that implements a trait. `reconcile_fn` makes one of a closure.";
            "`Controller::graceful_shutdown_on`" => capi_ipam_provider::controller::manager::Manager.stop: "";
            "`Action`" => capi_ipam_provider::controller::controller::Action: "The same two cases.";
            "`Controller::for_stream`" => capi_ipam_provider::controller::watch::Source: "A source is anything that lists objects and reports changes.";
            "`error_policy`" => capi_ipam_provider::controller::controller::Reconciler.retry: "Receives the number of failures.";
            "`finalizer()`" => capi_ipam_provider::controller::controller::Finalized: "";
            "`reflector::Store`" => capi_ipam_provider::controller::controller::Store: "With indexes.";
            "`reflector::store()`" => capi_ipam_provider::controller::controller::Store.watched: "";
            "`watcher()`" => capi_ipam_provider::controller::watch::WatchSpec: "Objects that cannot be decoded are events, not errors.";
            "`watcher::Event`" => capi_ipam_provider::controller::watch::Change: "";
            "`predicates::generation`" => capi_ipam_provider::controller::controller::ControllerBuilder.wants: "";
            "Shared streams" => capi_ipam_provider::controller::watch::FanOut: "Several handlers of one watch.";
            "`events::Recorder`" => capi_ipam_provider::controller::events::EventPublisher: "";
            "`Api`" => capi_ipam_provider::controller::client::ResourceClient: "With a deadline for each request, and errors that name object and operation.";
            "`Patch::Apply`" => capi_ipam_provider::controller::patch::write: "Server-side apply costs two to three times as much.";
        },
    }
}

/// `github.com/grafana/grafana-app-sdk/operator`.
pub(crate) fn app_sdk() -> Framework {
    Framework {
        name: "Grafana App SDK",
        introduction: "An operator with informers, watchers and reconcilers becomes a manager with controllers. Objects \
            have their types everywhere, so there are no casts.",
        rows: rows! {
            "`Operator`, `New`" => capi_ipam_provider::controller::manager::Manager: "";
            "`Operator.AddController`" => capi_ipam_provider::controller::manager::Manager.add: "";
            "`Operator.PrometheusCollectors`" => capi_ipam_provider::controller::metrics::Metrics: "Served without further code.";
            "`metrics.Config`" => capi_ipam_provider::controller::manager::Identity.with_metrics: "Prefix of the names, and buckets of the durations.";
            "`InformerController`" => capi_ipam_provider::controller::controller::ControllerBuilder: "";
            "`InformerController.AddInformer`" => capi_ipam_provider::controller::controller::ControllerBuilder.run: "A controller has one source, which can merge others.";
            "`InformerController.AddWatcher`, `AddReconciler`" => capi_ipam_provider::controller::controller::Reconciler.then: "Before the controller runs. None is added or removed at run time.";
            "`Informer`, `KubernetesBasedInformer`" => capi_ipam_provider::controller::watch::WatchSpec: "";
            "`ListWatchOptions`" => capi_ipam_provider::controller::watch::WatchSpec.config: "Labels and fields. The namespace belongs to the API.";
            "`ResourceWatcher`, `SimpleWatcher`" => capi_ipam_provider::controller::controller::watch_fn: "One closure, with the old object. A failed call is retried.";
            "Several reconcilers of a kind" => capi_ipam_provider::controller::controller::Reconciler.then: "In this order.";
            "`OpinionatedWatcher`, `OpinionatedReconciler`" => capi_ipam_provider::controller::controller::Finalized: "Around a reconciler. `Cause` tells apart new, known, changed and deleted objects. It retries, so no handler has to remember what it has done.";
            "`FinalizerSupplier`" => capi_ipam_provider::controller::controller::Finalized.new: "The finalizer is an argument.";
            "`Reconciler`, `TypedReconciler`" => capi_ipam_provider::controller::controller::Reconciler: "";
            "`SimpleReconciler`" => capi_ipam_provider::controller::controller::reconcile_fn: "";
            "`ReconcileRequest.Action`" => capi_ipam_provider::controller::controller::Cause: "";
            "`ReconcileRequest.State`" => capi_ipam_provider::controller::controller::Attempt.state: "A type instead of a map.";
            "`ReconcileResult.RequeueAfter`" => capi_ipam_provider::controller::controller::Action::Requeue: "";
            "`ResourceActionDelete`" => capi_ipam_provider::controller::controller::Reconciler.wants_deleted: "Asks for a reconcile with `Cause::Deleted`.";
            "`RetryPolicy`" => capi_ipam_provider::controller::controller::Reconciler.retry: "";
            "`RetryDequeuePolicy`" => capi_ipam_provider::controller::controller::ControllerBuilder.dequeues: "";
            "`ErrorHandler`" => capi_ipam_provider::controller::controller::Reconciler.on_error: "Failed sources are reported to `ControllerBuilder::on_source_error`.";
            "`ExponentialBackoffRetryPolicy`" => capi_ipam_provider::controller::retry::RetryPolicy: "";
            "`SetTracer`" => capi_ipam_provider::controller::manager::Identity.with_tracer: "Without one, flags configure the export.";
        },
    }
}

/// Controller managers of a platform, such as `github.com/unikorn-cloud/core/pkg/manager`.
pub(crate) fn platform_manager() -> Framework {
    Framework {
        name: "A controller manager of a platform",
        introduction: "A factory with hooks becomes one function that sets up a manager.",
        rows: rows! {
            "`Run`" => capi_ipam_provider::controller::manager::run: "It returns an exit code.";
            "`ControllerFactory.Metadata`" => capi_ipam_provider::controller::manager::Identity: "Name, version and revision.";
            "`ControllerFactory.Options`" => capi_ipam_provider::controller::manager::run: "The second argument of its closure: any type that derives `clap::Args`.";
            "`ControllerFactory.RegisterWatches`" => capi_ipam_provider::controller::controller::ControllerBuilder.watch: "";
            "`ControllerInitializer`" => capi_ipam_provider::controller::manager::Manager.initialize: "";
            "`ControllerUpgrader`" => capi_ipam_provider::controller::manager::Manager.upgrade: "In steps that can be repeated.";
            "`ErrYield`" => capi_ipam_provider::controller::controller::Action::Requeue: "";
            "`ResourceReady`" => capi_ipam_provider::controller::ready::require: "A value, not an error: what is not ready, and when to look again.";
            "`GenerateResourceReference`" => capi_ipam_provider::references::name_of: "";
            "`AddResourceReference`, `AddResourceReferences`" => capi_ipam_provider::references::add: "An object that does not exist is an error that names it.";
            "`RemoveResourceReferences`" => capi_ipam_provider::references::set: "Removes the references to all other objects.";
            "`RemoveResourceReference`" => capi_ipam_provider::references::remove: "";
            "`ClearResourceReferences`" => capi_ipam_provider::references::clear: "";
            "`GetResourceReferences`" => capi_ipam_provider::references::of: "";
        },
    }
}

/// Controllers whose primary objects are keys of NATS.
pub(crate) fn nats() -> Framework {
    Framework {
        name: "A controller of objects in NATS",
        introduction: "A primary object is a key of a bucket, secondary objects are those of Kubernetes, or keys of \
            other buckets. Every write of a key names the revision that it replaces.",
        rows: rows! {
            "`NewControllerRuntime`" => capi_ipam_nats::Bucket.open: "The bucket is a source of a controller.";
            "`ControllerRuntime.Run`" => capi_ipam_provider::controller::controller::ControllerBuilder.run: "";
            "`IController.SyncHandler`" => capi_ipam_provider::controller::controller::Reconciler.reconcile: "Receives the object and the cause.";
            "`IController.HandleSecondary`" => capi_ipam_provider::controller::watch::EventHandler: "Enqueues the owner with a `Trigger`.";
            "`IController.GarbageSecondaries`" => capi_ipam_nats::Garbage: "Deletes the secondary objects of a deleted key. A key that is only missing deletes nothing, unless `missing_after` says so.";
            "`IController.Clean`" => capi_ipam_provider::controller::manager::Manager.on_stop: "After the last reconcile, with the lease held.";
            "The primary client" => capi_ipam_nats::KvSource: "`Bucket::source` creates it.";
            "Secondary Kubernetes clients" => capi_ipam_nats::Secondaries: "Writes a secondary object with the labels of its owner. Its watch keeps it in memory.";
            "Secondary buckets" => capi_ipam_nats::SecondaryKeys: "A header of the message records the owner.";
            "`DecomposeKubeSecondaryResource`" => capi_ipam_nats::owner::key_of: "";
            "`OwnerKeyLabel`, `OwnerkindLabel`" => capi_ipam_nats::owner::labels: "The labels contain hashes, an annotation contains the text.";
            "`EnqueueKey`" => capi_ipam_provider::controller::controller::Trigger.enqueue: "Without an operation: the reconcile gets the cause.";
            "`EnqueueKeyAfter`" => capi_ipam_provider::controller::controller::Trigger.enqueue_after: "A reconcile returns `Action::Requeue`.";
            "`Operation`" => capi_ipam_nats::Operation: "";
            "`OperationSecondary`" => capi_ipam_provider::controller::controller::Cause::Triggered: "";
            "`resyncInterval`" => capi_ipam_nats::BucketOptions.resync_interval: "";
            "`Event`" => capi_ipam_provider::controller::events::EventPublisher: "About an object of Kubernetes, such as a secondary. A key has no events.";
            "`errCh`" => capi_ipam_provider::controller::health::ReadinessGate.fatal: "Ends the program with one line.";
        },
    }
}
