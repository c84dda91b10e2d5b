//! A panic is a mistake of ours, and stays with the piece of work that met it: no task or thread ends by it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Error;

/// Runs `work`; a panic is logged and becomes [`Error::Internal`]. Whatever `work` may have left half done is the
/// caller's to throw away, which is why unwind safety is asserted here.
pub(crate) fn contain<T>(what: &str, session_id: Option<&str>, work: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        tracing::error!(session = session_id, panic = message(&*payload), "{what} panicked");
        Error::Internal
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
