//! The resource and the account under which a provider bills a node, according to `spec.providerID`.

use prorata_schemas::Text;
use prorata_schemas::event::resource_key::{azure, last_part};

/// Prefix of a node's id at Azure.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// The resource and the account under which a node is billed, if its provider id contains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BilledAs {
    /// The id of the resource in the provider's bill.
    pub resource_key: Option<Text>,
    /// The account, project or subscription.
    pub account_id: Option<Text>,
}

impl BilledAs {
    /// Reads a provider id, such as `aws:///us-east-1a/i-0123456789abcdef0`.
    pub fn read(provider_id: &str) -> Self {
        match provider_id.split_once("://") {
            Some(("gce", path)) => Self::of_google(path),
            Some(("azure", path)) => Self::of_azure(path),
            // Bills of AWS and other providers have the last part.
            Some((_, path)) => Self { resource_key: text(last_part(path)), account_id: None },
            None => Self { resource_key: text(last_part(provider_id)), account_id: None },
        }
    }

    /// Reads `project/zone/name`. A bill identifies a machine by its zone and name.
    fn of_google(path: &str) -> Self {
        match path.split_once('/') {
            Some((project, key)) => Self { resource_key: text(key), account_id: text(project) },
            None => Self { resource_key: text(path), account_id: None },
        }
    }

    /// Reads the path of a virtual machine.
    fn of_azure(path: &str) -> Self {
        let key = azure(path);
        let account = key.strip_prefix(SUBSCRIPTIONS).and_then(|rest| rest.split('/').next());
        Self { resource_key: text(&key), account_id: account.and_then(text) }
    }
}

fn text(found: &str) -> Option<Text> {
    (!found.is_empty()).then(|| found.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_id_names_the_resource_and_the_account_of_the_bill() {
        let machine = "/subscriptions/AB-12/resourceGroups/RG/providers/Microsoft.Compute";
        let lower = machine.to_lowercase();
        let cases = [
            ("aws:///us-east-1a/i-0123456789abcdef0".into(), Some("i-0123456789abcdef0".into()), None),
            ("gce://project/us-central1-a/gke-1".into(), Some("us-central1-a/gke-1".into()), Some("project")),
            (
                format!("azure://{machine}/virtualMachineScaleSets/Pool-1/virtualMachines/7"),
                Some(format!("{lower}/virtualmachinescalesets/pool-1")),
                Some("ab-12"),
            ),
            (
                format!("azure://{machine}/virtualMachines/Node-1"),
                Some(format!("{lower}/virtualmachines/node-1")),
                Some("ab-12"),
            ),
            ("digitalocean://12345".into(), Some("12345".into()), None),
            ("cn-hangzhou.i-bp1".into(), Some("cn-hangzhou.i-bp1".into()), None),
            ("gce://name".into(), Some("name".into()), None),
            ("aws://".into(), None, None),
            (String::new(), None, None),
        ];
        for (provider_id, resource_key, account) in cases {
            let expected = BilledAs {
                resource_key: resource_key.map(|key: String| key.as_str().into()),
                account_id: account.map(Into::into),
            };
            assert_eq!(BilledAs::read(&provider_id), expected, "{provider_id}");
        }
    }
}
