//! Reaching a server: where it is, whom to trust and who asks.

use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_client::{Client, ClientCertificate, Tls};

/// Which server to ask.
#[derive(Clone, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of the server, https:// if it speaks TLS
    #[arg(long, value_name = "URI", env = "MACP_SERVER", default_value = "http://127.0.0.1:50051")]
    pub(crate) server: String,
    /// Credential to present; in local development the token is the name of who asks
    #[arg(long, env = "MACP_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// PEM file with the authorities to trust instead of those the operating system trusts
    #[arg(long, value_name = "FILE", env = "MACP_CA")]
    ca: Option<PathBuf>,
    /// PEM file with a certificate to show to a server that asks for one
    #[arg(long, value_name = "FILE", env = "MACP_CLIENT_CERT", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", env = "MACP_CLIENT_KEY", requires = "client_cert")]
    client_key: Option<PathBuf>,
}

/// Without the token.
impl std::fmt::Debug for ServerArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerArgs").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ServerArgs {
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let address = self.address();
        let client = Client::connect_with(&address, &self.tls()?).await?;
        if address.starts_with("http://") {
            greet(&client, &address).await?;
        }
        match &self.token {
            Some(token) => Ok(client.with_token(token)?),
            None => Ok(client),
        }
    }

    fn tls(&self) -> anyhow::Result<Tls> {
        let certificate = match (&self.client_cert, &self.client_key) {
            (Some(certificate), Some(key)) => {
                Some(ClientCertificate { certificate: read(certificate)?, key: read(key)? })
            }
            _ => None,
        };
        Ok(Tls { authorities: self.ca.as_deref().map(read).transpose()?, certificate })
    }

    /// The address with the scheme that most people leave out.
    fn address(&self) -> String {
        if self.server.contains("://") {
            return self.server.clone();
        }
        let scheme = if self.ca.is_some() || self.client_cert.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.server)
    }
}

/// A server that speaks TLS takes a connection in clear text and hangs up without a word, which no command could
/// explain. So the first word is one that every server answers, whatever it answers.
async fn greet(client: &Client, address: &str) -> anyhow::Result<()> {
    match client.initialize().await {
        Err(error) if error.is_disconnected() => {
            let text = format!("{address} takes connections but hangs up; if the server speaks TLS, use https://");
            Err(anyhow::Error::from(error).context(text))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What to do about a refusal for want of a credential that is good for it.
pub(crate) fn advice(code: &str) -> Option<&'static str> {
    match code {
        "UNAUTHENTICATED" => Some(
            "pass a credential with --token or MACP_TOKEN; a server in local development takes the name of who asks \
             for it, such as --token alice",
        ),
        "FORBIDDEN" => Some("pass the credential of someone who may with --token or MACP_TOKEN"),
        _ => None,
    }
}
