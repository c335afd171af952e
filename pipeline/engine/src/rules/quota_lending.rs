//! Amounts of one resource that the quotas of a cluster can lend over the hour (RULES.md, section 4).
//!
//! The pool and the borrowed amount change with nearly every pod, and each change affects every quota's
//! guaranteed and lent amounts. The time to compute these amounts at every instant for every quota would grow
//! with the product of instants and quotas. So the sums over the quotas are kept as steps of time, and each
//! quota is computed at the hour's end. The pool and the lent amount are differences of running sums. The
//! guaranteed amount is computed once for all quotas with one `min`. A step takes 110 to 160 bytes until
//! then; a pod that causes a step takes 3,000.

use std::collections::BTreeMap;

use dashu_int::UBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::time::Timestamp;

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, round_between, sum_of};
use crate::model::span::Span;

/// Number of bits after the binary point of running sums of lent parts. A part is floored, so each step adds
/// less than one unit of the last bit to the error of the sums.
const LENT_BITS: usize = 128;

/// One resource of a cluster's quotas. Amounts are in bytes or thousandths.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    totals: Totals,
    /// Steps in order of time. Each step lasts until the next step, and the last step lasts until the hour's
    /// end.
    steps: Vec<Step>,
}

/// Sums over the quotas that name the resource in `min`.
#[derive(Debug, Default)]
struct Totals {
    /// The sum of max(0, min - used).
    pool: u128,
    min: u128,
    /// The sum of max(0, used - min), of any size.
    borrowed: UBig,
}

/// The sums from an instant on.
#[derive(Debug)]
struct Step {
    from: Timestamp,
    pool: u128,
    min: u128,
    /// The smaller of the pool and the borrowed amount.
    lent: u128,
    /// The running sums of all steps before.
    before: RunningSums,
}

/// Integrals since the first step, times microseconds.
#[derive(Clone, Debug, Default)]
struct RunningSums {
    pool: UBig,
    /// The integral of the part of the pool that is lent, with [`LENT_BITS`] bits after the binary point.
    lent_part: UBig,
}

impl Step {
    /// Returns the running sums at an instant of this step.
    fn sums_at(&self, at: Timestamp) -> RunningSums {
        let mut sums = self.before.clone();
        if let Some(span) = Span::new(self.from, at) {
            let micros = UBig::from(span.micros());
            if self.lent > 0 {
                sums.lent_part += ((UBig::from(self.lent) * &micros) << LENT_BITS) / UBig::from(self.pool);
            }
            sums.pool += UBig::from(self.pool) * micros;
        }
        sums
    }

    /// Returns a quota's part of the pool in proportion to the quota's min, floored to whole units.
    fn guaranteed(&self, min: u128, unit: u128) -> u128 {
        if self.min == 0 {
            return 0;
        }
        let part = self.pool.checked_mul(min).map_or_else(
            // At most the pool, as min is a part of the sum of min.
            || {
                let part = UBig::from(self.pool) * UBig::from(min) / UBig::from(self.min);
                u128::try_from(part).unwrap_or(self.pool)
            },
            |product| product / self.min,
        );
        part / unit * unit
    }
}

/// The amount that is guaranteed to a quota over time, in steps.
pub(crate) struct Guaranteed(Vec<GuaranteedStep>);

struct GuaranteedStep {
    from: Timestamp,
    amount: u128,
    /// The integral of all steps before.
    before: UBig,
}

impl Guaranteed {
    /// Returns the integral over a part of the span for which the steps were computed.
    pub(crate) fn over(&self, span: Span) -> UBig {
        self.sum_at(span.to) - self.sum_at(span.from)
    }

    fn sum_at(&self, at: Timestamp) -> UBig {
        let steps = self.0.partition_point(|step| step.from <= at);
        let Some(step) = self.0[..steps].last() else { return UBig::ZERO };
        let micros = Span::new(step.from, at).map_or(0, Span::micros);
        &step.before + UBig::from(step.amount) * UBig::from(micros)
    }
}

impl Lending {
    /// Adds a quota's min and use to the sums.
    pub(crate) fn add(&mut self, min: u128, used: u128) {
        self.totals.min += min;
        self.totals.pool += min.saturating_sub(used);
        self.totals.borrowed += UBig::from(used.saturating_sub(min));
    }

    /// Removes a quota's min and use from the sums.
    pub(crate) fn remove(&mut self, min: u128, used: u128) {
        self.totals.min -= min;
        self.totals.pool -= min.saturating_sub(used);
        self.totals.borrowed -= UBig::from(used.saturating_sub(min));
    }

