//! Settings as the running server has them.

use crate::support::{Server, command, macp, run, send};

/// Sends a payload of a size and tells the code of its refusal.
fn refusal(server: &Server, message_id: &str, bytes: usize) -> Option<String> {
    let payload = format!(r#"{{"proposal_id":"{}"}}"#, "p".repeat(bytes - 18));
    let answer = send(server, "s1", message_id, "a", "Proposal", &payload).value();
    answer["error"]["code"].as_str().map(str::to_owned)
}

#[test]
fn flag_over_environment_over_file_over_default() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("macp.toml");
    std::fs::write(&config, "memory = true\nlisten = \"127.0.0.1:0\"\nmax_payload_bytes = 50\n").unwrap();
    let largest = |extra: &dyn Fn(&mut std::process::Command)| {
        let mut command = command();
        command.arg("serve").env("MACP_CONFIG", &config).current_dir(place.path());
        extra(&mut command);
        let server = Server::with(&mut command);
        server.macp(&["session", "start", "s1", "--sender", "a"]).exits(0);
        [50, 100, 150].into_iter().rfind(|bytes| refusal(&server, &format!("m{bytes}"), *bytes).is_none())
    };
    assert_eq!(largest(&|_| {}), Some(50));
    assert_eq!(
        largest(&|command| {
            command.env("MACP_MAX_PAYLOAD_BYTES", "100");
        }),
        Some(100)
    );
    assert_eq!(
        largest(&|command| {
            command.env("MACP_MAX_PAYLOAD_BYTES", "100").args(["--max-payload-bytes", "150"]);
        }),
        Some(150)
    );
    assert!(!place.path().join("macp-data").exists(), "the file asked for memory");
}

#[test]
fn bad_settings_are_told_all_at_once_and_nothing_starts() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("macp.toml");
    std::fs::write(&config, "lisen = \"127.0.0.1:0\"\nshards = \"two\"\n").unwrap();
    let mut command = command();
    command.arg("serve").arg("--config").arg(&config).env("MACP_PROFILE", "modern").current_dir(place.path());
    let failed = run(&mut command).exits(2);
    for part in
        ["unknown key \"lisen\"", "shards: needs a whole number", "\"modern\" is not one of auto, classic, standard"]
    {
        assert!(failed.stderr.contains(part), "{part}: {failed:?}");
    }
    assert!(!place.path().join("macp-data").exists());

    std::fs::write(&config, "this is no toml").unwrap();
    run(self::command().arg("serve").arg("--config").arg(&config)).exits(2);
    let missing = run(self::command().args(["serve", "--config", "/nowhere/macp.toml"])).exits(2);
    assert!(missing.stderr.contains("cannot read config file /nowhere/macp.toml"), "{missing:?}");
    run(self::command().args(["serve", "--no-such-flag"])).exits(2);
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let refused = run(command().args(["serve", "--memory", "--listen", "0.0.0.0:0"])).exits(2);
    assert!(refused.stderr.contains("cannot start the server"), "{refused:?}");
    let half = run(command().args(["serve", "--memory"]).env("MACP_TLS_CERT_PATH", "cert.pem")).exits(2);
    assert!(half.stderr.contains("MACP_TLS_KEY_PATH"), "{half:?}");
    let mistyped = run(command().args(["serve", "--memory"]).env("MACP_AUTH_TOKEN_FILE", "t.json")).exits(2);
    assert!(mistyped.stderr.contains("MACP_AUTH_TOKEN_FILE is set, but there is no such setting"), "{mistyped:?}");
}

#[test]
fn the_reference_names_every_flag_of_the_help() {
    let reference = macp(&["settings", "--markdown"]).exits(0).stdout;
    let help = macp(&["serve", "--help"]).exits(0).stdout;
    let flags = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let names = flags.map(|flag| flag.split(['[', ' ', '=']).next().unwrap().to_owned());
    for name in names.filter(|name| name != "json" && !name.is_empty()) {
        assert!(reference.contains(&format!("| `--{name}` |")), "{name}\n{reference}");
    }
}

#[test]
fn the_document_has_the_reference_word_for_word() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/OPERATIONS.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (_, rest) = document.split_once("\n<!-- settings: ").expect("the line before the table is there");
    let (_, rest) = rest.split_once(" -->\n").expect("the line before the table ends");
    let (table, _) = rest.split_once("<!-- end of settings -->\n").expect("the line after the table is there");
    let reference = macp(&["settings", "--markdown"]).exits(0).stdout;
    assert!(
        table == format!("\n{reference}\n"),
        "docs/OPERATIONS.md does not say what the program does: put what `cargo run -p macp-cli -- settings --markdown` \
         prints, with an empty line before and after, between its lines `<!-- settings: … -->` and \
         `<!-- end of settings -->`.\n\nThe document says:\n{table}\nThe program says:\n{reference}"
    );
}
