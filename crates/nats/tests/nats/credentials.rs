//! Users with a file `user.creds`: a JWT that an account has signed, and the seed of a key.

use std::time::{SystemTime, UNIX_EPOCH};

use capi_ipam_nats::{ConnectionError, Credentials, Settings};
use capi_ipam_testing::nats::{Node, Options};
use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::start::refused;
use crate::support::{chain, connect, create, open, settings, single};

/// A JWT of `issuer` about `subject`.
fn jwt(issuer: &KeyPair, subject: &KeyPair, lifetime: i64, claims: &Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("the clock is right").as_secs();
    let expires = now.checked_add_signed(lifetime).expect("it is a time");
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let body = json!({
        "jti": subject.public_key(),
        "iat": now.saturating_sub(3600),
        "exp": expires,
        "iss": issuer.public_key(),
        "sub": subject.public_key(),
        "name": "test",
        "nats": claims,
    });
    let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", encode(&header), encode(&body));
    let signature = issuer.sign(signed.as_bytes()).expect("it is a private key");
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

/// An operator with two accounts, and the configuration of a server.
struct Operator {
    account: KeyPair,
    configuration: String,
}

impl Operator {
    fn new() -> Self {
        let operator = KeyPair::new_operator();
        let [account, system] = [KeyPair::new_account(), KeyPair::new_account()];
        let unlimited = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1,
            "leaf": -1, "wildcards": true, "mem_storage": -1, "disk_storage": -1, "streams": -1,
            "consumer": -1,
        });
        let without_storage = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1,
            "leaf": -1, "wildcards": true,
        });
        let of_account = |pair: &KeyPair, limits: Value| {
            let claims = json!({ "type": "account", "version": 2, "limits": limits });
            jwt(&operator, pair, 3600, &claims)
        };
        let claims = json!({
            "type": "operator", "version": 2, "system_account": system.public_key(),
        });
        let configuration = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\n\
             resolver_preload: {{\n {}: {}\n {}: {}\n}}",
            jwt(&operator, &operator, 3600, &claims),
            system.public_key(),
            account.public_key(),
            of_account(&account, unlimited),
            system.public_key(),
            of_account(&system, without_storage),
        );
        Self {
            account,
            configuration,
        }
    }

    /// The file of a user of the account, whose JWT has this lifetime in seconds.
    fn user(&self, lifetime: i64) -> String {
        let user = KeyPair::new_user();
        let claims = json!({
            "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
        });
        format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            jwt(&self.account, &user, lifetime, &claims),
            user.seed().expect("it is a private key"),
        )
    }
}

fn settings_of(node: &Node, file: String) -> Settings {
    Settings {
        credentials: Credentials::File(file),
        ..settings(vec![node.url()])
    }
}

#[tokio::test]
async fn file_of_a_user_opens_the_connection() {
    let operator = Operator::new();
    let node = Node::start(Options {
        configuration: operator.configuration.clone(),
        ..Options::default()
    });
    let connection = connect(&settings_of(&node, operator.user(3600))).await;
    create(&open(&connection, &single()).await, "a", 1).await;
    // An expired one, and one of another operator.
    for file in [operator.user(-60), Operator::new().user(3600)] {
        let error = refused(&settings_of(&node, file)).await;
        let is_named = matches!(error, ConnectionError::Credentials { .. });
        assert!(is_named, "{}", chain(&error));
    }
}

#[tokio::test]
async fn other_text_is_no_file_of_a_user() {
    let mut settings = settings(vec!["nats://localhost:1".to_owned()]);
    settings.credentials = Credentials::File("secret".to_owned());
    let error = refused(&settings).await;
    let is_named = matches!(error, ConnectionError::CredentialsFile { .. });
    assert!(is_named, "{}", chain(&error));
    assert!(!chain(&error).contains("secret"), "{}", chain(&error));
}
