//! The steps of one stretch of a node for [`crate::trace`], read from the input of the stretch's rows.

use dashu_int::UBig;

use crate::exact::{HOUR_MICROS, ratio};
use crate::model::per_resource::{PARTS_PER_UNIT, PerResource};
use crate::model::slices::NodeSlice;
use crate::rows::group::PodHours;
use crate::rows::node::StretchRows;
use crate::rules::split::{Component, Shares, Stretch, StretchKey};
use crate::trace::{
    ComponentStep, ExactNumber, NodePod, NodePodLabel, NodeSpan, NodeStep, covered_units, exact, in_hours,
    in_units, money,
};

impl StretchRows<'_> {
    /// Returns the step of the stretch.
    pub(super) fn step(
        &self,
        slices: &[NodeSlice],
        allocated: &[PerResource<UBig>],
        shares: &Shares,
    ) -> NodeStep {
        let mut sum = PerResource::<UBig>::default();
        allocated.iter().for_each(|amounts| sum += amounts.as_ref());
        let split_part = match &shares.split {
            Some(split) => {
                split.numerators.as_ref().map(|part| ratio(part.clone(), split.denominator.clone()))
            }
            None => PerResource::all(dashu_ratio::RBig::ONE),
        };
        let weights = &self.rules.weights;
        let weights = PerResource { cpu: weights.cpu, memory: weights.memory, gpu: weights.gpu };
        let Stretch { key, components, available } = self.stretch;
        let spans = slices.iter().filter(|slice| StretchKey::of(slice) == *key);
        let components = components.iter().map(|one| match is_negative(one) {
            true => component(one, available).negated(),
            false => component(one, available),
        });
        NodeStep {
            cluster_id: self.key.0.clone(),
            node_id: self.key.1.clone(),
            description: self.description.clone(),
            resource_key: key.resource_key().cloned(),
            unit_price: ExactNumber::of_decimal(key.price),
            spans: spans.map(span).collect(),
            weights: weights.map(ExactNumber::of_decimal),
            components: components.collect(),
            available: in_hours(available),
            allocated: in_hours(&sum),
            split_part: exact(&split_part),
            pods: self.pods(allocated, shares),
        }
    }

    fn pods(&self, allocated: &[PerResource<UBig>], shares: &Shares) -> Vec<NodePod> {
        let pods = self.pods.iter().zip(allocated).zip(&shares.parts);
        let pods = pods.map(|(((uid, hours), allocated), part)| {
            let pod = hours.labels.values().next_back().map(|time| &time.description);
            NodePod {
                pod_uid: uid.clone(),
                namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
                pod_name: pod.map(|pod| pod.pod_name.clone()).unwrap_or_default(),
                seconds: ExactNumber::over(hours.micros, 1_000_000),
                requested: in_hours(&hours.requested),
                used: hours.used.as_ref().map(in_hours),
                allocated: in_hours(allocated),
                labels: labels(hours),
                share: exact(&part.as_ref().map(|part| ratio(part.clone(), shares.denominator.clone()))),
            }
        });
        pods.collect()
    }
}

fn span(slice: &NodeSlice) -> NodeSpan {
    let covered = slice.coverage.iter();
    let covered =
        covered.map(|part| (part.commitment.commitment_id.clone(), covered_units(part.amounts.clone())));
    NodeSpan {
        from: slice.span.from,
        to: slice.span.to,
        hours: ExactNumber::over(slice.span.micros(), u128::from(HOUR_MICROS)),
        capacity: in_units(&slice.spec.capacity),
        hourly_cost: ExactNumber::of_decimal(slice.unit_price()),
        covered: covered.collect(),
    }
}

fn labels(hours: &PodHours) -> Vec<NodePodLabel> {
    let labels = hours.labels.iter().map(|(label, time)| NodePodLabel {
        quota_id: label.quota_id.clone(),
        state: label.quota_state.map(|state| state.name()),
        unpriced: time.unpriced.map(|reason| reason.name()),
        labels: time.description.labels.clone(),
        seconds: ExactNumber::over(time.micros, 1_000_000),
        share: ExactNumber::over(time.micros, hours.micros),
        pool_charge: time.charge.clone().map(ExactNumber::of_atoms),
    });
    labels.collect()
}

/// Returns whether a component costs less than nothing. Its numbers are magnitudes.
fn is_negative(component: &Component) -> bool {
    component.bill.as_ref().is_some_and(|bill| bill.amounts.effective.is_negative())
}

fn component(component: &Component, available: &PerResource<UBig>) -> ComponentStep {
    let of_bill = component.bill.as_ref().and_then(|bill| bill.commitment_id.clone());
    let of_coverage = component.commitment.as_ref().map(|commitment| commitment.commitment_id.clone());
    ComponentStep {
        commitment_id: of_bill.or(of_coverage),
        unit_price: ExactNumber::of_decimal(component.unit_price),
        unpriced: component.unpriced.map(|reason| reason.name()),
        hours: exact(&component.quantity),
        commitment_quantity: exact(&component.commitment_quantity),
        cost: money(&component.cost),
        unit_cost: unit_cost(component, available),
        weightless_cost: ExactNumber::of_atoms(component.weightless_cost.clone()),
        total: ExactNumber::of_atoms(component.total_cost()),
    }
}

/// Returns the cost by resource divided by the hours of capacity; zero for a resource without capacity.
fn unit_cost(component: &Component, available: &PerResource<UBig>) -> PerResource<ExactNumber> {
    let hours = available.as_ref().zip(PARTS_PER_UNIT);
    let hours =
        hours.map(|(amount, parts)| ratio(amount.clone(), UBig::from(parts) * UBig::from(HOUR_MICROS)));
    let pairs = component.cost.as_ref().zip(hours);
    pairs.map(|(cost, hours)| match hours.is_zero() {
        true => ExactNumber::default(),
        false => ExactNumber::of_atoms(cost / hours),
    })
}
