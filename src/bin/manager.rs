//! The in-cluster IPAM provider for Cluster API.

fn main() -> std::process::ExitCode {
    capi_ipam::app::main()
}
