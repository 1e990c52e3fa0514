//! Feeds arbitrary bytes to the reader of a certificate's validity.
//!
//! What must hold: where a whole parser of X.509 finds a validity too, it is the same. Neither reads all that the other
//! does: this one passes over most of a certificate, that one over some bits of its tags.
//!
//! Run with `cargo +nightly fuzz run certificate`.

#![no_main]

use capi_ipam_webhook::https::Validity;
use libfuzzer_sys::fuzz_target;
use x509_parser::parse_x509_certificate;

fuzz_target!(|input: &[u8]| {
    let Some(read) = Validity::of(input) else { return };
    let Ok((_, certificate)) = parse_x509_certificate(input) else { return };
    let (from, until) = (certificate.validity().not_before, certificate.validity().not_after);
    assert_eq!((read.from.as_second(), read.until.as_second()), (from.timestamp(), until.timestamp()));
});
