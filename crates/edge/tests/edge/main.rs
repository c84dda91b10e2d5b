//! The doors, tried from outside: a real server on a loopback port, real gRPC and HTTP clients. One binary, so that it
//! is linked once. Tests named after a rule (`rpc_7_…`, `wire_3_…`) are found by its id.

mod common;
mod security_common;
mod standard_common;

mod audit;
mod connections;
mod drain;
mod histories;
mod hostile;
mod http;
mod limits;
mod rpcs;
mod security;
mod security_listing;
mod security_quota;
mod security_readers;
mod security_rights;
mod security_signals;
mod security_start;
mod security_tls;
mod signatures;
mod standard_calls;
mod standard_corners;
mod standard_lifecycle;
mod standard_modes;
mod standard_policies;
mod standard_profiles;
mod standard_receipts;
mod standard_replays;
mod standard_send;
mod standard_streams;
mod standard_time;
mod standard_watches;
mod standard_what_if;
mod start;
mod streams;
mod unread;
mod watches;
