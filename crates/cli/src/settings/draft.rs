//! Settings being put together, one after the other.

use std::path::PathBuf;

use macp_auth::Given;
use macp_edge::{AuditSettings, Settings};

use super::files::{ReceiptFiles, TlsFiles};
use super::plans::Plans;
use crate::logging;

/// Settings being put together.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) server: Settings,
    pub(crate) data: PathBuf,
    pub(crate) memory: bool,
    pub(crate) keys_file: Option<PathBuf>,
    pub(crate) auth: Given,
    pub(crate) tls: TlsFiles,
    pub(crate) policies_dir: Option<PathBuf>,
    pub(crate) receipts: ReceiptFiles,
    pub(crate) audit_file: Option<PathBuf>,
    pub(crate) audit_bytes_max: u64,
    pub(crate) audit_files_max: usize,
    pub(crate) log_format: logging::Format,
    pub(crate) log_filter: String,
    pub(crate) ready_file: Option<PathBuf>,
    pub(crate) plans: Plans,
}

impl Draft {
    pub(crate) fn new() -> Draft {
        Draft {
            server: Settings::default(),
            data: PathBuf::new(),
            memory: false,
            keys_file: None,
            auth: Given::default(),
            tls: TlsFiles::default(),
            policies_dir: None,
            receipts: ReceiptFiles::default(),
            audit_file: None,
            audit_bytes_max: 0,
            audit_files_max: 0,
            log_format: logging::Format::default(),
            log_filter: String::new(),
            ready_file: None,
            plans: Plans::new(),
        }
    }

    pub(crate) fn audit(&self) -> Option<AuditSettings> {
        self.audit_file.as_ref().map(|path| AuditSettings {
            path: path.clone(),
            bytes_per_file_max: self.audit_bytes_max,
            files_max: self.audit_files_max,
        })
    }
}
