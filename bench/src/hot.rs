//! One session that never ends: does the last message cost what the first did?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use macp_rpc::runtime::Client;
use tonic::transport::Channel;

use crate::child::Process;
use crate::decision;
use crate::messages::Profile;
use crate::report::Report;

pub async fn run(report: &mut Report, profile: Profile, messages: usize, in_flight: usize) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = Process::real(data.path(), 100_000)?;
    let client = server.client().await?;
    // Warms connection, caches and allocator up on another session, so that the first tenth is not the slow one.
    talk(&client, profile, "warm-session-of-the-bench", messages / 10, in_flight).await?;
    let mut done = talk(&client, profile, "hot-session-of-the-bench", messages, in_flight).await?;
    done.sort();
    let tenth = messages / 10;
    let rate = |from: usize, to: usize| (to - from) as f64 / (done[to - 1] - done[from]).as_secs_f64();
    let (first, last) = (rate(0, tenth), rate(messages - tenth, messages));
    let detail = format!("{messages} messages, {in_flight} in flight: {first:.0}/s, then {last:.0}/s");
    let name = format!("{} hot session, last tenth against the first", profile.name());
    report.at_least(name, last / first, 0.9, detail);
    Ok(())
}

/// Sends so many messages into one session; when each was acknowledged.
async fn talk(
    client: &Client<Channel>,
    profile: Profile,
    session: &'static str,
    messages: usize,
    in_flight: usize,
) -> anyhow::Result<Vec<Duration>> {
    let mut opener = client.clone();
    for envelope in [
        profile.start(session, &["alice", "bob"]),
        profile.message(session, "Proposal", "p1", "alice", decision::proposal(profile, "p1")),
    ] {
        opener.send(profile.request(envelope)?).await?;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..in_flight {
        let (next, mut client) = (Arc::clone(&next), client.clone());
        workers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= messages {
                    return anyhow::Ok(done);
                }
                let payload = decision::evaluation(profile, "p1");
                let envelope = profile.message(session, "Evaluation", &format!("m{at}"), "bob", payload);
                let ack = client
                    .send(profile.request(envelope)?)
                    .await?
                    .into_inner()
                    .ack
                    .context("a response carries an Ack")?;
                if !ack.ok {
                    bail!("refused: {:?}", ack.error);
                }
                done.push(began.elapsed());
            }
        }));
    }
    let mut done: Vec<Duration> = Vec::with_capacity(messages);
    for worker in workers {
        done.extend(worker.await??);
    }
    Ok(done)
}
