//! A kit for tests: scripted skills, a world that answers by script in virtual time, and random plans.

mod plans;
pub mod random;
mod skill;
mod world;

pub use plans::{freeze, llm_step, plan, rate_card, start, step};
pub use skill::{Kit, ScriptedSkill};
pub use world::{Answer, Run, World, drive, execute, http, run};
