//! An owner that hangs at an effect, which happens only after another owner has taken its shards.

use prorata_testkit::fakes::{Fault, Faults, Resume};

use crate::world::World;
use crate::world::cluster::Cluster;
use crate::world::script::{LONG, SHORT, Story, check, live, produce_part};

/// The fate of the owner that hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The owner wakes up.
    Wakes,
    /// The owner is dead, but the effects that it requested still happen.
    Dead,
}

/// The state of the other owner when the effect happens.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// The other owner has settled, with the events that arrived meanwhile.
    Settled,
    /// The other owner hangs too, at this effect.
    At(u64),
}

/// Runs a worker until it hangs at `effect`, lets another worker take over, and then lets the effect happen.
/// Returns whether the first worker hung.
async fn takes_over(effect: u64, other: Other, fate: Fate, how: Resume, story: Story) -> bool {
    let context = format!("{effect} {other:?} {fate:?} {how:?}");
    let world = World::default();
    let mut cluster = Cluster::new(&world, story.tune);
    let (held_up, second) = (Faults::with(Fault::Pause(effect)), Faults::default());
    cluster.start("a", held_up.clone());
    let mut hung = false;
    for part in 0..story.parts {
        produce_part(&world, part);
        if hung || !cluster.settle_or_hang(&context).await {
            cluster.settle(&context).await;
            continue;
        }
        hung = true;
        world.broker.expire("a");
        if fate == Fate::Dead {
            held_up.kill();
            cluster.members.clear();
        }
        if let Other::At(number) = other {
            second.add(Fault::Pause(number));
        }
        cluster.start("b", second.clone());
        cluster.settle_or_hang(&context).await;
        settle_but_one(&mut cluster, &second, &context).await;
        assert!(world.resume(&held_up, effect, how), "{context}: it does not wait");
        for number in second.paused() {
            // The second owner's effect happens after the first owner's effect.
            world.resume(&second, number, Resume::Happen);
        }
        cluster.settle(&context).await;
    }
    for number in second.paused() {
        world.resume(&second, number, Resume::Happen);
    }
    cluster.settle(&context).await;
    assert!(cluster.stops.is_empty(), "{context}: {:?}", cluster.stops);
    check(&world, &context);
    hung
}

/// Runs until the second member hangs or has nothing to do, while the first member hangs.
async fn settle_but_one(cluster: &mut Cluster, second: &Faults, context: &str) {
    let mut quiet = 0;
    for _ in 0..200 {
        if !second.paused().is_empty() || quiet > 14 {
            return;
        }
        quiet = if cluster.round().await { quiet + 1 } else { 0 };
    }
    panic!("{context}: it does not settle");
}

/// Tries the effects in order, each with one of the cases, or with every case if `all`.
async fn survives(cases: &[(Other, Fate, Resume)], story: Story, all: bool) {
    let faults = Faults::default();
    live(faults.clone(), story, "untouched").await;
    let (mut tried, mut hung) = (0, 0);
    for effect in story.numbers(faults.effects(), cases.len() as u64) {
        for (number, (other, fate, how)) in cases.iter().enumerate() {
            if all || effect % cases.len() as u64 == number as u64 {
                tried += 1;
                hung += u64::from(takes_over(effect, *other, *fate, *how, story).await);
            }
        }
    }
    assert!(hung * 10 > tried * 8, "it hung {hung} times of {tried}");
}

#[tokio::test]
async fn an_owner_that_was_asleep_loses_and_releases_its_shards() {
    let wakes = |how| (Other::Settled, Fate::Wakes, how);
    let cases = [wakes(Resume::Happen), wakes(Resume::HappenUnanswered), wakes(Resume::Fail)];
    survives(&cases, SHORT, true).await;
    survives(&cases, LONG, false).await;
}

#[tokio::test]
async fn a_late_effect_of_a_dead_owner_harms_nobody() {
    let cases = [(Other::Settled, Fate::Dead, Resume::Happen)];
    survives(&cases, SHORT, true).await;
    survives(&cases, LONG, true).await;
}

#[tokio::test]
async fn an_effect_that_happens_while_another_takes_over_harms_nobody() {
    let at = |number, fate| (Other::At(number), fate, Resume::Happen);
    let cases: Vec<_> = (0..7).flat_map(|number| [at(number, Fate::Wakes), at(number, Fate::Dead)]).collect();
    for cases in cases.chunks(5) {
        survives(cases, SHORT, false).await;
        survives(cases, LONG, false).await;
    }
}
