//! The page in a real browser, with objects that do not come from an API server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{InClusterKind, PoolKey};
use capi_ipam_ip::Block;
use capi_ipam_testing::process::built;
use fantoccini::key::Key;
use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;

use super::claim_entry::ClaimEntry;
use super::guard::Guard;
use super::server::Page;
use super::state::State;
use super::table::Table;
use crate::error::MissingRight;
use crate::load::Readable;
use crate::model::{
    Answer, BlockCell, BlockUse, ClusterState, MapPart, NetworkBlocks, OutageCause, Report, View,
    show,
};
use crate::objects::PoolRow;
use crate::render::{self, Style};

#[path = "../../tests/browser/mod.rs"]
mod browser;

mod sample;

use browser::Browser;
use sample::{
    bind, break_blocks, lease, make_crowded, many_blocks, own_block, pool, ready, receive, record,
    reference, sample, sample_of, shared_network, wait,
};

/// Serves the page, and returns its address.
async fn serve(state: &Arc<State>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let guard = Guard::new(listener.local_addr().unwrap().port());
    let address = guard.address();
    tokio::spawn(Page::new(guard, Arc::clone(state)).serve(listener));
    address
}

fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/screenshots")
        .join(format!("{name}.png"))
}

/// Writes a picture of the page, of its first 3,000 pixels if it is longer.
async fn take_picture(browser: &Browser, width: u32, name: &str) {
    let height = browser
        .run("return document.documentElement.scrollHeight")
        .await
        .as_u64()
        .unwrap_or_default();
    browser
        .resize(
            width,
            u32::try_from(height).unwrap_or(u32::MAX).clamp(600, 3_000),
        )
        .await;
    let path = picture(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, browser.driver.screenshot().await.unwrap()).unwrap();
    browser.resize(width, 900).await;
}

