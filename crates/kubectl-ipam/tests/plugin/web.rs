//! The page in a browser, beside a running manager.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::process::{Supervised, TemporaryFolder};
use capi_ipam_testing::wait::eventually;
use fantoccini::key::Key;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{create, definitions, manager, reference};

/// A running `kubectl ipam web`.
pub(super) struct Page {
    pub(super) process: Supervised,
    /// With the token.
    pub(super) address: String,
    port: u16,
    _folder: TemporaryFolder,
}

impl Page {
    async fn start(kubeconfig: &Path) -> Self {
        Self::start_with(kubeconfig, &[]).await
    }

    pub(super) async fn start_with(kubeconfig: &Path, flags: &[&str]) -> Self {
        let folder = TemporaryFolder::new("kubectl-ipam-web-");
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-ipam"));
        let kubeconfig = kubeconfig.display().to_string();
        let command = ["--kubeconfig", &kubeconfig, "web", "--no-open"];
        let arguments = [&command, flags].concat();
        let process = Supervised::spawn(program, &arguments, &[], &folder.path().join("log"));
        let address = eventually("the address of the page", async || {
            let output = process.output();
            output
                .lines()
                .find(|line| line.starts_with("http://127.0.0.1:"))
                .map(str::to_owned)
        })
        .await;
        let port = address
            .split([':', '/'])
            .find_map(|part| part.parse().ok())
            .expect("the address has a port");
        Self {
            process,
            address,
            port,
            _folder: folder,
        }
    }

    /// The address of a view.
    pub(super) fn view(&self, view: &str) -> String {
        format!("http://127.0.0.1:{}/#/{view}", self.port)
    }

    /// The cookie with which requests are answered.
    fn session(&self) -> String {
        let entry = self.entry();
        let port = self.port;
        let response = self.send(&format!("GET {entry} HTTP/1.1\nHost: 127.0.0.1:{port}"));
        let cookie = response
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "))
            .expect("a cookie");
        cookie.split(';').next().expect("a value").to_owned()
    }

    /// The path of the address, with the token.
    fn entry(&self) -> &str {
        let (_, path) = self
            .address
            .split_once(&self.port.to_string())
            .expect("the address has a port");
        path
    }

    /// The JSON that the server has under a path; `null` for what does not exist.
    pub(super) fn json(&self, path: &str) -> Value {
        let (cookie, port) = (self.session(), self.port);
        let request = format!("GET {path} HTTP/1.1\nHost: 127.0.0.1:{port}\nCookie: {cookie}");
        let response = self.send(&request);
        let (head, body) = response.split_once("\r\n\r\n").expect("a body");
        if head.starts_with("HTTP/1.1 404 ") {
            return Value::Null;
        }
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {response}");
        serde_json::from_str(body).expect("JSON")
    }

    /// Sends a request as it is, and returns the response.
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the page is served");
        let request = request.replace('\n', "\r\n") + "\r\nConnection: close\r\n\r\n";
        stream
            .write_all(request.as_bytes())
            .expect("the request can be sent");
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .expect("the response is a text");
        response
    }
}

