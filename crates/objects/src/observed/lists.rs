//! The lists of a watch, and which objects a list did not contain.

/// The number of a list, or of a restore of etcd: numbers grow. Caches keep one for each object, in
/// 4 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListNumber(u32);

/// The lists of the watch of one kind.
///
/// A watch that lists again does not report which objects were deleted meanwhile. So a cache keeps
/// with each object the number of the list that was the newest one when the object was last seen,
/// and removes those with a lower number at the end of a list.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    current: ListNumber,
    /// The list in progress.
    begun: Option<ListNumber>,
}

/// The objects that a complete list did not contain.
#[derive(Clone, Copy, Debug)]
pub struct Unlisted {
    before: ListNumber,
}

impl Lists {
    /// A list begins. Its request has not been sent yet.
    pub fn begin(&mut self) {
        self.advance();
        self.begun = Some(self.current);
    }

    /// The list is complete.
    pub fn end(&mut self) -> Unlisted {
        // Without a list, nothing is missing in it.
        Unlisted {
            before: self.begun.take().unwrap_or_default(),
        }
    }

    /// The number of what is seen now.
    pub fn current(&self) -> ListNumber {
        self.current
    }

    /// Whether a list is in progress.
    pub fn is_listing(&self) -> bool {
        self.begun.is_some()
    }

    /// What is seen from now on has a higher number. A list in progress is not affected.
    pub fn advance(&mut self) {
        self.current = ListNumber(self.current.0.saturating_add(1));
    }
}

impl Unlisted {
    /// Whether an object is missing in the list. `list` was the newest list when the object was
    /// last seen.
    pub fn contains(self, list: ListNumber) -> bool {
        list < self.before
    }
}
