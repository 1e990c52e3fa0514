//! `make demo`: a demonstration in a minute. Starts a real etcd and kube-apiserver and the
//! provider, creates a pool and claims as a machine controller does, shows the addresses, and
//! releases some. In a terminal all programs then keep running until Enter is pressed, with `--stay`
//! until Ctrl-C.

#![allow(clippy::expect_used, reason = "a failure ends the demo with a message")]

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use support::control_plane::{ControlPlane, Options};
use support::manager::{Manager, built};
use support::process::Supervised;
use support::webhooks::Webhooks;

use demo_steps::output::{print, print_command, print_indented, say};
use demo_steps::stay::{Stay, print_environment};
use demo_steps::{done, show, show_plugin};

const POOL: &str = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata:
  name: rack-1
  namespace: demo
spec:
  addresses:
    - 10.0.0.10-10.0.0.99
  excludedAddresses:
    - 10.0.0.12
  prefix: 24
  gateway: 10.0.0.1
";

const NETWORK: &str = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata:
  name: site
spec:
  namespaces:
    from: All
  pools: {}
";

const SLICES: &str = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata:
  name: racks
  namespace: demo
spec:
  addresses:
    - 10.8.0.0/24
  prefix: 24
  slices:
    size: 64
    per: Label
    label: topology/rack
";

