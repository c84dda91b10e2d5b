//! What steps need beside cargo: where build products lie, and other people's programs, installed below them once and
//! used again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, bail};

/// How a step ended that may lack what it needs.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed,
    /// All that was run passed, and this part of it was not: what it is, and what is missing.
    PassedWithout(&'static str, String),
    /// The same about a part that no machine is required to have what it takes for.
    PassedExcept(&'static str, String),
    /// What is missing, and what to do about it.
    Skipped(String),
}

/// Something a step needs, or why it cannot be had here.
pub(crate) enum Found<T> {
    Here(T),
    Missing(String),
}

/// The directory of build products, whatever it is called.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let directory = program.ancestors().nth(2).context("this program lies in no directory of build products")?;
    Ok(directory.to_owned())
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Builds the server and says where it lies: beside this program. By way of a test that needs it, so that it is the one
/// the tests were run with: what tests depend on changes how dependencies are built, and a plain build makes them anew.
pub(crate) fn server_binary() -> anyhow::Result<PathBuf> {
    run(Command::new("cargo").args(["test", "--quiet", "--workspace", "--test", "cli", "--no-run"]))?;
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    Ok(program.with_file_name("macp"))
}

/// Runs a program to its end and expects success; what it says goes to the terminal.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed ({status})", command.get_program().display());
    }
    Ok(())
}

/// Runs a program to its end and keeps what it says; none if there is no such program.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Option<Output>> {
    match command.output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot run {}", command.get_program().display())),
    }
}

/// The command that builds a program from crates.io into `tools`, unoptimised because that is quicker than what it saves.
/// [`install_into`] runs it.
pub(crate) fn install(tools: &Path, package: &str, version: &str) -> Command {
    let mut install = Command::new("cargo");
    install
        .args(["install", package, "--version", version, "--debug", "--quiet", "--root"])
        .arg(tools)
        .arg("--target-dir")
        .arg(tools.join("build"));
    install
}

/// Runs what [`install`] has prepared; missing if there is no network to install it over.
pub(crate) fn install_into(tools: &Path, mut install: Command, what: &str) -> anyhow::Result<Found<()>> {
    let installed = output(&mut install)?.context("there is no cargo")?;
    if installed.status.success() {
        // Only the program is needed again.
        fs::remove_dir_all(tools.join("build")).context("cannot remove the build directory of a tool")?;
        return Ok(Found::Here(()));
    }
    if cargo_is_offline(&installed) {
        return Ok(Found::Missing(format!("no network to install {what} over")));
    }
    bail!("{what} cannot be installed:\n{}", said(&installed));
}

/// Whether cargo could not reach a registry, or must not.
pub(crate) fn cargo_is_offline(output: &Output) -> bool {
    is_offline(output) || env::var("CARGO_NET_OFFLINE").is_ok_and(|value| value == "true")
}

/// Whether a download failed because nobody answered, going by what pip and cargo write then.
pub(crate) fn is_offline(output: &Output) -> bool {
    const SIGNS: &[&str] = &[
        "after connection broken by",
        "failed to download",
        "Could not resolve host",
        "Couldn't resolve host",
        "Could not connect to server",
        "Couldn't connect to server",
        "Connection refused",
        "Temporary failure in name resolution",
        "spurious network error",
        "Timeout was reached",
        "--offline was specified",
    ];
    let text = said(output);
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// All a program said.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn failed(stderr: &str) -> Output {
        Output { status: ExitStatus::from_raw(256), stdout: Vec::new(), stderr: stderr.as_bytes().to_vec() }
    }

    #[test]
    fn only_a_missing_network_excuses_a_failed_download() {
        let pip = "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError'";
        let cargo = "error: failed to download from `https://index.example/config.json`";
        assert!(is_offline(&failed(pip)) && is_offline(&failed(cargo)));
        let unknown = "ERROR: No matching distribution found for macp-sdk-python==99.0.0";
        let broken = "error: could not compile `macp-conform` (bin \"macp-conform\") due to 1 previous error";
        assert!(!is_offline(&failed(unknown)) && !is_offline(&failed(broken)));
    }
}
