//! A cluster of three servers, each of which can be separated from the others.

use std::sync::Arc;

use super::link::Link;
use super::{Node, Options};
use crate::ports::free_port;
use crate::process::TemporaryFolder;

/// The number of servers.
const SIZE: usize = 3;

/// Three servers that replicate what they store. The connection of each server to each other one is
/// a link that can be cut; clients are not affected by it.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// From each server to each other one.
    links: Vec<((usize, usize), Link)>,
}

impl Cluster {
    /// Starts a cluster, and waits until it has a leader.
    ///
    /// # Panics
    /// When a server does not start; the message contains the end of its log.
    pub fn start(options: &Options) -> Self {
        let folder = Arc::new(TemporaryFolder::new("capi-ipam-nats-"));
        let ports = [(); SIZE].map(|()| free_port());
        let pairs = (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| (from, to)));
        let links: Vec<_> = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| ((from, to), Link::new(ports[to])))
            .collect();
        let node = |index: usize| {
            let block = cluster_block(index, ports[index], &links);
            let name = format!("n{index}");
            Node::launch(&name, options.clone(), block, Arc::clone(&folder))
        };
        let nodes = (0..SIZE).map(node).collect();
        let mut cluster = Self { nodes, links };
        cluster.wait_until_healthy();
        cluster
    }

    /// The URLs for clients.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Node::url).collect()
    }

    /// One of the servers, whose names are `n0`, `n1` and `n2`.
    pub fn node(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// The number of the server with a name.
    ///
    /// # Panics
    /// When there is none.
    pub fn index_of(&self, name: &str) -> usize {
        let found = self.nodes.iter().position(|node| node.name == name);
        found.unwrap_or_else(|| panic!("there is no server {name}"))
    }

    /// Separates a server from the two others.
    pub fn separate(&self, index: usize) {
        for link in self.links_of(index) {
            link.cut();
        }
    }

    /// Ends the separation of a server.
    pub fn join(&self, index: usize) {
        for link in self.links_of(index) {
            link.restore();
        }
    }

    /// Waits until all servers are healthy.
    pub fn wait_until_healthy(&mut self) {
        for node in &mut self.nodes {
            node.wait_until_healthy();
        }
    }

    /// The links from and to a server.
    fn links_of(&self, index: usize) -> impl Iterator<Item = &Link> {
        let is_of = move |pair: &(usize, usize)| pair.0 == index || pair.1 == index;
        self.links
            .iter()
            .filter(move |(pair, _)| is_of(pair))
            .map(|(_, link)| link)
    }
}

/// The configuration of a server as a member of the cluster.
fn cluster_block(index: usize, port: u16, links: &[((usize, usize), Link)]) -> String {
    let routes: Vec<_> = links
        .iter()
        .filter(|((from, _), _)| *from == index)
        .map(|(_, link)| format!("\"nats://127.0.0.1:{}\"", link.port()))
        .collect();
    // What a server announces, others connect to beside the links. Nobody listens on this port.
    format!(
        "cluster {{ name: test, listen: \"127.0.0.1:{port}\", advertise: \"127.0.0.1:1\", \
         no_advertise: true, pool_size: -1, routes: [{}] }}",
        routes.join(", ")
    )
}
