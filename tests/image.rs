//! The container image: the archive of `make image`, read without the programs that built it, and
//! the Dockerfile. `make image-test` runs all tests, and then tests the program of the image
//! against an API server.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    reason = "test code: a failure ends the test with a message"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The architecture of an image without a platform.
const OWN_ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

const USER: &str = "65532:65532";
const ENTRYPOINT: &str = "/manager";
const LABELS: [&str; 5] = [
    "org.opencontainers.image.description",
    "org.opencontainers.image.licenses",
    "org.opencontainers.image.revision",
    "org.opencontainers.image.title",
    "org.opencontainers.image.version",
];

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

#[test]
#[ignore = "needs the archive of `make image`: run `make image-test`"]
fn archive_contains_only_referenced_blobs() {
    let archive = Archive::open();
    let mut expected = vec![
        "blobs/".into(),
        "blobs/sha256/".into(),
        "index.json".into(),
        "manifest.json".into(),
    ];
    expected.push("oci-layout".to_owned());
    let top = archive.top();
    if top["mediaType"] == INDEX {
        expected.push(path(&top));
    }
    for image in archive.images() {
        let manifest = archive.json(&image, MANIFEST);
        expected.extend([
            path(&image),
            path(&manifest["config"]),
            path(&manifest["layers"][0]),
        ]);
    }
    expected.sort();
    expected.dedup();
    let found: Vec<_> = archive.files.keys().cloned().collect();
    assert_eq!(found, expected);
    assert_eq!(
        archive.file("oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"})
    );
}

