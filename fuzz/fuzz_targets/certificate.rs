//! Fuzzes the parser of the validity of a certificate with arbitrary bytes.
//!
//! Invariant: if another X.509 parser also finds a validity, both are equal. Neither accepts all
//! inputs of the other.
//!
//! Run with `cargo +nightly fuzz run certificate`.

#![no_main]

use capi_ipam_webhook::https::Validity;
use libfuzzer_sys::fuzz_target;
use x509_parser::parse_x509_certificate;

fuzz_target!(|input: &[u8]| {
    let Some(read) = Validity::of(input) else {
        return;
    };
    let Ok((_, certificate)) = parse_x509_certificate(input) else {
        return;
    };
    let (from, until) = (
        certificate.validity().not_before,
        certificate.validity().not_after,
    );
    assert_eq!(
        (read.not_before.as_second(), read.not_after.as_second()),
        (from.timestamp(), until.timestamp())
    );
});
