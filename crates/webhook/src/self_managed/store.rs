//! The Secret, which all replicas share.

use std::collections::BTreeMap;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::patch;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::{Api, Client};

use super::secret::Contents;

const KIND: &str = "kubernetes.io/tls";
const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Reads and writes the Secret.
pub(super) struct Store {
    calls: ResourceClient<Secret>,
    name: String,
}

/// The Secret as it was read. Nothing prints it: there are keys in it.
pub(super) struct Stored(Option<Secret>);

impl Store {
    /// A Secret that need not be there.
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { calls: ResourceClient::new(Api::namespaced(client, namespace), &()), name: name.to_owned() }
    }

    /// What the Secret is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The Secret as it is now.
    pub(super) async fn read(&self) -> Result<Stored, CallError> {
        self.calls.get(&self.name).await.map(Stored)
    }

    /// Writes the Secret if it is still what was read. Keys of others in it stay.
    pub(super) async fn write(&self, stored: &Stored, contents: &Contents) -> Result<(), CallError> {
        let Some(before) = &stored.0 else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let data = Some(with(BTreeMap::new(), contents));
            let secret = Secret { metadata, data, type_: Some(KIND.to_owned()), ..Secret::default() };
            return self.calls.create(&secret).await.map(drop);
        };
        let data = with(before.data.clone().unwrap_or_default(), contents);
        patch::write(&self.calls, before, &Secret { data: Some(data), ..before.clone() }).await.map(drop)
    }
}

impl Stored {
    /// What is in it; nothing, when there is no Secret.
    pub(super) fn contents(&self) -> Contents {
        let data = self.0.as_ref().and_then(|secret| secret.data.as_ref());
        let value = |key| data.and_then(|data| data.get(key)).map(|value| value.0.clone()).unwrap_or_default();
        Contents {
            authorities: value(AUTHORITIES),
            authority_key: value(AUTHORITY_KEY),
            certificate: value(CERTIFICATE),
            key: value(KEY),
        }
    }
}

fn with(mut data: BTreeMap<String, ByteString>, contents: &Contents) -> BTreeMap<String, ByteString> {
    let Contents { authorities, authority_key, certificate, key } = contents.clone();
    let values = [(AUTHORITIES, authorities), (AUTHORITY_KEY, authority_key), (CERTIFICATE, certificate), (KEY, key)];
    data.extend(values.map(|(key, value)| (key.to_owned(), ByteString(value))));
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_found_again_and_what_others_keep_there_stays() {
        let value = |text: &str| text.as_bytes().to_vec();
        let contents =
            Contents { authorities: value("a"), authority_key: value("b"), certificate: value("c"), key: value("d") };
        let others = BTreeMap::from([("other".to_owned(), ByteString(value("e")))]);
        let data = with(others, &contents);
        assert_eq!(data.get("other"), Some(&ByteString(value("e"))));
        let stored = Stored(Some(Secret { data: Some(data), ..Secret::default() }));
        assert!(stored.contents() == contents);
        assert!(Stored(None).contents() == Contents::default());
    }
}
