//! The thread that writes the lines of the allocation log.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use capi_ipam_controller::log_limit::RepetitionLimit;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;
use tracing::{info, warn};

/// The delay before a line that cannot be written is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A message to the thread.
pub(super) enum Message {
    /// Write this line.
    Line(String),
    /// Answer when all lines before are written.
    Flush(oneshot::Sender<()>),
}

/// Where the lines are written.
#[derive(Debug)]
pub(super) enum Destination {
    StandardOutput,
    File(PathBuf),
}

impl Destination {
    pub(super) fn of(file: &Path) -> Self {
        if file.as_os_str() == "-" {
            Self::StandardOutput
        } else {
            Self::File(file.to_owned())
        }
    }

    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::StandardOutput => Box::new(io::stdout()),
            Self::File(path) => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
        })
    }
}

/// Writes lines until all senders are dropped.
pub(super) struct Writer {
    destination: Destination,
    errors: Counter,
    limit: RepetitionLimit,
    /// The opened destination.
    output: Option<Box<dyn Write + Send>>,
    /// Whether a part of a line may be written: an empty line ends it.
    is_torn: bool,
}

impl Writer {
    pub(super) fn new(destination: Destination, errors: Counter) -> Self {
        Self {
            destination,
            errors,
            limit: RepetitionLimit::default(),
            output: None,
            is_torn: false,
        }
    }

    /// Blocks until the sender is dropped. A file is closed when no line waits, so that it can be
    /// renamed at any time: the next line creates it again.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(first) = messages.recv() {
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => self.write_until_done(line),
                    // The process no longer waits if the other side is dropped.
                    Message::Flush(done) => drop(done.send(())),
                }
                next = messages.try_recv().ok();
            }
            self.output = None;
        }
    }

    fn write_until_done(&mut self, line: String) {
        let line = line + "\n";
        while let Err(error) = self.write(&line) {
            self.output = None;
            self.errors.inc();
            let problem = error.to_string();
            if self.limit.allow(&problem, Instant::now()).is_some() {
                let destination = &self.destination;
                warn!(?destination, %error, "cannot write the allocation log, will retry");
            }
            std::thread::sleep(RETRY_DELAY);
        }
        if self.limit.end() {
            info!("the allocation log is written again");
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let output = match &mut self.output {
            Some(output) => output,
            None => self.output.insert(self.destination.open()?),
        };
        if self.is_torn {
            output.write_all(b"\n")?;
        }
        self.is_torn = true;
        output.write_all(line.as_bytes())?;
        output.flush()?;
        self.is_torn = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// Writes a part of a line into a file, and fails.
    struct Torn(fs::File);

    impl Write for Torn {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let part = text.get(..3).ok_or(io::ErrorKind::StorageFull)?;
            self.0.write(part)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn torn_line_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        let mut writer = Writer::new(Destination::of(&file), Counter::default());
        writer.output = Some(Box::new(Torn(fs::File::create(&file).unwrap())));
        let errors = writer.errors.clone();
        let (lines, waiting) = sync_channel(3);
        let (done, mut written) = oneshot::channel();
        for message in [
            Message::Line("1234".to_owned()),
            Message::Line("next".to_owned()),
            Message::Flush(done),
        ] {
            assert!(lines.try_send(message).is_ok());
        }
        drop(lines);
        writer.run(&waiting);
        assert_eq!(fs::read_to_string(&file).unwrap(), "123\n1234\nnext\n");
        assert_eq!((errors.get(), written.try_recv()), (1, Ok(())));
        assert!(matches!(
            Destination::of(Path::new("-")),
            Destination::StandardOutput
        ));
    }
}
