//! `macp serve`: the server, from its settings to its last breath.

use std::future::Future;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use macp_edge::Server;
use macp_kernel::ProfileSetting;
use macp_ledger::{MemoryStore, SqliteStore, Store};
use tracing_subscriber::EnvFilter;

use crate::Finding;
use crate::databases;
use crate::logging;
use crate::output::Output;
use crate::settings::{Layers, Place, Serve, SettingFlags};

/// Run a server
///
/// Every setting can be given as a flag, as an environment variable or in a config file; the flag wins over the
/// variable, the variable over the file. SIGHUP reads roots, keys and tokens again, everything else needs a restart;
/// SIGTERM and Ctrl-C finish what is in flight and stop.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// TOML file with settings; its keys are the flags with underscores [env: MACP_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags,
}

pub(crate) async fn run(args: Args, output: &Output) -> anyhow::Result<Finding> {
    let mut flags = args.settings;
    if output.is_json() {
        flags.given.entry("log_format").or_insert_with(|| "json".into());
    }
    let layers = Layers::new(flags, args.config, std::env::vars_os());
    let serve = layers.resolve()?;
    logging::start(serve.log_format, EnvFilter::try_new(&serve.log_filter)?)?;
    for warning in &serve.warnings {
        tracing::warn!("{warning}");
    }
    // Listening for signals comes first: one that arrives during the start must not kill us unheard.
    let mut signals = Signals::listen()?;
    let server = start(&serve).await?;
    let ready_file = serve.ready_file.as_deref().map(|path| ReadyFile::write(path, &server)).transpose()?;
    announce(&serve, &server);
    while let Signal::Reload = signals.next().await {
        reload(&layers, &server);
    }
    drop(ready_file);
    stop(server.shut_down(), &mut signals).await?;
    Ok(Finding::Positive)
}

async fn start(serve: &Serve) -> anyhow::Result<Server> {
    let mut settings = serve.load()?;
    let store: Arc<dyn Store> = match &serve.place {
        Place::Memory => {
            tracing::warn!("histories are kept in memory only: nothing survives the end of this process");
            Arc::new(MemoryStore::new())
        }
        Place::Directory(directory) => {
            Arc::new(SqliteStore::open(directory).context("cannot open the data directory")?)
        }
    };
    settings.plans = serve.plans.load(|| runs(&serve.place, &*store))?;
    Server::start(settings, store).await.context("cannot start the server")
}

/// Where runs are kept: beside the sessions, and apart from them.
fn runs(place: &Place, sessions: &dyn Store) -> anyhow::Result<Arc<dyn Store>> {
    Ok(match place {
        Place::Memory => Arc::new(MemoryStore::new()),
        Place::Directory(directory) => {
            let opened = databases::open_runs(directory).and_then(|runs| {
                databases::bind_runs(sessions)?;
                Ok(runs)
            });
            Arc::new(opened.context("cannot open the directory of runs")?)
        }
    })
}

fn announce(serve: &Serve, server: &Server) {
    let store = match &serve.place {
        Place::Memory => "memory".to_owned(),
        Place::Directory(directory) => directory.canonicalize().as_ref().unwrap_or(directory).display().to_string(),
    };
    let profile = match serve.server.engine.limits.profile {
        ProfileSetting::Auto => "auto",
        ProfileSetting::Classic => "classic",
        ProfileSetting::Standard => "standard",
    };
    let auth = &serve.server.auth;
    let authentication = match (&auth.jwt, &auth.tokens) {
        (Some(_), Some(_)) => "JSON Web Tokens and static tokens",
        (Some(_), None) => "JSON Web Tokens",
        (None, Some(_)) => "static tokens",
        (None, None) => "none, for local development",
    };
    let tls = serve.tls();
    let plans = serve.plans.enabled;
    tracing::info!(
        address = %server.local_addr(), tls, authentication, store, profile, plans, pid = std::process::id(), "ready"
    );
}

/// A file that cannot be used leaves everything as it is.
fn reload(layers: &Layers, server: &Server) {
    if let Err(error) = try_reload(layers, server) {
        tracing::error!(error = crate::output::causes(&error), "not reloaded, the old values stay");
    }
}

fn try_reload(layers: &Layers, server: &Server) -> anyhow::Result<()> {
    let reloadable = layers.resolve()?.reloadable()?;
    // The last that can fail, so that it is all or nothing.
    let credentials = server.reload_credentials()?;
    let (roots, keys) = (reloadable.roots.len(), reloadable.keys.len());
    server.reload(reloadable);
    let macp_auth::Reloaded { tokens, keys: issuer_keys } = credentials;
    let unchanged = "certificates, policies and all other settings need a restart";
    tracing::info!(roots, keys, tokens, issuer_keys, unchanged, "reloaded");
    Ok(())
}

/// Waits for the drain; whoever asks a second time does not want to.
async fn stop<E>(drain: impl Future<Output = Result<(), E>>, signals: &mut Signals) -> anyhow::Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    tokio::pin!(drain);
    loop {
        tokio::select! {
            drained = &mut drain => return drained.context("cannot stop cleanly"),
            signal = signals.next() => match signal {
                Signal::Reload => {}
                Signal::Stop => bail!("told to stop twice: stopped at once"),
            },
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Signal {
    Reload,
    Stop,
}

/// What the operating system tells the server.
#[cfg(unix)]
struct Signals {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        // Unless it is handled, a limit on the size of files kills the process that reaches it. As it is, the write
        // fails, which is dealt with like a full disk. Nobody waits for the signal.
        let _handled = signal(SignalKind::from_raw(libc::SIGXFSZ))?;
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.terminate.recv() => Signal::Stop,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> Signal {
        // Without a handler there is nothing to wait for but the end of the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Stop
    }
}

/// A file with the address in use, there while the server is ready.
#[derive(Debug)]
struct ReadyFile {
    path: PathBuf,
}

impl ReadyFile {
    /// Appears whole or not at all, so that whoever waits for it can read it at once.
    fn write(path: &Path, server: &Server) -> anyhow::Result<ReadyFile> {
        let failed = || format!("cannot write the ready file {}", path.display());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(directory).with_context(failed)?;
        writeln!(file, "{}", server.local_addr()).with_context(failed)?;
        file.persist(path).with_context(failed)?;
        Ok(ReadyFile { path: path.to_owned() })
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the ready file");
        }
    }
}
