//! The connection, the credential on it, and the calls that carry envelopes.

use macp_rpc::{history, plan, runtime};
use macp_wire::signature::v1::EnvelopeSignature;
use macp_wire::v1::{
    Ack, CancelSessionRequest, ClientInfo, Envelope, InitializeRequest, InitializeResponse, ListRootsRequest,
    ResumeSessionRequest, Root, SendRequest, SuspendSessionRequest,
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

use crate::{Error, Refusal, Tls};

/// Largest answer taken. A page of a log fits into 4 MiB unless one entry alone is larger, and a server may allow
/// payloads well beyond the default of 1 MiB.
const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The protocol version spoken here.
pub(crate) const PROTOCOL_VERSION: &str = "1.0";

pub(crate) type Service = InterceptedService<Channel, Bearer>;

/// A connection to one server.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    pub(crate) runtime: runtime::Client<Service>,
    pub(crate) history: history::Client<Service>,
    pub(crate) plan: plan::Client<Service>,
}

impl Client {
    /// Connects to a server, such as `http://127.0.0.1:50051`, or `https://macp.example` with a certificate the
    /// operating system trusts.
    pub async fn connect(uri: impl Into<String>) -> Result<Client, Error> {
        Client::connect_with(uri, &Tls::default()).await
    }

    /// Connects to a server whose certificate others vouch for, or that asks for a certificate.
    pub async fn connect_with(uri: impl Into<String>, tls: &Tls) -> Result<Client, Error> {
        let uri = uri.into();
        let endpoint = endpoint(&uri, tls)?;
        let channel = endpoint.connect().await.map_err(|source| Error::Connect { uri, source })?;
        Ok(Client::over(channel))
    }

    /// A client that connects when it is first used.
    pub fn lazy(uri: impl Into<String>) -> Result<Client, Error> {
        Ok(Client::over(endpoint(&uri.into(), &Tls::default())?.connect_lazy()))
    }

    /// A client over a channel made elsewhere.
    pub fn over(channel: Channel) -> Client {
        Client::assemble(channel, Bearer::default())
    }

    /// The same connection with a credential, sent as `authorization: Bearer`.
    pub fn with_token(self, token: &str) -> Result<Client, Error> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(Error::Credential)?;
        value.set_sensitive(true);
        Ok(Client::assemble(self.channel, Bearer(Some(value))))
    }

    fn assemble(channel: Channel, bearer: Bearer) -> Client {
        let service = || InterceptedService::new(channel.clone(), bearer.clone());
        let runtime = runtime::Client::new(service()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let history = history::Client::new(service()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let plan = plan::Client::new(service()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Client { channel, runtime, history, plan }
    }

    /// The stubs below, for what this client has no words for.
    pub fn stubs(&self) -> (runtime::Client<Service>, history::Client<Service>) {
        (self.runtime.clone(), self.history.clone())
    }

    /// The stub of plans, for what this client has no words for.
    pub fn plan_stub(&self) -> plan::Client<Service> {
        self.plan.clone()
    }

    /// Agrees on the protocol version and learns what the server offers.
    pub async fn initialize(&self) -> Result<InitializeResponse, Error> {
        let request = InitializeRequest {
            supported_protocol_versions: vec![PROTOCOL_VERSION.to_owned()],
            client_info: Some(ClientInfo {
                name: "macp-client".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..ClientInfo::default()
            }),
            capabilities: None,
        };
        Ok(self.runtime.clone().initialize(request).await?.into_inner())
    }

    /// Sends an envelope and returns what the server says, which may be a refusal.
    pub async fn send(&self, envelope: impl Into<Envelope>) -> Result<Ack, Error> {
        self.send_request(SendRequest { envelope: Some(envelope.into()), signature: None }).await
    }

    /// Sends an envelope with a signature beside it.
    pub async fn send_signed(&self, envelope: Envelope, signature: EnvelopeSignature) -> Result<Ack, Error> {
        self.send_request(SendRequest { envelope: Some(envelope), signature: Some(signature) }).await
    }

    /// Sends an envelope that should be accepted; a refusal is an error.
    pub async fn submit(&self, envelope: impl Into<Envelope>) -> Result<Ack, Error> {
        Ok(Refusal::check(self.send(envelope).await?)?)
    }

    /// Ends an open session. Cancelling one that has ended changes nothing and succeeds.
    pub async fn cancel(&self, session_id: &str, reason: &str) -> Result<Ack, Error> {
        let request = CancelSessionRequest { session_id: session_id.to_owned(), reason: reason.to_owned() };
        let answer = self.runtime.clone().cancel_session(request).await?.into_inner();
        Ok(Refusal::check(answer.ack.ok_or(Error::Incomplete("ack"))?)?)
    }

    /// Pauses an open session: its deadline waits.
    pub async fn suspend(&self, session_id: &str, reason: &str) -> Result<Ack, Error> {
        let request = SuspendSessionRequest { session_id: session_id.to_owned(), reason: reason.to_owned() };
        let answer = self.runtime.clone().suspend_session(request).await?.into_inner();
        Ok(Refusal::check(answer.ack.ok_or(Error::Incomplete("ack"))?)?)
    }

    /// Lets a suspended session go on.
    pub async fn resume(&self, session_id: &str, reason: &str) -> Result<Ack, Error> {
        let request = ResumeSessionRequest { session_id: session_id.to_owned(), reason: reason.to_owned() };
        let answer = self.runtime.clone().resume_session(request).await?.into_inner();
        Ok(Refusal::check(answer.ack.ok_or(Error::Incomplete("ack"))?)?)
    }

    /// The roots the server is configured with.
    pub async fn list_roots(&self) -> Result<Vec<Root>, Error> {
        Ok(self.runtime.clone().list_roots(ListRootsRequest {}).await?.into_inner().roots)
    }

    async fn send_request(&self, request: SendRequest) -> Result<Ack, Error> {
        let answer = self.runtime.clone().send(request).await?.into_inner();
        answer.ack.ok_or(Error::Incomplete("ack"))
    }
}

fn endpoint(uri: &str, tls: &Tls) -> Result<Endpoint, Error> {
    let address = |source| Error::Address { uri: uri.to_owned(), source };
    let endpoint = Endpoint::from_shared(uri.to_owned()).map_err(address)?.tcp_nodelay(true);
    if endpoint.uri().scheme_str() == Some("https") {
        return endpoint.tls_config(tls.config()).map_err(Error::Certificates);
    }
    if tls.is_given() {
        return Err(Error::ClearText { uri: uri.to_owned() });
    }
    Ok(endpoint)
}

/// Puts the credential on every call.
#[derive(Clone, Debug, Default)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}
