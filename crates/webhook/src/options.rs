//! The flags for webhooks. They have the names of the flags of Cluster API's managers where these
//! exist.

use std::path::{Path, PathBuf};

use capi_ipam_controller::options::{parse_path, parse_port};
use clap::{Args, ValueEnum};

use crate::https::certificate::CertificateFiles;
use crate::https::tls::TlsOptions;
use crate::self_managed::options::SelfManagedOptions;

/// The defaults of the flags of files. As in Go, an empty value means the default.
const CERT_DIR: &str = "/tmp/k8s-webhook-server/serving-certs";
const CERT_NAME: &str = "tls.crt";
const KEY_NAME: &str = "tls.key";

fn path_or<'a>(path: &'a Path, default: &'a str) -> &'a Path {
    if path.as_os_str().is_empty() {
        Path::new(default)
    } else {
        path
    }
}

/// The flags for webhooks.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct WebhookOptions {
    /// Port for webhooks, on all addresses; 0 disables.
    #[arg(long, value_name = "PORT", default_value_t = 9443, value_parser = parse_port)]
    pub webhook_port: u16,

    /// Source of the certificate for webhooks: files in --webhook-cert-dir, or self-managed,
    /// without cert-manager.
    #[arg(long, value_enum, value_name = "SOURCE", default_value_t = WebhookCerts::Files)]
    pub webhook_certs: WebhookCerts,

    /// Directory with the certificate for webhooks and its private key. Changes are reloaded.
    #[arg(long, value_name = "DIRECTORY", default_value = CERT_DIR, value_parser = parse_path)]
    pub webhook_cert_dir: PathBuf,

    /// File with the certificate, in --webhook-cert-dir.
    #[arg(long, value_name = "FILE", default_value = CERT_NAME, value_parser = parse_path)]
    pub webhook_cert_name: PathBuf,

    /// File with the private key, in --webhook-cert-dir.
    #[arg(long, value_name = "FILE", default_value = KEY_NAME, value_parser = parse_path)]
    pub webhook_key_name: PathBuf,

    /// The flags for self-managed certificates.
    #[command(flatten)]
    pub self_managed: SelfManagedOptions,

    /// The flags for TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// The source of the certificate for webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WebhookCerts {
    /// Files, for example a mounted Secret of cert-manager.
    #[default]
    Files,
    /// The manager creates the certificate and writes the CA bundle.
    SelfManaged,
}

impl WebhookOptions {
    /// The paths of the certificate and its key.
    pub(crate) fn files(&self) -> CertificateFiles {
        let directory = path_or(&self.webhook_cert_dir, CERT_DIR);
        CertificateFiles {
            certificate: directory.join(path_or(&self.webhook_cert_name, CERT_NAME)),
            key: directory.join(path_or(&self.webhook_key_name, KEY_NAME)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::https::tls::TlsVersion;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        webhooks: WebhookOptions,
    }

    fn parse(args: &[&str]) -> Result<WebhookOptions, clap::Error> {
        Flags::try_parse_from(["test"].iter().chain(args)).map(|flags| flags.webhooks)
    }

    #[test]
    fn flags_of_cluster_api_managers_are_accepted() {
        let options = parse(&[]).unwrap();
        assert_eq!(
            (options.webhook_port, options.tls.tls_min_version),
            (9443, TlsVersion::Tls12)
        );
        assert!(options.tls.tls_cipher_suites.is_empty());
        assert_eq!(options.webhook_certs, WebhookCerts::Files);
        let key = "/tmp/k8s-webhook-server/serving-certs/tls.key";
        assert_eq!(options.files().key.to_str(), Some(key));
        let options = parse(&[
            "--webhook-cert-dir=",
            "--webhook-cert-name=",
            "--webhook-key-name=",
            "--tls-min-version=",
        ]);
        let options = options.unwrap();
        assert_eq!(
            options.files().key.to_str(),
            Some(key),
            "an empty value is the default"
        );
        assert_eq!(options.tls.tls_min_version, TlsVersion::Tls12);
        assert!(
            parse(&["--tls-cipher-suites="])
                .unwrap()
                .tls
                .tls_cipher_suites
                .iter()
                .all(String::is_empty)
        );

        let options = parse(&[
            "--webhook-port=443",
            "--webhook-cert-dir=/certs",
            "--webhook-cert-name=a.crt",
            "--tls-min-version=VersionTLS13",
            "--tls-cipher-suites=A,B",
        ])
        .unwrap();
        assert_eq!(
            (options.webhook_port, options.tls.tls_min_version),
            (443, TlsVersion::Tls13)
        );
        assert_eq!(options.files().certificate.to_str(), Some("/certs/a.crt"));
        assert_eq!(options.tls.tls_cipher_suites, ["A", "B"]);
        assert!(parse(&["--tls-min-version=VersionTLS10"]).is_ok());
        assert!(parse(&["--tls-min-version=1.2"]).is_err());
        assert!(parse(&["--webhook-port=65536"]).is_err());
        assert_eq!(
            parse(&["--webhook-certs=self-managed"])
                .unwrap()
                .webhook_certs,
            WebhookCerts::SelfManaged
        );
        assert!(parse(&["--webhook-certs=cert-manager"]).is_err());
    }
}
