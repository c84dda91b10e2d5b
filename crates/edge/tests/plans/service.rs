//! The service as a part of the server: health, reflection, readiness, and a server without plans.

use macp_wire::plan::v1::*;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::common::*;

const NAME: &str = "macp.plan.v1.PlanService";

#[tokio::test]
async fn health_and_reflection_know_the_service() {
    let world = World::start().await;
    let request = HealthCheckRequest { service: NAME.to_owned() };
    let health = HealthClient::new(world.channel.clone()).check(request).await.expect("known").into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);

    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(world.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::iter([request])).await.expect("served").into_inner();
    let answer = answers.next().await.expect("an answer").expect("no status").message_response;
    let Some(MessageResponse::ListServicesResponse(services)) = answer else { panic!("{answer:?}") };
    assert!(services.service.iter().any(|service| service.name == NAME), "{services:?}");
    drop((client, answers));
    world.shut_down().await;
}

#[tokio::test]
async fn without_plans_there_is_no_such_service() {
    let world = World::with(|settings| settings.plans = None).await;
    let status = world.plans.clone().list_skills(ListSkillsRequest {}).await.expect_err("no service");
    assert_eq!(status.code(), Code::Unimplemented);
    let request = HealthCheckRequest { service: NAME.to_owned() };
    let status = HealthClient::new(world.channel.clone()).check(request).await.expect_err("unknown");
    assert_eq!(status.code(), Code::NotFound);
    assert!(!crate::numbers::scrape(&world).await.contains("aos_"));
    world.shut_down().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_nothing_from_going_on() {
    let world = World::start().await;
    let paths: Vec<&str> = std::iter::repeat_n("/a", 60).collect();
    let run_id = world.run(world.plan(&paths).await).await;
    let request = WatchRunRequest { run_id: run_id.clone(), from_seq: 0 };
    let mut idle = world.plans.clone().watch_run(request).await.expect("a watch").into_inner();
    let entries = world.finished(&run_id).await;
    assert_eq!(world.get(&run_id).await["status"], "succeeded");
    let mut late = Vec::new();
    while let Some(message) = next(&mut idle).await {
        late.extend(message.expect("entries").entries);
    }
    assert_eq!(late, entries, "and still misses nothing");
    world.shut_down().await;
}
