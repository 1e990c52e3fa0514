//! The versions of the pools of single addresses, one made from the other: `v1alpha1`, which is only served, and
//! `v1alpha2`, which is stored.
//!
//! [`convert`] takes one object and knows nothing but that object. It is total: whatever the schema of a version
//! admits is converted, since an object that cannot be would make its whole list unreadable. What is wrong with a pool
//! is for validation to say.
//!
//! # What one version can say and the other cannot
//!
//! Only `v1alpha1` has `subnet`, `start` and `end`; they become an entry of `addresses`. Only `v1alpha2` has the
//! exclusions, the grace period and whatever comes after them. Neither gets lost on a way there and back: an object
//! carries what its version cannot say in the annotation `cluster.x-k8s.io/conversion-data`, as an object of the other
//! version.
//!
//! - On a `v1alpha2` object it is the spec of `v1alpha1` in the form of the Go provider, whose annotations are read
//!   and whose objects look the same. The spec comes back as long as it still means what the object says; a change
//!   that was made in `v1alpha2` is never undone. Its `status` is always `{}`, since both versions have the same one.
//! - On a `v1alpha1` object it is the rest of spec and status. It is there exactly when without it the way back would
//!   not lead to the same object. So it is also there, with nothing in it, when the object was made in `v1alpha2`: an
//!   object that was made in `v1alpha1` would get its own annotation.
//!
//! On the way back the fields of `v1alpha1` win, and the rest is put beside them. A `v1alpha1` client that takes the
//! annotation off takes off the rest with it.
//!
//! The API server limits the size of annotations. A `v1alpha1` spec that is too large to be kept comes back as
//! `addresses`. When the rest of a `v1alpha2` object is too large, the object can still be read as `v1alpha1`, and
//! writing it fails with [`ConversionError::TooLarge`]; otherwise such a write would drop exclusions silently.

mod annotation;
mod spec;

use serde_json::Value;

use annotation::Kept;
use crate::api::names;
use spec::Fields;

/// The kinds that have both versions.
const KINDS: [&str; 2] = ["InClusterIPPool", "GlobalInClusterIPPool"];

/// The only field of the status that both versions have.
const COUNTS: &str = "ipAddresses";

/// Why an object was not converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// Something else than an object was sent.
    #[error("what was sent for conversion is not an object")]
    NotAnObject,
    /// The object is of a kind that has no versions to convert between.
    #[error("{object} is of kind {kind:?}; InClusterIPPool and GlobalInClusterIPPool are converted")]
    Kind {
        /// Namespace and name of the object.
        object: String,
        /// Its kind; empty when it has none.
        kind: String,
    },
    /// The object is of a version that is not known.
    #[error("{object} is of version {version:?}; v1alpha1 and v1alpha2 of ipam.cluster.x-k8s.io are converted")]
    Version {
        /// Namespace and name of the object.
        object: String,
        /// Its `apiVersion`; empty when it has none.
        version: String,
    },
    /// The object was asked for in a version that is not known.
    #[error("{object} is asked for in version {version:?}; there are v1alpha1 and v1alpha2 of ipam.cluster.x-k8s.io")]
    Desired {
        /// Namespace and name of the object.
        object: String,
        /// The `apiVersion` that was asked for.
        version: String,
    },
    /// A `v1alpha1` object whose `v1alpha2` fields were too large to be carried along.
    #[error(
        "{object} has more fields in v1alpha2 than can be kept with it as v1alpha1, and this would drop them; \
         change it as v1alpha2"
    )]
    TooLarge {
        /// Namespace and name of the object.
        object: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1Alpha1,
    V1Alpha2,
}

impl Version {
    fn read(api_version: &str) -> Option<Version> {
        match api_version.split_once('/')? {
            (names::GROUP, names::OLD_POOL_VERSION) => Some(Version::V1Alpha1),
            (names::GROUP, names::POOL_VERSION) => Some(Version::V1Alpha2),
            _ => None,
        }
    }

    /// The `apiVersion` of objects.
    fn api_version(self) -> String {
        let version = match self {
            Version::V1Alpha1 => names::OLD_POOL_VERSION,
            Version::V1Alpha2 => names::POOL_VERSION,
        };
        format!("{}/{version}", names::GROUP)
    }
}

/// The same pool in the version `desired_api_version` (`ipam.cluster.x-k8s.io/v1alpha2`). One that is in that version
/// is given back as it is.
///
/// Metadata, apart from the one annotation, and everything that is not known here pass through untouched.
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
/// # Ok::<(), crate::admission::conversion::ConversionError>(())
/// ```
///
/// # Errors
///
/// See the variants of [`ConversionError`].
pub fn convert(object: Value, desired_api_version: &str) -> Result<Value, ConversionError> {
    let Value::Object(object) = object else { return Err(ConversionError::NotAnObject) };
    let field = |name| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (field("kind"), field("apiVersion"));
    if !KINDS.contains(&kind.as_str()) {
        return Err(ConversionError::Kind { object: name_of(&object), kind });
    }
    let Some(from) = Version::read(&version) else {
        return Err(ConversionError::Version { object: name_of(&object), version });
    };
    let Some(to) = Version::read(desired_api_version) else {
        let version = desired_api_version.to_owned();
        return Err(ConversionError::Desired { object: name_of(&object), version });
    };
    let converted = match (from, to) {
        (Version::V1Alpha1, Version::V1Alpha2) => to_v1alpha2(object, &kind)?,
        (Version::V1Alpha2, Version::V1Alpha1) => to_v1alpha1(object, &kind),
        (Version::V1Alpha1, Version::V1Alpha1) | (Version::V1Alpha2, Version::V1Alpha2) => object,
    };
    Ok(Value::Object(converted))
}

