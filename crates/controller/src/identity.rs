//! The names of a program.

/// The names of a program.
///
/// ```
/// use capi_ipam_controller::manager::Identity;
///
/// let identity = Identity::new("my-provider", env!("CARGO_PKG_VERSION")).with_lease("my-provider.example.com");
/// assert_eq!(identity.lease(), "my-provider.example.com");
/// assert!(identity.user_agent().starts_with("my-provider/"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    name: &'static str,
    version: &'static str,
    lease: &'static str,
}

impl Identity {
    /// The identity of a program. `name` appears in its help and its user agent, and as the
    /// reporter of events; it is also the name of its Lease. `version` is the version of the
    /// program, usually `env!("CARGO_PKG_VERSION")`.
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self {
            name,
            version,
            lease: name,
        }
    }

    /// Changes the name of the Lease that the replicas of the program compete for.
    #[must_use]
    pub const fn with_lease(self, lease: &'static str) -> Self {
        Self { lease, ..self }
    }

    /// The name of the program.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The version of the program.
    pub const fn version(&self) -> &'static str {
        self.version
    }

    /// The name of the Lease.
    pub const fn lease(&self) -> &'static str {
        self.lease
    }

    /// The user agent of the program's requests: `name/version`.
    pub fn user_agent(&self) -> String {
        format!("{}/{}", self.name, self.version)
    }
}
