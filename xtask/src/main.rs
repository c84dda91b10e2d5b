//! All automation of the project. `cargo xtask verify` is the test command; it checks and rewrites nothing.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, bail};

const HELP: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  verify   Everything CI checks: format, lints, all tests, the fuzz targets' build, the demo
  fix      Format the code and apply what lints can fix
  soak     The long variants: crash rounds, simulation seeds, property cases (takes an hour)
  bench    The benchmarks, in release mode, with their bars
";

/// A step of a command: what it is called, and the command line it runs.
struct Step {
    name: &'static str,
    words: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
}

const fn step(name: &'static str, words: &'static [&'static str]) -> Step {
    Step { name, words, variables: &[] }
}

const VERIFY: &[Step] = &[
    step("format", &["cargo", "fmt", "--all", "--check"]),
    step("lints", &["cargo", "clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    step("tests", &["cargo", "test", "--workspace", "--no-fail-fast"]),
    step("fuzz targets build", &["cargo", "check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]),
    step("demo", &["cargo", "run", "--quiet", "--bin", "macp", "--", "demo", "--no-delay"]),
];

const FIX: &[Step] = &[
    step("lints", &["cargo", "clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"]),
    step("format", &["cargo", "fmt", "--all"]),
];

const SOAK: &[Step] = &[
    Step {
        name: "crash rounds",
        words: &["cargo", "test", "--release", "--package", "macp-cli", "--test", "crash", "--", "--nocapture"],
        variables: &[("MACP_CRASH_ROUNDS", "200")],
    },
    step(
        "simulation seeds",
        &["cargo", "run", "--release", "--package", "macp-sim", "--", "--seeds", "100000", "--steps", "2000"],
    ),
    Step {
        name: "property cases",
        words: &["cargo", "test", "--release", "--package", "macp-kernel", "--package", "macp-wire"],
        variables: &[("PROPTEST_CASES", "100000")],
    },
];

const BENCH: &[Step] = &[step("benchmarks", &["cargo", "run", "--release", "--package", "macp-bench", "--", "all"])];

fn main() -> ExitCode {
    let verb = std::env::args().nth(1);
    let steps = match verb.as_deref() {
        Some("verify") => VERIFY,
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
    match steps.iter().try_for_each(run) {
        Ok(()) => {
            println!("\nall {} steps passed", steps.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nfailed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(step: &Step) -> anyhow::Result<()> {
    println!("\n=== {}: {}", step.name, step.words.join(" "));
    let (program, arguments) = step.words.split_first().context("a step has a command")?;
    let began = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .envs(step.variables.iter().copied())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    println!("=== {}: {:.0} s", step.name, began.elapsed().as_secs_f64());
    if !status.success() {
        bail!("{} ({status})", step.name);
    }
    Ok(())
}