fn to_v1alpha2(mut object: Fields, kind: &str) -> Result<Fields, ConversionError> {
    let rest = annotation::text(&object).and_then(|text| Kept::read(text, &Version::V1Alpha2.api_version(), kind));
    annotation::remove(&mut object);
    if rest.as_ref().is_some_and(|rest| rest.left_out) {
        return Err(ConversionError::TooLarge { object: name_of(&object) });
    }
    let old_spec = fields_of(&object, "spec");
    set_version(&mut object, Version::V1Alpha2);

    let mut new_spec = spec::converted(&old_spec);
    if let Some(rest) = &rest {
        new_spec.extend(rest.spec.clone().into_iter().filter(|(name, _)| !spec::is_shared(name)));
        add_status(&mut object, &rest.status);
    }
    object.insert("spec".to_owned(), Value::Object(new_spec));

    // Made in v1alpha2: it gets back the annotation that it had, or none, as long as that is enough for the v1alpha1
    // spec to come back.
    if let Some(rest) = &rest {
        let before = with_annotations_of_before(&object, rest.annotations.as_ref(), kind);
        if fields_of(&view(&before, kind), "spec") == old_spec {
            return Ok(before);
        }
    }
    let own = Kept { spec: spec::filled(&old_spec), ..Kept::default() };
    Ok(annotation::with(&object, own.write(&Version::V1Alpha1.api_version(), kind)).unwrap_or(object))
}

fn to_v1alpha1(mut object: Fields, kind: &str) -> Fields {
    if old_spec_of(&object, kind).is_none() {
        // Nothing that anybody could read.
        annotation::remove(&mut object);
    }
    let object = object;
    let view = view(&object, kind);
    let leads_back = |view: &Fields| to_v1alpha2(view.clone(), kind).is_ok_and(|back| back == object);
    if leads_back(&view) {
        return view;
    }

    let mut rest = Kept { spec: fields_of(&object, "spec"), status: fields_of(&object, "status"), ..Kept::default() };
    rest.spec.retain(|name, _| !spec::is_shared(name));
    rest.status.retain(|name, _| name != COUNTS);
    let with = |rest: &Kept| annotation::with(&view, rest.write(&Version::V1Alpha2.api_version(), kind));
    let Some(plain) = with(&rest) else {
        let left_out = Kept { left_out: true, ..Kept::default() };
        return if rest.is_empty() { None } else { with(&left_out) }.unwrap_or(view);
    };
    if leads_back(&plain) {
        return plain;
    }
    let mut annotations = annotation::annotations(&object).cloned().unwrap_or_default();
    annotations.retain(|name, _| name == names::CONVERSION_DATA_ANNOTATION);
    let exact = with(&Kept { annotations: Some(annotations), ..rest });
    exact.filter(|exact| leads_back(exact)).unwrap_or(plain)
}

/// A `v1alpha2` object as `v1alpha1` shows it: without what `v1alpha1` does not have, and without our annotation.
fn view(object: &Fields, kind: &str) -> Fields {
    let mut view = object.clone();
    set_version(&mut view, Version::V1Alpha1);
    annotation::remove(&mut view);
    let new_spec = fields_of(object, "spec");
    let old_spec = old_spec_of(object, kind).filter(|old| spec::converted(old) == spec::complete(&new_spec));
    view.insert("spec".to_owned(), Value::Object(old_spec.unwrap_or_else(|| spec::shared(&new_spec))));
    if let Some(Value::Object(status)) = view.get_mut("status") {
        status.retain(|name, _| name == COUNTS);
    }
    view
}

/// The `v1alpha1` spec that a `v1alpha2` object keeps, whether or not it is still right.
fn old_spec_of(object: &Fields, kind: &str) -> Option<Fields> {
    let text = annotation::text(object)?;
    Kept::read(text, &Version::V1Alpha1.api_version(), kind).map(|kept| kept.spec)
}

/// A `v1alpha2` object with the annotations that it had before it was converted to `v1alpha1`, as far as they are ours.
fn with_annotations_of_before(object: &Fields, before: Option<&Fields>, kind: &str) -> Fields {
    let mut object = object.clone();
    let Some(before) = before else {
        annotation::remove_if_empty(&mut object);
        return object;
    };
    annotation::ensure(&mut object);
    let text = before.get(names::CONVERSION_DATA_ANNOTATION).and_then(Value::as_str);
    let with_text = text.and_then(|text| annotation::with(&object, text.to_owned()));
    // It came from a client: what nobody could read does not go into an object.
    with_text.filter(|object| old_spec_of(object, kind).is_some()).unwrap_or(object)
}

/// Adds the fields that only the status of `v1alpha2` has.
fn add_status(object: &mut Fields, rest: &Fields) {
    if rest.is_empty() {
        return;
    }
    let status = object.entry("status").or_insert(Value::Null);
    if status.is_null() {
        *status = Value::Object(Fields::new());
    }
    if let Some(status) = status.as_object_mut() {
        for (name, value) in rest.iter().filter(|(name, _)| *name != COUNTS) {
            status.entry(name).or_insert_with(|| value.clone());
        }
    }
}

fn set_version(object: &mut Fields, version: Version) {
    object.insert("apiVersion".to_owned(), Value::String(version.api_version()));
}

/// The fields of a field; none when it is missing or no object.
fn fields_of(object: &Fields, name: &str) -> Fields {
    object.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Namespace and name, for people.
fn name_of(object: &Fields) -> String {
    let metadata = object.get("metadata");
    let text = |name| metadata.and_then(|metadata| metadata.get(name)).and_then(Value::as_str);
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (None, Some(name)) => name.to_owned(),
        (_, None) => "an object without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests;
