//! Tests of many concurrent clients, slow clients, and graceful shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::support::{Client, Request, Server, review, things, tls};
use crate::endpoints::{Endpoints, MAX_BODIES_SIZE, MAX_BODY_SIZE, SMALL_BODY_SIZE};
use crate::https::Limits;
use crate::review::Mutation;

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread")]
async fn thousand_concurrent_reviews_are_served() {
    let server = Arc::new(Server::start(things).await);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let Client::Http2(sender) = server.client(true).await.unwrap() else {
            panic!("HTTP/2 was asked for")
        };
        clients.push(sender);
    }
    let asked = (0..1000).map(|index: usize| {
        let (server, sender) = (server.clone(), clients[index % 3].clone());
        tokio::spawn(async move {
            match index % 10 {
                0 => server.ask(Request::review(1)).await,
                _ => Client::Http2(sender).send(Request::review(11)).await,
            }
        })
    });
    for answer in join_all(asked).await {
        assert_eq!(answer.unwrap().unwrap().0, 200);
    }
    drop(clients);
    let text = server.metrics.encode().unwrap();
    assert!(
        text.contains(r#"webhook_reviews_total{path="/validate",outcome="allowed"} 100"#),
        "{text}"
    );
    assert!(
        text.contains(r#"webhook_reviews_total{path="/validate",outcome="denied"} 900"#),
        "{text}"
    );
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn missing_body_ends_the_request() {
    let limits = Limits {
        request: SHORT,
        ..Limits::default()
    };
    let server = Server::start_with(things, limits, tls()).await;
    let mut stream = server.connect(false).await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer))
        .await
        .expect("the connection ends");
    assert!(
        answer.starts_with(b"HTTP/1.1 504 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    server.stop().await;
}

#[tokio::test]
async fn silent_clients_are_disconnected() {
    // Long enough for a TLS handshake on a busy machine.
    let limit = Duration::from_secs(2);
    let limits = Limits {
        handshake: limit,
        idle: limit,
        linger: limit,
        ..Limits::default()
    };
    let server = Server::start_with(things, limits, tls()).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut unused = server.connect(false).await.unwrap();
    let mut unused_http2 = server.connect(true).await.unwrap();
    let mut incomplete = server.connect(false).await.unwrap();
    incomplete
        .write_all(b"POST /validate HTTP/1.1\r\nhost")
        .await
        .unwrap();
    let mut buffer = Vec::new();
    let ended = async {
        let _ = silent.read_to_end(&mut buffer).await;
        let _ = unused.read_to_end(&mut buffer).await;
        let _ = unused_http2.read_to_end(&mut buffer).await;
        let _ = incomplete.read_to_end(&mut buffer).await;
    };
    timeout(Duration::from_secs(30), ended)
        .await
        .expect("all are disconnected");
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_close_at_the_maximum() {
    let limits = Limits {
        connections: 2,
        idle_when_full: SHORT,
        ..Limits::default()
    };
    let server = Server::start_with(things, limits, tls()).await;
    let mut first = server.client(false).await.unwrap();
    assert_eq!(first.send(Request::review(1)).await.unwrap().0, 200);
    let second = server.connect(true).await.unwrap();
    let (status, _) = timeout(Duration::from_secs(5), server.ask(Request::review(1)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status, 200);
    drop((first, second));
    server.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_limit_are_rejected() {
    let limits = Limits {
        requests: 1,
        ..Limits::default()
    };
    let server = Arc::new(Server::start_with(things, limits, tls()).await);
    let slow = tokio::spawn({
        let server = server.clone();
        async move { server.ask(Request::review(2000)).await.unwrap() }
    });
    server.wait_until_in_flight(1).await;
    let (status, text) = server.ask(Request::review(1)).await.unwrap();
    assert_eq!(
        (status, text.as_str()),
        (503, "too many concurrent requests")
    );
    assert_eq!(slow.await.unwrap().0, 200);
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn shutdown_answers_requests_in_flight() {
    for http2 in [false, true] {
        let limits = Limits {
            linger: Duration::from_secs(20),
            ..Limits::default()
        };
        let server = Server::start_with(things, limits, tls()).await;
        let idle = server.client(http2).await.unwrap();
        let mut client = server.client(http2).await.unwrap();
        let slow = tokio::spawn(async move { client.send(Request::review(2000)).await.unwrap().0 });
        server.wait_until_in_flight(1).await;
        let (address, started) = (server.address, Instant::now());
        server.stop().await;
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "idle connections do not delay the shutdown"
        );
        assert_eq!(slow.await.unwrap(), 200);
        assert!(TcpStream::connect(address).await.is_err());
        drop(idle);
    }
}

#[tokio::test]
async fn shutdown_closes_requests_that_do_not_end() {
    let limits = Limits {
        linger: SHORT,
        ..Limits::default()
    };
    let server = Server::start_with(things, limits, tls()).await;
    let mut stream = server.connect(false).await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    server.wait_until_in_flight(1).await;
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(4));
}

/// Sends a request and the first bytes of its body.
async fn send_incomplete(server: &Server, length: usize, sent: usize) -> TlsStream<TcpStream> {
    let mut stream = server.connect(false).await.unwrap();
    let head = format!(
        "POST /validate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; sent]).await.unwrap();
    stream
}

/// A review that is larger than most.
fn large_review() -> Request {
    let padding = " ".repeat(SMALL_BODY_SIZE);
    Request {
        body: [&*review(1), padding.as_bytes()].concat().into(),
        ..Request::review(1)
    }
}

/// Sends large reviews until one has this status.
async fn ask_until(server: &Server, expected: u16) -> String {
    let asked = async {
        loop {
            let (status, text) = server.ask(large_review()).await.unwrap();
            if status == expected {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), asked)
        .await
        .expect("a review gets the status")
}

#[tokio::test]
async fn bodies_beyond_the_memory_are_rejected() {
    let server = Server::start(things).await;
    // Announced bodies take nothing.
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(send_incomplete(&server, MAX_BODY_SIZE, 0).await);
    }
    server.wait_until_in_flight(10).await;
    assert_eq!(server.ask(Request::review(1)).await.unwrap().0, 200);
    let part = MAX_BODIES_SIZE / 4 + SMALL_BODY_SIZE;
    for _ in 0..4 {
        held.push(send_incomplete(&server, part + 1, part).await);
    }
    let text = ask_until(&server, 429).await;
    assert!(text.contains("retry later"), "{text}");
    // The bodies of most reviews are small, and always have room.
    assert_eq!(server.ask(Request::review(1)).await.unwrap().0, 200);
    let metrics = server.metrics.encode().unwrap();
    let overloaded = r#"webhook_reviews_total{path="/validate",outcome="overloaded"} 1"#;
    assert!(metrics.contains(overloaded), "{metrics}");
    drop(held);
    ask_until(&server, 200).await;
    server.stop().await;
}

/// The size of a thing whose mutation takes longer than the test.
const SLOW: u64 = 60_000;

/// The number of its mutations that have begun.
static SLOW_MUTATIONS: AtomicUsize = AtomicUsize::new(0);

/// Adds an endpoint whose mutations take as many milliseconds as the size of the thing, and panic
/// for size 666.
fn with_mutations(endpoints: Endpoints) -> Endpoints {
    things(endpoints).mutate("/mutate", async |request| {
        let size = request.object.as_ref().unwrap()["spec"]["size"].as_u64();
        let size = size.unwrap();
        assert_ne!(size, 666);
        if size == SLOW {
            SLOW_MUTATIONS.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(size)).await;
        Ok(Mutation::default())
    })
}

fn mutation(size: u64) -> Request {
    Request {
        path: "/mutate",
        ..Request::review(size)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutations_have_limited_memory_and_do_not_delay_reviews() {
    let server = Arc::new(Server::start(with_mutations).await);
    assert_eq!(server.ask(mutation(1)).await.unwrap().0, 200);
    assert_eq!(server.ask(mutation(666)).await.unwrap().0, 500);
    let metrics = server.metrics.encode().unwrap();
    let panicked = r#"webhook_reviews_total{path="/mutate",outcome="panic"} 1"#;
    assert!(metrics.contains(panicked), "{metrics}");
    let values = "0,".repeat(100_000);
    let junk = format!("{{\"request\": {{\"object\": [{values}0]}}}}");
    let large = Request {
        body: junk.into(),
        ..mutation(1)
    };
    let (status, text) = server.ask(large).await.unwrap();
    assert_eq!(status, 413);
    assert!(text.contains("bytes of memory"), "{text}");
    let ask = |size| {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.ask(mutation(size)).await.map(|(status, _)| status) })
    };
    // Clients that disconnect free nothing: their mutations continue.
    let slow: Vec<_> = (0..64).map(|_| ask(SLOW)).collect();
    while SLOW_MUTATIONS.load(Ordering::Relaxed) < slow.len() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in slow {
        task.abort();
    }
    assert_eq!(ask(1).await.unwrap().unwrap(), 429);
    assert_eq!(server.ask(Request::review(1)).await.unwrap().0, 200);
}
