//! A store serves reads and refuses writes until somebody looks. The worker reports this, and continues
//! automatically.

use std::thread;
use std::time::{Duration, Instant};

use prorata_testkit::wait::eventually;
use prorata_tests::proxy::{Proxy, Weather};

use crate::world::worker::Worker;
use crate::world::{Load, World, tuned, variable};

/// Returns the time for which the store refuses writes. An operator may take 600 seconds.
fn outage() -> Duration {
    Duration::from_secs(tuned("PRORATA_OUTAGE_SECONDS", 20))
}

/// Returns the report of a worker that waits for the store, or an error if the worker does not report the
/// wait. A refused key needs a person, so the worker is also not ready.
fn says_so(worker: &mut Worker, weather: Weather) -> Result<String, String> {
    worker.program.assert_running();
    let status = worker.status();
    let waits = status["waiting_for"].to_string();
    let (code, ready) = worker.get("/readyz").ok_or("no answer of /readyz")?;
    let reported = format!("{waits}; /readyz: {code} {ready}");
    let unready = code == 503 && ready.contains("storage: ");
    if !waits.contains("storage: ") || (weather == Weather::ReadOnly && !unready) {
        return Err(reported);
    }
    // Only a command that has ended prints this.
    assert!(!reported.contains("run the same command again"), "{reported}");
    Ok(reported)
}

#[test]
fn a_store_that_refuses_writes_is_reported_and_waited_for() {
    let mut world = World::new("refusing");
    world.root = format!("s3://{}/{}", variable("PRORATA_TEST_BUCKET"), world.name);
    let proxy = Proxy::before(&variable("AWS_ENDPOINT_URL"));
    world.environment("AWS_ENDPOINT_URL", &proxy.url(&variable("AWS_ENDPOINT_URL")));
    let mut worker = world.worker();
    worker.ready();
    let mut messages = world.send(Load::small(63));
    world.drained(std::slice::from_mut(&mut worker), messages);
    let before = world.lake().tables();
    for (seed, weather) in [(64, Weather::ReadOnly), (65, Weather::Full)] {
        proxy.set(weather);
        messages += world.send(Load::small(seed));
        let reported = eventually("the worker says what it waits for", || says_so(&mut worker, weather));
        println!("{reported}");
        if weather == Weather::ReadOnly {
            assert!(reported.contains("the worker continues as soon as this is corrected"), "{reported}");
        }
        let until = Instant::now() + outage();
        while Instant::now() < until {
            thread::sleep(Duration::from_secs(1));
            eventually("it continues to say so", || says_so(&mut worker, weather));
            assert_eq!(worker.get("/livez").unwrap().0, 200);
        }
        if weather == Weather::ReadOnly {
            assert_eq!(world.lake().tables(), before, "nothing was written meanwhile");
        }
        proxy.set(Weather::Clear);
        world.drained(std::slice::from_mut(&mut worker), messages);
        worker.ready();
        eventually("it waits for nothing", || match &worker.status()["waiting_for"] {
            waits if waits.as_array().is_some_and(Vec::is_empty) => Ok(()),
            waits => Err(waits.to_string()),
        });
    }
    worker.stop();
    world.assert_law(&[63, 64, 65].map(Load::small));
}
