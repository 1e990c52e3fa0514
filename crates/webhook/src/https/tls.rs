//! The flags for TLS, with the names and values of Go's flags, and their meaning for rustls.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use rustls::crypto::ring;
use rustls::server::ResolvesServerCert;
use rustls::{ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};
use tracing::warn;

/// The flags for servers with TLS.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct TlsOptions {
    /// Minimum TLS version. VersionTLS10 and VersionTLS11 mean VersionTLS12.
    #[arg(long, value_enum, value_name = "VERSION", default_value_t = TlsVersion::Tls12)]
    pub tls_min_version: TlsVersion,

    /// Cipher suites for TLS 1.2, separated by commas; by default all secure ones. Those of TLS 1.3
    /// are always enabled.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,
}

/// A TLS version, named as in Go's flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.0, which is not supported.
    #[value(name = "VersionTLS10")]
    Tls10,
    /// TLS 1.1, which is not supported.
    #[value(name = "VersionTLS11")]
    Tls11,
    /// TLS 1.2. An empty value of the flag means the default, as in Go.
    #[default]
    #[value(name = "VersionTLS12", alias = "")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}

/// Why the flags for TLS are invalid.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The cipher suite is unknown or insecure.
    #[error(
        "--tls-cipher-suites: {name:?} is not supported; supported are: {}",
        supported.join(", ")
    )]
    CipherSuite {
        /// The name of the flag's value.
        name: String,
        /// The supported cipher suites for TLS 1.2.
        supported: Vec<&'static str>,
    },
    /// The flags contradict each other.
    #[error("--tls-min-version and --tls-cipher-suites contradict each other")]
    Unusable(#[source] rustls::Error),
}

impl TlsOptions {
    /// Creates the configuration of a server that uses the certificate of `certificates`.
    pub fn server_config(
        &self,
        certificates: Arc<dyn ResolvesServerCert>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let versions: &[&SupportedProtocolVersion] = match self.tls_min_version {
            TlsVersion::Tls13 => &[&version::TLS13],
            TlsVersion::Tls12 => &[&version::TLS13, &version::TLS12],
            TlsVersion::Tls10 | TlsVersion::Tls11 => {
                warn!(
                    "TLS 1.0 and 1.1 are not supported (--tls-min-version); the minimum version is 1.2"
                );
                &[&version::TLS13, &version::TLS12]
            }
        };
        let mut provider = ring::default_provider();
        provider.cipher_suites = self.cipher_suites(&provider.cipher_suites)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .map_err(TlsError::Unusable)?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The cipher suites of the flag, in the order of preference of rustls; Go ignores the order of
    /// the flag too.
    fn cipher_suites(
        &self,
        all: &[SupportedCipherSuite],
    ) -> Result<Vec<SupportedCipherSuite>, TlsError> {
        let names = self
            .tls_cipher_suites
            .iter()
            .map(|name| name.trim())
            .filter(|name| !name.is_empty());
        let mut chosen = Vec::new();
        for name in names {
            let name = long_name(name);
            if !all.iter().any(|suite| suite_name(suite) == name) {
                let supported = all
                    .iter()
                    .filter(|suite| suite.tls13().is_none())
                    .map(suite_name)
                    .collect();
                return Err(TlsError::CipherSuite {
                    name: name.to_owned(),
                    supported,
                });
            }
            chosen.push(name);
        }
        if chosen.is_empty() {
            return Ok(all.to_vec());
        }
        let is_enabled = |suite: &&SupportedCipherSuite| {
            suite.tls13().is_some() || chosen.contains(&suite_name(suite))
        };
        Ok(all.iter().filter(is_enabled).copied().collect())
    }
}

/// The IANA name of a cipher suite, which Go uses too. rustls has other names for TLS 1.3.
fn suite_name(suite: &SupportedCipherSuite) -> &'static str {
    match suite.suite().as_str() {
        Some("TLS13_AES_128_GCM_SHA256") => "TLS_AES_128_GCM_SHA256",
        Some("TLS13_AES_256_GCM_SHA384") => "TLS_AES_256_GCM_SHA384",
        Some("TLS13_CHACHA20_POLY1305_SHA256") => "TLS_CHACHA20_POLY1305_SHA256",
        name => name.unwrap_or_default(),
    }
}

/// Replaces Go's short names, which two cipher suites have.
fn long_name(name: &str) -> &str {
    match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(names: &[&str]) -> Result<Vec<&'static str>, TlsError> {
        let tls_cipher_suites = names.iter().map(|name| (*name).to_owned()).collect();
        let options = TlsOptions {
            tls_cipher_suites,
            ..TlsOptions::default()
        };
        let suites = options.cipher_suites(&ring::default_provider().cipher_suites)?;
        Ok(suites.iter().map(suite_name).collect())
    }

    #[test]
    fn all_suites_by_default() {
        assert_eq!(chosen(&[]).unwrap().len(), 9);
        assert_eq!(chosen(&["", " "]).unwrap().len(), 9);
    }

    #[test]
    fn flag_selects_suites_of_tls_1_2_only() {
        let found = chosen(&[
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_AES_128_GCM_SHA256",
        ])
        .unwrap();
        assert_eq!(
            found,
            [
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ]
        );
    }

    #[test]
    fn error_of_an_unknown_suite_lists_the_supported() {
        for name in ["TLS_RSA_WITH_AES_128_CBC_SHA", "x"] {
            let text = chosen(&["TLS_AES_128_GCM_SHA256", name])
                .unwrap_err()
                .to_string();
            let expected = format!(
                "--tls-cipher-suites: {name:?} is not supported; supported are: TLS_ECDHE_"
            );
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}
