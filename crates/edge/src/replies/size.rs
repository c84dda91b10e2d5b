//! How much room a reply needs before it is made.

/// Replies by their size. What is reserved becomes what the reply takes once it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplySize {
    /// An acknowledgement, or a short document.
    Small,
    /// One document that clients filled: a session, a policy, a receipt.
    Document,
    /// A page of a listing or a history, bounded at 3 MiB and one entry more.
    Page,
    /// Messages that are made as the client reads them.
    Stream,
}

impl ReplySize {
    /// Returns the size of the replies of a call.
    pub(crate) fn of(path: &str) -> Self {
        match path.rsplit('/').next().unwrap_or_default() {
            "GetSession" | "GetPolicy" | "GetDecisionReceipt" | "DescribeSkill" | "metrics" => ReplySize::Document,
            "ListSessions" | "ListPolicies" | "ListExtModes" | "GetSessionLog" | "WhatIfReplay" | "ListRuns"
            | "GetRun" | "Query" | "DryRun" | "ValidatePlan" | "ListSkills" => ReplySize::Page,
            "StreamSession"
            | "WatchModeRegistry"
            | "WatchRoots"
            | "WatchSignals"
            | "WatchSessions"
            | "WatchPolicies"
            | "ReplaySession"
            | "ExportSession"
            | "WatchRun"
            | "Replay"
            | "ExportRun"
            | "Watch"
            | "ServerReflectionInfo" => ReplySize::Stream,
            _ => ReplySize::Small,
        }
    }

    /// Returns the bytes to reserve.
    pub(crate) fn reserved(self) -> usize {
        match self {
            ReplySize::Small | ReplySize::Stream => 4 * 1024,
            ReplySize::Document => 1024 * 1024,
            ReplySize::Page => 4 * 1024 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::ReplySize;

    #[test]
    fn every_streaming_call_is_known_as_one() {
        let files = FileDescriptorSet::decode(macp_wire::FILE_DESCRIPTOR_SET).expect("descriptors");
        let methods = files.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
        let mut count = 0;
        for method in methods {
            let is_stream = ReplySize::of(&format!("/service/{}", method.name())) == ReplySize::Stream;
            assert_eq!(is_stream, method.server_streaming(), "{}", method.name());
            count += 1;
        }
        assert!(count > 30, "{count} calls");
    }
}
