//! The names that the API server accepts (RFC 1123).

/// Returns whether a text is a DNS label, such as the name of a namespace: at most 63 lower case
/// letters, digits and dashes, without a dash at either end.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// Returns whether a text is a DNS subdomain, such as the name of most objects: at most 253
/// characters, labels separated by dots. The API server does not limit the length of a label of a
/// subdomain.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api_server() {
        let long = "a".repeat(64);
        for text in ["a", "0", "a-b", "team-7"] {
            assert!(is_dns_label(text) && is_dns_subdomain(text), "{text}");
        }
        for text in [
            "", "-a", "a-", "A", "a_b", "a b", "ä", "a.", ".a", "a..b", "a.-b",
        ] {
            assert!(!is_dns_label(text) && !is_dns_subdomain(text), "{text}");
        }
        for text in ["a.b", "web-1.example.com", &long] {
            assert!(!is_dns_label(text) && is_dns_subdomain(text), "{text}");
        }
        let longest = format!("{}a", "a.".repeat(126));
        assert!(is_dns_subdomain(&longest) && !is_dns_subdomain(&format!("{longest}a")));
    }
}
