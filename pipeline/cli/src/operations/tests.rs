//! Tests of the four paths, without sockets, and once over a real socket.

mod connections;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use prorata_schemas::event::EventKind;
use prorata_schemas::reject::Reason;
use prorata_schemas::rows::budget::{BudgetUse, Period};
use prorata_schemas::time::{Hour, Timestamp, WallTime};
use prorata_testkit::fakes::StoppedClock;
use prorata_worker::StopReason;
use prorata_worker::status::{Dependency, RecomputeGate, ShardCosts, ShardStatus, ShardStop, TopicStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::collector::{CollectorReport, KindReport, UsageReport};
use super::*;

/// 2026-11-01T12:30:00Z, the time of the clock in these tests.
const NOW: WallTime = WallTime((498_192 + 12) * 3_600_000_000 + 1_800_000_000);

fn ago(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1_000_000)
}

/// Returns the status of a worker with one loaded shard and one shard that is not loaded.
fn working() -> Arc<Status> {
    let status = Status::default();
    let mut worker = status.lock();
    worker.heartbeat = Some(Instant::now());
    worker.ready = true;
    let pods = TopicStatus { next_offset: 42, max_event_time: Some(ago(90)), at_end: false, idle: false };
    let nodes = TopicStatus { at_end: true, idle: true, ..pods.clone() };
    let shard = ShardStatus {
        loaded: true,
        stopped: None,
        seq: 7,
        checkpoint_at: Some(WallTime(ago(20).0)),
        published_at: Some(WallTime(ago(15).0)),
        watermark: Some(ago(390)),
        closed_through: Some(Hour(498_192 + 11)),
        rules_version: Some("2026-<11>".into()),
        oldest_open_hour: Some(Hour(498_192 + 12)),
        dirty_from: Some(Hour(498_192 + 3)),
        dirty_hours: 2,
        dirty_since: Some(WallTime(ago(60).0)),
        recompute_gate: Some(RecomputeGate::LateEvents),
        organizations: 3,
        held: 1,
        held_example: Some("organization 'evil' is held".to_owned()),
        state_bytes: 2_048,
        open_events_bytes: 4_096,
        costs: Arc::new(costs()),
        topics: BTreeMap::from([("pods".into(), pods), ("nodes".into(), nodes)]),
    };
    worker.shards = BTreeMap::from([(3, shard), (11, ShardStatus::default())]);
    worker.counts.events.insert(EventKind::PodUsage, 1_000);
    worker.counts.dead_letters.insert(Reason::TooLate, 2);
    worker.counts.late_events = 5;
    worker.counts.unpriced_pod_hours = 4;
    worker.counts.fold.observe(Duration::from_millis(30));
    worker.counts.fold.observe(Duration::from_secs(100));
    drop(worker);
    Arc::new(status)
}

/// Returns costs of three organizations and budgets of two pools.
fn costs() -> ShardCosts {
    let cost = |id: &str, currency: &str, cost: &str| ((id.into(), currency.into()), cost.parse().unwrap());
    let used = |pool: &str, period, spend: &str, budget: &str| BudgetUse {
        organization_id: "ac\"me".into(),
        pool_id: pool.into(),
        period,
        spend: spend.parse().unwrap(),
        budget: budget.parse().unwrap(),
    };
    ShardCosts {
        day: [cost("ac\"me", "USD", "12.5"), cost("hooli", "USD", "7"), cost("gamma", "EUR", "9")].into(),
        budgets: vec![
            used("a100", Period::Day, "50", "100"),
            used("l4", Period::Month, "3", "0"),
            used("a100", Period::Month, "150", "100"),
            used("l4", Period::Day, "0", "0"),
        ],
    }
}

struct Answer {
    code: u16,
    kind: String,
    body: String,
}

