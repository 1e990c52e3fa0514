//! Conversion of the pools of single addresses between `v1alpha1`, which is only served, and
//! `v1alpha2`, which is stored.
//!
//! [`convert`] is a pure function of one object. It converts every `v1alpha2` object that the
//! schema accepts, because an object that fails to convert makes lists of its kind fail. Invalid
//! specs are reported by validation. The conversion to `v1alpha2` fails only because of what
//! clients wrote about `v1alpha2` fields in a `v1alpha1` object, so that the write fails. An object
//! that is stored as `v1alpha1` is older than `v1alpha2` and has no such data.
//!
//! # Fields that only one version has
//!
//! Only `v1alpha1` has `subnet`, `start` and `end`; they become an entry of `addresses`. Only
//! `v1alpha2` has the exclusions, the grace period and all later fields. A round trip preserves all
//! of them: an object stores the fields that its version does not have in the annotation
//! `cluster.x-k8s.io/conversion-data`, as an object of the other version.
//!
//! - On a `v1alpha2` object the annotation has the spec of `v1alpha1`, in the format of the Go
//!   provider, whose annotations are read as well. The spec is restored if it still corresponds to
//!   the `v1alpha2` spec; a change that was made in `v1alpha2` is never undone.
//! - On a `v1alpha1` object the annotation has the other fields of the spec. It exists only if a
//!   round trip without it would change the object. So it also exists, without fields, if the
//!   object was created in `v1alpha2`: without it, the conversion back would add the annotation of
//!   an object that was created in `v1alpha1`.
//!
//! In the conversion back to `v1alpha2`, the fields of the `v1alpha1` object take precedence, and
//! the fields of the annotation are added. A `v1alpha1` client that removes the annotation removes
//! these fields. One that gives a field another type cannot write the object
//! ([`ConversionError::Malformed`]).
//!
//! Both versions have the same status, and the annotation has none: a client that writes a pool
//! writes its annotations, and the status decides to which network the pool belongs. The API server
//! keeps the status in a write of anything else.
//!
//! The API server limits the size of annotations. A `v1alpha1` spec that is too large is not
//! stored, and is read back as `addresses`. If the `v1alpha2` fields are too large, the object can
//! be read as `v1alpha1`, but writing it fails with [`ConversionError::TooLarge`]: the write would
//! silently remove exclusions. The mark is a label, for which there is always room.

mod annotation;
mod spec;

use capi_ipam_api::{IPPoolSpec, Pool, names};
use serde::Deserialize as _;
use serde_json::Value;

use annotation::ConversionData;
use spec::Fields;

/// The kinds with both versions.
const KINDS: [&str; 2] = ["InClusterIPPool", "GlobalInClusterIPPool"];

/// The label on a `v1alpha1` object whose `v1alpha2` fields are too large for the annotation.
const OMITTED_LABEL: &str = "ipam.cluster.x-k8s.io/v1alpha2-fields-omitted";

/// An error of [`convert`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The value is not a JSON object.
    #[error("the value to convert is not an object")]
    NotAnObject,
    /// The object is of a kind with one version only.
    #[error(
        "{object} is of kind {kind:?}; only InClusterIPPool and GlobalInClusterIPPool can be converted"
    )]
    Kind {
        /// The namespace and name of the object.
        object: String,
        /// The kind of the object; empty if it has none.
        kind: String,
    },
    /// The object is of an unknown version.
    #[error(
        "{object} is of version {version:?}; only v1alpha1 and v1alpha2 of ipam.cluster.x-k8s.io can be converted"
    )]
    Version {
        /// The namespace and name of the object.
        object: String,
        /// The `apiVersion` of the object; empty if it has none.
        version: String,
    },
    /// The desired version is unknown.
    #[error(
        "cannot convert {object} to version {version:?}; use v1alpha1 or v1alpha2 of ipam.cluster.x-k8s.io"
    )]
    Desired {
        /// The namespace and name of the object.
        object: String,
        /// The desired `apiVersion`.
        version: String,
    },
    /// The object is a `v1alpha1` object whose `v1alpha2` fields are too large for the annotation.
    #[error(
        "the v1alpha2 fields of {object} are too large to be stored with a v1alpha1 object, and this write would \
         remove them; write the object as v1alpha2"
    )]
    TooLarge {
        /// The namespace and name of the object.
        object: String,
    },
    /// The annotation of a `v1alpha1` object has a `v1alpha2` field of another type.
    #[error(
        "the annotation cluster.x-k8s.io/conversion-data of {object} has a v1alpha2 field with a value that is not \
         valid: {reason}; correct the annotation, or write the object as v1alpha2"
    )]
    Malformed {
        /// The namespace and name of the object.
        object: String,
        /// The error of the deserializer.
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1Alpha1,
    V1Alpha2,
}

