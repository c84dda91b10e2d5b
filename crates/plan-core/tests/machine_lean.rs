//! A lean machine decides as one that holds every output, and holds nothing large while it waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use macp_plan_core::digest::{self, BODY_LABEL, Digest};
use macp_plan_core::journal::{Body, Entry, Output};
use macp_plan_core::machine::{Machine, Next, Outputs, Pinned, Question, Size};
use macp_plan_core::testkit::{Kit, World, execute, freeze, http, plan, start, step};
use macp_wire::{canonical, memory};
use serde_json::{Value, json};

struct Stored<'s>(&'s BTreeMap<Digest, Value>);

impl Outputs for Stored<'_> {
    fn value(&self, digest: &Digest) -> Option<Value> {
        self.0.get(digest).cloned()
    }

    fn size(&self, digest: &Digest) -> Option<Size> {
        let value = self.0.get(digest)?;
        let text = canonical::to_string(value).unwrap().len();
        Some(Size { memory: memory::of(value), text })
    }
}

/// Every output of a journal, by its digest.
fn outputs(entries: &[Entry], apart: &BTreeMap<Digest, Value>) -> BTreeMap<Digest, Value> {
    let mut found = apart.clone();
    for entry in entries {
        if let Body::AttemptObserved { output: Output { output: Some(value), .. }, .. } = &entry.body {
            found.insert(digest::of_value(BODY_LABEL, value).unwrap(), value.clone());
        }
    }
    found
}

/// Steps that read large outputs and small ones, whole and in part, some of them again after a retry.
fn steps() -> Vec<Value> {
    let call = |id: &str, parameters: Value| step(id, "http_call", parameters);
    vec![
        call("large", json!({})),
        call("many", json!({})),
        call("small", json!({})),
        call("whole", json!({"all": "{{large}}"})),
        call("part", json!({"n": "{{large.n}}", "m": "{{many.list[3]}}", "s": "{{small.n}}"})),
        call("text", json!({"t": "n is {{small.n}}, list is {{many.list}}"})),
        call("last", json!({"all": ["{{large}}", "{{many}}", "{{small}}"]})),
    ]
}

fn world() -> World {
    let large = json!({"n": 7, "text": "x".repeat(300_000)});
    let many = json!({"list": vec![json!({"": 0}); 1_500]});
    World::new()
        .always("large", http(200).output(large))
        .always("many", http(200).output(many))
        .always("small", http(200).output(json!({"n": 1})))
        .always("whole", http(200).output(json!({"n": 2})))
        .always("part", http(200).output(json!({"n": 2})))
        .always("text", http(200).output(json!({"n": 2})))
        .always("last", http(200).output(json!({"n": 2})))
}

#[test]
fn a_lean_machine_takes_the_same_decisions() {
    let run = execute(&freeze(plan(1_000, steps())), &Kit::standard().shared(), world());
    let entries = run.journal.entries();
    let all = outputs(entries, &run.world.bodies);
    let stored = Stored(&all);
    let (plan, catalog) = (freeze(plan(1_000, steps())), Kit::standard().shared());
    let mut machine = Machine::new(Arc::clone(&plan), Arc::clone(&catalog), Arc::new(Pinned), start(&plan, "r")).lean();
    machine.apply(&entries[0].body, None).unwrap();
    let mut asked = 0;
    for entry in &entries[1..] {
        // As if it waited here: it holds nothing large, and demands again what was dropped.
        machine.set_down();
        while let Next::Ask(Question::Outputs) = machine.next() {
            let demand = machine.demand().expect("the machine asks for it");
            let missing = machine.clone().supply(&BTreeMap::new());
            assert_eq!(missing.is_err(), !demand.outputs.is_empty(), "{demand:?}");
            let read = demand.outputs.iter().map(|digest| (digest.clone(), all[digest].clone()));
            let read: BTreeMap<_, _> = read.collect();
            let held: usize = read.values().map(memory::of).sum();
            assert!(demand.bytes > held, "{demand:?} covers {held}");
            machine.supply(&read).unwrap();
            assert!(machine.request_bytes() <= demand.bytes, "{} of {demand:?}", machine.request_bytes());
            asked += 1;
        }
        match machine.next() {
            Next::Decide(body) => assert_eq!(json!(*body), json!(entry.body), "at {}", entry.seq),
            Next::Ask(_) => {}
            Next::Finished => panic!("there is more at {}", entry.seq),
        }
        if let Next::Ask(Question::Dispatch { parameters, .. }) = machine.next() {
            assert!(
                !parameters.is_empty()
                    || entry.body.step_id().is_some_and(|step| ["large", "many", "small"].contains(&step))
            );
        }
        let size = machine.wants_output(&entry.body).and_then(|digest| stored.size(digest));
        machine.apply_sized(&entry.body, size).unwrap();
        assert!(machine.output("large").is_none() && machine.output("many").is_none());
    }
    assert_eq!(asked, 6, "four steps are prepared from what was read, and two of them again before their calls");
    assert_eq!(json!(machine.finished()), json!(run.machine.finished()));
}

/// Wherever a journal ends, a machine recovered from it continues as the one that wrote it.
#[test]
fn a_lean_machine_is_recovered_at_every_entry() {
    let run = execute(&freeze(plan(1_000, steps())), &Kit::standard().shared(), world());
    let entries = run.journal.entries();
    let all = outputs(entries, &run.world.bodies);
    let (plan, catalog) = (freeze(plan(1_000, steps())), Kit::standard().shared());
    for end in 1..entries.len() {
        let (plan, catalog) = (Arc::clone(&plan), Arc::clone(&catalog));
        let stored = Stored(&all);
        let start = run.journal.start();
        let mut machine =
            Machine::recover_lean(plan, catalog, Arc::new(Pinned), start, &entries[..end], &stored).unwrap();
        if let Some(demand) = machine.demand() {
            machine
                .supply(&demand.outputs.into_iter().map(|digest| (digest.clone(), all[&digest].clone())).collect())
                .unwrap();
        }
        if let Next::Decide(body) = machine.next() {
            assert_eq!(json!(*body), json!(entries[end].body), "after {end} entries");
        }
    }
}
