//! The connection to the API server: the kubeconfig, and the flags that override it, as kubectl has
//! them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use capi_ipam_controller::client::error_chain;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::failure::{cause, one_line};
use crate::cli::Global;
use crate::error::Error;

/// The variable with the list of kubeconfigs.
const KUBECONFIG: &str = "KUBECONFIG";

/// Reads the kubeconfig, and applies the flags.
pub(super) async fn config(flags: &Global) -> Result<Config, Error> {
    let mut config = match kubeconfig(flags)? {
        Some(file) => from_file(file, flags).await?,
        None => without_file(flags)?,
    };
    apply(flags, &mut config)?;
    Ok(config)
}

/// The namespace of the flags, or that of the context of the kubeconfig, which is not used otherwise.
pub(crate) fn namespace(flags: &Global) -> String {
    if let Some(namespace) = &flags.namespace {
        return namespace.clone();
    }
    let file = kubeconfig(flags).ok().flatten().unwrap_or_default();
    let current = flags.context.as_ref().or(file.current_context.as_ref());
    let context = file.contexts.iter().find(|it| Some(&it.name) == current);
    let namespace = context.and_then(|it| it.context.as_ref()?.namespace.clone());
    namespace.unwrap_or_else(|| "default".to_owned())
}

/// The names of the entries of the kubeconfig.
#[derive(Debug, Default)]
pub(crate) struct KubeconfigNames {
    pub(crate) contexts: Vec<String>,
    pub(crate) clusters: Vec<String>,
    pub(crate) users: Vec<String>,
}

impl KubeconfigNames {
    /// Reads the names; none without a kubeconfig.
    pub(crate) fn read(flags: &Global) -> Result<Self, Error> {
        let Some(file) = kubeconfig(flags)? else {
            return Ok(Self::default());
        };
        Ok(Self {
            contexts: file.contexts.into_iter().map(|it| it.name).collect(),
            clusters: file.clusters.into_iter().map(|it| it.name).collect(),
            users: file.auth_infos.into_iter().map(|it| it.name).collect(),
        })
    }
}

/// A kubeconfig that cannot be used, in the words of kubectl.
fn failed(error: &KubeconfigError) -> Error {
    let reason = match error {
        KubeconfigError::LoadContext(name) => {
            return missing_entry("context", name);
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            return missing_entry("cluster", name);
        }
        KubeconfigError::CurrentContextNotSet => {
            "the kubeconfig has no current context: set --context".to_owned()
        }
        KubeconfigError::ReadConfig(error, path) => {
            format!(
                "the kubeconfig {} cannot be read: {}",
                path.display(),
                cause(error)
            )
        }
        KubeconfigError::Parse(error) => format!("the kubeconfig is not valid: {error}"),
        other => format!("the kubeconfig cannot be used: {}", error_chain(other)),
    };
    Error::Kubeconfig {
        reason: one_line(&reason),
    }
}

fn missing_entry(entry: &'static str, name: &str) -> Error {
    Error::NoEntry {
        entry,
        name: name.to_owned(),
    }
}

/// The kubeconfig of the flag, those of the variable, or that of the home directory. `None` if none
/// exists.
fn kubeconfig(flags: &Global) -> Result<Option<Kubeconfig>, Error> {
    if let Some(path) = &flags.kubeconfig {
        let file = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
        return Ok(Some(file));
    }
    let list = std::env::var_os(KUBECONFIG).filter(|list| !list.is_empty());
    let paths: Vec<PathBuf> = match &list {
        Some(list) => std::env::split_paths(list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        None => std::env::home_dir()
            .map(|home| home.join(".kube").join("config"))
            .into_iter()
            .collect(),
    };
    merge(&paths).map_err(|error| failed(&error))
}

/// Merges files; the first one that sets a value wins. Files that do not exist are passed over, as
/// by kubectl.
fn merge(paths: &[PathBuf]) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths {
        let Some(file) = read(path)? else { continue };
        merged = Some(match merged {
            Some(before) => before.merge(file)?,
            None => file,
        });
    }
    Ok(merged)
}

