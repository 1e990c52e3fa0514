use ipnet::IpNet;
use proptest::prelude::*;

use super::*;

/// Any address except IPv4-mapped ones.
fn addresses() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>().prop_map(|address| address.to_canonical())
}

/// Any valid entry: neither end is an IPv4-mapped address.
fn entries() -> impl Strategy<Value = Entry> {
    let range = (addresses(), addresses()).prop_filter_map("mixed families", |(a, b)| {
        let family = Family::of(a);
        let span = Span::new(Family::to_number(a.min(b)), Family::to_number(a.max(b)))?;
        (family == Family::of(b)).then_some(Entry { family, span })
    });
    let network =
        (addresses(), 0..=128_u8).prop_filter_map("no such prefix length", |(address, length)| {
            let span = Span::from(IpNet::new(address, length).ok()?);
            Some(Entry {
                family: Family::of(address),
                span,
            })
        });
    prop_oneof![range, network, addresses().prop_map(Entry::from)]
}

/// Texts that are nearly valid, or valid by chance.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9a-fA-F:./%+ -]{0,90}",
        "(0|00|1|01|10|255|256|[0-9]{1,4})(\\.(0|00|1|01|10|255|256)){2,4}(/[0-9]{1,3})?",
        "::(ffff|FFFF|0|abcd):(0|00|1|01|10|255|256)(\\.(0|1|01|10|255|256)){3}(/[0-9]{1,3})?",
        "[0-9a-f]{0,5}(::?[0-9a-f]{0,5}){1,8}(/[0-9]{1,3})?",
        "10\\.0\\.0\\.[0-9]{1,3}-10\\.0\\.[0-9]{1,3}\\.[0-9]{1,3}",
        "fd00::[0-9a-f]{1,4}-fd00::([0-9a-f]{1,4}:)?[0-9a-f]{1,4}",
    ]
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

#[test]
fn entries_are_displayed_in_canonical_form() {
    let cases = [
        ("10.0.0.1", "10.0.0.1", 1),
        ("10.0.0.0/24", "10.0.0.0/24", 256),
        ("10.0.0.5/24", "10.0.0.0/24", 256),
        ("10.0.0.5/32", "10.0.0.5", 1),
        ("10.0.0.5/31", "10.0.0.4/31", 2),
        ("0.0.0.0/0", "0.0.0.0/0", 1 << 32),
        ("255.255.255.255/0", "0.0.0.0/0", 1 << 32),
        ("0.0.0.0-255.255.255.255", "0.0.0.0/0", 1 << 32),
        ("10.0.0.1-10.0.0.9", "10.0.0.1-10.0.0.9", 9),
        ("10.0.0.1-10.0.0.1", "10.0.0.1", 1),
        ("10.0.0.0-10.0.0.255", "10.0.0.0/24", 256),
        ("10.0.0.1-10.0.1.0", "10.0.0.1-10.0.1.0", 256),
        ("10.0.0.128-10.0.1.127", "10.0.0.128-10.0.1.127", 256),
        ("0.0.0.0", "0.0.0.0", 1),
        ("FD00:0:0::00A", "fd00::a", 1),
        ("2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1", 1),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1", 1),
        ("::", "::", 1),
        ("::/0", "::/0", u128::MAX),
        (
            "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::/0",
            u128::MAX,
        ),
        ("fd00::1/64", "fd00::/64", 1 << 64),
        ("fd00::1/128", "fd00::1", 1),
        ("fd00::1-fd00::ff", "fd00::1-fd00::ff", 255),
        ("::10.0.0.1", "::a00:1", 1),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1", 1),
        (
            "::fffe:ffff:ffff-::1:0:0:0",
            "::fffe:ffff:ffff-::1:0:0:0",
            (1 << 32) + 2,
        ),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127",
            2,
        ),
    ];
    for (text, canonical, len) in cases {
        let entry = parse_entry(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(entry.to_string(), canonical, "{text}");
        assert_eq!(entry.span.len(), len, "{text}");
        assert_eq!(parse_entry(canonical), Ok(entry), "{text}");
    }
}

