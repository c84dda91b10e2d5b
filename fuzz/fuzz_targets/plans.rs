//! Any bytes as a plan: read, frozen and checked without a panic, and frozen twice to the same digest.

#![no_main]

use libfuzzer_sys::fuzz_target;
use macp_plan_core::check;
use macp_plan_core::freeze::{FreezeOptions, freeze};
use macp_plan_core::lint::lint;
use macp_plan_core::plan::FrozenPlan;
use macp_plan_core::testkit::Kit;
use macp_wire::canonical;

fuzz_target!(|bytes: &[u8]| {
    let catalog = Kit::standard().shared();
    let options = FreezeOptions::default();
    let _findings = lint(bytes, &*catalog, &options);
    if let Ok(plan) = FrozenPlan::parse(bytes) {
        let _findings = check::preflight(&plan, &*catalog);
        let again = FrozenPlan::parse(plan.text().as_bytes()).expect("what was written can be read");
        assert_eq!(again.hash, plan.hash);
    }
    if let Ok(authored) = canonical::parse(bytes)
        && let Ok(frozen) = freeze(&authored, &*catalog, &options)
    {
        let again = freeze(&frozen.value, &*catalog, &options).expect("a frozen plan can be frozen");
        assert_eq!(again.hash, frozen.hash);
    }
});
