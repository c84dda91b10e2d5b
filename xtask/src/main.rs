//! All automation of the project. `cargo xtask verify` is the test command; it checks and rewrites nothing.

mod conform;
mod deny;
mod fuzz;
mod python;
mod server;
mod tools;

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::tools::{Found, Outcome};

const HELP: &str = "\
Usage: cargo xtask <COMMAND>

Commands:
  verify   Everything CI checks: format, lints, dependencies, all tests, every fuzz target for some
           seconds, the demo, the official Python SDK and the official conformance runner. Steps that
           lack Python or a network are reported and skipped, unless MACP_CONFORMANCE_REQUIRED is set
  deny     The check of dependencies alone: licences, sources, bans and, where the advisory database can
           be fetched, known vulnerabilities, by deny.toml
  python   That step alone: tests/python and examples/python
  conform  That step alone: the official conformance runner over gRPC
  fix      Format the code and apply what lints can fix
  soak     The long variants, meant for the night: crash rounds, unread replies, damaged logs, memory of
           runs, simulation seeds, property cases, random plans, fuzzing (takes some hours)
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
    function("dependencies", deny::run),
    function("tests", tests),
    function("fuzzing", fuzz::short),
    function("demo", demo),
    function("official Python SDK", python::run),
    function("official conformance runner", conform::run),
];

const DENY: &[Step] = &[function("dependencies", deny::run)];

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
    Step {
        name: "unread replies",
        work: Work::Words(&[
            "cargo",
            "test",
            "--release",
            "--package",
            "macp-cli",
            "--test",
            "hostile",
            "--",
            "--nocapture",
        ]),
        variables: &[("MACP_HOSTILE_CONNECTIONS", "100"), ("MACP_HOSTILE_REQUESTS", "1000")],
    },
    Step {
        name: "damaged logs",
        work: Work::Words(&[
            "cargo",
            "test",
            "--release",
            "--package",
            "macp-ledger",
            "--package",
            "macp-cli",
            "--test",
            "log_damage",
            "--",
            "--nocapture",
        ]),
        variables: &[("MACP_LOG_FLIPS", "20000")],
    },
    Step {
        name: "memory of runs",
        work: Work::Words(&[
            "cargo",
            "test",
            "--release",
            "--package",
            "macp-cli",
            "--test",
            "run_memory",
            "--",
            "--nocapture",
        ]),
        variables: &[("MACP_MEMORY_RUNS", "240"), ("MACP_MEMORY_ANSWER_BYTES", "9000000")],
    },
    step(
        "simulation seeds",
        &["cargo", "run", "--release", "--package", "macp-sim", "--", "--seeds", "100000", "--steps", "2000"],
    ),
    Step {
        name: "property cases",
        work: Work::Words(&[
            "cargo",
            "test",
            "--release",
            "--package",
            "macp-kernel",
            "--package",
            "macp-wire",
            "--package",
            "macp-ledger",
            "--package",
            "macp-auth",
        ]),
        variables: &[("PROPTEST_CASES", "100000")],
    },
    Step {
        name: "random plans",
        work: Work::Words(&["cargo", "test", "--release", "--package", "macp-plan-core", "--package", "macp-plan"]),
        variables: &[("PROPTEST_CASES", "20000")],
    },
    function("fuzzing", fuzz::long),
];

const BENCH: &[Step] = &[step("benchmarks", &["cargo", "run", "--release", "--package", "macp-bench", "--", "all"])];

fn main() -> ExitCode {
    let verb = std::env::args().nth(1);
    let steps = match verb.as_deref() {
        Some("verify") => VERIFY,
        Some("deny") => DENY,
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
    let required = std::env::var_os("MACP_CONFORMANCE_REQUIRED").is_some();
    match run_all(steps, required) {
        Ok(Ran { passed, not_run }) => {
            println!("\n{passed} of {} steps passed", steps.len());
            for (name, why) in not_run {
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

/// All tests. Those of the public conformance fixtures pass over what they cannot get, and then nobody sees that they did:
/// so the fixtures are fetched here, and the tests must run them or it is said that they did not.
fn tests() -> anyhow::Result<Outcome> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--no-fail-fast"]);
    let missing = match conform::published()? {
        Found::Here(directory) => {
            command.env("MACP_CONFORMANCE_DIR", directory).env("MACP_CONFORMANCE_REQUIRED", "1");
            None
        }
        Found::Missing(why) => Some(why),
    };
    tools::run(&mut command)?;
    Ok(missing.map_or(Outcome::Passed, |why| Outcome::PassedWithout("public conformance fixtures in the tests", why)))
}

/// The two sessions a newcomer sees first, from start to proof.
fn demo() -> anyhow::Result<Outcome> {
    tools::run(Command::new(tools::server_binary()?).args(["demo", "--no-delay"]))?;
    Ok(Outcome::Passed)
}

/// What became of steps none of which failed.
#[derive(Debug, Default)]
struct Ran {
    passed: usize,
    /// What lacked something it needs, and what that is.
    not_run: Vec<(&'static str, String)>,
}

/// Runs steps up to the first that fails, or that cannot be run although all are required.
fn run_all(steps: &[Step], required: bool) -> anyhow::Result<Ran> {
    let mut ran = Ran::default();
    for step in steps {
        let (name, why, must_run) = match run(step)? {
            Outcome::Passed => {
                ran.passed += 1;
                continue;
            }
            Outcome::PassedWithout(what, why) => {
                ran.passed += 1;
                (what, why, required)
            }
            Outcome::PassedExcept(what, why) => {
                ran.passed += 1;
                (what, why, false)
            }
            Outcome::Skipped(why) => (step.name, why, required),
        };
        if must_run {
            bail!("{name} must run, but {why}");
        }
        println!("=== {name}: not run: {why}");
        ran.not_run.push((name, why));
    }
    Ok(ran)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_run_is_told_and_is_no_step_that_passed() {
        let lacks = || Ok(Outcome::PassedWithout("a part", "no network".to_owned()));
        let excepted = || Ok(Outcome::PassedExcept("an extra", "no database".to_owned()));
        let skipped = || Ok(Outcome::Skipped("no Python".to_owned()));
        let whole = function("whole", || Ok(Outcome::Passed));
        let steps = [whole, function("except", excepted), function("partial", lacks), function("none", skipped)];
        let ran = run_all(&steps, false).unwrap();
        assert_eq!(ran.passed, 3);
        let told = [("an extra", "no database"), ("a part", "no network"), ("none", "no Python")];
        assert_eq!(ran.not_run, told.map(|(name, why)| (name, why.to_owned())));
        assert_eq!(run_all(&steps[..2], true).unwrap().not_run, [("an extra", "no database".to_owned())]);
        assert!(run_all(&steps, true).unwrap_err().to_string().contains("a part must run"));
        assert!(run_all(&[function("fails", || bail!("it does"))], false).is_err());
    }
}
