//! Self-managed certificates for webhooks (`--webhook-certs=self-managed`): a replacement for
//! cert-manager.
//!
//! A Secret contains a CA and a serving certificate with their private keys. Every replica
//! reconciles it, the leader and the standbys: a missing, unusable or expiring certificate is
//! regenerated (`decision`), and the CA bundle is written to the objects from which API servers
//! read it (`inject`). If several replicas do so at the same time, the API server lets only one
//! create or update the Secret; the others read its result. After a write, everything is read
//! again.
//!
//! A new CA is added to the bundle, and the old one is trusted until it expires. A certificate of
//! the new CA is served only after API servers had time to load the bundle. So they trust every
//! served certificate at any moment, also while replicas serve different ones.
//!
//! To replace the CA, delete the Secret: the old CA is removed from the bundle then, and its
//! certificates are no longer served.

pub mod options;

mod decision;
mod inject;
mod issue;
mod secret;
mod store;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, error_chain, own_namespace};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::retry::RetryPolicy;
use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::decision::{Action, ActiveCert, Reason, Switch, decide, plan_switch};
use self::inject::{InjectError, Service, Target, Targets};
use self::options::SelfManagedOptions;
use self::secret::{CertBundle, CertSpec, ServingCert};
use self::store::Store;
use crate::https::certificate::Certificates;

/// The delay after a failure, and after a change.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(30),
};

/// Number of consecutive changes after which a conflict with another writer is reported.
const MAX_CHANGES: u32 = 8;
const CONFLICTING_WRITER: &str = "the Secret, the webhook configuration or a CustomResourceDefinition changes after \
                                  every write; check whether another controller writes it";

/// The names of the objects of self-managed certificates.
#[derive(Clone, Debug)]
pub struct Names {
    /// Name of the Service of the webhooks.
    pub service: String,
    /// Name of the Secret with the CA and the serving certificate.
    pub secret: String,
    /// Name of the ValidatingWebhookConfiguration.
    pub configuration: String,
    /// Name of the MutatingWebhookConfiguration; none if there is none. It need not exist.
    pub mutating_configuration: Option<String>,
    /// Names of the CustomResourceDefinitions with a conversion webhook.
    pub definitions: Vec<String>,
    /// Path of the manifests with the required permissions, for error messages.
    pub permissions: &'static str,
}

/// Reconciles the self-managed certificate and its CA bundle.
pub struct SelfManaged {
    store: Store,
    targets: Targets,
    spec: CertSpec,
    interval: Duration,
    permissions: &'static str,
    certificates: Certificates,
    health: ReadinessGate,
    active: Option<ServingCert>,
    /// The CA bundle that all targets have, and since when.
    injected: Option<(Vec<u8>, Instant)>,
    /// The targets that were left to cert-manager, so that each is logged once.
    skipped: BTreeSet<String>,
    /// The problem that was logged last, so that it is logged once.
    problem: String,
}

/// Why a reconcile has to be repeated.
enum Pending {
    /// An object was changed, by this process or by another one.
    Changed,
    /// The reconcile failed.
    Failed(String),
}

impl SelfManaged {
    /// Creates a task that sets `certificates` to the certificate of the Secret. `health` becomes
    /// ready when the CA bundle is injected.
    pub fn new(
        client: Client,
        options: &SelfManagedOptions,
        names: &Names,
        certificates: Certificates,
        health: ReadinessGate,
    ) -> Self {
        let namespace = own_namespace(&client, &options.webhook_cert_namespace);
        let service = Service {
            namespace: namespace.clone(),
            name: names.service.clone(),
        };
        let Service { name, .. } = &service;
        let of_service =
            ["svc", "svc.cluster.local"].map(|end| format!("{name}.{namespace}.{end}"));
        let names_of_service = of_service
            .into_iter()
            .chain([format!("{name}.{namespace}")]);
        let spec = CertSpec {
            names: names_of_service
                .chain(options.webhook_cert_hosts.iter().cloned())
                .collect(),
            ca_lifetime: options.webhook_ca_lifetime,
            cert_lifetime: options.webhook_cert_lifetime,
        };
        Self {
            targets: Targets::new(&client, service, names),
            store: Store::new(client, &namespace, &names.secret),
            spec,
            interval: options.webhook_cert_interval,
            permissions: names.permissions,
            certificates,
            health,
            active: None,
            injected: None,
            skipped: BTreeSet::new(),
            problem: String::new(),
        }
    }