    /// Ends an instant, so that the sums hold from now on.
    pub(crate) fn end_instant(&mut self, now: Timestamp) {
        let Totals { pool, min, borrowed } = &self.totals;
        let lent = u128::try_from(borrowed).map_or(*pool, |borrowed| borrowed.min(*pool));
        let now_is = (*pool, *min, lent);
        self.steps.pop_if(|last| last.from == now);
        let last = self.steps.last();
        if last.is_none_or(|last| (last.pool, last.min, last.lent) != now_is) {
            let before = last.map(|last| last.sums_at(now)).unwrap_or_default();
            self.steps.push(Step { from: now, pool: *pool, min: *min, lent, before });
        }
    }

    /// Returns the integral of the pool.
    pub(crate) fn pool(&self, span: Span) -> UBig {
        self.sums_at(span.to).pool - self.sums_at(span.from).pool
    }

    /// Returns the amount that is guaranteed to each quota with this min within a span.
    pub(crate) fn guaranteed(&self, within: Span, min: u128, unit: u128) -> Guaranteed {
        let mut sum = UBig::ZERO;
        let steps = self.steps_in(within).map(|(span, step)| {
            let (amount, before) = (step.guaranteed(min, unit), sum.clone());
            sum += UBig::from(amount) * UBig::from(span.micros());
            GuaranteedStep { from: span.from, amount, before }
        });
        Guaranteed(steps.collect())
    }

    /// Returns the spans in which a quota with this min borrows more than it is guaranteed.
    pub(crate) fn above_guaranteed(
        &self,
        span: Span,
        min: u128,
        borrowed: u128,
        unit: u128,
    ) -> impl Iterator<Item = Span> {
        let steps = self.steps_in(span);
        steps.filter(move |(_, step)| borrowed > step.guaranteed(min, unit)).map(|(span, _)| span)
    }

    /// Returns the amount that a quota lends, divided by `scale`. `unused` is the quota's own max(0, min -
    /// used) over time.
    ///
    /// # Errors
    /// If the amount has more than 38 digits.
    pub(crate) fn lent(&self, unused: &[(Span, u128)], scale: &UBig) -> Result<Decimal12, EngineError> {
        let (mut least, mut most) = (UBig::ZERO, UBig::ZERO);
        for (span, unused) in unused {
            let part = self.sums_at(span.to).lent_part - self.sums_at(span.from).lent_part;
            let steps = self.index(span.to) - self.index(span.from);
            // Both running sums are too low, by less than the number of steps between them plus one.
            let error = UBig::from(steps + 1);
            let unused = UBig::from(*unused);
            most += &unused * (&part + &error);
            least += &unused * if part > error { part - error } else { UBig::ZERO };
        }
        let exact = || sum_of(&self.lent_parts(unused, scale));
        let denominator = scale << LENT_BITS;
        round_between([least * ATOMS_IN_ONE, most * ATOMS_IN_ONE], &denominator, exact)
    }

    /// Returns the lent amount in atoms as exact parts, one for each amount of the pool.
    fn lent_parts(&self, unused: &[(Span, u128)], scale: &UBig) -> Vec<Fraction> {
        let mut by_pool: BTreeMap<u128, UBig> = BTreeMap::new();
        for (span, unused) in unused {
            for (span, step) in self.steps_in(*span).filter(|(_, step)| step.lent > 0) {
                let lent = UBig::from(step.lent) * UBig::from(span.micros()) * UBig::from(*unused);
                *by_pool.entry(step.pool).or_default() += lent;
            }
        }
        let parts = by_pool.into_iter();
        parts.map(|(pool, lent)| Fraction::new(lent * ATOMS_IN_ONE, UBig::from(pool) * scale)).collect()
    }

    /// Returns the index of the step at an instant, which must not be before the first step.
    fn index(&self, at: Timestamp) -> usize {
        self.steps.partition_point(|step| step.from <= at).saturating_sub(1)
    }

    fn sums_at(&self, at: Timestamp) -> RunningSums {
        self.steps.get(self.index(at)).map(|step| step.sums_at(at)).unwrap_or_default()
    }

