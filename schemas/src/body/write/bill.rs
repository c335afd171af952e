//! Writes sets of lines of bills, and closings of months.

use super::Out;
use crate::event::{BillLine, BillSet, BillingPeriodClosed, ChargeCategory, UseStatus};
use crate::money::{Amount, UnitPrice};

impl Out {
    pub(super) fn bill_set(&mut self, bill: &BillSet) {
        self.text(&bill.provider);
        self.text(&bill.billing_account_id);
        self.text(&bill.resource_key);
        self.text(&bill.currency);
        self.array(&bill.lines, Self::bill_line);
    }

    pub(super) fn billing_period_closed(&mut self, closed: &BillingPeriodClosed) {
        self.text(&closed.provider);
        self.text(&closed.billing_account_id);
        self.optional(closed.invoice_id.as_deref(), Self::text);
    }

    fn bill_line(&mut self, line: &BillLine) {
        self.text(&line.line_id);
        self.time(line.period_end);
        self.long(match line.category {
            ChargeCategory::Usage => 0,
            ChargeCategory::Purchase => 1,
            ChargeCategory::Tax => 2,
            ChargeCategory::Credit => 3,
            ChargeCategory::Adjustment => 4,
        });
        self.0.push(line.is_correction.into());
        self.text(&line.service);
        self.optional(line.sku_id.as_deref(), Self::text);
        self.optional(line.description.as_deref(), Self::text);
        self.optional(line.account_id.as_deref(), Self::text);
        self.optional(line.invoice_id.as_deref(), Self::text);
        self.optional(line.commitment_id.as_deref(), Self::text);
        self.optional(line.commitment_status, Self::use_status);
        self.optional(line.reservation_id.as_deref(), Self::text);
        self.optional(line.reservation_status, Self::use_status);
        self.optional(line.hours.map(Amount::atoms), Self::decimal);
        self.optional(line.list_unit_price.map(UnitPrice::atoms), Self::decimal);
        self.decimal(line.billed_cost.atoms());
        self.decimal(line.effective_cost.atoms());
        self.decimal(line.list_cost.atoms());
    }

    fn use_status(&mut self, status: UseStatus) {
        self.long(match status {
            UseStatus::Used => 0,
            UseStatus::Unused => 1,
        });
    }
}
