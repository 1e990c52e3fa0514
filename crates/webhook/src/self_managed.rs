//! Certificates for webhooks that the program makes itself, and has API servers trust (`--webhook-certs=self-managed`).
//!
//! A Secret has an authority with its key, and a certificate by it with its key. Every replica looks after it, whether
//! it leads or not: what is missing, damaged or ends soon is made anew (`decision`), and the authorities are written
//! where API servers read them (`inject`). Two who do so at once meet at the API server: only one can create the
//! Secret, and only one can change it from what both have read. The other one reads what the first has written. The
//! outcome of a write is never believed, it is read.
//!
//! A new authority does not replace the old one, both are trusted as long as both are valid. A certificate by the new one
//! is served only after API servers had time to learn of it. So they trust what is served at any moment, also while
//! replicas serve different certificates.
//!
//! Who deletes the Secret wants other authorities than those that are there: the old ones are no longer trusted then,
//! and what they have signed is no longer served.

pub mod options;

mod decision;
mod inject;
mod issue;
mod secret;
mod store;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, chain, own_namespace};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::retry::RetryPolicy;
use jiff::Timestamp;
use kube::Client;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::https::certificate::Certificates;
use self::decision::{Action, decide, Reason, Served, take_up, Switch};
use self::inject::{InjectError, Target, Targets};
use self::options::SelfManagedOptions;
use self::secret::{Kept, Serving, Wanted};
use self::store::Store;

pub use self::inject::Service;

/// When to look again after something went wrong, or was changed.
const AGAIN: RetryPolicy =
    RetryPolicy::Exponential { first: Duration::from_millis(50), longest: Duration::from_secs(30) };

/// How often in a row something may be changed before it is complained about.
const PATIENCE: u32 = 8;
const NEVER_STAYS: &str = "Secret, webhook configuration and definitions do not stay as they are written; \
                           does something else write them too?";

/// What the objects are called that certificates have to do with.
#[derive(Clone, Debug)]
pub struct Names {
    /// The service in front of the webhooks.
    pub service: String,
    /// The Secret with authority and certificate.
    pub secret: String,
    /// The ValidatingWebhookConfiguration.
    pub configuration: String,
    /// The CustomResourceDefinitions of kinds that a webhook converts.
    pub definitions: Vec<String>,
    /// Where operators find the permissions that all this needs.
    pub permissions: &'static str,
}

/// Looks after the certificate.
pub struct SelfManaged {
    store: Store,
    targets: Targets,
    wanted: Wanted,
    interval: Duration,
    permissions: &'static str,
    certificates: Certificates,
    health: ReadinessGate,
    served: Option<Serving>,
    /// The authorities that are where API servers read them, and since when.
    in_place: Option<(Vec<u8>, Instant)>,
    /// What was left to cert-manager, so that it is said once.
    left_alone: BTreeSet<String>,
    /// What was complained about the last time, so that it is said once.
    trouble: String,
}

/// Why one look was not enough.
enum Pending {
    /// Something was changed, by this process or by another one.
    Changed,
    /// Something is wrong.
    Trouble(String),
}

impl SelfManaged {
    /// Gives `certificates` what is in the Secret. `health` is done once API servers are to trust it.
    pub fn new(
        client: Client,
        options: &SelfManagedOptions,
        names: Names,
        certificates: Certificates,
        health: ReadinessGate,
    ) -> Self {
        let namespace = own_namespace(&client, &options.webhook_cert_namespace);
        let service = Service { namespace: namespace.clone(), name: names.service };
        let Service { name, .. } = &service;
        let of_service = ["svc", "svc.cluster.local"].map(|end| format!("{name}.{namespace}.{end}"));
        let hosts = of_service.into_iter().chain([format!("{name}.{namespace}")]);
        let wanted = Wanted {
            names: hosts.chain(options.webhook_cert_hosts.iter().cloned()).collect(),
            authority: options.webhook_ca_lifetime,
            serving: options.webhook_cert_lifetime,
        };
        Self {
            targets: Targets::new(&client, service, &names.configuration, &names.definitions),
            store: Store::new(client, &namespace, &names.secret),
            wanted,
            interval: options.webhook_cert_interval,
            permissions: names.permissions,
            certificates,
            health,
            served: None,
            in_place: None,
            left_alone: BTreeSet::new(),
            trouble: String::new(),
        }
    }