    /// Returns the steps that a span overlaps, each with its part of the span.
    fn steps_in(&self, span: Span) -> impl Iterator<Item = (Span, &Step)> {
        let steps = self.steps.get(self.index(span.from)..).unwrap_or_default();
        let ends = steps.iter().skip(1).map(|next| next.from).chain([span.to]);
        let steps = steps.iter().zip(ends).take_while(move |(step, _)| step.from < span.to);
        steps.filter_map(move |(step, end)| Some((Span::new(step.from, end)?.overlap(span)?, step)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, to: i64) -> Span {
        Span::new(Timestamp(from), Timestamp(to)).unwrap()
    }

    /// Creates a pool of 7, of which 3 are lent, from 0, and a pool of 4, all lent, from 10.
    fn lending() -> Lending {
        let mut lending = Lending::default();
        lending.add(10, 3);
        lending.end_instant(Timestamp(0));
        lending.add(2, 5);
        lending.end_instant(Timestamp(0));
        lending.remove(10, 3);
        lending.add(10, 6);
        lending.remove(2, 5);
        lending.add(2, 9);
        lending.end_instant(Timestamp(10));
        lending.end_instant(Timestamp(15));
        lending
    }

    #[test]
    fn a_step_is_made_where_sums_change_and_one_for_an_instant() {
        let steps = lending().steps;
        let steps: Vec<_> = steps.iter().map(|step| (step.from.0, step.pool, step.min, step.lent)).collect();
        assert_eq!(steps, [(0, 7, 12, 3), (10, 4, 12, 4)]);
    }

    #[test]
    fn integrals_are_of_parts_of_steps() {
        let lending = lending();
        assert_eq!(lending.pool(span(4, 16)), UBig::from(6_u8 * 7 + 6 * 4));
        // 7 x 10 / 12 is 5 and 4 x 10 / 12 is 3. In whole units of two, these are 4 and 2.
        let guaranteed = |unit| lending.guaranteed(span(2, 16), 10, unit);
        assert_eq!(guaranteed(1).over(span(4, 16)), UBig::from(6_u8 * 5 + 6 * 3));
        assert_eq!(guaranteed(2).over(span(2, 16)), UBig::from(8_u8 * 4 + 6 * 2));
        assert_eq!(guaranteed(1).over(span(3, 10)), UBig::from(7_u8 * 5));
        let above = |borrowed| lending.above_guaranteed(span(4, 16), 10, borrowed, 1).collect::<Vec<_>>();
        assert_eq!(above(3), []);
        assert_eq!(above(4), [span(10, 16)]);
        assert_eq!(above(6), [span(4, 10), span(10, 16)]);
    }

    #[test]
    fn the_guaranteed_part_is_right_for_products_past_128_bits() {
        let step = |pool, min| {
            let from = Timestamp(0);
            Step { from, pool, min, lent: 0, before: RunningSums::default() }
        };
        assert_eq!(step(15, 60).guaranteed(10, 1), 2);
        assert_eq!(step(68_000, 88_000).guaranteed(64_000, 1000), 49_000);
        assert_eq!(step(5, 0).guaranteed(0, 1), 0);
        assert_eq!(step(1 << 100, 1 << 101).guaranteed(1 << 99, 1), 1 << 98);
    }

    #[test]
    fn the_lent_amount_is_exact_on_both_ways() {
        let lending = lending();
        let scale = UBig::from(7_u8);
        let unused = [(span(4, 9), 7), (span(9, 10), 5), (span(10, 20), 4)];
        // 3/7 of 7 for 5, 3/7 of 5 for 1, and all of 4 for 10.
        let exact = Fraction::new(UBig::from(5_u16 * 3 * 7 + 3 * 5 + 10 * 4 * 7), UBig::from(7_u8 * 7));
        assert_eq!(lending.lent(&unused, &scale).unwrap(), exact.round().unwrap());
        let parts = lending.lent_parts(&unused, &scale);
        assert_eq!(sum_of(&parts).round_atoms().unwrap(), exact.round().unwrap());
    }

    #[test]
    fn a_tie_is_settled_by_the_exact_sum() {
        // Half an atom is lent: its bounds round to different sides.
        let mut lending = Lending::default();
        lending.add(3, 0);
        lending.add(0, 1);
        lending.end_instant(Timestamp(0));
        let scale = UBig::from(6_u8) * ATOMS_IN_ONE;
        let lent = |unused| lending.lent(&[(span(0, 3), unused)], &scale).unwrap();
        assert_eq!(lent(3).atoms(), 0);
        assert_eq!(lent(9).atoms(), 2);
        assert_eq!(lent(4).atoms(), 1);
        // The difference of running sums is above half an atom here, by a third of a last bit.
        let scale = UBig::from(4_u8) * ATOMS_IN_ONE;
        assert_eq!(lending.lent(&[(span(2, 4), 3)], &scale).unwrap().atoms(), 0);
    }
}
