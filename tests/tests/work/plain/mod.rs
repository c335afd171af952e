//! Runs workers without any fault.

mod looks;

use serde_json::json;

use crate::world::{Load, World};

fn hold_the_law(world: &World) {
    let load = Load::small(11);
    let mut worker = world.worker();
    let messages = world.send(load);
    worker.ready();
    world.drained(std::slice::from_mut(&mut worker), messages);
    assert_eq!(worker.counter("events"), u64::try_from(messages).unwrap());
    assert_eq!(worker.counter("dead_letters"), 0);
    assert_eq!(worker.get("/livez").unwrap().0, 200);
    worker.stop();
    let released =
        |checkpoint: &prorata_worker::checkpoint::Checkpoint| checkpoint.owner.as_ref().unwrap().released;
    assert!(world.lake().checkpoints().values().all(released), "a clean stop releases");
    world.assert_law(&[load]);
}

#[test]
fn tables_are_those_of_a_backfill_of_the_same_events() {
    hold_the_law(&World::new("registry"));
}

#[test]
fn tables_are_those_of_a_backfill_without_a_registry_too() {
    let mut world = World::new("single");
    world.set("registry.url", json!(""));
    hold_the_law(&world);
}

#[test]
fn load_that_comes_after_its_hours_have_closed_is_folded_in() {
    let world = World::new("late");
    let (first, second) = (Load::small(21), Load { organizations: 3, ..Load::small(22) });
    let mut worker = world.worker();
    let messages = world.send(first);
    world.drained(std::slice::from_mut(&mut worker), messages);
    let all = messages + world.send(second);
    world.drained(std::slice::from_mut(&mut worker), all);
    assert!(worker.counter("late_events") > 0 && worker.counter("hours_restated") > 0);
    worker.stop();
    world.assert_law(&[first, second]);
}
