//! Parquet, as providers write it.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use prorata_bills::BillFormat;
use prorata_schemas::time::Timestamp;

use crate::rig::{all, costs, import_with};

fn bytes(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.unwrap();
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

fn text(values: [&str; 2]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// 2026-11-01T00:00:00Z and the hour after, in microseconds.
const HOUR: [i64; 2] = [1_793_491_200_000_000, 1_793_494_800_000_000];

fn focus(compression: Compression) -> Vec<u8> {
    let tags = StructArray::from(vec![(
        Arc::new(arrow_schema::Field::new("team", arrow_schema::DataType::Utf8, true)),
        text(["a", "b"]),
    )]);
    let decimals = Decimal128Array::from(vec![-25, 1]).with_precision_and_scale(38, 9).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("Tags", Arc::new(tags)),
        ("ProviderName", text(["AWS", "AWS"])),
        ("BillingAccountId", text(["111", "111"])),
        ("BillingCurrency", text(["USD", "USD"])),
        (
            "ChargePeriodStart",
            Arc::new(TimestampMillisecondArray::from(vec![HOUR[0] / 1_000; 2]).with_timezone("UTC")),
        ),
        ("ChargePeriodEnd", Arc::new(TimestampMicrosecondArray::from(vec![HOUR[1]; 2]))),
        ("BillingPeriodStart", Arc::new(Date32Array::from(vec![20_758; 2]))),
        ("ChargeCategory", text(["Usage", "Usage"])),
        // Neither is a binary fraction, and the second prints with an exponent in most languages.
        ("BilledCost", Arc::new(Float64Array::from(vec![0.1, 5.649_02e-5]))),
        ("EffectiveCost", Arc::new(decimals)),
        ("ListCost", Arc::new(Float64Array::from(vec![Some(0.2), None]))),
        ("ResourceId", Arc::new(StringArray::from(vec![Some("i-1"), None]))),
    ];
    bytes(columns, compression)
}

#[test]
fn values_of_every_type_are_read_exactly() {
    assert_eq!(Timestamp(HOUR[0]).to_string(), "2026-11-01T00:00:00.000000Z");
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default())]
    {
        let done = import_with(BillFormat::Focus, all(), &[focus(compression).into()], &[]).unwrap();
        assert_eq!((done.report.lines, done.report.faults), (2, 0), "{:?}", done.report.first_faults);
        let (event, machine) = done.only("i-1");
        assert_eq!(event.event_time, Timestamp(HOUR[0]));
        assert_eq!(machine.lines[0].period_end, Timestamp(HOUR[1]));
        assert_eq!(costs(&machine.lines[0]), ["0.1", "-0.000000025", "0.2"]);
        assert_eq!(costs(&done.only("").1.lines[0]), ["0.0000564902", "0.000000001", "0.0000564902"]);
    }
}

#[test]
fn a_damaged_file_and_other_types_are_named() {
    let whole = focus(Compression::SNAPPY);
    let refused = |bytes: Vec<u8>| {
        import_with(BillFormat::Focus, all(), &[Bytes::from(bytes)], &[]).err().unwrap().to_string()
    };
    let cut = refused(whole.get(..whole.len() - 9).unwrap().to_vec());
    assert!(cut.contains("'new-0': it cannot be read") && cut.contains("fetch it again"), "{cut}");
    let missing = refused(bytes(vec![("BilledCost", text(["1", "2"]))], Compression::SNAPPY));
    assert!(missing.contains("no column EffectiveCost"), "{missing}");
    let names = [
        "BilledCost",
        "EffectiveCost",
        "BillingCurrency",
        "BillingAccountId",
        "ChargePeriodStart",
        "ChargePeriodEnd",
    ];
    let mut columns: Vec<(&str, ArrayRef)> = names.map(|name| (name, text(["1", "2"]))).into();
    columns.push(("ChargeCategory", Arc::new(arrow_array::BooleanArray::from(vec![true, false]))));
    let boolean = refused(bytes(columns, Compression::SNAPPY));
    assert!(boolean.contains("column ChargeCategory has the type Boolean"), "{boolean}");
}
