//! The rooms and their arrows: dependencies point down, and the heart stays pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every room with the rooms it may use, top to bottom. docs/ARCHITECTURE.md draws the same table.
const ROOMS: &[(&str, &[&str])] = &[
    ("macp-wire", &[]),
    ("macp-rpc", &["macp-wire"]),
    ("macp-kernel", &["macp-wire"]),
    ("macp-ledger", &["macp-wire"]),
    ("macp-archive", &["macp-wire", "macp-kernel", "macp-ledger"]),
    ("macp-engine", &["macp-wire", "macp-kernel", "macp-ledger"]),
    ("macp-plan-core", &["macp-wire"]),
    ("macp-plan", &["macp-wire", "macp-kernel", "macp-ledger", "macp-engine", "macp-plan-core"]),
    ("macp-auth", &[]),
    (
        "macp-edge",
        &[
            "macp-wire",
            "macp-rpc",
            "macp-kernel",
            "macp-ledger",
            "macp-archive",
            "macp-engine",
            "macp-plan-core",
            "macp-plan",
            "macp-auth",
        ],
    ),
    ("macp-client", &["macp-wire", "macp-rpc"]),
    ("macp-conformance", &["macp-wire", "macp-kernel", "macp-archive", "macp-client"]),
    (
        "macp-cli",
        &[
            "macp-wire",
            "macp-kernel",
            "macp-ledger",
            "macp-archive",
            "macp-engine",
            "macp-plan-core",
            "macp-plan",
            "macp-auth",
            "macp-edge",
            "macp-client",
            "macp-conformance",
        ],
    ),
    ("macp-sim", &["macp-wire", "macp-kernel", "macp-ledger", "macp-engine"]),
    (
        "macp-bench",
        &[
            "macp-wire",
            "macp-rpc",
            "macp-kernel",
            "macp-ledger",
            "macp-archive",
            "macp-plan-core",
            "macp-plan",
            "macp-edge",
        ],
    ),
    ("macp-xtask", &[]),
];

/// Rooms that know no runtime, no disk, no network, no clock and no chance.
const PURE: &[&str] = &["macp-wire", "macp-kernel", "macp-plan-core"];

const IMPURE_CRATES: &[&str] = &[
    "tokio",
    "tonic",
    "hyper",
    "axum",
    "rusqlite",
    "libsqlite3-sys",
    "rand",
    "getrandom",
    "chrono",
    "jiff",
    "time",
    "tracing",
    "tracing-subscriber",
    "socket2",
    "mio",
    "uuid",
];

const IMPURE_WORDS: &[&str] = &[
    "SystemTime",
    "Instant::",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::io",
    "std::process",
    "HashMap",
    "HashSet",
    "async fn",
    "static mut",
    "thread_local!",
    "println!",
    "OnceLock",
    "LazyLock",
];

/// Places where a word that usually hides state names a constant that is merely too large to be written as one.
const CONSTANTS: &[(&str, &str)] = &[("policy/builtin.rs", "LazyLock")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Package names in the normal dependency tree of a package.
fn tree(package: &str, depth: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--depth", depth])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .expect("cargo speaks text")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != package)
        .map(str::to_owned)
        .collect()
}

#[test]
fn dependencies_point_down() {
    let allowed: BTreeMap<_, _> = ROOMS.iter().copied().collect();
    for (room, may_use) in ROOMS {
        for used in tree(room, "1").iter().filter(|name| name.starts_with("macp-")) {
            assert!(may_use.contains(&used.as_str()), "{room} uses {used}, which its row does not allow");
            assert!(allowed.contains_key(used.as_str()), "{used} is no room");
        }
    }
}

#[test]
fn every_member_is_a_room() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("readable");
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a member list");
    let members: BTreeSet<String> =
        members.split('"').skip(1).step_by(2).map(|path| path.rsplit('/').next().unwrap_or(path).to_owned()).collect();
    let rooms: BTreeSet<String> = ROOMS.iter().map(|(name, _)| name.trim_start_matches("macp-").to_owned()).collect();
    assert_eq!(members, rooms);
}

/// The drawn table and the checked one are the same.
#[test]
fn the_architecture_page_draws_the_same_table() {
    let page = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("readable");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let mut drawn = 0;
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').collect();
        let room = words(cells[1]).into_iter().next().expect("a room has a name");
        let (_, may_use) = ROOMS.iter().find(|(name, _)| *name == format!("macp-{room}")).expect("a known room");
        let allowed: BTreeSet<String> =
            may_use.iter().map(|name| name.trim_start_matches("macp-").to_owned()).collect();
        assert_eq!(words(cells[3]), allowed, "{room}");
        drawn += 1;
    }
    assert_eq!(drawn, 13, "every room of the product is drawn");
}

#[test]
fn pure_rooms_pull_in_nothing_impure() {
    for room in PURE {
        let impure: Vec<_> =
            tree(room, "99").into_iter().filter(|name| IMPURE_CRATES.contains(&name.as_str())).collect();
        assert!(impure.is_empty(), "{room} reaches {impure:?}");
    }
}

#[test]
fn the_kernel_uses_nothing_impure() {
    for (path, text) in sources(&root().join("crates/kernel/src")) {
        for word in
            IMPURE_WORDS.iter().filter(|word| !CONSTANTS.iter().any(|(file, is)| path.ends_with(file) && is == *word))
        {
            assert!(!text.contains(word), "{}: {word} has no place in the kernel", path.display());
        }
    }
}

/// Fields that may differ between two runs which behave alike. The decision core cannot decide by what it cannot name.
const FORBIDDEN_FIELDS: &[&str] =
    &["timestamp", "latency_ms", "trace_id", "span_id", "message", "response_body", "llm_output", "f32", "f64"];

/// AOS-5, AOS-94: nor does it know a clock, or look into what was only told.
#[test]
fn forbidden_field_lint() {
    for (path, text) in sources(&root().join("crates/plan-core/src")) {
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let code = code.join("\n");
        let names: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let impure = IMPURE_WORDS.iter().chain(&[".shown()"]).filter(|word| code.contains(**word));
        let forbidden = FORBIDDEN_FIELDS.iter().filter(|name| names.contains(**name));
        let found: Vec<_> = impure.chain(forbidden).collect();
        assert!(found.is_empty(), "{}: {found:?} has no place in the decision core", path.display());
    }
}

/// Rust files below a directory with their texts.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("text");
            found.push((path, text));
        }
    }
    found
}
