//! The names of a program, and of the build that runs.

use opentelemetry_sdk::trace::SdkTracerProvider;

/// The names of a program, and of the build that runs.
///
/// ```
/// use capi_ipam_controller::manager::Identity;
///
/// let identity = Identity::new("my-provider", env!("CARGO_PKG_VERSION")).with_lease("my-provider.example.com");
/// assert_eq!(identity.lease, "my-provider.example.com");
/// assert!(identity.user_agent().starts_with("my-provider/"));
///
/// // A script that builds a release sets the variable.
/// const BUILT: Identity = Identity::new("my-provider", "1.2.3").with_revision(option_env!("MY_REVISION"));
/// assert_eq!(BUILT.revision, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The name of the program.
    pub name: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The commit that the program is built from, if it is known.
    pub revision: Option<&'static str>,
    /// The name of the Lease.
    pub lease: &'static str,
    /// The prefix of the names of metrics; empty for none.
    pub(crate) metric_prefix: &'static str,
    /// The upper bounds of the durations of reconciles, if the program has chosen them.
    pub(crate) metric_buckets: Option<&'static [f64]>,
    /// The provider that exports the spans, if the program has its own one.
    pub(crate) tracer: Option<&'static SdkTracerProvider>,
}

impl Identity {
    /// The identity of a program. `name` appears in its help and its user agent, and as the
    /// reporter of events; it is also the name of its Lease. `version` is the version of the
    /// program, usually `env!("CARGO_PKG_VERSION")`.
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self {
            name,
            version,
            revision: None,
            lease: name,
            metric_prefix: "",
            metric_buckets: None,
            tracer: None,
        }
    }

    /// Changes the name of the Lease that the replicas of the program compete for.
    #[must_use]
    pub const fn with_lease(self, lease: &'static str) -> Self {
        Self { lease, ..self }
    }

    /// Chooses the prefix of the names of all metrics, and the upper bounds of the durations of
    /// reconciles: see [`Metrics::with`](crate::metrics::Metrics::with). They can be texts and
    /// vectors that depend on flags ([`run_with_options`](crate::manager::run_with_options)). They
    /// are never freed: call it once.
    #[must_use]
    pub fn with_metrics(self, prefix: impl AsRef<str>, buckets: impl AsRef<[f64]>) -> Self {
        Self {
            metric_prefix: prefix.as_ref().to_owned().leak(),
            metric_buckets: Some(buckets.as_ref().to_owned().leak()),
            ..self
        }
    }

    /// Exports the spans of the program with this provider instead of the flags for traces. It is
    /// shut down at the end of the program, and never freed: call it once.
    ///
    /// ```
    /// use capi_ipam_controller::manager::Identity;
    /// use opentelemetry_sdk::trace::SdkTracerProvider;
    ///
    /// let provider = SdkTracerProvider::builder().build();
    /// let identity = Identity::new("my-provider", "1.2.3").with_tracer(provider);
    /// # let _ = identity;
    /// ```
    #[must_use]
    pub fn with_tracer(self, provider: SdkTracerProvider) -> Self {
        let tracer = Some(&*Box::leak(Box::new(provider)));
        Self { tracer, ..self }
    }

    /// Sets the commit that the program is built from; `None` if it is unknown.
    #[must_use]
    pub const fn with_revision(self, revision: Option<&'static str>) -> Self {
        Self { revision, ..self }
    }

    /// The version, followed by the revision if it is known: `1.2.3 (4f2a9c1)`.
    pub fn full_version(&self) -> String {
        match self.revision {
            Some(revision) => format!("{} ({revision})", self.version),
            None => self.version.to_owned(),
        }
    }

    /// The user agent of the program's requests: `name/version`, followed by the revision if it is
    /// known. Audit logs show it.
    pub fn user_agent(&self) -> String {
        format!("{}/{}", self.name, self.full_version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_is_a_part_of_the_version() {
        let identity = Identity::new("my-provider", "1.2.3");
        assert_eq!(identity.user_agent(), "my-provider/1.2.3");
        let built = identity.with_revision(Some("4f2a9c1"));
        assert_eq!(built.full_version(), "1.2.3 (4f2a9c1)");
        assert_eq!(built.user_agent(), "my-provider/1.2.3 (4f2a9c1)");
    }

    #[test]
    fn metrics_can_depend_on_flags() {
        let (prefix, buckets) = (format!("tenant_{}", 7), vec![0.5, 60.0]);
        let identity = Identity::new("my-provider", "1.2.3").with_metrics(prefix, buckets);
        assert_eq!(identity.metric_prefix, "tenant_7");
        assert_eq!(identity.metric_buckets, Some([0.5, 60.0].as_slice()));
    }
}
