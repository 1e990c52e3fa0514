//! The texts of failures: in one line, and without the layers of the HTTP client.

use std::error::Error;
use std::io::ErrorKind;

/// A message in one line.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// The cause of a failed connection: the last error of the chain, in plain words.
pub(super) fn cause(error: &(dyn Error + 'static)) -> String {
    let (root, kind) = root_cause(error);
    match kind {
        Some(ErrorKind::ConnectionRefused) => "the connection was refused".to_owned(),
        Some(ErrorKind::TimedOut) => "there was no answer".to_owned(),
        _ => plain(&one_line(&root.to_string())),
    }
}

/// The text of an error of the operating system without its number, and that of a certificate in
/// the words of its reader.
fn plain(text: &str) -> String {
    if let Some(problem) = text.strip_prefix("invalid peer certificate: ") {
        return format!("its certificate is not trusted ({problem})");
    }
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text.to_owned(),
    }
}

/// The last error of a chain, and the kind of the last one that the system has reported.
pub(crate) fn root_cause<'a>(
    error: &'a (dyn Error + 'static),
) -> (&'a (dyn Error + 'static), Option<ErrorKind>) {
    let mut root = error;
    let mut kind = None;
    loop {
        let io = root.downcast_ref::<std::io::Error>();
        kind = io.map(std::io::Error::kind).or(kind);
        match root.source() {
            Some(source) => root = source,
            None => return (root, kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as the HTTP client wraps it.
    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Layer(#[source] std::io::Error);

    #[test]
    fn cause_of_a_failed_connection_has_no_layers() {
        let refused = Layer(ErrorKind::ConnectionRefused.into());
        assert_eq!(cause(&refused), "the connection was refused");
        let silent = Layer(std::io::Error::new(ErrorKind::TimedOut, "elapsed"));
        assert_eq!(cause(&silent), "there was no answer");
        let lookup = "failed to lookup address information: Name or service not known";
        let unknown = Layer(std::io::Error::other(lookup));
        assert_eq!(cause(&unknown), lookup);
        let network = Layer(std::io::Error::from_raw_os_error(101));
        assert_eq!(cause(&network), "Network is unreachable");
        let untrusted = Layer(std::io::Error::other(
            "invalid peer certificate: UnknownIssuer",
        ));
        assert_eq!(
            cause(&untrusted),
            "its certificate is not trusted (UnknownIssuer)"
        );
    }
}
