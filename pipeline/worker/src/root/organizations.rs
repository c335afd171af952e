//! The organizations whose events a topic or a folder may bring.
//!
//! The producer chooses the key, partition and organization of a message. The broker controls which topics a
//! producer may write to. So a topic is the trust boundary between parties, and this module enforces the
//! boundary.

use std::collections::BTreeMap;

use prorata_schemas::Text;
use prorata_schemas::reject::{Reason, Reject};

/// Names of organizations, and prefixes of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrganizations(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Name(Text),
    Prefix(Text),
}

impl AllowedOrganizations {
    /// Parses patterns: each is a name, or a prefix of names followed by `*`.
    ///
    /// # Errors
    /// If a pattern is not valid, or there is none; the message says why.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let pattern = |text: &String| match text.strip_suffix('*') {
            _ if text.is_empty() => Err("an organization has a name; '*' stands for any".to_owned()),
            Some(prefix) if !prefix.contains('*') => Ok(Pattern::Prefix(prefix.into())),
            None if !text.contains('*') => Ok(Pattern::Name(text.as_str().into())),
            _ => Err(format!("'{text}': '*' may only be the last character")),
        };
        match patterns {
            [] => Err("an empty list lets no organization in; leave it out to let all in".to_owned()),
            patterns => patterns.iter().map(pattern).collect::<Result<_, _>>().map(Self),
        }
    }

    /// Returns whether an organization matches.
    pub fn contains(&self, organization_id: &str) -> bool {
        self.0.iter().any(|pattern| match pattern {
            Pattern::Name(name) => **name == *organization_id,
            Pattern::Prefix(prefix) => organization_id.starts_with(&**prefix),
        })
    }
}

/// The allowed organizations by topic; a topic that is not listed may bring events of any organization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicOrganizations(pub BTreeMap<Text, AllowedOrganizations>);

impl TopicOrganizations {
    /// Checks that a topic may bring an event of an organization.
    ///
    /// # Errors
    /// `foreign_organization` if it may not.
    pub fn check(&self, topic: &str, organization_id: &str) -> Result<(), Reject> {
        match self.0.get(topic) {
            Some(organizations) if !organizations.contains(organization_id) => {
                let message = format!(
                    "topic {topic} may not bring events of organization '{organization_id}'; fix the \
                     producer, or add the organization to the topic's in the configuration"
                );
                Err(Reject::new(Reason::ForeignOrganization, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &[&str]) -> Result<AllowedOrganizations, String> {
        AllowedOrganizations::new(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_pattern_is_a_name_or_a_beginning() {
        let organizations = of(&["acme", "acme-*"]).unwrap();
        for (name, is_one) in [
            ("acme", true),
            ("acme-eu", true),
            ("acme-", true),
            ("acmes", false),
            ("ACME", false),
            ("", false),
        ] {
            assert_eq!(organizations.contains(name), is_one, "{name}");
        }
        assert!(of(&["*"]).unwrap().contains("anybody"));
    }

    #[test]
    fn a_pattern_that_would_mean_nothing_is_an_error() {
        for (patterns, why) in [
            (&[][..], "an empty list"),
            (&[""], "has a name"),
            (&["a*b"], "last character"),
            (&["**"], "last"),
        ] {
            assert!(of(patterns).unwrap_err().contains(why), "{patterns:?}");
        }
    }
}
