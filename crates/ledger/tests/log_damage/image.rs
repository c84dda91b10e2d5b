//! The files of a store that was killed, and the commits it had acknowledged.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use macp_ledger::contract::random::Random;
use macp_ledger::contract::sample::Session;
use macp_ledger::sqlite::{DATABASE_FILE, Options, POSITION_FILE};
use macp_ledger::{Failure, FailureKind, Filter, PutMode, SqliteStore, Store};
use tempfile::TempDir;

pub(crate) const HEADER_BYTES: u64 = 32;
pub(crate) const FRAME_HEADER_BYTES: u64 = 24;
pub(crate) const FRAME_BYTES: u64 = FRAME_HEADER_BYTES + 4_096;
/// Documents are listed with the sessions, under these names.
const KIND: &str = "kind";

/// Sequence of every session, and a number for every document.
pub(crate) type State = BTreeMap<String, u64>;

/// A directory as a killed process leaves it.
pub(crate) struct Image {
    pub(crate) directory: TempDir,
    /// What the store held after each commit.
    pub(crate) states: Vec<State>,
    /// The position file after each commit.
    pub(crate) notes: Vec<Vec<u8>>,
}

/// A log as its file states it: frames with the salts of the header.
pub(crate) struct Log {
    /// Whether frame n + 1 ends a commit.
    pub(crate) is_commit: Vec<bool>,
    pub(crate) bytes: u64,
}

impl Log {
    pub(crate) fn read(path: &std::path::Path) -> Log {
        let log = std::fs::read(path).unwrap_or_default();
        let salts = log.get(16..24).unwrap_or_default().to_vec();
        let frames = log.get(HEADER_BYTES as usize..).unwrap_or_default().chunks_exact(FRAME_BYTES as usize);
        let frames = frames.take_while(|frame| frame[8..16] == salts);
        Log { is_commit: frames.map(|frame| frame[4..8] != [0; 4]).collect(), bytes: log.len() as u64 }
    }

    pub(crate) fn frames(&self) -> u64 {
        self.is_commit.len() as u64
    }

    pub(crate) fn commits(&self) -> usize {
        self.is_commit.iter().filter(|is_commit| **is_commit).count()
    }
}

impl Image {
    /// A log of at least so many commits, which was started over at least so often.
    pub(crate) fn make(random: &mut Random, commits: usize, restarts: usize) -> Image {
        let directory = TempDir::new().unwrap();
        let options = Options { checkpoint_pages: 150, empty_after: Duration::MAX, ..Options::default() };
        let store = SqliteStore::open_with(directory.path(), options).unwrap();
        let mut sessions: Vec<_> = (0..6).map(|n| Session::new(&format!("s{n}"))).collect();
        let mut state = State::new();
        let note = || std::fs::read(directory.path().join(POSITION_FILE)).unwrap();
        let (mut states, mut notes) = (vec![state.clone()], vec![note()]);
        let (mut seen, mut frames) = (0, 0);
        while seen < restarts || Log::read(&log_of(&directory)).commits() < commits {
            if random.one_in(4) {
                let key = format!("k{}", random.below(4));
                let number = random.below(1_000_000);
                store.put_document(KIND, &key, &number.to_be_bytes(), PutMode::Replace).unwrap();
                state.insert(key, number);
            } else {
                let session = &mut sessions[random.below(6) as usize];
                let append = session.append_sized(1 + random.below(2) as usize, random.below(3_000) as usize);
                store.append(&[append]).remove(0).unwrap();
                state.insert(session.id.to_string(), session.sequence);
            }
            states.push(state.clone());
            notes.push(note());
            let now = Log::read(&log_of(&directory)).frames();
            if now < frames {
                seen += 1;
            }
            frames = now;
            assert!(states.len() < 20_000, "the log was started over {seen} times");
        }
        let image = TempDir::new().unwrap();
        // The checkpoint thread may be at work, as it may be when a process is killed.
        for name in [DATABASE_FILE.to_owned(), format!("{DATABASE_FILE}-wal"), POSITION_FILE.to_owned()] {
            std::fs::copy(directory.path().join(&name), image.path().join(&name)).unwrap();
        }
        Image { directory: image, states, notes }
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        log_of(&self.directory)
    }

    pub(crate) fn log(&self) -> Log {
        Log::read(&self.log_path())
    }

    /// Puts the position file there that was written `age` commits before the last, or none.
    pub(crate) fn set_note(&self, age: Option<usize>) {
        let path = self.directory.path().join(POSITION_FILE);
        match age {
            Some(age) => std::fs::write(path, &self.notes[self.notes.len() - 1 - age]).unwrap(),
            None if path.exists() => std::fs::remove_file(path).unwrap(),
            None => {}
        }
    }

    /// Flips a bit of the log; the same again undoes it.
    pub(crate) fn flip(&self, at: u64, bit: u32) {
        let file = OpenOptions::new().read(true).write(true).open(self.log_path()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], at).unwrap();
    }

    /// The state that a reader finds, or the loss that is reported to it. Changes no file.
    pub(crate) fn read(&self) -> Result<State, Failure> {
        let store = SqliteStore::open_read_only(self.directory.path())?;
        match store.loss() {
            Some(loss) => Err(loss.clone()),
            None => Ok(state(&store)),
        }
    }

    /// The state that a server finds which starts on a copy.
    pub(crate) fn open(&self) -> Result<State, Failure> {
        SqliteStore::open(self.copy().path()).map(|store| state(&store))
    }

    pub(crate) fn copy(&self) -> TempDir {
        let copy = TempDir::new().unwrap();
        for file in std::fs::read_dir(self.directory.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        copy
    }

    /// How many of the last commits are missing from a state.
    #[track_caller]
    pub(crate) fn missing(&self, found: &State) -> usize {
        self.states.iter().rev().position(|state| state == found).expect("a state after a commit")
    }
}

pub(crate) fn state(store: &SqliteStore) -> State {
    let heads = store.list(None, usize::MAX, Filter::All).unwrap();
    let sessions = heads.into_iter().map(|head| (head.session_id.to_string(), head.sequence));
    let documents = store.documents(KIND, None, usize::MAX).unwrap().into_iter();
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    sessions.chain(documents.map(|it| (it.key.to_string(), number(&it.bytes)))).collect()
}

/// Cuts a file.
pub(crate) fn truncate(path: &std::path::Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn log_of(directory: &TempDir) -> PathBuf {
    directory.path().join(format!("{DATABASE_FILE}-wal"))
}

#[track_caller]
pub(crate) fn assert_loss(failure: &Failure) {
    assert_eq!(failure.kind(), FailureKind::Loss, "{failure:?}");
}
