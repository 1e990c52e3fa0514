//! Certificates for servers and clients of a test.

use std::fs;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

use capi_ipam_testing::nats::TlsFiles;
use capi_ipam_testing::process::TemporaryFolder;

/// Whether a certificate is valid now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    /// It is.
    Valid,
    /// Not any more.
    Expired,
}

/// An authority, the certificate of a server for `localhost`, and that of a client, as PEM.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: TemporaryFolder,
    authority: String,
    client: (String, String),
}

impl Certificates {
    /// Creates them.
    pub(crate) fn new(server: Validity, client: Validity) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("it has no names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key can be generated");
        let authority = CertifiedIssuer::self_signed(parameters, key).expect("it can be signed");
        let usages = [
            (server, ExtendedKeyUsagePurpose::ServerAuth),
            (client, ExtendedKeyUsagePurpose::ClientAuth),
        ];
        let [server, client] = usages.map(|(validity, usage)| sign(&authority, validity, usage));
        let certificates = Self {
            folder: TemporaryFolder::new("capi-ipam-nats-certificates-"),
            authority: authority.pem(),
            client,
        };
        let contents = [&certificates.authority, &server.0, &server.1];
        let files = certificates.server_files();
        let files = [files.authority, files.certificate, files.key];
        for (file, content) in files.iter().zip(contents) {
            fs::write(file, content).expect("a temporary file is writable");
        }
        certificates
    }

    /// The certificate of the authority.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The certificate and the key of the client.
    pub(crate) fn client(&self) -> (String, String) {
        self.client.clone()
    }

    /// The files of a server.
    pub(crate) fn server_files(&self) -> TlsFiles {
        let file = |name| self.folder.path().join(name);
        TlsFiles {
            authority: file("ca.crt"),
            certificate: file("tls.crt"),
            key: file("tls.key"),
        }
    }
}

/// A certificate for `localhost` and its key.
fn sign(
    authority: &CertifiedIssuer<'_, KeyPair>,
    validity: Validity,
    usage: ExtendedKeyUsagePurpose,
) -> (String, String) {
    let mut parameters =
        CertificateParams::new(vec!["localhost".to_owned()]).expect("it is a name");
    parameters.extended_key_usages = vec![usage];
    if validity == Validity::Expired {
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2020, 2, 1);
    }
    let key = KeyPair::generate().expect("a key can be generated");
    let signed = parameters
        .signed_by(&key, authority)
        .expect("it can be signed");
    (signed.pem(), key.serialize_pem())
}
