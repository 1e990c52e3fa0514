//! Name servers, search domains and DNS names of the addresses of a pool.

use capi_ipam_ip::parse_address;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::is_dns_subdomain;
use super::field_problem::FieldProblem;

/// The maximum number of name servers of a list.
pub const MAX_DNS_SERVERS: usize = 8;
/// The maximum number of search domains of a list.
pub const MAX_SEARCH_DOMAINS: usize = 16;

/// What a domain must be.
pub(super) const DOMAIN: &str = "must be a domain of at most 253 lower case letters, digits, dashes and dots, such as example.com";

/// The DNS names of the machines of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolDns {
    /// Domain of the names, such as machines.example.com.
    pub zone: String,
    /// The name before the zone: MachineName, the default, is that of the machine of the claim, or
    /// of the claim if it has no machine; ClaimName is that of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<DnsRecord>,
}

/// What the DNS name of an address begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsRecord {
    /// The name of the machine of the claim, or of the claim if it has no machine.
    #[default]
    MachineName,
    /// The name of the claim.
    ClaimName,
}

/// The name servers and search domains of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameServers {
    /// The addresses of the name servers.
    pub servers: Vec<String>,
    /// The search domains.
    pub search_domains: Vec<String>,
}

impl NameServers {
    pub(super) fn of(servers: &[String], search_domains: &[String]) -> Self {
        Self {
            servers: servers.to_vec(),
            search_domains: search_domains.to_vec(),
        }
    }

    /// Those of a range, and those of its pool in place of what it does not have.
    pub(super) fn or(self, pool: &Self) -> Self {
        let mut chosen = self;
        if chosen.servers.is_empty() {
            chosen.servers.clone_from(&pool.servers);
        }
        if chosen.search_domains.is_empty() {
            chosen.search_domains.clone_from(&pool.search_domains);
        }
        chosen
    }

    pub(super) fn problems(&self, path: &str) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        let mut add = |field: &str, value: &str, text: &str| {
            problems.push(FieldProblem::new(format!("{path}{field}"), value, text));
        };
        for (index, server) in self.servers.iter().enumerate() {
            if let Err(error) = parse_address(server) {
                add(&format!("dnsServers[{index}]"), server, &error.to_string());
            }
        }
        for (index, domain) in self.search_domains.iter().enumerate() {
            if !is_dns_subdomain(domain) {
                add(&format!("searchDomains[{index}]"), domain, DOMAIN);
            }
        }
        if self.servers.len() > MAX_DNS_SERVERS {
            let text = format!("must have at most {MAX_DNS_SERVERS} entries");
            add("dnsServers", "", &text);
        }
        if self.search_domains.len() > MAX_SEARCH_DOMAINS {
            let text = format!("must have at most {MAX_SEARCH_DOMAINS} entries");
            add("searchDomains", "", &text);
        }
        problems
    }
}

/// What a pool says about DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// The name servers of each range, in the order of
    /// [`UsableBlocks::ranges`](capi_ipam_ip::UsableBlocks::ranges).
    pub ranges: Vec<NameServers>,
    /// The DNS names; `None` if addresses have none.
    pub names: Option<PoolDns>,
}

impl PoolDns {
    /// The DNS name of the address of a claim, whose machine has this name; `None` if it is longer
    /// than a DNS name can be.
    pub fn name(&self, claim: &str, machine: Option<&str>) -> Option<String> {
        let first = match self.record.unwrap_or_default() {
            DnsRecord::MachineName => machine.unwrap_or(claim),
            DnsRecord::ClaimName => claim,
        };
        let name = format!("{first}.{}", self.zone);
        self.contains(&name).then_some(name)
    }

    /// Whether a text is a DNS name (RFC 1035) within the zone.
    pub fn contains(&self, name: &str) -> bool {
        let first = name.strip_suffix(&self.zone);
        let is_within = first.is_some_and(|first| first.len() > 1 && first.ends_with('.'));
        let has_short_labels = name.split('.').all(|label| label.len() <= 63);
        is_within && has_short_labels && is_dns_subdomain(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_that_of_the_machine_or_the_claim() {
        let mut dns = PoolDns {
            zone: "m.example.com".to_owned(),
            record: None,
        };
        assert_eq!(dns.name("c", Some("vm-1")).unwrap(), "vm-1.m.example.com");
        assert_eq!(dns.name("c", None).unwrap(), "c.m.example.com");
        dns.record = Some(DnsRecord::ClaimName);
        assert_eq!(dns.name("c", Some("vm-1")).unwrap(), "c.m.example.com");
        assert_eq!(dns.name(&"c".repeat(64), None), None);
        for name in [
            "m.example.com",
            ".m.example.com",
            "xm.example.com",
            "a.example.com",
        ] {
            assert!(!dns.contains(name), "{name}");
        }
    }
}
