//! The entry points of a program: its names, its flags, and its exit code.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser};

use super::{BoxError, Manager, try_run};
use crate::client::error_chain;
use crate::identity::Identity;
use crate::options::Options;

#[derive(Parser)]
#[command(args_override_self = true)]
// The name of the struct would be that of a group of flags, and could be that of the own flags as
// well.
#[group(skip)]
struct Flags<O: Args> {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    own: O,
}

fn parse<O: Args>(
    identity: &Identity,
    arguments: impl Iterator<Item = String>,
) -> Result<Flags<O>, clap::Error> {
    // A flattened struct sets the description of the command to its own.
    let command = Flags::<O>::command()
        .name(identity.name)
        .version(identity.full_version())
        .about(None::<&str>);
    let matches = command
        .long_about(None::<&str>)
        .try_get_matches_from(arguments)?;
    Flags::from_arg_matches(&matches)
}

/// Parses the flags and runs a manager until a signal. Prints an error in one line. `setup` adds
/// the controllers; it is called when the process becomes the leader.
pub fn main(
    identity: Identity,
    setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
) -> ExitCode {
    run::<()>(identity, async |manager, ()| setup(manager).await)
}

/// Like [`main`], for a program with own flags, beside those of every manager ([`Options`]).
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use capi_ipam_controller::manager::{self, Identity};
///
/// #[derive(clap::Args)]
/// struct Flags {
///     /// URL of the server that allocates addresses.
///     #[arg(long)]
///     backend_url: String,
/// }
///
/// fn main() -> ExitCode {
///     manager::run::<Flags>(Identity::new("my-provider", env!("CARGO_PKG_VERSION")), async |manager, flags| {
///         tracing::info!(url = flags.backend_url, "allocating addresses");
///         manager.add("a background task", std::future::pending());
///         Ok(())
///     })
/// }
/// ```
pub fn run<O: Args>(
    identity: Identity,
    setup: impl AsyncFnOnce(&mut Manager, &O) -> Result<(), BoxError>,
) -> ExitCode {
    let services = async |manager: &mut Manager, _: &O| {
        manager.options.diagnostics.warn_without_certificate();
        Ok(())
    };
    run_with_services(identity, services, setup)
}

/// Like [`run`]. `services` adds tasks that run from the start to the end of the process, on
/// standbys too, such as a server of metrics over TLS.
pub fn run_with_services<O: Args>(
    identity: Identity,
    services: impl AsyncFnOnce(&mut Manager, &O) -> Result<(), BoxError>,
    setup: impl AsyncFnOnce(&mut Manager, &O) -> Result<(), BoxError>,
) -> ExitCode {
    match parse::<O>(&identity, std::env::args()) {
        Ok(Flags { options, own }) => run_with_options(
            identity,
            options,
            async |manager| services(manager, &own).await,
            async |manager| setup(manager, &own).await,
        ),
        Err(error) => print_usage(&error),
    }
}

/// Like [`run_with_services`], for a program that parses its flags itself.
pub fn run_with_options(
    identity: Identity,
    options: Options,
    services: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
    setup: impl AsyncFnOnce(&mut Manager) -> Result<(), BoxError>,
) -> ExitCode {
    match try_run(identity, options, services, setup) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {}", error_chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Prints in one line what is wrong with the flags; or the help, if it was requested. Returns the
/// exit code.
pub fn print_usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "{line} (see --help)");
        return ExitCode::from(2);
    }
    let _ = error.print();
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    mod own {
        /// The program may use the names of this crate.
        #[derive(clap::Args)]
        pub(super) struct Options {
            /// A flag.
            #[arg(long)]
            pub(super) colour: String,
            #[command(flatten)]
            pub(super) more: Flags,
        }

        #[derive(clap::Args)]
        pub(super) struct Flags {
            /// Another flag.
            #[arg(long)]
            pub(super) size: u8,
        }
    }

    const IDENTITY: Identity = Identity::new("my-provider", "7.1.2");

    /// Flags of the test.
    #[derive(Args)]
    struct OwnFlags {
        /// A flag.
        #[arg(long, default_value_t = 1)]
        size: u8,
    }

    fn parse_own(arguments: &[&str]) -> Result<Flags<OwnFlags>, clap::Error> {
        parse(
            &IDENTITY,
            ["program"].iter().chain(arguments).map(ToString::to_string),
        )
    }

    #[test]
    fn lease_has_the_name_of_the_program() {
        assert_eq!(
            (IDENTITY.lease, IDENTITY.with_lease("other").lease),
            ("my-provider", "other")
        );
        assert_eq!(IDENTITY.user_agent(), "my-provider/7.1.2");
    }

    #[test]
    fn version_is_that_of_the_program() {
        let text = parse_own(&["--version"]).err().unwrap().to_string();
        assert_eq!(text, "my-provider 7.1.2\n");
    }

    #[test]
    fn own_flags_can_have_any_name() {
        let arguments = ["program", "--colour=red", "--size=3"].map(str::to_owned);
        let flags: Flags<own::Options> = parse(&IDENTITY, arguments.into_iter()).unwrap();
        assert_eq!((flags.own.colour.as_str(), flags.own.more.size), ("red", 3));
    }

    #[test]
    fn own_flags_are_beside_the_common_ones() {
        let flags = parse_own(&["--size=3", "--concurrency=4", "--size=5"]).unwrap();
        assert_eq!((flags.own.size, flags.options.concurrency), (5, 4));
        assert!(parse_own(&["--colour=red"]).is_err());
        let help = parse_own(&["--help"]).err().unwrap().to_string();
        assert!(help.starts_with("Usage: program [OPTIONS]"), "{help}");
        assert!(
            help.contains("--size") && help.contains("--leader-elect"),
            "{help}"
        );
    }
}
