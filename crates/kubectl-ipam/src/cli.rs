//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use capi_ipam_controller::options::parse_duration;
use capi_ipam_provider::api::parse_quarantine;
use capi_ipam_rollout::MAX_REPLICAS;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

/// Shows IP address pools of Cluster API, their addresses, and who holds them.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-ipam",
    bin_name = "kubectl ipam",
    version,
    after_help = "Flags of the connection and of impersonation are listed by: kubectl ipam options\n\nExit codes: 0 success, 1 doctor or registry check has errors or warnings, plan finds a pool short of addresses, or convert has problems, 2 invalid command line, \
                  3 cluster unreachable, 4 missing permission (the output may be incomplete), 5 missing definition, \
                  6 pool or address not found, 7 other failure, 8 incomplete manifests."
)]
pub struct Cli {
    /// Flags of all commands.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of all commands.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Path of the kubeconfig.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace; by default that of the context.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, global = true, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Output format.
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub output: Format,
    /// Disable colors. They are also disabled by NO_COLOR and without a terminal.
    #[arg(long, global = true)]
    pub no_color: bool,
    /// User to impersonate: the name of a user, or system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "as", global = true, value_name = "USER", help_heading = CONNECTION, hide = true)]
    pub impersonate: Option<String>,
    /// Group to impersonate; can be repeated.
    #[arg(
        long = "as-group", global = true, value_name = "GROUP", requires = "impersonate", help_heading = CONNECTION, hide = true
    )]
    pub impersonate_groups: Vec<String>,
    /// UID to impersonate.
    #[arg(long = "as-uid", global = true, value_name = "UID", requires = "impersonate", help_heading = CONNECTION, hide = true)]
    pub impersonate_uid: Option<String>,
    /// Cluster of the kubeconfig, instead of that of the context.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig, instead of that of the context.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide = true)]
    pub user: Option<String>,
    /// Address and port of the API server.
    #[arg(short, long, global = true, value_name = "URL", help_heading = CONNECTION, hide = true)]
    pub server: Option<String>,
    /// Bearer token, instead of the credentials of the user.
    #[arg(long, global = true, value_name = "TOKEN", help_heading = CONNECTION, hide = true)]
    pub token: Option<String>,
    /// How long a request may take, for example 30s or 2m. A number without a unit is in seconds; 0
    /// is no limit.
    #[arg(
        long, global = true, value_name = "DURATION", default_value = "10s", value_parser = timeout,
        help_heading = CONNECTION, hide = true
    )]
    pub request_timeout: Duration,
    /// File with the certificate of the authority of the API server.
    #[arg(long, global = true, value_name = "FILE", help_heading = CONNECTION, hide = true)]
    pub certificate_authority: Option<PathBuf>,
    /// Do not verify the certificate of the API server: connections are not secure.
    #[arg(long, global = true, conflicts_with = "certificate_authority", help_heading = CONNECTION, hide = true)]
    pub insecure_skip_tls_verify: bool,
    /// Name in the certificate of the API server; by default the name in its address.
    #[arg(long, global = true, value_name = "NAME", help_heading = CONNECTION, hide = true)]
    pub tls_server_name: Option<String>,
    /// Level of the log on the standard error: from 6 on each request, from 8 on with details.
    #[arg(short = 'v', long = "v", global = true, value_name = "LEVEL", default_value_t, help_heading = CONNECTION, hide = true)]
    pub verbosity: u8,
}

impl Global {
    /// The namespace whose objects a command lists; `None` for all namespaces. `own` is that of the
    /// caller.
    pub(crate) fn listed_namespace<'a>(&self, own: &'a str) -> Option<&'a str> {
        (!self.all_namespaces).then_some(own)
    }
}

/// Heading of the flags for the connection.
const CONNECTION: &str = "Connection";

/// The help of the flags that all commands have and that their own help leaves out.
pub(crate) fn options() -> String {
    let mut root = Cli::command().help_template("{options}");
    root = root.mut_args(|flag| {
        let is_shown = flag.get_help_heading() == Some(CONNECTION);
        flag.hide(!is_shown)
    });
    root.render_long_help().to_string()
}