fn assert_messages(cases: &[(&str, &str)]) {
    for (text, message) in cases {
        let error = parse_entry(text).expect_err(text);
        assert_eq!(error.to_string(), *message);
    }
}

#[test]
fn errors_name_the_text_and_the_problem() {
    let cases = [
        ("", "the text \"\" is empty; write an IPv4 or IPv6 address"),
        ("foo", "\"foo\" is not an IPv4 or IPv6 address"),
        (" 10.0.0.1", "\" 10.0.0.1\" contains whitespace; remove it"),
        (
            "10.0.0.1\n",
            "\"10.0.0.1\\n\" contains whitespace; remove it",
        ),
        (
            "10.0.0.1 - 10.0.0.9",
            "\"10.0.0.1 - 10.0.0.9\" contains whitespace; remove it",
        ),
        (
            "10.0.0.1\u{a0}",
            "\"10.0.0.1\\u{a0}\" contains whitespace; remove it",
        ),
        (
            "10.0.0.1\u{200b}",
            "\"10.0.0.1\\u{200b}\" is not an IPv4 or IPv6 address",
        ),
        (
            "10.0.0.1\0",
            "\"10.0.0.1\\0\" is not an IPv4 or IPv6 address",
        ),
        (
            "fe80::1%eth0",
            "\"fe80::1%eth0\" contains \"%\"; an address with a zone cannot be in a pool",
        ),
        ("+10.0.0.1", "\"+10.0.0.1\" is not an IPv4 or IPv6 address"),
        ("10.0.0", "\"10.0.0\" is not an IPv4 or IPv6 address"),
        (
            "10.0.0.256",
            "\"10.0.0.256\" is not an IPv4 or IPv6 address",
        ),
        ("1.2.3.4.5", "\"1.2.3.4.5\" is not an IPv4 or IPv6 address"),
        ("1.2..4", "\"1.2..4\" is not an IPv4 or IPv6 address"),
        ("[::1]", "\"[::1]\" is not an IPv4 or IPv6 address"),
        ("1::2::3", "\"1::2::3\" is not an IPv4 or IPv6 address"),
        ("::12345", "\"::12345\" is not an IPv4 or IPv6 address"),
        (
            "1:2:3:4:5:6:7",
            "\"1:2:3:4:5:6:7\" is not an IPv4 or IPv6 address",
        ),
        ("١٠.٠.٠.١", "\"١٠.٠.٠.١\" is not an IPv4 or IPv6 address"),
    ];
    assert_messages(&cases);
}

