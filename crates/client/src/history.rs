//! Reading, checking and taking away what a session left behind.

use macp_wire::history::v1::{
    ExportSessionRequest, ExportSessionResponse, GetSessionLogRequest, GetSessionLogResponse, LogEntry, ReplayReport,
    ReplaySessionRequest, ReplaySessionResponse, ReplayStep, VerifySessionRequest, VerifySessionResponse,
    replay_session_response,
};
use macp_wire::v1::{
    GetDecisionReceiptRequest, GetReceiptKeysRequest, PolicyDescriptor, WhatIfReplayRequest, WhatIfReplayResponse,
};

use crate::{Client, Error, Incoming};

/// What a replay tells: every decision as it is taken again, then the report.
#[derive(Clone, Debug, PartialEq)]
pub enum Replayed {
    Step(ReplayStep),
    Report(ReplayReport),
}

/// Entries to ask for when a whole log is read: as many as servers give unless told otherwise. Every page takes from the
/// caller's share of requests.
pub const LOG_PAGE_SIZE_MAX: i32 = 1_000;

impl Client {
    /// One page of a session's entries after a sequence; a size of 0 asks for the default.
    pub async fn session_log(
        &self,
        session_id: &str,
        after_sequence: u64,
        page_size: i32,
    ) -> Result<GetSessionLogResponse, Error> {
        let request = GetSessionLogRequest { session_id: session_id.to_owned(), after_sequence, page_size };
        Ok(self.history.clone().get_session_log(request).await?.into_inner())
    }

    /// A session's whole log, page after page.
    pub async fn whole_log(&self, session_id: &str) -> Result<Vec<LogEntry>, Error> {
        let mut entries = Vec::new();
        let mut after = 0;
        loop {
            let page = self.session_log(session_id, after, LOG_PAGE_SIZE_MAX).await?;
            entries.extend(page.entries);
            if page.next_after_sequence == 0 {
                return Ok(entries);
            }
            after = page.next_after_sequence;
        }
    }

    /// Has the server take every decision of a session again. The last message is the report.
    pub async fn replay(
        &self,
        request: ReplaySessionRequest,
    ) -> Result<Incoming<ReplaySessionResponse, Replayed>, Error> {
        let events = self.history.clone().replay_session(request).await?.into_inner();
        Ok(Incoming::new(events, |message| match message.event {
            Some(replay_session_response::Event::Step(step)) => Ok(Replayed::Step(step)),
            Some(replay_session_response::Event::Report(report)) => Ok(Replayed::Report(report)),
            None => Err(Error::Incomplete("event")),
        }))
    }

    /// Replays a session under its bound versions and returns the report alone.
    pub async fn replay_report(&self, session_id: &str) -> Result<ReplayReport, Error> {
        let request = ReplaySessionRequest { session_id: session_id.to_owned(), ..ReplaySessionRequest::default() };
        let mut events = self.replay(request).await?;
        while let Some(event) = events.next().await? {
            if let Replayed::Report(report) = event {
                return Ok(report);
            }
        }
        Err(Error::Incomplete("report"))
    }

    /// What would have happened to a session under another policy.
    pub async fn what_if(&self, session_id: &str, candidate: PolicyDescriptor) -> Result<WhatIfReplayResponse, Error> {
        let request = WhatIfReplayRequest { session_id: session_id.to_owned(), candidate: Some(candidate) };
        Ok(self.runtime.clone().what_if_replay(request).await?.into_inner())
    }

    /// The receipt of a resolved session, as its JSON text.
    pub async fn receipt(&self, session_id: &str) -> Result<String, Error> {
        let request = GetDecisionReceiptRequest { session_id: session_id.to_owned() };
        Ok(self.runtime.clone().get_decision_receipt(request).await?.into_inner().receipt_json)
    }

    /// The public keys of receipts, as the text of a JSON Web Key Set.
    pub async fn receipt_keys(&self) -> Result<String, Error> {
        Ok(self.runtime.clone().get_receipt_keys(GetReceiptKeysRequest {}).await?.into_inner().jwks_json)
    }

    /// Has the server check a session's hash chain and signatures.
    pub async fn verify(&self, session_id: &str) -> Result<VerifySessionResponse, Error> {
        let request = VerifySessionRequest { session_id: session_id.to_owned() };
        Ok(self.history.clone().verify_session(request).await?.into_inner())
    }

    /// A session as one self-contained JSON-lines file, in chunks.
    pub async fn export(&self, session_id: &str) -> Result<Incoming<ExportSessionResponse, bytes::Bytes>, Error> {
        let request = ExportSessionRequest { session_id: session_id.to_owned() };
        let chunks = self.history.clone().export_session(request).await?.into_inner();
        Ok(Incoming::new(chunks, |message| Ok(message.data)))
    }
}
