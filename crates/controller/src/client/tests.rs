use super::*;

#[test]
fn address_of_a_server_contains_no_credentials() {
    for (url, expected) in [
        ("https://user:hidden@hub:6443/path", "https://hub:6443"),
        ("https://[::1]/", "https://[::1]"),
    ] {
        assert_eq!(address_of(&url.parse().unwrap()), expected);
    }
}

/// A kubeconfig with this user.
fn kubeconfig_of(user: &str) -> String {
    format!(
        "current-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://admin:marker@hub'}}}}]\n\
         users:\n- name: a\n  user:\n{user}\n"
    )
}

#[tokio::test]
async fn error_of_a_kubeconfig_shows_none_of_its_text() {
    let base64 = |text: &str| {
        serde_json::to_string(&k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap()
    };
    // The line breaks of the key were lost.
    let one_line = base64("-----BEGIN PRIVATE KEY-----marker-----END PRIVATE KEY-----");
    let proxied = kubeconfig_of("    token: marker").replace(
        "server: 'https://admin:marker@hub'",
        "server: 'https://hub', proxy-url: 'http://admin:marker@proxy'",
    );
    for (text, expected) in [
        ("marker".to_owned(), "not valid YAML"),
        ("token: marker\nmarker: [".to_owned(), "not valid YAML"),
        (
            kubeconfig_of("    token: [marker]\n    client-key-data: marker"),
            "not valid YAML of a kubeconfig (line ",
        ),
        (
            kubeconfig_of("    token: marker\n    client-key-data: {marker: marker}"),
            "not valid YAML of a kubeconfig (line ",
        ),
        (
            kubeconfig_of("    client-certificate-data: marker!\n    client-key-data: marker!"),
            "base64",
        ),
        (
            kubeconfig_of(&format!(
                "    client-certificate-data: {one_line}\n    client-key-data: {one_line}"
            )),
            "is not PEM",
        ),
        (proxied, "http://proxy"),
    ] {
        let error = connect_to(&text, "test/1").await.err().unwrap();
        let chain = error_chain(&error);
        assert!(chain.contains(expected), "{chain}");
        // The parser of PEM shows text as a list of bytes.
        let bytes = format!("{:?}", b"marker");
        let bytes = bytes.trim_matches(['[', ']']);
        for shown in [chain, format!("{error:?}")] {
            assert!(
                !shown.contains("marker") && !shown.contains(bytes),
                "{shown}"
            );
        }
    }
}

fn uri_with_timeout(uri: &str) -> String {
    let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
    add_timeout_param(request, REQUEST_TIMEOUT)
        .uri()
        .to_string()
}

#[test]
fn timeout_is_sent_with_all_requests_but_watches() {
    assert_eq!(
        uri_with_timeout("https://a/api/v1/x"),
        "https://a/api/v1/x?timeout=10s"
    );
    assert_eq!(
        uri_with_timeout("https://a/api/v1/x?&limit=5"),
        "https://a/api/v1/x?&limit=5&timeout=10s"
    );
    assert_eq!(
        uri_with_timeout("https://a/x?&watch=true&timeoutSeconds=290"),
        "https://a/x?&watch=true&timeoutSeconds=290"
    );
}

/// A client of a server that responds to each request with this code and text.
fn client_of_server(
    code: u16,
    text: &'static str,
) -> ResourceClient<k8s_openapi::api::core::v1::ConfigMap> {
    let answer = move |_: Request<Body>| {
        let response = http::Response::builder()
            .status(code)
            .body(Body::from(text.as_bytes().to_vec()))
            .unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    };
    let client = Client::new(tower::service_fn(answer), "default");
    ResourceClient::new(Api::default_namespaced(client), &())
}

#[tokio::test]
async fn object_of_an_unserved_kind_is_not_gone() {
    use super::call_error::INSTALL_DEFINITION;

    let objects = client_of_server(404, "404 page not found\n");
    let errors = [
        objects.get("a").await.unwrap_err(),
        objects.delete("a", "uid").await.unwrap_err(),
    ];
    for error in errors {
        assert!(
            error.is_unserved() && !error.is_not_found() && !error.outcome_is_unknown(),
            "{error:?}"
        );
        let text = error_chain(&error);
        let expected = format!(": {NOT_SERVED}; {INSTALL_DEFINITION} (404 KindNotServed)");
        assert!(text.ends_with(&expected), "{text}");
    }
    let gone = client_of_server(
        404,
        r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,"message":"no configmap a"}"#,
    );
    assert!(gone.get("a").await.unwrap().is_none());
    assert!(matches!(gone.delete("a", "uid").await, Ok(Deleted::Gone)));
}

/// A client of a server that responds to creations with this code, and to reads in order.
fn client_of_lost_creation(
    code: u16,
    reads: &'static [Option<&'static str>],
) -> ResourceClient<k8s_openapi::api::core::v1::ConfigMap> {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let status = |code: u16, reason: &str| {
        let status = serde_json::json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code});
        (code, status)
    };
    let answer = move |request: Request<Body>| {
        let (code, body) = if request.method() == http::Method::POST {
            let reason = if code == 409 {
                "AlreadyExists"
            } else {
                "Timeout"
            };
            status(code, reason)
        } else {
            let read = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            match reads.get(read).copied().flatten() {
                Some(uid) => (
                    200,
                    serde_json::json!({"metadata": {"name": "a", "uid": uid}}),
                ),
                None => status(404, "NotFound"),
            }
        };
        let body = Body::from(body.to_string().into_bytes());
        let response = http::Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, std::convert::Infallible>(response))
    };
    let client = Client::new(tower::service_fn(answer), "default");
    ResourceClient::new(Api::default_namespaced(client), &())
}

#[tokio::test]
async fn creation_without_an_answer_is_read_until_it_is_found() {
    let mut wanted = k8s_openapi::api::core::v1::ConfigMap::default();
    wanted.metadata.name = Some("a".to_owned());
    let create = async |code, reads| {
        let objects = client_of_lost_creation(code, reads);
        match objects.create_or_find(&wanted).await {
            Ok(Creation::Found(found)) => Ok(found.meta().uid.clone().unwrap()),
            Ok(Creation::Created(_)) => panic!("no creation is answered"),
            Err(error) => Err(error.outcome_is_unknown()),
        }
    };
    assert_eq!(create(504, &[None, Some("u")]).await.as_deref(), Ok("u"));
    assert_eq!(create(409, &[Some("u")]).await.as_deref(), Ok("u"));
    // Deleted since.
    assert_eq!(create(409, &[None]).await, Err(false));
    assert_eq!(create(504, &[]).await, Err(true));
    assert_eq!(create(422, &[Some("u")]).await, Err(false));
}
