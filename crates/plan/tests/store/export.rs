//! Exports: a run in a file, and back.

use macp_plan::export::{self, ExportedRun, Exporter, ImportError, Imported};
use macp_plan::store::{RunStore, Summary};
use macp_plan_core::journal::{Output, RunStatus};
use macp_plan_core::plan::StepStatus;
use serde_json::{Value, json};

use crate::sample::{self, create, finished_run, observed, run_finished, run_id, step_finished, step_started};

pub(crate) fn written(store: &RunStore, run_id: &str) -> Vec<u8> {
    let mut exporter = Exporter::open(&**store.ledger(), run_id).unwrap().unwrap();
    let mut file = Vec::new();
    while let Some(chunk) = exporter.next_chunk().unwrap() {
        assert_eq!(chunk.last(), Some(&b'\n'), "chunks are whole lines");
        file.extend(chunk);
    }
    file
}

pub(crate) fn read(file: &[u8]) -> ExportedRun {
    export::read(file).unwrap()
}

/// A finished run with an inline output, two outputs kept apart, and one of them used twice.
pub(crate) async fn recorded(store: &RunStore, run_id: &str, body_bytes: usize) -> Vec<u8> {
    let keep = async |value: Value| store.bodies().keep(value).await.unwrap().output;
    let small = keep(json!({"text": "small, with \"quotes\" and \u{fc}mlauts"})).await;
    let (large, null) = (keep(Value::from("x".repeat(body_bytes))).await, keep(Value::Null).await);
    let mut journal = create(store, run_id).await;
    for output in [small, large.clone(), null, large, Output::default()] {
        journal.append(vec![step_started("s1"), observed("s1", output)]).await.unwrap();
    }
    let end = vec![step_finished("s1", StepStatus::Success), run_finished(RunStatus::Succeeded)];
    journal.append(end).await.unwrap();
    written(store, run_id)
}

#[tokio::test]
async fn a_run_goes_into_a_file_and_into_another_store() {
    let source = sample::memory();
    let id = run_id(0);
    let file = recorded(&source, &id, 600_000).await;
    let exported = read(&file);
    let original = source.load(&id).await.unwrap().unwrap();
    let told = Summary { journal_bytes: 0, output_bytes: 0, ..original.summary.clone() };
    assert_eq!(exported.run.summary, told, "a file does not say what the run takes where it came from");
    assert_eq!(exported.run.head(), original.head());
    assert_eq!(exported.plan, sample::plan("p1"));
    assert_eq!(exported.bodies.len(), 2);
    for (digest, text) in &exported.bodies {
        assert_eq!(exported.body(digest), source.bodies().get(digest.clone()).await.unwrap());
        assert!(text == "null" || text.len() > 600_000);
    }

    let directory = tempfile::tempdir().unwrap();
    let target = sample::sqlite(&directory);
    let entries = original.entries.len() as u64;
    let imported = target.import(exported.clone()).await.unwrap();
    assert_eq!(imported, Imported::New { run_id: id.as_str().into(), entries });
    let output_bytes = exported.bodies.values().map(|text| text.len() as u64).sum();
    let expected = Summary { imported: true, output_bytes, ..original.summary.clone() };
    assert_eq!(target.load(&id).await.unwrap().unwrap().summary, expected, "its cost was paid elsewhere");
    assert_eq!(written(&target, &id), file, "one run has one file");
    let again = target.import(exported).await.unwrap();
    assert_eq!(again, Imported::AlreadyThere { run_id: id.as_str().into() });
}

#[tokio::test]
async fn another_run_under_the_same_id_is_not_touched() {
    let (source, target) = (sample::memory(), sample::memory());
    let exported = read(&recorded(&source, "r", 10).await);
    finished_run(&target, "r", Output::default()).await;
    let before = written(&target, "r");
    assert!(matches!(target.import(exported.clone()).await, Err(ImportError::Differs(_))));
    assert_eq!(written(&target, "r"), before);

    // The same beginning is not the same run.
    let target = sample::memory();
    create(&target, "r").await;
    assert!(matches!(target.import(exported).await, Err(ImportError::Differs(_))));
    assert_eq!(target.load("r").await.unwrap().unwrap().entries.len(), 1);
}

#[tokio::test]
async fn of_many_imports_at_once_one_is_new() {
    let source = sample::memory();
    let exported = read(&recorded(&source, "r", 10).await);
    let target = sample::memory();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (target, exported) = (target.clone(), exported.clone());
            tokio::spawn(async move { target.import(exported).await.unwrap() })
        })
        .collect();
    let mut new = 0;
    for task in tasks {
        new += usize::from(matches!(task.await.unwrap(), Imported::New { .. }));
    }
    assert_eq!(new, 1);
}

#[tokio::test]
async fn a_run_under_way_can_be_looked_at_but_not_imported() {
    let source = sample::memory();
    create(&source, "r").await.append(vec![step_started("s1")]).await.unwrap();
    let exported = read(&written(&source, "r"));
    assert!(!exported.run.is_finished());
    assert_eq!(exported.run.entries.len(), 2);
    let target = sample::memory();
    assert!(matches!(target.import(exported).await, Err(ImportError::Open(id)) if &*id == "r"));
    assert!(target.load("r").await.unwrap().is_none());
    assert!(Exporter::open(&**source.ledger(), "no such run").unwrap().is_none());
}
