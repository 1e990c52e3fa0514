//! What the content of a kubeconfig may contain that somebody else has written, and what an error
//! may show of it.

use kube::config::{AuthInfo, Cluster, Kubeconfig};

use super::ClientError;

const EMBED: &str = "embed the data in base64";

/// Why a kubeconfig cannot be used. Its text, and that of its sources, does not contain the text of
/// the kubeconfig, which has credentials.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The text is not YAML, or a field has another type. The error of the parser is not a source:
    /// it shows an excerpt of the text.
    #[error("it is not valid YAML of a kubeconfig{position}")]
    Yaml {
        /// Where the parser stopped, such as ` (line 3, column 5)`. Empty if this is not known.
        position: String,
    },
    /// It is incomplete, or a value in it cannot be used.
    #[error(transparent)]
    Other(kube::config::KubeconfigError),
}

impl From<kube::config::KubeconfigError> for KubeconfigError {
    fn from(error: kube::config::KubeconfigError) -> Self {
        let kube::config::KubeconfigError::Parse(error) = error else {
            return Self::Other(error);
        };
        let position = match error.location() {
            Some(at) => format!(" (line {}, column {})", at.line(), at.column()),
            None => String::new(),
        };
        Self::Yaml { position }
    }
}

/// Checks that a kubeconfig names no file and no program, and verifies the server.
///
/// # Errors
/// [`ClientError::NotAllowed`] with the field.
pub(super) fn check(kubeconfig: &Kubeconfig) -> Result<(), ClientError> {
    for cluster in &kubeconfig.clusters {
        cluster.cluster.as_ref().map_or(Ok(()), check_cluster)?;
    }
    for user in &kubeconfig.auth_infos {
        user.auth_info.as_ref().map_or(Ok(()), check_user)?;
    }
    Ok(())
}

fn check_cluster(cluster: &Cluster) -> Result<(), ClientError> {
    let skips_verification = cluster.insecure_skip_tls_verify == Some(true);
    refuse(
        skips_verification,
        "insecure-skip-tls-verify",
        "set certificate-authority-data",
    )?;
    let names_file = cluster.certificate_authority.is_some();
    refuse(names_file, "certificate-authority", EMBED)
}

fn check_user(user: &AuthInfo) -> Result<(), ClientError> {
    let with_token = "use a token or a client certificate";
    refuse(user.exec.is_some(), "exec", with_token)?;
    refuse(user.auth_provider.is_some(), "auth-provider", with_token)?;
    refuse(user.token_file.is_some(), "tokenFile", "set token")?;
    let names_file = user.client_certificate.is_some();
    refuse(names_file, "client-certificate", EMBED)?;
    refuse(user.client_key.is_some(), "client-key", EMBED)
}

fn refuse(is_refused: bool, field: &'static str, advice: &'static str) -> Result<(), ClientError> {
    if is_refused {
        return Err(ClientError::NotAllowed { field, advice });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
        let text = format!(
            "clusters: [{{name: a, cluster: {{server: 'https://hub', {cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn files_and_programs_are_refused() {
        for (cluster, user, expected) in [
            (
                "insecure-skip-tls-verify: true",
                "",
                "insecure-skip-tls-verify",
            ),
            (
                "certificate-authority: /etc/ca",
                "",
                "certificate-authority",
            ),
            ("", "exec: {command: sh}", "exec"),
            ("", "auth-provider: {name: a, config: {}}", "auth-provider"),
            ("", "tokenFile: /token", "tokenFile"),
            ("", "client-certificate: /crt", "client-certificate"),
            ("", "client-key: /key", "client-key"),
        ] {
            let error = check(&kubeconfig(cluster, user)).unwrap_err();
            let is_named =
                matches!(error, ClientError::NotAllowed { field, .. } if field == expected);
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn embedded_data_is_accepted() {
        let embedded = kubeconfig("certificate-authority-data: YQ==", "token: a");
        assert!(check(&embedded).is_ok());
    }
}
