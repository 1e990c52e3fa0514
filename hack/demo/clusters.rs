//! `make demo-clusters`: two management clusters share one range of addresses through a registry in
//! NATS. The registry is stopped, and starts again. In a terminal all programs then keep running
//! until Enter is pressed, with `--stay` until Ctrl-C.

#![allow(clippy::expect_used, reason = "a failure ends the demo with a message")]

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use demo_steps::output::{print, print_command, print_indented, say};
use demo_steps::stay::{Stay, print_environment};
use demo_steps::{done, show, show_plugin};
use serde_json::Value;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::registry::Hub;

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
    - 10.40.0.0/27
  prefix: 16
  network: site
";

/// How long a step of a management cluster may take.
const TIMEOUT: Duration = Duration::from_secs(30);

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
    say("The network and the pool are the same in both. A block has four addresses:")?;
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
    west.show_waiting()?;

    say("The registry starts again, and the claims get their addresses:")?;
    let started = Instant::now();
    hub.start();
    west.wait_for(4..6);
    done(started)?;
    west.show_addresses()?;
    show_plugin(&west.control_plane, &["registry"])?;

    let stay = Stay::of_process();
    show_how_to_try(&west, &east, stay)?;
    stay.wait();

    west.manager.stop();
    east.manager.stop();
    say("Done. All programs have been stopped.")
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
            manager: Manager::start(&control_plane, &[]),
            control_plane,
        }
    }

    /// Creates the IPRegistry, and waits until it can be reached.
    fn create(&self, registry: &Value) {
        self.control_plane.kubectl_apply(&registry.to_string());
        self.control_plane.kubectl(&[
            "wait",
            "ipregistry/site",
            "--for=condition=Ready",
            "--timeout=30s",
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
                "--timeout=30s",
            ];
            self.control_plane.kubectl(&wait);
        }
    }

    fn show_addresses(&self) -> io::Result<()> {
        print(&format!("# {}", self.name))?;
        let resource = "ipaddresses.ipam.cluster.x-k8s.io";
        show(&self.control_plane, &["-n", "demo", "get", resource])
    }

    /// Shows why a claim waits, once it says that the registry cannot be reached.
    fn show_waiting(&self) -> io::Result<()> {
        let message = "-o=jsonpath={.items[*].status.conditions[?(@.status==\"False\")].message}";
        let get = ["-n", "demo", "get", "ipaddressclaims", message];
        let deadline = Instant::now() + TIMEOUT;
        let mut text = self.control_plane.kubectl(&get);
        while !text.contains("cannot be reached") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            text = self.control_plane.kubectl(&get);
        }
        print_command("kubectl", &get)?;
        print_indented(&text)
    }
}
