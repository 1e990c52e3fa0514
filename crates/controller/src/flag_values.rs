//! The values of flags, in the formats that Go's flags accept: a program in Go can be replaced
//! without a change of its arguments.

use std::path::PathBuf;
use std::time::Duration;

/// Units of a duration, with their length in nanoseconds. The two signs for "micro" are different
/// characters.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The longest duration of Go in nanoseconds, about 292 years.
const MAX_NANOS: u128 = i64::MAX as u128;

/// Decimal places of a number that have an effect: an hour has fewer nanoseconds.
const MAX_DECIMALS: usize = 13;
const SCALE: u128 = 10_u128.pow(13);

/// Parses a duration in the format of Go's flags: `15s`, `1m30s`, `1.5h`, `500ms`, `0`. A negative
/// one is refused.
///
/// # Errors
/// If the text is no duration, or the duration is negative or longer than 292 years.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let invalid =
        || format!("{text:?} is not a duration; use for example 15s, 1m30s, 1.5h or 500ms");
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    let nanos = parse_nanos(unsigned).ok_or_else(invalid)?;
    if is_negative && nanos > 0 {
        return Err(format!("{text} must not be negative"));
    }
    Ok(Duration::from_nanos(
        u64::try_from(nanos).map_err(|_| invalid())?,
    ))
}

/// Like [`parse_duration`], for an interval: 0 is refused.
///
/// # Errors
/// If the text is no duration, or the duration is not longer than 0.
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval.is_zero() {
        Err(format!("{text} must be longer than 0"))
    } else {
        Ok(interval)
    }
}

/// Adds up the numbers of a duration, each with its unit.
fn parse_nanos(text: &str) -> Option<u128> {
    let mut rest = text;
    let mut total: u128 = 0;
    loop {
        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let (number, tail) = split_where(rest, |letter| !is_number(letter))?;
        let (unit, tail) = split_where(tail, is_number)?;
        let (_, length) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(nanos_of(number, length)?)?;
        if total > MAX_NANOS {
            return None;
        }
        if tail.is_empty() {
            return Some(total);
        }
        rest = tail;
    }
}

/// Splits before the first character that meets a condition; without one, at the end. `None` if the
/// first part is empty.
fn split_where(text: &str, is_end: impl Fn(char) -> bool) -> Option<(&str, &str)> {
    let end = text.find(is_end).unwrap_or(text.len());
    text.split_at_checked(end)
        .filter(|(first, _)| !first.is_empty())
}

/// A decimal number of units in nanoseconds. The part before or after the point can be missing, but
/// not both.
fn nanos_of(number: &str, unit: u128) -> Option<u128> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if number == "." || decimals.contains('.') {
        return None;
    }
    let whole: u128 = format!("0{whole}").parse().ok()?;
    // With as many zeros at its end as it has too few places.
    let fraction = format!("{decimals:0<MAX_DECIMALS$.MAX_DECIMALS$}");
    let fraction = unit.checked_mul(fraction.parse().ok()?)? / SCALE;
    whole.checked_mul(unit)?.checked_add(fraction)
}

/// Parses the value of a switch as Go's flags do: `true`, `t`, `1`, `false`, `f`, `0`, in the
/// spellings of Go.
///
/// # Errors
/// If the text is none of them.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// Parses a port as Go's flags do: decimal, or with the prefix `0x`, `0o` or `0b`.
///
/// # Errors
/// If the text is no number from 0 to 65535.
pub fn parse_port(text: &str) -> Result<u16, String> {
    let lower = text.to_ascii_lowercase();
    let radixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = radixes
        .iter()
        .find_map(|(prefix, radix)| Some((lower.strip_prefix(prefix)?, *radix)));
    let (digits, radix) = prefixed.unwrap_or((text, 10));
    // The parser of integers would accept a sign after the prefix.
    let is_number = !digits.starts_with(['+', '-']) || prefixed.is_none();
    let port = u16::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_number);
    port.ok_or_else(|| format!("{text:?} is not a port, a number from 0 to 65535"))
}

/// Parses a path. It can be empty, which means the default.
///
/// # Errors
/// Never.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go() {
        for (text, millis) in [
            ("15s", 15_000),
            ("+15s", 15_000),
            ("1m30s", 90_000),
            ("30s1m", 90_000),
            ("1.5m", 90_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("500ms", 500),
            ("1500us", 1),
            ("0.001s", 1),
            ("1m0.5s", 60_500),
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("87600h", 315_360_000_000),
        ] {
            assert_eq!(
                parse_duration(text).map(|duration| duration.as_millis()),
                Ok(millis),
                "{text}"
            );
        }
        for (text, nanos) in [
            ("1ns", 1),
            ("2us", 2_000),
            ("2\u{b5}s", 2_000),
            ("2\u{3bc}s", 2_000),
            ("0.1234567891234s", 123_456_789),
            ("0.100000000000000000000h", 360_000_000_000),
            ("2562047h47m16.854775807s", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn other_durations_are_refused() {
        for text in [
            "",
            "15",
            "s",
            ".s",
            ".",
            "-",
            "+",
            "1x",
            "1 s",
            " 1s",
            "1s ",
            "1..5s",
            "1.5.5s",
            "1e3s",
            "--1s",
            "+-1s",
            "-+1s",
            "00",
            "1d",
            "1S",
            "\u{660}s",
            "99999999999999999999s",
            "18446744073709551615h",
            "2562047h47m16.854775808s",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(
                error.ends_with("is not a duration; use for example 15s, 1m30s, 1.5h or 500ms"),
                "{text}: {error}"
            );
        }
        assert_eq!(
            parse_duration("-1.5s").unwrap_err(),
            "-1.5s must not be negative"
        );
    }

    #[test]
    fn interval_is_longer_than_0() {
        assert_eq!(parse_interval("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_interval("0").unwrap_err(), "0 must be longer than 0");
        assert!(parse_interval("-1s").is_err());
    }

    #[test]
    fn switches_have_the_format_of_go() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Ok(true));
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Ok(false));
        }
        for text in ["", "yes", "tRUE", "2"] {
            assert!(parse_bool(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_have_the_format_of_go() {
        for (text, port) in [
            ("9443", 9443),
            ("0x24e3", 9443),
            ("0X24E3", 9443),
            ("0o22343", 9443),
            ("0b11", 3),
            ("0", 0),
        ] {
            assert_eq!(parse_port(text), Ok(port), "{text}");
        }
        for text in ["", "-1", "65536", "0x", "0x+1", "x", "9443 "] {
            assert!(parse_port(text).is_err(), "{text}");
        }
    }
}
