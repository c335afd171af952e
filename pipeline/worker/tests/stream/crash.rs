//! Faults at every single effect. The next owner reaches the result of a worker without faults.

use prorata_testkit::fakes::{Fault, Faults};

use crate::world::World;
use crate::world::cluster::Cluster;
use crate::world::oracle;
use crate::world::script::{LONG, SHORT, Story, check, live, produce_part};

/// Returns the number of effects of a run without faults.
async fn effects(story: Story) -> u64 {
    let faults = Faults::default();
    let cluster = live(faults.clone(), story, "untouched").await;
    check(&cluster.world, "untouched");
    faults.effects()
}

/// Runs the story with each fault, one at a time.
async fn survives(fault: impl Fn(u64) -> Fault, story: Story, first: u64, dies: bool) {
    let effects = effects(story).await;
    assert!(effects > 60, "{effects} effects");
    for effect in story.numbers(effects, first) {
        let context = format!("{:?}", fault(effect));
        let cluster = live(Faults::with(fault(effect)), story, &context).await;
        assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
        assert_eq!(cluster.restarts, u32::from(dies), "{context}");
        check(&cluster.world, &context);
    }
}

#[tokio::test]
async fn a_crash_before_any_effect_leaves_nothing_that_counts() {
    survives(Fault::CrashBefore, SHORT, 0, true).await;
    survives(Fault::CrashBefore, LONG, 0, true).await;
}

#[tokio::test]
async fn a_crash_after_any_effect_is_repaired_by_the_next_owner() {
    survives(Fault::CrashAfter, SHORT, 0, true).await;
    survives(Fault::CrashAfter, LONG, 1, true).await;
}

#[tokio::test]
async fn an_answer_lost_at_any_effect_needs_no_new_process() {
    survives(Fault::LoseAnswer, SHORT, 0, false).await;
    survives(Fault::LoseAnswer, LONG, 2, false).await;
}

#[tokio::test]
async fn a_refusal_at_any_effect_is_tried_again() {
    survives(Fault::Refuse, SHORT, 0, false).await;
    survives(Fault::Refuse, LONG, 3, false).await;
}

#[tokio::test]
async fn an_effect_that_a_client_repeats_counts_once() {
    survives(Fault::Retry, SHORT, 0, false).await;
    survives(Fault::Retry, LONG, 4, false).await;
}

#[tokio::test]
async fn a_disk_that_is_full_from_any_effect_on_is_waited_for() {
    for effect in 0..effects(SHORT).await {
        let context = format!("full from effect {effect} on");
        let world = World::default();
        let mut cluster = Cluster::new(&world, SHORT.tune);
        let faults = Faults::with(Fault::Full(effect));
        cluster.start("a", faults.clone());
        for part in 0..SHORT.parts {
            produce_part(&world, part);
            for _ in 0..20 {
                cluster.round().await;
            }
            if faults.counts().contains_key("full") {
                faults.calm();
            }
            cluster.settle(&context).await;
        }
        assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
        check(&world, &context);
    }
}

#[tokio::test]
async fn a_crash_while_recovering_from_a_crash_is_repaired() {
    for one in 0..effects(SHORT).await {
        for other in (one % 3..14).step_by(3) {
            let context = format!("after effect {one}, then before effect {other}, then after the next");
            let world = World::default();
            let mut cluster = Cluster::new(&world, SHORT.tune);
            cluster.start("a", Faults::with(Fault::CrashAfter(one)));
            cluster.next_faults.push_back(Faults::with(Fault::CrashBefore(other)));
            cluster.next_faults.push_back(Faults::with(Fault::CrashAfter(other)));
            for part in 0..SHORT.parts {
                produce_part(&world, part);
                cluster.settle(&context).await;
            }
            assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
            check(&world, &context);
        }
    }
}

#[tokio::test]
async fn no_dead_letter_is_sent_before_its_offset_is_decided() {
    for effect in 0..40 {
        let world = World::default();
        let mut cluster = Cluster::new(&world, SHORT.tune);
        // An effect is tried three times; later effects are not refused.
        cluster.start("a", Faults::schedule((effect..effect + 3).map(Fault::Refuse)));
        produce_part(&world, 0);
        for _ in 0..30 {
            cluster.round().await;
            let filed = oracle::held(&world).letters;
            let unfiled = oracle::fed(&world).into_iter().find(|place| !filed.contains_key(place));
            assert_eq!(unfiled, None, "effects from {effect} on refused");
        }
    }
}
