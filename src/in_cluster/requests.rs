//! The address that a claim requests: its text, and why the claim cannot have it.

use std::sync::Arc;

use capi_ipam_api::{Audience, PoolKey, conditions};
use capi_ipam_ip::{Block, UsableBlocks, UsableRange, parse_block};
use capi_ipam_ledger::{PoolInfo, Unavailable};
use capi_ipam_provider::prelude::HandlerError;

use super::errors::describe_missing_block;
use super::handler::InClusterHandler;

impl InClusterHandler {
    /// The block that the claim requests, if the pool accepts requests. A bound claim has its
    /// address already. If the request is not valid, the claim waits until it or the pool changes.
    pub(super) fn requested(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
    ) -> Result<Option<Block>, HandlerError> {
        let text = self
            .claim
            .requested_address()
            .filter(|_| info.accepts_requests);
        let Some((text, usable)) = text
            .zip(info.usable.as_ref().ok())
            .filter(|_| self.claim.bound_address().is_none())
        else {
            return Ok(None);
        };
        match parse_request(text, usable) {
            Ok(block) => Ok(Some(block)),
            Err(problem)
                if self
                    .ledger()
                    .change(|ledger| ledger.wait_for_change(pool, &self.key, Some(usable))) =>
            {
                Err(HandlerError::Waiting {
                    reason: conditions::REQUESTED_ADDRESS_UNAVAILABLE,
                    message: format!(
                        "the requested address is not valid for {pool}: {problem}; correct the annotation of the claim"
                    ),
                })
            }
            Err(_) => Err(HandlerError::Conflict(format!("{pool} has changed"))),
        }
    }

    /// Reports on a claim that gets another address than it requests, since its pool accepts no
    /// requests.
    pub(super) fn report_ignored_request(&self, pool: &PoolKey, info: &PoolInfo, block: Block) {
        let is_new = self.claim.bound_address().is_none();
        let Some(text) = self.claim.requested_address().filter(|_| is_new) else {
            return;
        };
        let usable = info.usable.as_ref().ok();
        let requested = usable.and_then(|usable| parse_request(text, usable).ok());
        if info.accepts_requests || requested == Some(block) {
            return;
        }
        let message = format!(
            "the claim requests {text} and gets {block}: {pool} accepts no requests; set spec.allocation.requests: \
             true in the pool, and create the claim again"
        );
        self.context.events.warning(
            &*self.claim,
            &self.context.contract.ipam,
            conditions::REQUEST_IGNORED,
            "Allocate",
            &message,
        );
    }

    /// The error of a claim that cannot have the block that it requests.
    pub(super) fn unavailable(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        block: Block,
        why: &Unavailable,
    ) -> HandlerError {
        let audience = Audience::of(Some(self.key.namespace()));
        let (declared, is_of_member) = self.ledger().read(|ledger| {
            let gateway = block.is_address().then(|| block.base());
            let is_of_member = gateway.is_some_and(|it| ledger.is_gateway_in_network(pool, it));
            (ledger.pools().declared_pool(pool), is_of_member)
        });
        let pool = RequestedPool {
            key: pool,
            info,
            declared: declared
                .as_deref()
                .and_then(PoolInfo::blocks)
                .map(Arc::as_ref),
            is_gateway_in_network: is_of_member,
        };
        let text = describe(&pool, block, why, audience);
        HandlerError::Waiting {
            reason: reason(why),
            message: format!("the requested {block} {text}"),
        }
    }
}

/// The pool of a claim that requests an address.
struct RequestedPool<'a> {
    key: &'a PoolKey,
    info: &'a PoolInfo,
    /// The blocks that the specification declares, with those that its network excludes.
    declared: Option<&'a UsableBlocks>,
    /// Whether the address is the gateway of a pool of the same network.
    is_gateway_in_network: bool,
}

/// The reason of the condition of a claim that cannot have the block that it requests.
fn reason(why: &Unavailable) -> &'static str {
    match why {
        Unavailable::NeedsBlock(_) => conditions::WAITING_FOR_BLOCK,
        _ => conditions::REQUESTED_ADDRESS_UNAVAILABLE,
    }
}

/// Parses the text of a request: an address, or a prefix in CIDR notation or its first address.
fn parse_request(text: &str, usable: &UsableBlocks) -> Result<Block, String> {
    let has_prefixes = usable.ranges.iter().all(|range| range.subnet.is_none());
    let named = parse_block(text, has_prefixes).map_err(|error| error.to_string())?;
    if named.family() != usable.family {
        return Err(format!(
            "{text} is {}, but the pool is {}",
            named.family(),
            usable.family
        ));
    }
    let block = Block::new(named.base(), usable.length);
    let is_first_address = !text.contains('/') && named.base() == block.base();
    if named == block || is_first_address {
        return Ok(block);
    }
    let length = usable.length;
    Err(if has_prefixes {
        format!(
            "{text} is not a prefix of the length {length} that the pool allocates, such as {}/{length}",
            block.base()
        )
    } else {
        format!("{text} is a network, and the pool allocates single addresses, such as {block}")
    })
}

