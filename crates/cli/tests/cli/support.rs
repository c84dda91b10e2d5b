//! Starts the real binary and listens to it.

// Each test program uses its part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde_json::Value;

/// Long enough for a loaded machine; only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary without settings from the environment of the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_macp"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("MACP_") || name == "RUST_LOG") {
            command.env_remove(name);
        }
    }
    command
}

/// What a finished command left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Expects an exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Run {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Everything on stdout as JSON, one value per line.
    #[track_caller]
    pub(crate) fn values(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The only JSON value on stdout.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        let values = self.values();
        assert_eq!(values.len(), 1, "{self:#?}");
        values.into_iter().next().unwrap()
    }
}

/// Runs a command to its end.
pub(crate) fn macp(args: &[&str]) -> Run {
    run(command().args(args))
}

pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("output is text"),
        stderr: String::from_utf8(output.stderr).expect("output is text"),
    }
}

/// A running `macp serve`, killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: Receiver<Value>,
    /// What the log said before the server was ready.
    pub(crate) start: Vec<Value>,
    pub(crate) address: String,
}

impl Server {
    /// On a data directory and a free port.
    pub(crate) fn on(data: &Path) -> Server {
        Server::with(command().args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data))
    }

    /// With whatever the command says; returns when the server is ready.
    pub(crate) fn with(command: &mut Command) -> Server {
        let mut child = command
            .args(["--log-format", "json"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (sender, log) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut server = Server { child, log, start: Vec::new(), address: String::new() };
        let ready;
        (server.start, ready) = server.log_until("ready");
        server.address = ready["address"].as_str().expect("the ready line has an address").to_owned();
        server
    }

    /// Waits for a log line with this message.
    pub(crate) fn wait_for(&self, message: &str) -> Value {
        self.log_until(message).1
    }

    /// Everything logged from the start to a line with this message.
    pub(crate) fn log_to(&self, message: &str) -> Vec<Value> {
        self.start.iter().cloned().chain(self.log_until(message).0).collect()
    }

    /// The log up to a line with this message, and that line.
    fn log_until(&self, message: &str) -> (Vec<Value>, Value) {
        let mut seen = Vec::new();
        loop {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if line["message"] == message => return (seen, line),
                Ok(line) => seen.push(line),
                Err(error) => panic!("{error} while waiting for {message:?}; the log says {seen:#?}"),
            }
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command against this server.
    pub(crate) fn macp(&self, args: &[&str]) -> Run {
        run(command().args(args).args(["--server", &self.uri()]))
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Whether the process is still there.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("the process can be asked").is_none()
    }

    /// SIGKILL: no chance to tidy up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server ends");
    }

    /// SIGTERM, and the exit status after the drain.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.signal("TERM");
        self.child.wait().expect("the server ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command whose output is read while it runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let stdout: ChildStdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, lines }
    }

    /// The next line as JSON.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("the command says something");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Waits for the end: nothing more is said, and the exit code.
    #[track_caller]
    pub(crate) fn ends(mut self, code: i32) {
        match self.lines.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Disconnected) => {}
            other => panic!("the command goes on: {other:?}"),
        }
        assert_eq!(self.child.wait().expect("the command ends").code(), Some(code));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a decision with a proposal and a vote, and commits it if asked to.
pub(crate) fn decide(server: &Server, session: &str, commit: bool) {
    let start = ["session", "start", session, "--sender", "alice", "--participants", "alice,bob", "--ttl", "10m"];
    server.macp(&start).exits(0);
    send(server, session, "m1", "alice", "Proposal", r#"{"proposal_id":"p1","option":"Deploy"}"#).exits(0);
    send(server, session, "m2", "bob", "Vote", r#"{"proposal_id":"p1","vote":"approve"}"#).exits(0);
    if commit {
        send(server, session, "m3", "alice", "Commitment", r#"{"commitment_id":"c1","action":"deploy"}"#).exits(0);
    }
}

pub(crate) fn send(
    server: &Server,
    session: &str,
    message_id: &str,
    sender: &str,
    message_type: &str,
    payload: &str,
) -> Run {
    server.macp(&[
        "--json",
        "session",
        "send",
        session,
        "--message-id",
        message_id,
        "--sender",
        sender,
        "--type",
        message_type,
        "--json-payload",
        payload,
    ])
}
