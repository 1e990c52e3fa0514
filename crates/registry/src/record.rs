//! Records as JSON, and whether a record belongs under its name.

use capi_ipam_api::{BlockRecord, ClusterRecord, MAX_CONTENDERS, NetworkRecord};
use capi_ipam_ip::Block;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;

use crate::error::RegistryError;
use crate::key::Key;

pub use capi_ipam_api::IPBlockSpec as Record;

/// The maximum size of a record as JSON, in bytes.
const MAX_SIZE: usize = 8 * 1024;

/// Why what stands under a name is not a record of a registry. It exists all the same: a block with
/// such a record has a holder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The record was deleted.
    #[error("it was deleted")]
    Deleted,
    /// The name is not that of a record.
    #[error("its name is not that of a record")]
    Name,
    /// The record is larger than any that this program writes.
    #[error("it has {size} bytes, at most {MAX_SIZE} are read")]
    TooLarge {
        /// Its size as JSON, in bytes.
        size: usize,
    },
    /// The record cannot be decoded.
    #[error("it cannot be decoded: {0}")]
    Undecodable(String),
    /// The record is about something else than its name says.
    #[error("its {field} is {found:?} and does not match its name")]
    Mismatch {
        /// The field of the record.
        field: &'static str,
        /// The value of the field.
        found: String,
    },
    /// A list of the record is longer than allowed.
    #[error("it has {found} contenders, at most {MAX_CONTENDERS} are allowed")]
    Contenders {
        /// The number of entries.
        found: usize,
    },
}

/// Decodes a record as a key-value store has it: the JSON of the inner struct, whose type the name
/// decides.
///
/// # Errors
/// When it is not a record of that name.
pub fn decode(name: &str, json: &str) -> Result<Record, Problem> {
    let key = Key::parse(name).ok_or(Problem::Name)?;
    // An earlier version lists the exclusions of all clusters in the record of a network.
    if !matches!(key, Key::Network { .. }) {
        check_size(json)?;
    }
    let record = match key {
        Key::Block { .. } => Record::Block(parse(json)?),
        Key::Cluster { .. } => Record::Cluster(parse(json)?),
        Key::Network { .. } => Record::Network(parse(json)?),
        Key::Registry => Record::Registry(parse(json)?),
    };
    check(&key, &record)?;
    Ok(record)
}

fn encode(record: &Record) -> Result<String, serde_json::Error> {
    match record {
        Record::Block(inner) => serde_json::to_string(inner),
        Record::Cluster(inner) => serde_json::to_string(inner),
        Record::Network(inner) => serde_json::to_string(inner),
        Record::Registry(inner) => serde_json::to_string(inner),
    }
}

/// Checks that a record of a store that limits their sizes is about its name.
pub(crate) fn matches_name(name: &str, record: &Record) -> Result<(), Problem> {
    let key = Key::parse(name).ok_or(Problem::Name)?;
    check(&key, record)
}

/// Encodes a record as [`decode`] reads it, if it may be written under a name.
fn validate(name: &str, record: &Record) -> Result<String, Problem> {
    matches_name(name, record)?;
    let json = encode(record).map_err(|error| Problem::Undecodable(error.to_string()))?;
    check_size(&json)?;
    Ok(json)
}

/// Encodes a record that is about to be written to a registry.
pub(crate) fn encode_for(
    registry: &str,
    name: &str,
    record: &Record,
) -> Result<String, RegistryError> {
    validate(name, record).map_err(|problem| RegistryError::Invalid {
        registry: registry.to_owned(),
        source: format!("record {name} cannot be written: {problem}").into(),
    })
}

