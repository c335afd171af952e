//! Rules as data: every version is stored under `rules/` in the root, and a shard's list says which version
//! is in force from which hour.
//!
//! A version is stored with the version of the engine that first used it: [`RULES_ENGINE_VERSION`]. So the
//! meaning of rules never changes within a root. Rules of an engine version that this program does not
//! compute can still be listed. Only the hours with these rules wait, for the release that computes the rules
//! or for rules of another version.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::RULES_ENGINE_VERSION;
use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::{Hour, HourRange};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, RulesFrom, checksum};
use crate::error::{Result, WorkerError};
use crate::names;
use crate::objects;
use crate::ports::{FormatError, ObjectStore};

/// A version of the rules, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRules {
    /// The [`RULES_ENGINE_VERSION`] of the engine that computes them.
    engine_version: u32,
    rules: Arc<Rules>,
}

impl StoredRules {
    fn to_json(&self) -> Result<Bytes, FormatError> {
        let json = serde_json::to_vec(self).map_err(|error| FormatError::new("encode rules", error))?;
        Ok(checksum::add_to_json(&json).into())
    }
}

/// Versions of the rules that this run has read or stored.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    known: BTreeMap<Text, StoredRules>,
}

impl RuleBook {
    /// Stores a version of the rules unless the root already holds it.
    ///
    /// # Errors
    /// If storage is unavailable, or the version cannot name a file. Also if the root holds this version with
    /// other rules, or with an engine version that this program does not compute.
    pub async fn store(&mut self, store: &dyn ObjectStore, rules: &Rules) -> Result<()> {
        let version = &rules.version;
        if !names::is_rules_version(version) {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' cannot name a file; use at most 64 letters, digits, '.', '_' or \
                 '-'"
            )));
        }
        let object = names::rules(version);
        let stored = StoredRules { engine_version: RULES_ENGINE_VERSION, rules: Arc::new(rules.clone()) };
        let found = parse(&object, &objects::create(store, &object, &stored.to_json()?).await?)?;
        if found.engine_version != RULES_ENGINE_VERSION {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' is in the root with engine version {} ('{object}'), this program \
                 computes {RULES_ENGINE_VERSION}; give rules.version another name, and hours that open from \
                 now on are computed by this program's engine",
                found.engine_version
            )));
        }
        if found.rules != stored.rules {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' is in the root with other rules ('{object}'); give the changed \
                 rules a new version"
            )));
        }
        self.known.insert(version.clone(), found);
        Ok(())
    }

    /// Reads every version on a shard's list, with any engine version.
    ///
    /// # Errors
    /// If a version is missing or unreadable, or storage is unavailable.
    pub async fn load(&mut self, store: &dyn ObjectStore, list: &[RulesFrom]) -> Result<()> {
        for listed in list {
            if !self.known.contains_key(&listed.version) {
                self.known.insert(listed.version.clone(), read(store, &listed.version).await?);
            }
        }
        Ok(())
    }

    /// Returns the rules by which a shard's hour is folded.
    ///
    /// # Errors
    /// If the shard lists no rules, or lists rules that were not loaded, or this program does not compute
    /// their engine version.
    pub fn of(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<Arc<Rules>> {
        let StoredRules { rules, engine_version } = self.listed(checkpoint, hour)?;
        if *engine_version != RULES_ENGINE_VERSION {
            let object = names::rules(&rules.version);
            return Err(WorkerError::UnknownEngineVersion { object, engine_version: *engine_version });
        }
        Ok(Arc::clone(rules))
    }

    /// Returns the rules by which a shard's events are judged, each in force from an hour on. Their engine
    /// version does not matter.
    ///
    /// # Errors
    /// If the shard lists rules that were not loaded.
    pub fn for_judging(&self, checkpoint: &Checkpoint) -> Result<RulesByHour> {
        let listed = checkpoint
            .rules
            .iter()
            .map(|listed| Ok((listed.from, Arc::clone(&self.listed(checkpoint, listed.from)?.rules))));
        listed.collect::<Result<Vec<_>>>().map(RulesByHour)
    }

    /// Returns the rules by which one event of a shard's hour is judged, or `None` if the shard lists no
    /// rules.
    ///
    /// # Errors
    /// If the shard lists rules that were not loaded.
    pub fn judging(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<Option<&Rules>> {
        if checkpoint.rules.is_empty() {
            return Ok(None);
        }
        self.listed(checkpoint, hour).map(|known| Some(&*known.rules))
    }

    /// Returns whether this program computes the rules of a shard's hour.
    pub fn computes(&self, checkpoint: &Checkpoint, hour: Hour) -> bool {
        self.listed(checkpoint, hour).is_ok_and(|known| known.engine_version == RULES_ENGINE_VERSION)
    }

    fn listed(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<&StoredRules> {
        let version = checkpoint.rules_of(hour);
        let known = version.and_then(|version| self.known.get(version));
        known.ok_or_else(|| WorkerError::Damaged {
            object: names::checkpoint(checkpoint.shard, checkpoint.seq),
            cause: format!("it lists no rules for hour {hour}"),
        })
    }
}

/// Rules, each in force from an hour on; the first rules are also in force before their hour.
#[derive(Clone, Debug, Default)]
pub struct RulesByHour(Vec<(Hour, Arc<Rules>)>);

impl RulesByHour {
    /// Returns the rules of an hour, or `None` if there are no rules.
    pub fn of(&self, hour: Hour) -> Option<&Rules> {
        let listed = self.0.iter().rev().find(|(from, _)| *from <= hour);
        listed.or(self.0.first()).map(|(_, rules)| &**rules)
    }
}

async fn read(store: &dyn ObjectStore, version: &str) -> Result<StoredRules> {
    let object = names::rules(version);
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes =
        store.get(&object).await?.ok_or_else(|| damaged("it was listed but does not exist".into()))?;
    parse(&object, &bytes)
}

fn parse(object: &str, bytes: &[u8]) -> Result<StoredRules> {
    let damaged = |cause: String| WorkerError::Damaged { object: object.to_owned(), cause };
    let json = checksum::check_json(bytes).map_err(|mismatch| damaged(mismatch.to_string()))?;
    serde_json::from_slice(&json).map_err(|error| damaged(error.to_string()))
}

/// Puts `version` in force from `from` to `to`, both inclusive; `None` means no limit. Other hours keep their
/// version. `closed` holds the shard's closed hours, if any. Returns the closed hours whose version changed.
pub fn rewrite(
    list: &mut Vec<RulesFrom>,
    version: &Text,
    from: Option<Hour>,
    to: Option<Hour>,
    closed: Option<HourRange>,
) -> Vec<Hour> {
    let of = |list: &[RulesFrom], hour: Hour| {
        let listed = list.iter().rev().find(|rules| rules.from <= hour).or(list.first());
        listed.map(|rules| rules.version.clone())
    };
    let before = list.clone();
    let mut edges: Vec<Hour> = before.iter().skip(1).map(|rules| rules.from).collect();
    let bound = from.or(to);
    let first = before.first().map(|rules| rules.from).or(bound).unwrap_or_default();
    let start = bound.map_or(first, |bound| first.min(bound));
    edges.extend([Some(start), from, to.map(Hour::next)].into_iter().flatten());
    edges.sort();
    edges.dedup();
    let within = |hour: Hour| from.is_none_or(|from| hour >= from) && to.is_none_or(|to| hour <= to);
    list.clear();
    for edge in edges {
        let there = if within(edge) { Some(version.clone()) } else { of(&before, edge) };
        let there = there.unwrap_or_else(|| version.clone());
        if list.last().is_none_or(|last: &RulesFrom| last.version != there) {
            list.push(RulesFrom { from: edge, version: there });
        }
    }
    closed.into_iter().flatten().filter(|hour| of(&before, *hour) != of(list, *hour)).collect()
}

#[cfg(test)]
mod tests;
