//! Reads costs from `cost_allocation`, by time and bearer.

use bytes::Bytes;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::tables::Table;
use prorata_schemas::time::{Hour, HourRange};
use prorata_worker::WorkerError;
use serde_json::Value;

use super::bills::BasisSums;
use super::gpus::{NodeHours, NodeRow};
use super::{BearerAmounts, CostBearer, GroupBy, Report};
use crate::columns::{self, ReadError, Rows};
use crate::lake::LakeTables;

const COLUMNS: [&str; 24] = [
    "BillingAccountId",
    "BillingCurrency",
    "x_RowKind",
    "SubAccountId",
    "x_Namespace",
    "x_PodName",
    "x_PodUid",
    "x_GpuModel",
    "ResourceId",
    "x_QuotaState",
    "x_Unpriced",
    "ChargePeriodStart",
    "EffectiveCost",
    "x_SplitCost",
    "x_UnusedCost",
    "x_GpuCost",
    "x_GpuHours",
    "x_RunningSeconds",
    "AllocatedTags",
    "PricingQuantity",
    "SkuPriceDetails",
    "x_ResourceKey",
    "x_CostBasis",
    "x_EstimatedCost",
];

/// Returns the hours of a lake, from the names of its files.
pub fn hours(lake: &LakeTables<'_>) -> impl Iterator<Item = Hour> {
    lake.files().filter(|file| file.table == Table::Hours).flat_map(|file| file.hours())
}

/// The part of a row that the page needs.
struct CostLine {
    hour: Hour,
    bearer: CostBearer,
    amounts: BearerAmounts,
    basis: BasisSums,
    unpriced: String,
    seconds: Decimal12,
}

/// Reads the rows of some hours into the report.
///
/// # Errors
/// If storage is unavailable.
pub async fn costs(lake: &LakeTables<'_>, range: HourRange, report: &mut Report) -> Result<(), WorkerError> {
    let each = |report: &mut Report, line: CostLine| {
        let time = report.time_of(line.hour);
        report.bills.add(&line.bearer, line.hour.date(), &line.basis);
        if !line.unpriced.is_empty() && !line.bearer.uid.is_empty() {
            let key = (line.bearer.organization.clone(), line.unpriced);
            let unpriced = report.unpriced.entry(key).or_default();
            unpriced.pods.insert(line.bearer.uid.clone());
            unpriced.seconds.add(line.seconds);
        }
        report.amounts.entry((time, line.bearer)).or_default().add(&line.amounts);
    };
    scan(lake, range, report, each, |report, nodes| nodes.add_to(report)).await?;
    report.bills.clear_unless_billed();
    Ok(())
}

/// Reads the cost of groups in the previous period of the same length.
///
/// # Errors
/// If storage is unavailable.
pub async fn before(lake: &LakeTables<'_>, range: HourRange, report: &mut Report) -> Result<(), WorkerError> {
    let HourRange { first, last } = range;
    let before = HourRange::new(Hour(first.0 - (last.0 - first.0 + 1)), first.previous());
    if !hours(lake).any(|hour| before.contains(hour)) {
        return Ok(());
    }
    report.before_hours = Some(before);
    let each = |report: &mut Report, line: CostLine| {
        let CostBearer { organization, currency, group, .. } = line.bearer;
        report.before.entry((organization, currency, group)).or_default().add(line.amounts.cost);
    };
    scan(lake, before, report, each, |_, _| ()).await
}

/// Reads the rows of some hours. Passes every row to `each`, and the nodes of every file to `done`.
async fn scan(
    lake: &LakeTables<'_>,
    range: HourRange,
    report: &mut Report,
    each: impl Fn(&mut Report, CostLine),
    done: impl Fn(&mut Report, NodeHours),
) -> Result<(), WorkerError> {
    for files in lake.days(range).into_values() {
        let costs = files.iter().filter(|file| file.table == Table::CostAllocation);
        let in_range = costs.filter(|file| file.hours().iter().any(|hour| range.contains(*hour)));
        lake.read_each(in_range, |file, bytes| {
            let read = match bytes {
                Some(bytes) => read(bytes, range, report, &each).map_err(|error| error.to_string()),
                None => Err("the object is gone".to_owned()),
            };
            let read = read.map(|nodes| done(report, nodes));
            report.unreadable.extend(read.err().map(|why| (file.to_string(), why)));
        })
        .await?;
    }
    Ok(())
}