fn check_size(json: &str) -> Result<(), Problem> {
    let size = json.len();
    if size > MAX_SIZE {
        return Err(Problem::TooLarge { size });
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Problem> {
    serde_json::from_str(json).map_err(|error| Problem::Undecodable(error.to_string()))
}

/// Checks that a record is about its key.
fn check(key: &Key, record: &Record) -> Result<(), Problem> {
    match (key, record) {
        (Key::Block { network, block }, Record::Block(record)) => {
            check_block(network, *block, record)
        }
        (Key::Cluster { id }, Record::Cluster(ClusterRecord { cluster, .. })) => {
            same("cluster", cluster, id)
        }
        (Key::Network { name }, Record::Network(NetworkRecord { network, .. })) => {
            same("network", network, name)
        }
        (Key::Registry, Record::Registry(_)) => Ok(()),
        _ => Err(Problem::Mismatch {
            field: "kind",
            found: kind(record).to_owned(),
        }),
    }
}

fn check_block(network: &str, block: Block, record: &BlockRecord) -> Result<(), Problem> {
    same("network", &record.network, network)?;
    same("block", &record.block, &cidr(block))?;
    let found = record.contenders.len();
    if found > MAX_CONTENDERS {
        return Err(Problem::Contenders { found });
    }
    Ok(())
}

fn same(field: &'static str, found: &str, expected: &str) -> Result<(), Problem> {
    if found == expected {
        return Ok(());
    }
    Err(Problem::Mismatch {
        field,
        found: found.to_owned(),
    })
}

/// A block as records have it: in CIDR notation, a single address too.
///
/// ```
/// use capi_ipam_ip::Block;
///
/// let block = Block::new("10.8.0.70".parse().unwrap(), 32);
/// assert_eq!(capi_ipam_registry::cidr(block), "10.8.0.70/32");
/// ```
pub fn cidr(block: Block) -> String {
    format!("{}/{}", block.base(), block.length())
}

/// Makes a cluster the holder of a block: one that uses addresses of it, or that takes it after its return.
pub fn hand_over(record: &mut BlockRecord, cluster: String, now: Time) {
    record.contenders.retain(|contender| *contender != cluster);
    record.cluster = cluster;
    record.since = Some(now);
    record.returned_at = None;
    record.used = None;
}

/// What a record is about.
fn kind(record: &Record) -> &'static str {
    match record {
        Record::Block(_) => "block",
        Record::Cluster(_) => "cluster",
        Record::Network(_) => "network",
        Record::Registry(_) => "registry",
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::MAX_EXCLUSIONS;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NAME: &str = "block.lab.10.8.0.64-26";

    fn block(change: &serde_json::Value) -> String {
        let mut record = json!({"network": "lab", "block": "10.8.0.64/26", "cluster": "west"});
        let fields = record.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        record.to_string()
    }

    #[test]
    fn encoded_records_are_decoded() {
        let records = [
            (
                NAME,
                Record::Block(BlockRecord {
                    network: "lab".to_owned(),
                    block: "10.8.0.64/26".to_owned(),
                    cluster: "west".to_owned(),
                    used: Some(7),
                    ..BlockRecord::default()
                }),
            ),
            (
                "cluster.west",
                Record::Cluster(ClusterRecord {
                    cluster: "west".to_owned(),
                    blocks: 3,
                    exclusions: [("lab".to_owned(), "e3b0c442".to_owned())].into(),
                    ..ClusterRecord::default()
                }),
            ),
            (
                "network.lab",
                Record::Network(NetworkRecord {
                    network: "lab".to_owned(),
                    size: 64,
                    size_of: "west".to_owned(),
                    quarantine_seconds: Some(3600),
                }),
            ),
        ];
        for (name, record) in records {
            let json = validate(name, &record).unwrap();
            assert_eq!(decode(name, &json), Ok(record), "{name}");
        }
    }

    #[test]
    fn block_is_handed_over() {
        let now: Time = serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap();
        let mut record = BlockRecord {
            cluster: "west".to_owned(),
            contenders: vec!["east".to_owned(), "north".to_owned()],
            used: Some(7),
            returned_at: Some(now.clone()),
            ..BlockRecord::default()
        };
        hand_over(&mut record, "east".to_owned(), now.clone());
        let expected = BlockRecord {
            cluster: "east".to_owned(),
            contenders: vec!["north".to_owned()],
            since: Some(now),
            ..BlockRecord::default()
        };
        assert_eq!(record, expected);
    }

    /// An earlier version has deleted the record after this mark.
    #[test]
    fn block_that_an_earlier_version_was_returning_is_returned() {
        let json = block(&json!({"emptySince": "2026-01-01T12:00:00Z"}));
        let Ok(Record::Block(record)) = decode(NAME, &json) else {
            panic!("it is a record");
        };
        assert!(record.returned_at.is_some());
    }

    #[test]
    fn fields_of_other_versions_are_ignored() {
        assert!(decode(NAME, &block(&json!({"later": {"a": 1}}))).is_ok());
        let mut network = json!({"network": "lab", "size": 64, "sizeOf": "west", "excluded": {}});
        for number in 0..256 {
            network["excluded"][format!("cluster-{number}")] =
                json!(["10.8.0.1", "10.8.0.4-10.8.0.9"]);
        }
        let text = network.to_string();
        assert!(text.len() > MAX_SIZE);
        let decoded = decode("network.lab", &text).unwrap();
        assert!(validate("network.lab", &decoded).is_ok());
    }

    #[test]
    fn largest_sign_of_life_can_be_written() {
        let id = "c".repeat(253);
        let networks = (0..MAX_EXCLUSIONS).map(|number| format!("{number:063}"));
        let record = ClusterRecord {
            cluster: id.clone(),
            uid: Some("u".repeat(63)),
            process: "p".repeat(253),
            exclusions: networks.map(|name| (name, "e3b0c442".to_owned())).collect(),
            ..ClusterRecord::default()
        };
        let key = format!("cluster.{id}");
        assert!(validate(&key, &Record::Cluster(record)).is_ok());
    }

    #[test]
    fn record_that_does_not_match_its_name_is_a_problem() {
        let cases = [
            (json!({"network": "other"}), "network"),
            (json!({"block": "10.8.0.128/26"}), "block"),
            (json!({"block": "10.8.0.64/27"}), "block"),
            (json!({"block": "10.8.0.65/26"}), "block"),
        ];
        for (change, expected) in cases {
            let problem = decode(NAME, &block(&change)).unwrap_err();
            let is_named =
                matches!(&problem, Problem::Mismatch { field, .. } if *field == expected);
            assert!(is_named, "{problem}");
        }
        let other = Record::Cluster(ClusterRecord::default());
        assert!(validate(NAME, &other).is_err());
        assert!(decode("cluster.west", r#"{"cluster": "east", "process": ""}"#).is_err());
        assert!(
            decode(
                "network.lab",
                r#"{"network": "x", "size": 1, "sizeOf": "a"}"#
            )
            .is_err()
        );
        assert_eq!(decode("something", "{}"), Err(Problem::Name));
    }

    #[test]
    fn bad_text_is_a_problem() {
        for text in ["", "{", "[]", "null", "{}", "\u{0}"] {
            let problem = decode(NAME, text).unwrap_err();
            assert!(matches!(problem, Problem::Undecodable(_)), "{problem}");
        }
        let times = block(&json!({"since": "yesterday"}));
        assert!(matches!(decode(NAME, &times), Err(Problem::Undecodable(_))));
        let large = block(&json!({"later": "x".repeat(MAX_SIZE)}));
        assert!(matches!(
            decode(NAME, &large),
            Err(Problem::TooLarge { .. })
        ));
        let many = block(&json!({"contenders": vec!["a"; MAX_CONTENDERS + 1]}));
        assert_eq!(decode(NAME, &many), Err(Problem::Contenders { found: 9 }));
    }

    proptest! {
        #[test]
        fn any_text_is_a_record_or_a_problem(
            name in "(block|cluster|network)[.]lab([.]10[.]0[.]0[.]0-8)?",
            text in "[\\[\\]{}\":,a-z0-9]{0,40}",
        ) {
            if let Ok(record) = decode(&name, &text) {
                prop_assert!(validate(&name, &record).is_ok());
            }
        }
    }
}
