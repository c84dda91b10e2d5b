//! What a newcomer tries first.

use crate::support::macp;

#[test]
fn the_demo_passes_and_leaves_what_it_is_told_to_keep() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("kept");
    let data = data.to_str().unwrap();
    let told = macp(&["demo", "--no-delay", "--keep", data]).exits(0);
    assert!(told.stdout.contains("Everything matches"), "{told:?}");
    for part in ["↻ check", "✓ canary", "started once more, it is still the same run", "nothing called: match"] {
        assert!(told.stdout.contains(part), "{part}: {told:?}");
    }
    macp(&["verify", "--data", data, "--all"]).exits(0);

    let values = macp(&["demo", "--json", "--keep", data]).exits(0).values();
    assert_eq!(values.last().unwrap()["summary"]["ok"], true);
    let sessions = macp(&["--json", "session", "list", "--data", data]).exits(0).values();
    assert_eq!(sessions.len(), 8);
    let runs = macp(&["--json", "run", "list", "--data", data]).exits(0).values();
    assert_eq!(runs.len(), 2);
    for run in runs {
        macp(&["run", "replay", run["run_id"].as_str().unwrap(), "--data", data]).exits(0);
    }
}

#[test]
fn completions_version_and_help_print() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = macp(&["completions", shell]).exits(0).stdout;
        assert!(script.contains("macp") && script.contains("replay"), "{shell}");
    }
    assert_eq!(macp(&["--version"]).exits(0).stdout, format!("macp {}\n", env!("CARGO_PKG_VERSION")));
    assert!(macp(&["--help"]).exits(0).stdout.contains("macp demo"));
    macp(&[]).exits(2);
    macp(&["replay"]).exits(2);
    macp(&["verify", "--all"]).exits(2);
}
