//! Programs beside the tests that never outlive them.
//!
//! A handle in a `static` is never dropped, and a test process may be killed at any time. So each program runs under a
//! small shell whose standard input is a pipe that this process holds: the kernel closes the pipe when this process
//! ends, however it ends, and the shell then ends the program.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Runs a program (the arguments) with its output on standard error, tells its process id on standard output, and
/// takes orders on standard input: each line names a signal for the program. The end of the orders means TERM, and
/// KILL 2 s later. It ends when the program ends, with the program's exit code.
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

/// Removes a folder when the orders end before there was one, after the time that [`SUPERVISOR`] takes at most.
const JANITOR: &str = r#"read -r order && exit; sleep 3; rm -rf -- "$1""#;

/// How long [`Supervised::stop`] waits before it kills.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A running program. It is killed when this is dropped, and when this process ends for whatever reason.
#[derive(Debug)]
pub struct Supervised {
    supervisor: Child,
    orders: ChildStdin,
    pid: u32,
    log: PathBuf,
    log_start: u64,
}

impl Supervised {
    /// Starts `program`; what it prints is appended to the file `log`.
    ///
    /// # Panics
    /// When there is no shell or the log cannot be written. A program that cannot be started is seen as one that has
    /// ended; the reason is in the log.
    pub fn spawn<A: AsRef<OsStr>>(program: &Path, arguments: &[A], environment: &[(&str, &str)], log: &Path) -> Self {
        let output = OpenOptions::new().create(true).append(true).open(log);
        let output = output.unwrap_or_else(|error| panic!("cannot write the log {}: {error}", log.display()));
        let log_start = output.metadata().map_or(0, |metadata| metadata.len());
        let mut supervisor = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output)
            // Out of reach of Ctrl-C in the terminal: the program is to end after this process, not before it.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start a shell for {}: {error}", program.display()));
        let orders = supervisor.stdin.take().expect("the supervisor's standard input is a pipe");
        let answers = supervisor.stdout.take().expect("the supervisor's standard output is a pipe");
        let mut pid = String::new();
        BufReader::new(answers).read_line(&mut pid).expect("the supervisor tells the process id");
        let pid = pid.trim().parse().expect("the supervisor's answer is a process id");
        Self { supervisor, orders, pid, log: log.to_owned(), log_start }
    }

    /// The process id of the program itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the program has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Sends the program a signal, such as `STOP` or `CONT`.
    pub fn signal(&mut self, signal: &str) {
        // An error here means that supervisor and program have ended.
        let _ = self.orders.write_all(format!("{signal}\n").as_bytes());
    }

    /// Kills the program with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal("KILL");
        let _ = self.supervisor.wait();
    }

    /// Asks the program to end and waits until it has; kills it after 10 s.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.is_running() {
            if Instant::now() > deadline {
                return self.kill();
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// How the program ended, if it has.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().expect("the supervisor is a child of this process")
    }

    /// What the program has printed since this start of it.
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

    /// The last lines of [`Self::output`], for a failure's text.
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

/// A new temporary folder. It is removed when this is dropped, and when this process ends for whatever reason.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    janitor: Child,
}

impl TemporaryFolder {
    /// Makes the folder; only this user can look into it.
    ///
    /// # Panics
    /// When that fails.
    pub fn new(prefix: &str) -> Self {
        let path = tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder can be made").keep();
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

    /// Where it is.
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
