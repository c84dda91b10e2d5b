//! Versions of the server side by side: throughput as a share of the echo ceiling, and processor time per message.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::child::Process;
use crate::messages::Profile;
use crate::processor;
use crate::report::median;
use crate::throughput::load;

/// Takes slices of load in turns, echo first; each program is a `macp-bench` of the version to be compared.
pub async fn run(
    profile: Profile,
    programs: &[PathBuf],
    in_flight: usize,
    slice: Duration,
    rounds: usize,
) -> anyhow::Result<()> {
    let names = Arc::new(AtomicU64::new(0));
    let mut servers = vec![("echo".to_owned(), Process::echo()?)];
    let mut directories = Vec::new();
    for program in programs {
        let data = tempfile::tempdir()?;
        servers.push((program.display().to_string(), Process::real_of(program, data.path(), 100_000)?));
        directories.push(data);
    }
    for (_, server) in &servers {
        load(server, profile, in_flight, slice / 4, &names).await?;
    }
    let mut figures = vec![Vec::new(); servers.len()];
    for _ in 0..rounds {
        for (index, (name, server)) in servers.iter().enumerate() {
            let client = processor::times(std::process::id())?;
            let serving = processor::times(server.id())?;
            let (rate, latencies) = load(server, profile, in_flight, slice, &names).await?;
            let messages = latencies.len();
            let (client, _) = processor::per_message(&client, &processor::times(std::process::id())?, messages);
            let (serving, threads) = processor::per_message(&serving, &processor::times(server.id())?, messages);
            println!("{name}: {rate:.0}/s, client {client:.1} us, server {serving:.1} us ({threads})");
            figures[index].push((rate, client, serving));
        }
    }
    println!(
        "\n| server | per second | share of echo | by round | client us | server us | sum us |\n|---|---|---|---|---|---|---|"
    );
    for (index, (name, _)) in servers.iter().enumerate() {
        let of = |pick: fn(&(f64, f64, f64)) -> f64| median(figures[index].iter().map(pick).collect());
        let shares: Vec<f64> = figures[index].iter().zip(&figures[0]).map(|(own, echo)| own.0 / echo.0).collect();
        let each: Vec<String> = shares.iter().map(|share| format!("{share:.2}")).collect();
        let (client, serving) = (of(|figure| figure.1), of(|figure| figure.2));
        println!(
            "| {name} | {:.0} | {:.2} | {} | {client:.1} | {serving:.1} | {:.1} |",
            of(|figure| figure.0),
            median(shares),
            each.join(" "),
            client + serving,
        );
    }
    Ok(())
}
