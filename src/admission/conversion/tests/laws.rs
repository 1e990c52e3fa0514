//! Property tests with arbitrary objects.

use capi_ipam_ip::parse_entry;
use proptest::prelude::*;
use serde_json::Map;

use super::*;

/// Texts for addresses: most of them valid, or nearly.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "10\\.0\\.[0-3]\\.[0-9]{1,2}",
        2 => "10\\.0\\.[0-3]\\.[0-9]{1,2}/(2[0-9]|3[0-3])",
        1 => "fd00::[0-9a-f]{1,3}",
        1 => "fd00::[0-9a-f]{0,3}/(6[0-9]|12[0-9])",
        1 => Just(String::new()),
        1 => "[0-9a-f:./% -]{0,20}",
        1 => any::<String>(),
    ]
}

/// JSON without fractions.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A JSON object with some of these fields.
fn some_of(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Value> {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (Just(name), prop::option::of(value)))
        .collect::<Vec<_>>();
    fields.prop_map(|fields| {
        let present = fields
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(present.collect())
    })
}

fn lists() -> BoxedStrategy<Value> {
    prop::collection::vec(texts(), 0..4)
        .prop_map(Value::from)
        .boxed()
}

fn one() -> BoxedStrategy<Value> {
    texts().prop_map(Value::from).boxed()
}

/// Specs that the schema of `v1alpha1` accepts.
fn old_specs() -> impl Strategy<Value = Value> {
    let prefixes = prop_oneof![0_i64..=128, i64::MIN..=128]
        .prop_map(Value::from)
        .boxed();
    some_of(vec![
        ("addresses", lists()),
        ("subnet", one()),
        ("start", one()),
        ("end", one()),
        ("prefix", prefixes),
        ("gateway", one()),
    ])
}

/// Specs that the schema of `v1alpha2` accepts, with unknown fields.
fn new_specs() -> impl Strategy<Value = Value> {
    let rest = some_of(vec![
        ("gateway", one()),
        (
            "allocateReservedIPAddresses",
            any::<bool>().prop_map(Value::from).boxed(),
        ),
        ("excludedAddresses", lists()),
        (
            "addressReuseGracePeriodSeconds",
            any::<i32>().prop_map(Value::from).boxed(),
        ),
        ("network", one()),
        (
            "allocation",
            any::<bool>()
                .prop_map(|sticky| json!({ "sticky": sticky }))
                .boxed(),
        ),
        ("ranges", ranges()),
        ("draining", lists()),
        (
            "addressMetadata",
            any::<String>()
                .prop_map(|text| json!({ "labels": { "a": text } }))
                .boxed(),
        ),
        ("subnet", values().boxed()),
        ("tomorrow", values().boxed()),
    ]);
    (lists(), 0..=128_i64, rest, any::<[bool; 2]>()).prop_map(
        |(addresses, prefix, mut spec, missing)| {
            // A pool with ranges may have no addresses.
            let [no_addresses, no_prefix] =
                missing.map(|missing| missing && spec.get("ranges").is_some());
            if !no_addresses {
                spec["addresses"] = addresses;
            }
            if !no_prefix {
                spec["prefix"] = json!(prefix);
            }
            spec
        },
    )
}

fn ranges() -> BoxedStrategy<Value> {
    let range = (lists(), 0..=128_i64, one()).prop_map(
        |(addresses, prefix, gateway)| json!({ "addresses": addresses, "prefix": prefix, "gateway": gateway }),
    );
    prop::collection::vec(range, 1..3)
        .prop_map(Value::from)
        .boxed()
}

fn statuses() -> impl Strategy<Value = Option<Value>> {
    let fields = ["ipAddresses", "conditions", "tomorrow"].map(|name| (name, values().boxed()));
    prop::option::of(some_of(fields.into()))
}

/// Metadata without the conversion-data annotation.
fn metadata() -> impl Strategy<Value = Value> {
    let maps = || {
        prop::collection::btree_map("[a-z]{1,3}", any::<String>(), 0..3)
            .prop_map(|map| json!(map))
            .boxed()
    };
    let fields = [
        ("labels", maps()),
        ("annotations", maps()),
        ("tomorrow", values().boxed()),
    ];
    some_of(fields.into()).prop_map(|mut metadata| {
        metadata["name"] = json!("p");
        metadata
    })
}

fn object(
    version: &str,
    kind: &str,
    metadata: &Value,
    spec: &Value,
    status: Option<Value>,
) -> Value {
    let mut object =
        json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec });
    if let Some(status) = status {
        object["status"] = status;
    }
    object
}

fn kinds() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&KINDS[..])
}

fn old_objects() -> impl Strategy<Value = Value> {
    (kinds(), metadata(), old_specs(), statuses())
        .prop_map(|(kind, metadata, spec, status)| object(OLD, kind, &metadata, &spec, status))
}

/// Without the annotation, or with that of an object created in `v1alpha1`, of another spec, or of
/// another format.
fn new_objects() -> impl Strategy<Value = Value> {
    let created_new = (kinds(), metadata(), new_specs(), statuses())
        .prop_map(|(kind, metadata, spec, status)| object(NEW, kind, &metadata, &spec, status));
    let created_old = (old_objects(), new_specs(), statuses(), any::<[bool; 3]>()).prop_map(
        |(old, new_spec, status, [stale, more, pretty])| {
            let mut object = to_new(&old);
            let fields = new_spec.as_object().unwrap().iter();
            let fields =
                fields.filter(|(name, _)| if spec::is_shared(name) { stale } else { more });
            fields.for_each(|(name, value)| object["spec"][name] = value.clone());
            if pretty {
                let text = format!("{:#}", conversion_data(&object));
                object = with_annotation(object, &text);
            }
            if let Some(status) = status {
                object["status"] = status;
            }
            object
        },
    );
    prop_oneof![created_new, created_old]
}

