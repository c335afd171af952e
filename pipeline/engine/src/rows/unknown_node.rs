//! Rows of pods for the instants at which the node that they name is not running (RULES.md, section 11). They
//! have time and quantities, but no cost.

use prorata_schemas::ids::PodUid;
use prorata_schemas::rows::{CostRow, RowKind};
use prorata_schemas::rules::Rules;

use crate::error::EngineError;
use crate::exact::{Fraction, hours, round, seconds};
use crate::model::per_resource::PerResource;
use crate::model::state::NodeKey;
use crate::rows::draft::{Draft, UNKNOWN_PROVIDER};
use crate::rows::group::{PodHours, resource_hours};

/// Drafts a pod's rows, one for each label.
///
/// # Errors
/// If an amount does not fit its column.
pub(crate) fn draft(
    key: &NodeKey,
    uid: &PodUid,
    pod: &PodHours,
    rules: &Rules,
) -> Result<Vec<Draft>, EngineError> {
    let allocated = pod.allocated(rules);
    let mut drafts = Vec::new();
    for (label, time) in &pod.labels {
        let part = Fraction::new(time.micros.into(), pod.micros.into());
        let factors = PerResource::all(part);
        let factors = (time.micros != pod.micros).then_some(&factors);
        let row = CostRow {
            cluster_id: Some(key.0.clone()),
            pod_uid: Some(uid.clone()),
            quota_id: label.quota_id.clone(),
            quota_state: label.quota_state,
            unpriced: time.unpriced,
            pricing_quantity: round(&hours(time.micros))?,
            allocated: Some(resource_hours(&allocated, factors)?),
            requested: Some(resource_hours(&pod.requested, factors)?),
            used: pod.used.as_ref().map(|used| resource_hours(used, factors)).transpose()?,
            running_seconds: Some(seconds(time.micros)?),
            pod: Some(time.description.clone()),
            ..CostRow::new(RowKind::PodNode, key.1.clone().into(), UNKNOWN_PROVIDER.into())
        };
        let mut draft = Draft::new(row, Fraction::zero());
        draft.cost.resources = Some(PerResource::all(Fraction::zero()));
        draft.pool_charge = time.charge.clone();
        drafts.push(draft);
    }
    Ok(drafts)
}
