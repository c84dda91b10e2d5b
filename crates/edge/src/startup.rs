//! A server's life: checked, bound, serving, drained.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use macp_archive::TraceWriter;
use macp_auth::{Authenticator, Exposure, Reloaded, Unsafe};
use macp_engine::{Engine, Registry, RegistryError};
use macp_kernel::policy::Policy;
use macp_ledger::{Failure, Store};
use macp_rpc::{history, plan, runtime};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use crate::connection::Bounds;
use crate::connections::{ConnectionLimits, Connections};
use crate::context::Context;
use crate::front::{Front, Services};
use crate::history::History;
use crate::listener::{self, Accepting};
use crate::metrics::Metrics;
use crate::observer::Observer;
use crate::plan::{DECODE_BYTES_MAX as PLAN_DECODE_BYTES_MAX, Plan, Plans, ServerFacts};
use crate::replies::CallMemory;
use crate::runtime::{DECODE_SLACK_BYTES, Runtime};
use crate::settings::OperatorPolicy;
use crate::tls::{Handshake, TlsError};
use crate::{Reloadable, Settings, health, http, identity, serving};

/// Connections to the listener for metrics.
const METRICS_CONNECTIONS_MAX: usize = 64;

/// Memory of its replies.
const METRICS_REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of requests there: none has a body.
const METRICS_REQUEST_BYTES_MAX: usize = 0;

