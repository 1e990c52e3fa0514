//! What users see of a cluster: the output of commands, and what kubectl shows.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Day;
use super::recordings::View;
use crate::run;

/// Commands that read: the name of the recording, those that are recorded as text and as JSON, and
/// those that are recorded as text. The first one of each is recorded in all formats.
const READS: [(&str, &[&str], &[&str]); 8] = [
    (
        "pools",
        &["pools -A"],
        &[
            "pools -n team-b",
            "pools team-a/web GlobalIP/limited",
            "pool ip/team-a/web lans",
            "pools -n team-a nope",
        ],
    ),
    (
        "networks",
        &["networks"],
        &["networks backbone", "networks none"],
    ),
    (
        "claims",
        &["claims -A"],
        &[
            "claims -A --waiting",
            "claims -A --cluster-name prod",
            "claims -A -l tier=front",
            "claims -n team-a --pool small",
            "claims -n team-a web-1 vip",
            "claims team-a/web-1 team-b/lan-1",
            "claims --pool team-a/small --waiting",
            "claims -n team-a --pool nope",
            "claims -n team-a nobody",
            "claims -n kube-public",
        ],
    ),
    (
        "who",
        &[
            "who 10.0.0.10",
            "who 10.0.0.12",
            "who 10.0.0.13",
            "who 10.0.0.20",
            "who 10.0.0.1",
            "who 10.1.1.2",
            "who 10.4.0.17",
            "who 10.40.0.2",
            "who 10.40.0.18",
            "who fd00:2:0:1::77",
            "who -A prod",
        ],
        &[
            "who 10.7.0.9",
            "who 10.13.0.10",
            "who 10.40.0.60",
            "who 192.0.2.1",
            "who 10.0.0",
            "who -n team-a machine-1",
            "who team-a/wanted",
            "who -n team-a small-4",
            "who -A nobody",
        ],
    ),
    ("doctor", &["doctor"], &[]),
    (
        "doctor-of",
        &[],
        &[
            "doctor --errors",
            "doctor -n team-b",
            "doctor team-a/small",
            "doctor team-a/none",
        ],
    ),
    (
        "registry",
        &["registry", "registry check region"],
        &[
            "registry list none",
            "registry check backbone --size 16",
            "registry check none",
        ],
    ),
    (
        "export",
        &["export -A"],
        &["export team-a/web", "export -A -o yaml"],
    ),
];

/// The kinds of all objects that the provider reads and writes.
const KINDS: &str = "ipaddressclaims.ipam.cluster.x-k8s.io,ipaddresses.ipam.cluster.x-k8s.io,icipp,gicipp,icpp,gicpp,\
                     ipnetworks,ipregistries,ipres,ipslices,ipblocks";

/// Kinds whose specifications the manager writes.
const WRITTEN_KINDS: [&str; 4] = ["IPAddress", "IPReservation", "IPSlice", "IPBlock"];

/// Metrics of which there is only a value after a rare failure.
const RARE_METRICS: [&str; 2] = ["watch_restarts", "controller_retries"];

/// All views. Documents in JSON are large, so they are views of one moment only.
pub(super) fn views(day: &Day, has_json: bool) -> Vec<View<'_>> {
    let mut views = Vec::new();
    for (name, commands, as_text) in READS {
        let texts = move || {
            let (first, others) = commands.split_at(commands.len().min(1));
            transcripts(day, first, &["", "-o wide", "-o name"])
                + &transcripts(day, others, &[""])
                + &transcripts(day, as_text, &[""])
        };
        views.push(view(&format!("{name}.txt"), texts));
        if commands.is_empty() || !has_json {
            continue;
        }
        let documents = move || transcripts(day, commands, &["-o json"]);
        views.push(view(&format!("{name}.json"), documents));
    }
    views.push(view("show.txt", || of_pools(day, "show", &["", "-o wide"])));
    views.push(view("kubectl.txt", || tables(day)));
    views.push(view("conditions.txt", || conditions(&day.objects())));
    if has_json {
        views.push(view("show.json", || of_pools(day, "show", &["-o json"])));
        views.push(view("objects.json", || objects(&day.objects())));
    }
    views.push(view("events.txt", || events(day)));
    if day.system.manager.is_ready() {
        views.push(view("metrics.txt", || metrics(day)));
    }
    views
}

fn view<'a>(name: &str, read: impl Fn() -> String + Sync + 'a) -> View<'a> {
    View {
        name: name.to_owned(),
        read: Box::new(read),
    }
}

impl Day {
    /// All objects that the provider reads and writes.
    fn objects(&self) -> Vec<Value> {
        self.list(KINDS)
    }

    fn list(&self, kinds: &str) -> Vec<Value> {
        let listed = self
            .system
            .plane
            .kubectl(&["get", kinds, "-A", "-o", "json"]);
        let mut list: Value = serde_json::from_str(&listed).expect("kubectl prints JSON");
        match list["items"].take() {
            Value::Array(items) => items,
            other => panic!("{other}"),
        }
    }
}

/// Command lines with their output, in several formats.
fn transcripts(day: &Day, commands: &[&str], formats: &[&str]) -> String {
    let mut text = String::new();
    for command in commands {
        for format in formats {
            let line = format!("{command} {format}");
            let arguments: Vec<&str> = line.split_whitespace().collect();
            let (code, output, errors) = run(day.system.admin(), &arguments);
            write!(text, "$ kubectl ipam {}\n{output}", arguments.join(" "))
                .expect("a string grows");
            for error in errors.lines() {
                writeln!(text, "stderr: {error}").expect("a string grows");
            }
            if code != 0 {
                writeln!(text, "exit code {code}").expect("a string grows");
            }
            text.push('\n');
        }
    }
    text
}

