//! The fuzz targets, with the compiler everyone has.
//!
//! `cargo fuzz` asks for a nightly compiler because of the address sanitizer. What the targets look for, a panic or an
//! answer that contradicts another, needs none; and that the fuzzer sees which code an input reaches is a matter of
//! options that the stable compiler takes as well.

use std::fs;
use std::process::Command;

use anyhow::{Context, bail};

use crate::tools::{self, Outcome};

/// Have the compiler count how often each branch is taken, for the fuzzer to see.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";

/// Seconds per target on each change: enough to show that the targets run and find what is easily found.
const SECONDS_SHORT: u32 = 5;

/// Seconds per target in a long run.
const SECONDS_LONG: u32 = 900;

/// Longest input tried: several commands, or a small plan.
const INPUT_BYTES_MAX: u32 = 2_000;

/// From nothing, so that a run depends on no earlier one.
pub(crate) fn short() -> anyhow::Result<Outcome> {
    run(SECONDS_SHORT, false)
}

/// From what earlier long runs have found, and for the next one.
pub(crate) fn long() -> anyhow::Result<Outcome> {
    run(SECONDS_LONG, true)
}

fn run(seconds: u32, keep_corpus: bool) -> anyhow::Result<Outcome> {
    if tools::output(Command::new("c++").arg("--version"))?.is_none() {
        return Ok(Outcome::Skipped("there is no C++ compiler, which the fuzzer itself needs".to_owned()));
    }
    let (fuzz, host) = (tools::repository().join("fuzz"), host()?);
    for target in targets()? {
        println!("{target}: {seconds} s");
        let artifacts = fuzz.join("artifacts").join(&target);
        fs::create_dir_all(&artifacts).with_context(|| format!("cannot create {}", artifacts.display()))?;
        let mut command = Command::new("cargo");
        command
            .env("RUSTFLAGS", INSTRUMENTED)
            .args(["run", "--quiet", "--target", &host, "--bin", &target, "--manifest-path"])
            .arg(fuzz.join("Cargo.toml"))
            .args(if keep_corpus { &["--release"][..] } else { &[] })
            // What a panic would have shown must show in optimised code as well.
            .envs(
                ["DEBUG_ASSERTIONS", "OVERFLOW_CHECKS"].map(|check| (format!("CARGO_PROFILE_RELEASE_{check}"), "true")),
            )
            // Inputs of any length from the beginning: a short run would else see nothing but the shortest.
            .args(["--", "-verbosity=0", "-print_funcs=0", "-timeout=60", "-len_control=0"])
            .args([format!("-max_total_time={seconds}"), format!("-max_len={INPUT_BYTES_MAX}")])
            .arg(format!("-artifact_prefix={}/", artifacts.display()));
        if keep_corpus {
            let corpus = fuzz.join("corpus").join(&target);
            fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
            command.arg(corpus);
        }
        tools::run(&mut command)
            .with_context(|| format!("{target}; what made it fail is in {}", artifacts.display()))?;
    }
    Ok(Outcome::Passed)
}

/// One file each.
fn targets() -> anyhow::Result<Vec<String>> {
    let directory = tools::repository().join("fuzz").join("fuzz_targets");
    let mut targets = Vec::new();
    for file in fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a fuzz target has a readable name")?;
        targets.push(name.to_owned());
    }
    if targets.is_empty() {
        bail!("there is no fuzz target in {}", directory.display());
    }
    targets.sort();
    Ok(targets)
}

/// What this machine is called. Naming it keeps the options from what runs while things are built.
fn host() -> anyhow::Result<String> {
    let output = tools::output(Command::new("rustc").arg("-vV"))?.context("there is no rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not name its host")?;
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that is not declared is built by nobody.
    #[test]
    fn every_target_is_declared() {
        let manifest = fs::read_to_string(tools::repository().join("fuzz").join("Cargo.toml")).unwrap();
        for target in targets().unwrap() {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
        }
        assert!(host().unwrap().contains('-'));
    }
}
