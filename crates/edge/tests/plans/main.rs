//! The plan service, tried from outside: a real server on a loopback port, real gRPC clients, and a real HTTP server
//! that the plans call. One binary, so that it is linked once.

mod common;
mod target;

mod checks;
mod damage;
mod doubt;
mod egress;
mod hostile;
mod listing;
mod numbers;
mod readers;
mod replays;
mod rights;
mod runs;
mod service;
mod sessions;
mod transfers;
