//! Rules as data: every version stands under `rules/` in the root, and a shard's list says which version
//! holds from which hour.
//!
//! A version is stored as JSON behind a line with its checksum, under a name that ends in `.yaml`: JSON is
//! YAML, so a release that knows only `root.format` 1 reads it too, and both releases create the same object.
//! What those releases stored is YAML behind the same line; both forms are read.
//!
//! The engine's own meaning is part of a version. This program computes each from
//! [`RULES_ENGINE_VERSION_OLDEST`] to [`RULES_ENGINE_VERSION`], so what a version means never changes under a
//! root. New versions get the newest meaning, but the oldest while the root has a format that the release
//! before shares: it computes no other. Rules of a meaning that this program does not compute can still be
//! listed: only the hours under them wait, for the release that computes them or for rules of another
//! version.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::{RULES_ENGINE_VERSION, RULES_ENGINE_VERSION_OLDEST};
use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, RulesFrom, checksum};
use crate::error::{Result, WorkerError};
use crate::names;
use crate::objects;
use crate::ports::{FormatError, ObjectStore};

/// A version of the rules as stored: with the meaning that the engine gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Version of the engine's own meaning, [`prorata_engine::RULES_ENGINE_VERSION`].
    meaning: u32,
    rules: Rules,
}

impl Stored {
    fn to_bytes(&self) -> Result<Bytes, FormatError> {
        let json = serde_json::to_string(self).map_err(|error| FormatError::new("encode rules", error))?;
        Ok(checksum::add_to_text((escaped(&json) + "\n").as_bytes()).into())
    }
}

/// JSON in which the characters that YAML does not take as they are, are escaped.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => text.push(character),
        }
    }
    text
}

/// A version of the rules, with its meaning.
#[derive(Clone, Debug)]
struct Known {
    rules: Arc<Rules>,
    meaning: u32,
}

/// Rules of an hour, with the meaning that the engine is to give them.
#[derive(Clone, Debug)]
pub struct HourRules {
    rules: Arc<Rules>,
    /// Version of the engine's own meaning.
    pub meaning: u32,
}

impl HourRules {
    /// Rules with their meaning.
    pub fn new(rules: Rules, meaning: u32) -> Self {
        Self { rules: Arc::new(rules), meaning }
    }
}

impl Deref for HourRules {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

/// Versions of the rules that this run has met.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    known: BTreeMap<Text, Known>,
    shared: bool,
}

impl RuleBook {
    /// A book for a root of this format.
    pub fn new(format: u32) -> Self {
        Self { known: BTreeMap::new(), shared: format < 2 }
    }

    /// The meaning of versions that are stored for the first time.
    fn new_meaning(&self) -> u32 {
        if self.shared { RULES_ENGINE_VERSION_OLDEST } else { RULES_ENGINE_VERSION }
    }

