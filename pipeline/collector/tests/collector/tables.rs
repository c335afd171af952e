//! Runs the tables of `testdata/collector/histories`.

use std::collections::BTreeMap;
use std::sync::Arc;

use prorata_collector::object::ObjectKind;
use prorata_collector::prices::{CapacityRates, PricedType};
use prorata_collector::{Change, CollectorOptions, MissedStop, StartAt};
use prorata_schemas::event::CapacityType;
use prorata_schemas::time::Timestamp;

use crate::objects::{Words, micros, object};
use crate::rig::{Cut, Rig};
use crate::{shown, tables_in, words};

/// A running case.
struct Case {
    rig: Rig,
    /// Numbers of events and notices that were compared.
    compared: (usize, usize),
    /// Time at which each object was first named. It is the creation time, unless the object names another
    /// time.
    first_named: BTreeMap<String, i64>,
}

impl Case {
    fn new() -> Self {
        let mut options = CollectorOptions::new("o".into(), "c".into(), "USD".into());
        options.watched.extend([
            ObjectKind::ResourceClaim,
            ObjectKind::GpuPool,
            ObjectKind::PersistentVolume,
        ]);
        options.since = Some(Timestamp(micros("00:00")));
        Self { rig: Rig::new(options), compared: (0, 0), first_named: BTreeMap::new() }
    }

    /// Takes a line that begins with a time.
    fn input(&mut self, words: &[&str]) -> Result<(), String> {
        let now = micros(words[0]);
        let verb = *words.get(1).ok_or("no verb")?;
        let named = words.get(2).copied().unwrap_or("");
        let rest = words.get(3..).unwrap_or_default();
        let uid = rest.iter().find(|word| word.starts_with("uid=")).copied().unwrap_or_default();
        let object_kind = verb.strip_prefix("gone-").unwrap_or(verb);
        let created = *self.first_named.entry(format!("{object_kind} {named} {uid}")).or_insert(now);
        let of_words = || object(object_kind, named, Words::new(rest, created));
        let kind = || kind(named).ok_or(format!("no kind '{named}'"));
        let change = match verb {
            "list" => Change::ListBegins(kind()?),
            "check" => Change::CheckBegins(kind()?),
            "resume" if self.rig.stored.pods_version.as_ref().is_some_and(|pods| pods.has_waiting) => {
                Change::ResumeBegins(kind()?)
            }
            "resume" => return Err("no pods waited at a stored version".to_owned()),
            "listed" => Change::ListEnds(kind()?, "7".into()),
            "bookmark" => Change::Bookmark(kind()?, "7".into()),
            "tick" => Change::Tick,
            "price" => {
                self.price(named, rest);
                Change::Prices(self.rig.prices.clone())
            }
            "rates" => {
                self.rates(&words[2..]);
                Change::Prices(self.rig.prices.clone())
            }
            "restart" => {
                self.rig.restart();
                return Ok(());
            }
            "cut-before-sending" => {
                self.rig.cut(Cut::BeforeEvents);
                return Ok(());
            }
            "cut-after-sending" => {
                self.rig.cut(Cut::AfterEvents(usize::MAX));
                return Ok(());
            }
            _ if object_kind == verb => Change::Seen(of_words().ok_or("no such verb")?),
            _ => Change::Gone(of_words().ok_or("no such kind")?),
        };
        self.rig.apply(change, now);
        Ok(())
    }

    /// Reads `price p5 from=10:00 hourly=2 [spot]`: provider aws, region r, Linux.
    fn price(&mut self, instance_type: &str, words: &[&str]) {
        let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let capacity_type = if words.contains(&"spot") { CapacityType::Spot } else { CapacityType::OnDemand };
        let of = PricedType {
            provider: "aws".into(),
            region: "r".into(),
            instance_type: instance_type.into(),
            os: "linux".into(),
            capacity_type,
        };
        let book = Arc::make_mut(&mut self.rig.prices);
        let from = Timestamp(micros(value("from").unwrap()));
        book.list.add(of, from, value("hourly").unwrap().parse().unwrap(), &"USD".into()).unwrap();
    }

    fn rates(&mut self, words: &[&str]) {
        let rate = |key: &str| {
            let text = words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            text.unwrap_or("0").parse().unwrap()
        };
        Arc::make_mut(&mut self.rig.prices).rates = Some(CapacityRates {
            per_vcpu_hour: rate("vcpu"),
            per_gib_hour: rate("gib"),
            per_gpu_hour: rate("gpu"),
        });
    }

