//! gRPC clients and servers of the services, over the messages of `macp-wire`.
//!
//! Generated stubs live here, under names that read well at the point of use: `runtime::Client`,
//! `history::Server`. They are a crate of their own so that `macp-wire` and what builds on it stay free of an async
//! runtime.

mod codec;
mod frame;

pub use codec::decoder;
pub use frame::StreamFrame;

/// `macp.v1.MACPRuntimeService`.
pub mod runtime {
    #[allow(clippy::all, rustdoc::all, unreachable_pub, missing_debug_implementations)]
    mod generated {
        include!(concat!(env!("OUT_DIR"), "/client/macp.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/server/macp.v1.rs"));
    }

    pub use generated::{
        macp_runtime_service_client::{self, MacpRuntimeServiceClient as Client},
        macp_runtime_service_server::{self, MacpRuntimeService as Service, MacpRuntimeServiceServer as Server},
    };
}

/// `macp.history.v1.HistoryService`.
pub mod history {
    #[allow(clippy::all, rustdoc::all, unreachable_pub, missing_debug_implementations)]
    mod generated {
        include!(concat!(env!("OUT_DIR"), "/client/macp.history.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/server/macp.history.v1.rs"));
    }

    pub use generated::{
        history_service_client::{self, HistoryServiceClient as Client},
        history_service_server::{self, HistoryService as Service, HistoryServiceServer as Server},
    };
}

/// `macp.plan.v1.PlanService`.
pub mod plan {
    #[allow(clippy::all, rustdoc::all, unreachable_pub, missing_debug_implementations)]
    mod generated {
        include!(concat!(env!("OUT_DIR"), "/client/macp.plan.v1.rs"));
        include!(concat!(env!("OUT_DIR"), "/server/macp.plan.v1.rs"));
    }

    pub use generated::{
        plan_service_client::{self, PlanServiceClient as Client},
        plan_service_server::{self, PlanService as Service, PlanServiceServer as Server},
    };
}
