//! Fuzzes the parser of the flags of the manager, and that of durations.
//!
//! Invariants: flags are accepted or rejected with a message, also combinations of flags; and a
//! duration is the sum of its parts.
//!
//! The input has one argument per line. Each line is also parsed as a duration.
//!
//! Run with `cargo +nightly fuzz run flags`.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use capi_ipam::in_cluster::InClusterOptions;
use capi_ipam_controller::options::{Options, parse_duration};
use capi_ipam_webhook::options::WebhookOptions;
use clap::Parser;
use libfuzzer_sys::fuzz_target;
use rustls::server::ResolvesServerCertUsingSni;

/// The flags of the manager, except one that accepts any text.
#[derive(Parser, Debug)]
#[command(version = "0", args_override_self = true)]
struct Flags {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    in_cluster: InClusterOptions,
    #[command(flatten)]
    webhooks: WebhookOptions,
}

fuzz_target!(|input: &str| {
    let lines = || input.split('\n');
    lines().for_each(check_duration);
    match Flags::try_parse_from(std::iter::once("manager").chain(lines())) {
        Ok(flags) => check(&flags),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn check(flags: &Flags) {
    let Flags {
        options, webhooks, ..
    } = flags;
    match options.validate() {
        Ok(()) => {
            assert!(options.leader_elect_renew_deadline < options.leader_elect_lease_duration)
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match webhooks.self_managed.validate() {
        Ok(()) => assert!(!webhooks.self_managed.webhook_cert_interval.is_zero()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Err(error) = webhooks
        .tls
        .server_config(Arc::new(ResolvesServerCertUsingSni::new()))
    {
        assert!(!error.to_string().is_empty());
    }
    assert!((1..=1000).contains(&options.concurrency));
}

fn check_duration(text: &str) {
    let read = parse_duration(text);
    assert_eq!(read.as_ref().ok().copied(), sum(text), "{text:?}");
    match read {
        Ok(read) => assert_eq!(
            parse_duration(&format!("{}s{}ms", read.as_secs(), read.subsec_millis())),
            Ok(read)
        ),
        Err(error) => assert!(error.contains("is not a duration")),
    }
}

/// Computes the sum of the parts of a duration.
fn sum(text: &str) -> Option<Duration> {
    let mut milliseconds = 0_u128;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let digits = rest
            .iter()
            .take_while(|letter| letter.is_ascii_digit())
            .count();
        let (number, tail) = rest.split_at(digits);
        let units = tail
            .iter()
            .take_while(|letter| !letter.is_ascii_digit())
            .count();
        let (unit, tail) = tail.split_at(units);
        let each: u128 = match unit {
            b"ms" => 1,
            b"s" => 1000,
            b"m" => 60_000,
            b"h" => 3_600_000,
            _ => return None,
        };
        let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let seconds_fit = each == 1 || u128::from(number) * (each / 1000) <= u128::from(u64::MAX);
        milliseconds = milliseconds
            .checked_add(u128::from(number) * each)
            .filter(|_| seconds_fit)?;
        rest = tail;
    }
    let seconds = u64::try_from(milliseconds / 1000).ok()?;
    let millis = u32::try_from(milliseconds % 1000).ok()?;
    (!text.is_empty()).then(|| Duration::new(seconds, millis * 1_000_000))
}
