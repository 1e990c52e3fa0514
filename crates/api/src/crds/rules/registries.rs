//! Limits and validation rules for registries.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::crds::CrdError;

/// The maximum number of servers.
const MAX_SERVERS: usize = 16;
/// The maximum length of the URL of a server.
const MAX_URL_LENGTH: usize = 256;

/// Adds the limits and rules to the schema of registries.
pub(in crate::crds) fn registries(schema: &mut Value) -> Result<(), CrdError> {
    let name = Rule::of(
        "metadata",
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "the name must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "", [name])?;
    // The API server does not evaluate the transition rules of a field that an update adds or
    // removes.
    let same_cluster = Rule::of(
        "clusterID",
        "has(self.clusterID) == has(oldSelf.clusterID) && (!has(self.clusterID) || self.clusterID == oldSelf.clusterID)",
        "field is immutable; create another registry when no network uses this one",
    );
    // Records that another one has say nothing of the blocks that networks have taken from this
    // one.
    let same_place = Rule::of(
        "nats",
        "has(self.nats) == has(oldSelf.nats) && (!has(self.nats) || self.nats.bucket == oldSelf.nats.bucket)",
        "a bucket cannot be replaced by another one or by kubernetes, nor kubernetes by a bucket; create another registry \
         when no network uses this one",
    );
    let one = Rule::new(
        "has(self.nats) != has(self.kubernetes)",
        "exactly one of nats and kubernetes is required",
    );
    add(schema, "spec", [same_cluster, same_place, one])?;
    let id = Rule::new(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "spec.clusterID", [id])?;
    limit(schema, "spec.nats.servers", "maxItems", MAX_SERVERS)?;
    limit(schema, "spec.nats.servers", "minItems", 1)?;
    limit(schema, "spec.nats.servers[]", "maxLength", MAX_URL_LENGTH)?;
    let server = Rule::new(
        "self.matches('^(nats|tls|ws|wss)://[^@/]+$')",
        "must be a URL such as nats://nats-0.nats:4222, without a user name and a password; write these into the Secret",
    );
    add(schema, "spec.nats.servers[]", [server])?;
    let bucket = Rule::new(
        "self.matches('^[-_a-zA-Z0-9]+$')",
        "must consist of letters, digits, dashes and underscores",
    );
    add(schema, "spec.nats.bucket", [bucket])
}