/// A view of the page: its name, its address, and a selector of what it shows when it is complete.
type ViewOfPage = (&'static str, &'static str, &'static str);

const VIEWS: [ViewOfPage; 13] = [
    ("overview", "", ".pools tbody tr:nth-child(7)"),
    ("problems", "?show=problems", ".groups [aria-current]"),
    (
        "pool",
        "pool/InClusterIPPool/team-a/web?at=10.0.0.12",
        ".map .cell.allocated",
    ),
    (
        "map",
        "pool/GlobalInClusterIPPool/-/data-center",
        ".map .cell.allocated",
    ),
    (
        "exhausted",
        "pool/InClusterIPPool/team-b/edge",
        ".map .cell.allocated",
    ),
    (
        "slices",
        "pool/InClusterIPPool/team-a/racks",
        ".slices tbody tr:nth-child(2)",
    ),
    (
        "six",
        "pool/GlobalInClusterIPPool/-/six",
        ".map .cell.allocated",
    ),
    (
        "network",
        "network/backbone",
        ".pools tbody tr:nth-child(2)",
    ),
    ("blocks", "network/region", ".blocks .map .cell.own"),
    ("address", "search?q=10.0.0.12", ".holders tbody tr"),
    (
        "search",
        "search?q=web-11",
        ".claims tbody tr:nth-child(11)",
    ),
    ("part", "search?q=172.16.1", ".holders tbody tr"),
    ("waiting", "waiting", ".waiting tbody tr"),
];

/// A browser with the page, and what the pictures are made of.
struct Studio {
    browser: Browser,
    base: String,
}

impl Studio {
    async fn open(state: &Arc<State>) -> Self {
        let address = serve(state).await;
        let browser = Browser::start().await;
        let base = address.split("/?").next().unwrap().to_owned();
        browser.resize(1280, 900).await;
        browser.open(&address).await;
        browser.wait_for("document.querySelector('#live').dataset.state === 'live' || document.querySelector('.notice')").await;
        Self { browser, base }
    }

    /// Takes pictures of some views, in both color schemes, on a wide screen and on a phone.
    async fn shoot(&self, views: &[ViewOfPage], prefix: &str) {
        for scheme in ["light", "dark"] {
            self.browser.set_color_scheme(scheme).await;
            for (width, size) in [(1280, "wide"), (390, "phone")] {
                self.browser.resize(width, 900).await;
                for (name, view, complete) in views {
                    self.browser.open(&format!("{}/#/{view}", self.base)).await;
                    // The layout depends on the width.
                    self.browser.run("location.reload()").await;
                    self.browser
                        .wait_for(&format!("document.querySelector('{complete}')"))
                        .await;
                    let name = format!("{prefix}{name}-{size}-{scheme}");
                    self.check(&name, width).await;
                    take_picture(&self.browser, width, &name).await;
                }
            }
        }
    }

    /// Zooms into the second block of a large pool with the keyboard.
    async fn zoom(&self) {
        self.browser.resize(1280, 900).await;
        let pool = "pool/GlobalInClusterIPPool/-/data-center";
        self.browser.open(&format!("{}/#/{pool}", self.base)).await;
        self.browser
            .wait_for("document.querySelector('.map .cell.allocated')")
            .await;
        self.browser
            .run("document.querySelector('.map .cell').focus()")
            .await;
        self.browser
            .press(&format!("{}{}", &*Key::Right, &*Key::Enter))
            .await;
        self.browser
            .wait_for("document.querySelector('.trail:not([hidden])')")
            .await;
    }

    /// What a picture does not show: the page does not scroll sideways, and every text has enough
    /// contrast.
    async fn check(&self, name: &str, width: u32) {
        let scroll = "return document.documentElement.scrollWidth";
        let scroll = self.browser.run(scroll).await;
        assert!(
            scroll.as_u64().unwrap() <= u64::from(width),
            "{name} scrolls: {scroll}"
        );
        let script = format!("return ({})()", include_str!("tests/contrast.js"));
        let low = self.browser.run(&script).await;
        assert_eq!(low, json!([]), "{name}: texts with a contrast below 4.5");
        let small = "return [...document.querySelectorAll('.map .cell')].map((cell) => cell.offsetWidth).find((width) => width < 24) ?? 24";
        if width < 600 {
            assert_eq!(
                self.browser.run(small).await,
                json!(24),
                "{name}: a small cell"
            );
        }
    }
}

/// Writes pictures of all views to `target/screenshots`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files; run it to look at the page"]
async fn screenshots() {
    let state = sample();
    let studio = Studio::open(&state).await;
    studio.shoot(&VIEWS, "").await;
    studio.zoom().await;
    take_picture(&studio.browser, 1280, "zoomed-wide-dark").await;
    make_crowded(&state);
    studio.shoot(&[VIEWS[0], VIEWS[12]], "crowded-").await;
    assert_eq!(
        studio.browser.log().await,
        "",
        "no violation of the policy, no error"
    );
    studio.browser.close().await;
}

/// Writes pictures of the page when something is broken.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files; run it to look at the page"]
async fn screenshots_of_failures() {
    let notice = |name, view| (name, view, ".notice");
    let views = [
        notice("overview", ""),
        notice("pool", "pool/InClusterIPPool/team-a/web"),
        notice("waiting", "waiting"),
    ];
    let state = sample();
    let studio = Studio::open(&state).await;
    state.heard(Answer::Leases(vec![lease(300)]));
    studio.shoot(&views, "no-manager-").await;
    let reason = "Connection refused (os error 111)".to_owned();
    state.heard(Answer::None(OutageCause::Refused, reason));
    studio.shoot(&views, "no-server-").await;
    studio.browser.close().await;

    let state = sample();
    for (resource, pick) in [
        ("ipreservations", 0),
        ("ipaddressclaims", 1),
        ("ipaddresses", 2),
    ] {
        let right = MissingRight {
            verb: "list",
            resource: format!("{resource}.ipam.cluster.x-k8s.io"),
            namespace: None,
        };
        state.update(|tables| match pick {
            0 => tables.reservations.missing(right),
            1 => tables.claims.missing(right),
            _ => tables.addresses.missing(right),
        });
    }
    state.heard(Answer::Refused);
    let studio = Studio::open(&state).await;
    studio.shoot(&views, "no-rights-").await;
    studio.browser.close().await;

    let state = sample();
    break_blocks(&state);
    many_blocks(&state);
    let studio = Studio::open(&state).await;
    let views = [
        ("overview", "", ".networks tbody tr:nth-child(5)"),
        ("problems", "?show=problems", ".networks tbody tr"),
        ("conflict", "network/campus", ".blocks .map .cell.conflict"),
        ("no-secret", "network/branch", ".blocks .map .cell.unknown"),
        ("many", "network/fabric", ".blocks .map .cell.own"),
    ];
    studio.shoot(&views, "blocks-").await;
    assert_eq!(
        studio.browser.log().await,
        "",
        "no violation of the policy, no error"
    );
    studio.browser.close().await;

    let state = Arc::new(State::new(
        "https://management.example.com:6443".to_owned(),
        None,
        false,
    ));
    state.finish_lists();
    let studio = Studio::open(&state).await;
    studio
        .shoot(
            &[
                ("overview", "", ".first"),
                ("waiting", "waiting", ".empty"),
                ("search", "search?q=x", ".empty:not([hidden])"),
            ],
            "empty-",
        )
        .await;
    studio.browser.close().await;
}

/// Writes a picture of lines in a terminal of a size in pixels.
async fn terminal_picture(
    browser: &Browser,
    (width, height): (u32, u32),
    lines: &[String],
    file: &Path,
) {
    browser.resize(width, height).await;
    browser.open("about:blank").await;
    let script = format!("({})({})", include_str!("tests/terminal.js"), json!(lines));
    browser.run(&script).await;
    let picture = browser.driver.screenshot().await.unwrap();
    std::fs::write(file, picture).unwrap();
}

/// The most important steps of the output of `make demo`, which has a title before each step.
fn demo_lines() -> Vec<String> {
    const TITLE: &str = "\u{1b}[1m";
    const BLUE: &str = "\u{1b}[34m";
    let shown = ["A machine controller", "`kubectl ipam` shows"];
    let demo = Command::new(built("demo")).output().unwrap();
    let output = String::from_utf8(demo.stdout).unwrap();
    let mut lines = vec!["$ make demo".to_owned()];
    for step in output.split(TITLE).skip(1) {
        if shown.iter().any(|title| step.starts_with(title)) {
            lines.push(String::new());
            let step = format!("{BLUE}{}", step.trim_end());
            lines.extend(step.lines().map(str::to_owned));
        }
    }
    lines
}

/// Writes the pictures of the documentation: the page, and a command in a terminal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files of the documentation"]
async fn documentation_pictures() {
    let state = sample();
    let address = serve(&state).await;
    let base = address.split("/?").next().unwrap().to_owned();
    let images = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let browser = Browser::start().await;
    browser.open(&address).await;
    for (name, view, cells) in [
        ("web-overview", "", ".pools tbody tr:nth-child(5)"),
        (
            "web-pool",
            "pool/InClusterIPPool/team-a/web?at=10.0.0.12",
            ".map .cell.allocated",
        ),
        (
            "web-blocks",
            "network/region?at=10.40.1.70",
            ".blocks .map .cell.own",
        ),
    ] {
        browser.resize(1180, 780).await;
        browser.open(&format!("{base}/#/{view}")).await;
        browser
            .wait_for(&format!("document.querySelector('{cells}')"))
            .await;
        std::fs::write(
            images.join(format!("{name}.png")),
            browser.driver.screenshot().await.unwrap(),
        )
        .unwrap();
    }
    let command = ["$ kubectl ipam show web -n team-a".to_owned()];
    let lines = [&command[..], &shown(&state)].concat();
    let picture = images.join("kubectl-ipam-show.png");
    terminal_picture(&browser, (860, 560), &lines, &picture).await;
    let picture = images.join("demo.png");
    terminal_picture(&browser, (1010, 890), &demo_lines(), &picture).await;
    browser.close().await;
}

#[test]
fn what_may_not_be_listed_is_unknown() {
    let state = sample();
    let right = |resource: &str| MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    };
    let web = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web");
    let all = state.overview();
    assert!(all.waiting.is_some() && all.bound.is_some() && state.search("10.0.0.10").is_complete);
    assert!(
        state
            .pool(&web, MapPart::default())
            .unwrap()
            .unwrap()
            .window
            .is_some()
    );

    state.update(|tables| {
        tables.claims.missing(MissingRight {
            verb: "watch",
            ..right("claims")
        })
    });
    assert!(
        state.overview().waiting.is_some(),
        "a list that is not watched is read again"
    );
    state.update(|tables| tables.claims.missing(right("claims")));
    let unknown = state.overview();
    assert_eq!((unknown.waiting, unknown.bound), (None, None));
    assert!(unknown.pools.iter().all(|pool| pool.line.waiting.is_none()));
    assert_eq!(
        state
            .pool(&web, MapPart::default())
            .unwrap()
            .unwrap()
            .waiting_count,
        None
    );
    assert!(!state.search("web-1").is_complete);

    state.update(|tables| tables.reservations.missing(right("reservations")));
    let pool = state.pool(&web, MapPart::default()).unwrap().unwrap();
    assert!(
        pool.window.is_none() && pool.details.counts.free.is_none(),
        "what is free is unknown"
    );
    let missing = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "none");
    assert!(state.pool(&missing, MapPart::default()).unwrap().is_none());
    state.update(|tables| {
        tables
            .pools
            .entry(InClusterKind::IPPool)
            .or_default()
            .missing(right("pools"))
    });
    assert!(
        state.pool(&missing, MapPart::default()).is_err(),
        "it is unknown whether there is such a pool"
    );
}