    /// Looks now and then, until the token is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            let mut failures = 0;
            loop {
                let wait = match self.look().await {
                    Ok(wait) => {
                        failures = 0;
                        self.recover();
                        wait
                    }
                    Err(unfinished) => {
                        failures += 1;
                        match unfinished {
                            Pending::Trouble(trouble) => self.complain(trouble),
                            Pending::Changed if failures > PATIENCE => self.complain(NEVER_STAYS.to_owned()),
                            Pending::Changed => {}
                        }
                        AGAIN.wait(failures)
                    }
                };
                tokio::time::sleep(wait).await;
            }
        };
        let _: Option<()> = stop.run_until_cancelled(work).await;
    }

    /// Looks once, and acts. Returns when to look again.
    async fn look(&mut self) -> Result<Duration, Pending> {
        // In this order: what is written to a target is then never older than what was in it.
        let targets = self.targets.read().await;
        let stored = self.store.read().await.map_err(|error| self.failed(&error))?;
        let (kept, now) = (Kept::read(stored.contents(), &self.wanted.names), Timestamp::now());
        let action = decide(&kept.found(), now);
        if action != Action::Keep {
            let contents =
                kept.after(&action, &self.wanted, now).map_err(|error| Pending::Trouble(chain(&error)))?;
            self.store.write(&stored, &contents).await.map_err(|error| self.failed(&error))?;
            self.announce(&action);
            return Err(Pending::Changed);
        }
        let injected = self.inject(&targets, kept.bundle()).await;
        let wait = self.serve(&kept, now);
        injected.map(|()| wait)
    }

    /// Writes the authorities where they are not yet.
    async fn inject(&mut self, targets: &[Result<Target, InjectError>], bundle: &[u8]) -> Result<(), Pending> {
        let (mut troubles, mut is_changed, mut is_overtaken) = (Vec::new(), false, false);
        for target in targets {
            let target = match target {
                Ok(target) if target.is_of_cert_manager() => {
                    self.leave(target.describe());
                    continue;
                }
                Ok(target) => target,
                Err(error @ InjectError::Missing(_)) => {
                    troubles.push(chain(error));
                    continue;
                }
                Err(InjectError::Call(error)) => {
                    troubles.push(self.explain(error));
                    continue;
                }
            };
            match self.targets.inject(target, bundle).await {
                Ok(false) => {}
                Ok(true) => {
                    is_changed = true;
                    info!(object = target.describe(), "webhooks: the authorities to trust are written");
                }
                Err(error) if is_of_another(&error) => is_overtaken = true,
                Err(error) => troubles.push(self.explain(&error)),
            }
        }
        if is_overtaken || !troubles.is_empty() {
            self.in_place = None;
            let trouble = troubles.join("; ");
            return Err(if trouble.is_empty() { Pending::Changed } else { Pending::Trouble(trouble) });
        }
        if is_changed || self.in_place.as_ref().is_none_or(|(there, _)| there != bundle) {
            self.in_place = Some((bundle.to_vec(), Instant::now()));
        }
        Ok(())
    }

    /// Serves with the certificate that is kept, when it is time to. Returns when to look again.
    fn serve(&mut self, kept: &Kept, now: Timestamp) -> Duration {
        let Ok(offered) = kept.serving() else { return self.interval };
        let served = self.served.as_ref().map(|served| Served {
            is_offered: served.certified.cert == offered.certified.cert,
            has_same_authority: served.authority == offered.authority,
            is_trusted: kept.trusts(&served.authority),
            until: served.validity.until,
        });
        let in_place = self.in_place.as_ref().filter(|(there, _)| there == kept.bundle());
        let in_place = in_place.map(|(_, since)| since.elapsed());
        match take_up(served.as_ref(), in_place, self.interval, now) {
            Switch::Done => self.interval,
            Switch::Later(wait) => wait.min(self.interval),
            Switch::Now => {
                self.certificates.change(offered.certified.clone());
                self.served = Some(offered.clone());
                info!(
                    secret = self.store.name(),
                    expires = %offered.validity.until,
                    "webhooks: a self-managed certificate is served from now on"
                );
                self.interval
            }
        }
    }

    fn announce(&self, action: &Action) {
        let (made, reason) = match action {
            Action::Keep => return,
            Action::Prune => return info!(secret = self.store.name(), "webhooks: old authorities are forgotten"),
            Action::Serving(reason) => ("a certificate", reason),
            Action::Authority(reason) => ("an authority and a certificate", reason),
        };
        match reason {
            Reason::Missing | Reason::Ending => {
                info!(secret = self.store.name(), %reason, "webhooks: {made} was made");
            }
            Reason::Damaged(_) | Reason::NotYetValid => {
                warn!(secret = self.store.name(), %reason, "webhooks: {made} was made, what was there is of no use");
            }
        }
    }

    fn leave(&mut self, object: String) {
        if self.left_alone.contains(&object) {
            return;
        }
        warn!(
            object,
            "webhooks: cert-manager is told by annotation which authorities to write here, so they are left alone; \
             API servers do not trust the self-managed certificate until the annotation is gone"
        );
        self.left_alone.insert(object);
    }

    fn failed(&self, error: &CallError) -> Pending {
        if is_of_another(error) { Pending::Changed } else { Pending::Trouble(self.explain(error)) }
    }

    fn explain(&self, error: &CallError) -> String {
        let text = chain(error);
        if !error.is_forbidden() {
            return text;
        }
        format!("{text}; the permissions for self-managed certificates are in {}", self.permissions)
    }

    fn complain(&mut self, trouble: String) {
        self.health.broken(&trouble);
        if self.trouble != trouble {
            warn!(trouble, "webhooks: the self-managed certificate is not as it should be; it is tried again");
            self.trouble = trouble;
        }
    }

    fn recover(&mut self) {
        self.health.done();
        if !self.trouble.is_empty() {
            info!("webhooks: the self-managed certificate is as it should be");
            self.trouble.clear();
        }
    }
}

/// Whether somebody else was faster.
fn is_of_another(error: &CallError) -> bool {
    error.is_already_exists() || error.is_conflict()
}
