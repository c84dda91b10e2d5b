//! For authors of skills and for tests of plans: a skill that follows a script, and checks that every skill must pass.
//!
//! Time in scripts is tokio's: under a paused clock nothing waits, and everything that would have is still in order.
//!
//! ```
//! use macp_plan::testkit::ScriptedSkill;
//!
//! let skill = ScriptedSkill::new("fetch", "1.0.0").script("503, 503, 200").expect("a script");
//! assert_eq!(skill.left(), 3);
//! ```

mod check;
mod scripted;

pub use check::{Findings, check_skill};
pub use scripted::{Act, NotAScript, Recorded, ScriptedSkill};