const CELLS: &str =
    "[...document.querySelectorAll('.map .cell:not(.outside, .excluded, .gateway)')]";

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_the_cluster_as_it_changes() {
    let manager = manager();
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let control_plane = ControlPlane::start(options, &Installation::of(definitions()));
    // The audit log contains the requests of one user: only the page is this user.
    let manager = Manager::start_program(
        &control_plane,
        &manager,
        control_plane.kubeconfig(),
        &["--webhook-port=0"],
    );
    manager.wait_until_ready();
    let consumer = Consumer::new(&control_plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24, "gateway": "10.0.0.1" });
    create(
        &control_plane,
        "InClusterIPPool",
        Some(namespace),
        "web",
        &spec,
    );
    let large = json!({ "addresses": ["172.16.0.0/16"], "prefix": 16, "gateway": "172.16.0.1" });
    create(
        &control_plane,
        "GlobalInClusterIPPool",
        None,
        "large",
        &large,
    );
    let page = Page::start(control_plane.provider_kubeconfig()).await;
    let browser = Browser::start().await;

    // The overview.
    browser.open(&page.address).await;
    browser
        .wait_for("document.querySelectorAll('.pools tbody tr').length === 2")
        .await;
    browser
        .wait_for("document.querySelector('#live').dataset.state === 'live'")
        .await;
    assert_eq!(
        browser.run("return location.search").await,
        json!(""),
        "the secret is not kept in the address"
    );

    // Claims appear without a reload.
    browser
        .open(&page.view(&format!("pool/InClusterIPPool/{namespace}/web")))
        .await;
    browser
        .wait_for(&format!(
            "{CELLS}.length === 3 && {CELLS}.every((cell) => cell.matches(':not(.allocated)'))"
        ))
        .await;
    browser.run("window.isSame = true").await;
    let web = || reference("InClusterIPPool", "web");
    let metadata = json!({
        "labels": { "cluster.x-k8s.io/cluster-name": "prod" },
        "ownerReferences": [{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM", "uid": "1",
                              "name": "<img src=x onerror=alert(1)>", "controller": true }],
    });
    consumer.create_cluster("prod", false).await;
    for name in ["one", "two", "three"] {
        consumer
            .create_claim_for(name, web(), metadata.clone())
            .await;
        consumer.wait_for_address(name).await;
    }
    browser
        .wait_for(&format!(
            "{CELLS}.every((cell) => cell.matches('.allocated.level-8'))"
        ))
        .await;
    browser
        .wait_for("document.querySelector('.panel').innerText.includes('prod')")
        .await;
    consumer.create_claim_for("four", web(), metadata).await;
    consumer.wait_for_reason("four", "PoolExhausted").await;
    browser
        .wait_for("document.querySelector('.waiting-group').innerText.includes('PoolExhausted')")
        .await;
    assert_eq!(browser.run("return window.isSame").await, json!(true));

    // Waiting claims with their reasons.
    browser.open(&page.view("waiting")).await;
    browser
        .wait_for(&format!(
            "document.querySelector('.waiting').textContent.includes('{namespace}/four')"
        ))
        .await;
    browser
        .wait_for("document.querySelector('#waiting-count').innerText === '1'")
        .await;

    // The Cluster, with the number of its addresses, and why a claim waits.
    browser.open(&page.view("clusters")).await;
    browser
        .wait_for(&format!(
            "/{namespace}\\/prod.*3.*PoolExhausted/s.test(document.querySelector('.clusters tbody').innerText)"
        ))
        .await;

    // Search by address, and by name with the keyboard.
    browser.press("/").await;
    browser.press(&("10.0.0.11" + &Key::Enter)).await;
    browser
        .wait_for(&format!(
            "document.querySelector('.holders').textContent.includes('{namespace}/two')"
        ))
        .await;
    browser
        .run("document.querySelector('#query').select()")
        .await;
    browser.press(&("prod" + &Key::Enter)).await;
    browser
        .wait_for("document.querySelectorAll('.claims tbody tr').length === 4")
        .await;
    // Names are shown as they are, and never as HTML.
    browser
        .wait_for(
            "document.querySelector('.claims').textContent.includes('<img src=x onerror=alert(1)>')",
        )
        .await;
    assert_eq!(
        browser
            .run("return document.querySelectorAll('main img').length")
            .await,
        json!(0)
    );

    // Free addresses are shown when a claim is deleted.
    browser
        .open(&page.view(&format!("pool/InClusterIPPool/{namespace}/web")))
        .await;
    browser
        .wait_for(&format!(
            "{CELLS}.filter((cell) => cell.matches('.allocated')).length === 3"
        ))
        .await;
    control_plane.kubectl(&[
        "delete",
        "ipaddressclaim",
        "one",
        "four",
        "--namespace",
        namespace,
    ]);
    browser
        .wait_for(&format!(
            "{CELLS}.filter((cell) => cell.matches('.allocated')).length === 2"
        ))
        .await;

    // The map zooms with the keyboard alone, down to one address and back.
    browser.open(&page.view("")).await;
    browser
        .wait_for("document.querySelectorAll('.pools tbody tr').length === 2")
        .await;
    tab_to(&browser, "a.name[href$=large]").await;
    browser.press(&Key::Enter).await;
    browser.wait_for(&format!("{CELLS}.length > 3")).await;
    tab_to(&browser, ".cell").await;
    browser.press(&(Key::Right + &Key::Down)).await;
    let focused = browser
        .run("return document.activeElement.getAttribute('aria-label')")
        .await;
    let focused = focused
        .as_str()
        .expect("a cell has a label")
        .split(',')
        .next()
        .expect("an address")
        .to_owned();
    browser.press(&Key::Enter).await;
    browser
        .wait_for(
            "document.querySelector('.map-section .hint').innerText === 'One cell is one address.'",
        )
        .await;
    let inside =
        format!("document.activeElement.getAttribute('aria-label').startsWith('{focused},')");
    browser.wait_for(&inside).await;
    browser.press(&Key::Escape).await;
    browser
        .wait_for("document.querySelector('.trail').hidden")
        .await;

    // A phone, in both color schemes.
    for scheme in ["light", "dark"] {
        browser.set_color_scheme(scheme).await;
        browser.resize(390, 844).await;
        for view in [
            String::new(),
            format!("pool/InClusterIPPool/{namespace}/web"),
            "search?q=10.0.0.11".to_owned(),
        ] {
            browser.open(&page.view(&view)).await;
            browser
                .wait_for("document.querySelector('table:not([hidden]) tbody tr, .map .cell')")
                .await;
            let width = browser
                .run("return document.documentElement.scrollWidth")
                .await;
            assert_eq!(width, json!(390), "{view} {scheme} is too wide");
        }
        let background = browser
            .run("return getComputedStyle(document.body).backgroundColor")
            .await;
        let light = background
            .as_str()
            .is_some_and(|color| color.starts_with("rgb(2"));
        assert_eq!(light, scheme == "light", "{scheme}: {background}");
    }

    assert_eq!(
        browser.log().await,
        "",
        "no error, and no violation of the Content-Security-Policy"
    );
    let loaded = "return performance.getEntriesByType('resource').map((entry) => entry.name)";
    let loaded = browser.run(loaded).await;
    let base = page.view("").replace("/#/", "");
    let mut names = loaded
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str);
    assert!(names.all(|name| name.starts_with(&base)), "{loaded}");
    browser.close().await;

    // The page has only read.
    let requests = eventually("the audit log", async || {
        let requests = control_plane.provider_requests();
        (requests
            .iter()
            .filter(|request| request.verb == "watch")
            .count()
            >= 7)
            .then_some(requests)
    })
    .await;
    for request in requests {
        assert!(
            ["get", "list", "watch"].contains(&request.verb.as_str()),
            "{request:?}"
        );
    }
}

