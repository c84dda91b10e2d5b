//! Looking at sessions: one, all, and what happens to them.

use macp_wire::v1::{
    GetSessionRequest, ListSessionsRequest, ListSessionsResponse, SessionLifecycleEvent, SessionMetadata,
    WatchSessionsRequest, WatchSessionsResponse, WatchSignalsRequest, WatchSignalsResponse,
};

use crate::{Client, Error, Incoming};

impl Client {
    /// What a session is bound to and where it stands.
    pub async fn get_session(&self, session_id: &str) -> Result<SessionMetadata, Error> {
        let request = GetSessionRequest { session_id: session_id.to_owned() };
        let answer = self.runtime.clone().get_session(request).await?.into_inner();
        answer.metadata.ok_or(Error::Incomplete("metadata"))
    }

    /// One page of sessions. Pass the token of a page to get the one after it; 0 asks for the default size.
    pub async fn list_sessions(&self, page_size: i32, page_token: &str) -> Result<ListSessionsResponse, Error> {
        let request = ListSessionsRequest { page_size, page_token: page_token.to_owned() };
        Ok(self.runtime.clone().list_sessions(request).await?.into_inner())
    }

    /// Every session, page after page.
    pub async fn all_sessions(&self) -> Result<Vec<SessionMetadata>, Error> {
        let mut sessions = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.list_sessions(0, &token).await?;
            sessions.extend(page.sessions);
            if page.next_page_token.is_empty() {
                return Ok(sessions);
            }
            token = page.next_page_token;
        }
    }

    /// Sessions as they start and end.
    pub async fn watch_sessions(&self) -> Result<Incoming<WatchSessionsResponse, SessionLifecycleEvent>, Error> {
        let events = self.runtime.clone().watch_sessions(WatchSessionsRequest {}).await?.into_inner();
        Ok(Incoming::new(events, |message| message.event.ok_or(Error::Incomplete("event"))))
    }

    /// Signals and progress as they pass through.
    pub async fn watch_signals(&self) -> Result<Incoming<WatchSignalsResponse, WatchSignalsResponse>, Error> {
        let signals = self.runtime.clone().watch_signals(WatchSignalsRequest {}).await?.into_inner();
        Ok(Incoming::new(signals, Ok))
    }
}
