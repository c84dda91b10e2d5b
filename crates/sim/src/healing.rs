//! The end of every run: faults stop, and the system must heal, answer, expire, and let go.

use crate::ask::Ask;
use crate::properties::{Property, Violation, bounded};
use crate::world::World;

/// Steps of work after which a system that is not done never will be.
const WORK_STEPS_MAX: u64 = 200_000;

/// Looks of the sweeper that suffice to find every session that is due at a moment.
const SWEEPS_MAX: u64 = 10_000;

/// Moments at which time has something to do; a session has a handful of them.
const MOMENTS_MAX: u64 = 100_000;

/// Ticks that bring eviction past every session.
const TICKS: u32 = 3;

pub(crate) fn heal(world: &mut World) -> Result<(), Violation> {
    world.faults = false;
    drain(world)?;
    world.errors_excused = false;
    world.oracle.check_answered()?;
    bounded::check_surplus(&world.nodes, &world.plan)?;
    expire(world)?;
    ask_again(world)?;
    world.oracle.audit(&world.disk)?;
    let_go(world)
}

/// Works until nothing is under way.
fn drain(world: &mut World) -> Result<(), Violation> {
    for _ in 0..WORK_STEPS_MAX {
        if !world.work_step()? {
            return Ok(());
        }
    }
    Err(Property::Liveness.violated("the work never ends"))
}

/// Time goes on from one thing it has to do to the next, until every session has ended; the sweeper alone must do it.
fn expire(world: &mut World) -> Result<(), Violation> {
    for _ in 0..MOMENTS_MAX {
        let Some(until_ms) = world.oracle.truth.quiet_until_ms() else {
            return world.oracle.check_answered();
        };
        world.now = world.now.max(until_ms + 1);
        for _ in 0..SWEEPS_MAX {
            world.sweep()?;
            if world.nodes.iter().all(|node| node.is_idle()) {
                break;
            }
            drain(world)?;
        }
        world.oracle.check_due(world.now)?;
    }
    Err(Property::Liveness.violated("there is always something left for time to do"))
}

/// Everyone repeats everything that was accepted, and reads every session.
fn ask_again(world: &mut World) -> Result<(), Violation> {
    let accepted = world.oracle.stories.values().filter_map(|story| story.acked.as_ref()?.ask.clone());
    let reads = world.oracle.truth.sessions.keys().cloned().map(Ask::read);
    let asks: Vec<Ask> = accepted.chain(reads).collect();
    for ask in asks {
        world.submit(ask);
    }
    drain(world)?;
    world.oracle.check_answered()
}

/// Nobody asks for anything any more.
fn let_go(world: &mut World) -> Result<(), Violation> {
    world.now += world.plan.idle_ms_max.max(2_000) + 1;
    for _ in 0..TICKS {
        world.tick()?;
        drain(world)?;
    }
    bounded::check_idle(&world.nodes)
}
