//! Durable Send throughput against the echo ceiling: same client, same messages, slices taken in turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;

use crate::child::Process;
use crate::decision;
use crate::messages::Profile;
use crate::report::{Report, median};

/// Connections the load is spread over.
const CONNECTIONS: usize = 8;

pub async fn run(
    report: &mut Report,
    profile: Profile,
    in_flight: usize,
    slice: Duration,
    rounds: usize,
    bar: f64,
) -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let (echo, real) = (Process::echo()?, Process::real(data.path(), 100_000)?);
    let names = Arc::new(AtomicU64::new(0));
    // A short warm-up of both, so that neither pays for first allocations and page faults.
    for server in [&echo, &real] {
        load(server, profile, in_flight, slice / 4, &names).await?;
    }
    let (mut ratios, mut ceilings, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let mut latencies = Histogram::<u64>::new(3)?;
    for _ in 0..rounds {
        let (ceiling, _) = load(&echo, profile, in_flight, slice, &names).await?;
        let (rate, histogram) = load(&real, profile, in_flight, slice, &names).await?;
        latencies.add(histogram)?;
        ratios.push(rate / ceiling);
        ceilings.push(ceiling);
        rates.push(rate);
    }
    let detail = format!(
        "{:.0}/s durable, echo {:.0}/s, p50 {:.1} ms, p99 {:.1} ms",
        median(rates),
        median(ceilings),
        latencies.value_at_quantile(0.5) as f64 / 1000.0,
        latencies.value_at_quantile(0.99) as f64 / 1000.0,
    );
    let name = format!("{} durable Send, {in_flight} in flight, share of echo", profile.name());
    report.at_least(name, median(ratios), bar, detail);
    Ok(())
}

/// Acknowledged messages per second, and their latencies in microseconds.
pub async fn load(
    server: &Process,
    profile: Profile,
    in_flight: usize,
    slice: Duration,
    names: &Arc<AtomicU64>,
) -> anyhow::Result<(f64, Histogram<u64>)> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS.min(in_flight) {
        clients.push(server.client().await?);
    }
    let began = Instant::now();
    let end = began + slice;
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            let mut client = clients[worker % clients.len()].clone();
            let names = Arc::clone(names);
            tokio::spawn(async move {
                let mut latencies = Histogram::<u64>::new(3)?;
                while Instant::now() < end {
                    let id = format!("bench-session-{:016}", names.fetch_add(1, Ordering::Relaxed));
                    for envelope in decision::session(profile, &id) {
                        let sent = Instant::now();
                        let response = client.send(profile.request(envelope)?).await?.into_inner();
                        let ack = response.ack.context("a response carries an Ack")?;
                        if !ack.ok {
                            bail!("refused: {:?}", ack.error);
                        }
                        latencies.record(u64::try_from(sent.elapsed().as_micros())?)?;
                        if Instant::now() >= end {
                            break;
                        }
                    }
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut latencies = Histogram::<u64>::new(3)?;
    for worker in workers {
        latencies.add(worker.await??)?;
    }
    Ok((latencies.len() as f64 / began.elapsed().as_secs_f64(), latencies))
}
