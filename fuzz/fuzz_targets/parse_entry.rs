//! Fuzzes the parsers of addresses and entries, and the validation of pools of addresses.
//!
//! Invariants: a text is accepted if the parsers of `std` and `ipnet` accept it and it has only one
//! notation, with the same result; and the usable addresses of a pool are those of its entries.
//!
//! The input has one text per line. The first line is the prefix length, with a leading `r` to
//! allocate reserved addresses, the second one is the gateway. Of the other lines, those that start
//! with `!` are excluded entries, the others addresses.
//!
//! Run with `cargo +nightly fuzz run parse_entry`.

#![no_main]

use std::net::IpAddr;

use capi_ipam_ip::{
    Entry, Family, MAX_ENTRY_LENGTH, PoolAddresses, Span, SpanSet, parse_address, parse_entry,
};
use ipnet::IpNet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    for text in input.split('\n') {
        check_text(text);
    }
    check_pool(input);
});

/// Asserts that the parsers agree with the others, and that displayed values parse to the same
/// value.
fn check_text(text: &str) {
    let read = parse_entry(text);
    assert_eq!(
        read.as_ref().ok(),
        entry_of_others(text).as_ref(),
        "{text:?}"
    );
    assert_eq!(
        parse_address(text).ok(),
        plain_address(text).filter(|_| is_clean(text)),
        "{text:?}"
    );
    match read {
        Ok(entry) => assert_eq!(parse_entry(&entry.to_string()), Ok(entry), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty(), "{text:?}"),
    }
    if let Ok(address) = parse_address(text) {
        assert_eq!(parse_address(&address.to_string()), Ok(address), "{text:?}");
        assert_eq!(parse_entry(text), Ok(Entry::from(address)), "{text:?}");
    }
}

/// Parses a text with `std` and `ipnet`.
fn entry_of_others(text: &str) -> Option<Entry> {
    if !is_clean(text) {
        return None;
    }
    if let Some((first, last)) = text.split_once('-') {
        let (first, last) = (plain_address(first)?, plain_address(last)?);
        let span = Span::new(Family::to_number(first), Family::to_number(last))?;
        return (first.is_ipv4() == last.is_ipv4()).then_some(Entry {
            family: Family::of(first),
            span,
        });
    }
    if let Some((address, length)) = text.split_once('/') {
        let (address, network) = (plain_address(address)?, text.parse::<IpNet>().ok()?);
        let is_canonical = network.addr() == address && network.prefix_len().to_string() == length;
        return is_canonical.then(|| Entry {
            family: Family::of(address),
            span: Span::from(network),
        });
    }
    plain_address(text).map(Entry::from)
}

fn is_clean(text: &str) -> bool {
    text.chars().count() <= MAX_ENTRY_LENGTH && !text.contains(char::is_whitespace)
}

fn plain_address(text: &str) -> Option<IpAddr> {
    text.parse()
        .ok()
        .filter(|address: &IpAddr| address.to_canonical() == *address)
}

/// Asserts that usable addresses are in the subnet and the entries and not excluded, and that every
/// problem has a message.
fn check_pool(input: &str) {
    let mut lines = input.split('\n');
    let first = lines.next().unwrap_or_default();
    let gateway = lines.next();
    let (excluded, addresses): (Vec<&str>, Vec<&str>) =
        lines.partition(|line| line.starts_with('!'));
    let addresses: Vec<String> = addresses.into_iter().map(str::to_owned).collect();
    let excluded: Vec<String> = excluded
        .into_iter()
        .map(|line| line.replacen('!', "", 1))
        .collect();
    let pool = PoolAddresses {
        addresses: &addresses,
        excluded: &excluded,
        prefix: first.trim_start_matches('r').parse().unwrap_or(24),
        gateway,
        allocate_reserved: first.starts_with('r'),
        ..PoolAddresses::default()
    };
    match pool.usable() {
        Ok(usable) => {
            let subnet: SpanSet = usable
                .ranges
                .iter()
                .filter_map(|range| range.subnet)
                .map(Span::from)
                .collect();
            assert!(usable.set.subtract(&subnet).is_empty(), "{pool:?}");
            assert!(
                usable.set.subtract(&numbers(&addresses)).is_empty(),
                "{pool:?}"
            );
            assert!(
                usable.set.intersect(&numbers(&excluded)).is_empty(),
                "{pool:?}"
            );
            assert!(
                usable
                    .gateways()
                    .all(|gateway| !usable.set.contains(Family::to_number(gateway))),
                "{pool:?}"
            );
            assert!(
                usable
                    .ranges
                    .iter()
                    .all(|range| i64::from(range.prefix) == pool.prefix),
                "{pool:?}"
            );
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "{pool:?}");
            for problem in problems {
                assert!(!problem.to_string().is_empty());
            }
        }
    }
}

/// The numbers of valid entries.
fn numbers(texts: &[String]) -> SpanSet {
    texts
        .iter()
        .filter_map(|text| parse_entry(text).ok())
        .map(|entry| entry.span)
        .collect()
}
