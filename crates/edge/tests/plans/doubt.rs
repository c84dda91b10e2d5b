//! Restarts: runs go on, and what is in doubt is settled by whoever knows.

use std::sync::Arc;
use std::time::Duration;

use macp_ledger::{MemoryStore, Store};
use macp_wire::plan::v1::*;
use serde_json::json;

use crate::common::*;
use crate::target::Target;

struct Disks {
    sessions: Arc<dyn Store>,
    runs: Arc<dyn Store>,
    target: Target,
}

impl Disks {
    async fn new() -> Disks {
        Disks {
            sessions: Arc::new(MemoryStore::new()),
            runs: Arc::new(MemoryStore::new()),
            target: Target::start().await,
        }
    }

    /// A server that does not wait for calls that are out when it stops.
    async fn boot(&self) -> World {
        World::on(Arc::clone(&self.sessions), Arc::clone(&self.runs), self.target.clone(), |settings| {
            settings.plans.as_mut().expect("plans are executed").executor.shutdown_grace = Duration::ZERO;
        })
        .await
    }
}

#[tokio::test]
async fn a_run_goes_on_after_a_restart() {
    let disks = Disks::new().await;
    let world = disks.boot().await;
    let run_id = world.run(world.plan(&["/a", "/gate", "/c"]).await).await;
    world.target.wait_for(2).await;
    let request = WatchRunRequest { run_id: run_id.clone(), from_seq: 0 };
    let mut watch = world.plans.clone().watch_run(request).await.expect("a watch").into_inner();
    world.shut_down().await;
    let mut end = None;
    while let Some(message) = next(&mut watch).await {
        end = message.err();
    }
    assert_eq!(end.expect("the drain ends the watch").code(), tonic::Code::Unavailable);

    let world = disks.boot().await;
    disks.target.open_gate();
    disks.target.open_gate();
    world.finished(&run_id).await;
    assert_eq!(world.get(&run_id).await["status"], "succeeded");
    let asked = disks.target.asked();
    assert_eq!(asked.iter().filter(|path| *path == "/a").count(), 1, "what is done is not done again");
    assert_eq!(asked.last().map(String::as_str), Some("/c"));
    world.shut_down().await;
}

#[tokio::test]
async fn aos_80_an_effect_in_doubt_is_settled_and_then_retried() {
    let disks = Disks::new().await;
    let world = disks.boot().await;
    let mut step = world.step("s1", "/gate");
    step["parameters"]["method"] = json!("POST");
    step.as_object_mut().expect("an object").remove("retry_policy");
    let plan = world.freeze(&authored(vec![step, world.step("s2", "/b")])).await;
    let run_id = world.run(plan).await;
    world.target.wait_for(1).await;
    world.shut_down().await;

    let world = disks.boot().await;
    world.finished(&run_id).await;
    let (result, summary) = world.get_run(&run_id).await;
    assert_eq!((summary.status(), &result["final_code"]), (RunStatus::InDoubt, &json!("ERR_EFFECT_IN_DOUBT")));
    assert_eq!(disks.target.asked(), ["/gate"], "nothing is guessed");
    refused(world.try_start(retry_of(&run_id)).await, "RUN_CONFLICT");

    let settle = async |step_id: &str, outcome: EffectOutcome, note: &str| {
        let request = ResolveInDoubtRequest {
            run_id: run_id.clone(),
            step_id: step_id.to_owned(),
            outcome: outcome.into(),
            note: note.to_owned(),
        };
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("authorization", "Bearer olga".parse().expect("ASCII"));
        world.plans.clone().resolve_in_doubt(request).await.map(tonic::Response::into_inner)
    };
    refused(settle("s1", EffectOutcome::Unspecified, "seen").await, "INVALID_REQUEST");
    refused(settle("s2", EffectOutcome::Success, "seen").await, "RUN_CONFLICT");
    refused(settle("s1", EffectOutcome::Success, &"x".repeat(100_000)).await, "INVALID_REQUEST");
    let settled = settle("s1", EffectOutcome::Success, "seen in their log").await.expect("settled");
    assert_eq!((settled.existing, settled.outcome(), settled.by.as_str()), (false, EffectOutcome::Success, "olga"));
    let again = settle("s1", EffectOutcome::Failure, "or not").await.expect("settled before");
    assert_eq!(
        (again.existing, again.outcome(), again.note.as_str()),
        (true, EffectOutcome::Success, "seen in their log")
    );

    let retried = world.try_start(retry_of(&run_id)).await.expect("a run").run_id;
    world.finished(&retried).await;
    let result = world.get(&retried).await;
    assert_eq!(
        (&result["status"], &result["steps"][0]["final_code"]),
        (&json!("succeeded"), &json!("OK_SKIP_DUPLICATE"))
    );
    assert_eq!(disks.target.asked(), ["/gate", "/b"]);
    world.shut_down().await;
}
