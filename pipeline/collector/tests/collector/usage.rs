//! Sources of usage, and the intervals that follow from rounds.

use proptest::prelude::*;
use prorata_collector::usage::{UsageRound, UsageTiles};
use prorata_schemas::Text;
use prorata_schemas::body;
use prorata_schemas::event::{Event, Payload, PodUsage};
use prorata_schemas::time::Timestamp;
use serde_json::json;

const SECOND: i64 = 1_000_000;

fn tiles() -> UsageTiles {
    UsageTiles::new("o".into(), 60 * SECOND)
}

fn uid_of(_: &str, name: &str) -> Option<Text> {
    (name != "unknown").then(|| format!("uid-{name}").into())
}

fn usage(event: &Event) -> (i64, &PodUsage) {
    let read = body::decode(event.payload.kind(), &body::encode(event));
    assert_eq!(read.as_ref(), Ok(event), "every event is valid");
    match &event.payload {
        Payload::PodUsage(usage) => (event.event_time.0, usage),
        other => panic!("{other:?}"),
    }
}

/// Returns a kubelet's answer: CPU seconds and memory of pods, counted at an instant in seconds.
fn kubelet(pods: &[(&str, f64)], at: i64) -> String {
    let lines = pods.iter().map(|(name, seconds)| {
        let (labels, millis) = (format!("{{namespace=\"ns\",pod=\"{name}\"}}"), at * 1000);
        format!(
            "pod_cpu_usage_seconds_total{labels} {seconds} {millis}\n\
             pod_memory_working_set_bytes{labels} 1.048576e+06 {millis}\n"
        )
    });
    format!("# TYPE pod_cpu_usage_seconds_total counter\n{}scrape_error 0\n", lines.collect::<String>())
}

fn round(kubelet: &str) -> UsageRound {
    let mut round = UsageRound::new();
    round.add_kubelet(kubelet).unwrap();
    round
}

#[test]
fn cpu_is_what_was_counted_from_round_to_round() {
    let mut tiles = tiles();
    let first = round(&kubelet(&[("a", 10.0)], 0));
    assert!(tiles.close(&first, Timestamp(2 * SECOND), uid_of).is_empty(), "nothing to compare with");
    let events =
        tiles.close(&round(&kubelet(&[("a", 40.0), ("new", 5.0)], 60)), Timestamp(62 * SECOND), uid_of);
    assert_eq!(events.len(), 2);
    let (from, a) = usage(&events[0]);
    assert_eq!((from, a.interval_end), (2 * SECOND, Timestamp(62 * SECOND)));
    assert_eq!((&*a.pod_uid, a.cpu_millis, a.memory_bytes, a.gpu_millis), ("uid-a", 500, 1 << 20, 0));
    let (_, new) = usage(&events[1]);
    assert_eq!((new.cpu_millis, new.memory_bytes), (0, 1 << 20), "its CPU was not counted before");
}

#[test]
fn a_counter_that_restarts_adds_no_usage() {
    let mut tiles = tiles();
    tiles.close(&round(&kubelet(&[("a", 10.0)], 0)), Timestamp(0), uid_of);
    let events = tiles.close(&round(&kubelet(&[("a", 2.0)], 60)), Timestamp(60 * SECOND), uid_of);
    assert_eq!(usage(&events[0]).1.cpu_millis, 0);
    let events = tiles.close(&round(&kubelet(&[("a", 62.0)], 120)), Timestamp(120 * SECOND), uid_of);
    assert_eq!(usage(&events[0]).1.cpu_millis, 1000);
}

#[test]
fn a_failed_read_loses_its_interval_and_no_more() {
    let mut tiles = tiles();
    tiles.close(&round(&kubelet(&[("a", 0.0)], 0)), Timestamp(0), uid_of);
    assert!(tiles.close(&UsageRound::new(), Timestamp(60 * SECOND), uid_of).is_empty());
    let events = tiles.close(&round(&kubelet(&[("a", 120.0)], 120)), Timestamp(120 * SECOND), uid_of);
    let (from, a) = usage(&events[0]);
    assert_eq!((from, a.cpu_millis), (60 * SECOND, 1000), "the rate over both, for the second alone");
}

#[test]
fn a_pause_has_no_sample() {
    let mut tiles = tiles();
    tiles.close(&round(&kubelet(&[("a", 0.0)], 0)), Timestamp(0), uid_of);
    let late = Timestamp(121 * SECOND);
    assert!(tiles.close(&round(&kubelet(&[("a", 9.0)], 121)), late, uid_of).is_empty());
    assert!(tiles.close(&round(&kubelet(&[("a", 9.0)], 121)), late, uid_of).is_empty(), "time stands");
    let events = tiles.close(&round(&kubelet(&[("a", 39.0)], 181)), Timestamp(181 * SECOND), uid_of);
    assert_eq!((usage(&events[0]).0, usage(&events[0]).1.cpu_millis), (late.0, 500));
    assert_eq!((tiles.totals().pauses, tiles.totals().intervals), (1, 1));
}

