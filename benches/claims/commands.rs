//! Time and memory of the commands of kubectl-ipam with many bound claims.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::outcome::{Figure, Outcome};

/// The most memory that a command may use, in MiB.
const MEMORY: f64 = 150.0;

pub(crate) fn run(
    cluster: &Cluster<'_>,
    program: &Path,
    series: String,
    consumer: &Consumer,
    present: usize,
) -> Outcome {
    let pool = consumer.pools[0].name.as_str();
    let commands: [(&[&str], bool); 10] = [
        (&["who", "10.0.1.7"], true),
        (&["show", pool], true),
        (&["show", pool, "--output=json"], false),
        (&["pools"], false),
        (&["claims"], false),
        (&["claims", "--waiting"], false),
        (&["free", pool], false),
        (&["doctor"], false),
        (&["export"], false),
        (&["reserve", pool, "--dry-run=server"], false),
    ];
    let mut figures = Vec::new();
    for (arguments, is_early) in commands {
        let flags = ["--namespace", &consumer.namespace];
        let run = tokio::task::block_in_place(|| {
            measure(program, cluster, &[arguments, &flags].concat())
        });
        let name = arguments.join(" ");
        let first = Figure::new(
            format!("{name}, first output"),
            run.first.as_secs_f64(),
            "s",
        );
        figures.push(if is_early { first.at_most(1.0) } else { first });
        figures.push(Figure::new(
            format!("{name}, all"),
            run.total.as_secs_f64(),
            "s",
        ));
        figures.push(Figure::new(format!("{name}, memory"), run.memory, "MiB").at_most(MEMORY));
    }
    Outcome {
        series,
        present,
        claims: 0,
        lines: Vec::new(),
        figures,
        raw: json!({}),
    }
}

/// What a command used.
struct Run {
    first: Duration,
    total: Duration,
    /// The maximum of the resident memory in MiB.
    memory: f64,
}

fn measure(program: &Path, cluster: &Cluster<'_>, arguments: &[&str]) -> Run {
    let start = Instant::now();
    let mut child = Command::new(program)
        .arg("--kubeconfig")
        .arg(cluster.plane.kubeconfig())
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "{}: {error}; build it with its release profile",
                program.display()
            )
        });
    let mut output = child.stdout.take().expect("the output is piped");
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        let mut first = None;
        while let Ok(1..) = output.read(&mut buffer) {
            first.get_or_insert_with(|| start.elapsed());
        }
        first
    });
    let status = format!("/proc/{}/status", child.id());
    let mut kilobytes = 0_u32;
    let code = loop {
        if let Some(code) = child.try_wait().expect("the program can be waited for") {
            break code;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let found = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kilobytes = kilobytes.max(found.unwrap_or_default());
        std::thread::sleep(Duration::from_millis(2));
    };
    let total = start.elapsed();
    assert!(
        code.success() || arguments.contains(&"doctor"),
        "{arguments:?}: {code}"
    );
    let first = reader
        .join()
        .expect("the output can be read")
        .unwrap_or(total);
    Run {
        first,
        total,
        memory: f64::from(kilobytes) / 1024.0,
    }
}
