//! Rules as data: every version stands under `rules/` in the root, and a shard's list says which holds from when.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prorata_engine::MEANING;
use prorata_schemas::Text;
use prorata_schemas::rules::Rules;
use prorata_schemas::time::Hour;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, RulesFrom};
use crate::error::{Result, WorkerError};
use crate::names;
use crate::objects;
use crate::ports::{FormatError, ObjectStore};
use crate::sealed;

/// A version of the rules as it stands in the root: with the meaning that the engine gave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Version of the engine's own meaning, [`prorata_engine::MEANING`].
    meaning: u32,
    rules: Rules,
}

/// Versions of the rules that this run has met.
#[derive(Clone, Debug, Default)]
pub struct RuleBook(BTreeMap<Text, Arc<Rules>>);

impl RuleBook {
    /// Stores a version unless it is there already.
    ///
    /// # Errors
    /// When the root has other rules under this version, or storage is unavailable.
    pub async fn store(&mut self, store: &dyn ObjectStore, rules: &Rules) -> Result<()> {
        let version = &rules.version;
        if !names::is_rules_version(version) {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' cannot name a file; use at most 64 letters, digits, '.', '_' or '-'"
            )));
        }
        let object = names::rules(version);
        let stored = Stored { meaning: MEANING, rules: rules.clone() };
        let yaml = serde_yaml::to_string(&stored).map_err(|error| FormatError::new("encode rules", error))?;
        let found = objects::create(store, &object, &Bytes::from(sealed::seal_yaml(yaml.as_bytes()))).await?;
        if parse(&object, &found)? != *rules {
            return Err(WorkerError::Configuration(format!(
                "rules.version '{version}' is in the root with other rules ('{object}'); \
                 give the changed rules a version of their own"
            )));
        }
        self.0.insert(version.clone(), Arc::new(rules.clone()));
        Ok(())
    }

    /// Reads every version on a shard's list.
    ///
    /// # Errors
    /// When one is missing or unreadable, or storage is unavailable.
    pub async fn load(&mut self, store: &dyn ObjectStore, list: &[RulesFrom]) -> Result<()> {
        for listed in list {
            if !self.0.contains_key(&listed.version) {
                let rules = read(store, &listed.version).await?;
                self.0.insert(listed.version.clone(), Arc::new(rules));
            }
        }
        Ok(())
    }

    /// The rules of a shard's hour.
    ///
    /// # Errors
    /// When the shard lists none, or one that was not loaded.
    pub fn of(&self, checkpoint: &Checkpoint, hour: Hour) -> Result<Arc<Rules>> {
        let version = checkpoint.rules_of(hour);
        let rules = version.and_then(|version| self.0.get(version));
        rules.cloned().ok_or_else(|| WorkerError::Damaged {
            object: names::checkpoint(checkpoint.shard, checkpoint.seq),
            cause: format!("it lists no rules for hour {hour}"),
        })
    }
}

async fn read(store: &dyn ObjectStore, version: &str) -> Result<Rules> {
    let object = names::rules(version);
    let damaged = |cause: String| WorkerError::Damaged { object: object.clone(), cause };
    let bytes = store.get(&object).await?.ok_or_else(|| damaged("it is listed but not there".into()))?;
    parse(&object, &bytes)
}

fn parse(object: &str, yaml: &[u8]) -> Result<Rules> {
    let damaged = |cause: String| WorkerError::Damaged { object: object.to_owned(), cause };
    let yaml = sealed::open_yaml(yaml).map_err(|broken| damaged(broken.to_string()))?;
    let stored: Stored = serde_yaml::from_slice(yaml).map_err(|error| damaged(error.to_string()))?;
    if stored.meaning != MEANING {
        let meaning = stored.meaning;
        return Err(WorkerError::Configuration(format!(
            "'{object}' has meaning {meaning}, this program computes {MEANING}; use the release that wrote it, or fold \
             its hours again under rules of another version"
        )));
    }
    Ok(stored.rules)
}

/// Puts `version` in force from `from` to `to`, both inclusive and both open when none; other hours keep theirs.
/// `first` and `last` are the shard's first and last hours closed, if any. Returns the closed hours whose version
/// changed.
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
mod tests {
    use super::*;

    fn list(entries: &[(i64, &str)]) -> Vec<RulesFrom> {
        entries
            .iter()
            .map(|(from, version)| RulesFrom { from: Hour(*from), version: (*version).into() })
            .collect()
    }

    #[test]
    fn a_rewrite_changes_its_hours_and_no_others() {
        let mut rules = list(&[(0, "1"), (50, "2")]);
        let changed =
            rewrite(&mut rules, &"3".into(), (Some(Hour(40)), Some(Hour(59))), Some((Hour(0), Hour(55))));
        assert_eq!(rules, list(&[(0, "1"), (40, "3"), (60, "2")]));
        assert_eq!(changed, (40..=55).map(Hour).collect::<Vec<_>>());
    }

    #[test]
    fn a_rewrite_of_everything_leaves_one_version() {
        let mut rules = list(&[(0, "1"), (50, "2")]);
        let changed = rewrite(&mut rules, &"2".into(), (None, None), Some((Hour(0), Hour(99))));
        assert_eq!(rules, list(&[(0, "2")]));
        assert_eq!(changed.len(), 50);
    }

    #[test]
    fn a_rewrite_may_lie_before_the_list_begins() {
        let mut rules = list(&[(50, "1")]);
        let changed = rewrite(&mut rules, &"2".into(), (None, Some(Hour(10))), Some((Hour(9), Hour(12))));
        assert_eq!(rules, list(&[(10, "2"), (11, "1")]));
        assert_eq!(changed, [Hour(9), Hour(10)]);
    }

    #[test]
    fn a_rewrite_to_the_same_version_changes_nothing() {
        let mut rules = list(&[(0, "1")]);
        assert!(rewrite(&mut rules, &"1".into(), (Some(Hour(3)), None), Some((Hour(0), Hour(9)))).is_empty());
        assert_eq!(rules, list(&[(0, "1")]));
    }
}
