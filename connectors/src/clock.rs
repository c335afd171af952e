//! The system's wall clock behind the worker's port.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use prorata_schemas::time::WallTime;
use prorata_worker::ports::Clock;

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