async fn ask_with(status: &Arc<Status>, limits: Limits, path: &str, accept: Option<&str>) -> Answer {
    let mut request = Request::get(path);
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    let router = router(Arc::clone(status), limits, Arc::new(StoppedClock(NOW)));
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (code, kind) =
        (response.status().as_u16(), response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned());
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { code, kind, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn ask(status: &Arc<Status>, path: &str) -> Answer {
    ask_with(status, Limits::default(), path, None).await
}

/// Returns the value of a sample. `name` is the name of the metric with its labels.
fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} has no sample: {text}")).parse().unwrap()
}

#[tokio::test]
async fn a_worker_is_live_while_its_loop_iterates() {
    let status = working();
    let answer = ask(&status, "/livez").await;
    assert_eq!((answer.code, &*answer.kind), (200, TEXT));
    assert_eq!(answer.body, "live: the worker's loop iterated or storage responded 0 s ago\n");
    let strict = Limits { live_within: Duration::ZERO, ..Limits::default() };
    let answer = ask_with(&status, strict, "/livez", None).await;
    assert_eq!(answer.code, 503);
    assert_eq!(
        answer.body,
        "not live: the worker's loop iterated or storage responded 0 s ago; the limit is 0 s\n"
    );
}

#[tokio::test]
async fn a_worker_may_delay_its_first_round_but_not_for_ever() {
    let status = Arc::new(Status::default());
    assert_eq!(ask(&status, "/livez").await.code, 200);
    let strict = Limits { live_within: Duration::ZERO, ..Limits::default() };
    let answer = ask_with(&status, strict, "/livez", None).await;
    assert_eq!(answer.code, 503);
    assert!(answer.body.contains("has not started in the 0 s since the start"), "{}", answer.body);
}

#[tokio::test]
async fn dependencies_that_are_down_do_not_kill_a_worker() {
    let status = working();
    {
        let mut worker = status.lock();
        worker.ready = false;
        worker.waits.insert(Dependency::Registry, "the schema registry at http://registry".into());
    }
    assert_eq!(ask(&status, "/livez").await.code, 200);
    let answer = ask(&status, "/readyz").await;
    assert_eq!(answer.code, 503);
    assert_eq!(
        answer.body,
        "not ready: 1 of 2 shards are loaded; waiting for the schema registry at http://registry\n"
    );
    assert!(ask(&status, "/metrics").await.body.contains("\nprorata_waiting 1.0\n"));
}

#[tokio::test]
async fn a_worker_is_ready_from_loaded_to_draining() {
    let status = Arc::new(Status::default());
    let answer = ask(&status, "/readyz").await;
    assert_eq!(answer.code, 503);
    assert_eq!(answer.body, "not ready: the consumer group has not assigned shards yet\n");
    let status = working();
    let answer = ask(&status, "/readyz").await;
    assert_eq!((answer.code, &*answer.body), (200, "ready: 1 shards are loaded\n"));
    status.lock().draining = true;
    let answer = ask(&status, "/readyz").await;
    assert_eq!((answer.code, &*answer.body), (503, "not ready: the worker is stopping\n"));
}

