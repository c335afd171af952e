//! Spans of event time. Every span of the rules is half-open: it includes its start and excludes its end.

use prorata_schemas::time::Timestamp;

/// A non-empty half-open span [from, to) inside one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Span {
    /// Creates the span, unless it is empty.
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Option<Self> {
        (from < to).then_some(Self { from, to })
    }

    /// Returns the length in microseconds.
    pub(crate) fn micros(self) -> u128 {
        u128::from(self.to.0.abs_diff(self.from.0))
    }

    /// Returns the part that both spans share.
    pub(crate) fn overlap(self, other: Self) -> Option<Self> {
        Self::new(self.from.max(other.from), self.to.min(other.to))
    }

    /// Returns the shortest span that holds both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self { from: self.from.min(other.from), to: self.to.max(other.to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: i64, to: i64) -> Option<Span> {
        Span::new(Timestamp(from), Timestamp(to))
    }

    #[test]
    fn a_span_holds_its_first_instant_and_not_its_last() {
        assert_eq!(span(5, 5), None);
        assert_eq!(span(5, 6).map(Span::micros), Some(1));
        let (early, late) = (span(0, 10).unwrap(), span(10, 20).unwrap());
        assert_eq!(early.overlap(late), None);
        assert_eq!(early.overlap(span(9, 12).unwrap()), span(9, 10));
    }
}
