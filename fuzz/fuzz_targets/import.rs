//! Fuzzes `kubectl ipam import` with arbitrary files, on a model of a cluster in which an earlier
//! file was imported and the manager moves reservations.
//!
//! The first line is a number in hexadecimal notation that decides which pools join or leave a
//! network. A line `%%` separates the earlier file from the one that is checked. The laws are those
//! of `kubectl_ipam::laws`.
//!
//! Run with `cargo +nightly fuzz run import`.

#![no_main]

use kubectl_ipam::laws::check;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let (first, files) = text.split_once('\n').unwrap_or((text, ""));
    let moves = u64::from_str_radix(first.trim(), 16).unwrap_or_default();
    let (before, file) = files.split_once("%%\n").unwrap_or(("", files));
    assert_eq!(check(before, file, moves), Ok(()));
});
