//! Faults at every single effect: whoever comes after ends where an untouched worker does.

use prorata_worker::memory::{Fault, Faults};
use prorata_worker::stream::Options;

use crate::script::{check, easy, hurried, live};

/// Effects of a life without faults.
async fn effects(tune: fn(&mut Options)) -> u64 {
    let faults = Faults::default();
    let cluster = live(faults.clone(), tune, "untouched").await;
    check(&cluster.world, "untouched");
    faults.effects()
}

/// Lives with each fault, one by one.
async fn survives(fault: impl Fn(u64) -> Fault, tune: fn(&mut Options), dies: bool) {
    let effects = effects(tune).await;
    assert!(effects > 60, "{effects} effects");
    for effect in 0..effects {
        let context = format!("{:?}", fault(effect));
        let cluster = live(Faults::with(fault(effect)), tune, &context).await;
        assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
        assert_eq!(cluster.restarts, u32::from(dies), "{context}");
        check(&cluster.world, &context);
    }
}

#[tokio::test]
async fn a_crash_before_any_effect_leaves_nothing_that_counts() {
    survives(Fault::CrashBefore, easy, true).await;
    survives(Fault::CrashBefore, hurried, true).await;
}

#[tokio::test]
async fn a_crash_after_any_effect_is_mended_by_the_next_owner() {
    survives(Fault::CrashAfter, easy, true).await;
    survives(Fault::CrashAfter, hurried, true).await;
}

#[tokio::test]
async fn an_answer_lost_at_any_effect_needs_no_new_process() {
    survives(Fault::LoseAnswer, easy, false).await;
    survives(Fault::LoseAnswer, hurried, false).await;
}

#[tokio::test]
async fn a_refusal_at_any_effect_is_tried_again() {
    survives(Fault::Refuse, easy, false).await;
    survives(Fault::Refuse, hurried, false).await;
}

#[tokio::test]
async fn an_effect_that_a_client_repeats_counts_once() {
    survives(Fault::Retry, easy, false).await;
    survives(Fault::Retry, hurried, false).await;
}