/// The cell with an address in the map of the blocks of a network.
fn block_of(blocks: &NetworkBlocks, label: &str) -> Option<BlockCell> {
    let window = blocks.window.as_ref().unwrap();
    let index = window.labels.iter().position(|it| it == label).unwrap();
    let mut cells = window.cells.iter();
    cells.find(|cell| cell.index == index as u64).cloned()
}

fn blocks(state: &State, network: &str) -> NetworkBlocks {
    let found = state.blocks(network, MapPart::default());
    found.unwrap().unwrap()
}

#[test]
fn holders_of_blocks_are_shown() {
    let state = sample();
    let all = state.overview();
    let region = all.networks.iter().find(|it| it.line.name == "region");
    let summary = region.unwrap().blocks.clone().unwrap();
    assert_eq!(
        (summary.held, summary.total.as_deref(), summary.conflicts),
        (Some(5), Some("64"), 0)
    );
    assert!(all.networks[0].blocks.is_none(), "backbone shares none");
    let shown = blocks(&state, "region");
    assert_eq!(shown.cluster_id.as_deref(), Some("west-1"));
    assert_eq!(shown.registry.ready, "True");
    assert!(shown.read.is_some() && shown.unread.is_none() && shown.is_complete);
    let clusters: Vec<_> = shown
        .clusters
        .iter()
        .map(|line| (line.cluster.as_str(), line.blocks, line.state))
        .collect();
    assert_eq!(
        clusters[..3],
        [
            ("east-1", 11, ClusterState::Alive),
            ("east-2", 6, ClusterState::Alive),
            ("north", 2, ClusterState::Stale)
        ]
    );
    let window = shown.window.as_ref().unwrap();
    assert_eq!((window.labels.len(), window.cell_size.as_str()), (64, "1"));
    assert_eq!(window.ends[1], "10.40.0.127");
    assert_eq!(window.cells.len(), 31);

    let own = block_of(&shown, "10.40.0.64/26").unwrap();
    assert_eq!((own.own, own.used, own.size), (1, Some(25), 64));
    let details = own.block.unwrap();
    assert_eq!(
        (details.state, details.pools.len()),
        (BlockUse::Own, 1),
        "{details:?}"
    );
    assert_eq!(details.pools[0].address, "10.40.0.64");
    let first = block_of(&shown, "10.40.0.0/26").unwrap();
    assert_eq!(first.size, 63, "without the network address");
    let other = block_of(&shown, "10.40.1.64/26").unwrap();
    let details = other.block.unwrap();
    assert_eq!((details.state, other.cluster), (BlockUse::Other, Some(0)));
    assert_eq!(
        (details.clusters, details.recorded),
        (vec!["east-1".to_owned()], Some(5))
    );
    assert_eq!(block_of(&shown, "10.40.15.0/26"), None, "free");

    let view = View::Around(
        "10.40.1.70"
            .parse::<std::net::IpAddr>()
            .map(Block::address)
            .unwrap(),
    );
    let around = state.blocks("region", MapPart::new(view, None)).unwrap();
    assert_eq!(around.unwrap().window.unwrap().focus, Some(5));
    assert!(
        state
            .blocks("backbone", MapPart::default())
            .unwrap()
            .is_none()
    );
    assert!(state.blocks("none", MapPart::default()).unwrap().is_none());
}

