//! What the specification of a pool says about DNS.

use super::dns::is_dns_subdomain;
use super::field_problem::FieldProblem;
use super::name_servers::{DOMAIN, DnsSettings, NameServers};
use super::pool_spec::PoolSpec;

impl PoolSpec {
    /// What the pool says about DNS; `None` if it says nothing, as pools of prefixes.
    pub fn dns_settings(&self) -> Option<DnsSettings> {
        let Self::Addresses(spec) = self else {
            return None;
        };
        let of_pool = NameServers::of(&spec.dns_servers, &spec.search_domains);
        let mut ranges = Vec::new();
        if !spec.addresses.is_empty() {
            ranges.push(of_pool.clone());
        }
        for range in &spec.ranges {
            let of_range = NameServers::of(&range.dns_servers, &range.search_domains);
            ranges.push(of_range.or(&of_pool));
        }
        let is_used = spec.dns.is_some() || ranges.iter().any(|it| *it != NameServers::default());
        is_used.then(|| DnsSettings {
            ranges,
            names: spec.dns.clone(),
        })
    }

    /// The problems of name servers, search domains and the zone.
    pub fn dns_problems(&self) -> Vec<FieldProblem> {
        let Self::Addresses(spec) = self else {
            return Vec::new();
        };
        let of_pool = NameServers::of(&spec.dns_servers, &spec.search_domains);
        let mut problems = of_pool.problems("spec.");
        for (index, range) in spec.ranges.iter().enumerate() {
            let of_range = NameServers::of(&range.dns_servers, &range.search_domains);
            problems.extend(of_range.problems(&format!("spec.ranges[{index}].")));
        }
        if let Some(dns) = spec.dns.as_ref().filter(|dns| !is_dns_subdomain(&dns.zone)) {
            problems.push(FieldProblem::new("spec.dns.zone", &*dns.zone, DOMAIN));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PoolSpec {
        PoolSpec::Addresses(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn range_without_name_servers_has_those_of_the_pool() {
        let with = |addresses: &[&str]| {
            spec(json!({
                "addresses": addresses, "dnsServers": ["10.0.0.53"], "searchDomains": ["example.com"],
                "ranges": [{"addresses": ["10.1.0.1"], "prefix": 24, "dnsServers": ["10.1.0.53"]}],
            }))
        };
        let of_pool = NameServers::of(&["10.0.0.53".to_owned()], &["example.com".to_owned()]);
        let of_range = NameServers {
            servers: vec!["10.1.0.53".to_owned()],
            ..of_pool.clone()
        };
        let settings = with(&["10.0.0.1"]).dns_settings().unwrap();
        assert_eq!(settings.ranges, [of_pool, of_range.clone()]);
        assert_eq!(with(&[]).dns_settings().unwrap().ranges, [of_range]);
        assert_eq!(
            spec(json!({"addresses": ["10.0.0.1"]})).dns_settings(),
            None
        );
    }

    #[test]
    fn problems_have_the_path_of_the_field() {
        let spec = spec(json!({
            "dnsServers": ["10.0.0.53", "dns.example.com"], "searchDomains": ["example.com."],
            "dns": {"zone": "Example"},
            "ranges": [{"addresses": ["10.1.0.1"], "prefix": 24, "dnsServers": ["10.1.0.53"], "searchDomains": [""]}],
        }));
        let fields: Vec<String> = spec
            .dns_problems()
            .into_iter()
            .map(|problem| problem.field.into_owned())
            .collect();
        assert_eq!(
            fields,
            [
                "spec.dnsServers[1]",
                "spec.searchDomains[0]",
                "spec.ranges[0].searchDomains[0]",
                "spec.dns.zone"
            ]
        );
    }
}