/// Describes why a pool does not allocate a block, and what to change.
fn describe_not_allocated(pool: &RequestedPool<'_>, block: Block) -> String {
    let RequestedPool { key, info, .. } = pool;
    let Ok(usable) = &info.usable else {
        return format!("is not allocated by {key}, which is not valid; correct the pool");
    };
    let change_pool = "request another one or change the pool";
    let mut gateways = usable.gateways();
    if gateways.any(|gateway| Block::address(gateway) == block) {
        return format!("is a gateway of {key}; {change_pool}");
    }
    if let [range] = usable.ranges.as_slice()
        && let Some(subnet) = range.subnet.filter(|it| !it.contains(&block.base()))
    {
        return format!("is outside of the subnet {subnet} of {key}; {change_pool}");
    }
    let number = usable.number(block);
    let is_listed = |range: &&UsableRange| number.is_some_and(|it| range.set.contains(it));
    let Some(range) = usable.ranges.iter().find(is_listed) else {
        return format!("is outside of the ranges of {key}; {change_pool}");
    };
    if let Some(declared) = pool.declared
        && declared.contains(block)
    {
        let network = info.scope.network().unwrap_or_default();
        return if pool.is_gateway_in_network {
            format!("is a gateway of another pool of network {network}; request another one")
        } else {
            format!(
                "is excluded from network {network}; request another one or change spec.excluded of the network"
            )
        };
    }
    if let Some(subnet) = range.subnet
        && range.ends_at(block.base())
    {
        return format!(
            "is the first or last address of the subnet {subnet}, which {key} does not allocate; request \
             another one or set spec.allocateReservedIPAddresses"
        );
    }
    format!("is excluded by the specification of {key}; {change_pool}")
}

fn until(second: i64) -> String {
    jiff::Timestamp::from_second(second)
        .map(|end| format!(" until {end}"))
        .unwrap_or_default()
}

