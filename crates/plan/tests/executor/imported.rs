//! What is asked of a run from a file before it is taken over.

use macp_plan::export::{self, ExportedRun, Exporter, NotReplayed, replayed};
use macp_plan_core::testkit::{Kit, plan};

use super::execution::call;
use super::world::{World, begin, ended};

fn exported(world: &World, run_id: &str) -> ExportedRun {
    let mut file = Vec::new();
    let mut exporter = Exporter::open(&*world.store, run_id).unwrap().unwrap();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        file.extend_from_slice(&chunk);
    }
    export::read(file.as_slice()).unwrap()
}

/// A run under way has no end to compare, and belongs to where it runs.
#[tokio::test]
async fn a_run_under_way_is_not_replayed() {
    let world = World::memory();
    let executor = world.executor();
    let run_id = begin(&executor, plan(0, vec![call("s1", "gate")])).await;
    world.stage.wait_for_calls(1).await;
    let refused = replayed(&exported(&world, &run_id), &Kit::standard().shared()).unwrap_err();
    assert!(matches!(&refused, NotReplayed::Open(open) if **open == *run_id), "{refused}");
    world.stage.gate.add_permits(1);
    ended(&executor, &run_id).await;
    assert_eq!(replayed(&exported(&world, &run_id), &Kit::standard().shared()).unwrap(), Vec::<String>::new());
}
