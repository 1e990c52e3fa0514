use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const REQUEST_TIMEOUT: Duration = Duration::from_millis(400);

/// A server whose connections stop responding on demand.
#[derive(Clone, Default)]
struct Server {
    connections: Arc<AtomicUsize>,
    /// Connections up to this number are dead.
    dead: Arc<AtomicUsize>,
}

impl Server {
    async fn client(&self, retry_reads: bool) -> Client {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = server.connections.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::spawn(server.clone().serve(stream, number));
            }
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new(format!("http://{address}").parse().unwrap());
        client(
            &config,
            RequestPolicy {
                timeout: REQUEST_TIMEOUT,
                retry_reads,
            },
            RequestMetrics::default(),
        )
        .unwrap()
    }

    async fn serve(self, mut stream: TcpStream, number: usize) {
        let mut request = Vec::new();
        loop {
            request.clear();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => return,
                }
            }
            // Long enough for concurrent requests to need another connection.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let stalls = request.starts_with(b"GET /stall");
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\nok",
                if stalls { 9 } else { 2 }
            );
            if number > self.dead.load(Ordering::Relaxed) {
                stream.write_all(head.as_bytes()).await.unwrap();
            }
        }
    }

    fn kill_connections(&self) {
        self.dead
            .store(self.connections.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

async fn call(client: &Client, method: Method, path: &str) -> Result<String, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Vec::new())
        .unwrap();
    client
        .request_text(request)
        .await
        .map_err(|error| crate::client::error_chain(&error))
}

#[tokio::test]
async fn unanswered_request_drops_idle_connections() {
    let server = Server::default();
    let client = server.client(false).await;
    let calls = join_all((0..5).map(|_| call(&client, Method::GET, "/"))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    let open = server.connections.load(Ordering::Relaxed);
    assert!(open > 1, "{open}");

    server.kill_connections();
    let lost = call(&client, Method::GET, "/").await.unwrap_err();
    assert!(
        lost.contains("no answer from the API server within 400ms"),
        "{lost}"
    );
    let started = Instant::now();
    assert_eq!(call(&client, Method::GET, "/").await.as_deref(), Ok("ok"));
    assert!(
        started.elapsed() < REQUEST_TIMEOUT,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn read_is_retried_over_another_connection() {
    let server = Server::default();
    let client = server.client(true).await;
    assert_eq!(call(&client, Method::GET, "/").await.as_deref(), Ok("ok"));
    server.kill_connections();
    let started = Instant::now();
    assert_eq!(call(&client, Method::GET, "/").await.as_deref(), Ok("ok"));
    assert!(
        started.elapsed() < REQUEST_TIMEOUT,
        "{:?}",
        started.elapsed()
    );
    server.kill_connections();
    assert!(
        call(&client, Method::POST, "/").await.is_err(),
        "it may have been applied"
    );
}

#[tokio::test]
async fn stalled_body_times_out() {
    let client = Server::default().client(false).await;
    let started = Instant::now();
    assert!(call(&client, Method::GET, "/stall").await.is_err());
    assert!(
        (REQUEST_TIMEOUT..REQUEST_TIMEOUT * 3).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn shorter_timeout_of_a_caller_drops_dead_connections() {
    let server = Server::default();
    let client = server.client(false).await;
    assert!(
        join_all((0..5).map(|_| call(&client, Method::GET, "/")))
            .await
            .iter()
            .all(Result::is_ok)
    );
    server.kill_connections();
    assert!(
        timeout(REQUEST_TIMEOUT / 100 * 95, call(&client, Method::GET, "/"))
            .await
            .is_err()
    );
    let started = Instant::now();
    assert_eq!(call(&client, Method::GET, "/").await.as_deref(), Ok("ok"));
    assert!(
        started.elapsed() < REQUEST_TIMEOUT,
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn watch_timeout_is_read_from_the_request() {
    let watch =
        |uri: &str| watch_timeout(&Request::builder().uri(uri).body(Body::empty()).unwrap());
    assert_eq!(
        watch("/x?&watch=true&timeoutSeconds=30"),
        Some(Duration::from_secs(30))
    );
    assert_eq!(watch("/x?&watch=true"), Some(MAX_WATCH_DURATION));
    assert_eq!(watch("/x?timeoutSeconds=30"), None);
}

#[test]
fn silent_watch_is_suspicious_only_after_its_own_duration() {
    let seconds = Duration::from_secs;
    for duration in [30, 290, 3600] {
        let Silence { limit, suspicious } = Silence::of_watch(seconds(duration));
        assert!(
            suspicious > seconds(duration),
            "a reader may end it at any time before: {duration}"
        );
        assert!(suspicious < limit, "a reader notices it a little earlier");
    }
}

#[tokio::test]
async fn request_without_a_connection_has_a_known_outcome() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = client(&config, RequestPolicy::default(), RequestMetrics::default()).unwrap();
    let read = crate::client::with_timeout(String::new, client.apiserver_version());
    let error = read.await.unwrap_err();
    assert!(
        error.was_not_sent() && !error.outcome_is_unknown(),
        "{error:?}"
    );
}
