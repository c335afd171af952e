//! Static members of a real group.

use std::time::Duration;

use prorata_connectors::kafka::KafkaSource;
use prorata_testkit::wait::Deadline;
use prorata_worker::source::{Source, SourceError, SourceEvent};

use crate::{assigned, settings, signals_for, topics, until};

#[tokio::test]
async fn a_static_member_that_restarts_moves_no_shard_and_its_double_fences_it() {
    topics(&["static"], 2).await;
    let member = |instance: &str| {
        let mut settings = settings(&["static"]);
        settings.instance = Some(instance.into());
        settings.session_timeout = Duration::from_secs(30);
        settings
    };
    let mut other = KafkaSource::connect(member("worker-1")).await.unwrap();
    assert_eq!(assigned(&mut other).await.len(), 2);
    let mut source = KafkaSource::connect(member("worker-0")).await.unwrap();
    until(&mut other, |signal| matches!(signal, SourceEvent::Revoked(_))).await;
    other.release(&[0, 1]).await;
    let (of_source, of_other) = tokio::join!(assigned(&mut source), assigned(&mut other));
    assert_eq!((of_source.len(), of_other.len()), (1, 1));
    source.close().await;
    let mut source = KafkaSource::connect(member("worker-0")).await.unwrap();
    assert_eq!(assigned(&mut source).await, of_source);
    assert!(source.assigned(*of_source.first().unwrap()).await.unwrap());
    assert_eq!(signals_for(&mut other, Duration::from_secs(3)).await, []);
    let mut double = KafkaSource::connect(member("worker-0")).await.unwrap();
    assert_eq!(assigned(&mut double).await, of_source);
    let (deadline, mut seen) = (Deadline::start(), Vec::new());
    let error = loop {
        match source.poll(Duration::from_millis(100)).await {
            Ok(signals) => seen.extend(signals),
            Err(SourceError::Unavailable(_)) => {}
            Err(error) => break error,
        }
        assert!(!deadline.passed());
    };
    assert_eq!(error, SourceError::Fenced("worker-0".into()));
    assert_eq!(seen, [SourceEvent::Lost(of_source.into_iter().collect())]);
    for mut source in [source, double, other] {
        source.close().await;
    }
}