#[test]
fn broken_blocks_say_what_is_wrong() {
    let state = sample();
    break_blocks(&state);
    let campus = blocks(&state, "campus");
    assert!(campus.conflict.as_ref().unwrap().starts_with("2 blocks"));
    assert_eq!(campus.command, "kubectl ipam registry check campus");
    assert!(
        campus.read.is_some() && campus.unread.is_some(),
        "the last known records"
    );
    assert_eq!(campus.misfits, 1, "a block of 32 addresses");
    let of = |label: &str| block_of(&campus, label).unwrap().block.unwrap();
    let conflict = of("10.40.0.64/26");
    assert_eq!(conflict.state, BlockUse::Conflict);
    assert_eq!(conflict.clusters, ["west-1", "east-1"]);
    assert_eq!(of("10.40.0.128/26").clusters, ["west-1", "unknown"]);
    assert!(of("10.40.0.192/26").note.unwrap().contains("not confirmed"));
    assert!(of("10.40.1.0/26").note.unwrap().contains("no IPSlice"));
    assert_eq!(of("10.40.1.64/26").clusters, ["east-1", "north"]);
    let texts = campus.clusters.iter().map(|line| line.cluster.as_str());
    for text in texts.chain(of("10.40.1.192/26").clusters.iter().map(String::as_str)) {
        assert!(text.chars().count() <= 121, "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
    }

    // Without the records, it is unknown who has the other blocks.
    let branch = blocks(&state, "branch");
    assert!(branch.read.is_none());
    assert!(branch.unread.unwrap().contains("secrets"));
    let clusters: Vec<_> = branch
        .clusters
        .iter()
        .map(|line| (line.cluster.as_str(), line.blocks))
        .collect();
    assert_eq!(clusters, [("east-1", 12), ("north", 1)]);
    assert_eq!(branch.window.unwrap().cells.len(), 3);

    // What may not be listed is unknown.
    let right = |resource: &str| MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    };
    state.update(|tables| tables.addresses.missing(right("addresses")));
    state.update(|tables| tables.registries.missing(right("registries")));
    state.update(|tables| tables.slices.missing(right("slices")));
    let part = blocks(&state, "region");
    assert!(!part.is_complete);
    assert_eq!(block_of(&part, "10.40.0.64/26").unwrap().used, None);
    state.update(|tables| tables.networks.missing(right("networks")));
    assert!(state.blocks("none", MapPart::default()).is_err());
}

