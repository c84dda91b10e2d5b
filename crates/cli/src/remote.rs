//! Reaching a server: where it is and who asks.

use macp_client::Client;

/// Which server to ask.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of the server
    #[arg(long, value_name = "URI", env = "MACP_SERVER", default_value = "http://127.0.0.1:50051")]
    pub(crate) server: String,
    /// Credential to present to the server
    #[arg(long, env = "MACP_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

impl ServerArgs {
    pub(crate) async fn connect(&self) -> Result<Client, macp_client::Error> {
        let client = Client::connect(self.address()).await?;
        match &self.token {
            Some(token) => client.with_token(token),
            None => Ok(client),
        }
    }

    /// The address with the scheme that most people leave out.
    fn address(&self) -> String {
        if self.server.contains("://") { self.server.clone() } else { format!("http://{}", self.server) }
    }
}
