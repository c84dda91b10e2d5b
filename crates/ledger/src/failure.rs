//! Failures of a store: what happened, what to do about it, and the cause.
//!
//! A failure never concerns the protocol. It can be cloned because one cause may fail many appends of a batch.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The kinds of failure a caller or an operator may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// No space is left where the store writes.
    DiskFull,
    /// The store may not write: permissions, a read-only file system, or opened for reading only.
    ReadOnly,
    /// The device or file system reported an error.
    Io,
    /// Another process uses the store.
    Locked,
    /// The database has a schema this program does not know.
    SchemaVersion { found: i64, supported: i64 },
    /// The database belongs to another application.
    Foreign,
    /// There is no database, or no directory for one.
    NotFound,
    /// Stored data is not what was written.
    Corrupt,
    /// Data that was acknowledged is missing, or may be: the log is damaged, or the database is missing or older.
    Loss,
    /// The caller asked for something no store can keep.
    Invalid,
    /// Anything else; the source says what.
    Other,
}

impl FailureKind {
    /// A stable name for logs and documents.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::DiskFull => "LEDGER_DISK_FULL",
            Self::ReadOnly => "LEDGER_READ_ONLY",
            Self::Io => "LEDGER_IO",
            Self::Locked => "LEDGER_LOCKED",
            Self::SchemaVersion { .. } => "LEDGER_SCHEMA_VERSION",
            Self::Foreign => "LEDGER_FOREIGN",
            Self::NotFound => "LEDGER_NOT_FOUND",
            Self::Corrupt => "LEDGER_CORRUPT",
            Self::Loss => "LEDGER_LOSS",
            Self::Invalid => "LEDGER_INVALID",
            Self::Other => "LEDGER_OTHER",
        }
    }

    /// Whether the next write would most likely meet the same failure, whichever session it is for.
    #[must_use]
    pub const fn concerns_all(self) -> bool {
        matches!(self, Self::DiskFull | Self::ReadOnly | Self::Io | Self::Locked)
    }

    fn advice(self) -> &'static str {
        match self {
            Self::DiskFull => "the disk is full; free some space and the store goes on without a restart",
            Self::ReadOnly => "access is not allowed; check the permissions and mount options of the data directory",
            Self::Io => "the disk reported an error; check the device and the system log",
            Self::Locked => "another process uses it; stop that process first or choose another data directory",
            Self::SchemaVersion { found, supported } if found > supported => {
                "it was written by a newer version; use that version or newer"
            }
            Self::SchemaVersion { found, supported } if found == supported => {
                "its schema is one of before the first release; export from it with the version that wrote it"
            }
            Self::SchemaVersion { .. } => "its schema is too old to migrate; use a version that knows it",
            Self::Foreign => "the file belongs to another application; choose another data directory",
            Self::NotFound => "no such database or directory; check the path of the data directory",
            Self::Corrupt => "stored data is damaged; restore from a backup and check the device",
            Self::Loss => {
                "acknowledged data is missing; restore a backup, or continue without it: `macp accept-loss --data DIR`"
            }
            Self::Invalid => "the request cannot be stored",
            Self::Other => "the store failed",
        }
    }
}

/// A failed operation of a store.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    context: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a deeper cause; `context` says what was being done, or what was found.
    pub fn new(kind: FailureKind, context: impl Into<Arc<str>>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// Keeps the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// A failed call into the operating system.
    pub fn from_io(context: impl Into<Arc<str>>, source: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let kind = match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => FailureKind::DiskFull,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => FailureKind::ReadOnly,
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::AlreadyExists => FailureKind::NotFound,
            _ => FailureKind::Io,
        };
        Self::new(kind, context).with_source(source)
    }

    /// What was being done, or what was found, without advice.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.context
    }

    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    #[must_use]
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.context, self.kind.advice())?;
        if let FailureKind::SchemaVersion { found, supported } = self.kind {
            write!(f, " (schema version {found}, this program knows {supported})")?;
        }
        Ok(())
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