#[test]
fn map_of_very_many_blocks_has_a_bounded_size() {
    let state = sample();
    many_blocks(&state);
    let whole = blocks(&state, "fabric");
    assert_eq!((whole.clusters.len(), whole.more_clusters), (16, 83));
    let window = whole.window.as_ref().unwrap();
    assert_eq!(
        (window.total.as_str(), window.cell_size.as_str()),
        ("16384", "16")
    );
    assert_eq!((window.labels.len(), window.cells.len()), (1_024, 625));
    let size = serde_json::to_string(&whole).unwrap().len();
    assert!(size < 200_000, "{size} bytes");
    let zoomed = MapPart::new(View::Range(0, 1_024), None);
    let zoomed = state.blocks("fabric", zoomed).unwrap().unwrap();
    let window = zoomed.window.as_ref().unwrap();
    assert_eq!(
        (window.cell_size.as_str(), window.cells.len()),
        ("1", 1_024)
    );
    let size = serde_json::to_string(&zoomed).unwrap().len();
    assert!(size < 500_000, "{size} bytes");
}

#[test]
fn records_that_cannot_be_read_leave_the_last_known_ones() {
    let state = sample();
    let status = json!({});
    shared_network(&state, ("lab", "lab-registry"), "10.41.0.0/24", &status);
    own_block(&state, "lab", "10.41.0.0", 1, &json!({}));
    let unknown = blocks(&state, "lab");
    assert_eq!(
        (unknown.read, &unknown.unread),
        (None, &None),
        "not read yet"
    );
    assert_eq!(unknown.registry.exists, Some(false));
    let of_east = record("lab", "10.41.0.64", &json!({ "cluster": "east" }));
    receive(&state, "lab-registry", Ok(&[of_east]));
    let read = blocks(&state, "lab").read;
    receive(&state, "lab-registry", Err("no answer"));
    let last = blocks(&state, "lab");
    assert_eq!(
        (last.read, last.unread.as_deref()),
        (read, Some("no answer"))
    );
    assert_eq!(block_of(&last, "10.41.0.64/26").unwrap().others, 1);
    let version = state.overview().version;
    receive(&state, "lab-registry", Ok(&[]));
    assert!(
        state.overview().version > version,
        "the page gets the change"
    );
    let again = blocks(&state, "lab");
    assert!(again.unread.is_none() && block_of(&again, "10.41.0.64/26").is_none());
}

