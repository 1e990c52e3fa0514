//! The proxy in front of a server of NATS.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_testing::nats::Node;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::frames::Frame;
use super::{Harm, How, Interceptor, LATE};

/// How long a server does not run that was killed.
const DOWN: Duration = Duration::from_millis(500);
/// How long a paused server does not answer: longer than a manager waits for an answer, and shorter
/// than one that reads the outcome of the write several times.
const PAUSED: Duration = Duration::from_secs(7);
/// How long a connection stays open after a late write, which the server would not read otherwise.
const LINGER: Duration = Duration::from_millis(500);

/// A running proxy. It stops when this value is dropped.
pub(crate) struct NatsProxy {
    url: String,
    task: JoinHandle<()>,
}

impl NatsProxy {
    /// Starts a proxy in front of a server, for the manager of a management cluster.
    pub(crate) async fn start(
        interceptor: &Arc<Interceptor>,
        node: &Arc<Mutex<Node>>,
        cluster: &'static str,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("the machine has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (interceptor, node) = (Arc::clone(interceptor), Arc::clone(node));
        let task = tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    continue;
                };
                let (interceptor, node) = (Arc::clone(&interceptor), Arc::clone(&node));
                tokio::spawn(serve(interceptor, node, cluster, client));
            }
        });
        let url = format!("nats://127.0.0.1:{}", address.port());
        Self { url, task }
    }

    /// The URL for the manager.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for NatsProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards a connection until one side or a fault ends it.
async fn serve(
    interceptor: Arc<Interceptor>,
    node: Arc<Mutex<Node>>,
    cluster: &'static str,
    client: TcpStream,
) {
    if interceptor.is_dead(cluster) {
        return;
    }
    let port = node.lock().port();
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (frames, received) = unbounded_channel();
    let faulty = Arc::new(Mutex::new(None));
    let requests = Requests {
        interceptor: Arc::clone(&interceptor),
        cluster,
        node: Arc::clone(&node),
        to_client: frames.clone(),
        subscriptions: Vec::new(),
        faulty: Arc::clone(&faulty),
    };
    let responses = Responses {
        interceptor: Arc::clone(&interceptor),
        cluster,
        node,
        to_client: frames,
        faulty,
    };
    tokio::select! {
        () = requests.forward(BufReader::new(from_client), to_server) => {}
        () = responses.forward(BufReader::new(from_server)) => {}
        () = send(received, to_client) => {}
        () = interceptor.died(cluster) => {}
    }
}

/// Sends frames to the client.
async fn send(mut frames: UnboundedReceiver<Frame>, mut to_client: OwnedWriteHalf) {
    while let Some(frame) = frames.recv().await {
        if to_client.write_all(&frame.bytes()).await.is_err() {
            return;
        }
    }
}

/// A write whose response has a fault.
struct Faulty {
    how: How,
    /// The subject of the response.
    reply: String,
}

/// What the client sends.
struct Requests {
    interceptor: Arc<Interceptor>,
    cluster: &'static str,
    node: Arc<Mutex<Node>>,
    to_client: UnboundedSender<Frame>,
    /// The subjects of the subscriptions of the client, with their numbers.
    subscriptions: Vec<(String, String)>,
    faulty: Arc<Mutex<Option<Faulty>>>,
}

