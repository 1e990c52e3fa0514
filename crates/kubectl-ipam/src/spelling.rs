//! Misspelt names.

/// How many letters have to be inserted, deleted or replaced to get one text from the other,
/// ignoring the case.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (number, left) in one.chars().enumerate() {
        // The value above and to the left of the next one.
        let mut diagonal = number;
        let mut before = number.saturating_add(1);
        let mut next = vec![before];
        for (right, above) in other.chars().zip(row.iter().skip(1)) {
            let replaced = diagonal.saturating_add(usize::from(left != right));
            before = replaced
                .min(above.saturating_add(1))
                .min(before.saturating_add(1));
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// The known name that a misspelt one can mean.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .filter(|known| is_near(known, name))
        .min_by_key(|known| distance(known, name))
}

/// Whether a name can be meant by a misspelt one.
fn is_near(known: &str, name: &str) -> bool {
    distance(known, name) <= known.len().div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_wrong_letters() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("abc", "ABC", 0),
            ("kitten", "sitting", 3),
            ("abc", "", 3),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
