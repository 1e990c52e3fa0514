//! The manifests with addresses that a ClusterResourceSet applies to a Cluster.

use capi_ipam_api::AddressResource;
use capi_ipam_ip::{Block, Family};
use serde_json::{Map, Value, json};

/// Namespace of the objects of MetalLB.
const METALLB_NAMESPACE: &str = "metallb-system";
/// Namespace of ConfigMaps.
const CONFIG_NAMESPACE: &str = "kube-system";

/// What a claim is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocated {
    /// The address, or the prefix.
    pub(super) block: Block,
    /// The prefix length in the IPAddress: that of the subnet, or of the prefix.
    pub(super) prefix: u8,
    /// The name servers of the address.
    pub(super) dns_servers: Vec<String>,
    /// The search domains of the address.
    pub(super) search_domains: Vec<String>,
}

impl Allocated {
    /// The address, or the first one of the prefix.
    pub(super) fn address(&self) -> String {
        self.block.base().to_string()
    }

    /// The address with the prefix length.
    pub(super) fn cidr(&self) -> String {
        format!("{}/{}", self.block.base(), self.prefix)
    }

    /// The first and the last address.
    pub(super) fn range(&self) -> String {
        let last = self.block.family().address(self.block.span().last());
        format!("{}-{last}", self.block.base())
    }

    /// The address, or the prefix in CIDR notation.
    pub(super) fn text(&self) -> String {
        if self.block == Block::address(self.block.base()) {
            self.address()
        } else {
            self.block_cidr()
        }
    }

    /// The addresses that are allocated, in CIDR notation.
    fn block_cidr(&self) -> String {
        format!("{}/{}", self.block.base(), self.block.length())
    }
}

/// The manifest of a resource with the address of an item. `values` are those of all items.
pub(super) fn manifest(
    resource: AddressResource,
    item: &str,
    allocated: &Allocated,
    values: &Map<String, Value>,
) -> Value {
    match resource {
        AddressResource::MetalLb => json!({
            "apiVersion": "metallb.io/v1beta1",
            "kind": "IPAddressPool",
            "metadata": { "name": item, "namespace": METALLB_NAMESPACE },
            "spec": { "addresses": [allocated.block_cidr()] },
        }),
        AddressResource::CiliumLoadBalancerIPPool => json!({
            "apiVersion": "cilium.io/v2alpha1",
            "kind": "CiliumLoadBalancerIPPool",
            "metadata": { "name": item },
            "spec": { "blocks": [{ "cidr": allocated.block_cidr() }] },
        }),
        AddressResource::KubeVipConfigMap => {
            let data = json!({ "cidr-global": allocated.block_cidr() });
            config_map("kubevip", &data)
        }
        AddressResource::Values => config_map("cluster-addresses", &Value::Object(values.clone())),
    }
}

/// Adds the address of an item, in all formats, to the data of a ConfigMap with values.
pub(super) fn add_values(values: &mut Map<String, Value>, item: &str, allocated: &Allocated) {
    values.insert(format!("{item}.address"), json!(allocated.address()));
    values.insert(format!("{item}.cidr"), json!(allocated.cidr()));
    values.insert(format!("{item}.range"), json!(allocated.range()));
    let lists = [
        ("dnsServers", &allocated.dns_servers),
        ("searchDomains", &allocated.search_domains),
    ];
    for (name, list) in lists {
        if !list.is_empty() {
            values.insert(format!("{item}.{name}"), json!(list.join(",")));
        }
    }
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": CONFIG_NAMESPACE },
        "data": data,
    })
}

/// What an IPAddress has allocated; `None` if it is not valid.
pub(super) fn allocated(address: &str, prefix: i64, has_prefix: bool) -> Option<Allocated> {
    let address = capi_ipam_ip::parse_address(address).ok()?;
    let prefix = u8::try_from(prefix).ok()?;
    if prefix > Family::of(address).bits() {
        return None;
    }
    let block = if has_prefix {
        Block::new(address, prefix)
    } else {
        Block::address(address)
    };
    Some(Allocated {
        block,
        prefix,
        dns_servers: Vec::new(),
        search_domains: Vec::new(),
    })
}
