//! Workers of the previous release and of this release share a root. They are rolled forward, back, and
//! forward again.

use crate::world::worker::Worker;
use crate::world::{Load, World, variable};

/// Starts a worker of the previous release.
fn previous(world: &World) -> Worker {
    world.worker_of(&variable("PRORATA_PREVIOUS_BINARY"))
}

/// Stops a worker in the middle of a load, and puts another in its place.
fn replace(workers: &mut Vec<Worker>, mut with: Worker) {
    workers.remove(0).stop();
    with.ready();
    workers.push(with);
}

#[test]
fn two_releases_share_a_root_and_a_roll_back_loses_nothing() {
    let world = World::new("upgrade");
    let loads = [91, 92, 93, 94].map(Load::small);
    let [first, second, third, fourth] = loads;
    let mut workers = vec![previous(&world), previous(&world)];
    workers.iter_mut().for_each(Worker::ready);
    let mut messages = world.send(first);
    world.drained(&mut workers, messages);

    // Roll forward: for a while both releases own shards.
    let sending = world.start_sending(second, Some(200));
    replace(&mut workers, world.worker());
    replace(&mut workers, world.worker());
    messages += crate::world::sent(sending);
    world.drained(&mut workers, messages);

    // Roll back: the previous release continues from the output of this one.
    let sending = world.start_sending(third, Some(200));
    replace(&mut workers, previous(&world));
    replace(&mut workers, previous(&world));
    messages += crate::world::sent(sending);
    world.drained(&mut workers, messages);

    // Roll forward again, permanently.
    replace(&mut workers, world.worker());
    replace(&mut workers, world.worker());
    messages += world.send(fourth);
    world.drained(&mut workers, messages);
    workers.into_iter().for_each(|worker| drop(worker.stop()));
    world.assert_law(&loads);
}
