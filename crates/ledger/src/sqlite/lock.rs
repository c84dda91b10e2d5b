//! Keeps a second process away from a data directory.
//!
//! The lock is the operating system's, on an open file, so it ends with the process however that ends. The file holds
//! the process id of the owner, for the message only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::failure::{Failure, FailureKind};

/// Name of the lock file in the data directory.
pub const LOCK_FILE: &str = "macp.lock";

/// Exclusive use of a data directory, until dropped.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub(super) fn acquire(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(LOCK_FILE);
        let failed = |source| Failure::from_io(format!("lock data directory {}", directory.display()), source);
        // Not truncated on opening: until the lock is ours, the file tells whose it is.
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused(directory, file)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn refused(directory: &Path, mut file: File) -> Failure {
    let mut text = String::new();
    let holder = match file.read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
        // The owner has locked but not yet written, or the file cannot be read: the refusal stands without the name.
        _ => String::from("another process"),
    };
    Failure::new(FailureKind::Locked, format!("data directory {} is in use by {holder}", directory.display()))
}
