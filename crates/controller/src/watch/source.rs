//! Sources of objects: a watch of a Kubernetes kind, or anything else that lists objects and then
//! reports their changes, such as a bucket of a key-value store.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::Resource;
use kube::core::ObjectMeta;

use super::{EventHandler, Invalid};
use crate::controller::Fingerprint;
use crate::health::ReadinessGate;
use crate::namespaced_name::NamespacedName;

/// What a controller has to know of an object. Every [`Resource`] of Kubernetes implements it.
pub trait Keyed: Clone + Debug + Send + Sync + 'static {
    /// Whether the source leaves a [marker](Self::is_gone) of each deleted object. If so, the
    /// marker alone shows the deletion: an object that a list does not contain is forgotten, and
    /// not reconciled as deleted, since the source may have lost it.
    const HAS_MARKERS: bool = false;

    /// The key of the object, unique among the objects of its kind. Sources without namespaces use
    /// an empty one.
    fn key(&self) -> NamespacedName;

    /// Whether the object is being deleted and still exists: it has a deletion timestamp.
    fn is_deleting(&self) -> bool;

    /// Whether this is a marker of a deleted object. A controller handles it as the deletion of the
    /// object of its key, also if it is a part of a list. An object of Kubernetes never is.
    fn is_gone(&self) -> bool {
        false
    }

    /// Whether this is a later or earlier state of another object of its key, and not an object
    /// that was created after the deletion of that one. Sources without identities do not know.
    fn is_same(&self, _other: &Self) -> bool {
        true
    }

    /// This object with the metadata of a later state, which cannot be decoded. `None` if the
    /// metadata is that of another object, or if objects of the source have no such metadata.
    fn with_metadata(&self, _metadata: &ObjectMeta) -> Option<Self> {
        None
    }

    /// Adds to the hash what ends the backoff of the object when it changes: everything but what
    /// its reconciler writes.
    fn fingerprint(&self, hasher: &mut dyn Hasher);

    /// Whether the [fingerprint](Self::fingerprint) differs from that of an earlier state.
    fn has_changed_since(&self, earlier: &Self) -> bool {
        Fingerprint::of(self) != Fingerprint::of(earlier)
    }
}

/// An object of Kubernetes. A change of its uid, or of anything that others write, ends its
/// backoff. The status is left out, since the controller's own writes change it.
impl<K: Resource + Clone + Debug + Send + Sync + 'static> Keyed for K {
    fn key(&self) -> NamespacedName {
        NamespacedName::of(self.meta())
    }

    fn is_deleting(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.meta().uid == other.meta().uid
    }

    fn with_metadata(&self, metadata: &ObjectMeta) -> Option<Self> {
        if self.meta().uid != metadata.uid {
            return None;
        }
        let mut later = self.clone();
        later.meta_mut().clone_from(metadata);
        Some(later)
    }

    fn fingerprint(&self, mut hasher: &mut dyn Hasher) {
        let meta = self.meta();
        (
            &meta.uid,
            meta.generation,
            meta.deletion_timestamp.is_some(),
            &meta.finalizers,
        )
            .hash(&mut hasher);
        (&meta.labels, &meta.annotations).hash(&mut hasher);
    }
}

/// What a source reports. Corresponds to [`EventHandler`].
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// A list begins.
    Init,
    /// An object of the list.
    InitApply(K),
    /// The list is complete: objects that it did not contain are gone.
    InitDone,
    /// The object was created or changed.
    Apply(K),
    /// The object was deleted. This is its last state.
    Delete(K),
    /// An object that cannot be decoded was listed, created or changed. It exists.
    ApplyInvalid(Invalid),
    /// An object whose last state cannot be decoded was deleted.
    DeleteInvalid(Invalid),
    /// The source has failed, for this reason, and is opened again.
    Failed(String),
}

impl<K: 'static> Change<K> {
    /// Calls the method of the handler for this change.
    pub fn pass_to(&self, handler: &dyn EventHandler<K>) {
        match self {
            Self::Init => handler.init(),
            Self::InitApply(object) | Self::Apply(object) => handler.apply(object),
            Self::InitDone => handler.init_done(),
            Self::Delete(object) => handler.delete(object),
            Self::ApplyInvalid(object) => handler.apply_invalid(object),
            Self::DeleteInvalid(object) => handler.delete_invalid(object),
            Self::Failed(_) => {}
        }
    }
}

/// A source that is read.
pub struct Opened<K> {
    /// The changes, each of which `handler` has seen. Begins with a list. The end of the stream is
    /// a fatal error, so a source that fails recovers by itself and lists again.
    pub changes: BoxStream<'static, Change<K>>,
    /// Sees every change before a reconciler does. A controller also reports to it the objects that
    /// it has in its cache and that a later list does not contain.
    pub handler: Arc<dyn EventHandler<K>>,
    /// Becomes ready when the first list has been processed. The reader of `changes` reports this.
    pub synced: ReadinessGate,
}

impl<K: Send + 'static> Opened<K> {
    /// Opens a stream of changes that the handler has not seen.
    pub fn new(
        changes: impl Stream<Item = Change<K>> + Send + 'static,
        handler: Arc<dyn EventHandler<K>>,
        synced: ReadinessGate,
    ) -> Self {
        let seen_by = Arc::clone(&handler);
        let changes = changes.inspect(move |change| change.pass_to(seen_by.as_ref()));
        Self {
            changes: changes.boxed(),
            handler,
            synced,
        }
    }
}

/// Lists objects and then reports their changes. A [`WatchSpec`](super::WatchSpec) is the source of
/// a Kubernetes kind.
///
/// ```
/// use std::hash::{Hash, Hasher};
/// use std::sync::Arc;
///
/// use capi_ipam_controller::health::{Health, ReadinessGate};
/// use capi_ipam_controller::namespaced_name::NamespacedName;
/// use capi_ipam_controller::watch::{Change, Keyed, Opened, Source};
///
/// /// A line of a configuration file.
/// #[derive(Clone, Debug)]
/// struct Setting {
///     name: String,
///     value: String,
/// }
///
/// impl Keyed for Setting {
///     fn key(&self) -> NamespacedName {
///         NamespacedName::new("", &self.name)
///     }
///
///     fn is_deleting(&self) -> bool {
///         false
///     }
///
///     fn fingerprint(&self, mut hasher: &mut dyn Hasher) {
///         self.value.hash(&mut hasher);
///     }
/// }
///
/// /// The settings with which a process starts. They never change.
/// struct Settings {
///     all: Vec<Setting>,
///     synced: ReadinessGate,
/// }
///
/// impl Source for Settings {
///     type Object = Setting;
///
///     fn open(self) -> Opened<Setting> {
///         let mut list = vec![Change::Init];
///         list.extend(self.all.into_iter().map(Change::InitApply));
///         list.push(Change::InitDone);
///         let endless = futures::StreamExt::chain(futures::stream::iter(list), futures::stream::pending());
///         Opened::new(endless, Arc::new(()), self.synced)
///     }
/// }
/// # let settings = Settings { all: Vec::new(), synced: Health::default().register_watch("Setting") };
/// # let _ = settings.open();
/// ```
pub trait Source: Send + 'static {
    /// The kind of the objects.
    type Object: Keyed;

    /// Opens the source. Nothing is requested before the first poll of [`Opened::changes`], and
    /// dropping that closes the source.
    fn open(self) -> Opened<Self::Object>;
}