#[tokio::test]
async fn metrics_say_what_the_status_holds() {
    let answer = ask(&working(), "/metrics").await;
    assert_eq!((answer.code, &*answer.kind), (200, OPEN_METRICS));
    let text = answer.body;
    for (name, value) in [
        ("prorata_ready", 1.0),
        ("prorata_waiting", 0.0),
        ("prorata_shards{state=\"loaded\"}", 1.0),
        ("prorata_shards{state=\"loading\"}", 1.0),
        ("prorata_watermark_lag_seconds{shard=\"3\"}", 390.0),
        ("prorata_checkpoint_age_seconds{shard=\"3\"}", 20.0),
        ("prorata_publish_lag_seconds{shard=\"3\"}", 15.0),
        ("prorata_oldest_open_hour_age_seconds{shard=\"3\"}", 1_800.0),
        ("prorata_closed_through_timestamp_seconds{shard=\"3\"}", 498_204.0 * 3_600.0),
        ("prorata_lag_seconds{shard=\"3\",topic=\"pods\"}", 90.0),
        ("prorata_lag_seconds{shard=\"3\",topic=\"nodes\"}", 0.0),
        ("prorata_state_bytes{shard=\"3\"}", 2_048.0),
        ("prorata_open_events_bytes{shard=\"3\"}", 4_096.0),
        ("prorata_organizations{shard=\"3\"}", 3.0),
        ("prorata_organizations_held{shard=\"3\"}", 1.0),
        ("prorata_dirty_hours{shard=\"3\"}", 2.0),
        ("prorata_dirty_hours{shard=\"11\"}", 0.0),
        ("prorata_dirty_age_seconds{shard=\"3\"}", 60.0),
        ("prorata_events_total{event_type=\"PodUsage\"}", 1_000.0),
        ("prorata_events_total{event_type=\"RateSet\"}", 0.0),
        ("prorata_dead_letters_total{reason=\"too_late\"}", 2.0),
        ("prorata_dead_letters_total{reason=\"malformed\"}", 0.0),
        ("prorata_day_cost{organization=\"ac\\\"me\",currency=\"USD\"}", 12.5),
        ("prorata_budget_used_ratio{organization=\"ac\\\"me\",pool=\"a100\",period=\"day\"}", 0.5),
        ("prorata_budget_used_ratio{organization=\"ac\\\"me\",pool=\"l4\",period=\"day\"}", 0.0),
        ("prorata_budget_message_failures_total", 0.0),
        ("prorata_late_events_total", 5.0),
        ("prorata_unpriced_pod_hours_total", 4.0),
        ("prorata_fold_duration_seconds_bucket{le=\"0.025\"}", 0.0),
        ("prorata_fold_duration_seconds_bucket{le=\"0.05\"}", 1.0),
        ("prorata_fold_duration_seconds_bucket{le=\"60.0\"}", 1.0),
        ("prorata_fold_duration_seconds_bucket{le=\"+Inf\"}", 2.0),
        ("prorata_fold_duration_seconds_count", 2.0),
        ("prorata_fold_duration_seconds_sum", 100.03),
    ] {
        assert!((sample(&text, name) - value).abs() < 1e-9, "{name} is not {value}: {text}");
    }
    assert!(!text.contains("watermark_lag_seconds{shard=\"11\"}"), "nothing is known of it: {text}");
    assert!(text.ends_with("# EOF\n"));
}

/// Metrics by name, with their type and labels.
type Metrics = BTreeMap<String, (String, BTreeSet<String>)>;

/// Returns the metrics of a text, each with the labels of its samples.
fn metrics_of(text: &str) -> Metrics {
    let mut found = Metrics::new();
    for line in text.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let samples = text.lines().filter(|line| line.starts_with(&format!("{name}{suffix}{{")));
        let labels = samples.flat_map(|line| {
            let labels = line.split_once('{').unwrap().1.rsplit_once('}').unwrap().0;
            labels.split(',').map(|label| label.split_once('=').unwrap().0.to_owned()).collect::<Vec<_>>()
        });
        assert!(
            found.insert(format!("{name}{suffix}"), (kind.to_owned(), labels.collect())).is_none(),
            "{name} twice"
        );
    }
    found
}

/// Returns the metrics that the README lists for a collector or a worker.
fn documented(of_collector: bool) -> Metrics {
    let plain = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = include_str!("README.md").lines().filter(|line| line.starts_with("| `prorata_"));
    rows.filter(|row| row.starts_with("| `prorata_collector_") == of_collector)
        .map(|row| {
            let cells: Vec<&str> = row.split('|').collect();
            let labels = cells[3].split(',').map(plain).filter(|label| !label.is_empty()).collect();
            (plain(cells[1]), (plain(cells[2]), labels))
        })
        .collect()
}

#[tokio::test]
async fn the_table_of_metrics_is_what_there_is() {
    let status = working();
    let stop = ShardStop { reason: StopReason::Damaged, message: "damaged".to_owned() };
    status.lock().shards.get_mut(&11).unwrap().stopped = Some(stop);
    assert_eq!(documented(false), metrics_of(&ask(&status, "/metrics").await.body));
}

