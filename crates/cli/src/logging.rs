//! Log lines on stderr, as text or JSON.

use std::io::IsTerminal;

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// Starts logging for the rest of the process.
pub(crate) fn start(format: Format, filter: EnvFilter) -> anyhow::Result<()> {
    // A line that cannot be written is lost. To complain of it on the same stderr would be a panic, and a log on the
    // disk that is full would take the threads with it that have to go on once there is room.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    let started = match format {
        Format::Json => builder.json().flatten_event(true).try_init(),
        Format::Text => {
            let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            builder.with_ansi(std::io::stderr().is_terminal() && !no_colour).try_init()
        }
    };
    started.map_err(|error| anyhow!("cannot start logging: {error}"))
}