/// A duration of a flag of kubectl, in which a number without a unit is in seconds.
fn timeout(text: &str) -> Result<Duration, String> {
    text.parse()
        .map(Duration::from_secs)
        .or_else(|_| parse_duration(text))
}

/// Flags of commands that list objects.
#[derive(Args, Clone, Debug, Default)]
pub struct ListFlags {
    /// Label selector of the listed objects, for example environment=production.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    pub selector: Option<String>,
    /// Do not print the header of a table.
    #[arg(long)]
    pub no_headers: bool,
}

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for 80 columns.
    #[default]
    Table,
    /// Text with all columns.
    Wide,
    /// JSON, one document.
    Json,
    /// YAML.
    Yaml,
    /// One resource name per line, without the namespace, as kubectl prints it.
    Name,
}

/// Flags of `unreserve`.
#[derive(Args, Clone, Debug)]
pub struct WriteFlags {
    /// `server` lets the API server check the change, without making it. `client` only prints it.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub dry_run: DryRun,
    /// Do not ask before the deletion of a reservation whose address is in use or cools down.
    #[arg(short, long)]
    pub yes: bool,
}

/// Flags of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct WaitFlags {
    /// Wait until the provider works: no part has an error but for pools and claims.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, for example 30s or 5m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = timeout, requires = "wait")]
    pub wait_duration: Duration,
}

/// Whether a command changes objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Objects are changed.
    #[default]
    None,
    /// Nothing is sent to the API server.
    Client,
    /// The API server checks the change, but does not make it.
    Server,
}

impl DryRun {
    /// Whether nothing is changed.
    pub fn is_dry_run(self) -> bool {
        self != Self::None
    }
}

/// A provider whose objects are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OtherProvider {
    /// The IP address manager of Metal3.
    Metal3,
}

/// How a registry is opened, if not as the manager does.
#[derive(Args, Clone, Debug, Default)]
pub struct RegistryAccess {
    /// Kubeconfig of a registry at another API server, instead of that in the Secret. It contains
    /// certificates and token.
    #[arg(long, value_name = "FILE")]
    pub hub_kubeconfig: Option<PathBuf>,
    /// URL of a server of a registry in NATS, instead of those of the IPRegistry, for example that of
    /// a forwarded port; can be repeated.
    #[arg(long, value_name = "URL")]
    pub nats_server: Vec<String>,
}

/// Arguments of `registry check`.
#[derive(Args, Clone, Debug)]
pub struct CheckFlags {
    /// The network.
    pub network: String,
    /// Name of the IPRegistry; by default that of the network, or the only one.
    #[arg(long, value_name = "NAME")]
    pub registry: Option<String>,
    /// Number of addresses or prefixes of a block; by default that of the network, or that of the
    /// other management clusters.
    #[arg(long, value_name = "NUMBER")]
    pub size: Option<u64>,
    /// How the registry is opened.
    #[command(flatten)]
    pub access: RegistryAccess,
}

/// Arguments of `registry return`.
#[derive(Args, Clone, Debug)]
pub struct ReturnFlags {
    /// The block, such as 10.0.0.64/26.
    pub block: String,
    /// The network; by default the only one in which this management cluster has the block.
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// `server` lets the API server check the change, `client` does not send it.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub dry_run: DryRun,
}

/// Arguments of the commands that change records of a registry.
#[derive(Args, Clone, Debug)]
pub struct RecordFlags {
    /// Name of the IPRegistry; by default the only one.
    #[arg(long, value_name = "NAME")]
    pub registry: Option<String>,
    /// `client` prints what would be changed. A registry has no `server`.
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub dry_run: DryRun,
    /// How the registry is opened.
    #[command(flatten)]
    pub access: RegistryAccess,
}

/// A subcommand of `registry`.
#[derive(Debug, Subcommand)]
pub enum RegistryCommand {
    /// List the registries, the management clusters that use them, and who has how many blocks.
    List {
        /// Only these registries.
        names: Vec<String>,
        /// Flags of lists.
        #[command(flatten)]
        list: ListFlags,
        /// How the registry is opened.
        #[command(flatten)]
        access: RegistryAccess,
    },
    /// Show who has the blocks of the addresses in use of a network: free blocks are taken first, a
    /// block of another management cluster is a conflict.
    Check(CheckFlags),
    /// Return a block of this management cluster without an address in use, before
    /// spec.blocks.keepSeconds of its network is over.
    Return(ReturnFlags),
    /// A command that changes records.
    #[command(flatten)]
    Change(RecordCommand),
}

