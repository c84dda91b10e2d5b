//! How a server starts, ends and comes back.

use serde_json::json;

use crate::support::{Server, command, decide, macp, run, send};

#[test]
fn rec_2_a_killed_server_comes_back_with_everything() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    decide(&server, "open", false);
    decide(&server, "done", true);
    let logs = |server: &Server| {
        ["open", "done"].map(|session| server.macp(&["--json", "session", "log", session]).exits(0).values())
    };
    let before = logs(&server);
    server.kill();

    let server = Server::on(data.path());
    assert_eq!(logs(&server), before);
    let again = send(&server, "open", "m2", "bob", "Vote", r#"{"proposal_id":"p1","vote":"approve"}"#).exits(0).value();
    assert_eq!(again["duplicate"], true);
    let commit = r#"{"commitment_id":"c1","action":"deploy"}"#;
    assert_eq!(send(&server, "open", "m3", "alice", "Commitment", commit).exits(0).value()["state"], "Resolved");
    for session in ["open", "done"] {
        server.macp(&["verify", session]).exits(0);
        server.macp(&["replay", session]).exits(0);
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    let second = run(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path())).exits(2);
    let expected = format!("is in use by process {}", server.pid());
    assert!(
        second.stderr.contains("cannot open the data directory") && second.stderr.contains(&expected),
        "{second:?}"
    );
    server.macp(&["session", "list"]).exits(0);

    // The lock is not the file.
    for file in ["macp.lock", "plans/macp.lock"] {
        std::fs::remove_file(data.path().join(file)).unwrap();
    }
    let third = run(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path())).exits(2);
    assert!(third.stderr.contains("is in use by another process"), "{third:?}");
    let looked = macp(&["--json", "doctor", "--data", data.path().to_str().unwrap()]).exits(0).value();
    assert_eq!(looked["in_use"], true, "{looked}");
    server.macp(&["session", "list"]).exits(0);
}

#[test]
fn sigterm_drains_and_exits_with_success() {
    let data = tempfile::tempdir().unwrap();
    let ready = data.path().join("ready");
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path().join("data"))
            .arg("--ready-file")
            .arg(&ready),
    );
    // The file is written before the ready line.
    assert_eq!(std::fs::read_to_string(&ready).unwrap().trim(), server.address);
    decide(&server, "s1", false);
    assert!(server.terminate().success());
    assert!(!ready.exists());
    let data = data.path().join("data");
    let data = data.to_str().unwrap();
    let log = macp(&["--json", "session", "log", "s1", "--data", data]).exits(0).values();
    assert_eq!(log.len(), 3);
}

#[test]
fn sighup_reads_roots_again_and_survives_a_bad_file() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("macp.toml");
    let write = |text: &str| std::fs::write(&config, text).unwrap();
    write("[[roots]]\nuri = \"file:///one\"\nname = \"one\"\n");
    let server = Server::with(
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path().join("data"))
            .arg("--config")
            .arg(&config),
    );
    let roots = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listed = runtime
            .block_on(async { macp_client::Client::connect(server.uri()).await.unwrap().list_roots().await.unwrap() });
        listed.into_iter().map(|root| root.uri).collect::<Vec<_>>()
    };
    assert_eq!(roots(), ["file:///one"]);

    write("[[roots]]\nuri = \"file:///two\"\n[[roots]]\nuri = \"file:///three\"\n");
    server.signal("HUP");
    assert_eq!(server.wait_for("reloaded")["roots"], json!(2));
    assert_eq!(roots(), ["file:///two", "file:///three"]);

    write("[[roots]]\nuri = 5\n");
    server.signal("HUP");
    let line = server.wait_for("not reloaded, the old values stay");
    assert!(line["error"].as_str().unwrap().contains("roots"), "{line}");
    assert_eq!(roots(), ["file:///two", "file:///three"]);
    assert!(server.terminate().success());
}

#[test]
fn memory_is_forgotten_and_says_so() {
    let place = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = command();
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("MACP_MEMORY_ONLY", "yes").current_dir(place.path());
        Server::with(&mut command)
    };
    let server = start();
    let warned = |line: &&serde_json::Value| {
        line["level"] == "WARN" && line["message"].as_str().is_some_and(|text| text.contains("nothing survives"))
    };
    assert_eq!(server.start.iter().filter(warned).count(), 1, "{:#?}", server.start);
    decide(&server, "s1", true);
    server.macp(&["verify", "s1"]).exits(0);
    assert!(server.terminate().success());

    let server = start();
    let gone = server.macp(&["session", "show", "s1"]).exits(2);
    assert!(gone.stderr.contains("SESSION_NOT_FOUND"), "{gone:?}");
    assert_eq!(server.macp(&["--json", "session", "list"]).exits(0).values().len(), 0);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something was written");
}

#[test]
fn a_directory_that_cannot_be_written_is_told_clearly() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    std::fs::write(&file, "x").unwrap();
    // Permissions do not stop root, under whom tests may run; these places stop anyone.
    for data in [file.join("data"), file, "/proc/self/macp".into()] {
        let failed = run(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data)).exits(2);
        let start = "error: cannot open the data directory: ";
        assert!(failed.stderr.starts_with(start) && failed.stderr.contains(data.to_str().unwrap()), "{failed:?}");
        assert_eq!(failed.stderr.lines().count(), 1, "{failed:?}");
    }
}

#[test]
fn no_server_and_no_session_are_failures() {
    let gone = macp(&["session", "list", "--server", "http://127.0.0.1:1"]).exits(2);
    assert!(gone.stderr.starts_with("error: cannot connect to http://127.0.0.1:1"), "{gone:?}");
    let json = macp(&["--json", "session", "list", "--server", "127.0.0.1:1"]).exits(2);
    let told: serde_json::Value = serde_json::from_str(json.stderr.trim()).unwrap();
    assert!(told["error"]["message"].is_string() && told["error"]["code"].is_null(), "{told}");
    assert_eq!(told["ok"], json!(false));

    let data = tempfile::tempdir().unwrap();
    let server = Server::on(data.path());
    for args in [["session", "show"], ["session", "log"]] {
        server.macp(&[args[0], args[1], "nowhere"]).exits(2);
    }
    for command in ["verify", "replay", "export"] {
        server.macp(&[command, "nowhere"]).exits(2);
    }
    let taken = run(command().args(["serve", "--memory", "--listen", &server.address])).exits(2);
    assert!(taken.stderr.contains("cannot start the server"), "{taken:?}");
}
