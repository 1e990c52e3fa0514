//! Fuzzes `kubectl ipam convert` with arbitrary tables: every problem has a text, and what is converted is
//! valid.
//!
//! Run with `cargo +nightly fuzz run table`.

#![no_main]

use capi_ipam_api::{IPReservation, Pool};
use kubectl_ipam::convert;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let converted = match convert(text, "team-a", Some("racks")) {
        Ok(converted) => converted,
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| !problem.text.is_empty()));
            return;
        }
    };
    for object in &converted.objects {
        match object["kind"].as_str().unwrap() {
            "IPNetwork" => {}
            "IPReservation" => {
                let reservation: IPReservation = serde_json::from_value(object.clone()).unwrap();
                assert!(reservation.slot().is_ok());
            }
            _ => {
                let pool: Pool = serde_json::from_value(object.clone()).unwrap();
                let usable = pool.spec.usable();
                assert!(
                    usable.is_ok() && pool.spec.field_problems(usable.as_ref().ok()).is_empty()
                );
            }
        }
    }
});
