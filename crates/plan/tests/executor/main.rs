//! The executor: whole runs, with skills that follow a script, real stores, and a clock that only moves when it is waited for.

mod admission;
mod budget;
mod claims;
mod control;
mod corpus;
mod crash;
mod doubt;
mod execution;
mod faults;
mod http;
mod imported;
mod isolation;
mod log;
mod memory;
mod metering;
mod panics;
mod quota;
mod replay;
mod retry;
mod room;
mod secrets;
#[path = "../skills/server.rs"]
#[allow(dead_code, reason = "the tests of the skills need more of it")]
mod server;
mod spending;
mod start;
mod stores;
mod stuck;
mod trace;
mod world;