fn read(
    bytes: Bytes,
    range: HourRange,
    report: &mut Report,
    each: &impl Fn(&mut Report, CostLine),
) -> Result<NodeHours, ReadError> {
    let group_by = report.group_by.clone();
    let mut nodes = NodeHours::default();
    let with_tags: Vec<&str> = COLUMNS.iter().copied().chain(["Tags"]).collect();
    columns::read(bytes, &with_tags, |rows| {
        let organizations = rows.texts("BillingAccountId")?;
        let (currencies, kinds) = (rows.texts("BillingCurrency")?, rows.texts("x_RowKind")?);
        let (clusters, namespaces) = (rows.texts("SubAccountId")?, rows.texts("x_Namespace")?);
        let (names, uids) = (rows.texts("x_PodName")?, rows.texts("x_PodUid")?);
        let (models, resources) = (rows.texts("x_GpuModel")?, rows.texts("ResourceId")?);
        let (states, unpriced) = (rows.texts("x_QuotaState")?, rows.texts("x_Unpriced")?);
        let (tags, own_tags) = (rows.texts("AllocatedTags")?, rows.texts("Tags")?);
        let (hours, costs) = (rows.hours("ChargePeriodStart")?, rows.amounts("EffectiveCost")?);
        let (used, unused) = (rows.amounts("x_SplitCost")?, rows.amounts("x_UnusedCost")?);
        let (gpu_costs, keys) = (rows.amounts("x_GpuCost")?, rows.texts("x_ResourceKey")?);
        let (gpu_hours, seconds) = (rows.amounts("x_GpuHours")?, rows.amounts("x_RunningSeconds")?);
        let (quantities, details) = (rows.amounts("PricingQuantity")?, rows.texts("SkuPriceDetails")?);
        let (bases, estimates) = (rows.texts("x_CostBasis")?, rows.amounts("x_EstimatedCost")?);
        for row in 0..Rows::len(rows) {
            let text = |column: &[Option<&str>]| at(column, row).unwrap_or_default().to_owned();
            let amount = |column: &[Option<Decimal12>]| at(column, row).unwrap_or_default();
            let (hour, cost) = (at(&hours, row).unwrap_or_default(), amount(&costs));
            let row_kind = at(&kinds, row).unwrap_or_default();
            let has_pod = at(&uids, row).is_some();
            let is_shown = range.contains(hour) && report.shows(at(&organizations, row));
            let Some(kind) = bearer_kind(row_kind, has_pod, cost).filter(|_| is_shown) else { continue };
            if matches!(row_kind, "pod_node" | "node_idle") {
                nodes.add(&NodeRow {
                    organization: at(&organizations, row).unwrap_or_default(),
                    hour,
                    cluster: at(&clusters, row).unwrap_or_default(),
                    node: at(&resources, row).unwrap_or_default(),
                    model: at(&models, row).unwrap_or_default(),
                    details: at(&details, row).unwrap_or_default(),
                    quantity: amount(&quantities),
                    gpu_hours: amount(&gpu_hours),
                });
            }
            let labels = at(&tags, row).or(at(&own_tags, row)).unwrap_or_default();
            let is_pod = kind == "pod";
            let mut bearer = CostBearer {
                organization: text(&organizations),
                currency: text(&currencies),
                kind,
                group: String::new(),
                cluster: text(&clusters),
                namespace: text(&namespaces),
                name: text(names_of(kind, [&names, &keys, &resources])),
                uid: text(&uids),
                gpu_model: text(&models),
            };
            bearer.group = group(&group_by, &bearer, labels);
            let is_over = at(&states, row) == Some("over-quota");
            let amounts = BearerAmounts {
                cost: cost.into(),
                used: amount(&used).into(),
                unused: if kind == "idle" { cost } else { amount(&unused) }.into(),
                over_quota: if is_over { cost } else { Decimal12::ZERO }.into(),
                gpu_cost: if is_pod { amount(&gpu_costs) } else { Decimal12::ZERO }.into(),
                gpu_hours: amount(&gpu_hours).into(),
                dearest: Some((cost, hour)),
            };
            let basis = BasisSums::of_row(at(&bases, row), row_kind, cost, amount(&estimates));
            let (unpriced, seconds) = (text(&unpriced), amount(&seconds));
            each(report, CostLine { hour, bearer, amounts, basis, unpriced, seconds });
        }
        Ok(())
    })?;
    Ok(nodes)
}

