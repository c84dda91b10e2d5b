//! Benchmarks of the real server, as ratios against a ceiling measured in the same run.
//!
//! Absolute figures say more about the machine than about the program, so every figure stands beside one of an echo
//! server with the same RPC, the same client and the same messages, or beside an empty data directory.

mod child;
mod compare;
mod decision;
mod echo;
mod hot;
mod memory;
mod messages;
mod plans;
mod processor;
mod replay;
mod report;
mod restart;
mod throughput;
mod unread;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use messages::Profile;
use report::Report;

/// The allocator `macp` runs with; the echo server and the client get it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ratios of the runtime against a ceiling measured side by side.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything, with the bars each figure must meet.
    All {
        /// Seconds per slice of load; slices of server and ceiling alternate.
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        /// Alternations of server and ceiling.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Durable Send throughput of mixed decision sessions against the echo ceiling.
    Throughput {
        #[arg(long, value_enum, default_value = "classic")]
        profile: Profile,
        #[arg(long, default_value_t = 256)]
        in_flight: usize,
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Servers of several versions side by side: shares of the echo ceiling and processor time per message.
    Compare {
        #[arg(long, value_enum, default_value = "classic")]
        profile: Profile,
        /// The `macp-bench` of each version.
        #[arg(required = true)]
        programs: Vec<PathBuf>,
        #[arg(long, default_value_t = 256)]
        in_flight: usize,
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// One session, many messages: the last tenth against the first.
    Hot {
        #[arg(long, value_enum, default_value = "classic")]
        profile: Profile,
        #[arg(long, default_value_t = 50_000)]
        messages: usize,
        #[arg(long, default_value_t = 64)]
        in_flight: usize,
    },
    /// Time to readiness with many ended sessions against an empty data directory.
    Restart {
        #[arg(long, default_value_t = 100_000)]
        sessions: usize,
    },
    /// Memory per resident open session, and of sessions that were let go.
    Memory {
        #[arg(long, value_enum, default_value = "classic")]
        profile: Profile,
        #[arg(long, default_value_t = 50_000)]
        sessions: usize,
    },
    /// Entries replayed per second on one core.
    Replay {
        #[arg(long, default_value_t = 200_000)]
        entries: usize,
    },
    /// What executing a plan costs beyond its calls, and entries of a journal replayed per second.
    Plans {
        /// Runs at once.
        #[arg(long, default_value_t = 64)]
        runs: usize,
    },
    /// Sends of one caller while another does not read its replies, against the same while it reads them.
    Unread {
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Internal: the most memory that runs of a plan take beyond what the process has anyway, in bytes.
    #[command(hide = true)]
    PlanMemory {
        #[arg(long)]
        runs: usize,
        #[arg(long)]
        steps: usize,
    },
    /// Internal: the echo server the ceiling is measured with.
    #[command(hide = true)]
    ServeEcho,
    /// Internal: the real server, as `macp serve` runs it.
    #[command(hide = true)]
    ServeReal {
        #[arg(long)]
        data: PathBuf,
        #[arg(long, default_value_t = 100_000)]
        resident_sessions_max: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    match arguments.command {
        Command::PlanMemory { runs, steps } => return runtime.block_on(plans::memory(runs, steps)),
        Command::ServeEcho => return runtime.block_on(echo::serve()),
        Command::ServeReal { data, resident_sessions_max } => {
            return runtime.block_on(child::serve_real(&data, resident_sessions_max));
        }
        Command::All { seconds, rounds } => runtime.block_on(async {
            let slice = Duration::from_secs(seconds);
            for profile in [Profile::Classic, Profile::Standard] {
                throughput::run(&mut report, profile, 256, slice, rounds, 0.6).await?;
                throughput::run(&mut report, profile, 64, slice, rounds, 0.45).await?;
                hot::run(&mut report, profile, 50_000, 64).await?;
                memory::run(&mut report, profile, 50_000).await?;
            }
            restart::run(&mut report, 100_000).await?;
            replay::run(&mut report, 200_000)?;
            plans::run(&mut report, 64).await?;
            unread::run(&mut report, slice, rounds).await
        })?,
        Command::Throughput { profile, in_flight, seconds, rounds } => {
            let bar = if in_flight >= 256 { 0.6 } else { 0.45 };
            let slice = Duration::from_secs(seconds);
            runtime.block_on(throughput::run(&mut report, profile, in_flight, slice, rounds, bar))?;
        }
        Command::Compare { profile, programs, in_flight, seconds, rounds } => {
            let slice = Duration::from_secs(seconds);
            return runtime.block_on(compare::run(profile, &programs, in_flight, slice, rounds));
        }
        Command::Hot { profile, messages, in_flight } => {
            runtime.block_on(hot::run(&mut report, profile, messages, in_flight))?;
        }
        Command::Restart { sessions } => runtime.block_on(restart::run(&mut report, sessions))?,
        Command::Memory { profile, sessions } => runtime.block_on(memory::run(&mut report, profile, sessions))?,
        Command::Plans { runs } => runtime.block_on(plans::run(&mut report, runs))?,
        Command::Replay { entries } => replay::run(&mut report, entries)?,
        Command::Unread { seconds, rounds } => {
            runtime.block_on(unread::run(&mut report, Duration::from_secs(seconds), rounds))?;
        }
    }
    report.print();
    if report.all_met() { Ok(()) } else { std::process::exit(1) }
}
