//! What every handler needs, made once at start-up.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use macp_archive::{Keys, TraceWriter};
use macp_auth::Authenticator;
use macp_engine::{Engine, Registry};
use macp_wire::codes::Code;
use macp_wire::v1::Root;
use tokio::sync::broadcast;
use tonic::Status;

use crate::access::Access;
use crate::connections::{ConnectionLimits, Connections};
use crate::drain::Drain;
use crate::metrics::{Metrics, OpenSessions};
use crate::plan::{self, Plans};
use crate::quota::Quotas;
use crate::rate::{Kind, Limiter, PerMinute};
use crate::readers::Readers;
use crate::replies::CallMemory;
use crate::runtime::Sealer;
use crate::scrape::Scrapes;
use crate::settings::Receipts;
use crate::startup::decode_max;
use crate::{Reloadable, Settings, requests, status};

/// Histories being verified, replayed or exported at once. Each holds a thread and a page of records.
const HISTORY_READERS: usize = 4;

/// Listings and receipts being read at once. They take moments, and must not wait for what takes minutes.
const BRIEF_READERS: usize = 8;

/// Sessions looked at once by GetSession. Each is a request to the engine, which waits at most for a commit.
const SESSION_READERS: usize = 64;

/// Sessions looked up at once for refusals that never asked them. Each is a read of one row.
const STATE_READERS: usize = 8;

/// What a sender may ask for in a minute, where nothing else is set: the standard's own figures.
const STARTS_PER_MINUTE: u32 = 60;
const MESSAGES_PER_MINUTE: u32 = 600;

/// Changes of the roots a watcher may fall behind.
const ROOT_CHANGES_BUFFER: usize = 64;

/// Shared by all handlers of one server.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) engine: Engine,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authenticator: Authenticator,
    pub(crate) quotas: Quotas,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) trace: Option<Arc<TraceWriter>>,
    pub(crate) plans: Option<Arc<Plans>>,
    pub(crate) limiter: Option<Limiter>,
    pub(crate) drain: Drain,
    pub(crate) page_tokens: Sealer,
    pub(crate) open_sessions: OpenSessions,
    pub(crate) scrapes: Scrapes,
    pub(crate) call_memory: Arc<CallMemory>,
    pub(crate) connections: Arc<Connections>,
    /// Turns to look at a session.
    pub(crate) session_readers: Readers,
    /// Turns to read a whole history.
    pub(crate) history_readers: Readers,
    /// Turns to list, and to read a page of a history or a receipt.
    pub(crate) brief_readers: Readers,
    /// Leave to look up how a session stands.
    pub(crate) state_readers: Readers,
    began: Instant,
    roots: RwLock<Arc<[Root]>>,
    /// When the roots changed.
    root_changes: broadcast::Sender<i64>,
    keys: RwLock<Arc<Keys>>,
}

impl Context {
    pub(crate) fn new(
        settings: Settings,
        engine: Engine,
        registry: Registry,
        authenticator: Authenticator,
        metrics: Arc<Metrics>,
        trace: Option<Arc<TraceWriter>>,
        plans: Option<Plans>,
    ) -> Arc<Self> {
        let Reloadable { roots, keys } = settings.reloadable.clone();
        // Local development is not limited unless asked for; a server that knows its callers is.
        let default = |limit| if authenticator.is_configured() { limit } else { 0 };
        let per_minute = PerMinute {
            starts: settings.start_limit_per_minute.unwrap_or(default(STARTS_PER_MINUTE)),
            messages: settings.message_limit_per_minute.unwrap_or(default(MESSAGES_PER_MINUTE)),
        };
        let waiting_max = settings.waiting_reads_max(authenticator.is_configured());
        let request_bytes_max = requests::bytes_max(decode_max(&engine).max(plan::DECODE_BYTES_MAX));
        let call_memory = Arc::new(CallMemory::new(settings.reply_bytes_max, request_bytes_max));
        let limits = ConnectionLimits {
            all: settings.connections_max,
            per_network: settings.connections_per_address_max(authenticator.is_configured()),
            authenticated: authenticator.is_configured(),
        };
        Arc::new(Context {
            engine,
            registry: Arc::new(registry),
            authenticator,
            quotas: Quotas::default(),
            receipts: Arc::new(settings.receipts.clone()),
            metrics,
            trace,
            plans: plans.map(Arc::new),
            limiter: Limiter::new(per_minute),
            drain: Drain::new(),
            page_tokens: Sealer::new(),
            open_sessions: OpenSessions::default(),
            scrapes: Scrapes::default(),
            connections: Connections::new(limits, Arc::clone(&call_memory)),
            call_memory,
            session_readers: Readers::new(SESSION_READERS, waiting_max),
            history_readers: Readers::new(HISTORY_READERS, waiting_max),
            brief_readers: Readers::new(BRIEF_READERS, waiting_max),
            state_readers: Readers::new(STATE_READERS, waiting_max),
            began: Instant::now(),
            roots: RwLock::new(roots.into()),
            root_changes: broadcast::Sender::new(ROOT_CHANGES_BUFFER),
            keys: RwLock::new(Arc::new(keys)),
            settings,
        })
    }

    /// Time since start-up, for whatever must not depend on the wall clock.
    pub(crate) fn uptime(&self) -> std::time::Duration {
        self.began.elapsed()
    }

    /// Takes a call that is no envelope out of its caller's share.
    pub(crate) fn take_share(&self, access: &Access, kind: Kind) -> Result<(), Status> {
        let (Some(limiter), Some(identity)) = (&self.limiter, access.identity()) else {
            return Ok(());
        };
        limiter.take(identity, kind, self.uptime()).map_err(|exhausted| {
            let after = exhausted.retry_after.as_millis();
            status::coded(Code::RateLimited, format!("too many requests in the last minute (retry after {after} ms)"))
        })
    }

    pub(crate) fn roots(&self) -> Arc<[Root]> {
        Arc::clone(&self.roots.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn watch_roots(&self) -> broadcast::Receiver<i64> {
        self.root_changes.subscribe()
    }

    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Swaps the keys, and the roots if they differ; watchers hear of roots that do.
    pub(crate) fn reload(&self, reloadable: Reloadable) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(reloadable.keys);
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        if **roots != *reloadable.roots {
            *roots = reloadable.roots.into();
            // Announced under the lock, so that events come in the order of the changes. Nobody need watch.
            let _nobody_watches = self.root_changes.send(self.engine.now_ms());
        }
    }
}
