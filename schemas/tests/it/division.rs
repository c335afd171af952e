//! Entries of the configuration that divide shared charges: which lines match, and which entries are wrong.

use prorata_samples::bill::bill_line;
use prorata_schemas::event::{BillLine, BillSet};
use prorata_schemas::rules::division::{ChargeDivision, DIVISIONS_MAX, check_divisions};
use prorata_schemas::time::Timestamp;

/// Returns an entry from its JSON without the braces.
fn entry(json: &str) -> ChargeDivision {
    serde_json::from_str(&format!("{{{json}}}")).unwrap()
}

fn set() -> BillSet {
    BillSet {
        provider: "AWS".into(),
        billing_account_id: "1111".into(),
        resource_key: "arn:aws:eks:r:1:cluster/prod".into(),
        currency: "USD".into(),
        lines: vec![BillLine {
            service: "Amazon EKS".into(),
            ..bill_line("l", Timestamp(3_600_000_000), "1")
        }],
    }
}

#[test]
fn a_line_matches_if_it_has_every_value_that_the_entry_names() {
    let set = set();
    let matches = |json: &str| entry(json).matches("acme", &set, &set.lines[0]);
    for json in [
        r#""over": "cost""#,
        r#""organization_id": "acme", "over": "cpu""#,
        r#""organization_id": "ac*", "provider": "Amazon Web Services", "over": "memory""#,
        r#""provider": "amazon*", "billing_account_id": "11*", "over": "gpu""#,
        r#""service": "Amazon EKS", "category": "Usage", "over": "pods""#,
        r#""resource_key": "arn:aws:eks:*", "over": "pods""#,
    ] {
        assert!(matches(json), "{json}");
    }
    for json in [
        r#""organization_id": "acm", "over": "cost""#,
        r#""provider": "gcp", "over": "cost""#,
        r#""billing_account_id": "111", "over": "cost""#,
        r#""account_id": "*", "over": "cost""#,
        r#""service": "Amazon", "over": "cost""#,
        r#""category": "Tax", "over": "cost""#,
        r#""resource_key": "arn:aws:s3*", "service": "Amazon EKS", "over": "cost""#,
    ] {
        assert!(!matches(json), "{json}");
    }
}

#[test]
fn an_entry_names_pods_by_cluster_and_namespace() {
    let bears = |json: &str| entry(json).has_pods_of(&"prod".into(), &"web".into());
    assert!(bears(r#""over": "cost""#));
    assert!(bears(r#""cluster_id": "prod", "namespace": "web", "over": "cost""#));
    assert!(!bears(r#""cluster_id": "test", "namespace": "web", "over": "cost""#));
    assert!(!bears(r#""cluster_id": "prod", "namespace": "we", "over": "cost""#));
}

#[test]
fn faults_name_the_entry_and_the_key() {
    let fault = |json: &str| {
        let entries = [entry(r#""over": "cost""#), entry(json)];
        check_divisions(&entries).map_err(|fault| fault.to_string())
    };
    assert_eq!(fault(r#""service": "*", "over": "cost""#), Ok(()));
    let wrong = [
        (r#""service": """#, "rules.shared_charges, entry 2: service is empty; leave the key out"),
        (r#""account_id": "1*2""#, "entry 2: account_id '1*2' has a * before its end"),
        (r#""provider": "**""#, "entry 2: provider '**' has a * before its end"),
        (r#""namespace": "team-*""#, "entry 2: namespace 'team-*' has a *, but it names one"),
        (r#""cluster_id": """#, "entry 2: cluster_id is empty"),
    ];
    for (json, expected) in wrong {
        let found = fault(&format!(r#"{json}, "over": "pods""#)).unwrap_err();
        assert!(found.contains(expected), "{json}: {found}");
    }
    let many = vec![entry(r#""over": "cost""#); DIVISIONS_MAX + 1];
    let found = check_divisions(&many).unwrap_err().to_string();
    assert_eq!(found, "rules.shared_charges has 1001 entries, above the limit of 1000");
    assert_eq!(check_divisions(&many[1..]), Ok(()));
}

#[test]
fn an_entry_has_no_unknown_keys_and_says_over_what_it_divides() {
    for json in [r#"{"over": "cost", "label": "x"}"#, r#"{"service": "x"}"#, r#"{"over": "Cost"}"#] {
        assert!(serde_json::from_str::<ChargeDivision>(json).is_err(), "{json}");
    }
}
