//! `macp receipt`: what a session decided, as a document that proves itself.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use macp_archive::receipt::{AttestationOutcome, PublicKeys, Verdict, Verification, verify};
use serde_json::{Value, json};

use crate::Finding;
use crate::output::{Output, Paint};
use crate::remote::ServerArgs;
use crate::text::clean;

/// Get the receipt of a resolved session, and check receipts
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Get(GetArgs),
    Verify(VerifyArgs),
}

/// Print the receipt of a resolved session; it is the same for ever
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// Session id
    session: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Check a receipt, without a server if keys are at hand
///
/// With keys the receipt must be signed by one of them. Without keys only its content is checked: that the commitment
/// is the one its hash stands for.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// File with the receipt; - reads stdin
    file: PathBuf,
    /// JSON Web Key Set file with the keys to trust
    #[arg(long, value_name = "FILE", conflicts_with = "server_keys")]
    keys: Option<PathBuf>,
    /// Trust the keys that the server publishes
    #[arg(long)]
    server_keys: bool,
    #[command(flatten)]
    server: ServerArgs,
}

impl Command {
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Finding> {
        match self {
            Command::Get(args) => get(&args, output).await,
            Command::Verify(args) => check(&args, output).await,
        }
    }
}

async fn get(args: &GetArgs, output: &Output) -> anyhow::Result<Finding> {
    match args.server.connect().await?.receipt(&args.session).await {
        Ok(receipt) => {
            output.line(receipt)?;
            Ok(Finding::Positive)
        }
        Err(error) if error.code() == Some("RECEIPT_UNAVAILABLE") => {
            output.note(clean(&error.to_string()));
            Ok(Finding::Negative)
        }
        Err(error) => Err(error.into()),
    }
}

async fn check(args: &VerifyArgs, output: &Output) -> anyhow::Result<Finding> {
    let receipt = read(&args.file)?;
    let keys = match &args.keys {
        Some(path) => Some(PublicKeys::read(path).with_context(|| path.display().to_string())?),
        None if args.server_keys => {
            let published = args.server.connect().await?.receipt_keys().await?;
            Some(PublicKeys::from_jwks(&published).context("the keys the server publishes")?)
        }
        None => None,
    };
    let verification = verify(receipt.trim(), keys.as_ref().unwrap_or(&PublicKeys::none()));
    // Who names keys asks who issued it.
    let good = match verification.verdict {
        Verdict::Attested => true,
        Verdict::IntegrityOnly => keys.is_none(),
        Verdict::Unverified | Verdict::Refused => false,
    };
    report(&verification, good, output)?;
    Ok(Finding::from_ok(good))
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn report(found: &Verification, good: bool, output: &Output) -> anyhow::Result<()> {
    if output.is_json() {
        let mut value = serde_json::to_value(found)?;
        value["ok"] = Value::Bool(good);
        output.value(&json!({ "receipt": value }))?;
        return Ok(());
    }
    let paint = if good { Paint::Good } else { Paint::Bad };
    let words = match found.verdict {
        Verdict::Attested => "the receipt is whole, and a trusted key signed it",
        Verdict::IntegrityOnly => "the commitment is the one that was hashed; no trusted key shows who issued it",
        Verdict::Unverified => "the commitment is not shown to be the one that was hashed",
        Verdict::Refused => "this is no receipt of a known format",
    };
    let verdict = found.verdict.as_str().to_uppercase().replace('_', " ");
    output.line(format!("{}: {words}", output.paint(paint, verdict)))?;
    if let Some(problem) = &found.problem {
        output.line(format!("  {}", clean(problem)))?;
    }
    for attestation in &found.attestations {
        let kid = attestation.kid.as_deref().unwrap_or("without a name");
        let words = match attestation.outcome {
            AttestationOutcome::Valid => "signed it",
            AttestationOutcome::Invalid => "did not sign it: the signature is bad",
            AttestationOutcome::UnknownKey => "is not among the trusted keys",
            AttestationOutcome::Unsupported => "signs in a way that is not known here",
        };
        output.line(format!("  key {} {words}", clean(kid)))?;
    }
    Ok(())
}
