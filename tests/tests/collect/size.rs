//! The costs of a collector of many pods: memory, processor time, and answers of the API server.

use prorata_testkit::wait::eventually;

use super::collector::Room;
use super::lives::{events, said};
use super::played::{PlayedServer, STAGES};

/// Maximum memory of the collector without pods, and for each pod, in bytes. Together they are 100 MB at
/// 30,000 pods, for which the collector is designed.
const MEMORY_BYTES: u64 = 40_000_000;
const MEMORY_BYTES_PER_POD: u64 = 2_000;

/// The resources that a process has used so far.
struct Spent {
    /// Processor time, in milliseconds.
    millis: u64,
    /// Peak memory in bytes. It excludes pages of the program's file, because a test build has many of them.
    peak_bytes: u64,
    /// Pages of the program's file, in bytes.
    program_bytes: u64,
}

impl Spent {
    fn of(process: u32) -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        // The kernel counts in hundredths of a second.
        let millis = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum();
        let status = read("status");
        let bytes = |key: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            found.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
        };
        let program_bytes = bytes("RssFile:");
        Self { millis, peak_bytes: bytes("VmHWM:") - program_bytes, program_bytes }
    }
}

/// `PRORATA_COLLECT_SIZE` is the number of pods to list, and of changes to watch.
#[test]
fn a_large_cluster_takes_little_memory() {
    let size = std::env::var("PRORATA_COLLECT_SIZE").map_or(3_000, |size| size.parse().unwrap());
    let server = PlayedServer::start(size);
    let mut room = Room::new("token", &[]);
    room.use_kubeconfig(server.kubeconfig(&room));
    let mut program = room.collect();
    room.follows(size as u64);
    let listed = Spent::of(program.id());
    let lists = server.traffic();
    let changes = size / (100 * STAGES) * 100 * STAGES;
    server.release(changes);
    let reported = || room.status()["kinds"]["Pod"]["changes"].as_u64();
    eventually("all is watched", || match reported() {
        Some(reported) if reported == changes as u64 => Ok(()),
        reported => Err(format!("{reported:?} of {changes}")),
    });
    room.follows(size as u64);
    let watched = Spent::of(program.id());
    let watches = server.traffic();
    program.assert_running();
    Room::stop(program).succeeded();
    let each = |millis: u64, count: usize| millis as f64 / count as f64;
    println!("{size} pods, {changes} changes");
    println!(
        "list   {:.3} ms of processor time a pod, {} requests, {} bytes a pod",
        each(listed.millis, size),
        lists.0,
        lists.1 / size as u64
    );
    println!(
        "watch  {:.3} ms of processor time a change, {} requests, {} bytes a change",
        each(watched.millis - listed.millis, changes),
        watches.0 - lists.0,
        (watches.1 - lists.1) / changes as u64
    );
    let mega = |bytes: u64| bytes / 1_000_000;
    println!(
        "memory {} MB at most once listed, {} MB in all; besides {} MB of the program's file",
        mega(listed.peak_bytes),
        mega(watched.peak_bytes),
        mega(watched.program_bytes)
    );
    let most = MEMORY_BYTES + MEMORY_BYTES_PER_POD * size as u64;
    assert!(watched.peak_bytes <= most, "{} bytes, at most {most}", watched.peak_bytes);
}

/// Every few seconds the collector lists pods as of the version of its watch, and fixes the differences.
#[test]
fn changes_that_a_watch_has_dropped_are_found_and_counted() {
    let server = PlayedServer::start(300);
    let mut room = Room::new("token", &["relist_interval: 2s"]);
    room.use_kubeconfig(server.kubeconfig(&room));
    let program = room.collect();
    room.follows(300);
    let repaired = || room.status()["repaired_objects"].as_u64();
    eventually("it was checked", || match room.status()["kinds"]["Pod"]["lists"].as_u64() {
        Some(3..) => Ok(()),
        lists => Err(format!("{lists:?} lists")),
    });
    assert_eq!(repaired(), Some(0));
    server.drop_unseen(2);
    eventually("both are found", || match repaired() {
        Some(2) => Ok(()),
        _ => Err(room.status().to_string()),
    });
    room.follows(298);
    assert!(room.metrics().contains("prorata_collector_repaired_objects_total 2"), "{}", room.metrics());
    Room::stop(program).succeeded();
    let ended =
        said(&events(&room.events()), "team-services").into_values().filter(|life| life.end.is_some());
    assert_eq!(ended.count(), 2);
}