#[test]
#[ignore = "needs the archive of `make image`: run `make image-test`"]
fn bill_of_materials_lists_all_crates() {
    for image in Archive::open().images() {
        let architecture = image["platform"]["architecture"]
            .as_str()
            .unwrap_or(OWN_ARCHITECTURE);
        let cpu = if architecture == "arm64" {
            "aarch64"
        } else {
            "x86_64"
        };
        let archive =
            std::env::var("CAPI_IPAM_IMAGE").expect("CAPI_IPAM_IMAGE is the path of the archive");
        let file = archive.replace(".tar", &format!("-{architecture}.cdx.json"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let bill: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(
            (&bill["bomFormat"], &bill["metadata"]["component"]["name"]),
            (&json!("CycloneDX"), &json!("capi-ipam"))
        );
        let part =
            |component: &Value, name: &str| component[name].as_str().unwrap_or_default().to_owned();
        let components = bill["components"].as_array().expect("it lists components");
        let listed: BTreeSet<_> = components
            .iter()
            .map(|one| (part(one, "name"), part(one, "version")))
            .collect();
        let target = format!("{cpu}-unknown-linux-musl");
        let arguments = [
            "tree",
            "--package=capi-ipam",
            "--edges=normal,no-proc-macro",
            "--prefix=none",
            "--target",
            &target,
        ];
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .output()
            .expect("cargo can be started");
        let tree = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
        let crates = tree.lines().filter_map(|line| line.split_once(' '));
        let crates = crates.map(|(name, rest)| {
            (
                name,
                rest.split(' ')
                    .next()
                    .unwrap_or_default()
                    .trim_start_matches('v'),
            )
        });
        let missing: Vec<_> = crates
            .filter(|(name, version)| {
                *name != "capi-ipam" && !listed.contains(&((*name).into(), (*version).into()))
            })
            .collect();
        assert!(missing.is_empty(), "not in {file}: {missing:?}");
        assert!(
            components.iter().all(|one| one["licenses"].is_array()),
            "each component has a licence"
        );
    }
}

#[test]
#[ignore = "needs the archive of `make image`: run `make image-test`"]
fn image_contains_one_static_binary() {
    let archive = Archive::open();
    for image in archive.images() {
        let manifest = archive.json(&image, MANIFEST);
        let layers = manifest["layers"]
            .as_array()
            .expect("a manifest has layers");
        assert_eq!(layers.len(), 1, "{manifest}");
        let layer = unzip(archive.blob(&layers[0], LAYER));
        let config = archive.json(&manifest["config"], CONFIG);
        assert_eq!(
            config["rootfs"],
            json!({"type": "layers", "diff_ids": [digest(&layer)]})
        );

        let entries = entries(&layer);
        let listed: Vec<_> = entries.iter().map(Entry::listed).collect();
        assert_eq!(listed, ["-755 0:0 manager"]);
        let program = entries[0].content;
        assert_static(
            program,
            config["architecture"]
                .as_str()
                .expect("an image has an architecture"),
        );
        for of_this_machine in [
            Some(env!("CARGO_MANIFEST_DIR").to_owned()),
            std::env::var("HOME").ok(),
        ] {
            let Some(text) = of_this_machine.filter(|text| text.len() > 1) else {
                continue;
            };
            // Only paths below a home such as /root are significant: the word itself may be in any
            // text.
            let text = format!("{text}/");
            let found = program
                .windows(text.len())
                .any(|window| window == text.as_bytes());
            assert!(
                !found,
                "the program contains a path of this machine: {text}"
            );
        }
    }
}

#[test]
#[ignore = "needs the archive of `make image`: run `make image-test`"]
fn image_runs_the_binary_as_an_unprivileged_user() {
    let archive = Archive::open();
    for image in archive.images() {
        let config = archive.json(&archive.json(&image, MANIFEST)["config"], CONFIG);
        assert_eq!(
            image["platform"],
            json!({"os": config["os"], "architecture": config["architecture"]})
        );
        let mut settings = config["config"].clone();
        let labels = settings["Labels"].take();
        let expected =
            json!({"User": USER, "Entrypoint": [ENTRYPOINT], "WorkingDir": "/", "Labels": null});
        assert_eq!(settings, expected);

        let labels: BTreeMap<String, String> =
            serde_json::from_value(labels).expect("labels are texts");
        assert_eq!(labels.keys().collect::<Vec<_>>(), LABELS);
        assert_eq!(
            labels["org.opencontainers.image.title"],
            env!("CARGO_PKG_NAME")
        );
        assert_eq!(
            labels["org.opencontainers.image.description"],
            env!("CARGO_PKG_DESCRIPTION")
        );
        assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
        assert_eq!(
            labels["org.opencontainers.image.version"],
            env!("CARGO_PKG_VERSION")
        );
        assert!(!labels["org.opencontainers.image.revision"].is_empty());
    }
}

#[test]
#[ignore = "needs the archive of `make image`: run `make image-test`"]
fn all_archive_formats_name_the_same_image() {
    let archive = Archive::open();
    let name = archive.top()["annotations"]["io.containerd.image.name"].clone();
    let tag = archive.top()["annotations"]["org.opencontainers.image.ref.name"].clone();
    assert_eq!(tag, concat!("v", env!("CARGO_PKG_VERSION")));
    assert!(
        name.as_str()
            .is_some_and(|name| name.ends_with(concat!(":v", env!("CARGO_PKG_VERSION")))),
        "{name}"
    );

    // The older image store of Docker reads this file.
    let docker = archive.file("manifest.json");
    let same: Vec<_> = archive
        .images()
        .iter()
        .map(|image| archive.json(image, MANIFEST))
        .map(|it| json!([{"Config": path(&it["config"]), "RepoTags": [name], "Layers": [path(&it["layers"][0])]}]))
        .filter(|it| *it == docker)
        .collect();
    assert_eq!(same.len(), 1, "{docker}");
}

#[test]
fn documentation_names_the_archive() {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(format!("{root}/hack/image/build.sh"))
        .arg("--print-archive")
        .output()
        .expect("the script can be started");
    let archive = String::from_utf8(output.stdout).expect("a path is text");
    let archive = archive.trim().trim_start_matches(root);
    let archive = archive.trim_start_matches('/');
    for page in ["README.md", "docs/install.md"] {
        let text = std::fs::read_to_string(format!("{root}/{page}")).expect("a page can be read");
        let named = text.matches("target/image/capi-ipam").count();
        assert!(named > 0, "{page}");
        assert_eq!(text.matches(archive).count(), named, "{page}: {archive}");
    }
}

/// Cargo reads the manifests of all members, also of those that are not built.
#[test]
fn docker_gets_all_members_of_the_workspace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name| fs::read_to_string(folder.join(name)).expect("the file can be read");
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("members = [").expect("it has members");
    let (members, _) = rest.split_once(']').expect("the list ends");
    let ignored = read(".dockerignore");
    for member in members.split(", ") {
        let member = member.trim_matches('"');
        let (top, _) = member.split_once('/').unwrap_or((member, ""));
        let line = format!("!{top}");
        assert!(ignored.lines().any(|found| found == line), "{line}");
    }
}

#[test]
fn dockerfile_builds_the_same_image() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name| {
        fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let dockerfile = read("Dockerfile");
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = "))
        .expect("the file names a channel");
    let version = version.trim_matches('"');
    assert!(
        dockerfile.contains(&format!("/rust:{version}-"))
            || dockerfile.contains(&format!(" rust:{version}-"))
    );
    assert!(
        dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={version}\n")),
        "the toolchain of the base image is used"
    );

    let (_, last) = dockerfile
        .rsplit_once("\nFROM ")
        .expect("the Dockerfile has several stages");
    let lines: Vec<_> = last.lines().collect();
    assert_eq!(lines[0], "scratch");
    assert!(lines.contains(&format!("USER {USER}").as_str()));
    assert!(lines.contains(&format!("ENTRYPOINT [\"{ENTRYPOINT}\"]").as_str()));
    let copied: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("COPY") || line.starts_with("ADD"))
        .collect();
    assert_eq!(copied, [&"COPY --from=build /manager /manager"]);
    let mut labels: Vec<_> = last.split("org.opencontainers.image.").skip(1).collect();
    labels.sort_unstable();
    let labels: Vec<_> = labels
        .iter()
        .map(|label| label.split('=').next().expect("a name"))
        .collect();
    assert_eq!(
        labels,
        LABELS.map(|label| &label["org.opencontainers.image.".len()..])
    );
    assert!(last.contains(concat!("title=\"", env!("CARGO_PKG_NAME"), "\"")));
    assert!(last.contains(concat!(
        "description=\"",
        env!("CARGO_PKG_DESCRIPTION"),
        "\""
    )));
}

