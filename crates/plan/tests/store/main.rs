//! The store of runs: what is durable when, who wins, what is read back, and what a damaged file or store says.

mod claims;
mod damage;
mod documents;
mod export;
mod export_any_input;
mod export_damage;
mod journal;
mod list;
mod sample;
mod watch;
mod wrapped;
