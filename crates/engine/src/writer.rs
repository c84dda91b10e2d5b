//! Group commit: the thread that writes. Whatever the shards hand over while one commit is under way becomes the next,
//! so that the number of fsyncs does not grow with the load.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use macp_ledger::Append;

use crate::commit::{Commits, Landed};
use crate::gate::Gate;

/// Most appends in one transaction, so that the first of them does not wait for ever.
const APPENDS_PER_COMMIT_MAX: usize = 4096;

/// What a shard hands over in one go.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) shard: usize,
    pub(crate) appends: Vec<Append>,
}

/// Writes until every shard is gone. `answer` gets what became of a shard's appends, in their order.
pub(crate) fn run(
    commits: &Commits,
    batches: Receiver<Batch>,
    gate: &Gate,
    answer: impl Fn(usize, Vec<(Arc<str>, Landed)>),
) {
    while let Ok(first) = batches.recv() {
        // Whoever is about to hand over something goes first, on processors that are busy; idle ones lose nothing.
        if gate.requests() > first.appends.len() {
            std::thread::yield_now();
        }
        let mut shards = vec![(first.shard, first.appends.len())];
        let mut appends = first.appends;
        while appends.len() < APPENDS_PER_COMMIT_MAX
            && let Ok(next) = batches.try_recv()
        {
            shards.push((next.shard, next.appends.len()));
            appends.extend(next.appends);
        }
        let mut landed = commits.turn().commit(appends);
        for (shard, count) in shards {
            answer(shard, landed.by_ref().take(count).collect());
        }
    }
}