/// Longest question about the services, in bytes. Anyone may ask, before anything is known of the caller.
const REFLECTION_DECODE_BYTES_MAX: usize = 16 * 1024;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    #[error("authentication cannot be set up")]
    Authentication(#[from] macp_auth::Error),
    #[error("the TLS certificate or key cannot be used")]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}: {}", listener::advice(source))]
    Bind { address: SocketAddr, source: io::Error },
    #[error("cannot write the audit trace to {}", path.display())]
    Audit { path: PathBuf, source: io::Error },
    #[error("cannot start the engine's threads")]
    Engine(#[source] io::Error),
    #[error("cannot read the registries")]
    Registry(#[from] RegistryError),
    #[error("the policy in {origin} cannot be registered: {reason}")]
    Policy { origin: String, reason: String },
    #[error("the skills of plans cannot be set up")]
    Skills(#[from] macp_plan::registry::Error),
    #[error("the store of runs cannot be opened")]
    Runs(#[source] Failure),
    #[error("the descriptors for gRPC reflection are unusable")]
    Reflection(#[source] tonic_reflection::server::Error),
}

/// What went wrong while shutting down. Nothing that was acknowledged is lost by it.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    #[error("a task of the server failed")]
    Task(#[from] tokio::task::JoinError),
    #[error("the engine did not stop within {0:?}: a write is stuck")]
    Stuck(Duration),
}

/// A server that is bound and serving. It goes on when this handle is dropped; only [`Server::shut_down`] ends it.
#[derive(Debug)]
pub struct Server {
    ctx: Arc<Context>,
    health: HealthReporter,
    local_addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    /// One task for each listener.
    serving: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts the engine on a store and serves it; bound and serving when it returns.
    pub async fn start(settings: Settings, store: Arc<dyn Store>) -> Result<Server, StartError> {
        let authenticator = Authenticator::start(settings.auth.clone()).await?;
        let exposure = Exposure {
            listen: settings.listen,
            tls: settings.tls.is_some(),
            authentication: authenticator.is_configured(),
            allow_insecure: settings.allow_insecure,
        };
        exposure.check()?;
        let address = settings.listen;
        let bind_error = |source| StartError::Bind { address, source };
        let listener = listener::bind(address).await.map_err(bind_error)?;
        let local_addr = listener.local_addr().map_err(bind_error)?;
        let metrics_listener = match settings.metrics_listen {
            Some(address) => Some(bind_metrics(address).await?),
            None => None,
        };

        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let trace = open_trace(&settings)?;
        let observer = Observer::new(Arc::clone(&metrics), trace.clone());
        let options = macp_engine::Options { trace: trace.is_some(), ..settings.engine.clone() };
        let registry = Registry::open(Arc::clone(&store))?;
        register(&registry, &settings.policies)?;
        let engine = Engine::start(store, options, Arc::new(observer)).map_err(StartError::Engine)?;
        let authenticated = authenticator.is_configured();
        let facts = ServerFacts {
            authenticated,
            waiting_reads_max: settings.waiting_reads_max(authenticated),
            listening: std::iter::once(local_addr).chain(metrics_listener.as_ref().map(|(_, addr)| *addr)).collect(),
        };
        let open = |plans| Plans::open(plans, &engine, &facts);
        let plans = settings.plans.as_ref().map(open).transpose()?;
        let ctx = Context::new(settings, engine, registry, authenticator, metrics, trace, plans);

        identity::warn_of_reserved(&ctx);
        identity::warn_of_open_scopes(&ctx);
        let health = HealthReporter::new();
        health::serve(&health, ctx.plans.is_some()).await;
        let front = front(&ctx, &health)?;
        let drain = ctx.drain.clone();
        let accepting = Accepting::new(listener, Arc::clone(&ctx.connections));
        let handshake = ctx.settings.tls.as_ref().map(Handshake::new).transpose()?;
        let bounds = Bounds {
            streams_max: ctx.settings.streams_per_connection_max,
            reply_timeout: ctx.settings.unread_reply_timeout,
        };
        // Before sessions can be decided, so that no committed plan is missed.
        if let Some(plans) = &ctx.plans {
            plans.begin();
        }
        let mut metrics_addr = None;
        let mut serving =
            vec![tokio::spawn(serving::serve(accepting, handshake, Arc::new(front), bounds, drain.clone()))];
        if let Some((listener, address)) = metrics_listener {
            // Connections and memory of its own, so that callers of the port cannot keep a scrape out.
            let limits =
                ConnectionLimits { all: METRICS_CONNECTIONS_MAX, per_network: usize::MAX, authenticated: false };
            let memory = Arc::new(CallMemory::new(METRICS_REPLY_BYTES_MAX, METRICS_REQUEST_BYTES_MAX));
            let accepting = Accepting::new(listener, Connections::new(limits, memory));
            let front = Arc::new(metrics_front(&ctx));
            serving.push(tokio::spawn(serving::serve(accepting, None, front, bounds, drain)));
            tracing::info!(%address, "serving metrics");
            metrics_addr = Some(address);
        }
        tokio::spawn(health::follow(Arc::clone(&ctx), health.clone()));
        tracing::info!(%local_addr, "serving");
        Ok(Server { ctx, health, local_addr, metrics_addr, serving })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Where metrics are served separately, if they are.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_addr
    }

    /// Swaps what can change without a restart; those who watch the roots hear of it when they differ.
    pub fn reload(&self, reloadable: Reloadable) {
        self.ctx.reload(reloadable);
        tracing::info!("roots and keys are reloaded");
    }

    /// Reads the files of tokens and keys again; if one of them is bad, everything stays as it was.
    pub fn reload_credentials(&self) -> Result<Reloaded, macp_auth::Error> {
        let reloaded = self.ctx.authenticator.reload()?;
        identity::warn_of_reserved(&self.ctx);
        Ok(reloaded)
    }

    /// Stops accepting, lets what is in flight finish, then stops the executor of plans, then the engine. The waits for
    /// what is in flight and for the engine are bounded by the drain timeout, that for the executor by its own grace;
    /// what is still open after the first is cut off.
    pub async fn shut_down(self) -> Result<(), ShutdownError> {
        let Server { ctx, health, mut serving, .. } = self;
        let timeout = ctx.settings.drain_timeout;
        tracing::info!("draining");
        health::warn(&health, ctx.plans.is_some()).await;
        ctx.drain.begin();
        health::forget(health).await;
        let all = futures_util::future::try_join_all(serving.iter_mut());
        let served = match tokio::time::timeout(timeout, all).await {
            Ok(served) => served.map(drop).map_err(ShutdownError::Task),
            Err(_elapsed) => {
                tracing::warn!(?timeout, "connections were still open after the drain timeout");
                serving.iter().for_each(JoinHandle::abort);
                Ok(())
            }
        };
        if let Some(plans) = &ctx.plans {
            plans.shut_down().await;
        }
        let stopping = tokio::task::spawn_blocking(move || {
            ctx.engine.shut_down();
            if let Some(trace) = &ctx.trace {
                trace.finish();
            }
        });
        // A grace on top: with nothing in flight the engine still needs a moment to join its threads.
        let timeout = timeout.max(Duration::from_secs(1));
        tokio::time::timeout(timeout, stopping).await.map_err(|_elapsed| ShutdownError::Stuck(timeout))??;
        tracing::info!("stopped");
        served
    }
}

/// Registers what the operator brings along. What is registered already must mean the same: sessions may have been
/// started under it, and neither of two definitions of one name is to win silently.
fn register(registry: &Registry, policies: &[OperatorPolicy]) -> Result<(), StartError> {
    for OperatorPolicy { descriptor, origin } in policies {
        let refused = |reason: String| StartError::Policy { origin: origin.clone(), reason };
        let registered = match registry.policy(&descriptor.policy_id) {
            Some(registered) => registered,
            None => {
                registry.register_policy(descriptor, now_ms()).map_err(|error| match error {
                    RegistryError::Refused(reason) => refused(reason),
                    error => StartError::Registry(error),
                })?;
                continue;
            }
        };
        let given = Policy::read(descriptor.clone()).map_err(|error| refused(error.to_string()))?;
        let meaning = |policy: &Policy| (policy.descriptor.mode.clone(), policy.schema_version(), policy.rules.clone());
        if meaning(&given) != meaning(&registered) {
            return Err(refused(format!(
                "policy {:?} is registered with another definition; give the new one another id, or unregister the old \
                 one first",
                descriptor.policy_id
            )));
        }
    }
    Ok(())
}

fn now_ms() -> i64 {
    // A clock before 1970 is as good as none.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

fn open_trace(settings: &Settings) -> Result<Option<Arc<TraceWriter>>, StartError> {
    let Some(audit) = &settings.audit else {
        return Ok(None);
    };
    TraceWriter::create(&audit.path, audit.bytes_per_file_max, audit.files_max)
        .map(|trace| Some(Arc::new(trace)))
        .map_err(|source| StartError::Audit { path: audit.path.clone(), source })
}

async fn bind_metrics(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let bind_error = |source| StartError::Bind { address, source };
    let listener = listener::bind(address).await.map_err(bind_error)?;
    let address = listener.local_addr().map_err(bind_error)?;
    Ok((listener, address))
}

/// Longest request that is decoded at all.
pub(crate) fn decode_max(engine: &Engine) -> usize {
    let payload_max = usize::try_from(engine.limits().payload_bytes_max).unwrap_or(usize::MAX);
    payload_max.saturating_add(DECODE_SLACK_BYTES)
}

/// Everything that is served on the port.
fn front(ctx: &Arc<Context>, health: &HealthReporter) -> Result<Front, StartError> {
    let decode_max = decode_max(&ctx.engine);
    let runtime = Runtime::new(Arc::clone(ctx));
    let generated = runtime::Server::new(runtime.clone()).max_decoding_message_size(decode_max);
    let mut services = Routes::builder();
    services.add_service(history::Server::new(History::new(Arc::clone(ctx))).max_decoding_message_size(decode_max));
    if let Some(plans) = &ctx.plans {
        let service = Plan::new(Arc::clone(ctx), Arc::clone(plans));
        services.add_service(plan::Server::new(service).max_decoding_message_size(PLAN_DECODE_BYTES_MAX));
    }
    let reported = tonic_health::server::HealthService::from_health_reporter(health.clone());
    services.add_service(tonic_health::pb::health_server::HealthServer::new(reported));
    if ctx.settings.reflection {
        let described = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(macp_wire::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Tools in use speak the older version of the protocol or the newer.
        services
            .add_service(
                described()
                    .build_v1()
                    .map_err(StartError::Reflection)?
                    .max_decoding_message_size(REFLECTION_DECODE_BYTES_MAX),
            )
            .add_service(
                described()
                    .build_v1alpha()
                    .map_err(StartError::Reflection)?
                    .max_decoding_message_size(REFLECTION_DECODE_BYTES_MAX),
            );
    }
    let services = services.routes().into_axum_router().route_layer(axum::middleware::from_fn(http::grpc_only));
    let router = services.fallback(http::unknown).merge(http::routes(Arc::clone(ctx)));
    let services = Services::new(Some(generated), Routes::from(router).prepare());
    Ok(Front::new(runtime, decode_max, ctx.settings.request_timeout, services))
}

/// Everything that is served on the listener for metrics.
fn metrics_front(ctx: &Arc<Context>) -> Front {
    let router = http::metrics_routes(Arc::clone(ctx));
    let services = Services::new(None, Routes::from(router).prepare());
    let runtime = Runtime::new(Arc::clone(ctx));
    Front::new(runtime, 0, ctx.settings.request_timeout, services)
}
