//! What the ledger keeps of a pool object.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{
    AccessRules, AddressMetadata, AllocationOrder, DnsSettings, NetworkRefusal, Pool, PoolFields,
    PoolKey, PoolSpec, ReclaimPolicy, Scope, SliceRules, names,
};
use capi_ipam_contract::is_paused;
use capi_ipam_ip::UsableBlocks;
use capi_ipam_objects::maybe_invalid::Invalid;
use kube::ResourceExt;
use kube::core::{ObjectMeta, Selector};

/// The cool-down of a pool whose specification is not known: longer than any manager runs.
const UNKNOWN_COOLDOWN_SECONDS: i64 = 100 * 365 * 24 * 60 * 60;

/// What the ledger keeps of a pool object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInfo {
    /// The uid of the pool.
    pub uid: String,
    /// Whether the pool has the annotation that pauses it.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether the pool has our finalizer, and the block length of its network is set.
    pub initialized: bool,
    /// The seconds before a released address can be reused; 0 without a cool-down.
    pub cooldown_seconds: i64,
    /// Whether a claim gets the address back that the last claim of its name had.
    pub is_sticky: bool,
    /// Whether claims may request an address.
    pub accepts_requests: bool,
    /// The scope within which its addresses are unique.
    pub scope: Scope,
    /// The network that the spec names.
    pub network: Option<Arc<str>>,
    /// The network that the pool leaves, according to its annotation, although addresses of it are
    /// in use there.
    pub leaves_network: Option<Arc<str>>,
    /// Whether the pool would have left its network, and is kept in it because addresses of it are
    /// in use there.
    pub is_kept_in_network: bool,
    /// Why the pool must not use the network that it names, or that selects it. It neither
    /// allocates nor changes its reservations then.
    pub network_problem: Option<NetworkRefusal>,
    /// The labels, by which networks select pools.
    pub labels: Arc<BTreeMap<String, String>>,
    /// When the pool was created, in seconds since the Unix epoch.
    pub created: i64,
    /// The blocks that can be allocated, or the problems of the spec.
    pub usable: Result<Arc<UsableBlocks>, Arc<str>>,
    /// The gateways, which no pool of the network allocates.
    pub gateways: Arc<[IpAddr]>,
    /// The optional fields that are set.
    pub fields: PoolFields,
    /// The optional fields that were set before the last change of the spec, and are not any more.
    pub removed_fields: PoolFields,
    /// The order in which they are allocated.
    pub order: AllocationOrder,
    /// Which addresses count as abandoned although their claims exist.
    pub reclaim: ReclaimPolicy,
    /// Whether the spec names draining parts.
    pub is_draining: bool,
    /// Labels and annotations of new IPAddress objects.
    pub metadata: Option<Arc<AddressMetadata>>,
    /// The name servers and DNS names of new IPAddress objects; `None` without any.
    pub dns: Option<Arc<DnsSettings>>,
    /// Who may use the pool; `None` without restrictions.
    pub access: Option<Arc<AccessRules>>,
    /// How the pool is divided into slices; `None` without slices.
    pub slices: Option<Arc<SliceRules>>,
    /// The `metadata.generation` of the spec.
    pub generation: Option<i64>,
}

impl PoolInfo {
    /// Reads a pool object.
    pub fn of(pool: &Pool) -> Self {
        Self::updated(None, pool)
    }

    /// Reads a pool object. What `known`, the previous state of the pool, has by its last valid
    /// specification stays in force while the specification is not valid: it does not allocate, and
    /// others rely on the rest. It also stays if the specification has the same generation: a
    /// status update does not parse thousands of addresses again. That the object has fewer fields
    /// then shows only that a definition has lost them.
    pub fn updated(known: Option<&Self>, pool: &Pool) -> Self {
        let meta = &pool.metadata;
        let fields = pool.spec.optional_fields();
        let known = known.filter(|known| known.is_of(meta));
        if let Some(known) = known
            && known.has_generation_of(meta)
            && fields.without(known.fields).is_empty()
        {
            return known.with_metadata(meta);
        }
        let declared = Self::declared(pool);
        match (known, &declared.usable) {
            (Some(known), Err(_)) => Self {
                usable: declared.usable,
                generation: meta.generation,
                ..known.with_metadata(meta)
            },
            (Some(known), Ok(_)) => Self {
                removed_fields: known.fields.without(fields),
                ..declared
            },
            (None, _) => declared,
        }
    }

    fn has_generation_of(&self, meta: &ObjectMeta) -> bool {
        self.is_of(meta) && self.generation.is_some() && self.generation == meta.generation
    }

    /// Whether the pool had optional fields with the same generation that the object does not have.
    pub(crate) fn has_more_fields_than(&self, pool: &Pool) -> bool {
        let lost = self.fields.without(pool.spec.optional_fields());
        self.has_generation_of(&pool.metadata) && !lost.is_empty()
    }