#[test]
fn search_finds_parts_and_lists_the_best_first() {
    let state = sample();
    let part = state.search("172.16.1");
    let first: Vec<_> = part
        .holders
        .iter()
        .take(2)
        .map(|it| it.address.as_str())
        .collect();
    assert_eq!(first, ["172.16.1.0", "172.16.1.1"]);
    assert_eq!(part.holders.len(), 100);
    assert!(part.totals.holders > 1000, "{:?}", part.totals);
    assert_eq!(
        state.search("10.0.0.").pools[0].name,
        "web",
        "by its addresses"
    );

    let names = state.search("node-");
    assert_eq!((names.claims.len(), names.totals.claims), (100, 6_000));
    let first: Vec<_> = names
        .claims
        .iter()
        .take(3)
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(first, ["node-2", "node-3", "node-4"]);
    assert_eq!(
        state.search("WEB-7").claims[0].name,
        "web-7",
        "the exact name is first"
    );

    let prefix = state.search("172.16.0.0/16");
    assert_eq!((prefix.holders.len(), prefix.totals.holders), (100, 6_000));
    let reserved = state.search("10.0.0.203");
    assert_eq!((reserved.holders.len(), reserved.totals.holders), (1, 1));
}

#[test]
fn claims_of_an_unknown_kind_wait() {
    let state = sample_of(Some("team-b"));
    let before = (state.overview().waiting, state.waiting().unwrap().len());
    let kind = json!({
        "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIpPool", "name": "edge",
    });
    for (namespace, name) in [("team-b", "m1"), ("team-b", "m2"), ("team-c", "m3")] {
        wait(&state, namespace, name, &kind, 60, "", "");
    }
    let groups = state.waiting().unwrap();
    let found = (state.overview().waiting, groups.len());
    assert_eq!(found, (before.0.map(|count| count + 2), before.1 + 1));
    let group = groups
        .iter()
        .find(|group| group.reason.as_deref() == Some("UnknownPoolKind"))
        .unwrap();
    assert_eq!(
        (group.count, group.pool.kind.as_str()),
        (2, "InClusterIpPool")
    );
    let message = group.message.as_deref().unwrap_or_default();
    assert!(
        message.ends_with("did you mean InClusterIPPool?"),
        "{message}"
    );
}

#[test]
fn page_of_a_namespace_lists_its_pools_and_claims() {
    let state = sample_of(Some("team-b"));
    let overview = state.overview();
    assert_eq!(overview.namespace.as_deref(), Some("team-b"));
    let names: Vec<_> = overview
        .pools
        .iter()
        .map(|it| it.line.pool.name.as_str())
        .collect();
    assert_eq!(names, ["edge", "data-center", "six", "pods"]);
    assert_eq!(overview.waiting, Some(2));
    let groups = state.waiting().unwrap();
    assert_eq!(groups.len(), 1, "not that of team-c");
    assert!(state.search("web-1").claims.is_empty());
    assert_eq!(
        state.search("10.0.0.10").holders.len(),
        1,
        "an address is found everywhere"
    );
}

#[test]
fn outage_and_recovery_are_recorded() {
    let state = sample();
    assert_eq!(state.overview().outage, None);
    let answered = Timestamp::now();
    state.heard(Answer::None(OutageCause::Silent, "no answer".to_owned()));
    let outage = state.overview().outage.unwrap();
    assert_eq!(outage.cause, OutageCause::Silent);
    assert!(
        outage.since.unwrap() <= answered,
        "the time of the last answer"
    );
    let version = state.overview().version;
    state.heard(Answer::None(OutageCause::Silent, "no answer".to_owned()));
    assert_eq!(state.overview().version, version, "nothing has changed");
    state.heard(Answer::Leases(vec![lease(1)]));
    assert_eq!(state.overview().outage, None);
}

#[test]
fn pool_of_a_network_tells_what_others_use() {
    let state = sample();
    let data = reference("InClusterIPPool", "beside");
    let spec = json!({ "addresses": ["172.16.0.0/24"], "prefix": 16, "network": "backbone" });
    pool(
        &state,
        InClusterKind::IPPool,
        "team-b",
        "beside",
        &spec,
        &json!({}),
    );
    bind(&state, "team-b", "own", &data, "172.16.0.200", 16);
    let key = PoolKey::new(InClusterKind::IPPool, Some("team-b"), "beside");
    let shown = state.pool(&key, MapPart::default()).unwrap().unwrap();
    assert_eq!(shown.details.counts.used, Some(1));
    assert!(shown.used_by_others.unwrap() > 200);
    let racks = PoolKey::new(InClusterKind::IPPool, Some("team-a"), "racks");
    let shown = state.pool(&racks, MapPart::default()).unwrap().unwrap();
    let slices = shown.details.slices.unwrap();
    assert_eq!(slices.len(), 2);
    assert_eq!(slices[0].used, Some(12));
}