#[test]
fn errors_name_invalid_ranges_and_notations() {
    let cases = [
        (
            "10.0.0.1-",
            "\"\" in \"10.0.0.1-\" is not an IPv4 or IPv6 address",
        ),
        ("-", "\"\" in \"-\" is not an IPv4 or IPv6 address"),
        (
            "10.0.0.1-9",
            "\"9\" in \"10.0.0.1-9\" is not an IPv4 or IPv6 address",
        ),
        (
            "10.0.0.0/24-10.0.1.0/24",
            "\"10.0.0.0/24\" in \"10.0.0.0/24-10.0.1.0/24\" is not an IPv4 or IPv6 address",
        ),
        (
            "10.0.0.1-10.0.0.2-10.0.0.3",
            "\"10.0.0.2-10.0.0.3\" in \"10.0.0.1-10.0.0.2-10.0.0.3\" is not an IPv4 or IPv6 address",
        ),
        (
            "010.0.0.1",
            "\"010.0.0.1\" has an IPv4 address with a leading zero; remove the zero",
        ),
        (
            "10.0.0.1-10.0.0.09",
            "\"10.0.0.1-10.0.0.09\" has an IPv4 address with a leading zero; remove the zero",
        ),
        (
            "::10.0.00.1",
            "\"::10.0.00.1\" has an IPv4 address with a leading zero; remove the zero",
        ),
        (
            "::ffff:10.0.0.1",
            "\"::ffff:10.0.0.1\" has an IPv4-mapped IPv6 address; write the IPv4 address 10.0.0.1 instead",
        ),
        (
            "0:0:0:0:0:FFFF:a00:1/128",
            "\"0:0:0:0:0:FFFF:a00:1/128\" has an IPv4-mapped IPv6 address; write the IPv4 address 10.0.0.1 instead",
        ),
        (
            "::-::ffff:0:9",
            "\"::-::ffff:0:9\" has an IPv4-mapped IPv6 address; write the IPv4 address 0.0.0.9 instead",
        ),
        (
            "10.0.0.0/33",
            "the prefix length of \"10.0.0.0/33\" is greater than the 32 of IPv4",
        ),
        (
            "::/129",
            "the prefix length of \"::/129\" is greater than the 128 of IPv6",
        ),
        (
            "::/999999",
            "the prefix length of \"::/999999\" is greater than the 128 of IPv6",
        ),
        (
            "10.0.0.9-10.0.0.1",
            "the range \"10.0.0.9-10.0.0.1\" ends before it begins; write the lower address first",
        ),
        (
            "10.0.0.1-fd00::1",
            "the range \"10.0.0.1-fd00::1\" mixes IPv4 and IPv6",
        ),
        (
            "::1-10.0.0.1",
            "the range \"::1-10.0.0.1\" mixes IPv4 and IPv6",
        ),
    ];
    assert_messages(&cases);
}

#[test]
fn prefix_length_is_a_plain_number() {
    for length in [
        "",
        "024",
        "00",
        "+8",
        "-8",
        "8.",
        "0x8",
        "1/2",
        "255.0.0.0",
        "٨",
    ] {
        let text = format!("10.0.0.0/{length}");
        let error = parse_entry(&text).expect_err(&text).to_string();
        if length == "-8" {
            let part = "\"10.0.0.0/\" in \"10.0.0.0/-8\"";
            assert_eq!(error, format!("{part} is not an IPv4 or IPv6 address"));
        } else {
            let what = "is not a decimal number without a sign or leading zeros";
            assert_eq!(error, format!("the prefix length of {text:?} {what}"));
        }
    }
}

