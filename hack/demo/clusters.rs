//! `make demo-clusters`: two management clusters share one range of addresses through a registry in
//! NATS. The registry is stopped, starts again, and is restored from a backup. A block is returned by one
//! management cluster, and taken by the other one. In a terminal all programs then keep running until
//! Enter is pressed, with `--stay` until Ctrl-C.

#![allow(clippy::expect_used, reason = "a failure ends the demo with a message")]

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use demo_steps::output::{print, print_command, print_indented, say};
use demo_steps::stay::{Stay, print_environment};
use demo_steps::{done, show, show_plugin};
use serde_json::Value;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::registry::{Backup, Hub};

/// The same in both management clusters.
const NETWORK: &str = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata:
  name: site
spec:
  namespaces:
    from: All
  blocks:
    registry: site
    size: 4
    spare: 0
    keepSeconds: 2
    quarantineSeconds: 5
";

/// The same in both management clusters.
const POOL: &str = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata:
  name: machines
  namespace: demo
spec:
  addresses:
    - 10.40.0.0/28
  prefix: 16
  network: site
";

/// How long a step of a management cluster may take.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What a claim says that waits for a block.
const ALL_TAKEN: &str = "other management clusters have all blocks";

/// Blocks are returned soon.
const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// A management cluster.
struct Cluster {
    name: &'static str,
    control_plane: ControlPlane,
    manager: Manager,
}