/// The fields that only `v1alpha2` has.
fn rest(spec: &Value) -> Map<String, Value> {
    spec.as_object()
        .unwrap()
        .clone()
        .into_iter()
        .filter(|(name, _)| !spec::is_shared(name))
        .collect()
}

proptest! {
    #[test]
    fn v1alpha2_survives_a_round_trip(object in new_objects()) {
        let view = to_old(&object);
        prop_assert!(serde_json::from_value::<IPPoolSpecV1Alpha1>(view["spec"].clone()).is_ok());
        prop_assert_eq!(to_new(&view), object);
    }

    #[test]
    fn v1alpha1_survives_a_round_trip(object in old_objects()) {
        let there = to_new(&object);
        prop_assert!(serde_json::from_value::<IPPoolSpec>(there["spec"].clone()).is_ok());
        let mut expected = object;
        expected["spec"] = Value::Object(spec::with_subnet_fields(expected["spec"].as_object().unwrap()));
        if expected["metadata"].get("annotations").is_none() {
            expected["metadata"]["annotations"] = json!({});
        }
        let back = to_old(&there);
        prop_assert_eq!(&back, &expected);
        prop_assert_eq!(to_new(&back), there);
    }

    #[test]
    fn v1alpha2_fields_survive_any_change_in_v1alpha1(
        object in new_objects(),
        spec in old_specs(),
        labels in values(),
        annotation: String,
    ) {
        let mut changed = to_old(&object);
        changed["spec"] = spec;
        changed["metadata"]["labels"] = labels;
        changed["metadata"]["annotations"]["mine"] = json!(annotation);
        let back = to_new(&changed);
        prop_assert_eq!(rest(&back["spec"]), rest(&object["spec"]));
        prop_assert_eq!(back.get("status"), object.get("status"));
        prop_assert_eq!(&back["metadata"]["labels"], &changed["metadata"]["labels"]);
        prop_assert_eq!(&back["metadata"]["annotations"]["mine"], &changed["metadata"]["annotations"]["mine"]);
        // The change has the effect that it has on a pool created in v1alpha1, and v1alpha1 shows
        // it.
        let direct = spec::to_v1alpha2(changed["spec"].as_object().unwrap());
        prop_assert_eq!(spec::with_required_fields(back["spec"].as_object().unwrap()), direct);
        let with_subnet = spec::with_subnet_fields(changed["spec"].as_object().unwrap());
        let shown = to_old(&back)["spec"].clone();
        prop_assert!(shown == changed["spec"] || shown == Value::Object(with_subnet));
    }

    #[test]
    fn any_change_in_v1alpha2_is_effective_in_v1alpha1(old in old_objects(), spec in new_specs()) {
        let mut object = to_new(&old);
        object["spec"] = spec;
        let view = to_old(&object);
        let shared = spec::with_required_fields(object["spec"].as_object().unwrap());
        prop_assert_eq!(spec::to_v1alpha2(view["spec"].as_object().unwrap()), shared);
    }

    #[test]
    fn any_object_is_converted(
        mut object in prop_oneof![old_objects(), new_objects()],
        field in prop::sample::select(&["metadata", "spec", "status"][..]),
        value in values(),
        text: String,
    ) {
        object[field] = value;
        for desired in [OLD, NEW] {
            prop_assert!(convert(object.clone(), desired).is_ok());
        }
        if object["metadata"].is_object() && object["metadata"]["annotations"].is_null() {
            let object = with_annotation(object, &text);
            for desired in [OLD, NEW] {
                prop_assert!(convert(object.clone(), desired).is_ok());
            }
        }
    }

    /// The manager can decode what a client stores by the annotation, or the write fails.
    #[test]
    fn annotation_stores_no_undecodable_field(
        pool in old_objects(),
        field in prop::sample::select(&["network", "ranges", "allocation", "draining", "slices", "tomorrow"][..]),
        value in values(),
    ) {
        let data = json!({ "apiVersion": NEW, "kind": pool["kind"], "spec": { field: value } });
        let pool = with_annotation(pool, &data.to_string());
        if let Ok(converted) = convert(pool, NEW) {
            prop_assert!(serde_json::from_value::<IPPoolSpec>(converted["spec"].clone()).is_ok());
        }
    }

    #[test]
    fn addresses_of_a_subnet_are_correct(address: std::net::IpAddr, length in 0..=128_u8) {
        let address = address.to_canonical();
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.min(bits);
        let converted = to_new(&old(&json!({ "subnet": format!("{address}/{length}") })));
        prop_assert_eq!(&converted["spec"]["prefix"], &json!(length));
        let entry = parse_entry(converted["spec"]["addresses"][0].as_str().unwrap());
        let network = parse_entry(&format!("{address}/{length}")).unwrap();
        // Large networks can end in the range of IPv4-mapped addresses, which are not valid.
        if let Ok(entry) = entry {
            let edge = u128::from(bits - length > 1);
            prop_assert_eq!(entry.span.first(), network.span.first() + edge);
            prop_assert_eq!(entry.span.last(), network.span.last() - edge);
        }
    }
}