#[tokio::test]
async fn the_collector_s_table_of_metrics_is_what_there_is() {
    let kinds = BTreeMap::from([("pods".to_owned(), KindReport::default())]);
    let usage = Some(UsageReport::default());
    let report = Arc::new(Mutex::new(CollectorReport { kinds, usage, ..CollectorReport::default() }));
    let request = Request::get("/metrics").body(Body::empty()).unwrap();
    let response = collector::router(&report).oneshot(request).await.unwrap();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(documented(true), metrics_of(std::str::from_utf8(&body).unwrap()));
}

#[tokio::test]
async fn every_metric_has_help_and_no_unit_is_missing_from_its_name() {
    let text = ask(&working(), "/metrics").await.body;
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {name} ")));
        assert!(help.is_some_and(|help| help.len() > 10), "{name}");
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("# UNIT ")) {
        let (name, unit) = line.split_once(' ').unwrap();
        assert!(name.ends_with(unit), "{line}");
    }
}

#[tokio::test]
async fn metrics_of_costs_have_at_most_so_many_series_and_lose_no_cost() {
    let metrics = async |cost_series| {
        let limits = Limits { cost_series, ..Limits::default() };
        let text = ask_with(&working(), limits, "/metrics", None).await.body;
        let is_of_costs =
            |line: &&str| line.starts_with("prorata_day_") || line.starts_with("prorata_budget_used");
        text.lines().filter(is_of_costs).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        r#"prorata_day_cost{organization="ac\"me",currency="USD"} 12.5"#,
        r#"prorata_day_cost{organization="",currency="EUR"} 9.0"#,
        r#"prorata_day_cost{organization="",currency="USD"} 7.0"#,
        r#"prorata_budget_used_ratio{organization="ac\"me",pool="l4",period="month"} inf"#,
    ];
    assert_eq!(metrics(1).await, expected);
    assert_eq!(metrics(0).await, [""; 0]);
    assert_eq!(metrics(9).await.len(), 3 + 4);
}

#[tokio::test]
async fn a_silent_shard_adds_no_wrong_number() {
    let status = working();
    let topic = TopicStatus { max_event_time: Some(ago(-500)), ..TopicStatus::default() };
    let topics = BTreeMap::from([("pods".into(), topic), ("nodes".into(), TopicStatus::default())]);
    status.lock().shards.entry(11).or_default().topics = topics;
    let text = ask(&status, "/metrics").await.body;
    assert!(sample(&text, "prorata_lag_seconds{shard=\"11\",topic=\"pods\"}").abs() < 1e-9, "never below 0");
    assert!(!text.contains("prorata_lag_seconds{shard=\"11\",topic=\"nodes\"}"), "unknown: {text}");
}

#[tokio::test]
async fn the_page_is_for_people_and_escapes_what_it_shows() {
    let status = working();
    let cause = "<script>alert('x')</script> & \"more\"".to_owned();
    status.lock().waits.insert(Dependency::Kafka, cause.into());
    let answer = ask(&status, "/status").await;
    assert_eq!((answer.code, &*answer.kind), (200, HTML));
    let page = answer.body;
    assert!(!page.contains("<script"), "{page}");
    assert!(
        page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;more&quot;"),
        "{page}"
    );
    for shown in [
        "<td>2026-11-01 11:00</td>",
        "<td>2026-11-01 03:00</td>",
        "<td>2026-11-01 12:23:30</td>",
        "<td>1 min 30 s</td>",
        "<td>20 s ago</td>",
        "<td class=\"n\">2.0 KiB</td>",
        "<td>reached, idle</td>",
        "<td>too_late</td><td class=\"n\">2</td>",
        "<td>loading</td>",
        "<th>Held in shard 3: 1</th><td>organization &#39;evil&#39; is held</td>",
        "1 of 2",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
}

#[tokio::test]
async fn a_stopped_shard_is_reported_everywhere_with_its_remedy() {
    let status = working();
    let message = "offsets_lost: topic pods, partition 11: gone; restore the topic";
    let stop = ShardStop { reason: StopReason::OffsetsLost, message: message.to_owned() };
    status.lock().shards.get_mut(&11).unwrap().stopped = Some(stop);
    status.lock().ready = false;
    let ready = ask(&status, "/readyz").await;
    assert_eq!(ready.code, 503);
    assert!(ready.body.contains(&format!("shard 11 is stopped: {message}")), "{}", ready.body);
    let metrics = ask(&status, "/metrics").await.body;
    assert_eq!(sample(&metrics, "prorata_shard_stopped{shard=\"11\",reason=\"offsets_lost\"}"), 1.0);
    assert_eq!(sample(&metrics, "prorata_shards{state=\"stopped\"}"), 1.0);
    assert_eq!(sample(&metrics, "prorata_shards{state=\"loading\"}"), 0.0);
    let page = ask(&status, "/status").await.body;
    assert!(page.contains(&format!("<th>Shard 11 is stopped</th><td>{message}</td>")), "{page}");
    let json = ask(&status, "/status?format=json").await.body;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["shards"][1]["stopped"]["reason"], "offsets_lost");
    assert_eq!(json["shards"][1]["stopped"]["message"], message);
    assert!(json["shards"][0]["stopped"].is_null());
}