/// A command that changes the records of a registry.
#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    /// Delete the records of a management cluster that no longer exists: others can take its blocks.
    Release {
        /// Identity of the management cluster in the registry.
        #[arg(long, value_name = "ID")]
        cluster_id: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// How the records are changed.
        #[command(flatten)]
        records: RecordFlags,
    },
    /// Take over the blocks of a management cluster that no longer exists, and whose clusterID this one has:
    /// it was built again.
    Adopt {
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// How the records are changed.
        #[command(flatten)]
        records: RecordFlags,
    },
    /// Write the size and the quarantine of the blocks of a network into the registry, before a
    /// management cluster does.
    CreateNetwork {
        /// The network.
        network: String,
        /// Number of addresses or prefixes of a block: a power of two.
        #[arg(long, value_name = "NUMBER")]
        size: u64,
        /// Seconds after the return of a block during which no other management cluster takes it; by
        /// default a week.
        #[arg(long, value_name = "SECONDS")]
        quarantine_seconds: Option<i64>,
        /// How the record is written.
        #[command(flatten)]
        records: RecordFlags,
    },
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the pools of all kinds, with their occupancy.
    #[command(visible_aliases = ["pool", "list", "get"], after_help = "Examples:\n  kubectl ipam pools\n  kubectl ipam pools -A -o wide")]
    Pools {
        /// Only these pools: NAME, NAMESPACE/NAME or KIND/NAME.
        names: Vec<String>,
        /// Flags of lists.
        #[command(flatten)]
        list: ListFlags,
    },
    /// List the networks, with their pools that join or leave.
    #[command(visible_aliases = ["network"], after_help = "Examples:\n  kubectl ipam networks\n  kubectl ipam networks backbone -o json")]
    Networks {
        /// Only these networks.
        names: Vec<String>,
        /// Flags of lists.
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show who holds an address or a prefix, or which addresses a claim, machine or Cluster has.
    #[command(
        after_help = "Examples:\n  kubectl ipam who 10.0.0.7\n  kubectl ipam who machine-1 -n team-a"
    )]
    Who {
        /// An address such as 10.0.0.7, a prefix such as fd00::/64, or the name of a claim, machine
        /// or Cluster.
        target: String,
    },
    /// Show who had an address, and when, according to an allocation log of the manager. No cluster
    /// is read.
    #[command(
        after_help = "Examples:\n  kubectl ipam history 10.0.0.7 --from allocations.log\n  zcat allocations.*.gz | kubectl ipam history 10.0.0.7 --from -"
    )]
    History {
        /// An address such as 10.0.0.7, or a prefix such as fd00::/64.
        address: String,
        /// File with the lines of the log; `-` is the standard input.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
    /// List claims.
    #[command(visible_aliases = ["claim"], after_help = "Examples:\n  kubectl ipam claims --waiting -A\n  kubectl ipam claims --pool team-a/web")]
    Claims {
        /// Only these claims: NAME or NAMESPACE/NAME.
        names: Vec<String>,
        /// Only claims without an address.
        #[arg(long)]
        waiting: bool,
        /// Only claims of this pool: NAME, NAMESPACE/NAME or KIND/NAME.
        #[arg(long, value_name = "POOL")]
        pool: Option<String>,
        /// Only claims of this Cluster of Cluster API.
        #[arg(long, value_name = "NAME")]
        cluster_name: Option<String>,
        /// Print what changes until interrupted.
        #[arg(short, long)]
        watch: bool,
        /// Flags of lists.
        #[command(flatten)]
        list: ListFlags,
    },
    /// List the Clusters of Cluster API with their addresses: those that a ClusterAddressing has
    /// allocated, those of the machines, and slices.
    #[command(visible_aliases = ["cluster"], after_help = "Examples:\n  kubectl ipam clusters -A\n  kubectl ipam clusters alpha -o json")]
    Clusters {
        /// Only Clusters with these names.
        names: Vec<String>,
    },
    /// Show whether the pools have room for a rollout of each MachineDeployment, MachineSet, control
    /// plane and MachinePool, with the maximum of the autoscaler.
    #[command(
        after_help = "Examples:\n  kubectl ipam plan -A\n  kubectl ipam plan --machine-deployment workers --replicas 20"
    )]
    Plan {
        /// Only this MachineDeployment.
        #[arg(long, value_name = "NAME")]
        machine_deployment: Option<String>,
        /// Its number of replicas, instead of that in the cluster and the maximum of the autoscaler.
        #[arg(
            long, value_name = "NUMBER", requires = "machine_deployment",
            value_parser = clap::value_parser!(u64).range(..=MAX_REPLICAS)
        )]
        replicas: Option<u64>,
    },
    /// Show a pool: ranges, counts, the next addresses, a map of its addresses, holders, and waiting claims.
    #[command(
        after_help = "Examples:\n  kubectl ipam show web -n team-a\n  kubectl ipam show GlobalIP/datacenter -o wide"
    )]
    Show {
        /// The pool: NAME, NAMESPACE/NAME or KIND/NAME.
        pool: String,
    },
    /// Show the state of each part of the provider, and what is wrong with it, with pools and with
    /// claims that wait; with the repair.
    ///
    /// Without --namespace and without a pool, everything is reported. With them, findings about
    /// other namespaces or pools are left out; those about the provider are not.
    #[command(
        after_help = "Examples:\n  kubectl ipam doctor\n  kubectl ipam doctor --wait --wait-duration 2m"
    )]
    Doctor {
        /// Only this pool, its network and its claims: NAME, NAMESPACE/NAME or KIND/NAME.
        pool: Option<String>,
        /// Only errors.
        #[arg(long)]
        errors: bool,
        /// Flags of commands that wait.
        #[command(flatten)]
        wait: WaitFlags,
    },
    #[cfg(feature = "web")]
    /// Serve a web page on this machine: pools, a map of their addresses, search, and waiting
    /// claims.
    #[command(
        after_help = "Examples:\n  kubectl ipam web\n  kubectl ipam web --port 8080 --no-open"
    )]
    Web {
        /// Port on 127.0.0.1; 0 selects a free one.
        #[arg(long, default_value_t, value_name = "PORT")]
        port: u16,
        /// Do not open the browser.
        #[arg(long)]
        no_open: bool,
    },
    /// Reserve an address that is not in use: exclude it from a pool, or keep it for a claim.
    #[command(
        after_help = "Examples:\n  kubectl ipam reserve web 10.0.0.7\n  kubectl ipam reserve web 10.0.0.7 --for team-a/load-balancer"
    )]
    Reserve {
        /// The pool: NAME, NAMESPACE/NAME or KIND/NAME.
        pool: String,
        /// An address or a prefix; by default the next one that the pool allocates.
        address: Option<String>,
        /// The claim that gets the address: NAMESPACE/NAME, or NAME in the namespace of the pool.
        /// Without it, no claim gets the address.
        #[arg(long = "for", value_name = "CLAIM")]
        claim: Option<String>,
        /// `server` lets the API server check the reservation, without creating it. `client` only
        /// prints it.
        #[arg(long, value_enum, default_value_t, value_name = "MODE")]
        dry_run: DryRun,
    },
    /// Delete the reservation of an address.
    #[command(after_help = "Examples:\n  kubectl ipam unreserve web 10.0.0.7")]
    Unreserve {
        /// The pool: NAME, NAMESPACE/NAME or KIND/NAME.
        pool: String,
        /// An address or a prefix.
        address: String,
        /// Flags of commands that write.
        #[command(flatten)]
        flags: WriteFlags,
    },
    /// Quarantine an address at which another host answers: no claim gets it before the end. An address
    /// in use stays with its claim, and is quarantined when the claim is deleted.
    #[command(
        after_help = "Examples:\n  kubectl ipam quarantine 10.0.0.7 --reason 'ARP reply of an unknown host'\n  kubectl ipam quarantine 10.0.0.7 --pool web --for 72h"
    )]
    Quarantine {
        /// An address or a prefix.
        address: String,
        /// The pool, if several contain the address: NAME, NAMESPACE/NAME or KIND/NAME.
        #[arg(long)]
        pool: Option<String>,
        /// How long no claim gets the address, from 1s to 720h.
        #[arg(long = "for", value_name = "DURATION", default_value = "24h", value_parser = parse_quarantine)]
        duration: SignedDuration,
        /// What was observed.
        #[arg(long, default_value = "", value_name = "TEXT")]
        reason: String,
        /// `server` lets the API server check the change, without making it. `client` only prints it.
        #[arg(long, value_enum, default_value_t, value_name = "MODE")]
        dry_run: DryRun,
    },
    /// Show the registries of blocks that management clusters share; check a network before it shares
    /// its blocks; release the blocks of a management cluster that is gone.
    #[command(
        after_help = "Examples:\n  kubectl ipam registry\n  kubectl ipam registry check region"
    )]
    Registry {
        /// The subcommand; by default `list`.
        #[command(subcommand)]
        command: Option<RegistryCommand>,
    },
    /// Write pools and the reservations of users in them as manifests.
    #[command(after_help = "Examples:\n  kubectl ipam export -n team-a > pools.yaml")]
    Export {
        /// Only these pools and the reservations in them: NAME, NAMESPACE/NAME or
        /// KIND/NAME.
        pools: Vec<String>,
    },
    /// Write reservations for addresses that Machines report and no IPAddress has, as manifests:
    /// each is for the claim that will request the address.
    #[command(
        after_help = "Examples:\n  kubectl ipam adopt > adopted.yaml\n  kubectl ipam adopt --claim-name '{machine}-0-0' | kubectl apply -f -"
    )]
    Adopt {
        /// Name of the claim of a Machine that has none yet. {machine}, {infrastructure} and {pool}
        /// stand for the names of the Machine, of its infrastructure machine, and of the pool.
        #[arg(long, value_name = "NAME")]
        claim_name: Option<String>,
    },
    /// Write the pools, reservations and networks of a table, or what another provider has in the
    /// cluster, as manifests.
    ///
    /// For a table, no cluster is read. Nothing is written if a row or a pool is wrong.
    #[command(
        after_help = "Examples:\n  kubectl ipam convert racks.csv | kubectl apply -f -\n  kubectl ipam convert --from metal3 -A > pools.yaml"
    )]
    Convert {
        /// A table in CSV or TSV; `-` is the standard input.
        #[arg(required_unless_present = "from")]
        file: Option<PathBuf>,
        /// The provider whose pools and addresses in the cluster are converted.
        #[arg(long, value_enum, value_name = "PROVIDER", conflicts_with = "file")]
        from: Option<OtherProvider>,
        /// Value of the label ipam.cluster.x-k8s.io/source of the objects; by default the name of
        /// the file without its extension, or that of the provider.
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
    /// List the flags of the connection, which all commands have.
    Options,
    /// Print the version of this program.
    Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_a_command_is_about_the_command() {
        let mut root = Cli::command();
        root.build();
        for command in root.get_subcommands() {
            let name = command.get_name();
            let help = command.clone().render_help().to_string();
            assert!(!help.contains("--as-group"), "{name}: {help}");
            let is_plain = ["version", "options", "help"].contains(&name);
            assert!(is_plain || help.contains("Examples:"), "{name}: {help}");
        }
        let options = options();
        for flag in ["--as-group", "--server", "--request-timeout"] {
            assert!(options.contains(flag), "{options}");
        }
        assert!(!options.contains("--output"), "{options}");
    }

    #[test]
    fn pools_have_the_names_that_are_typed() {
        for word in ["pool", "list", "get"] {
            let line = Cli::try_parse_from(["kubectl-ipam", word, "web"]).unwrap();
            assert!(matches!(line.command, Command::Pools { .. }), "{word}");
        }
    }

    #[test]
    fn exit_codes_are_a_list() {
        let help = Cli::command().render_help().to_string();
        let one = "1 doctor or registry check has errors or warnings, plan finds a pool short of addresses, or convert \
                   has problems, 2 invalid";
        assert!(help.contains(one), "{help}");
    }

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