fn at<T: Copy>(column: &[Option<T>], row: usize) -> Option<T> {
    column.get(row).copied().flatten()
}

/// Returns the bearer of a row of a kind and an EffectiveCost. `None` for a purchase, which costs nothing
/// unless a bill says otherwise. A pod may bear a part of a shared charge.
fn bearer_kind(row_kind: &str, has_pod: bool, cost: Decimal12) -> Option<&'static str> {
    match row_kind {
        "node_idle" => Some("idle"),
        "reservation_unused" => Some("reservation"),
        "commitment_unused" => Some("commitment"),
        "commitment_purchase" if cost == Decimal12::ZERO => None,
        "commitment_purchase" => Some("shared"),
        "shared_charge" if !has_pod => Some("shared"),
        _ => Some("pod"),
    }
}

/// Returns the column that names bearers of a kind: the names of pods, the keys of resources in bills, or the
/// ids of resources.
fn names_of<'c, 'r>(
    kind: &str,
    [pods, keys, resources]: [&'c [Option<&'r str>]; 3],
) -> &'c [Option<&'r str>] {
    match kind {
        "pod" => pods,
        "shared" => keys,
        _ => resources,
    }
}

fn group(group_by: &GroupBy, bearer: &CostBearer, labels: &str) -> String {
    let found = match group_by {
        GroupBy::Namespace => bearer.namespace.clone(),
        GroupBy::Cluster => bearer.cluster.clone(),
        GroupBy::GpuModel => bearer.gpu_model.clone(),
        GroupBy::Label(key) if bearer.kind == "pod" => {
            let labels = serde_json::from_str::<Value>(labels).unwrap_or_default();
            labels.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        }
        GroupBy::Label(_) => String::new(),
    };
    match (found.is_empty(), bearer.kind, group_by) {
        (false, ..) => found,
        (_, "idle", _) => "(idle)".to_owned(),
        (_, "reservation", _) => "(unused reservations)".to_owned(),
        (_, "commitment", _) => "(unused commitments)".to_owned(),
        (_, "shared", _) => "(shared charges)".to_owned(),
        (_, _, GroupBy::GpuModel) => "(no GPU)".to_owned(),
        (_, _, GroupBy::Label(_)) => "(no label)".to_owned(),
        _ => "(none)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purchase_is_a_bearer_only_if_a_bill_gives_it_a_cost() {
        assert_eq!(bearer_kind("commitment_purchase", false, Decimal12::ZERO), None);
        assert_eq!(bearer_kind("commitment_purchase", false, Decimal12::ONE), Some("shared"));
        assert_eq!(bearer_kind("pod_node", true, Decimal12::ONE), Some("pod"));
    }

    #[test]
    fn a_pod_bears_its_part_of_a_shared_charge() {
        assert_eq!(bearer_kind("shared_charge", true, Decimal12::ZERO), Some("pod"));
        assert_eq!(bearer_kind("shared_charge", false, Decimal12::ZERO), Some("shared"));
    }
}
