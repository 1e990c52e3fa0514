//! The alerts of the provider that fire in Prometheus.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Part, PartLine, PartState};
use crate::load::Readable;
use crate::model::counted;

/// The names of all alerts of the provider begin so.
const PREFIX: &str = "CapiIpam";

/// What the cluster shows of the alerts.
#[derive(Clone, Debug)]
pub(crate) enum Alerts {
    /// The API server does not serve the kinds of the Prometheus operator.
    NoOperator,
    /// The Prometheus operator is installed.
    Operator {
        /// The number of PrometheusRules of the provider.
        rules: Readable<usize>,
        /// Each Prometheus of the operator.
        prometheuses: Readable<Vec<Prometheus>>,
    },
}

/// A Prometheus.
#[derive(Clone, Debug)]
pub(crate) struct Prometheus {
    /// Namespace and name of its service.
    pub(crate) service: String,
    /// The alerts of the provider that fire, or why they are unknown.
    pub(crate) firing: Result<BTreeSet<FiringAlert>, String>,
}

/// An alert that fires, for one or more objects. The most severe comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FiringAlert {
    severity: AlertSeverity,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AlertSeverity {
    Critical,
    Warning,
    Info,
}

impl AlertSeverity {
    /// A severity that somebody else has chosen counts as a warning.
    fn of(label: &str) -> Self {
        match label {
            "critical" => Self::Critical,
            "info" | "none" => Self::Info,
            _ => Self::Warning,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    labels: Labels,
    state: String,
}

#[derive(Deserialize)]
struct Labels {
    alertname: String,
    #[serde(default)]
    severity: String,
}

/// The alerts of the provider that fire, by the answer of Prometheus to `/api/v1/alerts`
/// (<https://prometheus.io/docs/prometheus/latest/querying/api/#alerts>).
pub(crate) fn firing(answer: &str) -> Result<BTreeSet<FiringAlert>, String> {
    let answer: Answer = serde_json::from_str(answer)
        .map_err(|error| format!("its answer cannot be decoded: {error}"))?;
    let alerts = answer.data.alerts.into_iter();
    let ours = alerts.filter(|alert| alert.state == "firing" && is_ours(alert));
    Ok(ours.map(fired).collect())
}

fn is_ours(alert: &Alert) -> bool {
    alert.labels.alertname.starts_with(PREFIX)
}

fn fired(alert: Alert) -> FiringAlert {
    FiringAlert {
        severity: AlertSeverity::of(&alert.labels.severity),
        name: alert.labels.alertname,
    }
}

impl Alerts {
    /// The line of `status`. It is `unknown` unless a Prometheus with the rules has answered.
    pub(super) fn line(&self) -> PartLine {
        let (state, detail) = self.state();
        PartLine {
            part: Part::Alerts,
            state,
            detail,
            problems: Vec::new(),
        }
    }

    fn state(&self) -> (PartState, String) {
        let unknown = |text: &str| (PartState::Unknown, text.to_owned());
        let Self::Operator {
            rules,
            prometheuses,
        } = self
        else {
            return unknown("the API server does not serve PrometheusRule: no Prometheus operator");
        };
        if rules.known() == Some(&0) {
            return unknown("no PrometheusRule of the provider: apply config/prometheus");
        }
        if prometheuses.seen().is_empty() {
            return unknown("no service with the label operated-prometheus=true to ask");
        }

        // What is known is said first; what is unknown cannot make it better.
        let mut state = PartState::Ok;
        let mut details = Vec::new();
        for prometheus in prometheuses.seen() {
            let (its_state, detail) = prometheus.state();
            state = state.max(its_state);
            details.push(detail);
        }
        if !rules.is_complete() || !prometheuses.is_complete() {
            state = state.max(PartState::Unknown);
        }
        (state, details.join("; "))
    }
}

impl Prometheus {
    fn state(&self) -> (PartState, String) {
        let service = &self.service;
        let firing = match &self.firing {
            Ok(firing) => firing,
            Err(reason) => {
                let text = format!("{service} does not answer: {reason}");
                return (PartState::Unknown, text);
            }
        };
        let Some(first) = firing.first() else {
            return (PartState::Ok, format!("none fires in {service}"));
        };
        let state = match first.severity {
            AlertSeverity::Critical => PartState::Error,
            AlertSeverity::Warning => PartState::Warning,
            AlertSeverity::Info => PartState::Ok,
        };
        let names: Vec<&str> = firing.iter().map(|alert| alert.name.as_str()).collect();
        let number = counted(names.len(), "alert");
        let text = format!(
            "{number} in {service}: {} (docs/runbook.md)",
            names.join(", ")
        );
        (state, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"status": "success", "data": {"alerts": [
        {"labels": {"alertname": "CapiIpamPoolNearlyFull", "severity": "warning"}, "state": "firing"},
        {"labels": {"alertname": "CapiIpamNoLeader", "severity": "critical"}, "state": "firing"},
        {"labels": {"alertname": "CapiIpamNoLeader", "severity": "critical"}, "state": "firing"},
        {"labels": {"alertname": "CapiIpamClaimsWait", "severity": "warning"}, "state": "pending"},
        {"labels": {"alertname": "Watchdog", "severity": "none"}, "state": "firing"}]}}"#;

    fn operator(rules: usize, firing: Vec<Result<BTreeSet<FiringAlert>, String>>) -> PartLine {
        let prometheus = |firing| Prometheus {
            service: "monitoring/prometheus-operated".to_owned(),
            firing,
        };
        let alerts = Alerts::Operator {
            rules: Readable::complete(rules),
            prometheuses: Readable::complete(firing.into_iter().map(prometheus).collect()),
        };
        alerts.line()
    }

    #[test]
    fn firing_alerts_are_named_the_most_severe_first() {
        let line = operator(1, vec![firing(ANSWER)]);
        assert_eq!(line.state, PartState::Error);
        assert_eq!(
            line.detail,
            "2 alerts in monitoring/prometheus-operated: CapiIpamNoLeader, CapiIpamPoolNearlyFull \
             (docs/runbook.md)"
        );
    }

    #[test]
    fn no_firing_alert_is_ok() {
        let none = firing(r#"{"data": {"alerts": []}}"#);
        let line = operator(1, vec![none]);
        let text = "none fires in monitoring/prometheus-operated";
        assert_eq!((line.state, line.detail.as_str()), (PartState::Ok, text));
    }

    #[test]
    fn what_cannot_be_asked_is_unknown() {
        let lines = [
            Alerts::NoOperator.line(),
            operator(0, Vec::new()),
            operator(1, Vec::new()),
            operator(1, vec![Err("no endpoints available".to_owned())]),
            operator(1, vec![firing("<html>")]),
        ];
        for line in lines {
            assert_eq!(line.state, PartState::Unknown, "{line:?}");
        }
    }

    #[test]
    fn silent_prometheus_does_not_hide_a_firing_alert() {
        let line = operator(1, vec![Err("gone".to_owned()), firing(ANSWER)]);
        assert_eq!(line.state, PartState::Error, "{line:?}");
    }
}
