//! ExportRun and ImportRun: a run taken away, and brought to another server.

use bytes::Bytes;
use macp_wire::plan::v1::*;

use crate::common::*;

async fn export(world: &World, run_id: &str) -> Vec<u8> {
    let request = ExportRunRequest { run_id: run_id.to_owned() };
    let mut stream = world.plans.clone().export_run(request).await.expect("an export").into_inner();
    let mut file = Vec::new();
    while let Some(message) = next(&mut stream).await {
        file.extend_from_slice(&message.expect("a chunk").chunk);
    }
    file
}

async fn import(world: &World, file: &[u8], chunk: usize) -> Result<ImportRunResponse, tonic::Status> {
    let chunks: Vec<_> =
        file.chunks(chunk).map(|chunk| ImportRunRequest { chunk: Bytes::copy_from_slice(chunk) }).collect();
    Ok(world.plans.clone().import_run(tokio_stream::iter(chunks)).await?.into_inner())
}

#[tokio::test]
async fn a_run_moves_to_another_server_whole() {
    let (here, there) = (World::start().await, World::start().await);
    here.target.script(&[503]);
    let run_id = here.run_to_end(&["/a", "/b"]).await;
    let file = export(&here, &run_id).await;
    assert!(macp_plan::export::read(&*file).is_ok(), "whoever has the file can check it");

    let imported = import(&there, &file, 97).await.expect("taken over");
    assert_eq!((&imported.run_id, imported.existing), (&run_id, false));
    assert!(import(&there, &file, 4_096).await.expect("there already").existing);
    assert_eq!(export(&there, &run_id).await, file);
    assert_eq!(there.get(&run_id).await, here.get(&run_id).await);
    let (_, report) = there.try_replay(mock(&run_id)).await.expect("a report");
    assert_eq!(report["verdict"], "match");
    here.shut_down().await;
    there.shut_down().await;
}

#[tokio::test]
async fn nothing_is_stored_of_a_file_that_is_not_whole() {
    let (here, there) = (World::start().await, World::start().await);
    let run_id = here.run_to_end(&["/a"]).await;
    let file = export(&here, &run_id).await;
    let mut altered = file.clone();
    let place = file.windows(10).position(|text| text == b"agent-1\",\"").expect("the agent is named");
    altered[place] = b'A';
    for bad in [&file[..file.len() / 2], &file[..file.len() - 1], &altered, b"", b"{}\n", b"\xff\xff", b"[1,2]\n[3]"] {
        refused(import(&there, bad, 1_000).await, "INVALID_REQUEST");
    }
    let listed = there.plans.clone().list_runs(ListRunsRequest::default()).await.expect("a page").into_inner();
    assert_eq!(listed.runs, []);

    // A run under way belongs to the server it runs on.
    let open = here.run(here.plan(&["/gate"]).await).await;
    here.target.wait_for(2).await;
    refused(import(&there, &export(&here, &open).await, 1_000).await, "RUN_CONFLICT");
    here.target.open_gate();
    here.finished(&open).await;
    here.shut_down().await;
    there.shut_down().await;
}

#[tokio::test]
async fn an_import_is_bounded() {
    let world = World::with(|settings| {
        settings.plans.as_mut().expect("plans are executed").import_bytes_max = 10_000;
    })
    .await;
    refused(import(&world, &vec![b' '; 10_001], 1_000).await, "PAYLOAD_TOO_LARGE");
    refused(import(&world, &vec![b' '; 9_000], 1_000).await, "INVALID_REQUEST");
    world.shut_down().await;
}
