//! The components of a billed stretch of a node (RULES.md, sections 1 and 13): what the lines of a bill say,
//! by commitment and list unit price.
//!
//! The amounts of a component are decimals. Its rows split them by their exact quantity, so a component has
//! no other cost than a magnitude, by which the parts of one row split.

use std::collections::BTreeMap;
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::CommitmentSet;
use prorata_schemas::ids::CommitmentId;
use prorata_schemas::money::UnitPrice;
use prorata_schemas::rows::BilledLine;

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, HOUR_MICROS, atoms, hours, ratio, round};
use crate::model::per_resource::PerResource;
use crate::model::slices::CommitmentHour;
use crate::model::state::LineAmounts;
use crate::rules::bill::LinePart;
use crate::rules::split::{Component, Run, WeightScale};

/// The amounts of a billed component, and their lines.
#[derive(Clone, Debug)]
pub(crate) struct ComponentBill {
    /// The commitment that the lines name.
    pub(crate) commitment_id: Option<CommitmentId>,
    /// The last description of the commitment in the hour; `None` if no event has described it.
    pub(crate) commitment: Option<Arc<CommitmentSet>>,
    /// The lines, in order of their keys.
    pub(crate) lines: Arc<[BilledLine]>,
    pub(crate) amounts: LineAmounts,
    /// The cost by the node's own price.
    pub(crate) estimate: Decimal12,
}

/// The time of a billed stretch: hours by resource, as the resources carry cost, and hours in which no
/// resource has any weight.
struct BilledHours {
    by_resource: PerResource<RBig>,
    weightless: RBig,
    /// The cost by the node's own price, in atoms.
    estimate: RBig,
}

impl BilledHours {
    fn of(runs: &[Run<'_>], scale: &WeightScale) -> Self {
        let (by_resource, weightless, estimate) = (PerResource::default(), RBig::ZERO, RBig::ZERO);
        let mut billed = Self { by_resource, weightless, estimate };
        for run in runs {
            billed.estimate += hours(run.micros) * RBig::from(atoms(run.slice.unit_price()));
            let weighed = scale.weigh(&run.slice.spec.capacity.map(UBig::from));
            let all = weighed.sum();
            if all.is_zero() {
                billed.weightless += hours(run.micros);
            } else {
                let hours_of_weight = ratio(UBig::from(run.micros), all * UBig::from(HOUR_MICROS));
                billed.by_resource += weighed.map(|weight| RBig::from(weight) * &hours_of_weight);
            }
        }
        billed
    }

    fn total(&self) -> RBig {
        self.by_resource.sum() + &self.weightless
    }
}

/// Returns the components of a billed stretch, in row order. `parts` are the parts of its lines, and `known`
/// are the commitments of the hour.
///
/// # Errors
/// If an amount does not fit its column.
pub(super) fn components(
    runs: &[Run<'_>],
    parts: &[LinePart],
    known: &BTreeMap<CommitmentId, CommitmentHour>,
    scale: &WeightScale,
) -> Result<Vec<Component>, EngineError> {
    let billed = BilledHours::of(runs, scale);
    let time = billed.total();
    let mut groups: BTreeMap<(Option<CommitmentId>, UnitPrice), Vec<&LinePart>> = BTreeMap::new();
    for part in parts {
        let line = part.line.line();
        let key = (line.commitment_id.clone(), line.list_unit_price.unwrap_or_default());
        groups.entry(key).or_default().push(part);
    }
    let mut found = Vec::with_capacity(groups.len());
    let mut all = RBig::ZERO;
    for ((commitment_id, price), mut parts) in groups {
        parts.sort_by(|a, b| a.line.key().cmp(&b.line.key()));
        let amounts = LineAmounts::sum_of(&parts)?;
        let quantity = ratio(atoms(amounts.hours), ATOMS_IN_ONE);
        let quantity = if quantity.is_zero() { time.clone() } else { quantity };
        all += &quantity;
        let lines = parts.into_iter().map(|part| part.line.clone()).collect();
        found.push((commitment_id, price, lines, amounts, quantity));
    }
    let components = found.into_iter().map(|(commitment_id, price, lines, amounts, quantity)| {
        let part = &quantity / &time;
        let cost = RBig::from(UBig::from(amounts.effective.atoms().unsigned_abs())) / &time;
        let of_hours = |factor: &RBig| billed.by_resource.as_ref().map(|hours| hours * factor);
        let estimate = &billed.estimate * &quantity / &all / RBig::from(ATOMS_IN_ONE);
        let commitment = commitment_id.as_ref().and_then(|id| known.get(id));
        let bill = ComponentBill {
            commitment: commitment.map(|hour| hour.description.clone()),
            commitment_id,
            lines,
            amounts,
            estimate: round(&estimate)?,
        };
        Ok(Component {
            quantity: of_hours(&part),
            cost: of_hours(&cost),
            weightless_quantity: &billed.weightless * &part,
            weightless_cost: &billed.weightless * &cost,
            bill: Some(Box::new(bill)),
            ..Component::new(price)
        })
    });
    components.collect()
}
