//! The doors, tried from outside: a real server on a loopback port, real gRPC and HTTP clients. One binary, so that it
//! is linked once. Tests named after a rule (`rpc_7_…`, `wire_3_…`) are found by its id.

mod common;

mod audit;
mod drain;
mod histories;
mod hostile;
mod http;
mod limits;
mod rpcs;
mod signatures;
mod start;
mod streams;
mod watches;
