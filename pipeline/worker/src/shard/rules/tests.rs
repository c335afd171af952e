//! Rules are stored and read back, and the list of a shard is rewritten for the hours that were named.

use super::*;

fn stored(rules: Rules) -> Bytes {
    StoredRules { engine_version: 1, rules: Arc::new(rules) }.to_json().unwrap()
}

/// Hours of one version are folded alike by every release, so a new default needs a new default version.
#[test]
fn the_default_version_never_changes() {
    let json = concat!(
        r#"{"engine_version":1,"rules":{"version":"1","weights":{"gpu":"9","cpu":"0.9","memory":"0.1"},"#,
        r#""allocation":"max","gpu_resources":["nvidia.com/gpu","amd.com/gpu","aws.amazon.com/neuron","#,
        r#""google.com/tpu"],"gpu_memory_gb":32,"eviction_protection_ratio":"1.2","currency":"USD","#,
        r#""currencies":{},"shared_charges":[]}}"#,
    );
    assert_eq!(stored(Rules::default()), checksum::add_to_json(json.as_bytes()));
}

#[test]
fn rules_are_read_back_as_stored() {
    let mut rules = Rules { version: "2026.11".into(), currency: "EUR".into(), ..Rules::default() };
    rules.weights.gpu = "12.5".parse().unwrap();
    rules.currencies.extend([("zürich 💰".into(), "CHF".into()), ("line\nbreak\u{7f}".into(), "NOK".into())]);
    assert_eq!(*parse("rules/2026.11.json", &stored(rules.clone())).unwrap().rules, rules);
}

#[test]
fn damaged_rules_are_refused() {
    let bytes = stored(Rules::default());
    for at in [0, 20, bytes.len() / 2, bytes.len() - 2] {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1;
        let error = parse("rules/1.json", &flipped).unwrap_err();
        assert!(matches!(error, WorkerError::Damaged { .. }), "byte {at}: {error}");
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
    let changed = rewrite(
        &mut rules,
        &"3".into(),
        Some(Hour(40)),
        Some(Hour(59)),
        Some(HourRange::new(Hour(0), Hour(55))),
    );
    assert_eq!(rules, list(&[(0, "1"), (40, "3"), (60, "2")]));
    assert_eq!(changed, (40..=55).map(Hour).collect::<Vec<_>>());
}

#[test]
fn a_rewrite_of_everything_leaves_one_version() {
    let mut rules = list(&[(0, "1"), (50, "2")]);
    let changed = rewrite(&mut rules, &"2".into(), None, None, Some(HourRange::new(Hour(0), Hour(99))));
    assert_eq!(rules, list(&[(0, "2")]));
    assert_eq!(changed.len(), 50);
}

#[test]
fn a_rewrite_may_lie_before_the_list_begins() {
    let mut rules = list(&[(50, "1")]);
    let changed =
        rewrite(&mut rules, &"2".into(), None, Some(Hour(10)), Some(HourRange::new(Hour(9), Hour(12))));
    assert_eq!(rules, list(&[(10, "2"), (11, "1")]));
    assert_eq!(changed, [Hour(9), Hour(10)]);
}

#[test]
fn a_rewrite_to_the_same_version_changes_nothing() {
    let mut rules = list(&[(0, "1")]);
    assert!(
        rewrite(&mut rules, &"1".into(), Some(Hour(3)), None, Some(HourRange::new(Hour(0), Hour(9))))
            .is_empty()
    );
    assert_eq!(rules, list(&[(0, "1")]));
}
