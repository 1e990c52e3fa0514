//! Requests to the servers, each with a deadline.

use async_nats::client::Request;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{self, RawMessage};
use async_nats::{HeaderMap, Message, RequestError, RequestErrorKind, Subject, Subscriber};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::error::Failure;
use crate::key::Names;
use crate::object::Record;

/// What the subjects of requests to JetStream start with.
const API: &str = "$JS.API";

/// The answer to a write.
#[derive(Deserialize)]
struct Written {
    seq: u64,
}

/// The answer to a read.
#[derive(Deserialize)]
struct Stored {
    message: RawMessage,
}

impl Connection {
    /// The configuration and state of a bucket, from the leader of its stream.
    pub(crate) async fn stream_info(&self, names: &Names) -> Result<stream::Info, Failure> {
        self.api(&format!("STREAM.INFO.{}", names.stream), &json!({}))
            .await
    }

    /// Creates the stream of a bucket.
    pub(crate) async fn create_stream(
        &self,
        config: &stream::Config,
    ) -> Result<stream::Info, Failure> {
        self.api(&format!("STREAM.CREATE.{}", config.name), config)
            .await
    }

    /// The last message of the subjects, from the leader of the stream. The subjects can have
    /// wildcards.
    pub(crate) async fn last_record(
        &self,
        names: &Names,
        subjects: &str,
    ) -> Result<Option<Record>, Failure> {
        // Requests with this subject are answered by the leader only, those with `DIRECT` by any
        // replica.
        let request = format!("STREAM.MSG.GET.{}", names.stream);
        let body = json!({ "last_by_subj": subjects });
        let answer: Result<Stored, Failure> = self.api(&request, &body).await;
        let stored = match answer {
            Ok(stored) => stored,
            Err(error) if error.code() == Some(ErrorCode::NO_MESSAGE_FOUND) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = StreamMessage::try_from(stored.message)
            .map_err(|error| Failure::Answer(serde::de::Error::custom(error.to_string())))?;
        let Some(key) = names.key_of(&message.subject) else {
            return Ok(None);
        };
        Ok(Some(Record {
            key: key.to_owned(),
            revision: message.sequence,
            headers: message.headers,
            payload: message.payload.to_vec(),
        }))
    }

    /// Writes a message, and returns its revision.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> Result<u64, Failure> {
        let request = Request::new().headers(headers).payload(payload.into());
        let written: Written = decode(&self.request(subject, request).await?)?;
        Ok(written.seq)
    }

    /// Sends a request to JetStream, such as `STREAM.INFO.KV_ipam`.
    pub(crate) async fn api<R: DeserializeOwned>(
        &self,
        request: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<R, Failure> {
        let body = serde_json::to_vec(body).map_err(Failure::Answer)?;
        let subject = format!("{API}.{request}");
        let request = Request::new().payload(body.into());
        decode(&self.request(&subject, request).await?)
    }

    /// Subscribes to a subject.
    pub(crate) async fn subscribe(&self, subject: String) -> Result<Subscriber, Failure> {
        self.within_deadline(self.client.subscribe(subject)).await
    }

    /// Sends an empty message that is not answered.
    pub(crate) async fn send(&self, subject: Subject) -> Result<(), Failure> {
        let sent = self.client.publish(subject, Vec::new().into());
        self.within_deadline(sent).await
    }

    /// What the client library does with its connection.
    async fn within_deadline<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        let deadline = self.deadlines.request;
        let done = timeout(deadline, work).await;
        let done = done.map_err(|_| Failure::Timeout(deadline))?;
        done.map_err(|_| Failure::Disconnected)
    }

    /// Sends a request. Without a connection it is not sent: the client would keep it and send it
    /// later, when nobody expects it any more.
    async fn request(&self, subject: &str, request: Request) -> Result<Message, Failure> {
        if !self.is_connected() {
            return Err(Failure::Disconnected);
        }
        // A denial that is found after a time-out has to be one of this request.
        self.denials.forget(subject);
        let deadline = self.deadlines.request;
        let sent = self
            .client
            .send_request(subject.to_owned(), request.timeout(None));
        match timeout(deadline, sent).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) => Err(failure(error)),
            Err(_) => match self.denials.of(subject) {
                Some(denial) => Err(Failure::Forbidden(denial)),
                None => Err(Failure::Timeout(deadline)),
            },
        }
    }
}

/// What an error of the client library means.
fn failure(error: RequestError) -> Failure {
    match error.kind() {
        RequestErrorKind::NoResponders => Failure::NoResponders,
        RequestErrorKind::MaxPayloadExceeded => Failure::TooLarge,
        _ => Failure::Interrupted(error),
    }
}

/// The answer in a message, which can be an error.
fn decode<R: DeserializeOwned>(message: &Message) -> Result<R, Failure> {
    match serde_json::from_slice(&message.payload).map_err(Failure::Answer)? {
        Response::Ok(answer) => Ok(answer),
        Response::Err { error } => Err(Failure::Api(error)),
    }
}
