//! What one call takes in memory at its peak, from its answer's first byte until its output is stored, whatever the
//! answer is made of.

// Only an allocator sees every allocation, and its trait is unsafe. This one counts and hands on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use macp_ledger::SqliteStore;
use macp_plan::egress;
use macp_plan::executor::{Executor, ExecutorSettings, Start, Unobserved};
use macp_plan::registry;
use macp_plan::secrets::Held;
use macp_plan::skills::http_call::ANSWER_BYTES_MAX;
use macp_plan::skills::{SkillSettings, TrustSettings};
use macp_plan::store::{RunStore, Status};
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::plan::FrozenPlan;
use serde_json::json;

/// The multiple of the largest answer that docs/PLANS.md names. The allocations of SQLite are not counted here.
const MULTIPLE: usize = 12;

const SECRET: &str = "s3cr3t";

struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let taken = TAKEN.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(taken, Ordering::Relaxed);
}

// SAFETY: every call is handed on to the system's allocator as it came, and counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise about the layout is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the block came from `alloc` or `realloc` with this layout, and so from the system.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks exist while one is copied into the other.
        add(size);
        // SAFETY: as for `dealloc`; the caller promises that the size is valid.
        let moved = unsafe { System.realloc(place, layout, size) };
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        moved
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Answers every request with the body that is set.
struct Target {
    address: SocketAddr,
    body: Arc<Mutex<Arc<String>>>,
}

impl Target {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, body) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Arc::default())));
        let shared = Arc::clone(&body);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                    line.clear();
                }
                let body: Arc<String> = Arc::clone(&shared.lock().unwrap());
                let kind = if body.starts_with(['[', '{']) { "application/json" } else { "text/plain" };
                let mut stream = reader.into_inner();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                )
                .unwrap();
                stream.write_all(body.as_bytes()).unwrap();
            }
        });
        Self { address, body }
    }
}

/// A list of so many elements, or of as many as an answer can have.
fn list(element: &str, count: usize) -> String {
    let count = count.min((ANSWER_BYTES_MAX - 2) / (element.len() + 1));
    format!("[{}]", vec![element; count].join(","))
}

/// Bodies of every shape that takes much: values far larger than their texts, texts far longer than their values, and
/// what is kept as text because it is too large as a value.
fn shapes() -> Vec<(&'static str, String)> {
    let ordinary = format!(r#"{{"id":12345,"name":"{}"}}"#, "x".repeat(45));
    let deep = format!("{}{}", "[".repeat(95), "]".repeat(95));
    let members: Vec<String> = (0..140_000).map(|at| format!(r#""{at:064}":0"#)).collect();
    vec![
        ("small objects", list(r#"{"":0}"#, 140_000)),
        ("ordinary objects", list(&ordinary, 115_000)),
        ("one large object", format!("{{{}}}", members.join(","))),
        ("numbers that are written out", list("1e20", usize::MAX)),
        ("numbers", list("0", 3_000_000)),
        ("short lists", list("[0]", 1_500_000)),
        ("short texts", list(r#""a""#, 1_700_000)),
        ("deep lists", list(&deep, 30_000)),
        ("one text full of escapes", format!("[\"{}\"]", "\\u0001".repeat((ANSWER_BYTES_MAX - 4) / 6))),
        ("too many small objects", list(r#"{"":0}"#, usize::MAX)),
        ("a secret, again and again", list(&format!("\"{SECRET}\""), 1_000_000)),
        ("control characters", "\u{1}".repeat(ANSWER_BYTES_MAX)),
        ("quotes", "\"".repeat(ANSWER_BYTES_MAX)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_takes_a_small_multiple_of_the_largest() {
    let target = Target::start();
    let place = tempfile::tempdir().unwrap();
    let egress = egress::Settings {
        allow_networks: vec!["127.0.0.0/8".to_owned()],
        allow_http: true,
        ..egress::Settings::default()
    };
    let trust = TrustSettings { system_roots: false, roots_pem: Vec::new() };
    let settings = SkillSettings { egress, trust, ..SkillSettings::default() };
    let registry = Arc::new(registry::standard(&settings).unwrap());
    let plan = json!({
        "plan_id": "peak", "created_at": "2026-03-01T09:00:00Z", "agent_id": "agent", "goal": "measure",
        "steps": [{"step_id": "fetch", "skill_id": "http_call", "skill_version": "1.2.0", "parameters": {
            "url": format!("http://{}/", target.address), "headers": {"x-key": "secret://key"}, "timeout_ms": 30_000}}],
        "context": {"budget_cents": 100, "allowed_skills": ["http_call"]},
    });
    let frozen =
        freeze(&plan, &*registry, &FreezeOptions::default()).unwrap_or_else(|found| panic!("{found:#?}")).value;
    let plan = FrozenPlan::from_value(frozen).unwrap();
    let runs = RunStore::open(Arc::new(SqliteStore::open(place.path()).unwrap())).unwrap();
    let secrets = Arc::new(Held::default().with("key", SECRET));
    let executor = Executor::open(runs, registry, secrets, ExecutorSettings::default(), Arc::new(Unobserved));
    let run = async || {
        let started = executor.start(Start::execute(plan.clone(), "test")).await.unwrap();
        let result = executor.finished(&started.run_id).await.unwrap().expect("the run exists");
        assert_eq!(result.status, Status::Succeeded, "{:?}", result.steps.first().map(|step| &step.outcome.message));
    };
    // What the first call sets up stays.
    *target.body.lock().unwrap() = Arc::new("{}".to_owned());
    run().await;
    let mut found = Vec::new();
    for (shape, body) in shapes() {
        assert!(body.len() <= ANSWER_BYTES_MAX);
        let bytes = body.len();
        *target.body.lock().unwrap() = Arc::new(body);
        let before = TAKEN.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        run().await;
        let peak = PEAK.load(Ordering::Relaxed) - before;
        println!("{shape}: {bytes} bytes took {:.1} MiB", peak as f64 / 1_048_576.0);
        found.push((shape, peak));
        assert_eq!(executor.memory().reserved, 0, "{shape}: everything was released");
    }
    let most = MULTIPLE * ANSWER_BYTES_MAX;
    let beyond: Vec<_> = found.iter().filter(|(_, peak)| *peak > most).collect();
    assert!(beyond.is_empty(), "{beyond:?} of {most}");
    // The shapes do what they are here for.
    let worst = found.iter().map(|(_, peak)| *peak).max().unwrap_or_default();
    assert!(worst > 8 * ANSWER_BYTES_MAX, "{worst}");
    executor.shutdown().await;
}
