//! What a machine that lost power would find on its disk.

use std::collections::BTreeMap;
use std::path::Path;

use macp_ledger::sqlite::DATABASE_FILE;

use crate::vfs::{Event, File};

/// Writes the files as they would be after a crash following the first `point` events.
///
/// What a sync had covered is there. Of the rest, each write is there or not as `keep` says: disks reorder.
pub(crate) fn write(directory: &Path, events: &[Event], point: usize, mut keep: impl FnMut() -> bool) {
    let events = &events[..point];
    let mut covered: BTreeMap<File, usize> = BTreeMap::new();
    for event in events {
        if let Event::Sync { file, covers } = event {
            let covered = covered.entry(*file).or_default();
            *covered = (*covered).max(*covers);
        }
    }
    let is_covered = |file: &File, position: usize| covered.get(file).is_some_and(|covers| position < *covers);
    let mut files: BTreeMap<File, Vec<u8>> = BTreeMap::new();
    for (position, event) in events.iter().enumerate() {
        match event {
            Event::Write { file, offset, bytes } if is_covered(file, position) || keep() => {
                let content = files.entry(*file).or_default();
                let start = usize::try_from(*offset).expect("small files");
                let end = start + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[start..end].copy_from_slice(bytes);
            }
            Event::Truncate { file, size } if is_covered(file, position) || keep() => {
                files.entry(*file).or_default().resize(usize::try_from(*size).expect("small files"), 0);
            }
            _ => {}
        }
    }
    for (file, content) in files {
        let name = match file {
            File::Database => String::from(DATABASE_FILE),
            File::Log => format!("{DATABASE_FILE}-wal"),
        };
        std::fs::write(directory.join(name), content).expect("write the image");
    }
}
