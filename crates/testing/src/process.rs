//! Child processes that never outlive the test process.
//!
//! A handle in a `static` is never dropped, and a test process may be killed at any time. So each
//! program runs under a small shell whose standard input is a pipe that this process holds. The
//! kernel closes the pipe when this process exits for any reason, and the shell then stops the
//! program.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;

use crate::patience::Patience;

/// Runs a program (the arguments) with its output on standard error, prints its process id to
/// standard output, and reads commands from standard input: each line names a signal for the
/// program. End of file means TERM, and KILL 2 s later. The shell exits with the exit code of the
/// program.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" </dev/null >&2 3<&- &
program=$!
echo "$program"
{
    while read -r signal; do kill -s "$signal" "$program"; done
    kill -s TERM "$program"
    tries=0
    while [ "$tries" -lt 20 ] && kill -s 0 "$program"; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill -s KILL "$program"
} <&3 >/dev/null 2>&1 &
orders=$!
exec 3<&-
wait "$program"
status=$?
kill "$orders"
exit "$status"
"#;

/// Removes a folder when standard input ends without a command, after the time that [`SUPERVISOR`]
/// takes at most.
const JANITOR: &str = r#"read -r order && exit; sleep 3; rm -rf -- "$1""#;

/// How long [`Supervised::stop`] waits before it sends SIGKILL: longer than a manager of the SDK
/// may take to end its work and to release its lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// The path of a program in the build folder of the current executable, such as
/// `examples/provider`. A test or a benchmark is in a folder of the build folder.
///
/// # Panics
/// When this process does not know the path of its executable.
pub fn built(program: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its path");
    let folder = own.parent().expect("a program is in a folder");
    // Cargo puts tests and benchmarks into `deps`, and programs beside it.
    let is_beside = folder.ends_with("deps") || folder.ends_with("examples");
    let build = if is_beside {
        folder.parent().expect("the folder is in the build folder")
    } else {
        folder
    };
    build.join(program)
}

/// A running program. It is killed when this value is dropped and when this process exits for any
/// reason.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    orders: ChildStdin,
    pid: u32,
    log: PathBuf,
    log_start: u64,
}

impl Supervised {
    /// Starts `program` and appends its output to the file `log`.
    ///
    /// # Panics
    /// When there is no shell or the log cannot be written. A program that cannot be started counts
    /// as one that has exited; the reason is in the log.
    pub fn spawn<A: AsRef<OsStr>>(
        program: &Path,
        arguments: &[A],
        environment: &[(&str, &str)],
        log: &Path,
    ) -> Self {
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output
            .unwrap_or_else(|error| panic!("cannot write the log {}: {error}", log.display()));
        let log_start = output.metadata().map_or(0, |metadata| metadata.len());
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output)
            // Not in the foreground process group: Ctrl-C must not stop the program before this
            // process.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("cannot start a shell for {}: {error}", program.display())
            });
        let orders = supervisor
            .stdin
            .take()
            .expect("the supervisor's standard input is a pipe");
        let answers = supervisor
            .stdout
            .take()
            .expect("the supervisor's standard output is a pipe");
        let mut pid = String::new();
        BufReader::new(answers)
            .read_line(&mut pid)
            .expect("the supervisor prints the process id");
        let pid = pid
            .trim()
            .parse()
            .expect("the supervisor's answer is a process id");
        Self {
            supervisor,
            orders,
            pid,
            log: log.to_owned(),
            log_start,
        }
    }

    /// The process id of the program itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the program runs.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Whether the program has not exited, for callers that only borrow this value. Always true
    /// where there is no `/proc`.
    pub fn exists(&self) -> bool {
        !cfg!(target_os = "linux") || Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Sends the program a signal, such as `STOP` or `CONT`.
    pub fn signal(&mut self, signal: &str) {
        // An error here means that supervisor and program have exited.
        let _ = self.orders.write_all(format!("{signal}\n").as_bytes());
    }

    /// Kills the program with SIGKILL and waits for its exit.
    pub fn kill(&mut self) {
        self.signal("KILL");
        let _ = self.supervisor.wait();
    }

    /// Stops the program with SIGTERM and waits for its exit; kills it after 40 s.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let patience = Patience::new(STOP_TIMEOUT);
        while self.is_running() {
            if patience.is_over() {
                return self.kill();
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// The exit status of the program, if it has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.supervisor
            .try_wait()
            .expect("the supervisor is a child of this process")
    }

    /// A value that changes while the program does something: the processor time that it has used,
    /// in units of the kernel, and the length of its log.
    pub fn activity(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name of the program, in parentheses, can contain spaces. The 12th and 13th field
        // after it are the time in user mode and in the kernel.
        let fields = status
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace();
        let used = fields
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        (
            used,
            fs::metadata(&self.log).map_or(0, |metadata| metadata.len()),
        )
    }

    /// The output of the program since its start.
    pub fn output(&self) -> String {
        let mut output = Vec::new();
        let read = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.log_start))?;
            log.read_to_end(&mut output)
        });
        match read {
            Ok(_) => String::from_utf8_lossy(&output).into_owned(),
            Err(error) => format!("cannot read {}: {error}", self.log.display()),
        }
    }

    /// The last lines of [`Self::output`], for failure messages.
    pub fn output_tail(&self) -> String {
        let output = self.output();
        let skipped = output.lines().count().saturating_sub(25);
        output.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The memory of a process, in MiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// What it uses now.
    pub now: f64,
    /// The most that it used.
    pub peak: f64,
}

impl Memory {
    /// The memory of a process on Linux; zero if it does not run.
    pub fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| -> Option<f64> {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
            Some(kib / 1024.0)
        };
        Self {
            now: field("VmRSS:").unwrap_or_default(),
            peak: field("VmHWM:").unwrap_or_default(),
        }
    }
}

/// A new temporary folder. It is removed when this value is dropped and when this process exits for
/// any reason.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    janitor: Child,
}

impl TemporaryFolder {
    /// Creates the folder, readable by this user only.
    ///
    /// # Panics
    /// When the folder cannot be created.
    pub fn new(prefix: &str) -> Self {
        let path = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir()
            .expect("a temporary folder can be created")
            .keep();
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        Self { path, janitor }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.path);
        if let (Ok(()), Some(orders)) = (removed, &mut self.janitor.stdin) {
            let _ = orders.write_all(b"nothing to do\n");
            let _ = self.janitor.wait();
        }
    }
}