    /// Reconciles periodically until the token is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            let mut failures = 0;
            loop {
                let wait = match self.reconcile().await {
                    Ok(wait) => {
                        failures = 0;
                        self.report_success();
                        wait
                    }
                    Err(pending) => {
                        failures += 1;
                        match pending {
                            Pending::Failed(problem) => self.report(problem),
                            Pending::Changed if failures > MAX_CHANGES => {
                                self.report(CONFLICTING_WRITER.to_owned())
                            }
                            Pending::Changed => {}
                        }
                        RETRY_POLICY.delay(failures)
                    }
                };
                tokio::time::sleep(wait).await;
            }
        };
        let _: Option<()> = stop.run_until_cancelled(work).await;
    }

    /// Reconciles once. Returns the time until the next reconcile.
    async fn reconcile(&mut self) -> Result<Duration, Pending> {
        // In this order, so that the bundle is never older than the targets.
        let targets = self.targets.read().await;
        let stored = self
            .store
            .read()
            .await
            .map_err(|error| self.failed(&error))?;
        let (bundle, now) = (
            CertBundle::parse(stored.contents(), &self.spec.names),
            Timestamp::now(),
        );
        let action = decide(&bundle.state(), now);
        if action != Action::Keep {
            let contents = bundle
                .after(&action, &self.spec, now)
                .map_err(|error| Pending::Failed(error_chain(&error)))?;
            self.store
                .write(&stored, &contents)
                .await
                .map_err(|error| self.failed(&error))?;
            self.log_action(&action);
            return Err(Pending::Changed);
        }
        let injected = self.inject(&targets, bundle.ca_bundle()).await;
        let wait = self.serve(&bundle, now);
        injected.map(|()| wait)
    }

    /// Writes the CA bundle to the targets that do not have it.
    async fn inject(
        &mut self,
        targets: &[Result<Target, InjectError>],
        bundle: &[u8],
    ) -> Result<(), Pending> {
        let (mut problems, mut is_changed, mut has_conflict) = (Vec::new(), false, false);
        for target in targets {
            let target = match target {
                Ok(target) if target.is_managed_by_cert_manager() => {
                    self.skip(target.describe());
                    continue;
                }
                Ok(target) => target,
                Err(error @ InjectError::Missing(_)) => {
                    problems.push(error_chain(error));
                    continue;
                }
                Err(InjectError::Call(error)) => {
                    problems.push(self.explain(error));
                    continue;
                }
            };
            match self.targets.inject(target, bundle).await {
                Ok(false) => {}
                Ok(true) => {
                    is_changed = true;
                    info!(
                        object = target.describe(),
                        "webhooks: injected the CA bundle"
                    );
                }
                Err(error) if is_conflict(&error) => has_conflict = true,
                Err(error) => problems.push(self.explain(&error)),
            }
        }
        if has_conflict || !problems.is_empty() {
            self.injected = None;
            let problem = problems.join("; ");
            return Err(if problem.is_empty() {
                Pending::Changed
            } else {
                Pending::Failed(problem)
            });
        }
        if is_changed
            || self
                .injected
                .as_ref()
                .is_none_or(|(injected, _)| injected != bundle)
        {
            self.injected = Some((bundle.to_vec(), Instant::now()));
        }
        Ok(())
    }

    /// Switches to the certificate of the Secret when API servers trust it. Returns the time until
    /// the next reconcile.
    fn serve(&mut self, bundle: &CertBundle, now: Timestamp) -> Duration {
        let Ok(current) = bundle.serving() else {
            return self.interval;
        };
        let active = self.active.as_ref().map(|active| ActiveCert {
            is_current: active.certified.cert == current.certified.cert,
            has_same_ca: active.ca == current.ca,
            is_trusted: bundle.trusts(&active.ca),
            not_after: active.validity.not_after,
        });
        let injected = self
            .injected
            .as_ref()
            .filter(|(injected, _)| injected == bundle.ca_bundle());
        let injected = injected.map(|(_, since)| since.elapsed());
        match plan_switch(active.as_ref(), injected, self.interval, now) {
            Switch::Done => self.interval,
            Switch::Later(wait) => wait.min(self.interval),
            Switch::Now => {
                self.certificates.set(current.certified.clone());
                self.active = Some(current.clone());
                info!(
                    secret = self.store.name(),
                    expires = %current.validity.not_after,
                    "webhooks: serving a new self-managed certificate"
                );
                self.interval
            }
        }
    }

    fn log_action(&self, action: &Action) {
        let (generated, reason) = match action {
            Action::Keep => return,
            Action::Prune => {
                return info!(secret = self.store.name(), "webhooks: removed expired CAs");
            }
            Action::IssueCert(reason) => ("a certificate", reason),
            Action::RotateCa(reason) => ("a CA and a certificate", reason),
        };
        match reason {
            Reason::Missing | Reason::Expiring => {
                info!(secret = self.store.name(), %reason, "webhooks: generated {generated}");
            }
            Reason::Unusable(_) | Reason::NotYetValid => {
                let secret = self.store.name();
                warn!(secret, %reason, "webhooks: generated {generated}, the existing one is unusable");
            }
        }
    }

    /// Logs once that a target is left to cert-manager.
    fn skip(&mut self, object: String) {
        if self.skipped.contains(&object) {
            return;
        }
        warn!(
            object,
            "webhooks: not injecting the CA bundle, since an annotation makes cert-manager inject another one; \
             API servers do not trust the self-managed certificate until the annotation is removed"
        );
        self.skipped.insert(object);
    }

    fn failed(&self, error: &CallError) -> Pending {
        if is_conflict(error) {
            Pending::Changed
        } else {
            Pending::Failed(self.explain(error))
        }
    }

    fn explain(&self, error: &CallError) -> String {
        let text = error_chain(error);
        if !error.is_forbidden() {
            return text;
        }
        format!(
            "{text}; the permissions for self-managed certificates are in {}",
            self.permissions
        )
    }

    fn report(&mut self, problem: String) {
        self.health.failing(&problem);
        if self.problem != problem {
            warn!(
                problem,
                "webhooks: cannot reconcile the self-managed certificate, retrying"
            );
            self.problem = problem;
        }
    }

    fn report_success(&mut self) {
        self.health.ready();
        if !self.problem.is_empty() {
            info!("webhooks: reconciled the self-managed certificate after a failure");
            self.problem.clear();
        }
    }
}

/// Whether another client changed the object first.
fn is_conflict(error: &CallError) -> bool {
    error.is_already_exists() || error.is_conflict()
}
