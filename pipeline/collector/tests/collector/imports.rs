//! Lists of commitments of providers, and the file of agreements that they become, byte for byte.
//!
//! `UPDATE_GOLDEN=1` rewrites the file.

use std::path::{Path, PathBuf};

use prorata_collector::agreements::{AgreementsImporter, MachineSize};

/// The documents of the folder.
const DOCUMENTS: [&str; 6] = [
    "gcp.json",
    "aws.json",
    "aws-savings-plan-rates.json",
    "aws-savings-plans.json",
    "azure.json",
    "azure.csv",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/agreements")
}

/// Returns an importer that knows two machine types, and the costs of these ids.
fn importer(costs: &[(&str, &str)]) -> AgreementsImporter {
    let mut importer = AgreementsImporter::default();
    importer.currency = "USD".into();
    importer.region = Some("eu-central-1".into());
    importer.hourly_costs.extend(costs.iter().map(|(id, cost)| ((*id).to_owned(), cost.parse().unwrap())));
    let machine = MachineSize { vcpu: 4, memory_gib: "16".parse().unwrap(), gpu: 0, gpu_model: None };
    importer.machines.insert("m5.xlarge".into(), machine.clone());
    importer.machines.insert("Standard_D4s_v5".into(), machine);
    importer
}

/// Asserts that the importer has left out exactly these entries. Each expected entry is a count, and the
/// beginnings of the reason and of the example.
fn assert_left_out(importer: AgreementsImporter, expected: &[(u64, &str, &str)]) -> (String, usize) {
    let (yaml, count, imported) = importer.finish("acme");
    let mut left: Vec<_> = imported.skipped.iter().collect();
    for (count, reason, example) in expected {
        let at = left.iter().position(|(of, found)| {
            found.count == *count && of.starts_with(reason) && found.example.starts_with(example)
        });
        left.remove(at.unwrap_or_else(|| panic!("{count} {reason}: {example} is not in {left:#?}")));
    }
    assert!(left.is_empty(), "{left:#?}");
    (yaml, count)
}

#[test]
fn lists_become_agreements_and_reasons() {
    let costs =
        [("n2-iowa", "1.6"), ("g2-iowa", "2.5"), ("az-1", "0.3"), ("az-3", "0.1"), ("az-csv-1", "0.2")];
    let mut importer = importer(&[&costs[..], &[("n3-iowa", "1"), ("old", "1")]].concat());
    importer.machines.insert("m6.xlarge".into(), importer.machines["m5.xlarge"].clone());
    for name in DOCUMENTS {
        importer.read(name, std::fs::read(folder().join(name)).unwrap().as_slice());
    }
    let expected = [
        (2, "--hourly-cost without an imported commitment", "n3-iowa"),
        (1, "--machine without a commitment", "m6.xlarge"),
        (1, "a commitment to licences", "licence"),
        (1, "a committed resource other than vCPU, memory and GPU", "with-ssd: LOCAL_SSD"),
        (1, "a machine of unknown size", "ri-4: type 'c5.large'"),
        (1, "a reservation of machines", "cr-1"),
        (2, "a type that is not certain", "m1-or-m2: type 'MEMORY_OPTIMIZED'"),
        (3, "a value that cannot be read", ""),
        (2, "an empty field", ""),
        (2, "an id that an earlier entry has", "ri-1"),
        (1, "another currency", "ri-3: 'CNY'"),
        (1, "further pages of a list that is not complete", "'aws.json': NextToken"),
        (4, "not active", ""),
        (2, "not a reservation of virtual machines", "az-2: 'SqlDatabases'"),
        (2, "not for Linux/UNIX on shared hardware", "ri-5: 'Windows', tenancy 'default'"),
        (1, "a savings plan of another service", "sp-ml: type 'SageMaker'"),
        (1, "a savings plan without rates", "sp-1"),
        (1, "a rate for another product than Linux/UNIX", "EC2 BoxUsage:m5.xlarge"),
        (1, "a rate of another region than --region", "us-east-1"),
        (1, "without a cost", "no-cost"),
        (1, "without vCPU, memory and GPU", "empty"),
    ];
    let (yaml, count) = assert_left_out(importer, &expected);
    let golden = folder().join("agreements.yaml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &yaml).unwrap();
    }
    assert_eq!(count, 7);
    assert_eq!(yaml, std::fs::read_to_string(golden).unwrap());
}

