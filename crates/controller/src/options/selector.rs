use std::collections::BTreeSet;

use kube::core::{Expression, Selector};

/// Parses a label selector in the format of kubectl: `team=a,stage!=test,tier in (web,db),!legacy`.
/// An empty text selects everything.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    let requirements = split_requirements(text);
    let parsed = requirements.into_iter().map(|requirement| {
        parse_requirement(requirement.trim()).ok_or_else(|| {
            format!("{requirement:?} is not a label requirement; use for example team=a, stage!=test or tier in (a,b)")
        })
    });
    Ok(if text.trim().is_empty() {
        Selector::default()
    } else {
        parsed.collect::<Result<Selector, _>>()?
    })
}

/// Splits at commas outside of parentheses.
fn split_requirements(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(move |letter: char| {
        inside = (inside || letter == '(') && letter != ')';
        letter == ',' && !inside
    })
    .collect()
}

fn parse_requirement(text: &str) -> Option<Expression> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(name(key)?));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(name(key)?, value_of(value)?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(name(key)?, value_of(value)?));
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else {
        return Some(Expression::Exists(name(text)?));
    };
    let (operator, values) = rest.trim_start().split_once('(')?;
    let values: BTreeSet<String> = values
        .trim_end()
        .strip_suffix(')')?
        .split(',')
        .map(value_of)
        .collect::<Option<_>>()?;
    match operator.trim_end() {
        "in" => Some(Expression::In(name(key)?, values)),
        "notin" => Some(Expression::NotIn(name(key)?, values)),
        _ => None,
    }
}

fn is_label_text(text: &str) -> bool {
    text.chars()
        .all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// The key of a label: a name with an optional prefix, such as `example.com/team`.
fn name(text: &str) -> Option<String> {
    let key = text.trim();
    let (prefix, name) = key.split_once('/').unwrap_or(("example.com", key));
    let is_valid =
        !prefix.is_empty() && !name.is_empty() && is_label_text(prefix) && is_label_text(name);
    is_valid.then(|| key.to_owned())
}

/// The value of a label, which can be empty.
fn value_of(text: &str) -> Option<String> {
    let value = text.trim();
    is_label_text(value).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::core::SelectorExt;

    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        parse_selector(selector).unwrap().matches(&labels)
    }

    #[test]
    fn requirements_have_the_format_of_kubectl() {
        let labels = [("team", "a"), ("example.com/tier", "web"), ("empty", "")];
        for selector in [
            "",
            " ",
            "team=a",
            "team==a",
            "team = a",
            "team",
            "empty=",
            "!legacy",
            "stage!=test",
            "team!=b",
            "example.com/tier in (db, web)",
            "team notin (b,c)",
            "legacy notin (a)",
            "team=a,!legacy,example.com/tier in (web),empty",
        ] {
            assert!(matches(selector, &labels), "{selector:?}");
        }
        for selector in [
            "team=b",
            "!team",
            "legacy",
            "team!=a",
            "team in (b,c)",
            "team notin (a)",
            "team=a,legacy",
        ] {
            assert!(!matches(selector, &labels), "{selector:?}");
        }
    }

    #[test]
    fn invalid_requirement_is_named() {
        for invalid in [
            "team=a,",
            "a b",
            "team in a",
            "team in (a",
            "=a",
            "a/=b",
            "/a",
            "team=ä",
            "team=a=b",
            "in (a)",
            "team nor (a)",
        ] {
            let error = parse_selector(invalid).expect_err(invalid);
            assert!(
                error.ends_with("use for example team=a, stage!=test or tier in (a,b)"),
                "{error}"
            );
        }
        assert!(
            parse_selector("ok, b c ,d")
                .unwrap_err()
                .starts_with("\" b c \" is not")
        );
    }
}
