//! Rules are read in both stored forms, and the list of a shard is rewritten for the hours that were named.

use super::*;

/// A file of `testdata/stored-rules`: `.yaml` as the release before stored it, `.json` as this one does.
fn fixture(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stored-rules");
    std::fs::read(folder.join(name)).unwrap()
}

/// Rules with names of organizations that YAML writes each in its own way.
fn odd() -> Rules {
    let mut rules = Rules { version: "2026.11".into(), currency: "EUR".into(), ..Rules::default() };
    rules.weights.gpu = "12.5".parse().unwrap();
    let currencies = [
        ("yes", "USD"),
        ("1e3", "CHF"),
        ("acme: #1", "USD"),
        ("'q\"", "USD"),
        ("~", "USD"),
        ("zürich 💰", "CHF"),
        (" pad ", "SEK"),
        ("line\nbreak\t\u{7f}\u{85}\u{feff}", "NOK"),
        ("- dash", "JPY"),
        ("*a &b !c %d @e `f", "GBP"),
        ("{x}[y],", "GBP"),
        ("0x10", "USD"),
        ("null", "USD"),
        ("", "USD"),
        ("2026-11-20", "USD"),
        ("a\\b", "USD"),
    ];
    rules
        .currencies
        .extend(currencies.map(|(organization, currency)| (organization.into(), currency.into())));
    rules
}

fn stored(rules: Rules) -> Bytes {
    Stored { meaning: RULES_ENGINE_VERSION_OLDEST, rules }.to_bytes().unwrap()
}

#[test]
fn rules_of_the_release_before_are_read() {
    assert_eq!(parse("rules/1.yaml", &fixture("default.yaml")).unwrap().rules, Rules::default());
    assert_eq!(parse("rules/2026.11.yaml", &fixture("odd.yaml")).unwrap().rules, odd());
}

#[test]
fn rules_are_stored_as_json_behind_their_checksum() {
    let bytes = stored(Rules::default());
    let (line, json) = std::str::from_utf8(&bytes).unwrap().split_once('\n').unwrap();
    assert!(line.starts_with("# checksum: "), "{line}");
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((&value["meaning"], &value["rules"]["version"]), (&1.into(), &"1".into()));
    for rules in [Rules::default(), odd()] {
        assert_eq!(parse("rules/1.yaml", &stored(rules.clone())).unwrap().rules, rules);
    }
}

/// The release before reads these files with serde_yaml 0.9: that was tested when they were stored. Another
/// form of the same rules must be tested with it before these files change.
#[test]
fn rules_are_stored_in_the_form_that_the_release_before_reads() {
    for (name, rules) in [("default.json", Rules::default()), ("odd.json", odd())] {
        assert_eq!(stored(rules), fixture(name), "{name}");
    }
}

/// Hours of one version are folded alike by every release, so a new default needs a new default version.
#[test]
fn what_the_default_version_says_never_changes() {
    let found = parse("rules/1.yaml", &fixture("default.yaml")).unwrap();
    assert_eq!(found, Stored { meaning: 1, rules: Rules::default() });
}

#[test]
fn damaged_rules_are_refused_in_both_forms() {
    for bytes in [Bytes::from(fixture("default.yaml")), stored(odd())] {
        for at in [0, 20, bytes.len() / 2, bytes.len() - 2] {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1;
            let error = parse("rules/1.yaml", &flipped).unwrap_err();
            assert!(matches!(error, WorkerError::Damaged { .. }), "byte {at}: {error}");
        }
    }
}

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