fn read(path: &Path) -> Result<Option<Kubeconfig>, KubeconfigError> {
    match Kubeconfig::read_from(path) {
        Ok(file) => Ok(Some(file)),
        Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn from_file(file: Kubeconfig, flags: &Global) -> Result<Config, Error> {
    // Without this check, a user that does not exist would be an anonymous one.
    if let Some(user) = &flags.user
        && !file.auth_infos.iter().any(|known| known.name == *user)
    {
        return Err(missing_entry("user", user));
    }
    let has_context = flags.context.is_some()
        || file
            .current_context
            .as_ref()
            .is_some_and(|name| !name.is_empty());
    if !has_context && flags.server.is_some() {
        return without_file(flags);
    }
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| failed(&error))
}

/// The server of the flag, or the one of the pod in which the program runs.
fn without_file(flags: &Global) -> Result<Config, Error> {
    for (name, value) in [
        ("context", &flags.context),
        ("cluster", &flags.cluster),
        ("user", &flags.user),
    ] {
        if let Some(value) = value {
            return Err(missing_entry(name, value));
        }
    }
    match &flags.server {
        Some(server) => Ok(Config::new(url(server)?)),
        None => Config::incluster().map_err(|_| Error::NotConfigured),
    }
}

fn url(server: &str) -> Result<http::Uri, Error> {
    let text = if server.contains("://") {
        server.to_owned()
    } else {
        format!("https://{server}")
    };
    text.parse()
        .map_err(|error| Error::Argument(format!("--server: {server} is not a URL: {error}")))
}

/// Applies the flags that override the kubeconfig.
fn apply(flags: &Global, config: &mut Config) -> Result<(), Error> {
    if let Some(server) = &flags.server {
        config.cluster_url = url(server)?;
    }
    if let Some(path) = &flags.certificate_authority {
        // The client would report an unreadable file only with its first request.
        std::fs::metadata(path).map_err(|error| {
            Error::Argument(format!(
                "--certificate-authority: {}: {error}",
                path.display()
            ))
        })?;
        config.root_cert = None;
        config.root_cert_file = Some(path.clone());
    }
    if flags.insecure_skip_tls_verify {
        config.accept_invalid_certs = true;
        config.root_cert = None;
        config.root_cert_file = None;
    }
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    let user = &mut config.auth_info;
    if let Some(token) = &flags.token {
        // A client certificate would take precedence over the token.
        *user = kube::config::AuthInfo {
            token: Some(token.clone().into()),
            ..kube::config::AuthInfo::default()
        };
    }
    if let Some(name) = &flags.impersonate {
        user.impersonate = Some(name.clone());
    }
    if !flags.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(flags.impersonate_groups.clone());
    }
    if let Some(uid) = &flags.impersonate_uid {
        user.impersonate_uid = Some(uid.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn file(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        let text = format!(
            "{{current-context: {name}, clusters: [{{name: {name}, cluster: {{server: 'https://{name}:6443', \
             certificate-authority-data: ''}}}}], users: [{{name: {name}, user: {{username: u, password: p}}}}], \
             contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}, namespace: n-{name}}}}}]}}"
        );
        std::fs::write(&path, text.replace(", certificate-authority-data: ''", "")).unwrap();
        path
    }

    async fn config_of(path: &Path, flags: &[&str]) -> Result<Config, Error> {
        let start = [
            "kubectl-ipam",
            "pools",
            "--kubeconfig",
            path.to_str().unwrap(),
        ];
        config(
            &Cli::try_parse_from([&start, flags].concat())
                .unwrap()
                .global,
        )
        .await
    }

    #[test]
    fn absent_kubeconfigs_of_a_list_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let (a, b) = (file(folder.path(), "a"), file(folder.path(), "b"));
        let merged = merge(&[absent.clone(), b, absent.clone(), a])
            .unwrap()
            .unwrap();
        assert_eq!(merged.current_context.as_deref(), Some("b"));
        assert_eq!(
            merged
                .clusters
                .iter()
                .map(|it| it.name.as_str())
                .collect::<Vec<_>>(),
            ["b", "a"]
        );
        assert!(
            merge(&[absent.clone(), absent]).unwrap().is_none(),
            "no file exists"
        );
        assert!(
            merge(&[folder.path().to_owned()]).is_err(),
            "a file that cannot be read is an error"
        );
    }

    #[tokio::test]
    async fn each_flag_overrides_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (file(folder.path(), "a"), file(folder.path(), "b"));
        let both = folder.path().join("both");
        let merged = merge(&[a, b]).unwrap().unwrap();
        std::fs::write(&both, serde_json::to_string(&merged).unwrap()).unwrap();

        let plain = config_of(&both, &[]).await.unwrap();
        assert_eq!(
            (plain.cluster_url.host(), plain.default_namespace.as_str()),
            (Some("a"), "n-a")
        );
        let other = config_of(&both, &["--context=b"]).await.unwrap();
        assert_eq!(
            (other.cluster_url.host(), other.default_namespace.as_str()),
            (Some("b"), "n-b")
        );
        let cluster = config_of(&both, &["--cluster=b"]).await.unwrap();
        assert_eq!(
            (
                cluster.cluster_url.host(),
                cluster.default_namespace.as_str()
            ),
            (Some("b"), "n-a")
        );
        assert!(config_of(&both, &["--user=b"]).await.is_ok());
        assert!(
            config_of(&both, &["--user=none"])
                .await
                .unwrap_err()
                .to_string()
                .contains("user \"none\" does not exist")
        );

        let server = config_of(
            &both,
            &["--server=example.com:443", "--tls-server-name=api"],
        )
        .await
        .unwrap();
        assert_eq!(
            server.cluster_url.to_string(),
            "https://example.com/".replace("com/", "com:443/")
        );
        assert_eq!(server.tls_server_name.as_deref(), Some("api"));
        assert!(
            config_of(&both, &["--insecure-skip-tls-verify"])
                .await
                .unwrap()
                .accept_invalid_certs
        );
        let authority = format!("--certificate-authority={}", both.display());
        assert_eq!(
            config_of(&both, &[&authority])
                .await
                .unwrap()
                .root_cert_file
                .as_deref(),
            Some(both.as_path())
        );
        assert!(
            config_of(&both, &["--certificate-authority=/absent"])
                .await
                .is_err()
        );

        let token = config_of(&both, &["--token=secret"])
            .await
            .unwrap()
            .auth_info;
        assert!(
            token.token.is_some() && token.username.is_none(),
            "the token replaces the other credentials"
        );
        let flags = [
            "--as=jane",
            "--as-group=dev",
            "--as-group=ops",
            "--as-uid=7",
        ];
        let user = config_of(&both, &flags).await.unwrap().auth_info;
        assert_eq!(
            (user.impersonate.as_deref(), user.impersonate_uid.as_deref()),
            (Some("jane"), Some("7"))
        );
        assert_eq!(user.impersonate_groups.unwrap_or_default(), ["dev", "ops"]);
    }
}
