//! The connection to the servers.

mod denials;
mod problem;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use capi_ipam_controller::retry::RetryPolicy;
use tokio::time::timeout;

pub(crate) use self::denials::Denials;
pub use self::problem::ConnectionError;
pub use self::tls::Tls;
use crate::error::Invalid;
use crate::version;

/// The time between two signs of life of the server that are requested. The connection is given up
/// when two are missing.
const PING_INTERVAL: Duration = Duration::from_secs(2);

/// The number of messages of one subscription that wait to be read. The client library drops those
/// beyond it, so a list of many small keys that is read slowly would start over and over.
const SUBSCRIPTION_CAPACITY: usize = 256 * 1024;

/// The time between two attempts to connect again.
const RECONNECT_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(4),
    max: Duration::from_millis(500),
};

/// How a client proves who it is. The text form of this type contains no secrets.
#[derive(Clone, Default)]
pub enum Credentials {
    /// It does not.
    #[default]
    None,
    /// The content of a file `user.creds`: a JWT and the seed of its key.
    File(String),
    /// A token.
    Token(String),
    /// A user name and a password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::File(_) => "user.creds",
            Self::Token(_) => "token",
            Self::Password { .. } => "user name and password",
        })
    }
}

/// How long operations may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For the connection, however many servers there are. Each of them gets the same part of it,
    /// so those that do not answer leave the time for another one.
    pub connect: Duration,
    /// For the answer to one request. A write without an answer is followed by reads, so it takes
    /// longer.
    pub request: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(5),
        }
    }
}

/// What [`Connection::open`] needs. The text form of this type contains no secrets.
#[derive(Clone, Default)]
pub struct Settings {
    /// The URLs of the servers, such as `nats://nats-0.nats:4222`, without a user name and a
    /// password. Servers that these announce are not used.
    pub servers: Vec<String>,
    /// The name of the client, which the servers show.
    pub name: String,
    /// How the client proves who it is.
    pub credentials: Credentials,
    /// The certificates. With these the connection is encrypted in any case.
    pub tls: Option<Tls>,
    /// How long operations may take.
    pub deadlines: Deadlines,
}

impl Settings {
    /// Settings without credentials and certificates. `servers` are URLs such as
    /// `nats://nats-0.nats:4222`.
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            ..Self::default()
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|url| without_user(url)).collect();
        formatter
            .debug_struct("Settings")
            .field("servers", &servers)
            .field("name", &self.name)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("deadlines", &self.deadlines)
            .finish()
    }
}

/// A connection to one of several servers. Its clones share it. It connects again when it is lost;
/// until then every operation fails at once.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) client: Client,
    pub(crate) deadlines: Deadlines,
    pub(crate) denials: Arc<Denials>,
}

impl Connection {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// When no server accepts the connection within [`Deadlines::connect`]. The text is one line
    /// that names the reason.
    pub async fn open(settings: &Settings) -> Result<Self, ConnectionError> {
        let servers = settings
            .servers
            .iter()
            .map(|server| address(server))
            .collect::<Result<Vec<_>, _>>()?;
        let denials = Arc::new(Denials::default());
        let options = options(settings, &denials)?;
        let names: Vec<_> = servers.iter().map(host_and_port).collect();
        let names = names.join(", ");
        let deadline = settings.deadlines.connect;
        let client = match timeout(deadline, options.connect(servers)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(problem::explain(error, names)),
            Err(_) => {
                return Err(ConnectionError::Timeout {
                    servers: names,
                    after: deadline,
                });
            }
        };
        let connection = Self {
            client,
            deadlines: settings.deadlines,
            denials,
        };
        connection.check_version()?;
        Ok(connection)
    }

    /// Whether there is a connection at the moment.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Checks the version of the server of the moment. After a reconnect it can be another one.
    pub(crate) fn check_version(&self) -> Result<(), Invalid> {
        let server = self.client.server_info();
        if version::is_accepted(&server.version) {
            return Ok(());
        }
        Err(Invalid::Version {
            server: server.server_name,
            found: server.version,
            needed: version::OLDEST,
        })
    }

    /// The name of the server of the moment.
    pub(crate) fn server(&self) -> String {
        self.client.server_info().server_name
    }
}