    /// Stores a version unless it is there already.
    ///
    /// # Errors
    /// When the root has other rules under this version, or the same with a meaning that this program does
    /// not compute, or storage is unavailable.
    pub async fn store(&mut self, store: &dyn ObjectStore, rules: &Rules) -> Result<()> {
        let version = &rules.version;
        if !names::is_rules_version(version) {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' cannot name a file; use at most 64 letters, digits, '.', '_' or \
                 '-'"
            )));
        }
        let object = names::rules(version);
        let stored = Stored { meaning: self.new_meaning(), rules: rules.clone() };
        let found = objects::create(store, &object, &stored.to_bytes()?).await?;
        let Stored { meaning, rules: found } = parse(&object, &found)?;
        if !is_computed(meaning) {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' is in the root with meaning {meaning} ('{object}'), this program \
                 computes {}; give rules.version another name, and hours that open from now on \
                 have the new meaning",
                computed()
            )));
        }
        if found != *rules {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' is in the root with other rules ('{object}'); \
                 give the changed rules a version of their own"
            )));
        }
        self.known.insert(version.clone(), Known { rules: Arc::new(rules.clone()), meaning });
        Ok(())
    }

    /// Reads every version on a shard's list, whatever its meaning.
    ///
    /// # Errors
    /// When one is missing or unreadable, or storage is unavailable.
    pub async fn load(&mut self, store: &dyn ObjectStore, list: &[RulesFrom]) -> Result<()> {
        for listed in list {
            if !self.known.contains_key(&listed.version) {
                let Stored { meaning, rules } = read(store, &listed.version).await?;
                self.known.insert(listed.version.clone(), Known { rules: Arc::new(rules), meaning });
            }
        }
        Ok(())
    }

    /// The rules to fold a shard's hour by.
    ///
    /// # Errors
    /// When the shard lists none, or one that was not loaded, or this program does not compute their meaning.
    pub fn of(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<HourRules> {
        let Known { rules, meaning } = self.listed(checkpoint, hour)?;
        if !is_computed(*meaning) {
            let object = names::rules(&rules.version);
            return Err(WorkerError::UnknownMeaning { object, meaning: *meaning, computed: computed() });
        }
        Ok(HourRules { rules: Arc::clone(rules), meaning: *meaning })
    }

    /// The rules to judge a shard's events by, each from an hour on: their meaning does not matter.
    ///
    /// # Errors
    /// When it lists one that was not loaded.
    pub fn for_judging(&self, checkpoint: &Checkpoint) -> Result<RulesByHour> {
        let listed = checkpoint
            .rules
            .iter()
            .map(|listed| Ok((listed.from, Arc::clone(&self.listed(checkpoint, listed.from)?.rules))));
        listed.collect::<Result<Vec<_>>>().map(RulesByHour)
    }

    /// The rules to judge one event of a shard's hour by; none where the shard lists none.
    ///
    /// # Errors
    /// When it lists one that was not loaded.
    pub fn judging(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<Option<&Rules>> {
        if checkpoint.rules.is_empty() {
            return Ok(None);
        }
        self.listed(checkpoint, hour).map(|known| Some(&*known.rules))
    }

    /// Whether this program computes the rules of a shard's hour.
    pub fn computes(&self, checkpoint: &Checkpoint, hour: Hour) -> bool {
        self.listed(checkpoint, hour).is_ok_and(|known| is_computed(known.meaning))
    }

    fn listed(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<&Known> {
        let version = checkpoint.rules_of(hour);
        let known = version.and_then(|version| self.known.get(version));
        known.ok_or_else(|| WorkerError::Damaged {
            object: names::checkpoint(checkpoint.shard, checkpoint.seq),
            cause: format!("it lists no rules for hour {hour}"),
        })
    }
}

/// Whether this program computes rules of this meaning.
fn is_computed(meaning: u32) -> bool {
    (RULES_ENGINE_VERSION_OLDEST..=RULES_ENGINE_VERSION).contains(&meaning)
}

/// The meanings that this program computes, in words.
fn computed() -> String {
    format!("{RULES_ENGINE_VERSION_OLDEST} to {RULES_ENGINE_VERSION}")
}

/// Rules, each from an hour on; the first holds before its hour, too.
#[derive(Clone, Debug, Default)]
pub struct RulesByHour(Vec<(Hour, Arc<Rules>)>);

impl RulesByHour {
    /// The rules of an hour; none without any.
    pub fn of(&self, hour: Hour) -> Option<&Rules> {
        let listed = self.0.iter().rev().find(|(from, _)| *from <= hour);
        listed.or(self.0.first()).map(|(_, rules)| &**rules)
    }
}

async fn read(store: &dyn ObjectStore, version: &str) -> Result<Stored> {
    let object = names::rules(version);
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes = store.get(&object).await?.ok_or_else(|| damaged("it is listed but not there".into()))?;
    parse(&object, &bytes)
}

fn parse(object: &str, bytes: &[u8]) -> Result<Stored> {
    let damaged = |cause: String| WorkerError::Damaged { object: object.to_owned(), cause };
    let text = checksum::check_text(bytes).map_err(|mismatch| damaged(mismatch.to_string()))?;
    if text.starts_with(b"{") {
        serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))
    } else {
        serde_saphyr::from_slice(text).map_err(|error| damaged(error.to_string()))
    }
}

/// Puts `version` in force from `from` to `to`, both inclusive and both open when none; other hours keep
/// theirs. `first` and `last` are the shard's first and last hours closed, if any. Returns the closed hours
/// whose version changed.
pub fn rewrite(
    list: &mut Vec<RulesFrom>,
    version: &Text,
    (from, to): (Option<Hour>, Option<Hour>),
    closed: Option<(Hour, Hour)>,
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
    let closed = closed.into_iter().flat_map(|(first, last)| first.0..=last.0);
    closed.map(Hour).filter(|hour| of(&before, *hour) != of(list, *hour)).collect()
}

#[cfg(test)]
mod tests;