#[test]
fn the_metrics_api_says_rates() {
    let list = json!({"kind": "PodMetricsList", "items": [
        {
            "metadata": {"name": "a", "namespace": "ns"},
            "timestamp": "2026-11-20T10:00:00Z", "window": "15.2s",
            "containers": [
                {"name": "x", "usage": {"cpu": "250400000n", "memory": "100Mi"}},
                {"name": "y", "usage": {"cpu": "100u", "memory": "28Mi"}},
                {"name": "z", "usage": {"cpu": "1", "memory": "0"}},
            ],
        },
        {"metadata": {"name": "unknown", "namespace": "ns"}, "containers": []},
    ]});
    let mut tiles = tiles();
    tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
    let mut round = UsageRound::new();
    round.add_pod_metrics(list.to_string().as_bytes()).unwrap();
    let events = tiles.close(&round, Timestamp(60 * SECOND), uid_of);
    let (_, a) = usage(&events[0]);
    assert_eq!((events.len(), a.cpu_millis, a.memory_bytes), (1, 1251, 128 << 20));
    assert_eq!(tiles.totals().unknown_pods, 1);
}

#[test]
fn gpus_add_up_by_the_better_metric() {
    let labels = |gpu: &str, more: &str| {
        format!("{{gpu=\"{gpu}\",UUID=\"GPU-{gpu}\",modelName=\"A\\\"1\",namespace=\"ns\",pod=\"a\"{more}}}")
    };
    let text = [
        format!("DCGM_FI_DEV_GPU_UTIL{} 37", labels("0", "")),
        format!("DCGM_FI_DEV_GPU_UTIL{} 80", labels("1", "")),
        format!("DCGM_FI_PROF_GR_ENGINE_ACTIVE{} 0.5", labels("1", "")),
        format!(
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE{} 0.7",
            labels("2", ",GPU_I_ID=\"3\",GPU_I_PROFILE=\"1g.10gb\"")
        ),
        format!("DCGM_FI_DEV_FB_USED{} 1000", labels("0", "")),
        format!("DCGM_FI_DEV_FB_USED{} 24", labels("2", ",GPU_I_ID=\"3\"")),
        format!("DCGM_FI_DEV_FB_USED{} NaN", labels("5", "")),
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"9\"} 100".to_owned(),
        format!("DCGM_FI_DEV_GPU_UTIL{} NaN", labels("5", "")),
    ]
    .join("\n");
    let mut tiles = tiles();
    tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
    let mut round = round(&kubelet(&[("a", 1.0)], 60));
    round.add_dcgm(&text).unwrap();
    let events = tiles.close(&round, Timestamp(60 * SECOND), uid_of);
    assert_eq!(usage(&events[0]).1.gpu_millis, 370 + 500 + 100);
    assert_eq!(usage(&events[0]).1.gpu_memory_bytes, Some(1024 << 20));
}

/// The memory of a shared GPU is divided by what its pods use, and a pod without a reading has no memory
/// usage.
#[test]
fn memory_of_gpus_is_in_bytes_and_divided() {
    let memory = |lines: &[(&str, &str, i64)]| -> Vec<Option<i64>> {
        let line = |(uuid, pod, mib): &(&str, &str, i64)| {
            let pod = if pod.is_empty() { String::new() } else { format!(",namespace=\"ns\",pod=\"{pod}\"") };
            format!("DCGM_FI_DEV_FB_USED{{gpu=\"0\",UUID=\"{uuid}\"{pod}}} {mib}\n")
        };
        let mut tiles = tiles();
        tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
        let mut round = round(&kubelet(&[("a", 1.0), ("b", 1.0), ("c", 1.0)], 60));
        round.add_dcgm(&lines.iter().map(line).collect::<String>()).unwrap();
        let events = tiles.close(&round, Timestamp(60 * SECOND), uid_of);
        events.iter().map(|event| usage(event).1.gpu_memory_bytes).collect()
    };
    let mib = |mib: i64| Some(mib << 20);
    assert_eq!(memory(&[("1", "a", 1000), ("2", "a", 24), ("2", "", 99)]), [mib(1024 + 75), None, None]);
    assert_eq!(memory(&[("1", "a", 1000), ("1", "b", 1000)]), [mib(500), mib(500), None]);
    let processes = [("1", "", 1000), ("1", "a", 600), ("1", "b", 200), ("1", "c", 0)];
    assert_eq!(memory(&processes), [mib(750), mib(250), mib(0)]);
}

