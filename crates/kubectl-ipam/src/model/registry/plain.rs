//! Texts of other management clusters.

/// Maximum number of characters of an id: that of one which a manager accepts is 63.
const MAX_ID: usize = 120;
/// Maximum number of characters of a sentence.
const MAX_SENTENCE: usize = 400;

/// An id as a page can show it: in one line, without characters that are not visible or change the
/// direction of others, and not long.
pub(super) fn plain(id: &str) -> String {
    shortened(id, MAX_ID)
}

/// As [`plain`], for a sentence.
pub(super) fn plain_sentence(text: &str) -> String {
    shortened(text, MAX_SENTENCE)
}

fn shortened(text: &str, max: usize) -> String {
    let mut letters = text.chars();
    let mut plain: String = letters.by_ref().take(max).map(visible).collect();
    if letters.next().is_some() {
        plain.push('…');
    }
    plain
}

fn visible(letter: char) -> char {
    let is_format = matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    if letter.is_control() || is_format {
        '\u{fffd}'
    } else {
        letter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_another_cluster_is_short_and_visible() {
        assert_eq!(plain("east-1"), "east-1");
        assert_eq!(plain("<img src=x>"), "<img src=x>", "the page escapes it");
        assert_eq!(plain("a\u{202e}b\nc\u{0}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        let long = plain(&"ä".repeat(8_000));
        assert_eq!(long.chars().count(), MAX_ID + 1);
        assert!(long.ends_with("ä…"));
        let longer = plain_sentence(&"ä".repeat(8_000));
        assert_eq!(longer.chars().count(), MAX_SENTENCE + 1);
    }
}
