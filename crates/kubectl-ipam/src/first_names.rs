/// The first names, at most `max`, and the number of the others: `a/x, a/y, a/z and 5 more`.
pub(crate) fn first_names<T: ToString>(all: impl IntoIterator<Item = T>, max: usize) -> String {
    let mut names: Vec<String> = all.into_iter().map(|name| name.to_string()).collect();
    let more = names.len().saturating_sub(max);
    names.truncate(max);
    let names = names.join(", ");
    if more > 0 {
        format!("{names} and {more} more")
    } else {
        names
    }
}