/// Returns an importer without machines, so that it reports none as unused.
fn bare() -> AgreementsImporter {
    let mut bare = importer(&[]);
    bare.machines.clear();
    bare
}

#[test]
fn documents_of_another_form_are_named() {
    let mut importer = bare();
    importer.read("cut.json", br#"[{"savingsPlanId": "sp-2"}, {"savings"#.as_slice());
    importer.read("one.json", br#"{"name": "n2-iowa", "plan": "TWELVE_MONTH"}"#.as_slice());
    importer.read("wrapped.json", br#"{"items": {"name": "n2-iowa"}}"#.as_slice());
    let export = std::fs::read_to_string(folder().join("azure.csv")).unwrap();
    let without = export.replace(",Region,", ",Place,").replace("Quantity", "Amount");
    importer.read("azure.csv", without.as_bytes());
    importer.read("list.txt", b"n2-iowa\n".as_slice());
    importer.read("empty.json", b"".as_slice());
    let (_, count) = assert_left_out(
        importer,
        &[
            (2, "an object without a list; expected is", "'one.json': an object with name, plan"),
            (2, "a document that is neither JSON nor", "'azure.csv': without the column Quantity, Region"),
            (1, "not active", "sp-2: state ''"),
            (2, "the rest of a document that is damaged", "'cut.json': EOF"),
        ],
    );
    assert_eq!(count, 0);
}

#[test]
fn an_element_has_a_bound_and_a_document_has_none() {
    let plan = r#"{"savingsPlanId": "sp-2"}"#;
    let long = "x".repeat(2 << 20);
    let mut importer = bare();
    // Three elements of half the bound.
    let half = format!(r#"{{"savingsPlanId": "sp-1", "description": "{}"}}"#, "x".repeat(1 << 19));
    importer.read("long.json", format!("[{half}, {half}, {half}, {plan}]").as_bytes());
    importer.read("wide.json", format!(r#"[{plan}, {{"savingsPlanId": "{long}"}}, {plan}]"#).as_bytes());
    let head = std::fs::read_to_string(folder().join("azure.csv")).unwrap();
    let head = head.lines().next().unwrap();
    importer.read("wide.csv", format!("{head}\n\"{long}\",a,o,Succeeded\n").as_bytes());
    let lines = "n,a,o,Succeeded,,,,,,,Other\n".repeat(100_000);
    importer.read("long.csv", format!("{head}\n{lines}").as_bytes());
    assert_left_out(
        importer,
        &[
            (100_000, "not a reservation of virtual machines", "a: 'Other'"),
            (5, "not active", "sp-1: state ''"),
            (2, "the rest of a document that is damaged", "'wide.json': an element is larger than 1 MiB"),
        ],
    );
}

#[test]
fn rates_find_their_plan_or_are_reported() {
    let rate = r#"{"rate": "0.1", "unit": "Hrs", "productType": "EC2", "usageType": "BoxUsage:m5.large",
        "properties": [{"name": "region", "value": "eu-central-1"}, {"name": "tenancy", "value": "shared"},
            {"name": "instanceType", "value": "m5.large"},
            {"name": "productDescription", "value": "Linux/UNIX"}]}"#;
    let mut importer = bare();
    importer.read("page-1.json", format!(r#"{{"searchResults": [{rate}]}}"#).as_bytes());
    importer
        .read("page-2.json", format!(r#"{{"searchResults": [{rate}], "savingsPlanId": "x"}}"#).as_bytes());
    let many = vec![rate; 4097].join(",");
    importer.read("many.json", format!(r#"{{"searchResults": [{many}], "savingsPlanId": "x"}}"#).as_bytes());
    assert_left_out(
        importer,
        &[
            (1, "rates without savingsPlanId", "'page-1.json'"),
            (1, "rates of a savings plan that no document describes", "x"),
            (2, "more rates than a savings plan may have", ""),
        ],
    );
}