/// Ends without a word if nobody reads the output any longer, as in `make demo | head`. All programs
/// are stopped nevertheless.
fn main() -> io::Result<()> {
    match run() {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn run() -> io::Result<()> {
    say("Starting etcd and kube-apiserver, and installing the CRDs …")?;
    let started = Instant::now();
    let control_plane = ControlPlane::start(Options::default());
    done(started)?;

    say("Starting the provider …")?;
    let started = Instant::now();
    let webhooks = Webhooks::new(&control_plane);
    let flags = webhooks.flags();
    let mut manager = Manager::start(&control_plane, &flags.each_ref().map(String::as_str));
    webhooks.register(&control_plane);
    done(started)?;

    say("An operator creates a pool:")?;
    print(POOL)?;
    control_plane.kubectl_apply("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: demo\n");
    control_plane.kubectl_apply(POOL);

    say("An invalid change is denied, and the message names the field:")?;
    show_denied(
        &control_plane,
        &[
            "-n",
            "demo",
            "patch",
            "inclusterippool/rack-1",
            "--type=merge",
            "-p",
            r#"{"spec":{"gateway":"10.0.0.300"}}"#,
        ],
    )?;

    say(
        "A machine controller creates a claim for each of five machines, and waits for addresses:",
    )?;
    let claims: String = (0..5).map(claim).collect();
    let started = Instant::now();
    control_plane.kubectl_apply(&claims);
    control_plane.kubectl(&[
        "-n",
        "demo",
        "wait",
        "ipaddressclaims",
        "--all",
        "--for=condition=Ready",
        "--timeout=30s",
    ]);
    done(started)?;
    show_addresses(&control_plane)?;
    show_pool(&control_plane, 5)?;

    say("Addresses in use cannot be removed from a pool:")?;
    let fewer = r#"{"spec":{"addresses":["10.0.0.50-10.0.0.99"]}}"#;
    show_denied(
        &control_plane,
        &[
            "-n",
            "demo",
            "patch",
            "inclusterippool/rack-1",
            "--type=merge",
            "-p",
            fewer,
        ],
    )?;

    say("Machines 1 and 3 are deleted; their addresses are released:")?;
    control_plane.kubectl(&[
        "-n",
        "demo",
        "delete",
        "ipaddressclaim",
        "machine-1",
        "machine-3",
        "--timeout=30s",
    ]);
    show_addresses(&control_plane)?;
    show_pool(&control_plane, 3)?;

    say("The next machine gets the lowest free address:")?;
    control_plane.kubectl_apply(&claim(5));
    control_plane.kubectl(&[
        "-n",
        "demo",
        "wait",
        "ipaddressclaim/machine-5",
        "--for=condition=Ready",
        "--timeout=30s",
    ]);
    show_addresses(&control_plane)?;

    say("Each address has a reservation, whose creation guarantees that the address is unique:")?;
    show(&control_plane, &["get", "ipreservations"])?;

    say("A claim reports its state:")?;
    let conditions =
        "-o=jsonpath={.status.conditions[0].type}: {.status.conditions[0].reason}{\"\\n\"}";
    show(
        &control_plane,
        &[
            "-n",
            "demo",
            "get",
            "ipaddressclaim",
            "machine-5",
            conditions,
        ],
    )?;

    say("`kubectl ipam` shows the pool with a map of its addresses:")?;
    show_plugin(&control_plane, &["show", "rack-1", "--namespace", "demo"])?;

    show_network(&control_plane)?;
    show_slices(&control_plane)?;

    let stay = Stay::of_process();
    if stay != Stay::No {
        let page = show_how_to_try(&control_plane, stay)?;
        stay.wait();
        drop(page);
    }
    manager.stop();
    say("Done. All programs have been stopped.")
}

fn show_addresses(control_plane: &ControlPlane) -> io::Result<()> {
    let resource = "ipaddresses.ipam.cluster.x-k8s.io";
    show(control_plane, &["-n", "demo", "get", resource])
}

fn show_network(control_plane: &ControlPlane) -> io::Result<()> {
    say(
        "A network takes in all pools of the cluster, also those in use; their specifications do not change:",
    )?;
    print(NETWORK)?;
    control_plane.kubectl_apply(NETWORK);
    // The status has the counts with a delay.
    for state in ["condition=Ready", "jsonpath={.status.pools}=1"] {
        let state = format!("--for={state}");
        control_plane.kubectl(&["wait", "ipnetwork/site", &state, "--timeout=30s"]);
    }
    show(control_plane, &["get", "ipnetworks"])?;

    say("Another pool with the same addresses allocates none that is in use:")?;
    control_plane.kubectl_apply(&POOL.replace("name: rack-1", "name: rack-1-copy"));
    control_plane.kubectl_apply(&claim(6).replace("name: rack-1", "name: rack-1-copy"));
    let wait = [
        "-n",
        "demo",
        "wait",
        "ipaddressclaim/machine-6",
        "--for=condition=Ready",
        "--timeout=30s",
    ];
    control_plane.kubectl(&wait);
    show_addresses(control_plane)?;
    control_plane.kubectl(&[
        "wait",
        "ipnetwork/site",
        "--for=jsonpath={.status.used}=5",
        "--timeout=30s",
    ]);
    show_plugin(control_plane, &["networks"])
}

fn show_slices(control_plane: &ControlPlane) -> io::Result<()> {
    say("A pool can be divided into slices: each rack gets the addresses of one block:")?;
    print(SLICES)?;
    control_plane.kubectl_apply(SLICES);
    for (number, rack) in [(7, "r1"), (8, "r2"), (9, "r1")] {
        let labelled = format!("metadata:\n  labels:\n    topology/rack: {rack}\n");
        let claim = claim(number)
            .replace("name: rack-1", "name: racks")
            .replace("metadata:\n", &labelled);
        control_plane.kubectl_apply(&claim);
        let name = format!("ipaddressclaim/machine-{number}");
        control_plane.kubectl(&[
            "-n",
            "demo",
            "wait",
            &name,
            "--for=condition=Ready",
            "--timeout=30s",
        ]);
    }
    show_addresses(control_plane)?;
    show(control_plane, &["get", "ipslices"])
}

fn claim(number: u32) -> String {
    format!(
        "---\napiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddressClaim\nmetadata:\n  name: machine-{number}\n  \
         namespace: demo\nspec:\n  poolRef:\n    apiGroup: ipam.cluster.x-k8s.io\n    kind: InClusterIPPool\n    \
         name: rack-1\n"
    )
}

/// Starts the page of `kubectl ipam`, and prints what to try with the running programs.
fn show_how_to_try(control_plane: &ControlPlane, stay: Stay) -> io::Result<Supervised> {
    say("`kubectl ipam web` serves a page with the pool. Open it in a browser:")?;
    print("$ kubectl ipam web")?;
    let kubeconfig = control_plane.kubeconfig().display().to_string();
    let (arguments, log) = (
        ["--kubeconfig", &kubeconfig, "web"],
        control_plane.folder().join("page.log"),
    );
    let page = Supervised::spawn(&built("kubectl-ipam"), &arguments, &[], &log);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !page.output().contains("Ctrl-C") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    print_indented(&page.output())?;

    stay.announce()?;
    print_environment(control_plane)?;
    print("  kubectl ipam show rack-1 --namespace demo")?;
    print("  kubectl ipam who 10.0.0.10")?;
    print("  kubectl delete ipaddressclaim machine-0 --namespace demo")?;
    Ok(page)
}

/// Shows how the API server denies a command.
fn show_denied(control_plane: &ControlPlane, arguments: &[&str]) -> io::Result<()> {
    let error = control_plane
        .try_kubectl(arguments)
        .expect_err("the command is denied");
    // The error begins with the command.
    let command = format!("kubectl {}: ", arguments.join(" "));
    let answer = error.strip_prefix(&command).unwrap_or(&error);
    print_command("kubectl", arguments)?;
    print_indented(answer)
}

/// Shows the pool when its counts, which are written with a delay, show this number of addresses in
/// use.
fn show_pool(control_plane: &ControlPlane, used: u32) -> io::Result<()> {
    let get = ["-n", "demo", "get", "inclusterippools"];
    let path = "-o=jsonpath={.items[0].status.ipAddresses.used}";
    let deadline = Instant::now() + Duration::from_secs(10);
    while control_plane.kubectl(&[&get[..], &[path]].concat()) != used.to_string()
        && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    show(control_plane, &get)
}
