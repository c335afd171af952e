//! Bills (RULES.md, section 13): what a line of a provider's bill costs in an hour, and where.
//!
//! **Decides** which nodes, commitments and reservations are billed in the hour, which part of each line the
//! hour takes, and how the part divides over the nodes of the line's resource. The components of a billed
//! node are in `split/billed.rs`. It also decides whether the hour is final.
//!
//! **Precedence**: none. Sets are in order of provider, account, resource key and begin, lines in the order
//! of their set. **Interval ends**: a line covers the hours of [event_time of its set, period_end).
//! **Rounding**: each part of an amount, to twelve decimals, half to even. The last hour of a line takes what
//! the hours before have left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dashu_int::UBig;
use dashu_ratio::RBig;
use prorata_schemas::decimal::Decimal12;
use prorata_schemas::event::{BillLine, BillSet, ChargeCategory, Event, Payload, UseStatus};
use prorata_schemas::ids::{CommitmentId, ReservationId};
use prorata_schemas::rows::{BilledLine, RowKind};
use prorata_schemas::time::{HOUR_MICROS, Hour, Timestamp};

use crate::error::EngineError;
use crate::exact::{ATOMS_IN_ONE, Fraction, atoms, difference, divide, hours, ratio, round, signed, sum};
use crate::model::slices::{NodeSlice, Slices};
use crate::model::spec::{BillKey, bill_key, billing_account};
use crate::model::state::{BillingAccount, LineAmounts, NodeKey, SavedBill, State};
use crate::trace::{BillStep, ExactNumber, Focus, Recorder};

/// The bills of an hour, before they are settled.
#[derive(Debug)]
pub(crate) struct Bills {
    hour: Hour,
    /// All sets with a line that covers the hour or a later one, in order of their keys.
    sets: Vec<OpenBill>,
    keys: BTreeSet<BillKey>,
    commitments: BTreeSet<CommitmentId>,
    reservations: BTreeSet<ReservationId>,
    /// The accounts that are closed for the month of the hour.
    closed: BTreeSet<BillingAccount>,
}

/// A set of a bill in an hour.
#[derive(Debug)]
struct OpenBill {
    saved: SavedBill,
    /// Whether the set is in the hour's currency.
    counts: bool,
}

/// The part of a line that an hour takes.
#[derive(Clone, Debug)]
pub(crate) struct LinePart {
    pub(crate) line: BilledLine,
    pub(crate) amounts: LineAmounts,
}

/// The parts of lines for a node, by the key under which the node ran.
pub(crate) type NodeParts = BTreeMap<BillKey, Vec<LinePart>>;

/// The settled bills of an hour.
#[derive(Debug, Default)]
pub(crate) struct HourBills {
    /// The parts of the nodes that ran under billed keys.
    pub(crate) nodes: BTreeMap<NodeKey, NodeParts>,
    /// The parts of all other lines, with the kinds of their rows. Pods may divide shared charges.
    pub(crate) rows: Vec<(RowKind, LinePart)>,
    /// The sets for the next hour.
    pub(crate) saved: Vec<SavedBill>,
    /// The accounts that are closed for the month of the hour.
    pub(crate) closed: BTreeSet<BillingAccount>,
}

impl LineAmounts {
    /// Returns the amounts of a whole line.
    fn of(line: &BillLine) -> Self {
        Self {
            effective: line.effective_cost.into(),
            billed: line.billed_cost.into(),
            list: line.list_cost.into(),
            hours: line.hours.unwrap_or_default().into(),
        }
    }

    /// Returns the four amounts.
    pub(crate) fn all(self) -> [Decimal12; 4] {
        [self.effective, self.billed, self.list, self.hours]
    }

    /// Creates amounts from the four, in the order of [`Self::all`].
    pub(crate) fn from_all([effective, billed, list, hours]: [Decimal12; 4]) -> Self {
        Self { effective, billed, list, hours }
    }

    /// Returns the sums of the amounts of parts.
    ///
    /// # Errors
    /// If a sum does not fit its column.
    pub(crate) fn sum_of(parts: &[&LinePart]) -> Result<Self, EngineError> {
        let amounts = |of: fn(&Self) -> Decimal12| sum(parts.iter().map(|part| of(&part.amounts)));
        Ok(Self {
            effective: amounts(|part| part.effective)?,
            billed: amounts(|part| part.billed)?,
            list: amounts(|part| part.list)?,
            hours: amounts(|part| part.hours)?,
        })
    }

