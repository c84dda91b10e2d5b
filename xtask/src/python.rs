//! The official Python SDK against the real binary: `tests/python`, in a virtual environment below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::tools::{self, Found, Outcome};

/// The oldest Python the SDK runs on.
const OLDEST: (u32, u32) = (3, 11);

/// What an interpreter may be called, best first.
const NAMES: &[&str] = &["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];

pub(crate) fn run() -> anyhow::Result<Outcome> {
    let python = match environment()? {
        Found::Here(python) => python,
        Found::Missing(why) => return Ok(Outcome::Skipped(why)),
    };
    let server = tools::server_binary()?;
    let tests = tools::repository().join("tests").join("python");
    tools::run(
        Command::new(python)
            .args(["-m", "pytest", "--quiet"])
            .arg(tests)
            .env("MACP_BIN", server)
            .env_remove("MACP_ADDRESS")
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )?;
    Ok(Outcome::Passed)
}

/// The interpreter of an environment that holds what `tests/python/requirements.txt` names.
fn environment() -> anyhow::Result<Found<PathBuf>> {
    let requirements = tools::repository().join("tests").join("python").join("requirements.txt");
    let wanted =
        fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    let python = match bare_environment()? {
        Found::Here(python) => python,
        missing => return Ok(missing),
    };
    // Written last, so that it is there only if all of it was installed.
    let stamp = tools::target()?.join("python-venv").join("installed-requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Found::Here(python));
    }
    if let Found::Missing(why) = install(&python, &["-r", &requirements.to_string_lossy()])? {
        return Ok(Found::Missing(why));
    }
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Found::Here(python))
}

/// The interpreter of a virtual environment that may be empty; made once.
pub(crate) fn bare_environment() -> anyhow::Result<Found<PathBuf>> {
    let directory = tools::target()?.join("python-venv");
    let python = directory.join("bin").join("python");
    if version(&python.to_string_lossy())?.is_some_and(|version| version >= OLDEST) {
        return Ok(Found::Here(python));
    }
    let Some(base) = interpreter()? else {
        let (major, minor) = OLDEST;
        return Ok(Found::Missing(format!("there is no Python {major}.{minor} or newer; install one")));
    };
    let made = tools::output(Command::new(base).args(["-m", "venv", "--clear"]).arg(&directory))?;
    let made = made.with_context(|| format!("{base} is gone"))?;
    if made.status.success() {
        return Ok(Found::Here(python));
    }
    let text = tools::said(&made);
    // Debian and its kin keep this part of Python in a package of its own.
    if text.contains("ensurepip") || text.contains("No module named venv") {
        let why = "this Python cannot make virtual environments; install its venv package (python3-venv)";
        return Ok(Found::Missing(why.to_owned()));
    }
    bail!("{base} cannot make a virtual environment in {}:\n{text}", directory.display());
}

/// Installs packages into an environment.
pub(crate) fn install(python: &Path, what: &[&str]) -> anyhow::Result<Found<()>> {
    let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let installed = tools::output(Command::new(python).args(arguments).args(what))?;
    let installed = installed.with_context(|| format!("{} is gone", python.display()))?;
    if installed.status.success() {
        return Ok(Found::Here(()));
    }
    if tools::is_offline(&installed) {
        return Ok(Found::Missing(format!("no network to install Python packages over ({})", what.join(" "))));
    }
    bail!("pip cannot install {}:\n{}", what.join(" "), tools::said(&installed));
}

/// The first interpreter that is new enough.
fn interpreter() -> anyhow::Result<Option<&'static str>> {
    for name in NAMES {
        if version(name)?.is_some_and(|version| version >= OLDEST) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The version of an interpreter; none if it does not run.
fn version(program: &str) -> anyhow::Result<Option<(u32, u32)>> {
    let ask = "import sys; print(sys.version_info.major, sys.version_info.minor)";
    let Some(output) = tools::output(Command::new(program).args(["-c", ask]))? else { return Ok(None) };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse);
    Ok(match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    })
}
