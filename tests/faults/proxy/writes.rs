//! Writes: their journal, and the faults of writes.

use std::sync::Arc;

use support::{
    prelude::*,
    proxy::{ApiRequest, Broken, Forward, ProxyResponse, error_response},
};

use super::{Entry, LATEST, LONG, Shared, Silence};
use crate::{
    fault::{Fault, WriteFault},
    request::Write,
};

/// How long a write is delayed when it waits for no other write.
const LATE: Duration = Duration::from_secs(1);

impl Shared {
    /// Records a write, and returns its index in the journal and its fault.
    fn record(
        &self,
        write: Write,
        resource: &str,
        name: String,
    ) -> Result<(usize, Option<WriteFault>), Broken> {
        let mut book = self.book();
        // Checked with the same lock: no write of a dead manager is forwarded.
        if book.dead {
            return Err(Broken);
        }
        let nth = 1 + book
            .journal
            .iter()
            .filter(|entry| entry.write == write)
            .count();
        let hit = match &self.fault {
            Some(Fault::Write {
                write: kind,
                nth: wanted,
                how,
            }) if *kind == write => {
                let is_active = *how == WriteFault::RefusedForLong
                    && book.happened.is_some_and(|since| since.elapsed() < LONG);
                let retry = how
                    .refused_retry()
                    .filter(|_| is_retry(&book.journal, &name))
                    .map(WriteFault::Refused);
                retry.or((nth == *wanted || is_active).then_some(*how))
            }
            _ => None,
        };
        if let Some(how) = hit {
            let starts = matches!(how, WriteFault::LostThenRefused(_));
            let (since, resource, name) = (Instant::now(), resource.to_owned(), name.clone());
            book.silence = starts.then_some(Silence {
                since,
                resource,
                name,
                is_delayed: false,
            });
            book.happened.get_or_insert_with(Instant::now);
            book.dead = matches!(how, WriteFault::CrashBefore);
            book.late += usize::from(how.is_late());
        }
        book.journal.push(Entry {
            at: Instant::now(),
            write,
            name,
            code: None,
            fault: hit,
        });
        Ok((book.journal.len() - 1, hit))
    }

    pub(super) async fn write(
        self: Arc<Self>,
        asked: ApiRequest,
        forward: Forward,
    ) -> Result<ProxyResponse, Broken> {
        let body = String::from_utf8_lossy(&forward.body);
        let write = Write::of(&asked, &body).unwrap_or(Write::Other);
        let name = if asked.name.is_empty() {
            name_in(&body)
        } else {
            asked.name.clone()
        };
        let (index, hit) = self.record(write, &asked.resource, name)?;
        match hit {
            None => {
                let response = self.apply(index, &forward).await;
                self.wait_for_late_write(write).await;
                response
            }
            Some(WriteFault::CrashBefore) => {
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::CrashAfter) => {
                let _ = self.apply(index, &forward).await;
                self.book().dead = true;
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::ReplyLost | WriteFault::LostThenRefused(_)) => {
                let _ = self.apply(index, &forward).await;
                Err(Broken)
            }
            Some(WriteFault::AppliedAndTimedOut) => {
                let _ = self.apply(index, &forward).await;
                Ok(error_response(504))
            }
            Some(WriteFault::Conflict) => Ok(error_response(409)),
            Some(WriteFault::Refused(code)) => Ok(error_response(code)),
            Some(WriteFault::RefusedForLong) => Ok(error_response(503)),
            Some(WriteFault::Late | WriteFault::LateThenRefused(_)) => {
                tokio::spawn(self.apply_late(index, forward, None));
                Ok(error_response(504))
            }
            Some(WriteFault::LateAfter(other)) => {
                tokio::spawn(self.apply_late(index, forward, Some(other)));
                Ok(error_response(504))
            }
        }
    }

    /// Forwards a write and records the status code.
    async fn apply(&self, index: usize, forward: &Forward) -> Result<ProxyResponse, Broken> {
        let response = forward.send().await;
        if let (Ok(response), Some(entry)) = (&response, self.book().journal.get_mut(index)) {
            entry.code = Some(response.status().as_u16());
        }
        self.answered.notify_waiters();
        response
    }

    /// Forwards a write after its delay.
    async fn apply_late(self: Arc<Self>, index: usize, forward: Forward, after: Option<Write>) {
        match after {
            None => tokio::time::sleep(LATE).await,
            Some(write) => {
                let _ =
                    tokio::time::timeout(LATEST, self.wait_for_success_after(index, write)).await;
            }
        }
        let _ = self.apply(index, &forward).await;
        self.book().late -= 1;
    }

    /// Waits until a late write that follows a write of this kind is applied.
    async fn wait_for_late_write(&self, write: Write) {
        let is_awaited = |fault: &Option<Fault>| matches!(fault, Some(Fault::Write { how: WriteFault::LateAfter(awaited), .. }) if *awaited == write);
        let late = || {
            let book = self.book();
            let index = book.journal.iter().position(|entry| entry.fault.is_some());
            book.late > 0 && index.is_some_and(|index| has_followed(&book.journal, index, write))
        };
        while is_awaited(&self.fault) && late() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a write of this kind to an object of the same name has succeeded after another
    /// write.
    async fn wait_for_success_after(&self, index: usize, write: Write) {
        loop {
            let answered = self.answered.notified();
            if has_followed(&self.book().journal, index, write) {
                return;
            }
            // A response may arrive between the check and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(20), answered).await;
        }
    }
}

/// Whether the journal contains one fault, at an object of this name.
fn is_retry(journal: &[Entry], name: &str) -> bool {
    let mut faults = journal.iter().filter(|entry| entry.fault.is_some());
    faults.next().is_some_and(|first| first.name == name) && faults.next().is_none()
}

/// Whether a write of this kind to an object of the same name has succeeded since.
fn has_followed(journal: &[Entry], index: usize, write: Write) -> bool {
    let mut since = journal.iter().skip(index);
    let name = since.next().map(|entry| &entry.name);
    since.any(|entry| {
        entry.write == write
            && Some(&entry.name) == name
            && entry.code.is_some_and(|code| (200..300).contains(&code))
    })
}

/// The name in the body of a create request.
fn name_in(body: &str) -> String {
    let object: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_retry_of_the_object_is_rejected() {
        let entry = |name: &str, fault| Entry {
            at: Instant::now(),
            write: Write::ReservationCreated,
            name: name.to_owned(),
            code: None,
            fault,
        };
        let mut journal = vec![entry("b", None)];
        assert!(!is_retry(&journal, "b"));
        journal.push(entry("a", Some(WriteFault::LostThenRefused(403))));
        assert!(is_retry(&journal, "a") && !is_retry(&journal, "b"));
        journal.push(entry("a", Some(WriteFault::Refused(403))));
        assert!(!is_retry(&journal, "a"));
    }

    #[test]
    fn write_is_followed_by_a_successful_one_of_its_object() {
        let entry = |write, name: &str, code| Entry {
            at: Instant::now(),
            write,
            name: name.to_owned(),
            code: Some(code),
            fault: None,
        };
        let mut journal = vec![
            entry(Write::AddressDeleted, "a", 200),
            entry(Write::AddressCreated, "a", 201),
            entry(Write::AddressDeleted, "b", 200),
            entry(Write::AddressDeleted, "a", 404),
        ];
        assert!(!has_followed(&journal, 1, Write::AddressDeleted));
        journal.push(entry(Write::AddressDeleted, "a", 200));
        assert!(has_followed(&journal, 1, Write::AddressDeleted));
    }
}