    fn option(&mut self, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').ok_or("an option without value")?;
        let options = &mut self.rig.options;
        match (key, value) {
            ("since", "first") => options.since = None,
            ("since", time) => options.since = Some(Timestamp(micros(time))),
            ("start", "started") => options.start = StartAt::Started,
            ("start", "running") => options.start = StartAt::Running,
            ("missed-stop", "latest") => options.missed_stop = MissedStop::Latest,
            ("labels", names) => options.labels = names.split(',').map(Into::into).collect(),
            ("qos-label", name) => options.qos_label = Some(name.into()),
            ("model-label", name) => options.gpu_model_label = Some(name.into()),
            ("pool-label", name) => options.pool_label = Some(name.into()),
            ("account", id) => options.account_id = Some(id.into()),
            ("unwatched", name) => {
                options.watched.remove(&kind(name).ok_or(format!("no kind '{name}'"))?);
            }
            _ => return Err(format!("no option {word}")),
        }
        self.rig.restart();
        Ok(())
    }

    /// Compares events and notices since the last comparison with expected lines.
    fn compare(&mut self, expected: &[Vec<&str>]) -> Result<(), String> {
        self.rig.commit();
        let events: Vec<Vec<String>> = self.rig.sent[self.compared.0..].iter().map(shown::event).collect();
        let notices: Vec<String> =
            self.rig.notices[self.compared.1..].iter().map(|notice| format!("{notice:?}")).collect();
        self.compared = (self.rig.sent.len(), self.rig.notices.len());
        let (noticed, sent): (Vec<&Vec<&str>>, Vec<&Vec<&str>>) =
            expected.iter().partition(|words| words[0] == "!");
        let nothing = sent.len() == 1 && sent[0][..] == ["nothing"];
        let sent: &[&Vec<&str>] = if nothing { &[] } else { &sent };
        let holds = |(expected, words): (&&Vec<&str>, &Vec<String>)| {
            words[..3] == expected[..3] && expected.iter().all(|word| has(words, word))
        };
        let notices_match = noticed.len() == notices.len()
            && noticed
                .iter()
                .zip(&notices)
                .all(|(words, notice)| words[1..].iter().all(|word| notice.contains(word)));
        if sent.len() == events.len() && sent.iter().zip(&events).all(holds) && notices_match {
            return Ok(());
        }
        let lines: Vec<String> = events.iter().map(|words| words.join(" ")).chain(notices).collect();
        Err(format!("got\n    {}", lines.join("\n    ")))
    }
}

/// Returns whether words contain the expected word; `key=-` means that the key is not set.
fn has(words: &[String], expected: &str) -> bool {
    match expected.strip_suffix("=-") {
        Some(key) => !words.iter().any(|word| word.split_once('=').is_some_and(|(found, _)| found == key)),
        None => words.iter().any(|word| word == expected),
    }
}

fn kind(text: &str) -> Option<ObjectKind> {
    Some(match text {
        "nodes" => ObjectKind::Node,
        "pods" => ObjectKind::Pod,
        "quotas" => ObjectKind::ElasticQuota,
        "pools" => ObjectKind::GpuPool,
        "gpu-nodes" => ObjectKind::GpuNode,
        "claims" => ObjectKind::ResourceClaim,
        "volumes" => ObjectKind::PersistentVolume,
        _ => return None,
    })
}

/// Runs the cases of a file, and returns their number and the failures.
fn run(text: &str) -> (usize, Vec<String>) {
    let (mut cases, mut faults) = (0, Vec::new());
    let mut case = Case::new();
    let mut expected: Vec<Vec<&str>> = Vec::new();
    let mut name = "";
    for (index, line) in text.lines().chain(["case end"]).enumerate() {
        let words = words(line);
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        if line.starts_with(' ') {
            expected.push(words);
            continue;
        }
        let is_end = words[0] == "case";
        if (!expected.is_empty() || is_end)
            && let Err(error) = case.compare(&std::mem::take(&mut expected))
        {
            faults.push(format!("before line {}, '{name}': {error}", index + 1));
        }
        let taken = match words[0] {
            "case" => {
                (case, name) = (Case::new(), line);
                cases += 1;
                Ok(())
            }
            "options" => words[1..].iter().try_for_each(|word| case.option(word)),
            _ => case.input(&words),
        };
        if let Err(error) = taken {
            faults.push(format!("line {}: {error}", index + 1));
        }
    }
    (cases - 1, faults)
}

#[test]
fn every_history_becomes_the_events_of_its_table() {
    let (mut all, mut faults) = (0, Vec::new());
    for (file, text) in tables_in("histories") {
        let (cases, wrong) = run(&text);
        all += cases;
        faults.extend(wrong.into_iter().map(|fault| format!("{file}: {fault}")));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(all > 40, "{all} cases");
}

#[test]
fn a_wrong_table_is_reported() {
    let wrong = "case x\n10:00 node n cpu=1 price=2\n  10:00 NodeStarted n cost=3\n";
    assert_eq!(run(wrong).1.len(), 1);
    assert_eq!(run("case x\n10:00 node n cpu=1 price=2\n").1.len(), 1, "an event that is not expected");
    assert_eq!(run("case x\n10:00 nodes n\n").1.len(), 1);
}
