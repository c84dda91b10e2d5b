//! `macp policy`: the policies of a server.

use std::path::PathBuf;

use macp_client::Error;
use macp_wire::v1::PolicyDescriptor;
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::{self, ServerArgs};
use crate::settings::read_policy;
use crate::table::{Column, Table, left, right};
use crate::text::clean;
use crate::view::text_or_base64;

const COLUMNS: &[Column] = &[left("POLICY", 12), left("MODE", 21), right("SCHEMA", 6), left("DESCRIPTION", 11)];

/// Look at the policies of a server, register and unregister them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the policies, built-in ones too
    List(ListArgs),
    /// Print one policy, in the form of a file that `register` takes
    Show(NamedArgs),
    /// Register the policy in a JSON file
    Register(RegisterArgs),
    /// Forget a policy; sessions started under it keep it
    Unregister(NamedArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only policies that may govern this mode
    #[arg(long, default_value = "")]
    mode: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamedArgs {
    /// Policy id
    policy: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RegisterArgs {
    /// File with policy_id, mode, schema_version, rules and description
    file: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::List(args) => list(&args, output).await,
            Command::Show(args) => {
                let policy = args.server.connect().await?.get_policy(&args.policy).await?;
                let value = policy_json(&policy);
                if output.is_json() {
                    output.value(&value)?
                } else {
                    output.line(format!("{value:#}"))?
                }
                Ok(Finding::Positive)
            }
            Command::Register(args) => {
                let descriptor = read_policy(&args.file)?;
                let id = descriptor.policy_id.clone();
                let answer = args.server.connect().await?.register_policy(descriptor).await;
                answered("registered", &id, answer, output)
            }
            Command::Unregister(args) => {
                let answer = args.server.connect().await?.unregister_policy(&args.policy).await;
                answered("unregistered", &args.policy, answer, output)
            }
        }
    }
}

async fn list(args: &ListArgs, output: &Output) -> anyhow::Result<Finding> {
    let policies = args.server.connect().await?.list_policies(&args.mode).await?;
    if output.is_json() {
        policies.iter().try_for_each(|policy| output.value(&policy_json(policy)))?;
        return Ok(Finding::Positive);
    }
    let rows: Vec<_> = policies
        .iter()
        .map(|policy| {
            vec![
                clean(&policy.policy_id).into(),
                clean(&policy.mode).into(),
                policy.schema_version.to_string().into(),
                clean(&policy.description).into(),
            ]
        })
        .collect();
    let table = Table::fitted(COLUMNS, &rows);
    output.line(table.header(output))?;
    rows.iter().try_for_each(|row| output.line(table.row(output, row)))?;
    Ok(Finding::Positive)
}

/// What the registry says. That it may not be changed, or not by this caller, is a refusal like any other.
fn answered(done: &str, id: &str, answer: Result<(), Error>, output: &Output) -> anyhow::Result<Finding> {
    let refusal = match answer {
        Ok(()) => None,
        Err(Error::Registry(reason)) => Some((String::new(), reason)),
        Err(Error::Status(status))
            if matches!(status.macp_code.as_deref(), Some("REGISTRY_READ_ONLY" | "FORBIDDEN")) =>
        {
            Some((status.macp_code.unwrap_or_default(), status.message))
        }
        Err(error) => return Err(error.into()),
    };
    if output.is_json() {
        let error = refusal.as_ref().map(|(code, message)| json!({ "code": code, "message": message }));
        output.value(&json!({ "ok": refusal.is_none(), "policy_id": id, "error": error }))?;
        return Ok(Finding::from_ok(refusal.is_none()));
    }
    match &refusal {
        None => output.line(format!("{} {}", output.paint(Paint::Good, done), clean(id)))?,
        Some((code, reason)) => {
            output.line(format!("{} {}", output.paint(Paint::Bad, "refused:"), clean(reason)))?;
            if let Some(advice) = remote::advice(code) {
                output.note(advice);
            }
        }
    }
    Ok(Finding::from_ok(refusal.is_none()))
}

fn policy_json(policy: &PolicyDescriptor) -> Value {
    json!({
        "policy_id": policy.policy_id,
        "mode": policy.mode,
        "description": policy.description,
        "schema_version": policy.schema_version,
        "rules": if policy.rules.is_empty() { json!({}) } else { text_or_base64(policy.rules.as_bytes()) },
        "registered_at_unix_ms": policy.registered_at_unix_ms,
    })
}
