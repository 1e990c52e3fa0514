//! The flags of a program that connects to NATS.

use std::path::{Path, PathBuf};

use crate::connection::{ConnectionError, Credentials, Settings, Tls};

/// Flags of the servers, the credentials and the certificates, for a `clap::Args` of a program.
///
/// ```
/// #[derive(clap::Args)]
/// struct Flags {
///     #[command(flatten)]
///     nats: capi_ipam_nats::NatsFlags,
/// }
/// ```
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct NatsFlags {
    /// URLs of the NATS servers, separated by commas, such as nats://nats-0.nats:4222.
    #[arg(long, required = true, value_delimiter = ',', value_name = "URL")]
    pub nats_servers: Vec<String>,
    /// File user.creds: a JWT, and the seed of its key.
    #[arg(long, value_name = "FILE")]
    pub nats_credentials_file: Option<PathBuf>,
    /// File ca.crt: the authorities that sign the certificates of the servers. With it the
    /// connection is encrypted in any case.
    #[arg(long, value_name = "FILE")]
    pub nats_ca_file: Option<PathBuf>,
    /// File tls.crt: the certificate of this client.
    #[arg(long, value_name = "FILE", requires_all = ["nats_ca_file", "nats_key_file"])]
    pub nats_certificate_file: Option<PathBuf>,
    /// File tls.key: the key of the certificate of this client.
    #[arg(long, value_name = "FILE", requires = "nats_certificate_file")]
    pub nats_key_file: Option<PathBuf>,
}

impl NatsFlags {
    /// The settings of a connection. `name` is the name of the client, which the servers show.
    ///
    /// Reads the files, and blocks meanwhile. They are not read again when they change.
    ///
    /// # Errors
    /// When a file cannot be read. Its content is checked when the connection is opened.
    pub fn settings(&self, name: &str) -> Result<Settings, ConnectionError> {
        let credentials = read(self.nats_credentials_file.as_deref())?;
        let certificate = read(self.nats_certificate_file.as_deref())?;
        let identity = certificate.zip(read(self.nats_key_file.as_deref())?);
        let authorities = read(self.nats_ca_file.as_deref())?;
        Ok(Settings {
            servers: self.nats_servers.clone(),
            name: name.to_owned(),
            credentials: credentials.map_or(Credentials::None, Credentials::File),
            tls: authorities.map(|authorities| Tls {
                authorities,
                identity,
            }),
            ..Settings::default()
        })
    }
}

fn read(file: Option<&Path>) -> Result<Option<String>, ConnectionError> {
    let Some(path) = file else {
        return Ok(None);
    };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(source) => Err(ConnectionError::File {
            path: path.display().to_string(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        nats: NatsFlags,
    }

    fn flags(arguments: &[&str]) -> Result<NatsFlags, clap::Error> {
        let parsed = Program::try_parse_from([&["test"], arguments].concat());
        parsed.map(|program| program.nats)
    }

    #[test]
    fn servers_are_separated_by_commas() {
        let flags = flags(&["--nats-servers=nats://a:4222,nats://b:4222"]).unwrap();
        let settings = flags.settings("test").unwrap();
        assert_eq!(settings.servers, ["nats://a:4222", "nats://b:4222"]);
        assert!(settings.tls.is_none() && matches!(settings.credentials, Credentials::None));
    }

    #[test]
    fn certificate_key_and_authority_belong_together() {
        let with = |others: &[&str]| flags(&[&["--nats-servers=nats://a"], others].concat());
        assert!(flags(&[]).is_err());
        assert!(with(&["--nats-certificate-file=a", "--nats-key-file=b"]).is_err());
        assert!(with(&["--nats-certificate-file=a", "--nats-ca-file=b"]).is_err());
        assert!(with(&["--nats-key-file=a", "--nats-ca-file=b"]).is_err());
        assert!(with(&["--nats-ca-file=a"]).is_ok());
    }

    #[test]
    fn files_become_settings() {
        let manifest = concat!("--nats-credentials-file=", env!("CARGO_MANIFEST_PATH"));
        let found = flags(&["--nats-servers=nats://a", manifest]).unwrap();
        let settings = found.settings("test").unwrap();
        assert!(matches!(settings.credentials, Credentials::File(text) if text.contains("nats")));
        let missing = flags(&["--nats-servers=nats://a", "--nats-ca-file=/none"]).unwrap();
        let error = missing.settings("test").unwrap_err().to_string();
        assert_eq!(error, "cannot read the file /none");
    }
}
