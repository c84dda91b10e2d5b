//! What is told about the server while it works: its trace, its log, and that it is ready.

use std::path::PathBuf;

use super::{Default, Setting, set, setting};
use crate::logging;
use crate::settings::value::Kind;

#[rustfmt::skip]
pub(super) static SETTINGS: &[Setting] = &[
    setting(("audit_file", "audit", "MACP_AUDIT_FILE"), Kind::Text, Default::Unset("no trace"),
        "Record every input with its verdict, refused ones too, in this file for `macp replay`",
        set!(|draft, value| draft.audit_file = Some(PathBuf::from(value.text())))),
    setting(("audit_max_bytes", "audit-max-bytes", "MACP_AUDIT_MAX_BYTES"),
        Kind::Number { min: 65_536, max: i64::MAX as u64 }, Default::Is("67108864"),
        "Bytes after which the trace goes on in a new file; an event larger than that is left out",
        set!(|draft, value| draft.audit_bytes_max = value.number())),
    setting(("audit_max_files", "audit-max-files", "MACP_AUDIT_MAX_FILES"),
        Kind::Number { min: 1, max: 1_000 }, Default::Is("4"),
        "Trace files kept, the current one included; older ones are removed",
        set!(|draft, value| draft.audit_files_max = value.narrow())),
    setting(("log_format", "log-format", "MACP_LOG_FORMAT"), Kind::Word(&["text", "json"]), Default::Is("text"),
        "Form of the log lines on stderr: text or json",
        set!(|draft, value| draft.log_format = match value.text() {
            "json" => logging::Format::Json,
            _ => logging::Format::Text,
        })),
    setting(("log", "log", "MACP_LOG"), Kind::Text, Default::Is("info"),
        "What to log, such as warn or info,macp_engine=debug; RUST_LOG is read as well",
        set!(|draft, value| draft.log_filter = value.text().to_owned())),
    setting(("ready_file", "ready-file", "MACP_READY_FILE"), Kind::Text, Default::Unset("none"),
        "Write the address in use to this file once the server is ready; removed when it stops",
        set!(|draft, value| draft.ready_file = Some(PathBuf::from(value.text())))),
];
