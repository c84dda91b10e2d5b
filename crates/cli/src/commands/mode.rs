//! `macp mode`: the modes of a server.

use macp_wire::v1::ModeDescriptor;
use serde_json::json;

use crate::Finding;
use crate::output::Output;
use crate::remote::ServerArgs;
use crate::table::{Column, Table, left};
use crate::text::clean;

const COLUMNS: &[Column] = &[left("MODE", 21), left("VERSION", 7), left("KIND", 9), left("MESSAGES", 8)];

/// Look at the modes of a server
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the modes, extensions too
    List(Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        let Command::List(args) = self;
        let (standard, extensions) = args.server.connect().await?.list_modes().await?;
        let kinds = [("standard", standard), ("extension", extensions)];
        let modes: Vec<_> = kinds.iter().flat_map(|(kind, modes)| modes.iter().map(|mode| (*kind, mode))).collect();
        if output.is_json() {
            modes.iter().try_for_each(|(kind, mode)| {
                output.value(&json!({
                    "mode": mode.mode,
                    "version": mode.mode_version,
                    "kind": kind,
                    "message_types": mode.message_types,
                    "terminal_message_types": mode.terminal_message_types,
                    "determinism_class": mode.determinism_class,
                }))
            })?;
            return Ok(Finding::Positive);
        }
        let row = |(kind, mode): &(&str, &ModeDescriptor)| {
            let types = clean(&mode.message_types.join(", "));
            vec![clean(&mode.mode).into(), clean(&mode.mode_version).into(), (*kind).into(), types.into()]
        };
        let rows: Vec<_> = modes.iter().map(row).collect();
        let table = Table::fitted(COLUMNS, &rows);
        output.line(table.header(output))?;
        rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
        Ok(Finding::Positive)
    }
}
