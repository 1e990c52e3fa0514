//! The configuration of the stream of a bucket: how it is created, and what is required of it.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use super::BucketOptions;
use crate::error::Invalid;
use crate::key::Names;

/// The number of replicas, so that the loss of one disk loses nothing.
const REPLICAS: usize = 3;

/// The configuration of a new bucket.
///
/// `first_revision` is larger than every revision of an earlier bucket of this name: a write with a
/// revision of the earlier bucket can never match by chance.
pub(super) fn new_bucket(names: &Names, options: &BucketOptions, first_revision: u64) -> Config {
    Config {
        name: names.stream.clone(),
        subjects: vec![format!("$KV.{}.>", names.bucket)],
        max_messages_per_subject: 1,
        max_messages: -1,
        max_bytes: options.max_bytes.map_or(-1, i64::from),
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: if options.single { 1 } else { REPLICAS },
        allow_rollup: true,
        deny_delete: true,
        allow_direct: false,
        allow_message_ttl: true,
        first_sequence: Some(first_revision),
        ..Config::default()
    }
}

/// Checks the configuration of a bucket that exists.
///
/// # Errors
/// When the bucket can lose a value that nobody deleted, or has too few replicas.
pub(super) fn check(
    names: &Names,
    config: &Config,
    options: &BucketOptions,
) -> Result<(), Invalid> {
    let problems = problems(names, config);
    if !problems.is_empty() {
        return Err(Invalid::Shape {
            bucket: names.bucket.clone(),
            problems,
        });
    }
    if !options.single && config.num_replicas < REPLICAS {
        return Err(Invalid::Replicas {
            bucket: names.bucket.clone(),
            found: config.num_replicas,
            needed: REPLICAS,
        });
    }
    Ok(())
}

/// What is wrong with a configuration, as texts that state what is required.
fn problems(names: &Names, config: &Config) -> Vec<String> {
    let is_any_key = |subject: &String| *subject == format!("$KV.{}.>", names.bucket);
    let requirements = [
        (
            config.subjects.iter().any(is_any_key),
            "its subjects have to contain all keys",
        ),
        (
            config.discard == DiscardPolicy::New,
            "discard has to be new",
        ),
        (
            config.retention == RetentionPolicy::Limits,
            "retention has to be limits",
        ),
        (
            config.storage == StorageType::File,
            "storage has to be file",
        ),
        (
            config.max_messages_per_subject >= 1,
            "it has to have a history of 1 or more",
        ),
        (
            config.max_age == Duration::ZERO,
            "values must not expire, so remove its TTL",
        ),
        (config.allow_message_ttl, "it has to allow TTLs of messages"),
        (!config.no_ack, "it has to acknowledge writes"),
        (!config.sealed, "it must not be sealed"),
        (config.mirror.is_none(), "it must not be a mirror"),
        (
            config.sources.as_ref().is_none_or(Vec::is_empty),
            "it must not have sources",
        ),
        (
            config.subject_transform.is_none(),
            "it must not transform subjects",
        ),
    ];
    let broken = requirements.into_iter().filter(|(holds, _)| !holds);
    broken.map(|(_, text)| text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("ipam").expect("it is a name")
    }

    #[test]
    fn new_bucket_has_the_required_shape() {
        for single in [false, true] {
            let options = BucketOptions {
                single,
                ..BucketOptions::default()
            };
            let config = new_bucket(&names(), &options, 1);
            check(&names(), &config, &options).expect("it is as required");
        }
    }

    #[test]
    fn each_deviation_is_named() {
        let good = || new_bucket(&names(), &BucketOptions::default(), 1);
        let deviations = [
            (
                Config {
                    discard: DiscardPolicy::Old,
                    ..good()
                },
                "discard has to be new",
            ),
            (
                Config {
                    storage: StorageType::Memory,
                    ..good()
                },
                "storage has to be file",
            ),
            (
                Config {
                    max_age: Duration::from_secs(1),
                    ..good()
                },
                "must not expire",
            ),
            (
                Config {
                    allow_message_ttl: false,
                    ..good()
                },
                "allow TTLs",
            ),
            (
                Config {
                    subjects: vec!["other.>".to_owned()],
                    ..good()
                },
                "contain all keys",
            ),
            (
                Config {
                    num_replicas: 1,
                    ..good()
                },
                "1 replicas instead of at least 3",
            ),
        ];
        for (config, text) in deviations {
            let error = check(&names(), &config, &BucketOptions::default());
            let error = error.expect_err(text).to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