impl Version {
    fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/')? {
            (names::GROUP, names::OLD_POOL_VERSION) => Some(Self::V1Alpha1),
            (names::GROUP, names::POOL_VERSION) => Some(Self::V1Alpha2),
            _ => None,
        }
    }

    /// Returns the `apiVersion` of objects of this version.
    fn api_version(self) -> String {
        let version = match self {
            Self::V1Alpha1 => names::OLD_POOL_VERSION,
            Self::V1Alpha2 => names::POOL_VERSION,
        };
        format!("{}/{version}", names::GROUP)
    }
}

/// Converts a pool to the version `desired_api_version`, such as `ipam.cluster.x-k8s.io/v1alpha2`.
/// An object that has this version already is returned unchanged.
///
/// Metadata, except the conversion-data annotation, and unknown fields are not changed.
///
/// ```
/// use capi_ipam::admission::conversion::convert;
/// use serde_json::json;
///
/// let old = json!({
///     "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1",
///     "kind": "InClusterIPPool",
///     "metadata": { "name": "web", "namespace": "default" },
///     "spec": { "subnet": "10.0.0.0/24", "end": "10.0.0.99", "gateway": "10.0.0.1" },
/// });
/// let new = convert(old, "ipam.cluster.x-k8s.io/v1alpha2")?;
/// assert_eq!(
///     new["spec"],
///     json!({ "addresses": ["10.0.0.1-10.0.0.99"], "prefix": 24, "gateway": "10.0.0.1" })
/// );
/// # Ok::<(), capi_ipam::admission::conversion::ConversionError>(())
/// ```
///
/// # Errors
///
/// See the variants of [`ConversionError`].
pub fn convert(object: Value, desired_api_version: &str) -> Result<Value, ConversionError> {
    let Value::Object(object) = object else {
        return Err(ConversionError::NotAnObject);
    };
    let field = |name| {
        object
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, version) = (field("kind"), field("apiVersion"));
    if !KINDS.contains(&kind.as_str()) {
        return Err(ConversionError::Kind {
            object: name_of(&object),
            kind,
        });
    }
    let Some(from) = Version::parse(&version) else {
        return Err(ConversionError::Version {
            object: name_of(&object),
            version,
        });
    };
    let Some(to) = Version::parse(desired_api_version) else {
        let version = desired_api_version.to_owned();
        return Err(ConversionError::Desired {
            object: name_of(&object),
            version,
        });
    };
    let converted = match (from, to) {
        (Version::V1Alpha1, Version::V1Alpha2) => to_v1alpha2(object, &kind)?,
        (Version::V1Alpha2, Version::V1Alpha1) => to_v1alpha1(object, &kind),
        (Version::V1Alpha1, Version::V1Alpha1) | (Version::V1Alpha2, Version::V1Alpha2) => object,
    };
    Ok(Value::Object(converted))
}

fn to_v1alpha2(mut object: Fields, kind: &str) -> Result<Fields, ConversionError> {
    let data = annotation::text(&object)
        .and_then(|text| ConversionData::parse(text, &Version::V1Alpha2.api_version(), kind));
    annotation::remove(&mut object);
    let is_marked = annotation::in_metadata(&object, "labels")
        .is_some_and(|labels| labels.contains_key(OMITTED_LABEL));
    if is_marked || data.as_ref().is_some_and(|data| data.is_truncated) {
        return Err(ConversionError::TooLarge {
            object: name_of(&object),
        });
    }
    let old_spec = fields_of(&object, "spec");
    set_version(&mut object, Version::V1Alpha2);

    let mut new_spec = spec::to_v1alpha2(&old_spec);
    if let Some(data) = &data {
        let mut added = data.spec.clone();
        added.retain(|name, _| !spec::is_shared(name));
        if let Err(error) = IPPoolSpec::deserialize(&Value::Object(added.clone())) {
            return Err(ConversionError::Malformed {
                object: name_of(&object),
                reason: error.to_string(),
            });
        }
        new_spec.extend(added);
        spec::remove_missing_fields(&mut new_spec, &old_spec, &data.spec);
    }
    object.insert("spec".to_owned(), Value::Object(new_spec));

    // Created in v1alpha2: restores the annotations that it had, if they are sufficient to restore
    // the v1alpha1 spec.
    if let Some(data) = &data {
        let original = with_original_annotations(&object, data.annotations.as_ref(), kind);
        if fields_of(&as_v1alpha1(&original, kind), "spec") == old_spec {
            return Ok(original);
        }
    }
    let data = ConversionData {
        spec: spec::with_subnet_fields(&old_spec),
        ..ConversionData::default()
    };
    Ok(annotation::with(
        &object,
        data.to_text(&Version::V1Alpha1.api_version(), kind),
    )
    .unwrap_or(object))
}

