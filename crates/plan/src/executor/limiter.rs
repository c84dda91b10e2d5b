//! How many calls an agent may have out, and how many it may make in a minute. Counted for every agent by itself, so
//! that one agent's load never changes how another's runs behave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use macp_plan_core::journal::LimiterVerdict;
use tokio::time::Instant;

use super::settings::AgentLimits;

/// Agents remembered before those without any call are forgotten.
const AGENTS_MAX: usize = 10_000;

/// A call's share of a minute's allowance, so that whole calls are whole numbers.
const SHARE: u64 = 60_000;

#[derive(Clone, Debug)]
pub(super) struct Limiter {
    limits: AgentLimits,
    agents: Arc<Mutex<BTreeMap<String, Agent>>>,
}

#[derive(Debug)]
struct Agent {
    out: u32,
    /// What may still be called, in shares.
    left: u64,
    filled: Instant,
}

/// A call that is out; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    agent_id: String,
    /// None where nothing is counted.
    agents: Option<Arc<Mutex<BTreeMap<String, Agent>>>>,
}

impl Limiter {
    pub(super) fn new(limits: AgentLimits) -> Self {
        Self { limits, agents: Arc::default() }
    }

    /// Whether an agent may make a call now, and if so the right to.
    pub(super) fn ask(&self, agent_id: &str) -> Result<Permit, LimiterVerdict> {
        self.count(agent_id, true)
    }

    /// The right to make a call that was allowed before. It counts, and is never refused.
    pub(super) fn take(&self, agent_id: &str) -> Permit {
        self.count(agent_id, false).unwrap_or_else(|_| Permit { agent_id: agent_id.to_owned(), agents: None })
    }

    fn count(&self, agent_id: &str, judge: bool) -> Result<Permit, LimiterVerdict> {
        let permit = |agents| Permit { agent_id: agent_id.to_owned(), agents };
        if self.limits.calls_max.is_none() && self.limits.calls_per_minute.is_none() {
            return Ok(permit(None));
        }
        let now = Instant::now();
        let full = self.limits.calls_per_minute.map_or(0, |calls| u64::from(calls) * SHARE);
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if agents.len() >= AGENTS_MAX {
            // A minute refills every allowance, so that nothing is forgotten which still counts.
            agents.retain(|_, agent| agent.out > 0 || now - agent.filled < Duration::from_secs(60));
        }
        let agent = agents.entry(agent_id.to_owned()).or_insert_with(|| Agent { out: 0, left: full, filled: now });
        if judge && self.limits.calls_max.is_some_and(|most| agent.out >= most) {
            return Err(LimiterVerdict::ConcurrencyLimited);
        }
        if let Some(calls) = self.limits.calls_per_minute.filter(|_| judge) {
            let passed = u64::try_from((now - agent.filled).as_millis()).unwrap_or(u64::MAX);
            agent.left = agent.left.saturating_add(passed.saturating_mul(calls.into())).min(full);
            agent.filled = now;
            agent.left = agent.left.checked_sub(SHARE).ok_or(LimiterVerdict::RateLimited)?;
        }
        agent.out += 1;
        Ok(permit(Some(Arc::clone(&self.agents))))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(agents) = &self.agents else { return };
        if let Some(agent) = agents.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&self.agent_id) {
            agent.out -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_by_agent_and_come_back_with_time() {
        let limiter = Limiter::new(AgentLimits { calls_per_minute: Some(2), ..AgentLimits::default() });
        for _ in 0..2 {
            drop(limiter.ask("a").expect("allowed"));
        }
        assert_eq!(limiter.ask("a").err(), Some(LimiterVerdict::RateLimited));
        drop(limiter.ask("b").expect("another agent has its own"));
        tokio::time::advance(Duration::from_secs(30)).await;
        drop(limiter.ask("a").expect("half a minute is one call"));
        assert_eq!(limiter.ask("a").err(), Some(LimiterVerdict::RateLimited));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_out_takes_a_place_until_it_is_back() {
        let limiter = Limiter::new(AgentLimits { calls_max: Some(1), ..AgentLimits::default() });
        let out = limiter.ask("a").expect("allowed");
        assert_eq!(limiter.ask("a").err(), Some(LimiterVerdict::ConcurrencyLimited));
        drop(limiter.ask("b").expect("another agent has its own"));
        let recovered = limiter.take("a");
        drop(out);
        assert!(limiter.ask("a").is_err(), "a call that was allowed before a restart takes a place too");
        drop(recovered);
        drop(limiter.ask("a").expect("the place is free"));
    }
}
