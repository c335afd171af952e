//! Execution of a plan: the conversion of one record from the writer's bytes to bytes of our newest schema.
//!
//! As in `prorata_schemas::body`, a value that does not resolve is noted, and the walk continues to the end
//! of the record.

use std::fmt::Display;

use prorata_schemas::body::wire::{Wire, put_bytes, put_long};
use prorata_schemas::reject::{Reason, RecordError, Reject};

use super::error::shortened;
use super::plan::{Node, RecordPlan, Step};
use super::skip::{Skips, branch};

/// A record that is being converted.
pub(super) struct Convert<'p> {
    skips: &'p Skips,
    out: Vec<u8>,
    fault: Option<Reject>,
}

/// Converts the next record of `wire`.
pub(super) fn convert(node: &Node, skips: &Skips, wire: &mut Wire<'_>) -> Result<Vec<u8>, RecordError> {
    let mut convert = Convert { skips, out: Vec::with_capacity(256), fault: None };
    convert.node(node, wire)?;
    convert.fault.map_or(Ok(convert.out), |fault| Err(RecordError::Rejected(fault)))
}

impl Convert<'_> {
    fn node(&mut self, node: &Node, wire: &mut Wire<'_>) -> Result<(), Reject> {
        match node {
            Node::Null => {}
            Node::Default(default) => self.out.extend_from_slice(default),
            Node::Boolean => self.out.push(wire.boolean()?.into()),
            Node::Int => put_long(&mut self.out, wire.int()?.into()),
            Node::Long => put_long(&mut self.out, wire.long()?),
            Node::Bytes => put_bytes(&mut self.out, wire.bytes()?),
            Node::Fixed(size) => put_bytes(&mut self.out, wire.take(*size)?),
            Node::Enum(indexes) => match branch(indexes, wire)? {
                Ok(index) => put_long(&mut self.out, *index),
                Err(unknown) => self.unresolved(unknown),
            },
            Node::EnumText(symbols) => {
                let text = wire.bytes()?;
                match (0..).zip(symbols).find(|(_, symbol)| symbol.as_bytes() == text) {
                    Some((index, _)) => put_long(&mut self.out, index),
                    None => {
                        let text = String::from_utf8_lossy(text.get(..64).unwrap_or(text)).into_owned();
                        self.unresolved(format_args!("our enum has no symbol '{text}'"));
                    }
                }
            }
            Node::Array(item) => self.blocks(item, false, wire)?,
            Node::Map(value) => self.blocks(value, true, wire)?,
            Node::Record(plan) => self.record(plan, wire)?,
            Node::Into(index, node) => {
                put_long(&mut self.out, *index);
                self.node(node, wire)?;
            }
            Node::Branches(branches) => match branch(branches, wire)? {
                Ok(node) => self.node(node, wire)?,
                Err((why, skip)) => {
                    self.unresolved(why);
                    self.skips.pass(skip, wire)?;
                }
            },
        }
        Ok(())
    }

    fn unresolved(&mut self, why: impl Display) {
        self.fault.get_or_insert_with(|| Reject::new(Reason::UnknownEvent, shortened(why.to_string())));
    }

    fn blocks(&mut self, item: &Node, keys: bool, wire: &mut Wire<'_>) -> Result<(), Reject> {
        loop {
            let entries = wire.block()?;
            // None of our items is empty, so a count that exceeds the bytes left ends in `malformed`.
            if entries > 0 {
                put_long(&mut self.out, entries.try_into().unwrap_or(i64::MAX));
            }
            for _ in 0..entries {
                if keys {
                    put_bytes(&mut self.out, wire.bytes()?);
                }
                self.node(item, wire)?;
            }
            if entries == 0 {
                put_long(&mut self.out, 0);
                return Ok(());
            }
        }
    }

    /// Converts fields in the writer's order, then rearranges them into our order.
    fn record(&mut self, plan: &RecordPlan, wire: &mut Wire<'_>) -> Result<(), Reject> {
        let base = self.out.len();
        let mut spans = if plan.in_order { Vec::new() } else { vec![0..0; plan.defaults.len()] };
        for step in &plan.steps {
            match step {
                Step::Keep(place, node) => {
                    let start = self.out.len();
                    self.node(node, wire)?;
                    if let Some(span) = spans.get_mut(*place) {
                        *span = start..self.out.len();
                    }
                }
                Step::Pass(skip) => self.skips.pass(skip, wire)?,
            }
        }
        if !plan.in_order {
            let mut ordered = Vec::with_capacity(self.out.len() - base + 16);
            for (span, default) in spans.into_iter().zip(&plan.defaults) {
                let field = default.as_deref().or_else(|| self.out.get(span));
                ordered.extend_from_slice(field.unwrap_or_default());
            }
            self.out.truncate(base);
            self.out.append(&mut ordered);
        }
        Ok(())
    }
}