/// Describes why a claim cannot have the block that it requests, and what to do.
fn describe(
    pool: &RequestedPool<'_>,
    block: Block,
    why: &Unavailable,
    audience: Audience<'_>,
) -> String {
    let advice = "request another one or wait until it is released";
    let key = pool.key;
    match why {
        Unavailable::NotInPool => describe_not_allocated(pool, block),
        Unavailable::InUse(Some(claim)) => {
            format!(
                "is in use by {}; {advice}",
                audience.object("IPAddressClaim", claim.namespace(), claim.name())
            )
        }
        Unavailable::InUse(None) => format!("is in use; {advice}"),
        Unavailable::Promised(claim) => format!(
            "is reserved for {}; request another one or delete the IPReservation",
            audience.object("IPAddressClaim", claim.namespace(), claim.name())
        ),
        Unavailable::Excluded => {
            "is excluded by an IPReservation; request another one or delete the IPReservation"
                .to_owned()
        }
        Unavailable::BeingDeleted => {
            format!("is reserved by an IPReservation that is being deleted; {advice}")
        }
        Unavailable::CoolingDown(end) => {
            format!(
                "is cooling down{}; the claim gets it afterwards",
                until(*end)
            )
        }
        Unavailable::Quarantined(end) => format!(
            "is quarantined{}; request another one or wait for the end",
            until(*end)
        ),
        Unavailable::Draining => {
            format!(
                "is in a draining part of {key} (spec.draining); request another one or change the pool"
            )
        }
        Unavailable::InOtherSlice => format!(
            "is in a slice of another owner, or in one that cannot be assigned to the owner of the claim; {advice}"
        ),
        Unavailable::NeedsBlock(missing) => {
            let wait = describe_missing_block(missing);
            format!("is not in a block of this management cluster; {wait}")
        }
        Unavailable::RequestedBefore => {
            format!("is for another claim that requested it before; {advice}")
        }
        Unavailable::NotYet => format!(
            "is free, but all free addresses of {key} are for claims that have waited longer or that its \
             spec.headroom selects; add addresses to the pool or release claims"
        ),
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{InClusterKind, Pool, Scope};
    use capi_ipam_controller::namespaced_name::NamespacedName;
    use serde_json::{Value, json};

    use super::*;

    fn pool(kind: &str, spec: &Value) -> PoolInfo {
        let pool = json!({"kind": kind, "metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        PoolInfo::of(&serde_json::from_value::<Pool>(pool).unwrap())
    }

    fn parse(kind: &str, spec: &Value, text: &str) -> Result<String, String> {
        parse_request(text, &pool(kind, spec).usable.unwrap()).map(|block| block.to_string())
    }

    #[test]
    fn addresses_are_requested_by_their_text() {
        let v4 = json!({"addresses": ["10.0.0.0/24"], "prefix": 24});
        let parse = |text| parse("InClusterIPPool", &v4, text);
        assert_eq!(parse("10.0.0.5"), Ok("10.0.0.5".to_owned()));
        assert_eq!(
            parse("10.9.0.5"),
            Ok("10.9.0.5".to_owned()),
            "the ledger knows what the pool contains"
        );
        for text in ["10.0.0.5/32", "10.0.0.5/24"] {
            assert_eq!(parse(text), Ok("10.0.0.5".to_owned()), "{text}");
        }
        assert_eq!(
            parse("10.0.0.0/24").unwrap_err(),
            "10.0.0.0/24 is a network, and the pool allocates single addresses, such as 10.0.0.0"
        );
        for text in [
            "web",
            "10.0.0.05",
            " 10.0.0.5",
            "10.0.0.1-10.0.0.2",
            "::ffff:10.0.0.5",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            parse("fd00::5"),
            Err("fd00::5 is IPv6, but the pool is IPv4".to_owned())
        );
    }

    #[test]
    fn prefixes_are_requested_with_or_without_length() {
        let spec = json!({"prefixes": ["fd00:10::/48"], "allocationPrefixLength": 64});
        let parse = |text| parse("InClusterPrefixPool", &spec, text);
        for text in ["fd00:10:0:5::/64", "fd00:10:0:5::", "FD00:10:0:5:0::/64"] {
            assert_eq!(parse(text), Ok("fd00:10:0:5::/64".to_owned()));
        }
        for text in [
            "fd00:10:0:5::1",
            "fd00:10:0:5::1/64",
            "fd00:10:0:5::/65",
            "fd00:10::/48",
            "fd00:10:0:5::/x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let problem = parse("fd00:10:0:5::9").unwrap_err();
        assert!(problem.ends_with("such as fd00:10:0:5::/64"), "{problem}");
        let problem = parse("fd00:10:0:5::9/64").unwrap_err();
        let both = "write fd00:10:0:5::9 for the address, or fd00:10:0:5::/64 for the prefix";
        assert!(problem.ends_with(both), "{problem}");
    }

    #[test]
    fn messages_name_no_objects_of_other_namespaces() {
        let info = pool(
            "InClusterIPPool",
            &json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "gateway": "10.0.0.1"}),
        );
        let key = PoolKey::new(InClusterKind::IPPool, Some("n"), "p");
        let claim = |namespace: &str| NamespacedName::new(namespace, "secret");
        let requested = requested(&key, &info);
        let text = |block: [u8; 4], why: &Unavailable| {
            let block = Block::address(block.into());
            describe(&requested, block, why, Audience::of(Some("n")))
        };
        let block = [10, 0, 0, 5];
        for foreign in [
            Unavailable::InUse(Some(claim("m"))),
            Unavailable::Promised(claim("m")),
        ] {
            let text = text(block, &foreign);
            assert!(
                text.contains("an IPAddressClaim in another namespace") && !text.contains("secret"),
                "{text}"
            );
        }
        assert!(
            text(block, &Unavailable::InUse(Some(claim("n")))).contains("IPAddressClaim n/secret")
        );
        assert!(
            text(block, &Unavailable::CoolingDown(1_000)).contains("until 1970-01-01T00:16:40Z")
        );
    }

    fn requested<'a>(key: &'a PoolKey, info: &'a PoolInfo) -> RequestedPool<'a> {
        RequestedPool {
            key,
            info,
            declared: info.blocks().map(Arc::as_ref),
            is_gateway_in_network: false,
        }
    }

    #[test]
    fn cause_of_an_address_that_is_not_allocated_is_named() {
        let key = PoolKey::new(InClusterKind::IPPool, Some("n"), "p");
        let mut info = pool(
            "InClusterIPPool",
            &json!({"addresses": ["10.0.0.0-10.0.0.99"], "prefix": 24, "gateway": "10.0.0.1",
                    "excludedAddresses": ["10.0.0.7"]}),
        );
        let declared = info.usable.clone().unwrap();
        let in_network = Block::address([10, 0, 0, 9].into());
        info.usable = Ok(Arc::new(declared.without(&in_network.span().into())));
        info.scope = Scope::Network("lab".into());
        let mut requested = RequestedPool {
            declared: Some(&declared),
            ..requested(&key, &info)
        };
        for (last, cause) in [
            (0, "is the first or last address of the subnet 10.0.0.0/24"),
            (1, "is a gateway of InClusterIPPool n/p"),
            (7, "is excluded by the specification of InClusterIPPool n/p"),
            (9, "is excluded from network lab"),
            (200, "is outside of the ranges of InClusterIPPool n/p"),
        ] {
            let text = describe_not_allocated(&requested, Block::address([10, 0, 0, last].into()));
            assert!(text.starts_with(cause), "{text}");
        }
        let outside = describe_not_allocated(&requested, Block::address([10, 0, 1, 1].into()));
        assert!(outside.starts_with("is outside of the subnet 10.0.0.0/24"));
        requested.is_gateway_in_network = true;
        let text = describe_not_allocated(&requested, in_network);
        assert!(text.starts_with("is a gateway of another pool of network lab"));
    }
}
