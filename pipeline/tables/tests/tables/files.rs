//! The other tables, and properties of every file: bytes, statistics, types, errors.

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::HourTables;
use prorata_schemas::tables::{HourClock, Table};
use prorata_schemas::time::WallTime;
use prorata_tables::{EncodeError, encode, schema, stats_columns};

use crate::read::{HOUR, assert_values, clock, file, read, texts};
use prorata_samples::hour::{dec, empty_hour, full_hour};

#[test]
fn own_tables_hold_their_rows() {
    let hours = [full_hour("acme", HOUR), full_hour("bird", HOUR)];
    let row = |table| texts(&read(&file(table, &hours).bytes), 1);
    let key = [("organization_id", "bird"), ("hour", "2026-11-20T13:00:00.000000Z")];
    for table in [Table::ReservationUsage, Table::CommitmentUtilization, Table::QuotaUsage, Table::PoolUsage]
    {
        assert_values(&row(table), &key);
    }
    assert_values(
        &row(Table::ReservationUsage),
        &[
            ("provider", "alibaba"),
            ("quantity", "1"),
            ("ends_at", "-"),
            ("currency", "USD"),
            ("used_by", r#"{"g":1800}"#),
            ("utilization", "0.5"),
            ("zone", "-"),
            ("unused_cost", "1"),
        ],
    );
    assert_values(
        &row(Table::CommitmentUtilization),
        &[
            ("clusters", r#"{"prod":{"vcpu_hours":96,"gib_hours":384,"cost":1.8}}"#),
            ("committed_vcpu_hours", "160"),
            ("covered_gib_hours", "384"),
            ("provisioned_vcpu_hours", "192"),
            ("covered_gpu_hours", "0"),
            ("raw_utilization", "1.2"),
            ("planned_utilization", "0.5"),
            ("planned_gib_hours", "320"),
            ("provider", "aws"),
            ("kind", "RESERVED_INSTANCE"),
            ("instance_family", "g5"),
            ("gpu_model", "-"),
            ("currency", "USD"),
            ("hourly_cost", "3"),
            ("enabled", "true"),
            ("allowed_utilization", "0.5"),
            ("state", "active"),
        ],
    );
    assert_values(
        &row(Table::QuotaUsage),
        &[
            ("kind", "ELASTIC_QUOTA"),
            ("namespaces", r#"["team-a","team-b"]"#),
            ("max", "-"),
            ("over_quota_pods_peak", "1"),
        ],
    );
    assert_values(
        &row(Table::PoolUsage),
        &[
            ("budget_day", "24"),
            ("budget_month", "-"),
            ("budget_exceeded", "-"),
            ("saved_costs_per_month", "-657"),
        ],
    );
}

#[test]
fn hours_have_a_row_for_every_organization_and_the_clock_columns_last() {
    let hours = [full_hour("acme", HOUR), empty_hour("calm", HOUR)];
    let encoded = file(Table::Hours, &hours);
    let batch = read(&encoded.bytes);
    assert_eq!((encoded.rows, batch.num_rows()), (2, 2));
    assert_values(
        &texts(&batch, 0),
        &[
            ("supply_cost", "18.84708"),
            ("bill_cost", "0.5"),
            ("bill_billed_cost", "0.4"),
            ("basis", "partial"),
            ("rows", "20"),
            ("complete", "true"),
            ("late_events", "2"),
            ("max_event_time_seen", "2026-11-20T13:00:00.000005Z"),
            ("revision", "3"),
            ("last_updated", "2026-11-20T14:00:00.000000Z"),
        ],
    );
    assert_values(&texts(&batch, 1), &[("organization_id", "calm"), ("supply_cost", "0"), ("rows", "0")]);
    let schema = schema(Table::Hours);
    let last: Vec<_> = schema.fields().iter().rev().take(5).map(|field| field.name().as_str()).collect();
    assert_eq!(last, ["last_updated", "revision", "complete", "max_event_time_seen", "late_events"]);
}

#[test]
fn a_table_without_rows_has_no_file_except_hours() {
    let hours = [empty_hour("calm", HOUR)];
    for table in Table::HOURLY {
        let encoded = encode(table, &hours, &[clock()]).unwrap();
        assert_eq!(encoded.is_some(), table == Table::Hours, "{}", table.name());
    }
    assert_eq!(encode(Table::CostAllocation, &[], &[]).unwrap(), None);
}

#[test]
fn bytes_depend_on_rows_alone_and_on_every_one_of_them() {
    let hours = [full_hour("acme", HOUR), full_hour("bird", HOUR)];
    for table in Table::HOURLY {
        let (first, second) = (file(table, &hours), file(table, &hours));
        assert_eq!(first, second);
        assert_eq!(first.digest.len(), 32);
    }
    let mut changed = hours.clone();
    changed[1].cost_allocation[5].effective_cost = dec("0.450000000001");
    let digest = |hours: &[HourTables]| file(Table::CostAllocation, hours).digest;
    assert_ne!(digest(&hours), digest(&changed));
}

#[test]
fn the_content_of_hours_leaves_the_clock_out() {
    let hours = [full_hour("acme", HOUR)];
    let with =
        |clock: HourClock, hours: &[HourTables]| encode(Table::Hours, hours, &[clock]).unwrap().unwrap();
    let before = with(clock(), &hours);
    let later = HourClock {
        late_events: 9,
        max_event_time_seen: None,
        complete: false,
        revision: 4,
        last_updated: WallTime(0),
    };
    let after = with(later, &hours);
    assert_eq!(before.digest, after.digest);
    assert_ne!(before.bytes, after.bytes);
    let mut changed = hours.clone();
    changed[0].totals.events += 1;
    assert_ne!(before.digest, with(clock(), &changed).digest);
}

/// Every commit of a table's log has statistics, and every reader loads all of them.
#[test]
fn statistics_of_the_longest_names_are_short() {
    let name = "ä".repeat(512);
    let stats = file(Table::CostAllocation, &[full_hour(&name, HOUR)]).stats;
    assert!(stats.len() < 2_000, "{} bytes", stats.len());
    let (least, greatest) = ("ä".repeat(32), format!("{}å", "ä".repeat(31)));
    assert!(stats.contains(&format!("\"BillingAccountId\":\"{least}\"")), "{stats}");
    assert!(stats.contains(&format!("\"BillingAccountId\":\"{greatest}\"")), "{stats}");
}

#[test]
fn statistics_are_exact_and_cover_the_named_columns() {
    let hours = [full_hour("acme", HOUR), full_hour("bird", HOUR)];
    let stats = file(Table::CostAllocation, &hours).stats;
    let expected = concat!(
        r#"{"numRecords":40,"minValues":{"BilledCost":-0.5,"BillingAccountId":"acme","#,
        r#""ChargePeriodStart":"2026-11-20T13:00:00.000000Z","EffectiveCost":-0.5,"ListCost":-0.5,"#,
        r#""ResourceId":"c1","#,
        r#""SubAccountId":"prod","x_ClusterId":"prod","x_Namespace":"team-a","x_PodUid":"a","#,
        r#""x_RowKind":"commitment_purchase"},"maxValues":{"BilledCost":5,"BillingAccountId":"bird","#,
        r#""ChargePeriodStart":"2026-11-20T13:00:00.000000Z","EffectiveCost":5,"ListCost":5,"#,
        r#""ResourceId":"r1","#,
        r#""SubAccountId":"prod","x_ClusterId":"prod","x_Namespace":"team-a","x_PodUid":"h","#,
        r#""x_RowKind":"shared_charge"},"nullCount":{"BilledCost":0,"BillingAccountId":0,"#,
        r#""ChargePeriodStart":0,"EffectiveCost":0,"ListCost":0,"ResourceId":2,"SubAccountId":8,"#,
        r#""x_ClusterId":8,"x_Namespace":14,"x_PodUid":14,"x_RowKind":0}}"#,
    );
    assert_eq!(stats, expected);
    let totals = file(Table::Hours, &hours).stats;
    assert!(totals.contains(r#""supply_cost":18.84708"#), "{totals}");
    for table in Table::HOURLY {
        let schema = schema(table);
        assert!(
            stats_columns(table).iter().all(|name| schema.field_with_name(name).is_ok()),
            "{}",
            table.name()
        );
    }
}

#[test]
fn a_file_is_compressed_typed_and_has_page_statistics() {
    let encoded = file(Table::CostAllocation, &[full_hour("acme", HOUR)]);
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(&encoded.bytes)).unwrap();
    let metadata = reader.metadata();
    assert_eq!(metadata.file_metadata().created_by(), Some("prorata version 1"));
    for column in metadata.row_group(0).columns() {
        // A column with one value in the whole file is only a few bytes.
        let name = column.column_path().string();
        let constant = matches!(name.as_str(), "BillingAccountId" | "BillingCurrency" | "ChargePeriodStart");
        let varied = matches!(name.as_str(), "ResourceId" | "BilledCost" | "EffectiveCost" | "x_RowKind");
        match column.compression() {
            Compression::ZSTD(_) => assert!(!constant, "{name}"),
            Compression::UNCOMPRESSED => assert!(!varied, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        // Nobody compares these texts.
        let is_long = matches!(
            name.as_str(),
            "AllocatedMethodDetails" | "AllocatedTags" | "ChargeDescription" | "SkuPriceDetails" | "Tags"
        );
        assert_eq!(column.statistics().is_some(), !is_long, "{name}");
        assert_eq!(column.column_index_offset().is_some(), !is_long, "{name}");
        let is_distinct = matches!(name.as_str(), "x_PodUid" | "EffectiveCost" | "ChargeDescription");
        assert!(!is_distinct || column.dictionary_page_offset().is_none(), "{name}");
        assert!(name != "ResourceId" || column.dictionary_page_offset().is_some(), "{name}");
    }
    let logical = |name: &str| {
        let columns = metadata.file_metadata().schema_descr().columns();
        columns
            .iter()
            .find(|column| column.name() == name)
            .and_then(|column| column.logical_type_ref().cloned())
    };
    assert_eq!(logical("Tags"), Some(LogicalType::Json));
    assert_eq!(logical("ResourceId"), Some(LogicalType::String));
    assert_eq!(logical("BilledCost"), Some(LogicalType::decimal(12, 38)));
    assert!(matches!(
        logical("ChargePeriodStart"),
        Some(LogicalType::Timestamp(time)) if time.is_adjusted_to_u_t_c
    ));
}

#[test]
fn entries_out_of_order_are_refused_by_name() {
    let (acme, bird) = (full_hour("acme", HOUR), full_hour("bird", HOUR));
    let refusal = |table, hours: &[HourTables]| {
        encode(table, hours, &vec![clock(); hours.len()]).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(Table::Hours, &[bird.clone(), acme.clone()]),
        "organization 'acme' is not in ascending order of organizations"
    );
    assert_eq!(
        refusal(Table::Hours, &[acme.clone(), acme.clone()]),
        "organization 'acme' is not in ascending order of organizations"
    );
    assert_eq!(
        refusal(Table::Hours, &[acme.clone(), full_hour("bird", HOUR.next())]),
        "organization 'bird' has hour 2026-11-20T14, the file is of hour 2026-11-20T13"
    );
    let mut swapped = acme.clone();
    swapped.cost_allocation.swap(3, 4);
    assert_eq!(
        refusal(Table::CostAllocation, &[swapped]),
        "row 4 of cost_allocation of organization 'acme' is not in ascending order of the table's grain"
    );
    let mut doubled = acme.clone();
    doubled.quota_usage.extend(acme.quota_usage.clone());
    assert_eq!(
        refusal(Table::QuotaUsage, &[doubled]),
        "row 1 of quota_usage of organization 'acme' is not in ascending order of the table's grain"
    );
    assert!(matches!(
        encode(Table::Hours, std::slice::from_ref(&acme), &[]),
        Err(EncodeError::ClockCount { clocks: 0, hours: 1 })
    ));
    let mut wide = acme;
    wide.cost_allocation[0].list_cost = Decimal12::from_atoms(10_i128.pow(38));
    assert_eq!(
        refusal(Table::CostAllocation, &[wide]),
        "a value of column ContractedCost of cost_allocation has more than 38 digits"
    );
}

#[test]
fn an_hour_larger_than_one_batch_is_one_file_and_one_row_group() {
    let mut tables = full_hour("acme", HOUR);
    let row = tables.pool_usage[0].clone();
    let pool = |index: usize| format!("pool-{index:06}");
    tables.pool_usage = (0..70_000)
        .map(|index| {
            let mut row = row.clone();
            row.pool_id = pool(index).into();
            row
        })
        .collect();
    let encoded = file(Table::PoolUsage, &[tables]);
    let reader = SerializedFileReader::new(Bytes::copy_from_slice(&encoded.bytes)).unwrap();
    assert_eq!(encoded.rows, 70_000);
    assert_eq!((reader.num_row_groups(), reader.metadata().file_metadata().num_rows()), (1, 70_000));
    assert!(encoded.stats.contains(r#""pool_id":"pool-000000""#));
    assert!(encoded.stats.contains(r#""pool_id":"pool-069999""#));
    let batch = read(&encoded.bytes);
    for index in [0, 65_535, 65_536, 69_999] {
        assert_values(&texts(&batch, index), &[("pool_id", &pool(index))]);
    }
}
