//! A server for a step: the real binary, in memory, on a free port.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Long enough for a loaded machine; only a failing step waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Returns when the server is ready. What it logs goes to a file in the directory.
    pub(crate) fn start(binary: &Path, directory: &Path) -> anyhow::Result<Server> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let ready = directory.join("ready");
        if ready.exists() {
            fs::remove_file(&ready).with_context(|| format!("cannot remove {}", ready.display()))?;
        }
        let log_path = directory.join("server.log");
        let log = fs::File::create(&log_path).with_context(|| format!("cannot create {}", log_path.display()))?;
        let mut command = Command::new(binary);
        // What the environment says about MACP is not meant for this server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MACP_")) {
            command.env_remove(name);
        }
        let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0"];
        let limits = ["--session-start-limit-per-minute", "0", "--message-limit-per-minute", "0"];
        command.args(arguments).args(limits).arg("--ready-file").arg(&ready).stdin(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot run {}", binary.display()))?;
        let mut server = Server { child, address: String::new() };
        server.address = server.wait(&ready, &log_path)?;
        Ok(server)
    }

    /// The address, once the server has written it down.
    fn wait(&mut self, ready: &Path, log: &Path) -> anyhow::Result<String> {
        let began = Instant::now();
        loop {
            match fs::read_to_string(ready) {
                Ok(address) if !address.trim().is_empty() => return Ok(address.trim().to_owned()),
                _ if began.elapsed() > PATIENCE => bail!("the server is not ready; its log is {}", log.display()),
                _ => {}
            }
            if let Some(status) = self.child.try_wait().context("the server cannot be asked")? {
                bail!("the server ended ({status}); its log is {}", log.display());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