fn to_v1alpha1(mut object: Fields, kind: &str) -> Fields {
    if old_spec_of(&object, kind).is_none() {
        // The annotation is not valid.
        annotation::remove(&mut object);
    }
    let object = object;
    let view = as_v1alpha1(&object, kind);
    let round_trips =
        |view: &Fields| to_v1alpha2(view.clone(), kind).is_ok_and(|back| back == object);
    if round_trips(&view) {
        return view;
    }

    let mut data = ConversionData {
        spec: fields_of(&object, "spec"),
        ..ConversionData::default()
    };
    data.spec.retain(|name, _| !spec::is_shared(name));
    spec::record_missing_fields(&fields_of(&object, "spec"), &mut data.spec);
    let with = |data: &ConversionData| {
        annotation::with(&view, data.to_text(&Version::V1Alpha2.api_version(), kind))
    };
    let Some(plain) = with(&data) else {
        let mut view = view;
        if !data.spec.is_empty()
            && let Some(labels) = annotation::ensure(&mut view, "labels")
        {
            labels.insert(OMITTED_LABEL.to_owned(), Value::from("true"));
        }
        return view;
    };
    if round_trips(&plain) {
        return plain;
    }
    let mut annotations = annotation::in_metadata(&object, "annotations")
        .cloned()
        .unwrap_or_default();
    annotations.retain(|name, _| name == names::CONVERSION_DATA_ANNOTATION);
    let exact = with(&ConversionData {
        annotations: Some(annotations),
        ..data
    });
    exact.filter(|exact| round_trips(exact)).unwrap_or(plain)
}

/// Converts a `v1alpha2` object to `v1alpha1` without the annotation: fields that `v1alpha1` does
/// not have are removed.
fn as_v1alpha1(object: &Fields, kind: &str) -> Fields {
    let mut view = object.clone();
    set_version(&mut view, Version::V1Alpha1);
    annotation::remove(&mut view);
    let new_spec = fields_of(object, "spec");
    let old_spec = old_spec_of(object, kind)
        .filter(|old| spec::to_v1alpha2(old) == spec::with_required_fields(&new_spec));
    view.insert(
        "spec".to_owned(),
        Value::Object(old_spec.unwrap_or_else(|| spec::shared_fields(&new_spec))),
    );
    view
}

/// Returns the `v1alpha1` spec in the annotation of a `v1alpha2` object, also if it no longer
/// corresponds to the object.
fn old_spec_of(object: &Fields, kind: &str) -> Option<Fields> {
    let text = annotation::text(object)?;
    ConversionData::parse(text, &Version::V1Alpha1.api_version(), kind).map(|data| data.spec)
}

/// Returns `spec.subnet` of a pool that was written in `v1alpha1`, unless it was changed in
/// `v1alpha2` since.
pub(super) fn old_subnet(pool: &Pool) -> Option<String> {
    let text = pool
        .metadata
        .annotations
        .as_ref()?
        .get(names::CONVERSION_DATA_ANNOTATION)?;
    let old = ConversionData::parse(text, &Version::V1Alpha1.api_version(), pool.kind.name())?.spec;
    let spec = serde_json::to_value(&pool.spec).ok()?;
    let is_current = spec::to_v1alpha2(&old) == spec::with_required_fields(spec.as_object()?);
    old.get("subnet")
        .and_then(Value::as_str)
        .filter(|_| is_current)
        .map(str::to_owned)
}

/// Restores the conversion-data annotation that a `v1alpha2` object had before it was converted to
/// `v1alpha1`.
fn with_original_annotations(object: &Fields, original: Option<&Fields>, kind: &str) -> Fields {
    let mut object = object.clone();
    let Some(original) = original else {
        annotation::remove_if_empty(&mut object);
        return object;
    };
    annotation::ensure(&mut object, "annotations");
    let text = original
        .get(names::CONVERSION_DATA_ANNOTATION)
        .and_then(Value::as_str);
    let with_text = text.and_then(|text| annotation::with(&object, text.to_owned()));
    // Clients can change the text: an invalid annotation is not restored.
    with_text
        .filter(|object| old_spec_of(object, kind).is_some())
        .unwrap_or(object)
}

fn set_version(object: &mut Fields, version: Version) {
    object.insert(
        "apiVersion".to_owned(),
        Value::String(version.api_version()),
    );
}

/// Returns the value of a field; an empty object if it is missing or not an object.
fn fields_of(object: &Fields, name: &str) -> Fields {
    object
        .get(name)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// Returns the namespace and name of an object for messages.
fn name_of(object: &Fields) -> String {
    let metadata = object.get("metadata");
    let text = |name| {
        metadata
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str)
    };
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (None, Some(name)) => name.to_owned(),
        (_, None) => "an object without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
