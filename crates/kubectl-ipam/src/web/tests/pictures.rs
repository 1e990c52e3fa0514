//! Pictures of the page, in a real browser, and of a command in a terminal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use capi_ipam_testing::process::built;
use fantoccini::key::Key;
use jiff::Timestamp;
use serde_json::json;

use super::browser::Browser;
use super::sample::{break_blocks, lease, make_crowded, many_blocks, sample};
use super::serve;
use crate::model::{Answer, OutageCause, Report, show};
use crate::objects::{Kind, ServedKinds};
use crate::render::{self, Style};
use crate::web::state::State;

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

const VIEWS: [ViewOfPage; 14] = [
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
    ("blocks", "network/region", ".block-list tbody tr"),
    ("address", "search?q=10.0.0.12", ".holders tbody tr"),
    (
        "search",
        "search?q=web-11",
        ".claims tbody tr:nth-child(11)",
    ),
    ("part", "search?q=172.16.1", ".holders tbody tr"),
    ("waiting", "waiting", ".waiting tbody tr"),
    ("clusters", "clusters", ".clusters tbody tr"),
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
        let script = format!("return ({})()", include_str!("contrast.js"));
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
    for kind in [Kind::Reservation, Kind::Claim, Kind::Address] {
        state.update(|tables| tables.objects.deny(kind));
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
        ("conflict", "network/campus", ".block-list [data-kind=bad]"),
        ("no-secret", "network/branch", ".block-list tbody tr"),
        ("many", "network/fabric", ".block-list tbody tr"),
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
        ServedKinds::default(),
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
    let script = format!("({})({})", include_str!("terminal.js"), json!(lines));
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

/// The first lines of `show` with colors.
fn shown(state: &State) -> Vec<String> {
    let mut lines = Vec::new();
    state.update(|tables| {
        let pools = tables.objects.pools();
        let web = pools.iter().find(|pool| pool.key.name.as_ref() == "web");
        let details = show(web.unwrap(), &tables.objects, &tables.ledger);
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
        ("web-blocks", "network/region", ".block-list tbody tr"),
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
