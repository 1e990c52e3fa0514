//! The order of what a search finds.

use std::cmp::Ordering;

/// How well a name fits a text: the better one is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    Equal,
    Beginning,
    Part,
}

/// How well a name fits a text, ignoring the case of ASCII letters; `None` if it does not contain
/// the text.
pub(super) fn fit(name: &str, text: &str) -> Option<Fit> {
    if name.eq_ignore_ascii_case(text) {
        return Some(Fit::Equal);
    }
    let (name, text) = (name.as_bytes(), text.as_bytes());
    let is_same = |part: Option<&[u8]>| part.is_some_and(|part| part.eq_ignore_ascii_case(text));
    if is_same(name.get(..text.len())) {
        return Some(Fit::Beginning);
    }
    let has_part = name
        .windows(text.len().max(1))
        .any(|part| is_same(Some(part)));
    has_part.then_some(Fit::Part)
}

/// The best fit of several names.
pub(super) fn best<'a>(names: impl Iterator<Item = &'a str>, text: &str) -> Option<Fit> {
    names.filter_map(|name| fit(name, text)).min()
}

/// A name in an order in which numbers are compared as numbers: `node-2` is before `node-10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Natural(pub(super) String);

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        natural(&self.0, &other.0)
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    loop {
        let (a, b) = (next(&mut left), next(&mut right));
        let order = match (a, b) {
            (None, None) => return one.cmp(other),
            (Some(a), Some(b)) => compare(a, b),
            (a, b) => a.cmp(&b),
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the next number, or the text before it.
fn next<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let first = rest.chars().next()?;
    let is_number = first.is_ascii_digit();
    let end = rest.find(|letter: char| letter.is_ascii_digit() != is_number);
    let (part, others) = rest.split_at_checked(end.unwrap_or(rest.len()))?;
    *rest = others;
    Some(part)
}

/// Compares numbers as numbers, whatever their length, and everything else as text.
fn compare(one: &str, other: &str) -> Ordering {
    let is_number = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
    if !is_number(one) || !is_number(other) {
        return one.cmp(other);
    }
    let digits = |text: &str| text.trim_start_matches('0').len();
    let trimmed = |text| str::trim_start_matches(text, '0');
    (digits(one), trimmed(one)).cmp(&(digits(other), trimmed(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_fits_better_than_a_part() {
        let fits = ["node-1", "Node-1-a", "my-node-1", "node"].map(|name| fit(name, "node-1"));
        assert_eq!(
            fits,
            [
                Some(Fit::Equal),
                Some(Fit::Beginning),
                Some(Fit::Part),
                None
            ]
        );
        assert_eq!(
            best(["x", "my-node-1", "node-12"].into_iter(), "node-1"),
            Some(Fit::Beginning)
        );
        assert_eq!(fit("", "a"), None);
    }

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let mut names = [
            "node-10",
            "node-2",
            "node-002",
            "node",
            "10.0.0.9",
            "10.0.0.10",
        ];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            [
                "10.0.0.9",
                "10.0.0.10",
                "node",
                "node-002",
                "node-2",
                "node-10"
            ]
        );
    }
}
