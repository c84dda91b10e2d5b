//! Histories away from the engine: checked, replayed, taken away and brought back.
//!
//! This room reads what the ledger keeps and decides it again with the kernel. It never orders, never accepts and
//! never runs beside a clock: the server's history service and the command line both stand on it, so that what one
//! proves the other proves too.
//!
//! ```text
//!  store ──History──┐
//!                   ├──▶ Source ──▶ verify · replay · export
//!  export file ─────┘                         │
//!  store ◀── import ◀─────────────────────────┘
//! ```

mod export;
mod file;
mod import;
mod index;
mod keys;
mod lines;
pub mod receipt;
mod replay;
mod source;
mod trace_file;
mod trace_line;
mod trace_reader;
mod trace_replay;
mod trace_writer;
mod verify;
mod what_if;

pub use export::Exporter;
pub use file::{ExportFile, FileError};
pub use import::{ImportError, Importable, Imported, check_import, import};
pub use keys::{Keys, KeysError};
pub use replay::{Replay, replay};
pub use source::{ReadError, Source};
pub use trace_line::is_trace;
pub use trace_reader::{TraceError, TracePlace, trace_bytes};
pub use trace_replay::{TraceFinding, TraceFound, TraceReport, TraceVerdict, replay_trace, replay_trace_with};
pub use trace_writer::TraceWriter;
pub use verify::{Bad, Unreadable, Verification, verify};
pub use what_if::{WhatIfError, what_if};
