//! Servers as processes of their own, so that client and server share nothing but the machine.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use macp_edge::{PlanSettings, Server, Settings};
use macp_ledger::SqliteStore;
use macp_rpc::runtime::Client;
use tonic::transport::{Channel, Endpoint};

/// Where `macp serve` keeps the runs of plans, inside its data directory.
const PLANS: &str = "plans";

/// A server process, ended when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub address: SocketAddr,
}

impl Process {
    pub fn echo() -> anyhow::Result<Process> {
        Process::spawn(&std::env::current_exe()?, &["serve-echo"])
    }

    pub fn real(data: &Path, resident_sessions_max: usize) -> anyhow::Result<Process> {
        Process::real_of(&std::env::current_exe()?, data, resident_sessions_max)
    }

    /// The real server of another version of this program.
    pub fn real_of(program: &Path, data: &Path, resident_sessions_max: usize) -> anyhow::Result<Process> {
        let data = data.to_str().context("the data directory's name is text")?;
        let resident = resident_sessions_max.to_string();
        Process::spawn(program, &["serve-real", "--data", data, "--resident-sessions-max", &resident])
    }

    fn spawn(program: &Path, arguments: &[&str]) -> anyhow::Result<Process> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server process")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("the server said {line:?}"))?;
        Ok(Process { child, address })
    }

    pub async fn client(&self) -> anyhow::Result<Client<Channel>> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?.tcp_nodelay(true);
        Ok(Client::new(endpoint.connect().await?))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        let pages: u64 = statm.split_whitespace().nth(1).context("statm has a second word")?.parse()?;
        Ok(pages * 4096)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("the server process could not be ended: {error}");
        }
    }
}

/// Runs the real server until it is killed; its first line says where it listens.
pub async fn serve_real(data: &Path, resident_sessions_max: usize) -> anyhow::Result<()> {
    let store = Arc::new(SqliteStore::open(data)?);
    let runs = Arc::new(SqliteStore::open(data.join(PLANS))?);
    let plans = Some(PlanSettings::new(runs));
    let mut settings = Settings { listen: ([127, 0, 0, 1], 0).into(), plans, ..Settings::default() };
    settings.engine.resident_sessions_max = resident_sessions_max;
    let server = Server::start(settings, store).await?;
    println!("{}", server.local_addr());
    std::future::pending().await
}
