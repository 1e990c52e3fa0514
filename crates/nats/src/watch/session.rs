//! One list and the changes that follow it, until something is missing.

use std::time::Duration;

use async_nats::header::NATS_LAST_CONSUMER;
use async_nats::jetstream::ErrorCode;
use async_nats::{Message, StatusCode, Subscriber};
use futures::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Event;
use super::consumer::ConsumerName;
use super::progress::{Position, Progress};
use crate::bucket::{Bucket, incarnation};
use crate::error::{Failure, KvError};
use crate::object::{Record, Value};

/// The time between two questions to the leader where a list ends.
const COMPLETION_INTERVAL: Duration = Duration::from_millis(100);

/// The header of a heartbeat with the subject that lets a consumer go on which waits for an answer.
const STALLED: &str = "Nats-Consumer-Stalled";

/// The number of missing heartbeats after which a consumer is considered gone.
const MAX_MISSING_HEARTBEATS: u32 = 3;

/// Why a session is over.
pub(super) enum Ending {
    /// It is old enough.
    Resync,
    /// A message is missing.
    Gap,
    /// The bucket was restored from a backup, or deleted and created again.
    OtherBucket,
    /// The server or the bucket does not answer, or is gone.
    Failed(Failure),
}

/// A consumer, and what was received from it.
pub(super) struct Session<T> {
    bucket: Bucket<T>,
    /// The subjects of the watched keys.
    subjects: String,
    subscriber: Subscriber,
    progress: Progress,
    /// When the bucket was created, of which this delivers objects.
    pub(super) incarnation: String,
    /// When the last message or heartbeat was received.
    last_sign: Instant,
    next_check: Instant,
    /// When the leader is asked next where the list ends.
    next_question: Instant,
    /// When the session is old enough; `None` while it lists.
    resync_at: Option<Instant>,
}

impl<T: Value> Session<T> {
    /// Creates the consumer.
    pub(super) async fn start(
        bucket: &Bucket<T>,
        subjects: &str,
        consumer: &ConsumerName,
    ) -> Result<Self, KvError> {
        let connection = &bucket.connection;
        connection.check_version()?;
        let unavailable = |error| bucket.unavailable(error);
        let created_at = bucket.incarnation().await?;
        let inbox = connection.client.new_inbox();
        // The subscription exists before the consumer, which needs someone that listens.
        let subscriber = connection.subscribe(inbox.clone()).await;
        let subscriber = subscriber.map_err(unavailable)?;
        let options = &bucket.options;
        let created = consumer.create(subjects, &inbox, options.heartbeat).await;
        let created = created.map_err(unavailable)?;
        // The consumer is one of this bucket if the bucket is still the same.
        if bucket.incarnation().await? != created_at {
            return Err(unavailable(Failure::OtherBucket));
        }
        let now = Instant::now();
        Ok(Self {
            bucket: bucket.clone(),
            subjects: subjects.to_owned(),
            subscriber,
            progress: Progress::new(created.num_pending),
            incarnation: created_at,
            last_sign: now,
            next_check: now + options.check_interval,
            next_question: now,
            resync_at: None,
        })
    }

    /// Whether the list is not complete yet.
    pub(super) fn is_listing(&self) -> bool {
        self.resync_at.is_none()
    }

    /// The next event, or why the session is over.
    pub(super) async fn next(&mut self) -> Result<Event, Ending> {
        loop {
            if self.is_listing() {
                self.find_end_of_list().await.map_err(Ending::Failed)?;
                if self.progress.is_complete() {
                    let resync_interval = self.bucket.options.resync_interval;
                    self.resync_at = Some(Instant::now() + resync_interval);
                    return Ok(Event::InitDone);
                }
            }
            match self.wait().await? {
                None => {}
                Some(record) if self.is_listing() => return Ok(Event::Listed(record)),
                Some(record) => return Ok(Event::Changed(record)),
            }
        }
    }

    /// Asks the leader where the list ends, when the consumer has nothing left to deliver. It is
    /// asked again after an interval: the last message can be a marker that expires. What the
    /// consumer had left to deliver can be removed as well: its next heartbeat shows it.
    async fn find_end_of_list(&mut self) -> Result<(), Failure> {
        if self.progress.has_pending() || Instant::now() < self.next_question {
            return Ok(());
        }
        let last = self.bucket.last_record(&self.subjects).await?;
        self.progress.aim_at(revision_of(last.as_ref()));
        self.next_question = Instant::now() + COMPLETION_INTERVAL;
        Ok(())
    }

