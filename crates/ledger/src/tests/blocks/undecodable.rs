//! Networks and slices that cannot be decoded or have no valid specification.

use capi_ipam_objects::maybe_invalid::MaybeInvalid;

use super::*;

#[test]
fn invalid_network_keeps_its_shared_blocks() {
    let undecodable = Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(sharing(json!({})).metadata),
    };
    let mut ledger = restricted();
    Observe::<IPNetwork>::apply_invalid(&mut ledger, &undecodable);
    assert_eq!(propose(&mut ledger, "a"), None);
    assert!(!ledger.is_block_usable("lab", four(4)));
    ledger.apply_network(&sharing(json!({"spec": {"blocks": {"size": 5}}})));
    assert!(!ledger.is_block_usable("lab", four(4)));
    let rules = ledger.network_blocks("lab").unwrap().rules.unwrap();
    assert_eq!(rules.shift, 2, "of the last valid specification");
    ledger.apply_network(&sharing(json!({"spec": {"excluded": ["nonsense"]}})));
    assert!(!ledger.is_block_usable("lab", four(4)));
    ledger.apply_network(&lab(json!({})));
    assert!(ledger.is_block_usable("lab", four(4)));
}

#[test]
fn undecodable_slice_takes_its_block() {
    let mut ledger = restricted();
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(slice(4, json!({})).metadata),
    };
    Observe::<IPSlice>::apply_invalid(&mut ledger, &invalid);
    let blocks = ledger.network_blocks("lab").unwrap().blocks;
    let [view] = blocks.as_slice() else {
        panic!("{blocks:?}");
    };
    let found = view.slice.clone().unwrap();
    assert!(!found.is_valid && !found.is_usable && found.uid == "s-4");
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "6"}})));
    assert!(is_usable(&ledger, 4));
    Observe::<IPSlice>::delete_invalid(&mut ledger, &invalid);
    assert!(!is_usable(&ledger, 4));
    let mismatch = slice(8, json!({"spec": {"block": "10.0.0.4/30"}}));
    ledger.insert_found_slice(&scope(), four(8), &MaybeInvalid(Ok(mismatch)));
    assert!(!is_usable(&ledger, 8));
}

#[test]
fn slice_of_a_network_with_a_hashed_name_is_found() {
    let name = "n".repeat(250);
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({"metadata": {"name": name}})));
    let scope = Scope::Network(name.as_str().into());
    let text = reservation_name(&scope, four(4));
    assert!(text.starts_with("h."), "{text}");
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(slice(4, json!({"metadata": {"name": text}})).metadata),
    };
    Observe::<IPSlice>::apply_invalid(&mut ledger, &invalid);
    assert_eq!(ledger.network_blocks(&name).unwrap().blocks.len(), 1);
}
