//! What an open session costs in memory, and what one costs that was let go.

use anyhow::{Context, bail};

use crate::child::Process;
use crate::decision;
use crate::messages::Profile;
use crate::report::Report;

/// Sessions kept when the rest is to be let go.
const FEW: usize = 1_000;
const WORKERS: usize = 64;
/// Messages per session: everything up to the votes.
const MESSAGES: usize = 6;

pub async fn run(report: &mut Report, profile: Profile, sessions: usize) -> anyhow::Result<()> {
    let kept = grown(profile, sessions / 5, sessions, sessions * 2).await?;
    // Bounded caches fill first; what counts is whether sessions beyond them cost anything.
    let let_go = grown(profile, sessions, sessions, FEW).await?;
    let per = |bytes: i64| bytes as f64 / sessions as f64;
    let detail = format!("{sessions} open sessions of {MESSAGES} messages");
    report.at_most(format!("bytes per resident open {} session", profile.name()), per(kept), 4096.0, detail);
    let detail = format!("{sessions} more beyond the first {sessions}, {FEW} of them kept in memory");
    report.at_most("bytes per session that was let go", per(let_go), 128.0, detail);
    Ok(())
}

/// Growth of the server's memory by so many open sessions, after as many as it takes to warm up.
async fn grown(profile: Profile, warm_up: usize, sessions: usize, resident_max: usize) -> anyhow::Result<i64> {
    let data = tempfile::tempdir()?;
    let server = Process::real(data.path(), resident_max)?;
    open(&server, profile, 0, warm_up).await?;
    let before = i64::try_from(server.resident_bytes()?)?;
    open(&server, profile, warm_up, warm_up + sessions).await?;
    Ok(i64::try_from(server.resident_bytes()?)? - before)
}

async fn open(server: &Process, profile: Profile, from: usize, to: usize) -> anyhow::Result<()> {
    let client = server.client().await?;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let mut client = client.clone();
            tokio::spawn(async move {
                for at in (from + worker..to).step_by(WORKERS) {
                    for envelope in
                        decision::session(profile, &format!("open-session-{at:010}")).into_iter().take(MESSAGES)
                    {
                        let ack = client.send(profile.request(envelope)?).await?.into_inner().ack.context("an Ack")?;
                        if !ack.ok {
                            bail!("refused: {:?}", ack.error);
                        }
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(())
}
