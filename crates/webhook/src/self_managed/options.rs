//! The flags for certificates that the manager makes itself.

use std::time::Duration;

use capi_ipam_controller::options::duration;
use clap::Args;

/// No certificate lasts longer: 100 years.
const LONGEST: Duration = Duration::from_hours(100 * 8766);

/// A certificate lasts at least so many times as long as it takes until something is looked at again: its last third has
/// to be long enough to make another and to have it trusted.
const LOOKS: u32 = 10;

/// Flags for certificates that the manager makes itself (`--webhook-certs=self-managed`).
#[derive(Args, Clone, Debug)]
pub struct SelfManagedOptions {
    /// Namespace of the Secret with the self-managed certificate, and of the service in front of the webhooks; by
    /// default that of the pod or of the kubeconfig's context.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub webhook_cert_namespace: String,

    /// More names and addresses by which the webhooks are reached, separated by commas; beside those of the service.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub webhook_cert_hosts: Vec<String>,

    /// How long a self-managed certificate is valid. It is renewed when a third of that is left.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = duration)]
    pub webhook_cert_lifetime: Duration,

    /// How long the authority is valid that signs self-managed certificates. It is renewed when a third of that is left.
    #[arg(long, value_name = "DURATION", default_value = "87600h", value_parser = duration)]
    pub webhook_ca_lifetime: Duration,

    /// How often to look whether Secret, webhook configuration and definitions are as they should be; and how long API
    /// servers get to learn of a new authority.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub webhook_cert_interval: Duration,
}

/// Why the flags do not go together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfManagedOptionsError {
    /// No time between two looks.
    #[error("--webhook-cert-interval must be longer than 0")]
    Interval,
    /// A certificate would end before it is renewed, or cannot say when it ends.
    #[error(
        "{flag} ({lifetime:?}) must be at least {LOOKS} times --webhook-cert-interval ({interval:?}), and at most 100 years"
    )]
    Lifetime {
        /// The flag.
        flag: &'static str,
        /// Its value.
        lifetime: Duration,
        /// The value of the other.
        interval: Duration,
    },
    /// Neither a name nor an address.
    #[error("--webhook-cert-hosts: {0:?} is neither a DNS name nor an IP address")]
    Host(String),
}

impl SelfManagedOptions {
    /// Checks what one flag alone cannot tell.
    pub fn check(&self) -> Result<(), SelfManagedOptionsError> {
        let interval = self.webhook_cert_interval;
        if interval.is_zero() {
            return Err(SelfManagedOptionsError::Interval);
        }
        for (flag, lifetime) in [
            ("--webhook-cert-lifetime", self.webhook_cert_lifetime),
            ("--webhook-ca-lifetime", self.webhook_ca_lifetime),
        ] {
            if lifetime < interval.saturating_mul(LOOKS) || lifetime > LONGEST {
                return Err(SelfManagedOptionsError::Lifetime { flag, lifetime, interval });
            }
        }
        let is_wrong = |host: &&String| rustls::pki_types::ServerName::try_from(host.as_str()).is_err();
        match self.webhook_cert_hosts.iter().find(is_wrong) {
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
        let flags = Flags::try_parse_from(["test"].iter().chain(args)).map_err(|error| error.to_string())?;
        flags.options.check().map_err(|error| error.to_string())
    }

    #[test]
    fn flags_that_cannot_work_are_refused() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["--webhook-cert-hosts=a.example,10.0.0.1", "--webhook-cert-hosts=::1"]), Ok(()));
        assert_eq!(check(&["--webhook-cert-lifetime=10s", "--webhook-cert-interval=1s"]), Ok(()));
        for (args, error) in [
            (&["--webhook-cert-interval=0s"][..], "must be longer than 0"),
            (&["--webhook-cert-lifetime=99s"], "--webhook-cert-lifetime (99s) must be at least 10 times"),
            (&["--webhook-ca-lifetime=9999999h"], "at most 100 years"),
            (&["--webhook-cert-hosts=a.example,no name"], "\"no name\" is neither"),
        ] {
            assert!(check(args).is_err_and(|text| text.contains(error)), "{args:?}");
        }
    }
}
