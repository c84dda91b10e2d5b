//! The official conformance runner against the real binary, over gRPC.
//!
//! The runner is installed once below `target/tools`, and plays the fixtures that are published with the reference
//! runtime. A server shows neither a clock nor a hash function, so that it has to skip what needs one; these are tested
//! in process by `crates/conformance`. Anything else it skips, fails or cannot do is a failure.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::python;
use crate::server::Server;
use crate::tools::{self, Found, Outcome};

/// The release of runner and fixtures; they belong together.
const VERSION: &str = "0.13.0";

/// Fixtures and vectors of that release. A run over fewer proves less than it seems to.
const FIXTURES: usize = 50;

/// What brings a protobuf compiler along, which the runner's build asks for.
const COMPILER: &str = "grpcio-tools==1.85.1";

pub(crate) fn run() -> anyhow::Result<Outcome> {
    let tools = tools::target()?.join("tools");
    let runner = match runner(&tools)? {
        Found::Here(runner) => runner,
        Found::Missing(why) => return Ok(Outcome::Skipped(why)),
    };
    let fixtures = match published()? {
        Found::Here(fixtures) => fixtures,
        Found::Missing(why) => return Ok(Outcome::Skipped(why)),
    };
    let scratch = tools.join("conform");
    let server = Server::start(&tools::server_binary()?, &scratch)?;
    let report = scratch.join("report.json");
    let target = format!("grpc://{}", server.address);
    // What failed, it tells on the terminal.
    tools::run(
        Command::new(runner)
            .args(["--target", &target, "--level", "standard", "--multi-round", "--fixtures"])
            .arg(fixtures)
            .arg("--report")
            .arg(&report),
    )?;
    let text = fs::read(&report).with_context(|| format!("cannot read {}", report.display()))?;
    judge(&serde_json::from_slice(&text).context("the runner's report is not JSON")?)?;
    Ok(Outcome::Passed)
}

/// Every fixture passed or was skipped for a reason that holds for every server.
fn judge(report: &Value) -> anyhow::Result<()> {
    let fixtures = report["fixtures"].as_array().context("the runner's report lists no fixtures")?;
    if fixtures.len() != FIXTURES {
        bail!("the runner played {} fixtures, but {VERSION} has {FIXTURES}", fixtures.len());
    }
    let bad: Vec<String> = fixtures
        .iter()
        .filter(|fixture| {
            let name = fixture["name"].as_str().unwrap_or_default();
            match (fixture["outcome"].as_str(), fixture["reason"].as_str()) {
                (Some("pass"), _) => false,
                (Some("skipped"), Some("needs-clock-control")) => name != "handoff_implicit_accept.json",
                (Some("skipped"), Some("needs-hash-api")) => !name.starts_with("cmt-hash/"),
                _ => true,
            }
        })
        .map(Value::to_string)
        .collect();
    if !bad.is_empty() {
        bail!("not passed, and not excused either:\n{}", bad.join("\n"));
    }
    Ok(())
}

/// The runner, installed unless it is there.
fn runner(tools: &Path) -> anyhow::Result<Found<PathBuf>> {
    let program = tools.join("bin").join("macp-conform");
    if let Some(output) = tools::output(Command::new(&program).arg("--version"))?
        && tools::said(&output).trim() == format!("macp-conform {VERSION}")
    {
        return Ok(Found::Here(program));
    }
    let compiler = match compiler(tools)? {
        Found::Here(compiler) => compiler,
        Found::Missing(why) => return Ok(Found::Missing(why)),
    };
    println!("installing macp-conform {VERSION}, once; this takes some minutes");
    let mut install = tools::install(tools, "macp-conform", VERSION);
    install.args(["--features", "grpc"]);
    if let Some(compiler) = compiler {
        install.env("PROTOC", compiler);
    }
    Ok(match tools::install_into(tools, install, &format!("macp-conform {VERSION}"))? {
        Found::Here(()) => Found::Here(program),
        Found::Missing(why) => Found::Missing(why),
    })
}

