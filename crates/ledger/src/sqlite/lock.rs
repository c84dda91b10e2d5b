//! Keeps a second process away from a data directory.
//!
//! The locks are the operating system's, on open files, so they end with the process however that ends. The directory
//! itself is locked: unlike a file in it, it cannot be deleted and made anew while the database stays. The lock file
//! holds the process id of the owner for the message; it is locked as well, which is all that other systems have and
//! what older versions look at.
//!
//! Neither lock concerns SQLite: other programs can read the database meanwhile.

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
    #[cfg(unix)]
    _directory: File,
}

impl DirectoryLock {
    pub(super) fn acquire(directory: &Path) -> Result<Self, Failure> {
        let failed = |source| Failure::from_io(format!("lock data directory {}", directory.display()), source);
        #[cfg(unix)]
        let locked_directory = {
            let file = File::open(directory).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => file,
                Err(TryLockError::WouldBlock) => return Err(refused(directory)),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        };
        let path = directory.join(LOCK_FILE);
        // Not truncated on opening: until the lock is acquired, the file names its owner.
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused(directory)),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Self {
            _file: file,
            #[cfg(unix)]
            _directory: locked_directory,
        })
    }
}

/// The process that has a data directory locked for writing, in words; none if the directory is not locked.
pub fn holder(directory: &Path) -> Result<Option<String>, Failure> {
    let failed = |source| Failure::from_io(format!("look at {}", directory.display()), source);
    let mut locks = vec![directory.join(LOCK_FILE)];
    if cfg!(unix) {
        locks.push(directory.to_owned());
    }
    for path in locks {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        // A shared lock is granted only if no writer has the exclusive one; it ends with the handle, at once.
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Some(owner(directory))),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
    Ok(None)
}

fn refused(directory: &Path) -> Failure {
    let context = format!("data directory {} is in use by {}", directory.display(), owner(directory));
    Failure::new(FailureKind::Locked, context)
}

fn owner(directory: &Path) -> String {
    let mut text = String::new();
    match File::open(directory.join(LOCK_FILE)).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
        // The owner has locked but not yet written, or the file was deleted: refused all the same.
        _ => String::from("another process"),
    }
}
