//! Processor time of a process, by the names of its threads: on a machine whose cores are all busy it tells two
//! versions apart long before their throughput does.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;

/// Nanoseconds on a processor so far, by thread name. Threads that ended are not in it.
pub type Times = BTreeMap<String, u64>;

pub fn times(process: u32) -> anyhow::Result<Times> {
    let mut times = Times::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        let name = fs::read_to_string(thread.join("comm"))?.trim().to_owned();
        let statistics = fs::read_to_string(thread.join("schedstat"))?;
        let on_processor = statistics.split_whitespace().next().context("schedstat has a first word")?;
        *times.entry(name).or_default() += on_processor.parse::<u64>()?;
    }
    Ok(times)
}

/// Microseconds per message between two readings: all threads together, and each name with a share worth showing.
pub fn per_message(before: &Times, after: &Times, messages: u64) -> (f64, String) {
    let mut total = 0.0;
    let mut shares = Vec::new();
    for (name, time) in after {
        let spent = time - before.get(name).unwrap_or(&0);
        let share = spent as f64 / 1000.0 / messages as f64;
        total += share;
        if share >= 0.1 {
            shares.push(format!("{name} {share:.1}"));
        }
    }
    (total, shares.join(", "))
}