    /// Waits for a message, or for something to do. Returns the object of the message, if it has
    /// one.
    async fn wait(&mut self) -> Result<Option<Record>, Ending> {
        let silence = self.bucket.options.heartbeat * MAX_MISSING_HEARTBEATS;
        let silent_at = self.last_sign + silence;
        let mut wake_at = silent_at.min(self.next_check);
        if let Some(resync_at) = self.resync_at {
            wake_at = wake_at.min(resync_at);
        } else if !self.progress.has_pending() {
            wake_at = wake_at.min(self.next_question);
        }
        // Messages come first: a reader that was slow finds them before the end of its patience.
        let message = tokio::select! {
            biased;
            message = self.subscriber.next() => message,
            () = sleep_until(wake_at) => return self.check(silence).await.map(|()| None),
        };
        let Some(message) = message else {
            return Err(Ending::Failed(Failure::Disconnected));
        };
        self.last_sign = Instant::now();
        if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
            self.answer_heartbeat(&message).await?;
            return Ok(None);
        }
        self.receive(message)
    }

    /// Records a message, and returns its object.
    fn receive(&mut self, message: Message) -> Result<Option<Record>, Ending> {
        let position = message.reply.as_deref().and_then(Position::parse);
        // Without a position this is a status of the server, such as the end of the consumer.
        let Some(position) = position else {
            return Err(Ending::Gap);
        };
        if !self.progress.receive(position) {
            return Err(Ending::Gap);
        }
        let key = self.bucket.names.key_of(&message.subject);
        Ok(key.map(|key| Record {
            key: key.to_owned(),
            revision: position.stream,
            headers: message.headers.unwrap_or_default(),
            payload: message.payload.to_vec(),
        }))
    }

    /// Answers a request for flow control, and compares a heartbeat with what was received. A
    /// consumer sends one when it has nothing to deliver, or waits for an answer.
    async fn answer_heartbeat(&mut self, message: &Message) -> Result<(), Ending> {
        let header = |name: &str| Some(message.headers.as_ref()?.get(name)?.as_str());
        let stalled = header(STALLED).map(Into::into);
        let awaited = message.reply.clone().or(stalled);
        let is_idle = awaited.is_none();
        if let Some(subject) = awaited {
            let answered = self.bucket.connection.send(subject).await;
            answered.map_err(Ending::Failed)?;
        }
        let sent = header(NATS_LAST_CONSUMER.as_ref()).and_then(|last| last.parse().ok());
        let Some(sent) = sent else {
            return Ok(());
        };
        if !self.progress.has_received(sent) {
            return Err(Ending::Gap);
        }
        if is_idle {
            self.progress.end_pending();
        }
        Ok(())
    }

    /// Ends the session if it is old, if nothing was received for too long, or if the leader shows
    /// that something is missing.
    async fn check(&mut self, silence: Duration) -> Result<(), Ending> {
        let now = Instant::now();
        if now >= self.last_sign + silence {
            return Err(Ending::Failed(Failure::Silence(silence)));
        }
        if self.resync_at.is_some_and(|resync_at| now >= resync_at) {
            return Err(Ending::Resync);
        }
        if now < self.next_check {
            return Ok(());
        }
        self.next_check = now + self.bucket.options.check_interval;
        self.compare().await
    }

    /// Compares what was received with the leader. A leader that does not answer now is asked again
    /// at the next check.
    async fn compare(&mut self) -> Result<(), Ending> {
        let bucket = &self.bucket;
        let info = match bucket.connection.stream_info(&bucket.names).await {
            Ok(info) => info,
            Err(error) if error.code() == Some(ErrorCode::STREAM_NOT_FOUND) => {
                return Err(Ending::Failed(error));
            }
            Err(_) => return Ok(()),
        };
        let is_same = incarnation(&info) == self.incarnation
            && info.state.last_sequence >= self.progress.revision();
        if !is_same {
            return Err(Ending::OtherBucket);
        }
        let Ok(last) = bucket.last_record(&self.subjects).await else {
            return Ok(());
        };
        if self.progress.keeps_up(revision_of(last.as_ref())) {
            return Ok(());
        }
        Err(Ending::Gap)
    }
}

fn revision_of(record: Option<&Record>) -> Option<u64> {
    record.map(|record| record.revision)
}