/// The archive in the variable `CAPI_IPAM_IMAGE`.
struct Archive {
    files: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    fn open() -> Self {
        let archive =
            std::env::var_os("CAPI_IPAM_IMAGE").expect("CAPI_IPAM_IMAGE names the archive");
        let bytes =
            fs::read(&archive).unwrap_or_else(|error| panic!("{}: {error}", archive.display()));
        let mut files = BTreeMap::new();
        for entry in entries(&bytes) {
            assert!(matches!(entry.kind, b'0' | b'5'), "{}", entry.listed());
            assert!(
                files
                    .insert(entry.name.clone(), entry.content.to_vec())
                    .is_none(),
                "twice: {}",
                entry.name
            );
        }
        Self { files }
    }

    fn file(&self, name: &str) -> Value {
        let bytes = self
            .files
            .get(name)
            .unwrap_or_else(|| panic!("there is no {name}"));
        serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The content of a descriptor (type, digest, size), which has to match.
    fn blob(&self, descriptor: &Value, media_type: &str) -> &[u8] {
        assert_eq!(descriptor["mediaType"], media_type);
        let content = self
            .files
            .get(&path(descriptor))
            .unwrap_or_else(|| panic!("there is no {descriptor}"));
        assert_eq!(descriptor["size"], content.len(), "{descriptor}");
        assert_eq!(descriptor["digest"], digest(content));
        content
    }

    fn json(&self, descriptor: &Value, media_type: &str) -> Value {
        serde_json::from_slice(self.blob(descriptor, media_type)).expect("it is JSON")
    }

    /// The descriptor of the image, or of the index of images for several platforms.
    fn top(&self) -> Value {
        let index = self.file("index.json");
        assert_eq!(
            index["manifests"].as_array().map(Vec::len),
            Some(1),
            "{index}"
        );
        index["manifests"][0].clone()
    }

    /// The descriptions of the images, one for each platform.
    fn images(&self) -> Vec<Value> {
        let top = self.top();
        if top["mediaType"] == MANIFEST {
            return vec![top];
        }
        let index = self.json(&top, INDEX);
        let images = index["manifests"].as_array().expect("an index has images");
        assert!(images.len() > 1, "{index}");
        images.clone()
    }
}

/// The path of the content of a descriptor in the archive.
fn path(descriptor: &Value) -> String {
    let digest = descriptor["digest"]
        .as_str()
        .unwrap_or_else(|| panic!("no digest: {descriptor}"));
    format!("blobs/{}", digest.replace(':', "/"))
}

fn digest(content: &[u8]) -> String {
    let sum = Sha256::digest(content);
    sum.iter().fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    })
}