/// Ends without a word if nobody reads the output any longer, as in `make demo-clusters | head`. All
/// programs are stopped nevertheless.
fn main() -> io::Result<()> {
    match run() {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn run() -> io::Result<()> {
    say("Starting NATS, and two management clusters with an API server and the provider each …")?;
    let started = Instant::now();
    let mut hub = Hub::nats();
    create_bucket(&hub);
    let mut west = Cluster::start("west");
    let mut east = Cluster::start("east");
    done(started)?;

    say("Both get a registry. Only the clusterID differs:")?;
    print_registry(&hub.registry("west"))?;
    for cluster in [&west, &east] {
        cluster.create(&hub.registry(cluster.name));
    }
    say("The network and the pool are the same in both. There are four blocks of four addresses:")?;
    print(NETWORK)?;
    print(POOL)?;
    for cluster in [&west, &east] {
        cluster
            .control_plane
            .kubectl_apply("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: demo\n");
        cluster.control_plane.kubectl_apply(NETWORK);
        cluster.control_plane.kubectl_apply(POOL);
    }

    say("Each takes a block for its first claims, and allocates from it:")?;
    for cluster in [&west, &east] {
        cluster.bind(0..3);
        cluster.show_addresses()?;
    }
    show_plugin(&west.control_plane, &["registry"])?;

    say("The registry stops. Addresses of the blocks are allocated and released as before:")?;
    hub.stop();
    west.control_plane
        .kubectl(&["-n", "demo", "delete", "ipaddressclaim", "machine-0"]);
    west.bind(3..4);
    west.show_addresses()?;

    say("A claim that needs another block waits, and says why:")?;
    west.claim(4);
    west.claim(5);
    west.show_waiting("cannot be reached")?;

    say("The registry starts again, and the claims get their addresses:")?;
    let started = Instant::now();
    hub.start();
    west.wait_for(4..6);
    done(started)?;
    west.show_addresses()?;
    show_plugin(&west.control_plane, &["registry"])?;

    show_restore(&mut hub, &west, &mut east)?;
    show_return(&west, &east)?;

    let stay = Stay::of_process();
    show_how_to_try(&west, &east, stay)?;
    stay.wait();

    west.manager.stop();
    east.manager.stop();
    say("Done. All programs have been stopped.")
}

/// East takes a block after a backup of the registry, which is restored then.
fn show_restore(hub: &mut Hub, west: &Cluster, east: &mut Cluster) -> io::Result<()> {
    say("The registry is backed up. Then east takes the last block:")?;
    let backup = Backup::take(hub);
    east.bind(3..6);
    east.show_addresses()?;

    say("No block is left for the last claim of west:")?;
    for number in 6..9 {
        west.claim(number);
    }
    west.show_waiting(ALL_TAKEN)?;

    say(
        "The registry is restored, and shows this block as free. West waits until east has written again:",
    )?;
    east.manager.stop();
    backup.restore(hub);
    let condition = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}: {.status.conditions[?(@.type==\"Ready\")].message}";
    west.show_once(&["get", "ipregistry", "site", condition], "lost writes")?;

    say(
        "The manager of east starts, and writes the record of its block again. West waits for its second sign of life:",
    )?;
    let started = Instant::now();
    east.manager = Manager::start(&east.control_plane, &FLAGS);
    west.wait_for_registry();
    done(started)?;
    west.show_waiting(ALL_TAKEN)?;

    say("No address is in use twice:")?;
    west.show_addresses()?;
    east.show_addresses()?;
    let mut seen = BTreeSet::new();
    for address in [west.addresses(), east.addresses()].concat() {
        assert!(seen.insert(address.clone()), "{address} is in use twice");
    }
    Ok(())
}

/// East releases the addresses of a block, and west takes it.
fn show_return(west: &Cluster, east: &Cluster) -> io::Result<()> {
    say(
        "East releases the addresses of the block. It is returned, and after its quarantine west takes it:",
    )?;
    let started = Instant::now();
    let release = [
        "-n",
        "demo",
        "delete",
        "ipaddressclaim",
        "machine-4",
        "machine-5",
    ];
    show(&east.control_plane, &release)?;
    west.wait_for(8..9);
    done(started)?;
    west.show_addresses()?;
    show_plugin(&west.control_plane, &["registry"])
}

/// Prints what to try with the running programs.
fn show_how_to_try(west: &Cluster, east: &Cluster, stay: Stay) -> io::Result<()> {
    if stay == Stay::No {
        return Ok(());
    }
    stay.announce()?;
    print_environment(&west.control_plane)?;
    print("  kubectl ipam registry")?;
    print("  kubectl ipam registry check site")?;
    print("  kubectl ipam web")?;
    print("  kubectl delete ipaddressclaims --all --namespace demo")?;
    say("The other management cluster:")?;
    let kubeconfig = east.control_plane.kubeconfig().display();
    print(&format!("  export KUBECONFIG={kubeconfig}"))
}

/// Creates the bucket of the registry.
fn create_bucket(hub: &Hub) {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(hub.create_bucket());
}

/// Prints an IPRegistry as an operator writes it.
fn print_registry(registry: &Value) -> io::Result<()> {
    let text = serde_json::to_string_pretty(registry).expect("an object is JSON");
    print_indented(&text)
}

impl Cluster {
    fn start(name: &'static str) -> Self {
        let control_plane = ControlPlane::start(Options::default());
        Self {
            name,
            manager: Manager::start(&control_plane, &FLAGS),
            control_plane,
        }
    }

    /// Creates the IPRegistry, and waits until it can be reached.
    fn create(&self, registry: &Value) {
        self.control_plane.kubectl_apply(&registry.to_string());
        self.wait_for_registry();
    }

    fn wait_for_registry(&self) {
        self.control_plane.kubectl(&[
            "wait",
            "ipregistry/site",
            "--for=condition=Ready",
            "--timeout=180s",
        ]);
    }

    fn claim(&self, number: u32) {
        let claim = format!(
            "apiVersion: ipam.cluster.x-k8s.io/v1beta2\nkind: IPAddressClaim\nmetadata:\n  name: machine-{number}\n  \
             namespace: demo\nspec:\n  poolRef:\n    apiGroup: ipam.cluster.x-k8s.io\n    kind: InClusterIPPool\n    \
             name: machines\n"
        );
        self.control_plane.kubectl_apply(&claim);
    }

    /// Creates claims and waits for their addresses.
    fn bind(&self, numbers: std::ops::Range<u32>) {
        for number in numbers.clone() {
            self.claim(number);
        }
        self.wait_for(numbers);
    }

    fn wait_for(&self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            let name = format!("ipaddressclaim/machine-{number}");
            let wait = [
                "-n",
                "demo",
                "wait",
                &name,
                "--for=condition=Ready",
                "--timeout=180s",
            ];
            self.control_plane.kubectl(&wait);
        }
    }

    fn show_addresses(&self) -> io::Result<()> {
        print(&format!("# {}", self.name))?;
        let resource = "ipaddresses.ipam.cluster.x-k8s.io";
        show(&self.control_plane, &["-n", "demo", "get", resource])
    }

    /// The addresses in use.
    fn addresses(&self) -> Vec<String> {
        let resource = "ipaddresses.ipam.cluster.x-k8s.io";
        let addresses = "-o=jsonpath={.items[*].spec.address}";
        let get = ["-n", "demo", "get", resource, addresses];
        let text = self.control_plane.kubectl(&get);
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Shows why a claim waits, once it says so.
    fn show_waiting(&self, part: &str) -> io::Result<()> {
        let message = "-o=jsonpath={.items[*].status.conditions[?(@.status==\"False\")].message}";
        self.show_once(&["-n", "demo", "get", "ipaddressclaims", message], part)
    }

    /// Shows what kubectl prints, once it contains this text.
    fn show_once(&self, arguments: &[&str], part: &str) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let mut text = self.control_plane.kubectl(arguments);
        while !text.contains(part) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            text = self.control_plane.kubectl(arguments);
        }
        print_command("kubectl", arguments)?;
        print_indented(&text)
    }
}
