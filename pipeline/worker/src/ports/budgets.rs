//! The topic of exceeded budgets, and its messages.

use async_trait::async_trait;
use prorata_schemas::Text;
use prorata_schemas::rows::budget::BudgetUse;
use prorata_schemas::time::Hour;
use serde_json::json;

use super::source::SourceError;

/// An exceeded budget, and the first hour of the period that exceeds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededBudget {
    /// The budget, and the spend through the hour.
    pub used: BudgetUse,
    /// The hour.
    pub hour: Hour,
    /// The currency of spend and budget.
    pub currency: Text,
}

impl ExceededBudget {
    /// Returns the message's key, which identifies the budget and the period: a JSON array of organization,
    /// pool, period and first day of the period. Repeated messages have the same key.
    pub fn key(&self) -> String {
        let BudgetUse { organization_id, pool_id, period, .. } = &self.used;
        let start = period.start(self.hour).to_string();
        json!([**organization_id, **pool_id, period.name(), start]).to_string()
    }

    /// Returns the message's value, a JSON object. Amounts of money are texts with exact decimals.
    pub fn value(&self) -> String {
        let BudgetUse { organization_id, pool_id, period, spend, budget } = &self.used;
        json!({
            "type": "budget_exceeded",
            "organization_id": **organization_id,
            "pool_id": **pool_id,
            "period": period.name(),
            "period_start": period.start(self.hour).to_string(),
            "hour": self.hour.start().to_string(),
            "spend": spend.to_string(),
            "budget": budget.to_string(),
            "currency": *self.currency,
        })
        .to_string()
    }
}

/// The topic of exceeded budgets.
#[async_trait]
pub trait BudgetTopic: Send + Sync {
    /// Sends a message for each budget. Returns when the brokers have all messages.
    async fn send(&self, exceeded: &[ExceededBudget]) -> Result<(), SourceError>;
}

#[cfg(test)]
mod tests {
    use prorata_schemas::rows::budget::Period;

    use super::*;

    #[test]
    fn a_message_names_its_budget_exactly() {
        let used = BudgetUse {
            organization_id: "ac\"me".into(),
            pool_id: "a,100".into(),
            period: Period::Quarter,
            spend: "100.000000000001".parse().unwrap(),
            budget: "100".parse().unwrap(),
        };
        let exceeded = ExceededBudget { used, hour: Hour(498_205), currency: "EUR".into() };
        assert_eq!(exceeded.key(), r#"["ac\"me","a,100","quarter","2026-10-01"]"#);
        let expected = r#"{"budget":"100","currency":"EUR","hour":"2026-11-01T13:00:00.000000Z","#.to_owned()
            + r#""organization_id":"ac\"me","period":"quarter","period_start":"2026-10-01","#
            + r#""pool_id":"a,100","spend":"100.000000000001","type":"budget_exceeded"}"#;
        assert_eq!(exceeded.value(), expected);
    }
}