    /// Returns whether there is no cost.
    pub(crate) fn is_free(&self) -> bool {
        [self.effective, self.billed, self.list] == [Decimal12::ZERO; 3]
    }
}

/// Returns the kind of the row of a line. A shared charge goes to the nodes of its resource if any ran.
fn row_kind(line: &BillLine) -> RowKind {
    if line.commitment_status == Some(UseStatus::Unused) {
        RowKind::CommitmentUnused
    } else if line.category == ChargeCategory::Purchase && line.commitment_id.is_some() {
        RowKind::CommitmentPurchase
    } else if line.reservation_status == Some(UseStatus::Unused) {
        RowKind::ReservationUnused
    } else {
        RowKind::SharedCharge
    }
}

impl Bills {
    /// Takes the bills and the closings out of the state at the hour's start and out of the events, which are
    /// in order.
    pub(crate) fn open(state: &mut State, events: &mut Vec<Event>, hour: Hour, currency: &str) -> Self {
        let (mut saved, mut closed) = (std::mem::take(&mut state.bills), std::mem::take(&mut state.closed));
        // Bills and closings come first in order, and their event times are full hours.
        let is_of_bills =
            |event: &Event| matches!(event.payload, Payload::BillSet(_) | Payload::BillingPeriodClosed(_));
        let count = events.iter().take_while(|event| is_of_bills(event)).count();
        for event in events.drain(..count) {
            if let Payload::BillSet(set) = event.payload {
                saved.push(SavedBill::new(event.event_time, Arc::from(set)));
            } else if let Payload::BillingPeriodClosed(month) = event.payload {
                closed.insert(billing_account(&month.provider, &month.billing_account_id));
            }
        }
        if count > 0 {
            saved.sort_by(|a, b| a.key().cmp(&b.key()));
        }
        let sets =
            saved.into_iter().map(|saved| OpenBill { counts: *saved.set.currency == *currency, saved });
        let sets = sets.collect();
        let mut bills = Self {
            hour,
            sets,
            keys: BTreeSet::new(),
            commitments: BTreeSet::new(),
            reservations: BTreeSet::new(),
            closed,
        };
        bills.collect_names();
        bills
    }

    /// Collects what is billed in the hour.
    fn collect_names(&mut self) {
        let Self { hour, sets, keys, commitments, reservations, closed: _ } = self;
        for bill in sets.iter().filter(|bill| bill.counts) {
            for line in bill.saved.set.lines.iter().filter(|line| line.period_end > hour.start()) {
                commitments.extend(line.commitment_id.clone());
                reservations.extend(line.reservation_id.clone());
                if row_kind(line) == RowKind::SharedCharge {
                    keys.extend(bill_key(&bill.saved.set));
                }
            }
        }
    }

    /// Returns whether the hour is final: an account is closed, and so is every account that has a line.
    pub(crate) fn is_final(&self) -> bool {
        let covers = |set: &&Arc<BillSet>| set.lines.iter().any(|line| line.period_end > self.hour.start());
        let sets = self.sets.iter().filter(|bill| bill.counts).map(|bill| &bill.saved.set);
        let is_closed = |set: &Arc<BillSet>| {
            self.closed.contains(&billing_account(&set.provider, &set.billing_account_id))
        };
        !self.closed.is_empty() && sets.filter(covers).all(is_closed)
    }

    /// Returns the keys for which nodes are billed.
    pub(crate) fn keys(&self) -> &BTreeSet<BillKey> {
        &self.keys
    }

    /// Returns the commitments that are billed.
    pub(crate) fn commitments(&self) -> &BTreeSet<CommitmentId> {
        &self.commitments
    }