#[tokio::test]
async fn the_page_is_json_on_request() {
    let status = working();
    for (path, accept) in [
        ("/status?format=json", None),
        ("/status", Some("application/json")),
        ("/status", Some("application/json, text/html;q=0.5")),
        ("/status?format=json", Some("text/html")),
    ] {
        let answer = ask_with(&status, Limits::default(), path, accept).await;
        assert_eq!(answer.kind, JSON, "{path} {accept:?}");
        let json: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(json["shards"][0]["shard"], 3);
        assert_eq!(json["shards"][0]["closed_through"], "2026-11-01T11");
        assert_eq!(json["shards"][0]["rules_version"], "2026-<11>");
        assert_eq!(json["shards"][0]["dirty_gate"], "late_events");
        assert!(json["shards"][1]["dirty_gate"].is_null());
        assert_eq!(json["shards"][0]["topics"][1]["lag_seconds"], 90.0);
        assert_eq!(json["counts"]["dead_letters"]["too_late"], 2);
        assert_eq!(json["closed_through"], "2026-11-01T11", "shards that are not loaded do not count");
        assert_eq!(json["lag_seconds"], 90.0);
    }
    for (path, accept) in [
        ("/status", Some("text/html,application/xhtml+xml,*/*;q=0.8")),
        ("/status?format=html", Some(JSON)),
        ("/status", Some("*/*")),
    ] {
        assert_eq!(ask_with(&status, Limits::default(), path, accept).await.kind, HTML, "{path} {accept:?}");
    }
}

#[tokio::test]
async fn other_paths_name_those_there_are() {
    let answer = ask(&working(), "/healthz").await;
    assert_eq!(answer.code, 404);
    assert!(answer.body.contains("/livez, /readyz, /metrics and /status"), "{}", answer.body);
}

#[tokio::test]
async fn it_answers_on_a_real_socket_until_it_is_stopped() {
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let serving = serve("127.0.0.1:0", working(), Limits::default(), stopped).await.unwrap();
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("live: the worker's loop iterated or storage responded 0 s ago\n"), "{answer}");
    // A client that never finishes its request does not keep the worker from stopping.
    let mut hanging = TcpStream::connect(serving.address).await.unwrap();
    hanging.write_all(b"GET /livez HT").await.unwrap();
    let address = serving.address;
    stop.send(()).unwrap();
    serving.finish(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_an_error_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).await.unwrap();
    for (listen, message) in [
        (holder.local_addr().unwrap().to_string(), "is in use by another program; set it to another address"),
        ("8080".into(), "is not an address and port such as 127.0.0.1:8080"),
        ("203.0.113.7:8080".into(), "is not an address of this machine"),
    ] {
        let failure = serve(&listen, working(), Limits::default(), std::future::pending()).await.unwrap_err();
        assert!(failure.to_string().contains(&format!("http.listen '{listen}' {message}")), "{failure}");
        assert_eq!(crate::failure::report(&failure.into()), std::process::ExitCode::from(2));
    }
}
