//! Misspelt names.

/// How many letters have to be inserted, deleted or replaced to get one text from the other,
/// ignoring the case.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    strsim::levenshtein(&one.to_lowercase(), &other.to_lowercase())
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
    fn case_does_not_matter() {
        assert_eq!(distance("abc", "ABD"), 1);
    }
}