#[test]
fn long_text_is_rejected_and_truncated() {
    let longest = format!("{0}-{0}", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    assert_eq!(longest.len(), MAX_ENTRY_LENGTH);
    assert!(parse_entry(&longest).is_ok());
    assert!(matches!(
        parse_entry(&format!("{longest}0")),
        Err(ParseError::TooLong { text }) if text == format!("{longest}…")
    ));
    let error = parse_address(&"€".repeat(1_000_000)).expect_err("too long");
    let start = "€".repeat(MAX_ENTRY_LENGTH);
    assert_eq!(
        error.to_string(),
        format!("\"{start}…\" is longer than 79 characters")
    );
    // The limit counts characters, not bytes.
    assert!(matches!(
        parse_address(&start),
        Err(ParseError::NotAnAddress { .. })
    ));
}

#[test]
fn network_or_range_is_not_an_address() {
    assert_eq!(parse_address("10.0.0.1"), Ok(IpAddr::from([10, 0, 0, 1])));
    assert_eq!(
        parse_address("::1").map(|address| address.to_string()),
        Ok("::1".to_owned())
    );
    for text in ["10.0.0.0/24", "10.0.0.1-10.0.0.2", "10.0.0.1/32"] {
        let error = parse_address(text).expect_err(text).to_string();
        assert_eq!(error, format!("{text:?} is not an IPv4 or IPv6 address"));
    }
    assert_eq!(parse_address(""), Err(ParseError::Empty));
    assert!(matches!(
        parse_address("::ffff:1.2.3.4"),
        Err(ParseError::Mapped { .. })
    ));
    assert!(matches!(
        parse_address("1.2.3.04"),
        Err(ParseError::LeadingZero { .. })
    ));
    assert!(matches!(
        parse_address("fe80::1%1"),
        Err(ParseError::Zone { .. })
    ));
}

#[test]
fn address_with_the_length_of_its_subnet_is_the_address() {
    let parsed = |text, is_prefix| match parse_block(text, is_prefix) {
        Ok(block) => block.to_string(),
        Err(error) => error.to_string(),
    };
    for (text, expected) in [
        ("10.0.0.20", "10.0.0.20"),
        ("10.0.0.20/32", "10.0.0.20"),
        ("10.0.0.20/24", "10.0.0.20"),
        ("10.0.0.0/24", "10.0.0.0/24"),
        ("fd00::1/64", "fd00::1"),
        ("fd00::/64", "fd00::/64"),
    ] {
        assert_eq!(parsed(text, false), expected, "{text}");
    }
    assert_eq!(parsed("fd00::/64", true), "fd00::/64");
    assert_eq!(
        parsed("fd00::1/64", true),
        "\"fd00::1/64\" has host bits; write fd00::1 for the address, or fd00::/64 for the prefix"
    );
    for wrong in [
        "",
        "10.0.0.20/33",
        "10.0.0.20/+4",
        "10.0.0.20-10.0.0.30",
        "10.0.0.20/24/5",
    ] {
        assert!(parse_block(wrong, false).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn displayed_entries_parse_to_the_same_entry(entry in entries()) {
        prop_assert_eq!(parse_entry(&entry.to_string()), Ok(entry));
    }

    #[test]
    fn parsed_texts_have_one_canonical_form(text in texts()) {
        match parse_entry(&text) {
            Ok(entry) => prop_assert_eq!(parse_entry(&entry.to_string()), Ok(entry)),
            Err(error) => prop_assert!(error.to_string().len() < 2_000),
        }
    }

    #[test]
    fn addresses_agree_with_the_standard_library(text in texts()) {
        let standard = text.parse::<IpAddr>().ok().filter(|address| !is_mapped(*address));
        prop_assert_eq!(parse_address(&text).ok(), standard);
        if let Some(address) = standard {
            prop_assert_eq!(parse_entry(&text), Ok(Entry::from(address)));
        }
    }

    #[test]
    fn networks_agree_with_ipnet(text in texts()) {
        let theirs = text.parse::<IpNet>().ok().filter(|network| !is_mapped(network.addr()));
        let ours = parse_entry(&text).ok();
        if text.contains('/') && let Some(entry) = ours {
            let network = theirs.expect("ipnet parses every network that this module does");
            prop_assert_eq!(Family::of(network.addr()), entry.family);
            prop_assert_eq!(Span::from(network), entry.span);
        }
        // ipnet also accepts `/024` and `::10.0.0.01`.
        let is_strict = text.split_once('/').is_some_and(|(address, length)| {
            address.parse::<IpAddr>().is_ok() && is_plain_decimal(length)
        });
        if let Some(network) = theirs
            && is_strict
        {
            prop_assert_eq!(ours.map(|entry| entry.span), Some(Span::from(network)));
        }
    }

    #[test]
    fn networks_are_displayed_like_in_ipnet(address in addresses(), length in 0..=128_u8) {
        if let Ok(network) = IpNet::new(address, length) && length < network.max_prefix_len() {
            let entry = parse_entry(&format!("{address}/{length}")).expect("a network");
            prop_assert_eq!(entry.to_string(), network.trunc().to_string());
        }
    }
}

#[test]
fn lenient_parser_accepts_zones_and_mapped_addresses() {
    let read = |text: &str| parse_lenient(text).map(|address| address.to_string());
    assert_eq!(read("::ffff:10.0.0.5").as_deref(), Some("10.0.0.5"));
    assert_eq!(read("fe80::1%eth0").as_deref(), Some("fe80::1"));
    assert_eq!(read("10.0.0.5").as_deref(), Some("10.0.0.5"));
    assert_eq!((read("10.0.0.0/24"), read("")), (None, None));
}
