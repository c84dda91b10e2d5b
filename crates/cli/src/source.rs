//! Where a history comes from: a server, a data directory beside it, or an exported file.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use macp_archive::{ExportFile, FileError, Source};
use macp_client::Client;
use macp_ledger::{History, SqliteStore};

use crate::databases;
use crate::remote::ServerArgs;

/// Which history, and where it is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Session id, or the path of a file
    target: Option<String>,
    /// Read this file; tells a file from a session of the same name
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "data"])]
    file: Option<PathBuf>,
    /// Read this data directory, without touching it; a server may be running on it
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Where a session is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(PathBuf),
    Directory { directory: PathBuf, session_id: String },
    Server { server: ServerArgs, session_id: String },
}

impl HistoryArgs {
    pub(crate) fn place(self) -> anyhow::Result<Place> {
        if let Some(path) = self.file {
            return Ok(Place::File(path));
        }
        let Some(target) = self.target else {
            bail!("name a session, or a file to read");
        };
        if let Some(directory) = self.data {
            return Ok(Place::Directory { directory, session_id: target });
        }
        if Path::new(&target).is_file() {
            return Ok(Place::File(target.into()));
        }
        Ok(Place::Server { server: self.server, session_id: target })
    }

    pub(crate) fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    pub(crate) fn names_nothing(&self) -> bool {
        self.target.is_none() && self.file.is_none()
    }
}

/// Reaches the server that is to know a session. What was named may have been meant as a file.
pub(crate) async fn connect(server: &ServerArgs, session_id: &str) -> anyhow::Result<Client> {
    let no_file = || format!("there is no file {session_id:?}, and no server to ask for a session of that name");
    server.connect().await.with_context(no_file)
}

/// Opens a data directory for reading, which changes nothing in it.
pub(crate) fn open_store(directory: &Path) -> anyhow::Result<SqliteStore> {
    Ok(databases::open(directory)?)
}

/// The history of a session in a store.
pub(crate) fn open_history<'a>(store: &'a SqliteStore, session_id: &str) -> anyhow::Result<History<'a>> {
    History::open(store, session_id)?.with_context(|| no_session(session_id))
}

/// The history in an exported file.
pub(crate) fn open_file(path: &Path) -> Result<Source<'static>, FileError> {
    Ok(Source::File(ExportFile::open(path)?))
}

/// The history of a session of a server, fetched as a whole.
pub(crate) async fn fetch(client: &Client, session_id: &str) -> anyhow::Result<Source<'static>> {
    let mut file = tempfile::NamedTempFile::new().context("cannot make a file to fetch the session into")?;
    let mut chunks = client.export(session_id).await?;
    while let Some(chunk) = chunks.next().await? {
        file.write_all(&chunk).context("cannot keep what the server sends")?;
    }
    // The file stays readable through its handle when its name is gone.
    Ok(open_file(file.path())?)
}

pub(crate) fn no_session(session_id: &str) -> String {
    format!("there is no session {session_id:?}")
}
