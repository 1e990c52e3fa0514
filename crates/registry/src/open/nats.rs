//! What a specification and its Secret say about a connection to NATS.

use capi_ipam_nats::{Credentials, Settings, Tls};
use k8s_openapi::api::core::v1::Secret;

use super::{OpenError, text_of};

/// The settings of the connection to a registry in NATS.
pub(super) fn settings(
    spec: &capi_ipam_api::NatsRegistry,
    secret: Option<&Secret>,
    user_agent: &str,
) -> Result<Settings, OpenError> {
    let invalid = |problem| OpenError::Secret {
        field: "spec.nats.secretName",
        name: spec.secret_name.clone().unwrap_or_default(),
        problem,
    };
    Ok(Settings {
        servers: spec.servers.clone(),
        name: user_agent.to_owned(),
        credentials: credentials(secret).map_err(invalid)?,
        tls: tls(secret).map_err(invalid)?,
        ..Settings::default()
    })
}

/// The credentials: the first of `user.creds`, `token`, and `username` with `password`.
fn credentials(secret: Option<&Secret>) -> Result<Credentials, &'static str> {
    let Some(secret) = secret else {
        return Ok(Credentials::None);
    };
    if let Some(file) = text_of(secret, "user.creds") {
        return Ok(Credentials::File(file));
    }
    if let Some(token) = text_of(secret, "token") {
        return Ok(Credentials::Token(token));
    }
    match (text_of(secret, "username"), text_of(secret, "password")) {
        (Some(user), Some(password)) => Ok(Credentials::Password { user, password }),
        (None, None) => Ok(Credentials::None),
        _ => Err("has only one of the keys username and password; write both"),
    }
}

/// The certificates: `ca.crt`, and `tls.crt` with `tls.key`.
fn tls(secret: Option<&Secret>) -> Result<Option<Tls>, &'static str> {
    let Some(secret) = secret else {
        return Ok(None);
    };
    let identity = match (text_of(secret, "tls.crt"), text_of(secret, "tls.key")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("has only one of the keys tls.crt and tls.key; write both"),
    };
    match (text_of(secret, "ca.crt"), identity) {
        (Some(authorities), identity) => Ok(Some(Tls {
            authorities,
            identity,
        })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err("has no key ca.crt; write the authority that signs the certificates of the servers")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(keys: &[&str]) -> Secret {
        let mut data = BTreeMap::new();
        for key in keys {
            data.insert((*key).to_owned(), ByteString(b"text".to_vec()));
        }
        Secret {
            data: Some(data),
            ..Secret::default()
        }
    }

    #[test]
    fn half_of_a_pair_of_keys_is_a_problem() {
        let spec = capi_ipam_api::NatsRegistry {
            secret_name: Some("nats".to_owned()),
            ..capi_ipam_api::NatsRegistry::default()
        };
        for (keys, expected) in [
            (&["username"][..], "username and password"),
            (&["tls.crt", "ca.crt"], "tls.crt and tls.key"),
            (&["tls.crt", "tls.key"], "ca.crt"),
        ] {
            let error = settings(&spec, Some(&secret(keys)), "test/1").unwrap_err();
            assert!(error.is_of_settings());
            let text = error.to_string();
            let begin = "spec.nats.secretName: Secret nats has ";
            assert!(text.starts_with(begin) && text.contains(expected), "{text}");
        }
        for keys in [&["user.creds"][..], &["token", "ca.crt"], &[]] {
            settings(&spec, Some(&secret(keys)), "test/1").unwrap();
        }
    }
}
