//! AOS-115: what becomes of a run whose execution session someone ends or suspends.

use std::sync::Arc;

use macp_kernel::Input;
use macp_ledger::MemoryStore;
use macp_plan::executor::Executor;
use macp_plan::session::{SessionSettings, StartFromSession, execution_session_id};
use macp_plan_core::journal::Body;
use macp_wire::v1::SessionState;
use serde_json::Value;

use crate::decision::{committed, control, dealt_with_everything, usurp};
use crate::world::{Gate, World, plan, step, until};

const EXECUTOR: &str = "macp-executor";

/// A run of three steps that waits in its first one, and is reported so far.
async fn waiting(world: &World) -> String {
    let plan = plan("p1", vec![step("s1"), step("s2"), step("s3")]);
    let (session_id, _) = committed(&world.engine, "waiting", &plan).await;
    let request = StartFromSession::first(&session_id, "op");
    let run_id = world.session_runs.start_from_session(request).await.unwrap().run_id;
    world.skill.reached(1).await;
    world.reported_so_far(&run_id).await;
    run_id
}

async fn world(begin: bool) -> World {
    let (sessions, runs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let world = World::over(sessions, runs, Gate::closed(), SessionSettings::default()).await;
    if begin {
        world.session_runs.begin().await.unwrap();
    }
    world
}

async fn cancel_reason(executor: &Executor, run_id: &str) -> Option<String> {
    let run = executor.runs().load(run_id).await.unwrap().unwrap();
    run.bodies().find_map(|body| match body {
        Body::CancelRequested { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled() {
    let world = world(true).await;
    let run_id = waiting(&world).await;
    let cancel = Input::Cancel { reason: "enough".to_owned() };
    control(&world.engine, &execution_session_id(&run_id), EXECUTOR, cancel).await;
    until("the run to be told", || async { world.runs().ledger().document("aos.cancel", &run_id).unwrap().is_some() })
        .await;
    // Kept is not heard yet. The first word stands, and when a second one is answered the run has heard it.
    world.executor.cancel(&run_id, "op", "again").await.unwrap();
    world.skill.let_through(10);
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!((result.status.as_str(), world.skill.begun()), ("cancelled", 1));
    assert_eq!(cancel_reason(&world.executor, &run_id).await.unwrap(), "its execution session was cancelled");
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), Some(SessionState::Cancelled));
    world.stop().await;
}

/// Without a watcher, as after a crash: the reporter finds out when it has something to say.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_while_nobody_watches() {
    let world = world(false).await;
    let run_id = waiting(&world).await;
    let cancel = Input::Cancel { reason: "enough".to_owned() };
    control(&world.engine, &execution_session_id(&run_id), EXECUTOR, cancel).await;
    world.skill.let_through(1);
    world.reported_to_the_end(&run_id).await;
    world.skill.let_through(10);
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "cancelled");
    assert!(cancel_reason(&world.executor, &run_id).await.unwrap().contains("Cancelled"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_and_resumed() {
    let world = world(true).await;
    let run_id = waiting(&world).await;
    let id = execution_session_id(&run_id);
    control(&world.engine, &id, EXECUTOR, Input::Suspend { reason: "audit".to_owned() }).await;
    dealt_with_everything(&world).await;
    world.skill.let_through(10);
    // The step that is out ends; nothing follows it while the session is suspended.
    until("the first step to end", || async { world.runs().summary(&run_id).await.unwrap().unwrap().steps_done >= 1 })
        .await;
    assert_eq!(world.execution_state(&run_id), Some(SessionState::Suspended));
    assert_eq!(world.skill.begun(), 1);
    control(&world.engine, &id, EXECUTOR, Input::Resume { reason: "done".to_owned() }).await;
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!(result.status.as_str(), "succeeded");
    world.reported_to_the_end(&run_id).await;
    assert_eq!(world.execution_state(&run_id), Some(SessionState::Resolved));
    world.stop().await;
}

/// A run whose session is suspended waits after a restart too, and goes on when the session does: also if the process
/// went down before the run was told.
#[tokio::test(flavor = "multi_thread")]
async fn suspended_over_a_restart() {
    let (sessions, runs) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let skill = Gate::closed();
    let over = async || {
        let settings = SessionSettings::default();
        World::over(sessions.clone(), runs.clone(), Arc::clone(&skill), settings).await
    };
    let world = over().await;
    world.session_runs.begin().await.unwrap();
    let run_id = waiting(&world).await;
    let id = execution_session_id(&run_id);
    control(&world.engine, &id, EXECUTOR, Input::Suspend { reason: "audit".to_owned() }).await;
    dealt_with_everything(&world).await;
    assert!(world.runs().ledger().document("aos.pause", &run_id).unwrap().is_some());
    world.skill.let_through(1);
    until("the first step to end", || async { world.runs().summary(&run_id).await.unwrap().unwrap().steps_done >= 1 })
        .await;
    world.stop().await;

    // The executor alone knows, before anyone looks at the session.
    let world = over().await;
    world.skill.let_through(10);
    assert_eq!((world.executor.live(), world.skill.begun()), (1, 1));
    // Nobody watches when the session goes on, as if the process went down right then.
    control(&world.engine, &id, EXECUTOR, Input::Resume { reason: "done".to_owned() }).await;
    assert_eq!(world.skill.begun(), 1);
    world.stop().await;

    let world = over().await;
    world.session_runs.begin().await.unwrap();
    let result = world.executor.finished(&run_id).await.unwrap().unwrap();
    assert_eq!((result.status.as_str(), world.skill.begun()), ("succeeded", 3));
    world.reported_to_the_end(&run_id).await;
    assert!(world.runs().ledger().document("aos.pause", &run_id).unwrap().is_none());
    world.stop().await;
}

/// The coordinator may follow the session, and can neither report in it nor take over the task.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_speaks_in_it() {
    use macp_kernel::{Caller, Command, Registered, Settled, SignatureCheck};
    use macp_wire::modes::task::v1::{TaskRejectPayload, TaskUpdatePayload};
    use macp_wire::v1::Envelope;
    use prost::Message;

    let world = world(true).await;
    let run_id = waiting(&world).await;
    let task_id = "p1".to_owned();
    let update = TaskUpdatePayload { task_id: task_id.clone(), ..TaskUpdatePayload::default() }.encode_to_vec();
    let reject = TaskRejectPayload { task_id, ..TaskRejectPayload::default() }.encode_to_vec();
    for (message_type, payload) in [("TaskUpdate", update), ("TaskReject", reject)] {
        let envelope = Envelope {
            macp_version: "1.0".to_owned(),
            mode: "macp.mode.task.v1".to_owned(),
            message_type: message_type.to_owned(),
            message_id: format!("alice-{message_type}"),
            session_id: execution_session_id(&run_id),
            sender: "alice".to_owned(),
            payload: payload.into(),
            ..Envelope::default()
        };
        let session_id = envelope.session_id.clone();
        let (signature, registered) = (SignatureCheck::Absent, Registered::default());
        let input = Input::Envelope { envelope, signature, registered };
        let reply =
            world.engine.submit(&session_id, Command { caller: Caller::identified("alice"), input }).await.unwrap();
        assert!(matches!(reply.settled, Settled::Rejected(_)), "{message_type}: {reply:?}");
    }
    world.skill.let_through(10);
    world.reported_to_the_end(&run_id).await;
    let found = macp_plan::session::reported(&**world.engine.store(), &execution_session_id(&run_id)).unwrap().unwrap();
    assert_eq!(found.request["run_id"], Value::from(run_id));
    world.stop().await;
}

/// A session of someone else under the id of a run's is not the run's: its end is no word to the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_someone_else_stops_nothing() {
    use macp_plan::store::Commitment;

    let world = world(true).await;
    let plan = plan("p1", vec![step("s1"), step("s2")]);
    let (session_id, commitment_hash) = committed(&world.engine, "usurped", &plan).await;
    let commitment = Commitment { session_id: session_id.clone(), commitment_hash, epoch: 1 };
    world.runs().admissions().admit(commitment, "run-known").await.unwrap();
    let id = usurp(&world.engine, "run-known", "mallory", "run-known").await;
    control(&world.engine, &id, "mallory", Input::Cancel { reason: "mine".to_owned() }).await;

    let request = StartFromSession::first(&session_id, "op");
    let started = world.session_runs.start_from_session(request).await.unwrap();
    assert_eq!(started.run_id, "run-known");
    world.skill.reached(1).await;
    // The report is given up, and the run does not hear of it.
    world.reported_to_the_end("run-known").await;
    world.skill.let_through(10);
    let result = world.executor.finished("run-known").await.unwrap().unwrap();
    assert_eq!((result.status.as_str(), world.skill.begun()), ("succeeded", 2));
    world.stop().await;
}
