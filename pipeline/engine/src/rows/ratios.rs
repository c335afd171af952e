//! The part of each resource of a node that a row stands for: table 3 of AWS's split cost allocation
//! (RULES.md, section 10). Nothing is computed from these ratios; the costs of section 1 are exact.

use dashu_int::UBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::rows::ResourceRatios;

use crate::error::EngineError;
use crate::exact::{Fraction, round_quotient};
use crate::model::per_resource::PerResource;

/// The amounts of a stretch by which ratios are divided.
pub(crate) struct RatioBases {
    /// T_r: the node's amounts, or the amounts that its pods were allocated if these are larger.
    total: PerResource<UBig>,
    /// The amounts that the pods were allocated. `None` if all or nothing of the resource is unused.
    shared: PerResource<Option<UBig>>,
}

impl RatioBases {
    /// Computes the bases from the amounts that each pod was allocated and the node's capacity, both times
    /// microseconds.
    pub(crate) fn new(pods: &[PerResource<UBig>], available: &PerResource<UBig>) -> Self {
        let mut sums = PerResource::<UBig>::default();
        for amounts in pods {
            sums += amounts.as_ref();
        }
        let total = sums.as_ref().zip(available.as_ref()).map(|(sum, available)| sum.max(available).clone());
        let is_partial = |(sum, available): &(UBig, &UBig)| !sum.is_zero() && sum < available;
        let shared = sums.zip(available.as_ref()).map(|pair| is_partial(&pair).then_some(pair.0));
        Self { total, shared }
    }

    /// Returns the split usage ratios and the unused ratios of the amounts that a pod was allocated.
    /// Multiplies each ratio by the resource's factor, if there are factors.
    ///
    /// # Errors
    /// If a ratio has more than 38 digits.
    pub(crate) fn of(
        &self,
        amounts: &PerResource<UBig>,
        factors: Option<&PerResource<Fraction>>,
    ) -> Result<[ResourceRatios; 2], EngineError> {
        let factors = factors.map_or(PerResource::all(None), |factors| factors.as_ref().map(Some));
        let amounts = amounts.as_ref().zip(factors).zip(self.total.as_ref());
        let split_usage = amounts.try_map(|((amount, factor), total)| match total.is_zero() {
            true => Ok(None),
            false => part(amount, total, factor).map(Some),
        })?;
        let unused =
            amounts.zip(self.shared.as_ref()).try_map(
                |(((amount, factor), total), shared)| match shared {
                    _ if total.is_zero() => Ok(None),
                    None => Ok(Some(Decimal12::ZERO)),
                    Some(shared) => part(amount, shared, factor).map(Some),
                },
            )?;
        let ratios = |PerResource { cpu, memory, gpu }| ResourceRatios { cpu, memory, gpu };
        Ok([ratios(split_usage), ratios(unused)])
    }
}

/// Returns an amount times a factor as a part of a whole, which is not zero.
fn part(amount: &UBig, whole: &UBig, factor: Option<&Fraction>) -> Result<Decimal12, EngineError> {
    match (factor, u128::try_from(whole)) {
        (None, Ok(whole)) => round_quotient(amount, whole),
        (None, Err(_)) => Fraction::new(amount.clone(), whole.clone()).round(),
        (Some(factor), _) => Fraction::new(amount.clone(), whole.clone()).product(factor).round(),
    }
}
