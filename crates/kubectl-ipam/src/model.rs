//! Reports: what a command shows. They are computed by pure functions from the objects, and are the
//! output of `-o json` and `-o yaml`.

mod adopt;
mod changes;
mod claims;
mod clusters;
mod contents;
pub(crate) mod doctor;
mod fact;
mod finding;
mod health;
mod history;
mod holders;
mod map;
mod networks;
mod overview;
mod parts;
mod pools;
mod ranking;
mod regions;
pub(crate) mod registry;
mod search;
mod show;
mod slices;
mod waiting_groups;
mod window;

use capi_ipam_api::AllocationEvent;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

pub(crate) use self::adopt::adopt;
pub use self::changes::{ReservationAction, ReservationChange};
pub(crate) use self::claims::claims;
pub use self::claims::{ClaimLine, ClaimState};
pub use self::clusters::ClusterAddresses;
pub(crate) use self::clusters::clusters;
pub(crate) use self::contents::has_supply;
pub(crate) use self::doctor::{LeaseRow, Selection, Snapshot, diagnosis, is_held, retain};
pub use self::fact::Fact;
pub(crate) use self::fact::list;
pub(crate) use self::finding::word;
pub use self::finding::{
    Cause, Check, Finding, FindingList, Part, PartLine, PartState, Severity, Unchecked,
};
pub(crate) use self::health::{Answer, Manager, Outage, OutageCause, manager, unprocessed};
pub(crate) use self::history::History;
pub use self::holders::{Holder, HolderState, Membership, PoolMatch};
pub(crate) use self::holders::{holders, matches_of, why_not_contained};
pub(crate) use self::map::ROW;
pub use self::map::{Cell, OccupancyMap};
pub(crate) use self::networks::network_line;
pub use self::networks::{MemberLine, NetworkLine};
pub(crate) use self::overview::{
    FoundProblem, Overview, OverviewPool, PoolFinding, networks, ranges,
};
pub(crate) use self::parts::{health, parts};
pub use self::pools::{Counts, KnownCounts, PoolLine};
pub(crate) use self::pools::{pools, size};
pub use self::registry::{
    BlockLine, BlockState, ClusterLine, ClusterState, NetworkBlocksLine, ReadyState, RecordAction,
    RecordChange, RecordProblem, RegistryCheck, RegistryLine, RegistryRelease,
};
pub(crate) use self::registry::{
    LastRecords, NetworkBlocks, RegistryFacts, Unread, network_blocks, registry_lines,
};
pub(crate) use self::search::{SearchResult, search_address, search_text};
pub use self::show::PoolDetails;
pub(crate) use self::show::{show, specification};
pub use self::slices::SliceLine;
pub(crate) use self::waiting_groups::{WaitingGroup, waiting_groups};
pub(crate) use self::window::{MapPart, PoolWindow, View, window};
pub use capi_ipam_api::PoolName;
pub use capi_ipam_rollout::{PlanAddresses, PlanLine, PlanPool};

/// The output of a command. The field `kind` names the command's type of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind")]
pub enum Report {
    /// The output of `pools`.
    PoolList {
        /// The pools, by kind, namespace and name.
        #[serde(rename = "items")]
        pools: Vec<PoolLine>,
    },
    /// The output of `networks`.
    NetworkList {
        /// The networks, by name.
        #[serde(rename = "items")]
        networks: Vec<NetworkLine>,
    },
    /// The output of `who`.
    HolderList {
        /// The address or prefix that was searched.
        address: String,
        /// The pools and networks that contain it; `null` if it is unknown.
        pools: Option<Vec<PoolMatch>>,
        /// What holds it, or a part of it; `null` if it is unknown.
        #[serde(rename = "items")]
        holders: Option<Vec<Holder>>,
        /// Its blocks in networks that share blocks with other management clusters.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<BlockLine>,
    },
    /// The output of `claims`.
    ClaimList {
        /// The claims, by namespace and name.
        #[serde(rename = "items")]
        claims: Vec<ClaimLine>,
    },
    /// The output of `clusters`.
    ClusterList {
        /// The Clusters, by namespace and name.
        #[serde(rename = "items")]
        clusters: Vec<ClusterAddresses>,
    },
    /// The output of `doctor`.
    FindingList(FindingList),
    /// The output of `show`.
    PoolDetails(Box<PoolDetails>),
    /// The output of `plan`.
    RolloutPlan {
        /// The objects that create Machines, once for each pool: those without claims last.
        #[serde(rename = "items")]
        lines: Vec<PlanLine>,
        /// The pools that they use.
        pools: Vec<PlanPool>,
    },
    /// The output of `history`.
    AllocationHistory {
        /// The address or prefix that was searched.
        address: String,
        /// The lines of the allocation log, by time.
        #[serde(rename = "items")]
        events: Vec<AllocationEvent>,
    },
    /// The output of `reserve` and `unreserve`.
    ReservationChange(ReservationChange),
    /// The output of `registry list`.
    RegistryList {
        /// The registries, by name.
        #[serde(rename = "items")]
        registries: Vec<RegistryLine>,
    },
    /// The output of `registry check`.
    RegistryCheck(RegistryCheck),
    /// The output of `registry release`.
    RegistryRelease(RegistryRelease),
}

impl Report {
    /// Whether the command has found that something is wrong.
    pub(crate) fn has_problems(&self) -> bool {
        match self {
            Self::RolloutPlan { pools, .. } => pools.iter().any(|pool| pool.short > 0),
            Self::RegistryCheck(check) => check.has_problems(),
            _ => false,
        }
    }
}

/// The version of the format of `-o json` and `-o yaml`.
const OUTPUT_VERSION: &str = "cli.ipam.cluster.x-k8s.io/v1alpha1";

/// The output of `-o json` and `-o yaml`. Lists have their elements in `items`, as those of kubectl.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Document<'a> {
    /// The version of the format.
    pub api_version: &'static str,
    /// The output of the command.
    #[serde(flatten)]
    pub report: &'a Report,
    /// The permissions that the caller lacks. Then lists can be incomplete, and what is unknown is
    /// `null`.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub missing: &'a [String],
}

impl<'a> Document<'a> {
    /// The document of a report.
    pub(crate) fn new(report: &'a Report, missing: &'a [String]) -> Self {
        Self {
            api_version: OUTPUT_VERSION,
            report,
            missing,
        }
    }
}

/// The JSON schemas of the documents that the page of `web` reads, and of the types in them, by name.
pub fn page_schemas() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    generator.subschema_for::<Overview>();
    generator.subschema_for::<FoundProblem>();
    generator.subschema_for::<PoolWindow>();
    generator.subschema_for::<NetworkBlocks>();
    generator.subschema_for::<SearchResult>();
    generator.subschema_for::<ClusterAddresses>();
    generator.take_definitions(true)
}