/// What follows the user name and the password in a URL. Nothing else in the URL of a server
/// contains an `@`, so this holds for a text that is no URL too.
fn without_user(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

/// How messages name a server.
fn host_and_port(server: &ServerAddr) -> String {
    let (host, port) = (server.host(), server.port());
    if host.contains(':') {
        return format!("[{host}]:{port}");
    }
    format!("{host}:{port}")
}

/// The address in a URL. The client library would ignore a user name and a password in it.
fn address(url: &str) -> Result<ServerAddr, ConnectionError> {
    let rest = without_user(url);
    if rest != url {
        return Err(ConnectionError::CredentialsInUrl {
            server: rest.to_owned(),
        });
    }
    url.parse().map_err(|source| ConnectionError::Url {
        url: url.to_owned(),
        source,
    })
}

/// The part of the deadline that one server gets.
fn server_deadline(settings: &Settings) -> Duration {
    let deadline = settings.deadlines.connect;
    let count = u32::try_from(settings.servers.len()).unwrap_or(u32::MAX);
    deadline.checked_div(count).unwrap_or(deadline)
}

/// The options of the client library.
fn options(settings: &Settings, denials: &Arc<Denials>) -> Result<ConnectOptions, ConnectionError> {
    let denials = Arc::clone(denials);
    let on_event = move |event| {
        report(&event, &denials);
        std::future::ready(())
    };
    let mut options = ConnectOptions::new()
        .name(&settings.name)
        .connection_timeout(server_deadline(settings))
        .request_timeout(None)
        .ping_interval(PING_INTERVAL)
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_delay)
        .ignore_discovered_servers()
        .event_callback(on_event);
    options = match settings.credentials.clone() {
        Credentials::None => options,
        Credentials::File(text) => options
            .credentials(&text)
            .map_err(|source| ConnectionError::CredentialsFile { source })?,
        Credentials::Token(token) => options.token(token),
        Credentials::Password { user, password } => options.user_and_password(user, password),
    };
    if let Some(tls) = &settings.tls {
        options = options
            .require_tls(true)
            .tls_client_config(tls.client_config()?);
    }
    Ok(options)
}

/// The time before an attempt to connect: none for the first one, then twice as long each time. A
/// random part keeps the clients of a server that returns from connecting in the same moment.
fn reconnect_delay(attempt: usize) -> Duration {
    match u32::try_from(attempt.saturating_sub(1)) {
        Ok(0) => Duration::ZERO,
        failures => RECONNECT_POLICY.delay(failures.unwrap_or(u32::MAX)),
    }
}

/// Logs an event of the connection, and records denials.
fn report(event: &Event, denials: &Denials) {
    match event {
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("the connection to NATS is lost, reconnecting"),
        Event::ServerError(error) => {
            denials.record(&error.to_string());
            tracing::warn!(%error, "the NATS server reports an error");
        }
        other => tracing::debug!(event = %other, "event of the connection to NATS"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_form_of_settings_contains_no_secret() {
        let settings = Settings {
            credentials: Credentials::Password {
                user: "user".to_owned(),
                password: "hidden".to_owned(),
            },
            tls: Some(Tls {
                identity: Some(("hidden".to_owned(), "hidden".to_owned())),
                ..Tls::default()
            }),
            servers: vec!["nats://user:hidden@nats:4222".to_owned()],
            ..Settings::default()
        };
        let text = format!("{settings:?}");
        assert!(!text.contains("hidden"), "{text}");
        assert!(text.contains("nats:4222"), "{text}");
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_shown() {
        for url in [
            "nats://user:hidden@nats:4222",
            "nats://hidden@nats:4222",
            "user:hid/hidden@nats:4222",
            "nats://user:hidden@hidden@nats:4222",
        ] {
            let error = address(url).expect_err("it contains credentials");
            let is_named = matches!(error, ConnectionError::CredentialsInUrl { .. });
            let text = format!("{error} {error:?}");
            assert!(is_named && !text.contains("hidden"), "{url}: {text}");
        }
    }

    #[test]
    fn servers_are_named_by_host_and_port() {
        for (url, name) in [
            ("nats://nats-0.nats:4223", "nats-0.nats:4223"),
            ("tls://nats", "nats:4222"),
            ("nats://[::1]:4222", "[::1]:4222"),
        ] {
            let server = address(url).expect("it is a URL");
            assert_eq!(host_and_port(&server), name);
        }
    }

    #[test]
    fn reconnect_delay_has_a_maximum() {
        assert_eq!(reconnect_delay(1), Duration::ZERO);
        for attempt in [2, 10, 1000, usize::MAX] {
            assert!(
                reconnect_delay(attempt) <= RECONNECT_POLICY.max,
                "{attempt}"
            );
        }
    }
}
