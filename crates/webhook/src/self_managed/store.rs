//! Reads and writes the Secret, which all replicas share.

use std::collections::BTreeMap;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::patch;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Api, Client};

use super::secret::Contents;

const SECRET_TYPE: &str = "kubernetes.io/tls";
const CA_BUNDLE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// A client for the Secret.
pub(super) struct Store {
    secrets: ResourceClient<Secret>,
    name: String,
}

/// The Secret as it was read. It has no `Debug` implementation, since it contains private keys.
pub(super) struct Stored(Option<Secret>);

impl Store {
    /// The Secret of that name, which may not exist yet.
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            secrets: ResourceClient::new(Api::namespaced(client, namespace), &()),
            name: name.to_owned(),
        }
    }

    /// The name of the Secret.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the Secret.
    pub(super) async fn read(&self) -> Result<Stored, CallError> {
        self.secrets.get(&self.name).await.map(Stored)
    }

    /// Creates or updates the Secret, if it has not changed since it was read. Keeps the keys of
    /// other clients in it.
    pub(super) async fn write(
        &self,
        stored: &Stored,
        contents: &Contents,
    ) -> Result<(), CallError> {
        let Some(before) = &stored.0 else {
            let metadata = ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            };
            let data = Some(with(BTreeMap::new(), contents));
            let secret = Secret {
                metadata,
                data,
                type_: Some(SECRET_TYPE.to_owned()),
                ..Secret::default()
            };
            return self.secrets.create(&secret).await.map(drop);
        };
        let data = with(before.data.clone().unwrap_or_default(), contents);
        patch::write(
            &self.secrets,
            before,
            &Secret {
                data: Some(data),
                ..before.clone()
            },
        )
        .await
        .map(drop)
    }
}

impl Stored {
    /// The contents; empty if the Secret does not exist.
    pub(super) fn contents(&self) -> Contents {
        let data = self.0.as_ref().and_then(|secret| secret.data.as_ref());
        let value = |key| {
            data.and_then(|data| data.get(key))
                .map(|value| value.0.clone())
                .unwrap_or_default()
        };
        Contents {
            ca_bundle: value(CA_BUNDLE),
            ca_key: value(CA_KEY),
            certificate: value(CERTIFICATE),
            key: value(KEY),
        }
    }
}

fn with(
    mut data: BTreeMap<String, ByteString>,
    contents: &Contents,
) -> BTreeMap<String, ByteString> {
    let Contents {
        ca_bundle,
        ca_key,
        certificate,
        key,
    } = contents.clone();
    let values = [
        (CA_BUNDLE, ca_bundle),
        (CA_KEY, ca_key),
        (CERTIFICATE, certificate),
        (KEY, key),
    ];
    data.extend(values.map(|(key, value)| (key.to_owned(), ByteString(value))));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_round_trip_and_other_keys_stay() {
        let value = |text: &str| text.as_bytes().to_vec();
        let contents = Contents {
            ca_bundle: value("a"),
            ca_key: value("b"),
            certificate: value("c"),
            key: value("d"),
        };
        let other_data = BTreeMap::from([("other".to_owned(), ByteString(value("e")))]);
        let data = with(other_data, &contents);
        assert_eq!(data.get("other"), Some(&ByteString(value("e"))));
        let stored = Stored(Some(Secret {
            data: Some(data),
            ..Secret::default()
        }));
        assert!(stored.contents() == contents);
        assert!(Stored(None).contents() == Contents::default());
    }
}
