//! Commands that read a data directory, beside a running server and without one.

use serde_json::json;

use crate::support::{Server, command, decide, macp, run};

#[test]
fn a_directory_tells_the_same_as_its_server() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_str().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", true);
    decide(&server, "s2", false);

    let here = |args: &[&str]| macp(&[args, &["--data", directory]].concat());
    for args in
        [["--json", "session", "log", "s1"].as_slice(), &["--json", "verify", "s1"], &["--json", "replay", "s2"]]
    {
        assert_eq!(here(args).exits(0).stdout, server.macp(args).exits(0).stdout, "{args:?}");
    }
    assert_eq!(here(&["export", "s1"]).exits(0).stdout, server.macp(&["export", "s1"]).exits(0).stdout);
    let shown = here(&["--json", "session", "show", "s2"]).exits(0).value();
    assert_eq!((&shown["state"], &shown["entries"]), (&json!("Open"), &json!(3)));
    assert_eq!(shown["mode_state"]["phase"], "Voting");

    let busy = macp(&["--json", "doctor", "--data", directory]).exits(0).value();
    assert_eq!((&busy["open"], &busy["ended"], &busy["entries"]), (&json!(1), &json!(1), &json!(7)));
    assert_eq!(busy["in_use_by"], format!("process {}", server.pid()));
    assert!(server.terminate().success());
    let idle = macp(&["--json", "doctor", "--data", directory]).exits(0).value();
    assert_eq!(idle["in_use"], false);

    let all = macp(&["--json", "verify", "--data", directory, "--all"]).exits(0).value();
    assert_eq!((&all["sessions"], &all["entries"], &all["bad"]), (&json!(2), &json!(7), &json!(0)));
}

#[test]
fn open_sessions_and_other_histories_are_not_imported() {
    let data = tempfile::tempdir().unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let server = Server::on(data.path());
    decide(&server, "open", false);
    decide(&server, "s1", true);
    for session in ["open", "s1"] {
        server.macp(&["export", session, "--out", &path(session)]).exits(0);
    }
    let target = path("target");
    let refused = macp(&["--json", "import", &path("open"), "--data", &target]).exits(1).value();
    assert!(refused["message"].as_str().unwrap().contains("has not ended"), "{refused}");
    assert!(!place.path().join("target").exists(), "a refused import leaves no directory");

    // The same name, another history: two authorities for one session.
    let other = Server::on(&place.path().join("target"));
    decide(&other, "s1", true);
    let busy = macp(&["import", &path("s1"), "--data", &target]).exits(2);
    assert!(busy.stderr.contains("in use"), "{busy:?}");
    assert!(other.terminate().success());
    let differs = macp(&["--json", "import", &path("s1"), "--data", &target]).exits(1).value();
    assert!(differs["message"].as_str().unwrap().contains("another history"), "{differs}");
}

#[test]
fn a_directory_without_a_database_is_a_failure() {
    let empty = tempfile::tempdir().unwrap();
    let directory = empty.path().to_str().unwrap();
    for args in [["session", "list"].as_slice(), &["verify", "s1"], &["verify", "--all"], &["doctor"]] {
        let failed = macp(&[args, &["--data", directory]].concat()).exits(2);
        assert!(failed.stderr.starts_with("error: "), "{failed:?}");
    }
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "reading creates nothing");
}

/// Nobody creates files here, whoever runs the tests.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_that_cannot_be_written_refuses_the_start() {
    for directory in ["/sys/macp-data", "/sys/kernel"] {
        for args in [
            ["serve", "--listen", "127.0.0.1:0", "--data", directory].as_slice(),
            &["--json", "serve", "--data", directory],
        ] {
            let refused = macp(args).exits(2);
            let told = &refused.stderr;
            assert!(
                told.contains(directory) && told.contains("check the permissions and mount options"),
                "{refused:?}"
            );
            assert_eq!(refused.stdout, "");
        }
    }
}

#[test]
fn a_session_that_is_not_there_has_no_table() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let log = ["session", "log", "nowhere"];
    for run in [server.macp(&log), macp(&[&log[..], &["--data", data.path().to_str().unwrap()]].concat())] {
        let run = run.exits(2);
        assert!(run.stdout.is_empty() && run.stderr.contains("nowhere"), "{run:?}");
    }
}

/// A used directory is not started as a new one, neither of its databases.
#[test]
fn a_directory_whose_database_was_deleted_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_str().unwrap();
    let server = Server::on(data.path());
    decide(&server, "s1", true);
    assert!(server.terminate().success());
    let serve = || run(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()));

    std::fs::remove_dir_all(data.path().join("plans")).unwrap();
    let refused = serve().exits(2).stderr;
    assert!(refused.contains("plans/macp.db is missing, but this data directory was used with it"), "{refused}");
    macp(&["verify", "--all", "--data", directory]).exits(1);
    macp(&["accept-loss", "--data", directory]).exits(0);
    macp(&["verify", "--all", "--data", directory]).exits(0);

    let database = data.path().join("macp.db");
    let whole = std::fs::read(&database).unwrap();
    for damage in ["missing", "empty"] {
        std::fs::remove_file(&database).unwrap();
        if damage == "empty" {
            std::fs::write(&database, "").unwrap();
        }
        let refused = serve().exits(2).stderr;
        assert!(refused.contains(&format!("macp.db is {damage}, but this directory was used")), "{refused}");
        for command in ["verify --all", "doctor"] {
            let words: Vec<_> = command.split(' ').chain(["--data", directory]).collect();
            let output = macp(&words).exits(1).stdout;
            assert!(output.contains(&format!("macp.db is {damage}")), "{output}");
            let output = macp(&[&["--json"], &words[..]].concat()).exits(1).value();
            assert_eq!(output["missing"].as_array().map(Vec::len), Some(1), "{output}");
        }
        std::fs::write(&database, &whole).unwrap();
    }
    let server = Server::on(data.path());
    server.macp(&["verify", "s1"]).exits(0);
}

/// An older copy is served once an operator has accepted the loss.
#[test]
fn an_older_copy_of_the_database_is_refused_until_its_loss_is_accepted() {
    let data = tempfile::tempdir().unwrap();
    let directory = data.path().to_str().unwrap();
    let database = data.path().join("macp.db");
    let server = Server::on(data.path());
    decide(&server, "before", true);
    assert!(server.terminate().success());
    let backup = std::fs::read(&database).unwrap();
    let server = Server::on(data.path());
    decide(&server, "after", true);
    assert!(server.terminate().success());

    std::fs::write(&database, backup).unwrap();
    let refused = run(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path())).exits(2).stderr;
    assert!(refused.contains("is older than it was") && refused.contains("macp accept-loss"), "{refused}");
    let output = macp(&["verify", "before", "--data", directory]).exits(1);
    assert!(output.stdout.starts_with("OK before") && output.stderr.contains("is older than it was"), "{output:?}");
    let accepted = macp(&["accept-loss", "--data", directory]).exits(0).stdout;
    assert!(accepted.starts_with("accepted a loss of sessions: "), "{accepted}");
    let server = Server::on(data.path());
    server.macp(&["verify", "before"]).exits(0);
    server.macp(&["verify", "after"]).exits(2);
}
