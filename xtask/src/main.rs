//! All automation of the project. `cargo xtask verify` is the test command; it checks and rewrites nothing.

mod conform;
mod python;
mod server;
mod tools;

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::tools::Outcome;

const HELP: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  verify   Everything CI checks: format, lints, all tests, the fuzz targets' build, the demo,
           the official Python SDK and the official conformance runner. Without Python or without
           a network the last two say so and are skipped, unless MACP_CONFORMANCE_REQUIRED is set
  python   That step alone: tests/python and examples/python
  conform  That step alone: the official conformance runner over gRPC
  fix      Format the code and apply what lints can fix
  soak     The long variants: crash rounds, simulation seeds, property cases (takes an hour)
  bench    The benchmarks, in release mode, with their bars
";

/// A step of a command: what it is called, and what it does.
struct Step {
    name: &'static str,
    work: Work,
    variables: &'static [(&'static str, &'static str)],
}

enum Work {
    /// Run a command line.
    Words(&'static [&'static str]),
    /// Something longer, which may lack what it needs.
    Function(fn() -> anyhow::Result<Outcome>),
}

const fn step(name: &'static str, words: &'static [&'static str]) -> Step {
    Step { name, work: Work::Words(words), variables: &[] }
}

const fn function(name: &'static str, function: fn() -> anyhow::Result<Outcome>) -> Step {
    Step { name, work: Work::Function(function), variables: &[] }
}

const VERIFY: &[Step] = &[
    step("format", &["cargo", "fmt", "--all", "--check"]),
    step("lints", &["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    step("tests", &["cargo", "test", "--workspace", "--no-fail-fast"]),
    step("fuzz targets build", &["cargo", "check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]),
    function("demo", demo),
    function("official Python SDK", python::run),
    function("official conformance runner", conform::run),
];

const PYTHON: &[Step] = &[function("official Python SDK", python::run)];

const CONFORM: &[Step] = &[function("official conformance runner", conform::run)];

const FIX: &[Step] = &[
    step("lints", &["cargo", "clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]),
    step("format", &["cargo", "fmt", "--all"]),
];

const SOAK: &[Step] = &[
    Step {
        name: "crash rounds",
        work: Work::Words(&[
            "cargo",
            "test",
            "--release",
            "--package",
            "macp-cli",
            "--test",
            "crash",
            "--test",
            "crash_standard",
            "--test",
            "crash_runs",
            "--",
            "--nocapture",
        ]),
        variables: &[("MACP_CRASH_ROUNDS", "200")],
    },
    step(
        "simulation seeds",
        &["cargo", "run", "--release", "--package", "macp-sim", "--", "--seeds", "100000", "--steps", "2000"],
    ),
    Step {
        name: "property cases",
        work: Work::Words(&["cargo", "test", "--release", "--package", "macp-kernel", "--package", "macp-wire"]),
        variables: &[("PROPTEST_CASES", "100000")],
    },
];

const BENCH: &[Step] = &[step("benchmarks", &["cargo", "run", "--release", "--package", "macp-bench", "--", "all"])];

fn main() -> ExitCode {
    let verb = std::env::args().nth(1);
    let steps = match verb.as_deref() {
        Some("verify") => VERIFY,
        Some("python") => PYTHON,
        Some("conform") => CONFORM,
        Some("fix") => FIX,
        Some("soak") => SOAK,
        Some("bench") => BENCH,
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match run_all(steps) {
        Ok(skipped) => {
            println!("\n{} of {} steps passed", steps.len() - skipped.len(), steps.len());
            for (name, why) in skipped {
                println!("NOT RUN: {name}: {why}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nfailed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The two sessions a newcomer sees first, from start to proof.
fn demo() -> anyhow::Result<Outcome> {
    tools::run(Command::new(tools::server_binary()?).args(["demo", "--no-delay"]))?;
    Ok(Outcome::Passed)
}

/// Runs steps up to the first that fails; returns those that lacked what they need, and what that is.
fn run_all(steps: &[Step]) -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut skipped = Vec::new();
    for step in steps {
        match run(step)? {
            Outcome::Passed => {}
            Outcome::Skipped(why) if std::env::var_os("MACP_CONFORMANCE_REQUIRED").is_some() => {
                bail!("{} must run, but {why}", step.name)
            }
            Outcome::Skipped(why) => {
                println!("=== {}: not run: {why}", step.name);
                skipped.push((step.name, why));
            }
        }
    }
    Ok(skipped)
}

fn run(step: &Step) -> anyhow::Result<Outcome> {
    let began = Instant::now();
    let outcome = match step.work {
        Work::Words(words) => {
            println!("\n=== {}: {}", step.name, words.join(" "));
            run_words(step, words)?;
            Outcome::Passed
        }
        Work::Function(function) => {
            println!("\n=== {}", step.name);
            function().context(step.name)?
        }
    };
    println!("=== {}: {:.0} s", step.name, began.elapsed().as_secs_f64());
    Ok(outcome)
}

fn run_words(step: &Step, words: &[&str]) -> anyhow::Result<()> {
    let (program, arguments) = words.split_first().context("a step has a command")?;
    let status = Command::new(program)
        .args(arguments)
        .envs(step.variables.iter().copied())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{} ({status})", step.name);
    }
    Ok(())
}
