//! The program `kubectl-ipam`, which kubectl runs as `kubectl ipam`.

fn main() -> std::process::ExitCode {
    kubectl_ipam::main()
}