    /// Takes the hour's part of each line, and divides it over the nodes of its resource. Marks the slices of
    /// reservations that are billed.
    ///
    /// # Errors
    /// If an amount does not fit its column.
    pub(crate) fn settle(
        self,
        slices: &mut Slices,
        trace: &mut Recorder<BillStep>,
    ) -> Result<HourBills, EngineError> {
        let mut settled = HourBills { closed: self.closed, ..HourBills::default() };
        if self.sets.is_empty() {
            return Ok(settled);
        }
        for id in &self.reservations {
            let slices = slices.reservations.get_mut(id).into_iter().flatten();
            slices.for_each(|slice| slice.is_billed = true);
        }
        let times = billed_times(&slices.nodes);
        for OpenBill { mut saved, counts } in self.sets {
            if counts {
                let key = bill_key(&saved.set);
                let nodes =
                    key.as_ref().and_then(|key| times.get(key)).map(Vec::as_slice).unwrap_or_default();
                for taken in saved.take(self.hour, nodes)? {
                    settled.place(&taken, key.as_ref(), nodes, trace)?;
                }
            }
            if saved.set.lines.iter().any(|line| line.period_end > self.hour.end()) {
                settled.saved.push(saved);
            }
        }
        Ok(settled)
    }
}

/// The part of a line that the hour takes, with the amounts that earlier hours have left.
struct Taken {
    part: LinePart,
    left: LineAmounts,
}