/// A protobuf compiler to name in `PROTOC`; none if cargo finds one without our help.
fn compiler(tools: &Path) -> anyhow::Result<Found<Option<PathBuf>>> {
    if env::var_os("PROTOC").is_some() || tools::output(Command::new("protoc").arg("--version"))?.is_some() {
        return Ok(Found::Here(None));
    }
    let help = "there is no protoc, which the build of macp-conform needs, and Python cannot bring one along";
    let python = match python::bare_environment()? {
        Found::Here(python) => python,
        Found::Missing(why) => return Ok(Found::Missing(format!("{help}: {why}"))),
    };
    if let Found::Missing(why) = python::install(&python, &[COMPILER])? {
        return Ok(Found::Missing(format!("{help}: {why}")));
    }
    let script = tools.join("protoc");
    fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
    let text = format!("#!/bin/sh\nexec '{}' -m grpc_tools.protoc \"$@\"\n", python.display());
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {} executable", script.display()))?;
    Ok(Found::Here(Some(script)))
}

/// The published fixtures, wherever they are kept.
pub(crate) fn published() -> anyhow::Result<Found<PathBuf>> {
    fixtures(&tools::target()?.join("tools").join("published-fixtures"))
}

/// The published fixtures: cargo downloads the package they come with, and tells where it put it.
fn fixtures(scratch: &Path) -> anyhow::Result<Found<PathBuf>> {
    if let Some(directory) = env::var_os("MACP_CONFORMANCE_DIR") {
        return Ok(Found::Here(directory.into()));
    }
    fs::create_dir_all(scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let manifest = scratch.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"fixtures\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"empty.rs\"\n\
         [dependencies]\nmacp-runtime = {{ version = \"={VERSION}\", default-features = false }}\n[workspace]\n"
    );
    for (path, text) in [(&manifest, text.as_str()), (&scratch.join("empty.rs"), "")] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--format-version", "1", "--quiet", "--manifest-path"]).arg(&manifest);
    let output = tools::output(&mut metadata)?.context("there is no cargo")?;
    if !output.status.success() {
        if tools::cargo_is_offline(&output) {
            return Ok(Found::Missing(format!("no network to download the fixtures of macp-runtime {VERSION} over")));
        }
        bail!("cargo cannot download the fixtures:\n{}", tools::said(&output));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("what cargo says is not JSON")?;
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let package = packages.iter().find(|package| package["name"] == "macp-runtime");
    let path = package.and_then(|package| package["manifest_path"].as_str()).map(Path::new);
    let package = path.and_then(Path::parent).context("cargo does not say where it put macp-runtime")?;
    Ok(Found::Here(package.join("tests").join("conformance")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(odd: &Value) -> Value {
        let mut fixtures = vec![json!({"name": "decision_happy_path.json", "outcome": "pass"}); FIXTURES - 1];
        fixtures.push(odd.clone());
        json!({ "fixtures": fixtures })
    }

    #[test]
    fn only_documented_skips_are_excused_std_conf_2() {
        let skip = |name: &str, reason: &str| json!({"name": name, "outcome": "skipped", "reason": reason});
        assert!(judge(&report(&skip("handoff_implicit_accept.json", "needs-clock-control"))).is_ok());
        assert!(judge(&report(&skip("cmt-hash/cmt_hash_001_minimal.json", "needs-hash-api"))).is_ok());
        assert!(judge(&report(&skip("task_happy_path.json", "needs-clock-control"))).is_err());
        assert!(judge(&report(&skip("task_happy_path.json", "needs-hash-api"))).is_err());
        assert!(judge(&report(&json!({"name": "task_happy_path.json", "outcome": "fail"}))).is_err());
        assert!(judge(&report(&json!({"name": "task_happy_path.json", "outcome": "error"}))).is_err());
    }

    #[test]
    fn a_run_over_fewer_fixtures_proves_nothing() {
        assert!(judge(&json!({ "fixtures": [] })).is_err());
        assert!(judge(&json!({})).is_err());
    }
}