/// Presses the tab key until an element has the focus.
async fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..40 {
        browser.press(&Key::Tab).await;
        if browser
            .run(&format!(
                "return document.activeElement.matches('{selector}')"
            ))
            .await
            == json!(true)
        {
            return;
        }
    }
    panic!("{selector} cannot be reached with the keyboard");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_origins_and_other_names_are_refused() {
    let control_plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let page = Page::start(control_plane.kubeconfig()).await;
    let port = page.port;
    let entry = page.entry().to_owned();
    let status = |request: &str| {
        page.send(request)
            .split(' ')
            .nth(1)
            .map(str::to_owned)
            .unwrap_or_default()
    };
    let response = page.send(&format!("GET {entry} HTTP/1.1\nHost: 127.0.0.1:{port}"));
    let cookie = response
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .expect("a cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    assert!(
        response.contains("content-security-policy: default-src 'none';"),
        "{response}"
    );
    assert!(!response.contains("unsafe"), "{response}");
    let cookie = page.session();
    let own = format!("HTTP/1.1\nHost: 127.0.0.1:{port}\nCookie: {cookie}");
    assert_eq!(status(&format!("GET /api/waiting {own}")), "200");
    assert_eq!(
        status(&format!(
            "GET /api/waiting {own}\nOrigin: http://evil.example"
        )),
        "403"
    );
    assert_eq!(
        status(&format!(
            "GET /api/waiting {own}\nSec-Fetch-Site: cross-site"
        )),
        "403"
    );
    assert_eq!(
        status(&format!(
            "GET /api/waiting HTTP/1.1\nHost: 127.0.0.1:{port}"
        )),
        "401"
    );
    assert_eq!(
        status(&format!(
            "GET /api/waiting HTTP/1.1\nHost: evil.example:{port}\nCookie: {cookie}"
        )),
        "421"
    );
    assert_eq!(
        status(&format!("POST /api/waiting {own}\nContent-Length: 0")),
        "405"
    );
    assert!(
        TcpStream::connect(("127.0.0.2", port)).is_err(),
        "the page is served on the loopback address only"
    );

    // A name of another site that has the address of this machine.
    let browser = Browser::start().await;
    browser
        .open(&format!("http://evil.example:{port}{entry}"))
        .await;
    let text = browser.run("return document.body.innerText").await;
    assert!(
        text.as_str()
            .is_some_and(|text| text.contains("127.0.0.1 and localhost only")),
        "{text}"
    );
    // A page of another site, in a browser that has opened the page. Nothing is answered, and
    // nothing can be read.
    browser.open(&page.address).await;
    browser
        .wait_for("document.querySelector('#live').dataset.state === 'live'")
        .await;
    browser.open(&format!("http://evil.example:{port}/")).await;
    for path in ["/", "/api/waiting", "/events", entry.as_str()] {
        let script = format!(
            "return fetch('http://127.0.0.1:{port}{path}', {{ credentials: 'include' }}).then(() => 'read', () => 'refused')"
        );
        assert_eq!(browser.run(&script).await, json!("refused"), "{path}");
    }
    // The frame shows an error of the browser, which this page cannot read either.
    let framed = format!(
        "const frame = document.createElement('iframe'); frame.src = 'http://127.0.0.1:{port}/'; \
         document.body.append(frame); return new Promise((done) => {{ frame.onload = () => done(frame.contentDocument === null) }})"
    );
    assert_eq!(
        browser.run(&framed).await,
        json!(true),
        "a frame of another site cannot be read"
    );
    browser.close().await;
}