impl HourBills {
    /// Gives a part to the nodes of its resource, or keeps it for other rows.
    fn place(
        &mut self,
        taken: &Taken,
        key: Option<&BillKey>,
        nodes: &[BilledTime<'_>],
        trace: &mut Recorder<BillStep>,
    ) -> Result<(), EngineError> {
        let part = &taken.part;
        let kind = row_kind(part.line.line());
        let given = match key.filter(|_| kind == RowKind::SharedCharge && !nodes.is_empty()) {
            Some(key) => self.give(key, nodes, part)?,
            None => {
                if !part.amounts.is_free() {
                    self.rows.push((kind, part.clone()));
                }
                Vec::new()
            }
        };
        if trace.wants(|focus| is_in(focus, part.line.line(), &part.line.set, nodes)) {
            trace.push(taken.step(nodes, &given));
        }
        Ok(())
    }

    /// Divides a part over nodes by their estimates, or by their time if they have no prices. Returns the
    /// amounts of the nodes.
    fn give(
        &mut self,
        key: &BillKey,
        nodes: &[BilledTime<'_>],
        part: &LinePart,
    ) -> Result<Vec<LineAmounts>, EngineError> {
        let is_priced = nodes.iter().any(|node| !node.estimate.is_zero());
        let weights = nodes.iter().map(|node| match is_priced {
            true => Fraction::new(node.estimate.clone(), UBig::ONE),
            false => Fraction::new(UBig::from(node.micros), UBig::ONE),
        });
        let weights: Vec<Fraction> = weights.collect();
        let weights: Vec<&Fraction> = weights.iter().collect();
        let mut amounts = vec![[Decimal12::ZERO; 4]; nodes.len()];
        for (index, amount) in part.amounts.all().into_iter().enumerate() {
            for (of_node, amount) in amounts.iter_mut().zip(divide(amount, &weights)?) {
                of_node[index] = amount;
            }
        }
        let amounts: Vec<LineAmounts> = amounts.into_iter().map(LineAmounts::from_all).collect();
        for (node, amounts) in nodes.iter().zip(&amounts) {
            let part = LinePart { line: part.line.clone(), amounts: *amounts };
            let parts = self.nodes.entry(node.node.clone()).or_default();
            parts.entry(key.clone()).or_default().push(part);
        }
        Ok(amounts)
    }
}

/// Returns whether a focus has a line, or a node that it goes to.
fn is_in(focus: &Focus, line: &BillLine, set: &BillSet, nodes: &[BilledTime<'_>]) -> bool {
    focus.bills.contains(&set.resource_key)
        || line.commitment_id.as_ref().is_some_and(|id| focus.commitments.contains(id))
        || line.reservation_id.as_ref().is_some_and(|id| focus.reservations.contains(id))
        || nodes.iter().any(|node| focus.nodes.contains(node.node))
}

impl Taken {
    /// Returns the step for a trace. `given` has the amounts of the nodes.
    fn step(&self, nodes: &[BilledTime<'_>], given: &[LineAmounts]) -> BillStep {
        let LinePart { line: BilledLine { set, begins_at, .. }, amounts } = &self.part;
        let line = self.part.line.line();
        let given = nodes.iter().zip(given);
        BillStep {
            provider: set.provider.clone(),
            billing_account_id: set.billing_account_id.clone(),
            resource_key: set.resource_key.clone(),
            line_id: line.line_id.clone(),
            description: line.description.clone(),
            from: *begins_at,
            to: line.period_end,
            whole: LineAmounts::of(line).into(),
            left: self.left.into(),
            part: (*amounts).into(),
            node_hours: ExactNumber::new(hours(nodes.iter().map(|node| node.micros).sum())),
            nodes: given
                .map(|(node, amounts)| (node.node.0.clone(), node.node.1.clone(), (*amounts).into()))
                .collect(),
        }
    }
}

impl SavedBill {
    /// Creates a set of which nothing has been taken.
    fn new(begins_at: Timestamp, set: Arc<BillSet>) -> Self {
        let left = set.lines.iter().map(LineAmounts::of).collect();
        Self { begins_at, set, left }
    }

    /// Takes the hour's part of each line that covers the hour.
    fn take(&mut self, hour: Hour, nodes: &[BilledTime<'_>]) -> Result<Vec<Taken>, EngineError> {
        let time = hours(nodes.iter().map(|node| node.micros).sum());
        let mut taken = Vec::new();
        for (index, (line, left)) in self.set.lines.iter().zip(&mut self.left).enumerate() {
            if line.period_end <= hour.start() {
                continue;
            }
            let before = *left;
            let amounts = if line.period_end <= hour.end() {
                before
            } else {
                let factor = factor(self.begins_at, line, left, &time);
                part_of(&LineAmounts::of(line), &factor)?
            };
            let pairs = left.all().into_iter().zip(amounts.all());
            let mut rest = [Decimal12::ZERO; 4];
            for (rest, (left, part)) in rest.iter_mut().zip(pairs) {
                *rest = difference(left, part)?;
            }
            *left = LineAmounts::from_all(rest);
            let line = BilledLine { set: self.set.clone(), begins_at: self.begins_at, index };
            taken.push(Taken { part: LinePart { line, amounts }, left: before });
        }
        Ok(taken)
    }
}

/// Returns a part of the amounts, each rounded.
fn part_of(whole: &LineAmounts, factor: &RBig) -> Result<LineAmounts, EngineError> {
    let [effective, billed, list, hours] = whole.all().map(|amount| round(&(ratio_of(amount) * factor)));
    Ok(LineAmounts { effective: effective?, billed: billed?, list: list?, hours: hours? })
}

/// Returns the part of a line that an hour takes, unless it is the line's last hour. `time` is the time of
/// all nodes of the line's resource.
fn factor(begins_at: Timestamp, line: &BillLine, left: &LineAmounts, time: &RBig) -> RBig {
    let is_of_resource = row_kind(line) == RowKind::SharedCharge;
    match line.hours.map(ratio_of).filter(|hours| is_of_resource && !hours.is_zero()) {
        Some(hours) => time.clone().min(ratio_of(left.hours)) / hours,
        None => {
            let micros = line.period_end.0.saturating_sub(begins_at.0);
            let count = u64::try_from(micros / HOUR_MICROS).unwrap_or(1).max(1);
            ratio(UBig::ONE, UBig::from(count))
        }
    }
}

/// Returns a decimal as a ratio.
fn ratio_of<D: Into<Decimal12>>(value: D) -> RBig {
    signed(value) / RBig::from(ATOMS_IN_ONE)
}

/// The time of a node under a billed key.
struct BilledTime<'a> {
    node: &'a NodeKey,
    micros: u128,
    /// The cost of this time by the node's own price, in atoms times microseconds.
    estimate: UBig,
}

/// Returns the time of nodes under billed keys, in order of the nodes.
fn billed_times(nodes: &BTreeMap<NodeKey, Vec<NodeSlice>>) -> BTreeMap<&BillKey, Vec<BilledTime<'_>>> {
    let mut times: BTreeMap<&BillKey, Vec<BilledTime<'_>>> = BTreeMap::new();
    for (node, slices) in nodes {
        for slice in slices {
            let Some(key) = &slice.spec.bill else { continue };
            let micros = slice.span.micros();
            let estimate = atoms(slice.unit_price()) * UBig::from(micros);
            let of_key = times.entry(key).or_default();
            match of_key.last_mut().filter(|last| last.node == node) {
                Some(last) => {
                    last.micros += micros;
                    last.estimate += estimate;
                }
                None => of_key.push(BilledTime { node, micros, estimate }),
            }
        }
    }
    times
}
