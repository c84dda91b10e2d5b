//! For authors of skills and for tests of plans: a skill that follows a script, a stage for whole plans, a recorder of
//! scripts, and checks that every skill must pass.
//!
//! Time in scripts is tokio's: under a paused clock nothing waits, and everything that would have is still in order.
//!
//! ```
//! use macp_plan::testkit::ScriptedSkill;
//!
//! let skill = ScriptedSkill::new("fetch", "1.0.0").script("503, 503, 200").expect("a script");
//! assert_eq!(skill.left(), 3);
//! ```
//!
//! A [`Stage`] executes a whole plan with such skills and says how it ended.

mod check;
mod scripted;
mod stage;

pub use check::{Findings, check_skill};
pub use scripted::{Act, NotAScript, Recorded, ScriptedSkill};
pub use stage::{Performance, Stage, script_of};
