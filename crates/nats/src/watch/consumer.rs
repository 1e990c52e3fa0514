//! The consumer of a watch at the server.
//!
//! A watch uses one name for all of its consumers, and deletes the last one before it creates the
//! next. So a watch has at most one consumer, however often it lists again. A watch that is dropped
//! deletes it, and the server deletes the consumer of a process that is gone.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, Config, DeliverPolicy, Info};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::connection::Connection;
use crate::error::Failure;
use crate::key::Names;

/// After this time the server deletes a consumer that nobody listens to.
const INACTIVE_THRESHOLD: Duration = Duration::from_mins(5);

/// The name of the consumers of a watch. The last one is deleted when this value is dropped.
pub(super) struct ConsumerName {
    connection: Connection,
    stream: String,
    name: String,
}

impl ConsumerName {
    /// A new name for a consumer of a bucket.
    pub(super) fn new(connection: &Connection, names: &Names) -> Self {
        Self {
            connection: connection.clone(),
            stream: names.stream.clone(),
            name: format!("capi-ipam-{:016x}", rand::random::<u64>()),
        }
    }

    /// Creates the consumer in place of an earlier one. It delivers the last message of each
    /// subject, and then each new message, to `inbox`.
    pub(super) async fn create(
        &self,
        subjects: &str,
        inbox: &str,
        heartbeat: Duration,
    ) -> Result<Info, Failure> {
        delete(&self.connection, &self.stream, &self.name).await?;
        let config = Config {
            name: Some(self.name.clone()),
            deliver_subject: Some(inbox.to_owned()),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            max_deliver: 1,
            filter_subject: subjects.to_owned(),
            flow_control: true,
            idle_heartbeat: heartbeat,
            inactive_threshold: INACTIVE_THRESHOLD,
            num_replicas: 1,
            memory_storage: true,
            ..Config::default()
        };
        let request = format!("CONSUMER.CREATE.{}.{}.{subjects}", self.stream, self.name);
        let body = json!({ "stream_name": self.stream, "config": config, "action": "create" });
        self.connection.api(&request, &body).await
    }
}

impl Drop for ConsumerName {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let connection = self.connection.clone();
        let stream = std::mem::take(&mut self.stream);
        let name = std::mem::take(&mut self.name);
        runtime.spawn(async move {
            if let Err(error) = delete(&connection, &stream, &name).await {
                tracing::debug!(%error, name, "a consumer is left to the server");
            }
        });
    }
}

/// Deletes a consumer if it exists.
async fn delete(connection: &Connection, stream: &str, name: &str) -> Result<(), Failure> {
    let request = format!("CONSUMER.DELETE.{stream}.{name}");
    let deleted: Result<Value, Failure> = connection.api(&request, &json!({})).await;
    match deleted {
        Err(error) if error.code() != Some(ErrorCode::CONSUMER_NOT_FOUND) => Err(error),
        _ => Ok(()),
    }
}