impl Requests {
    async fn forward(mut self, mut from: BufReader<OwnedReadHalf>, mut to: OwnedWriteHalf) {
        while let Some(frame) = Frame::read(&mut from).await {
            if self.interceptor.is_dead(self.cluster) {
                return;
            }
            self.subscriptions.extend(frame.subscription());
            let write = frame.write();
            let fault = match &write {
                Some(write) => self.interceptor.record(self.cluster, write.kind.clone()),
                None => None,
            };
            let reply = write.map(|write| write.reply).unwrap_or_default();
            match fault {
                None => {}
                Some(How::CrashBefore) => {
                    self.interceptor.kill(self.cluster);
                    return;
                }
                Some(How::Pause) => self.interceptor.harm(self.cluster, Harm::Pause),
                Some(how @ (How::Reopened | How::Aborted)) => {
                    self.interceptor.harm(self.cluster, Harm::Reopen);
                    if how == How::Reopened {
                        tokio::spawn(send_late(frame, to));
                    }
                    // The connection ends with what has sent the write.
                    wait_for_end(from).await;
                    return;
                }
                Some(How::Late) => {
                    tokio::spawn(send_late(frame, to));
                    return;
                }
                Some(How::Refused) => {
                    self.refuse(&reply);
                    continue;
                }
                Some(How::ServerKilledBefore) => {
                    kill(&self.node).await;
                    return;
                }
                Some(How::ServerPaused) => pause(&self.node).await,
                Some(how @ (How::CrashAfter | How::ReplyLost | How::ServerKilledAfter)) => {
                    *self.faulty.lock() = Some(Faulty { how, reply });
                }
            }
            if to.write_all(&frame.bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Answers a request in the place of the server.
    fn refuse(&self, reply: &str) {
        for (subject, number) in &self.subscriptions {
            if reply.starts_with(subject.trim_end_matches(['*', '>'])) {
                let _ = self.to_client.send(Frame::no_responders(reply, number));
            }
        }
    }
}

/// What the server sends.
struct Responses {
    interceptor: Arc<Interceptor>,
    cluster: &'static str,
    node: Arc<Mutex<Node>>,
    to_client: UnboundedSender<Frame>,
    faulty: Arc<Mutex<Option<Faulty>>>,
}

impl Responses {
    async fn forward(self, mut from: BufReader<OwnedReadHalf>) {
        while let Some(frame) = Frame::read(&mut from).await {
            let faulty = self.fault_of(&frame);
            match faulty {
                None => {}
                Some(How::ServerKilledAfter) => {
                    kill(&self.node).await;
                    return;
                }
                Some(How::CrashAfter) => {
                    self.interceptor.kill(self.cluster);
                    return;
                }
                Some(_) => return,
            }
            if self.to_client.send(frame).is_err() {
                return;
            }
        }
    }

    /// The fault at the write that this message answers.
    fn fault_of(&self, frame: &Frame) -> Option<How> {
        let faulty = self.faulty.lock();
        let faulty = faulty.as_ref()?;
        let is_message = matches!(frame.operation(), "MSG" | "HMSG");
        (is_message && frame.subject() == faulty.reply).then_some(faulty.how)
    }
}

/// Waits until the client ends the connection. What it sends until then is lost.
async fn wait_for_end(mut from: BufReader<OwnedReadHalf>) {
    while Frame::read(&mut from).await.is_some() {}
}

/// Sends a write when the client has lost its connection.
async fn send_late(frame: Frame, mut to: OwnedWriteHalf) {
    sleep(LATE).await;
    let _ = to.write_all(&frame.bytes()).await;
    sleep(LINGER).await;
}

/// Kills the server, and starts it again soon.
async fn kill(node: &Arc<Mutex<Node>>) {
    disturb(node, Node::kill, DOWN, Node::start_again).await;
}

/// Pauses the server for a while.
async fn pause(node: &Arc<Mutex<Node>>) {
    disturb(node, Node::pause, PAUSED, Node::resume).await;
}

/// Disturbs the server, and mends it after a time, for which the caller does not wait.
async fn disturb(node: &Arc<Mutex<Node>>, how: fn(&mut Node), time: Duration, mend: fn(&mut Node)) {
    let node = Arc::clone(node);
    let (done, disturbed) = oneshot::channel();
    // In a separate task: the end of the connection ends the caller.
    tokio::spawn(async move {
        change(&node, how).await;
        let _ = done.send(());
        sleep(time).await;
        change(&node, mend).await;
    });
    let _ = disturbed.await;
}

/// Does what blocks.
async fn change(node: &Arc<Mutex<Node>>, how: fn(&mut Node)) {
    let node = Arc::clone(node);
    let changed = spawn_blocking(move || how(&mut node.lock())).await;
    changed.expect("the server is changed");
}
