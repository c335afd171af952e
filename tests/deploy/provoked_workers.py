"""Workers in trouble."""

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import soak
from environment import python_of
from scenes import DAY, SHARDS, Scene, block, firing, growing, moved_clock, paused, unblock

# Of a release with 32 shards, most are always missing here.
ALWAYS = {"ProrataShardsUnowned", "ProrataCollectorNotReady"}
# In minutes, and an hour more.
HALF_A_DAY = 13 * 60
LOAD = ["--organizations", "6", "--pods", "2", "--hours", "24"]
# Of the same organizations. At 12 events a second they come for an hour, longer than a test may wait.
LONG_LOAD = ["--organizations", "6", "--pods", "80", "--hours", "24"]
# A factor under which a charge fits no column.
BEYOND_MEASURE = {"version": "beyond", "eviction_protection_ratio": "9" * 16}


class Worker(Scene):
    """Workers of a Kafka topic that holds a day."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for topic in ("provoked", "late", "taken", "lag", "dirty", "retries", "tables"):
            soak.create_topic(cls.of_run(topic), SHARDS)
        cls.feed(cls.config("feed"), 7)

    @staticmethod
    def feed(config: str, seed: int) -> None:
        """A day of the organizations of a seed."""
        load = [*LOAD, "--seed", str(seed)]
        soak.run("generate", *load, "--start", f"{DAY}T00", "--output", "kafka", "--config", config)

    def fed(self, topic: str, **work: str) -> tuple[str, soak.Worker]:
        """A worker that has closed a day of a topic of its own, and its configuration."""
        config = self.config(topic, kafka={"topics": [topic]}, work=work)
        self.feed(config, 7)
        worker = self.worker(config)
        worker.wait(f"{DAY}T23")
        return config, worker

    def test_a_healthy_worker_raises_none_and_a_damaged_shard_its_own(self):
        config = self.config("whole")
        worker = self.worker(config)
        worker.wait(f"{DAY}T23")
        self.until(worker, "^prorata_unpriced_pod_hours_total [1-9]")
        self.until(worker, '^prorata_day_cost{organization=".+",currency="USD"} [1-9]')
        # Generated pools exceed the budget of a day, a month and a quarter within a day. After midnight, the
        # new day's is not exceeded yet.
        text = self.until(worker, "^prorata_budget_used_ratio{.*} [1-9]")
        self.assertEqual(firing([text]) - ALWAYS, {"ProrataUnpricedPods", "ProrataBudgetExceeded"})
        worker.stop()
        state = self.folder / "whole" / "state"
        newest = max(state.rglob("checkpoint-*"), key=lambda path: (path.parts, path.name))
        newest.write_bytes(b"{}")
        worker = self.worker(config)
        text = self.until(worker, "^prorata_shard_stopped{")
        self.assertIn("ProrataShardStopped", firing([text]))

    def test_events_in_another_currency_are_dead_letters(self):
        worker = self.worker(self.config("letters", rules={"currency": "EUR"}))
        text = self.until(worker, '^prorata_dead_letters_total{reason="[a-z_]+"} [1-9]')
        self.assertIn("ProrataDeadLetters", firing([text]))

    def test_a_registry_that_is_away_is_waited_for(self):
        worker = self.worker(self.config("waiting", registry={"url": "http://127.0.0.1:1"}))
        text = self.until(worker, '^prorata_waiting_for{dependency="registry",kind="transient"} 1')
        self.assertLessEqual({"ProrataWaiting"}, firing([text]))

    def test_kafka_that_is_away_leaves_a_worker_unready(self):
        worker = self.worker(self.config("unready", kafka={"session_timeout": "10s"}))
        broker = json.loads(Path(os.environ["PRORATA_TEST_KAFKA_BROKERS"]).read_text())[0]
        worker.wait(f"{DAY}T23")
        worker.stop()
        os.kill(broker["pid"], 19)
        try:
            worker = self.worker(self.config("unready"))
            text = self.until(worker, "^prorata_ready 0")
            self.assertIn("ProrataNotReady", firing([text]))
        finally:
            os.kill(broker["pid"], 18)

    def test_hours_that_are_held_open_are_reported(self):
        never = {"max_watermark_hold": "30days", "idle_timeout": "30days"}
        worker = self.worker(self.config("open", work=never))
        text = self.until(worker, "^prorata_oldest_open_hour_age_seconds{.*} [1-9]")
        text = self.until(worker, "^prorata_watermark_lag_seconds{.*} [1-9]")
        self.assertLessEqual({"ProrataHoursNotClosed", "ProrataWatermarkLag"}, firing([text]))

    def test_a_clock_that_is_wrong_is_reported(self):
        with moved_clock(self.folder) as offset:
            worker = self.worker(self.config("clock"))
        worker.wait(f"{DAY}T23")
        offset.write_text("172800")
        text = self.until(worker, "^prorata_clock_skew_seconds [1-9]")
        self.assertIn("ProrataClockSkew", firing([text]))

    @contextlib.contextmanager
    def fed_meanwhile(self, config: str) -> Iterator[None]:
        """Late events come within it."""
        load = [*LONG_LOAD, "--seed", "8", "--start", f"{DAY}T00", "--rate", "12"]
        command = [os.environ["PRORATA_BINARY"], "generate", *load, "--output", "kafka", "--config", config]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as producer:
            yield
            self.assertIsNone(producer.poll(), "events came all the time")
            producer.kill()

    def test_storage_that_takes_no_checkpoint_is_reported(self):
        config, worker = self.fed("late")
        with self.fed_meanwhile(config):
            self.until_firing(worker, set(), silent="ProrataCheckpointOld")
            with paused(worker):
                block(self.folder / "late" / "state")
            self.until(worker, '^prorata_waiting_for{dependency="storage",kind="[a-z]+"} 1')
            self.until_firing(worker, {"ProrataCheckpointOld", "ProrataWaiting"})

    def test_a_table_that_takes_no_commit_is_reported(self):
        """Checkpoints are decided meanwhile."""
        # Late events are folded while more of them come.
        config, worker = self.fed("tables", max_restate_delay="1s")
        with self.fed_meanwhile(config):
            self.until_firing(worker, set(), silent="ProrataPublishLag")
            with paused(worker):
                block(self.folder / "tables" / "cost_allocation" / "_delta_log")
            self.until(worker, r"^prorata_publish_lag_seconds{.*} ([5-9]|\d+\d)\.")
            self.until_firing(worker, {"ProrataPublishLag"}, silent="ProrataCheckpointOld")

    def test_shards_that_somebody_keeps_taking_are_reported(self):
        # Late events are folded at once, however many checkpoints they take.
        config, worker = self.fed("taken", max_restate_delay="0s")
        events = str(self.folder / "few")
        load = ["--organizations", "1", "--pods", "1", "--hours", "1", "--seed", "9"]
        soak.run("generate", *load, "--start", f"{DAY}T00", "--output", events)
        backfill = ["backfill", "--config", config, "--events", events, "--take-over"]
        for taken in range(1, 8 // SHARDS + 1):
            # A worker that runs may take its shards back before a slow backfill is done.
            with paused(worker):
                soak.run(*backfill, "--lake", str(self.folder / "taken"))
            # It notices with the next checkpoint.
            self.feed(config, 7 + taken)
            text = self.until(worker, f"^prorata_conflicts_total {taken * SHARDS}")
            worker.wait(f"{DAY}T23")
        self.assertIn("ProrataConflicts", firing([text]))

    def test_messages_that_wait_for_the_registry_count_as_lag(self):
        config, worker = self.fed("lag")
        self.assertNotIn("ProrataLag", firing([self.scrape(worker)]))
        worker.stop()
        self.feed(config, 8)
        away = {"registry": {"url": "http://127.0.0.1:1"}, "kafka": {"topics": ["lag"]}}
        worker = self.worker(self.config("lag", **away))
        text = self.until(worker, r"^prorata_lag_seconds{.*} \d{5,}")
        self.assertIn("ProrataLag", firing([text]))

    def test_storage_that_fails_now_and_then_is_reported(self):
        config, worker = self.fed("retries")
        state = self.folder / "retries" / "state"
        load = [*LOAD, "--seed", "8", "--start", f"{DAY}T00", "--rate", "100"]
        command = [os.environ["PRORATA_BINARY"], "generate", *load, "--output", "kafka", "--config", config]
        began, first = time.monotonic(), self.scrape(worker)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as producer:
            for _ in range(8):
                with paused(worker):
                    block(state)
                time.sleep(1)
                with paused(worker):
                    unblock(state)
                time.sleep(1)
            second, seconds = self.scrape(worker), time.monotonic() - began
            producer.kill()
        fires = firing([second], per_minute=growing(first, second, seconds))
        self.assertIn("ProrataRetries", fires)

    def test_an_organization_whose_charge_fits_no_column_is_held(self):
        config = self.config("held", rules=BEYOND_MEASURE)
        events = self.folder / "greedy"
        events.mkdir()
        script = Path(__file__).with_name("greedy.py")
        subprocess.run([python_of("archive"), script, events, f"{DAY}T05"], check=True)
        lake = str(self.folder / "held")
        soak.run("backfill", "--config", config, "--events", str(events), "--lake", lake)
        text = self.until(self.worker(config), "^prorata_organizations_held{.*} [1-9]")
        self.assertIn("ProrataOrganizationHeld", firing([text]))

    def test_hours_that_wait_for_storage_to_be_restated_are_reported(self):
        """Storage takes late events, and nothing from then on."""
        config, worker = self.fed("dirty", checkpoint_interval="10s")
        self.feed(config, 8)
        self.until(worker, "^prorata_dirty_hours{.*} [1-9]")
        block(self.folder / "dirty" / "state")
        self.assertNotIn("ProrataRestatementDelayed", self.going_on(worker))
        self.assertIn("ProrataRestatementDelayed", self.going_on(worker, HALF_A_DAY))

    def test_workers_that_are_gone_leave_shards_to_nobody(self):
        self.assertEqual(firing([]), ALWAYS)
