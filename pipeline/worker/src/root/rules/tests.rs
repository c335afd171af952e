//! Rules are read in both stored forms, and the list of a shard is rewritten for the hours that were named.

use super::*;

/// What the release before stored for the default rules.
const OLD_DEFAULT: &str = r##"# checksum: 20464d1589d0ccd9bd3de8ea7fe311b998b7d2c1695485208b14c66b2918a5e7
meaning: 1
rules:
  version: '1'
  weights:
    gpu: '9'
    cpu: '0.9'
    memory: '0.1'
  allocation: max
  gpu_resources:
  - nvidia.com/gpu
  - amd.com/gpu
  - aws.amazon.com/neuron
  - google.com/tpu
  gpu_memory_gb: 32
  eviction_protection_ratio: '1.2'
  currency: USD
  currencies: {}
"##;

/// What the release before stored for [`odd`].
const OLD_ODD: &str = r##"# checksum: 1f6703afa3bc74596c96decc445a80fbe0ec17693b8cf3fad84be49cb3268254
meaning: 1
rules:
  version: '2026.11'
  weights:
    gpu: '12.5'
    cpu: '0.9'
    memory: '0.1'
  allocation: max
  gpu_resources:
  - nvidia.com/gpu
  - amd.com/gpu
  - aws.amazon.com/neuron
  - google.com/tpu
  gpu_memory_gb: 32
  eviction_protection_ratio: '1.2'
  currency: EUR
  currencies:
    '': USD
    ' pad ': SEK
    '''q"': USD
    '*a &b !c %d @e `f': GBP
    '- dash': JPY
    '0x10': USD
    '1e3': CHF
    2026-11-20: USD
    a\b: USD
    'acme: #1': USD
    ? "line\nbreak\t\x7F\N\uFEFF"
    : NOK
    'null': USD
    yes: USD
    zürich 💰: CHF
    '{x}[y],': GBP
    '~': USD
"##;

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
    Stored { meaning: RULES_ENGINE_VERSION, rules }.to_bytes().unwrap()
}

#[test]
fn rules_of_the_release_before_are_read() {
    assert_eq!(parse("rules/1.yaml", OLD_DEFAULT.as_bytes()).unwrap(), Rules::default());
    assert_eq!(parse("rules/2026.11.yaml", OLD_ODD.as_bytes()).unwrap(), odd());
}

#[test]
fn rules_are_stored_as_json_behind_their_checksum() {
    let bytes = stored(Rules::default());
    let (line, json) = std::str::from_utf8(&bytes).unwrap().split_once('\n').unwrap();
    assert!(line.starts_with("# checksum: "), "{line}");
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!((&value["meaning"], &value["rules"]["version"]), (&RULES_ENGINE_VERSION.into(), &"1".into()));
    for rules in [Rules::default(), odd()] {
        assert_eq!(parse("rules/1.yaml", &stored(rules.clone())).unwrap(), rules);
    }
}

/// The release before reads with this crate, once it has checked and cut off the first line.
#[test]
fn the_release_before_reads_what_this_one_stores() {
    for rules in [Rules::default(), odd()] {
        let bytes = stored(rules.clone());
        let read: Stored = serde_yaml::from_slice(checksum::check_text(&bytes).unwrap()).unwrap();
        assert_eq!(read, Stored { meaning: RULES_ENGINE_VERSION, rules });
    }
}

#[test]
fn damaged_rules_are_refused_in_both_forms() {
    for bytes in [Bytes::from_static(OLD_DEFAULT.as_bytes()), stored(odd())] {
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
