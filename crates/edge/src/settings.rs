//! What an operator can set about the doors.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use macp_archive::receipt::{PublicKeys, SigningKey};
use macp_ledger::Store;
use macp_plan::executor::ExecutorSettings;
use macp_plan::session::SessionSettings;
use macp_plan::skills::SkillSettings;
use macp_plan_core::freeze::Profile;
use macp_wire::v1::{PolicyDescriptor, Root};

/// Settings of a server; the defaults are those of local development.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    /// Allows an address other machines can reach although there is neither TLS nor authentication.
    pub allow_insecure: bool,
    pub engine: macp_engine::Options,
    /// Whom to believe; the default is local development, where whoever names itself is believed.
    pub auth: macp_auth::Settings,
    pub tls: Option<Tls>,
    /// SessionStarts of one sender in any 60 seconds; 0 is no limit, none the default of the kind of server.
    pub start_limit_per_minute: Option<u32>,
    /// Other envelopes of one sender in any 60 seconds; 0 is no limit, none the default of the kind of server.
    pub message_limit_per_minute: Option<u32>,
    /// Sessions or entries on a page when the client asks for no number.
    pub list_page_size_default: usize,
    /// Most sessions or entries on a page, whatever the client asks for.
    pub list_page_size_max: usize,
    /// Where metrics are served without a credential, over plain HTTP.
    pub metrics_listen: Option<SocketAddr>,
    /// Connections there may be at once. Beyond it idle ones without a credential are closed, then new ones refused.
    pub connections_max: usize,
    /// Connections of one address (of IPv6: one /64) without a valid credential; none is the default of the kind of server.
    pub connections_per_address_max: Option<usize>,
    /// HTTP/2 streams one connection may have open at once.
    pub streams_per_connection_max: u32,
    /// Bytes of replies that are not yet written to their sockets, over all connections.
    pub reply_bytes_max: usize,
    /// How long 64 KiB of a reply may wait for a client that does not read them.
    pub unread_reply_timeout: Duration,
    /// Reads of one caller that may wait for their turn; none is the default of the kind of server.
    pub waiting_reads_max: Option<usize>,
    /// How long a unary call may take.
    pub request_timeout: Duration,
    /// How long a refusal waits to learn how its session stands, where that was not asked.
    pub state_patience: Duration,
    /// How long a history being streamed waits for a client that does not read.
    pub stalled_reader_timeout: Duration,
    /// How long a drain waits for what is in flight.
    pub drain_timeout: Duration,
    /// The agent id of the runtime itself.
    pub runtime_id: String,
    /// Policies to register at start, in this order.
    pub policies: Vec<OperatorPolicy>,
    /// Clients cannot register or unregister policies.
    pub policies_read_only: bool,
    /// What decision receipts are signed with.
    pub receipts: Receipts,
    /// Serve gRPC reflection.
    pub reflection: bool,
    /// Record every verdict, refusals too, in a trace file.
    pub audit: Option<AuditSettings>,
    /// Execute plans; none serves no plans.
    pub plans: Option<PlanSettings>,
    pub reloadable: Reloadable,
}

/// What the transport is secured with, as PEM texts.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate and those it was issued through.
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    /// Who must have issued the certificates of clients; none asks clients for no certificate.
    pub client_authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("client_certificates", &self.client_authorities.is_some()).finish_non_exhaustive()
    }
}

/// A policy the operator brings along, and where it is from, for messages.
#[derive(Clone, Debug)]
pub struct OperatorPolicy {
    pub descriptor: PolicyDescriptor,
    pub origin: String,
}

/// Keys of decision receipts. Without a signing key receipts are issued unsigned.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    pub signing_key: Option<SigningKey>,
    /// What clients check receipts with: the key in use and those that were.
    pub public_keys: PublicKeys,
}

/// Where verdicts are recorded, and how much of them is kept.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    pub path: PathBuf,
    pub bytes_per_file_max: u64,
    pub files_max: usize,
}

/// How plans are executed, and where their runs are kept.
#[derive(Clone, Debug)]
pub struct PlanSettings {
    /// Where runs are kept. Nobody else writes to it, and no session lives in it.
    pub store: Arc<dyn Store>,
    pub skills: SkillSettings,
    pub executor: ExecutorSettings,
    /// What becomes of plans that sessions commit to.
    pub sessions: SessionSettings,
    /// Largest exported run that is taken over, in bytes.
    pub import_bytes_max: usize,
    /// What agents' profiles contribute when their plans are frozen here, by agent.
    pub profiles: BTreeMap<String, Profile>,
}

/// What can change without a restart.
#[derive(Clone, Debug, Default)]
pub struct Reloadable {
    pub roots: Vec<Root>,
    pub keys: macp_archive::Keys,
}

/// Reads of one caller that may wait where callers are known, and nothing else is set.
const WAITING_READS_MAX: usize = 1_024;

/// The part of all connections that one address may have without a valid credential, where nothing else is set.
const ADDRESS_PART: usize = 4;

impl Settings {
    /// Returns how many reads of one caller may wait. In local development there is no limit unless one is set.
    pub(crate) fn waiting_reads_max(&self, callers_are_known: bool) -> usize {
        let default = if callers_are_known { WAITING_READS_MAX } else { usize::MAX };
        self.waiting_reads_max.unwrap_or(default)
    }

    /// Returns how many connections without a valid credential one address may have. In local development all clients
    /// have the same address, so that there is no limit unless one is set.
    pub(crate) fn connections_per_address_max(&self, callers_are_known: bool) -> usize {
        let default = if callers_are_known { self.connections_max.div_ceil(ADDRESS_PART) } else { usize::MAX };
        self.connections_per_address_max.unwrap_or(default)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: (Ipv4Addr::LOCALHOST, 50051).into(),
            allow_insecure: false,
            engine: macp_engine::Options::default(),
            auth: macp_auth::Settings::default(),
            tls: None,
            start_limit_per_minute: None,
            message_limit_per_minute: None,
            list_page_size_default: 100,
            list_page_size_max: 1000,
            metrics_listen: None,
            connections_max: 4_096,
            connections_per_address_max: None,
            streams_per_connection_max: 1024,
            reply_bytes_max: 192 * 1024 * 1024,
            unread_reply_timeout: Duration::from_secs(30),
            waiting_reads_max: None,
            request_timeout: Duration::from_secs(30),
            // Well before whoever met overload may come again.
            state_patience: Duration::from_millis(50),
            stalled_reader_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            runtime_id: "macp-runtime".to_owned(),
            policies: Vec::new(),
            policies_read_only: false,
            receipts: Receipts::default(),
            reflection: true,
            audit: None,
            plans: None,
            reloadable: Reloadable::default(),
        }
    }
}

impl PlanSettings {
    /// Plans that can reach nothing outside, with their runs in a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        PlanSettings {
            store,
            skills: SkillSettings::default(),
            executor: ExecutorSettings::default(),
            sessions: SessionSettings::default(),
            import_bytes_max: 64 * 1024 * 1024,
            profiles: BTreeMap::new(),
        }
    }
}

impl AuditSettings {
    /// Four files of 64 MiB each.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        AuditSettings { path: path.into(), bytes_per_file_max: 64 * 1024 * 1024, files_max: 4 }
    }
}
