//! The flags for self-managed certificates.

use std::time::Duration;

use capi_ipam_controller::options::parse_duration;
use clap::Args;

/// Longest lifetime of a certificate: 100 years.
const MAX_LIFETIME: Duration = Duration::from_hours(100 * 8766);

/// Shortest lifetime of a certificate in intervals: the last third has to be long enough to issue
/// another certificate, and for API servers to trust it.
const MIN_INTERVALS: u32 = 10;

/// The flags for self-managed certificates (`--webhook-certs=self-managed`).
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct SelfManagedOptions {
    /// Namespace of the Secret with the self-managed certificate, and of the service in front of
    /// the webhooks; by default that of the pod or of the kubeconfig's context.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub webhook_cert_namespace: String,

    /// Additional DNS names and IP addresses of the webhooks, separated by commas; those of the
    /// service are always included.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub webhook_cert_hosts: Vec<String>,

    /// Lifetime of a self-managed certificate. It is renewed when a third is left.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = parse_duration)]
    pub webhook_cert_lifetime: Duration,

    /// Lifetime of the CA of self-managed certificates. It is renewed when a third is left.
    #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = parse_duration)]
    pub webhook_ca_lifetime: Duration,

    /// Interval at which the Secret and the CA bundles in the webhook configuration and
    /// CustomResourceDefinitions are checked; also the time for API servers to load a new CA
    /// bundle.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub webhook_cert_interval: Duration,
}

/// Why the flags are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfManagedOptionsError {
    /// The interval is zero.
    #[error("--webhook-cert-interval must be longer than 0")]
    Interval,
    /// A lifetime is too short for renewal, or longer than a certificate can express.
    #[error(
        "{flag} ({lifetime:?}) must be at least {MIN_INTERVALS} times --webhook-cert-interval ({interval:?}), and at \
         most 100 years"
    )]
    Lifetime {
        /// Name of the flag.
        flag: &'static str,
        /// Value of the flag.
        lifetime: Duration,
        /// Value of `--webhook-cert-interval`.
        interval: Duration,
    },
    /// The value is neither a DNS name nor an IP address.
    #[error("--webhook-cert-hosts: {0:?} is neither a DNS name nor an IP address")]
    Host(String),
}

impl SelfManagedOptions {
    /// Checks the flags that depend on each other, and the host names.
    pub fn validate(&self) -> Result<(), SelfManagedOptionsError> {
        let interval = self.webhook_cert_interval;
        if interval.is_zero() {
            return Err(SelfManagedOptionsError::Interval);
        }
        for (flag, lifetime) in [
            ("--webhook-cert-lifetime", self.webhook_cert_lifetime),
            ("--webhook-ca-lifetime", self.webhook_ca_lifetime),
        ] {
            if lifetime < interval.saturating_mul(MIN_INTERVALS) || lifetime > MAX_LIFETIME {
                return Err(SelfManagedOptionsError::Lifetime {
                    flag,
                    lifetime,
                    interval,
                });
            }
        }
        let is_invalid =
            |host: &&String| rustls::pki_types::ServerName::try_from(host.as_str()).is_err();
        match self.webhook_cert_hosts.iter().find(is_invalid) {
            Some(host) => Err(SelfManagedOptionsError::Host(host.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        options: SelfManagedOptions,
    }

    fn check(args: &[&str]) -> Result<(), String> {
        let flags = Flags::try_parse_from(["test"].iter().chain(args))
            .map_err(|error| error.to_string())?;
        flags.options.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn invalid_flags_are_rejected() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(
            check(&[
                "--webhook-cert-hosts=a.example,10.0.0.1",
                "--webhook-cert-hosts=::1"
            ]),
            Ok(())
        );
        assert_eq!(
            check(&["--webhook-cert-lifetime=10s", "--webhook-cert-interval=1s"]),
            Ok(())
        );
        for (args, error) in [
            (&["--webhook-cert-interval=0s"][..], "must be longer than 0"),
            (
                &["--webhook-cert-lifetime=99s"],
                "--webhook-cert-lifetime (99s) must be at least 10 times",
            ),
            (&["--webhook-ca-lifetime=999999h"], "at most 100 years"),
            (
                &["--webhook-cert-hosts=a.example,no name"],
                "\"no name\" is neither",
            ),
        ] {
            assert!(
                check(args).is_err_and(|text| text.contains(error)),
                "{args:?}"
            );
        }
    }
}
