//! The memory that reading an answer takes, reserved before it is read.

use super::document;
use crate::memory;

/// Reading less than this is covered by what is reserved for every call.
const COVERED_BYTES: usize = 128 * 1024;

/// Waits until there is memory to read a JSON text as the value it is.
pub(super) async fn reserve_json(text: &[u8]) {
    // A text takes about a hundred times its length at most.
    if text.len() > COVERED_BYTES / 128 {
        reserve(document::reading_bytes(text)).await;
    }
}

/// Waits until there is memory to take a body as text.
pub(super) async fn reserve_text(body: &[u8]) {
    reserve(document::text_bytes(body)).await;
}

async fn reserve(bytes: usize) {
    if bytes > COVERED_BYTES
        && let Some(claim) = memory::current()
    {
        claim.work(bytes).await;
    }
}
