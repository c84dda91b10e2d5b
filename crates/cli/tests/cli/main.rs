//! The real binary, with real data directories, as a user drives it.

mod demo;
mod directory;
mod disk_full;
mod flow;
mod lifecycle;
mod settings;
mod signatures;
mod support;
mod tamper;
mod trace;
