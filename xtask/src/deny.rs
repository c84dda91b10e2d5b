//! `cargo deny`: what dependencies may be, by `deny.toml`: licences, sources, bans and known vulnerabilities.
//!
//! An installed one is used if it is of the release the configuration is written for. Otherwise it is built below
//! `target/tools`, once: without optimisation that takes about a minute on two cores, and a check five seconds. There is
//! no prebuilt package of this release on crates.io, PyPI or npm.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::tools::{self, Found, Outcome};

/// The release that is installed, and the series whose configuration is the same.
const VERSION: &str = "0.20.2";
const SERIES: &str = "0.20.";

pub(crate) fn run() -> anyhow::Result<Outcome> {
    let program = match program()? {
        Found::Here(program) => program,
        Found::Missing(why) => return Ok(Outcome::Skipped(why)),
    };
    tools::run(deny("Cargo.toml", &program).args(["check", "bans", "licenses", "sources"]))?;
    // The fuzz targets are a separate workspace, which is not distributed: licences do not matter there.
    tools::run(deny("fuzz/Cargo.toml", &program).args(["check", "-A", "unmatched-skip", "bans", "sources"]))?;
    if let Found::Missing(why) = fetch_advisories(&program)? {
        return Ok(Outcome::PassedExcept("known vulnerabilities of dependencies", why));
    }
    tools::run(deny("Cargo.toml", &program).args(["check", "advisories"]))?;
    Ok(Outcome::Passed)
}

/// A `cargo deny` of the right release, installed unless there is one.
fn program() -> anyhow::Result<Found<PathBuf>> {
    let installed = PathBuf::from("cargo-deny");
    if version(&installed)?.is_some_and(|version| version.starts_with(SERIES)) {
        return Ok(Found::Here(installed));
    }
    let tools = tools::target()?.join("tools");
    let ours = tools.join("bin").join("cargo-deny");
    if version(&ours)?.is_some_and(|version| version == VERSION) {
        return Ok(Found::Here(ours));
    }
    println!("installing cargo-deny {VERSION}, once; this takes a minute or two");
    let mut install = tools::install(&tools, "cargo-deny", VERSION);
    install.arg("--locked").env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    tools::install_into(&tools, install, &format!("cargo-deny {VERSION}")).map(|found| match found {
        Found::Here(()) => Found::Here(ours),
        Found::Missing(why) => Found::Missing(why),
    })
}

/// The version of a `cargo-deny`; none if there is none or it does not run.
fn version(program: &Path) -> anyhow::Result<Option<String>> {
    let Some(output) = tools::output(Command::new(program).arg("--version"))? else { return Ok(None) };
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().strip_prefix("cargo-deny ").map(str::to_owned))
}

/// Updates the database of vulnerabilities. It is on GitHub, which not every network reaches.
fn fetch_advisories(program: &Path) -> anyhow::Result<Found<()>> {
    let output = tools::output(deny("Cargo.toml", program).args(["fetch", "db"]))?.context("cargo-deny is gone")?;
    if output.status.success() {
        return Ok(Found::Here(()));
    }
    let text = tools::said(&output);
    if !text.contains("failed to fetch") {
        bail!("cargo-deny cannot update the advisory database:\n{text}");
    }
    Ok(Found::Missing("the advisory database cannot be fetched from github.com/rustsec/advisory-db".to_owned()))
}

fn deny(manifest: &str, program: &Path) -> Command {
    let repository = tools::repository();
    let mut command = Command::new(program);
    command
        .current_dir(repository)
        .arg("--manifest-path")
        .arg(repository.join(manifest))
        .arg("--config")
        .arg(repository.join("deny.toml"));
    command
}
