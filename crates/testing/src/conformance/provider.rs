//! The description of a provider.

use std::path::{Path, PathBuf};
use std::time::Duration;

use capi_ipam_provider::api::PoolReference;
use serde_json::Value;

use super::check::Check;
use crate::control_plane::Installation;
use crate::wait::TIMEOUT;

/// The smallest number of addresses of the pool of a provider.
const MIN_ADDRESSES: usize = 4;
/// The default number of claims of [`Check::Restart`].
const CLAIMS: usize = 1000;

/// A pool that the checks create, each in its own namespace.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) manifest: Value,
    pub(super) addresses: usize,
}

impl Pool {
    /// A namespaced pool as YAML, and the number of addresses that can be allocated from it.
    ///
    /// # Panics
    /// When this is not the YAML of an object.
    pub fn new(manifest: &str, addresses: usize) -> Self {
        let manifest: Value = serde_saphyr::from_str(manifest).expect("a pool is YAML");
        for field in [
            &manifest["apiVersion"],
            &manifest["kind"],
            &manifest["metadata"]["name"],
        ] {
            assert!(
                field.is_string(),
                "a pool has an apiVersion, a kind and a name: {manifest}"
            );
        }
        Self {
            manifest,
            addresses,
        }
    }

    /// The reference to the pool in a claim.
    pub(super) fn reference(&self) -> PoolReference {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let version = text(&self.manifest["apiVersion"]);
        PoolReference {
            api_group: version
                .split_once('/')
                .map(|(group, _)| group.to_owned())
                .unwrap_or_default(),
            kind: text(&self.manifest["kind"]),
            name: text(&self.manifest["metadata"]["name"]),
        }
    }
}

/// The program of a provider, and what it needs.
///
/// The program must accept the flags `--kubeconfig`, `--health-probe-bind-address` and
/// `--diagnostics-address`, as the managers of Cluster API and of the SDK do, and serve `/readyz`.
/// It must not elect a leader without a flag: a program that is killed would delay its successor
/// until the lease expires.
#[derive(Clone, Debug)]
pub struct Provider {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) leader_election: Vec<String>,
    pub(super) installation: Installation,
    pub(super) pool: Pool,
    pub(super) large_pool: Option<Pool>,
    pub(super) claims: usize,
    pub(super) timeout: Duration,
    pub(super) checks: Vec<Check>,
}

impl Provider {
    /// A provider with all checks. The pool is created in many namespaces, one after the other;
    /// each check releases all of its addresses. A pool of 5 to 10 addresses is best: some checks
    /// allocate all of them.
    ///
    /// # Panics
    /// When the pool has fewer than 4 addresses.
    pub fn new(program: impl Into<PathBuf>, pool: Pool) -> Self {
        assert!(
            pool.addresses >= MIN_ADDRESSES,
            "the checks need a pool of at least {MIN_ADDRESSES} addresses"
        );
        Self {
            program: program.into(),
            arguments: Vec::new(),
            leader_election: vec!["--leader-elect".to_owned()],
            installation: Installation::default(),
            pool,
            large_pool: None,
            claims: CLAIMS,
            timeout: TIMEOUT,
            checks: Check::ALL.to_vec(),
        }
    }

    /// Further arguments of the program.
    #[must_use]
    pub fn arguments<A: Into<String>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// The arguments that enable leader election; by default `--leader-elect`. A short lease makes
    /// [`Check::LeaderElection`] faster: the lease of a killed program must expire.
    #[must_use]
    pub fn leader_election<A: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.leader_election = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// The CRDs of the provider, and its service account. Without an account the program runs as an
    /// administrator.
    #[must_use]
    pub fn installation(mut self, installation: Installation) -> Self {
        self.installation = installation;
        self
    }

    /// The pool and the number of claims of [`Check::Restart`], by default the pool of the other
    /// checks with at most 1,000 claims.
    #[must_use]
    pub fn restart_with(mut self, pool: Pool, claims: usize) -> Self {
        self.large_pool = Some(pool);
        self.claims = claims;
        self
    }

    /// How long the provider may take to react to a change; by default one minute. A correct
    /// provider takes milliseconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The checks to run, in this order.
    #[must_use]
    pub fn checks(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.checks = checks.into_iter().collect();
        self
    }

    /// The path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }
}
