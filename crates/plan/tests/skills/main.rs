//! The skills that come with the runtime, against real servers on this machine.

mod authored;
mod bindings;
mod egress;
mod granted;
mod http_answers;
mod http_faults;
mod http_redirects;
mod llm;
mod registry;
mod secrets;
mod server;
mod testkit;
mod tls;
mod transform;
mod world;
