//! JSON and YAML documents in which each value has its line. JSON is YAML.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::model::ImportProblem;

/// A value, as it was read.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u64,
    /// A scalar as it is written in the file.
    pub(super) text: String,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Field>),
}

/// A field of an object, or an entry of a map.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) value: Node,
}

impl Node {
    /// The fields of an object; none of another value.
    pub(super) fn fields(&self) -> &[Field] {
        if let Content::Map(fields) = &self.content {
            fields
        } else {
            &[]
        }
    }

    /// The value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let field = self.fields().iter().find(|field| field.name == name)?;
        Some(&field.value)
    }

    /// The line of a text in a specification: that of the entry, the range or the field.
    pub(super) fn line_of_entry(&self, field: capi_ipam_ip::Field) -> Option<u64> {
        let value = self.get(field.path().strip_prefix("spec.")?)?;
        let (Content::List(items), Some(index)) = (&value.content, field.index()) else {
            return Some(value.line);
        };
        Some(items.get(index)?.line)
    }

    /// A text; `None` for another value.
    pub(super) fn as_text(&self) -> Option<&str> {
        if let Content::Text(text) = &self.content {
            Some(text)
        } else {
            None
        }
    }

    /// The value without lines.
    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(number) => Value::Number(number.clone()),
            Content::Text(text) => Value::String(text.clone()),
            Content::List(items) => items.iter().map(Self::to_value).collect(),
            Content::Map(fields) => {
                let mut object = Map::new();
                for field in fields {
                    object.insert(field.name.clone(), field.value.to_value());
                }
                Value::Object(object)
            }
        }
    }
}

/// Parses the documents of a file. Returns those that are valid, and the problems of the others.
pub(super) fn parse(text: &str) -> (Vec<Node>, Vec<ImportProblem>) {
    let (mut nodes, mut problems) = (Vec::new(), Vec::new());
    for (lines_before, document) in documents(text) {
        match serde_saphyr::from_str_with_options::<Spanned<Raw>>(document, options()) {
            Ok(raw) => nodes.push(raw_node(&raw, lines_before, document)),
            Err(error) => {
                let line = error
                    .location()
                    .map(|location| location.line().saturating_add(lines_before));
                problems.push(ImportProblem {
                    line,
                    problem: first_line(&error.without_snippet().to_string()),
                    object: None,
                });
            }
        }
    }
    nodes.retain(|node| !matches!(node.content, Content::Null));
    (nodes, problems)
}

/// The documents of a text, and the number of lines before each.
fn documents(text: &str) -> Vec<(u64, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut lines_before, mut offset, mut lines) = (0_usize, 0_u64, 0_usize, 0_u64);
    for line in text.split_inclusive('\n') {
        let end = offset.saturating_add(line.len());
        lines = lines.saturating_add(1);
        if line.trim_end() == "---" {
            documents.push((lines_before, text.get(start..offset).unwrap_or_default()));
            (start, lines_before) = (end, lines);
        }
        offset = end;
    }
    documents.push((lines_before, text.get(start..).unwrap_or_default()));
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents
}

/// Limits for tens of thousands of objects: the file is one of the caller's.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { budget: serde_saphyr::budget! { max_events: 50_000_000, max_nodes: 20_000_000, max_total_scalar_bytes: 1 << 30 } }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// A value as the parser returns it: with positions in its document.
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn raw_node(raw: &Spanned<Raw>, lines_before: u64, document: &str) -> Node {
    let line = |line: u64| line.saturating_add(lines_before);
    let content = match &raw.value {
        Raw::Null => Content::Null,
        Raw::Bool(value) => Content::Bool(*value),
        Raw::Number(number) => Content::Number(number.clone()),
        Raw::Text(text) => Content::Text(text.clone()),
        Raw::List(items) => Content::List(
            items
                .iter()
                .map(|item| raw_node(item, lines_before, document))
                .collect(),
        ),
        Raw::Map(fields) => {
            let field = |(name, value): &(Spanned<String>, Spanned<Raw>)| Field {
                line: line(name.referenced.line()),
                name: name.value.clone(),
                value: raw_node(value, lines_before, document),
            };
            Content::Map(fields.iter().map(field).collect())
        }
    };
    let is_scalar = matches!(content, Content::Bool(_) | Content::Number(_));
    let text = if is_scalar {
        written(raw, document)
    } else {
        String::new()
    };
    Node {
        line: line(raw.referenced.line()),
        text,
        content,
    }
}

/// A scalar as it is written in the document.
fn written(raw: &Spanned<Raw>, document: &str) -> String {
    let span = raw.defined.span();
    let bytes = span
        .byte_offset()
        .zip(span.byte_len())
        .and_then(|(start, length)| {
            let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
            document.get(start..start.checked_add(length)?)
        });
    bytes.unwrap_or_default().trim().to_owned()
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Raw, E> {
        Number::from_f64(value)
            .map(Raw::Number)
            .ok_or_else(|| E::custom("is not a number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Raw::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        let (mut nodes, problems) = parse(text);
        assert!(problems.is_empty(), "{problems:?}");
        nodes.pop().unwrap()
    }

    #[test]
    fn values_and_fields_have_their_lines() {
        let text = "# A comment.\n---\nspec:\n  ranges:\n  - {prefix: 024,\n     gateway: 10.0.0.1}\n  empty:\n";
        let node = one(text);
        let spec = node.get("spec").unwrap();
        let Content::List(ranges) = &spec.get("ranges").unwrap().content else {
            panic!("a list")
        };
        let lines: Vec<_> = ranges[0]
            .fields()
            .iter()
            .map(|field| (field.name.as_str(), field.line, field.value.line))
            .collect();
        assert_eq!(lines, [("prefix", 5, 5), ("gateway", 6, 6)]);
        assert_eq!(ranges[0].get("prefix").unwrap().text, "024");
        assert_eq!(
            (spec.fields()[1].name.as_str(), spec.fields()[1].line),
            ("empty", 7)
        );
        assert_eq!(spec.get("empty").unwrap().to_value(), Value::Null);
    }

    #[test]
    fn json_and_aliases_have_the_line_of_their_use() {
        let node = one("{\n\"a\": [1,\n true]}");
        assert_eq!(node.to_value(), serde_json::json!({"a": [1, true]}));
        let node = one("a: &x\n  b: 1\nc: *x\n");
        assert_eq!(node.get("c").unwrap().line, 3);
        assert_eq!(
            node.get("c").unwrap().to_value(),
            serde_json::json!({"b": 1})
        );
    }

    #[test]
    fn invalid_document_has_its_line() {
        let (nodes, problems) = parse("a: 1\n---\nb: 1\nb: 2\n---\nc: [\n");
        assert_eq!(nodes.len(), 1);
        let lines: Vec<_> = problems
            .iter()
            .map(|problem| problem.line.unwrap())
            .collect();
        assert_eq!((lines[0], problems.len()), (4, 2), "{problems:?}");
    }

    #[test]
    fn second_document_without_a_plain_separator_is_read() {
        for text in [
            "a: 1\n--- # next\nb: 2\n",
            "a: 1\n...\n---\nb: 2\n",
            "a: 1\n--- {b: 2}\n",
        ] {
            let (nodes, problems) = parse(text);
            assert!(
                nodes.len() == 2 || !problems.is_empty(),
                "{text}: {nodes:?}"
            );
        }
    }
}
