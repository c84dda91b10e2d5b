//! The word that the server is going down, heard by everything that would otherwise go on for ever.

use std::sync::Arc;

use tokio::sync::watch;

/// Said once, never taken back.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    begun: Arc<watch::Sender<bool>>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Drain { begun: Arc::new(watch::Sender::new(false)) }
    }

    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Returns once the drain has begun.
    pub(crate) async fn begun(&self) {
        let mut receiver = self.begun.subscribe();
        receiver.wait_for(|begun| *begun).await.expect("self holds the sender");
    }
}
