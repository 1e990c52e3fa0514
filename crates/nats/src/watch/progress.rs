//! What a watch has received, and whether something is missing.

/// Where a message stands, from the subject to which it would be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The number of the message in the stream, which is the revision of the object.
    pub(super) stream: u64,
    /// The number of the message among those of the consumer.
    pub(super) consumer: u64,
    /// The number of messages that the consumer has still to deliver.
    pub(super) pending: u64,
}

impl Position {
    /// Reads `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer
    /// sequence>.<time>.<pending>`. Newer servers have two more parts after `ACK`, and some at the
    /// end.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let numbers = reply.strip_prefix("$JS.ACK.")?;
        let parts: Vec<_> = numbers.split('.').collect();
        let skipped = if parts.len() > 7 { 2 } else { 0 };
        let number = |index: usize| parts.get(skipped + index)?.parse().ok();
        Some(Self {
            stream: number(3)?,
            consumer: number(4)?,
            pending: number(6)?,
        })
    }
}

/// What a watch has received since its list began.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    last: Position,
    /// The revision that completes the list; `None` while the leader was not asked.
    target: Option<u64>,
    /// What was missing at the last check: the revision of a message that the leader had, and the
    /// number of the last message of the consumer that was received then.
    overdue: Option<(u64, u64)>,
}

impl Progress {
    /// Nothing was received of a consumer that has to deliver this many messages.
    pub(super) fn new(pending: u64) -> Self {
        Self {
            last: Position {
                stream: 0,
                consumer: 0,
                pending,
            },
            target: None,
            overdue: None,
        }
    }

    /// Records a message. Returns false if one before it is missing.
    pub(super) fn receive(&mut self, position: Position) -> bool {
        let is_next = position.consumer == self.last.consumer + 1;
        self.last = position;
        is_next
    }

    /// Whether the consumer has delivered all that it sent when it sent a sign of life: the number
    /// of its last message then.
    pub(super) fn has_received(&self, consumer: u64) -> bool {
        self.last.consumer >= consumer
    }

    /// The consumer waits for new messages: what it had left to deliver was removed meanwhile.
    pub(super) fn end_pending(&mut self) {
        self.last.pending = 0;
    }

    /// Records the last message of the leader, if any, when the consumer has nothing left to
    /// deliver: the list ends there. The consumer may run on a replica that is behind. Of several
    /// answers the lowest counts: writes during the list do not move its end, and a marker that has
    /// expired does not keep it open.
    pub(super) fn aim_at(&mut self, leader: Option<u64>) {
        let revision = leader.unwrap_or(0);
        let earlier = self.target.unwrap_or(revision);
        self.target = Some(earlier.min(revision));
    }

    /// Whether the list is complete: its last message was received.
    pub(super) fn is_complete(&self) -> bool {
        self.target.is_some_and(|target| target <= self.last.stream)
    }

    /// Whether the consumer has messages left to deliver.
    pub(super) fn has_pending(&self) -> bool {
        self.last.pending > 0
    }

    /// The revision of the last message; 0 before the first one.
    pub(super) fn revision(&self) -> u64 {
        self.last.stream
    }

    /// Compares with the last message of the leader. Returns false if one is missing that was
    /// missing at the last check too, and nothing was received since: a long list makes progress.
    pub(super) fn keeps_up(&mut self, leader: Option<u64>) -> bool {
        let last = self.last;
        let is_stuck = self.overdue.is_some_and(|(revision, consumer)| {
            revision > last.stream && consumer == last.consumer
        });
        let missing = leader.filter(|revision| *revision > last.stream);
        self.overdue = missing.map(|revision| (revision, last.consumer));
        !is_stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(stream: u64, consumer: u64, pending: u64) -> Position {
        Position {
            stream,
            consumer,
            pending,
        }
    }

    #[test]
    fn positions_of_both_forms_are_read() {
        let expected = Some(position(120, 3, 9));
        for reply in [
            "$JS.ACK.KV_ipam.watch.1.120.3.1764179813000000000.9",
            "$JS.ACK._.hash.KV_ipam.watch.1.120.3.1764179813000000000.9",
            "$JS.ACK._.hash.KV_ipam.watch.1.120.3.1764179813000000000.9.token",
        ] {
            assert_eq!(Position::parse(reply), expected, "{reply}");
        }
        for reply in ["", "$JS.FC.KV_ipam.watch.1", "$JS.ACK.a.b.1.x.3.4.5"] {
            assert_eq!(Position::parse(reply), None, "{reply}");
        }
    }

    #[test]
    fn missing_message_is_found() {
        let mut progress = Progress::new(3);
        assert!(progress.receive(position(10, 1, 2)));
        assert!(progress.receive(position(12, 2, 1)));
        assert!(!progress.receive(position(15, 4, 0)));
        assert!(Progress::new(0).has_received(0));
        assert!(!Progress::new(0).has_received(1));
    }

    /// Whether a list is complete when the leader has these last messages in turn.
    fn is_complete(mut progress: Progress, answers: &[Option<u64>]) -> bool {
        for leader in answers {
            progress.aim_at(*leader);
        }
        progress.is_complete()
    }

    #[test]
    fn list_is_complete_when_the_leader_has_no_more() {
        assert!(!is_complete(Progress::new(0), &[]));
        assert!(is_complete(Progress::new(0), &[None]));
        assert!(!is_complete(Progress::new(0), &[Some(1)]));
        let mut progress = Progress::new(2);
        progress.receive(position(10, 1, 1));
        progress.receive(position(12, 2, 0));
        assert!(is_complete(progress, &[Some(12)]));
        assert!(!is_complete(progress, &[Some(13)]));
        // The last message was a marker that has expired.
        assert!(is_complete(progress, &[Some(10)]));
        assert!(is_complete(progress, &[Some(13), Some(10)]));
    }

    #[test]
    fn removed_messages_are_not_pending() {
        let mut progress = Progress::new(3);
        progress.receive(position(10, 1, 2));
        assert!(progress.has_pending());
        progress.end_pending();
        assert!(!progress.has_pending());
        assert!(progress.has_received(1));
        assert!(is_complete(progress, &[Some(10)]));
    }

    #[test]
    fn writes_during_a_list_do_not_move_its_end() {
        let mut progress = Progress::new(0);
        progress.aim_at(Some(5));
        progress.aim_at(Some(9));
        progress.receive(position(5, 1, 4));
        assert!(progress.is_complete());
    }

    #[test]
    fn watch_that_stays_behind_is_found_at_the_second_check() {
        let mut progress = Progress::new(0);
        assert!(progress.keeps_up(Some(5)));
        progress.receive(position(5, 1, 0));
        assert!(progress.keeps_up(Some(7)));
        assert!(!progress.keeps_up(Some(7)));
    }

    #[test]
    fn long_list_that_makes_progress_keeps_up() {
        let mut progress = Progress::new(1000);
        for number in 1..=5 {
            progress.receive(position(number, number, 1000 - number));
            assert!(progress.keeps_up(Some(1000)), "{number}");
        }
        assert!(!progress.keeps_up(Some(1000)));
    }
}