/// What is shown of each pool.
fn of_pools(day: &Day, command: &str, formats: &[&str]) -> String {
    let (_, output, _) = run(day.system.admin(), &["pools", "-A", "-o", "json"]);
    let pools: Value = serde_json::from_str(&output).expect("the output is JSON");
    let mut text = String::new();
    for pool in pools["items"].as_array().expect("a list") {
        let part = |field: &str| pool["pool"][field].as_str().map(str::to_owned);
        let kind = part("kind").expect("a kind");
        let scope = part("namespace").map(|namespace| format!("/{namespace}"));
        let name = part("name").expect("a name");
        let scope = scope.unwrap_or_default();
        let line = format!("{command} {kind}{scope}/{name}");
        text.push_str(&transcripts(day, &[&line], formats));
    }
    text
}

/// The columns of kubectl. Their widths depend on the ages in them.
fn tables(day: &Day) -> String {
    let mut text = String::new();
    for kind in KINDS.split(',') {
        writeln!(text, "$ kubectl get {kind} -A").expect("a string grows");
        for line in day.system.plane.kubectl(&["get", kind, "-A"]).lines() {
            let cells = line.split("  ").map(str::trim);
            let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
            writeln!(text, "{}", cells.join("  ")).expect("a string grows");
        }
        text.push('\n');
    }
    text
}

/// Kind, namespace and name.
fn title(object: &Value) -> String {
    let part = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let parts = [
        part("/kind"),
        part("/metadata/namespace"),
        part("/metadata/name"),
    ];
    parts.join(" ")
}

/// All conditions, one in each line.
fn conditions(objects: &[Value]) -> String {
    let mut lines = BTreeSet::new();
    for object in objects {
        let status = &object["status"];
        let older = &status["deprecated"]["v1beta1"]["conditions"];
        for (version, list) in [("", &status["conditions"]), (" (v1beta1)", older)] {
            for condition in list.as_array().into_iter().flatten() {
                let part = |field: &str| condition[field].as_str().unwrap_or_default();
                lines.insert(format!(
                    "{} {}{version}={} {}: {}\n",
                    title(object),
                    part("type"),
                    part("status"),
                    part("reason"),
                    part("message")
                ));
            }
        }
    }
    lines.into_iter().collect()
}

/// The metadata and the statuses of all objects, and the specifications that the manager writes.
fn objects(objects: &[Value]) -> String {
    let mut texts = BTreeSet::new();
    for object in objects {
        let mut shown = json!({ "status": object["status"] });
        if let Some(status) = shown["status"].as_object_mut() {
            // They are a recording of their own.
            status.remove("conditions");
            status.remove("deprecated");
        }
        let is_written = WRITTEN_KINDS.iter().any(|kind| object["kind"] == **kind);
        if is_written {
            shown["spec"] = object["spec"].clone();
        }
        let metadata = [
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "deletionTimestamp",
        ];
        for field in metadata {
            shown[field] = object["metadata"][field].clone();
        }
        for path in ["/spec/cluster/writes", "/status/writes"] {
            if let Some(count) = shown.pointer_mut(path) {
                *count = json!("N");
            }
        }
        if let Some(fields) = shown.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        texts.insert(format!("{} {shown:#}\n", title(object)));
    }
    texts.into_iter().collect()
}

/// All events of the manager, one in each line. How often they were repeated depends on the time.
fn events(day: &Day) -> String {
    let mut lines = BTreeSet::new();
    for event in day.list("events.v1.events.k8s.io") {
        let reporter = event["reportingController"].as_str().unwrap_or_default();
        let part = |field: &str| event[field].as_str().unwrap_or_default();
        let about = |field: &str| event["regarding"][field].as_str().unwrap_or_default();
        let mut note = part("note");
        if part("reason") == "NoFreeAddress" {
            // The counts of the moment are between parentheses.
            note = note.split(" (").next().unwrap_or_default();
        }
        lines.insert(format!(
            "{reporter} {} {} {} {}/{} {}: {}\n",
            part("type"),
            part("reason"),
            about("kind"),
            about("namespace"),
            about("name"),
            part("action"),
            note
        ));
    }
    lines.into_iter().collect()
}

/// The descriptions and the series of all metrics, and the values of those that do not depend on
/// the time.
fn metrics(day: &Day) -> String {
    let server = format!("--server=http://127.0.0.1:{}", day.metrics);
    let text = day
        .system
        .plane
        .kubectl(&["get", "--raw", "/metrics", &server]);
    let lines: BTreeSet<String> = text.lines().filter_map(metric).collect();
    lines.into_iter().collect()
}

fn metric(line: &str) -> Option<String> {
    let family = line
        .trim_start_matches("# HELP ")
        .trim_start_matches("# TYPE ");
    let is_rare = RARE_METRICS.iter().any(|name| family.starts_with(name));
    if is_rare {
        return None;
    }
    let (name, _) = line.split_once(['{', ' ']).unwrap_or((line, ""));
    let is_of_state = name.starts_with("capi_ipam_") || ["cache_synced", "leader"].contains(&name);
    let depends_on_time = ["_total", "_seconds", "_bucket", "_sum", "_count", "_info"];
    let is_exact = is_of_state && !depends_on_time.iter().any(|suffix| name.ends_with(suffix));
    if line.starts_with('#') || is_exact {
        return Some(format!("{line}\n"));
    }
    let (_, series) = line.split_at(name.len());
    let mut labels: Vec<&str> = series.split('"').step_by(2).collect();
    labels.pop();
    let labels: Vec<&str> = labels
        .iter()
        .map(|it| it.trim_matches(['{', ',', '=']))
        .collect();
    Some(format!("{name} {} *\n", labels.join(" ")))
}
