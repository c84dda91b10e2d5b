//! What the plans of a server may not call: the server itself.

use serde_json::json;

use crate::common::*;

/// A private host is allowed with every port but those the server listens on.
#[tokio::test]
async fn a_plan_does_not_call_its_own_server() {
    let world = World::start().await;
    let mut own = world.step("own", "/a");
    own["parameters"]["url"] = json!(format!("http://{}/healthz", world.server.local_addr()));
    let plan = world.freeze(&authored(vec![world.step("target", "/a"), own])).await;
    let run_id = world.run(plan).await;
    world.finished(&run_id).await;
    let steps = world.get(&run_id).await["steps"].clone();
    let codes = [0, 1].map(|at| steps[at]["outcome"]["code"].as_str().unwrap_or_default().to_owned());
    assert_eq!(codes, ["OK_HTTP_CALL", "ERR_POLICY_VIOLATION"], "{steps:#}");
    let told = steps[1]["outcome"]["message"].as_str().unwrap_or_default();
    assert!(told.contains("this server listens on"), "{told}");
    world.shut_down().await;
}