/// Returns the GPU usage of each pod in thousandths, from an exporter's lines `metric UUID pod value`, with
/// `-` for no pod.
fn gpu_parts(lines: &[&str]) -> Vec<(String, i64)> {
    let line = |line: &&str| {
        let [metric, uuid, pod, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let metric =
            if metric == "active" { "DCGM_FI_PROF_GR_ENGINE_ACTIVE" } else { "DCGM_FI_DEV_GPU_UTIL" };
        let pod = if pod == "-" { String::new() } else { format!(",namespace=\"ns\",pod=\"{pod}\"") };
        format!("{metric}{{gpu=\"0\",UUID=\"{uuid}\"{pod}}} {value}\n")
    };
    let mut tiles = tiles();
    tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
    let mut round = round(&kubelet(&[("a", 1.0), ("b", 1.0), ("c", 1.0)], 60));
    round.add_dcgm(&lines.iter().map(line).collect::<String>()).unwrap();
    let events = tiles.close(&round, Timestamp(60 * SECOND), uid_of);
    events
        .iter()
        .map(|event| usage(event).1)
        .map(|use_| (use_.pod_uid.to_string(), use_.gpu_millis))
        .collect()
}

fn abc(millis: [i64; 3]) -> Vec<(String, i64)> {
    ["uid-a", "uid-b", "uid-c"].map(str::to_owned).into_iter().zip(millis).collect()
}

/// An exporter writes a copy of a GPU's value for each pod that holds the GPU.
#[test]
fn copies_of_a_shared_gpu_are_divided_among_its_pods() {
    let two = ["util 1 a 80", "util 1 b 80", "util 2 - 55"];
    assert_eq!(gpu_parts(&two), abc([400, 400, 0]));
    // Two of the replicas belong to one pod, and the better metric counts.
    let replicas = ["util 1 a 90", "util 1 a 90", "util 1 b 90", "active 1 a 0.5", "active 1 b 0.5"];
    assert_eq!(gpu_parts(&replicas), abc([250, 250, 0]));
    // The parts are whole thousandths, and their sum is the GPU's value.
    assert_eq!(gpu_parts(&["util 1 a 80", "util 1 b 80", "util 1 c 80"]), abc([267, 266, 267]));
    assert_eq!(gpu_parts(&["util 1 a 80", "util 1 b 80", "util 2 b 30"]), abc([400, 700, 0]));
}

/// Later exporters write the usage of each pod's processes, and the GPU's value without a pod.
#[test]
fn a_shared_gpu_is_divided_by_what_its_pods_use() {
    let processes = ["util 1 - 90", "util 1 a 60", "util 1 b 20", "util 1 c 0"];
    assert_eq!(gpu_parts(&processes), abc([675, 225, 0]));
    let active = ["active 1 a 0.8", "active 1 b 0.8", "active 1 c 0.8"];
    assert_eq!(gpu_parts(&[&processes[..], &active].concat()), abc([600, 200, 0]));
    assert_eq!(gpu_parts(&["util 1 - 30", "util 1 a 0", "util 1 b 0"]), abc([150, 150, 0]));
}

/// Without a UUID, GPU 0 of one exporter is not GPU 0 of another.
#[test]
fn a_gpu_is_shared_only_within_one_exporter() {
    let mut tiles = tiles();
    tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
    let mut round = round(&kubelet(&[("a", 1.0), ("b", 1.0)], 60));
    for pod in ["a", "b"] {
        let line = format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",namespace=\"ns\",pod=\"{pod}\"}} 50\n");
        round.add_dcgm(&line).unwrap();
    }
    let events = tiles.close(&round, Timestamp(60 * SECOND), uid_of);
    assert_eq!(events.iter().map(|event| usage(event).1.gpu_millis).collect::<Vec<_>>(), [500, 500]);
}

