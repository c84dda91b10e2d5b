//! The real binary, with real data directories, as a user drives it.

mod advice;
mod certificates;
mod conform;
mod damage;
mod demo;
mod directory;
mod disk_full;
mod effects;
mod flow;
mod lifecycle;
mod plan;
mod reported;
mod runs;
mod secure;
mod settings;
mod signatures;
mod standard;
mod support;
mod tamper;
mod target;
mod trace;