fn unzip(zipped: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip can be started");
    let mut stdin = gzip.stdin.take().expect("it is a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(zipped));
        gzip.wait_with_output()
            .expect("gzip is a child of this process")
    });
    assert!(output.status.success(), "gzip: {}", output.status);
    output.stdout
}

/// One file of a tar archive.
struct Entry<'a> {
    name: String,
    kind: u8,
    mode: u64,
    owner: u64,
    group: u64,
    content: &'a [u8],
}

impl Entry<'_> {
    fn listed(&self) -> String {
        let kind = if self.kind == b'0' {
            '-'
        } else {
            char::from(self.kind)
        };
        format!(
            "{kind}{:o} {}:{} {}",
            self.mode, self.owner, self.group, self.name
        )
    }
}

/// All files of a tar archive: blocks of 512 bytes, numbers in octal.
fn entries(mut tar: &[u8]) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    while tar[0] != 0 {
        let (header, rest) = tar.split_at(512);
        let text = |from: usize, to: usize| {
            let field = header[from..to]
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default();
            String::from_utf8(field.to_vec()).expect("the fields of a header are text")
        };
        let number = |from, to| {
            u64::from_str_radix(text(from, to).trim(), 8).expect("it is a number in octal")
        };
        let size = usize::try_from(number(124, 136)).expect("it is in memory");
        assert_eq!(text(345, 500), "", "names are short");
        entries.push(Entry {
            name: text(0, 100),
            kind: header[156],
            mode: number(100, 108),
            owner: number(108, 116),
            group: number(116, 124),
            content: &rest[..size],
        });
        tar = &rest[size.next_multiple_of(512)..];
    }
    entries
}

/// Asserts that the program is for this architecture and static: no interpreter, no libraries.
fn assert_static(program: &[u8], architecture: &str) {
    let number = |at: usize, length: usize| {
        let bytes = program[at..at + length].iter().rev();
        bytes.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!(
        program[..6],
        *b"\x7fELF\x02\x01",
        "a little-endian 64-bit program"
    );
    let machine = match number(18, 2) {
        62 => "amd64",
        183 => "arm64",
        _ => "another one",
    };
    assert_eq!(machine, architecture);
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    assert!(count > 0, "the program has segments");
    for segment in (0..count).map(|index| table + index * size) {
        let kind = number(segment, 4);
        assert_ne!(kind, 3, "the program needs an interpreter (PT_INTERP)");
        if kind == 2 {
            let (start, length) = (number(segment + 8, 8), number(segment + 32, 8));
            for entry in (start..start + length).step_by(16) {
                assert_ne!(
                    number(entry, 8),
                    1,
                    "the program needs a library (DT_NEEDED)"
                );
            }
        }
    }
}