/// A value that was not read is not reported as 0.
#[test]
fn a_pod_that_was_read_in_part_has_no_interval() {
    let mut tiles = tiles();
    let whole = |at: i64, gpu: bool, lost: bool| {
        let mut round = round(&kubelet(&[("a", at as f64), ("plain", at as f64)], at));
        if gpu {
            round.add_dcgm("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",namespace=\"ns\",pod=\"a\"} 50\n").unwrap();
        }
        if lost {
            round.lose_gpus();
        }
        round
    };
    let names = |events: Vec<Event>| {
        events.iter().map(|event| usage(event).1.pod_uid.to_string()).collect::<Vec<_>>()
    };
    let mut close = |round: &UsageRound, at: i64| names(tiles.close(round, Timestamp(at * SECOND), uid_of));
    assert!(close(&whole(0, true, false), 0).is_empty());
    assert_eq!(close(&whole(60, false, true), 60), ["uid-plain"], "an exporter was not read");
    assert!(close(&UsageRound::new(), 120).is_empty(), "nothing was");
    let mut gpus_alone = UsageRound::new();
    gpus_alone.add_dcgm("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",namespace=\"ns\",pod=\"a\"} 50\n").unwrap();
    assert!(close(&gpus_alone, 180).is_empty(), "its CPU was not read");
    assert_eq!(close(&whole(240, true, true), 240), ["uid-a", "uid-plain"], "another exporter was not");
    assert_eq!(close(&whole(300, false, false), 300), ["uid-a", "uid-plain"], "it has no GPU any more");
    assert_eq!(close(&whole(360, false, true), 360), ["uid-a", "uid-plain"]);
    assert_eq!(tiles.totals().incomplete, 2);
}

#[test]
fn an_answer_that_is_wrong_adds_nothing() {
    let mut round = UsageRound::new();
    let text = kubelet(&[("a", 1.0)], 0) + "<html>\n";
    let error = round.add_kubelet(&text).unwrap_err().to_string();
    assert!(error.starts_with("line 5: '<html>' is not a sample"), "{error}");
    assert!(round.add_dcgm("a b c\n").is_err());
    assert!(round.add_pod_metrics(b"{}").unwrap_err().to_string().contains("not a list of PodMetrics"));
    let bad = json!({"items": [
        {"metadata": {"name": "a", "namespace": "ns"}, "containers": [{"usage": {"cpu": "1x"}}]},
    ]});
    assert!(
        round.add_pod_metrics(bad.to_string().as_bytes()).unwrap_err().to_string().contains("ns/a: '1x'")
    );
    let mut tiles = tiles();
    tiles.close(&UsageRound::new(), Timestamp(0), uid_of);
    assert!(tiles.close(&round, Timestamp(60 * SECOND), uid_of).is_empty());
}

#[test]
fn values_beyond_any_machine_are_left_out() {
    let mut tiles = tiles();
    for (at, seconds) in [(0, 0.0), (60, 1e300)] {
        let text = kubelet(&[("a", seconds)], at).replace("1.048576e+06", "+Inf");
        let events = tiles.close(&round(&text), Timestamp(at * SECOND), uid_of);
        assert!(events.iter().all(|event| usage(event).1.cpu_millis == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Intervals of a pod never overlap, and none is longer than two periods. Together they hold the usage
    /// from the first read of a pod to its last, except for failed reads and pauses.
    #[test]
    fn intervals_tile_time(rounds in prop::collection::vec((1..200_i64, any::<u8>(), 0..60_u16), 2..40)) {
        let mut tiles = tiles();
        let (mut now, mut seconds) = (0, 0.0);
        let mut ends = 0;
        let mut held_micros = 0.0;
        let mut expected_micros = 0.0;
        let mut before: Option<(i64, f64)> = None;
        for (index, (pause, fails, used)) in rounds.into_iter().enumerate() {
            now += pause;
            seconds += f64::from(used);
            let is_read = fails % 4 != 0;
            let text = if is_read { kubelet(&[("a", seconds)], now) } else { String::new() };
            let events = tiles.close(&round(&text), Timestamp(now * SECOND), uid_of);
            prop_assert!(events.len() <= 1);
            for event in &events {
                let (from, usage) = usage(event);
                prop_assert!(from >= ends && usage.interval_end.0 - from <= 120 * SECOND);
                ends = usage.interval_end.0;
                held_micros += usage.cpu_millis as f64 * (ends - from) as f64 / 1000.0;
            }
            let is_tile = index > 0 && pause <= 120 && is_read;
            prop_assert_eq!(events.len(), usize::from(is_tile));
            if pause > 120 {
                before = None;
            }
            if let Some((at, counted)) = before.filter(|(at, _)| is_tile && now - pause - at <= 240) {
                expected_micros += (seconds - counted) / (now - at) as f64 * (pause * SECOND) as f64;
            }
            if is_read {
                before = Some((now, seconds));
            }
        }
        // Each interval is rounded to a thousandth of a vCPU.
        let most = now as f64 * 1000.0;
        prop_assert!((held_micros - expected_micros).abs() <= most, "{held_micros} {expected_micros}");
    }
}