/// The first lines of `show` with colors.
fn shown(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    state.update(|tables| {
        let pools: Vec<PoolRow> = tables
            .pools
            .values()
            .flat_map(Table::iter)
            .cloned()
            .collect();
        let pool = pools
            .iter()
            .find(|pool| pool.key.name.as_ref() == "web")
            .unwrap();
        let addresses: Vec<_> = tables
            .addresses
            .iter()
            .filter(|row| row.pool == pool.key)
            .cloned()
            .collect();
        let reservations: Vec<_> = tables.reservations.iter().cloned().collect();
        let (addresses, reservations) = (
            Readable::complete(addresses),
            Readable::complete(reservations),
        );
        let claims = Readable::complete(
            tables
                .claims
                .iter()
                .filter_map(ClaimEntry::served)
                .cloned()
                .collect(),
        );
        let slices = Readable::complete(Vec::new());
        let all = Readable::complete(pools.as_slice());
        let details = show(pool, &all, &addresses, &reservations, &slices, &claims);
        let style = Style {
            color: true,
            wide: false,
            namespaces: false,
            headers: true,
            now: Timestamp::now(),
        };
        lines = render::text(&Report::PoolDetails(Box::new(details)), style)
            .lines()
            .take(24)
            .map(str::to_owned)
            .collect();
    });
    lines
}

/// Measures the script of an update in a pool with 100,000 addresses in use.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement; run it in a release build"]
async fn update_of_100000_addresses_is_fast() {
    let state = Arc::new(State::new(
        "https://management.example.com:6443".to_owned(),
        None,
        false,
    ));
    let large = reference("GlobalInClusterIPPool", "large");
    let spec = json!({ "addresses": ["10.0.0.0/15"], "prefix": 15, "gateway": "10.0.0.1" });
    let counts = |used: u32| json!({ "total": 131_069, "used": used, "free": 131_069 - used, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalIPPool,
        "",
        "large",
        &spec,
        &ready(&counts(100_000)),
    );
    let address = |number: u32| std::net::Ipv4Addr::from(0x0a00_0002 + number).to_string();
    for number in 0..100_000 {
        bind(
            &state,
            "team",
            &format!("node-{number}"),
            &large,
            &address(number),
            15,
        );
    }
    state.finish_lists();
    let entry = serve(&state).await;
    let base = entry.split("/?").next().unwrap().to_owned();
    let browser = Browser::start().await;
    browser.open(&entry).await;
    browser
        .wait_for("document.querySelectorAll('.pools tbody tr').length === 1")
        .await;
    // The browser reports tasks of more than 50 ms.
    let observe = "new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
    }).observe({ type: 'longtask' })";
    browser.run(observe).await;
    for (name, hash, cells) in [
        ("overview", "", 0),
        ("whole map", "?", 1024),
        ("1024 single addresses", "?start=98304&length=1024", 1024),
    ] {
        let path = if name == "overview" {
            String::new()
        } else {
            format!("pool/GlobalInClusterIPPool/-/large{hash}")
        };
        browser.open(&format!("{base}/#/{path}")).await;
        if cells > 0 {
            browser
                .wait_for(&format!(
                    "document.querySelectorAll('.map .cell').length === {cells}"
                ))
                .await;
        }
        browser.run("window.longest = 0").await;
        for round in 0..20_u32 {
            for number in 0..50 {
                let number = 99_000 + round * 50 + number;
                bind(
                    &state,
                    "team",
                    &format!("later-{number}"),
                    &large,
                    &address(number + 1_000),
                    15,
                );
            }
            pool(
                &state,
                InClusterKind::GlobalIPPool,
                "",
                "large",
                &spec,
                &ready(&counts(100_000 + round * 50)),
            );
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let longest = browser.run("return window.longest").await;
        let longest = longest.as_f64().unwrap();
        println!("{name}: the longest task of more than 50 ms takes {longest:.1} ms");
        assert!(longest <= 100.0, "{name}: an update takes {longest} ms");
    }
    assert_eq!(browser.log().await, "");
    browser.close().await;
}