    /// Reads a pool object of which no earlier state is known. Of a specification that is not
    /// valid, what can be read is in force.
    fn declared(pool: &Pool) -> Self {
        let spec = &pool.spec;
        let mut problems = Vec::new();
        let usable = ok_or_add(spec.usable(), &mut problems);
        // A pool of a namespace has no access rules: it is for the claims of this namespace.
        let mut access = None;
        if pool.kind.is_global() {
            access = ok_or_add(spec.access().rules(), &mut problems).flatten();
        }
        // Without valid blocks it is not known how many slices there are.
        let mut slices = None;
        if let Some(usable) = &usable {
            slices = ok_or_add(spec.slice_rules(usable), &mut problems).flatten();
        }
        let metadata = spec.address_metadata();
        if let Some(metadata) = metadata {
            add(&metadata.problems(), &mut problems);
        }
        add(&spec.dns_problems(), &mut problems);
        let usable = match usable {
            Some(usable) if problems.is_empty() => Ok(Arc::new(usable)),
            _ => Err(problems.join("; ").into()),
        };
        let gateways = match &usable {
            Ok(usable) => usable.gateways().collect(),
            Err(_) => spec.readable_gateways(),
        };
        let empty = Self {
            uid: pool.uid().unwrap_or_default(),
            paused: false,
            deleting: false,
            initialized: false,
            cooldown_seconds: spec.cooldown_seconds(),
            is_sticky: spec.is_sticky(),
            accepts_requests: spec.accepts_requests(),
            scope: Scope::Pool(PoolKey::of(pool)),
            network: spec.network().map(Into::into),
            leaves_network: None,
            is_kept_in_network: false,
            network_problem: None,
            labels: Arc::default(),
            created: 0,
            usable,
            gateways: gateways.into(),
            fields: spec.optional_fields(),
            removed_fields: PoolFields::default(),
            order: spec.order(),
            reclaim: spec.reclaim(),
            is_draining: !spec.draining().is_empty(),
            metadata: metadata.cloned().map(Arc::new),
            dns: spec.dns_settings().map(Arc::new),
            access: access.map(Arc::new),
            slices: slices.map(Arc::new),
            generation: pool.metadata.generation,
        };
        empty.with_metadata(&pool.metadata)
    }

    /// The same settings with the metadata of a later state of the pool.
    fn with_metadata(&self, meta: &ObjectMeta) -> Self {
        let created = match &meta.creation_timestamp {
            Some(time) => time.0.as_second(),
            None => 0,
        };
        let annotations = meta.annotations.as_ref();
        let leaves = annotations.and_then(|all| all.get(names::LEAVE_NETWORK_ANNOTATION));
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        Self {
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            initialized: finalizers.iter().any(|set| set == names::PROTECT_POOL),
            leaves_network: leaves.map(|name| name.as_str().into()),
            labels: Arc::new(meta.labels.clone().unwrap_or_default()),
            created,
            ..self.clone()
        }
    }

    /// Whether this is an earlier state of the object with this metadata.
    fn is_of(&self, meta: &ObjectMeta) -> bool {
        meta.uid.as_ref() == Some(&self.uid)
    }

    /// The pool in a later state that cannot be decoded. Its settings are those of the last state
    /// that could be, and it does not allocate: any field of the specification may have changed.
    pub(crate) fn undecodable(&self, later: &Invalid) -> Self {
        Self {
            usable: Err(format!("it cannot be decoded: {}", later.error).into()),
            generation: None,
            ..self.with_metadata(&later.metadata)
        }
    }

    /// A pool of which no state could be decoded: what can be read of it is in force. It may have
    /// any cool-down, so none ends.
    pub(crate) fn never_decoded(key: &PoolKey, object: &Invalid) -> Self {
        let mut pool = Pool::reference(key, None);
        pool.metadata.clone_from(&object.metadata);
        pool.spec = PoolSpec::readable(key.kind, &object.spec);
        let known = Self {
            cooldown_seconds: UNKNOWN_COOLDOWN_SECONDS,
            ..Self::declared(&pool)
        };
        known.undecodable(object)
    }

    /// Selects the labels of claims and Machines for which the headroom is; `None` without
    /// headroom.
    pub fn headroom_selector(&self) -> Option<&Selector> {
        let (_, selector) = self.access.as_ref()?.headroom.as_ref()?;
        Some(selector)
    }

    /// The blocks that can be allocated; `None` if the spec is not valid.
    pub fn blocks(&self) -> Option<&Arc<UsableBlocks>> {
        self.usable.as_ref().ok()
    }

    /// Whether only this pool is refused by its network: it counts for nothing on which others
    /// depend.
    pub(crate) fn is_refused_alone(&self) -> bool {
        self.network_problem
            .as_ref()
            .is_some_and(capi_ipam_api::NetworkRefusal::is_of_the_pool)
    }

    /// Whether reservations of the pool in other scopes are moved to its scope. A pool that is
    /// paused, being deleted, not valid or refused by its network keeps them where they are.
    pub(crate) fn moves_reservations(&self) -> bool {
        let is_settled = !self.paused && !self.deleting && self.usable.is_ok();
        is_settled && self.network_problem.is_none()
    }

    /// Whether the pool can allocate addresses to claims.
    pub fn can_allocate(&self) -> bool {
        self.can_bind() && !self.deleting && self.network_problem.is_none()
    }

    /// Whether claims that already hold an address of the pool can be bound: also while the pool is
    /// being deleted.
    pub fn can_bind(&self) -> bool {
        let is_refused = self
            .network_problem
            .as_ref()
            .is_some_and(|refusal| !refusal.keeps_members());
        self.usable.is_ok() && !self.paused && self.initialized && !is_refused
    }
}

/// What was parsed, or adds the problems.
fn ok_or_add<T, E: Display>(parsed: Result<T, Vec<E>>, problems: &mut Vec<String>) -> Option<T> {
    match parsed {
        Ok(parsed) => Some(parsed),
        Err(found) => {
            add(&found, problems);
            None
        }
    }
}

fn add<E: Display>(found: &[E], problems: &mut Vec<String>) {
    for problem in found {
        problems.push(problem.to_string());
    }
}
