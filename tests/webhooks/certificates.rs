//! Certificates that change, end, are missing or not trusted; and webhooks that do not answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use capi_ipam::api::InClusterKind::{self, GlobalIPPool, IPPool};
use capi_ipam::api::names;
use capi_ipam::ask::{ask, Asker, JSON, MERGE, Said};
use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::{authority, Webhooks};
use capi_ipam::{serving, Wired};
use futures::future::{join, join_all};
use serde_json::{json, Value};

fn spec() -> Value {
    json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})
}

/// Waits until the API server says something like that to the creation of a pool.
async fn says(asker: &Asker, code: u16, text: &str) -> Said {
    eventually(&format!("the API server says {code} {text:?}"), || async {
        let said = asker.try_create(IPPool, "probe", &spec()).await;
        (said.code == code && said.message.contains(text)).then_some(said)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_certificates_are_renewed() {
    let Wired { plane, webhooks, manager } = Wired::start(&[]);
    let asker = Asker::new(&Consumer::new(&plane).await);
    let (done, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let renew = async {
        for _ in 0..5 {
            let (before, so_far) =
                (webhooks.shown().await.expect("there is a certificate"), requests.load(Ordering::Relaxed));
            webhooks.renew();
            eventually("the new certificate is shown, and there is something to do meanwhile", || async {
                let shown = webhooks.shown().await.expect("there is a certificate");
                (shown != before && requests.load(Ordering::Relaxed) > so_far + 20).then_some(())
            })
            .await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let through_the_api_server = async |task: usize, kind: InClusterKind| {
        for number in 0.. {
            let name = format!("p{task}-{number}");
            asker.create(kind, &name, &spec()).await.done();
            let deleted = asker.delete(kind, &name).await;
            assert!(deleted.is_ok(), "{deleted:?}");
            requests.fetch_add(1, Ordering::Relaxed);
            if done.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    // The API server keeps its connections; these handshakes are all new.
    let directly = async || {
        while !done.load(Ordering::Relaxed) {
            let pool = asker.pool(IPPool, "direct", &spec());
            assert!(ask(&webhooks, IPPool, "CREATE", &Value::Null, &pool).await.is_ok());
        }
    };
    let tasks =
        join_all((0..4).map(|task| through_the_api_server(task, if task % 2 == 0 { IPPool } else { GlobalIPPool })));
    join(renew, join(tasks, join(directly(), directly()))).await;
    assert_eq!(manager.log().matches("certificate loaded").count(), 6, "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_webhook_answers_only_specifications_wait() {
    let Wired { plane, webhooks, mut manager } = Wired::start(&[]);
    let consumer = Consumer::new(&plane).await;
    let asker = Asker::new(&consumer);
    for (kind, name) in
        [(IPPool, "web"), (IPPool, "unused"), (IPPool, "forced"), (IPPool, "moved"), (GlobalIPPool, "global")]
    {
        asker.create(kind, name, &spec()).await.done();
    }
    let old = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": "InClusterIPPool",
                     "metadata": {"name": "old"}, "spec": {"subnet": "10.1.0.0/24"}});
    asker.call("POST", &asker.path(IPPool, "v1alpha1", ""), JSON, &old).await.done();
    consumer.claim("before", "web").await;
    consumer.bound("before").await;
    manager.kill();

    let webhook = "failed calling webhook \"validation.inclusterippool.ipam.cluster.x-k8s.io\"";
    // First it may tell of the end of a connection that was open.
    eventually("the API server says that nobody listens", || async {
        let said = asker.create(IPPool, "new", &spec()).await;
        said.refused(500, "", webhook);
        said.message.contains("connection refused").then_some(())
    })
    .await;
    asker.change(IPPool, "web", &json!({"spec": {"gateway": "10.0.0.9"}})).await.refused(500, "", webhook);
    asker.delete(IPPool, "unused").await.refused(500, "", webhook);
    for (name, annotation) in [("forced", names::SKIP_VALIDATE_DELETE), ("moved", names::DELETE_FOR_MOVE)] {
        asker.change(IPPool, name, &json!({"metadata": {"annotations": {annotation: ""}}})).await.done();
        asker.delete(IPPool, name).await.done();
    }
    // The old version cannot be read, the stored one can.
    let converted = asker.call("GET", &asker.path(IPPool, "v1alpha1", "old"), JSON, &Value::Null).await;
    converted.refused(500, "", "conversion webhook");
    asker.get(&asker.path(IPPool, "v1alpha2", "old")).await;
    // Neither metadata nor status is asked about.
    for (kind, name) in [(IPPool, "web"), (GlobalIPPool, "global")] {
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
        asker.change(kind, name, &metadata).await.done();
        let counts = json!({"status": {"ipAddresses": {"total": 9, "free": 9, "used": 0, "outOfRange": 0}}});
        asker.call("PATCH", &format!("{}/status", asker.path(kind, "v1alpha2", name)), MERGE, &counts).await.done();
    }
    asker.change(GlobalIPPool, "global", &json!({"metadata": {"finalizers": ["e.example/f"]}})).await.done();
    // Claims need no webhook, only a manager.
    let without = Manager::start(&plane, &[]);
    consumer.claim("during", "web").await;
    consumer.bound("during").await;
    consumer.release("before").await;
    drop(without);
    // With the webhooks everything is back.
    let _manager = serving(&plane, &webhooks, &[]);
    says(&asker, 201, "").await;
    assert!(asker.delete(IPPool, "unused").await.is_ok());
    asker.get(&asker.path(IPPool, "v1alpha1", "old")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused_and_a_new_one_works_without_a_restart() {
    let plane = ControlPlane::start(Options::default());
    let webhooks = Webhooks::new(&plane);
    webhooks.expire();
    let manager = serving(&plane, &webhooks, &[]);
    webhooks.wire_with(&plane, &webhooks.authority());
    let asker = Asker::new(&Consumer::new(&plane).await);
    let said = says(&asker, 500, "certificate has expired").await;
    said.refused(500, "", "failed calling webhook");
    assert!(manager.log().contains("has expired"), "{}", manager.log());
    webhooks.renew();
    says(&asker, 201, "").await;
    // Reads in the old version work again too.
    webhooks.wire(&plane);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let Wired { plane, webhooks, manager: _manager } = Wired::start(&[]);
    let asker = Asker::new(&Consumer::new(&plane).await);
    asker.create(IPPool, "web", &spec()).await.done();
    webhooks.wire_with(&plane, &authority().pem());
    says(&asker, 500, "certificate signed by unknown authority").await;
    let old = asker.path(IPPool, "v1alpha1", "web");
    eventually("conversion does not trust it either", || async {
        let said = asker.call("GET", &old, JSON, &Value::Null).await;
        said.message.contains("certificate signed by unknown authority").then_some(())
    })
    .await;
    webhooks.wire(&plane);
    says(&asker, 201, "").await;
    asker.get(&old).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_without_a_certificate_says_so_and_becomes_ready_with_it() {
    let plane = ControlPlane::start(Options::default());
    let webhooks = Webhooks::without_certificate(&plane);
    let own = webhooks.flags();
    let flags: Vec<&str> = own.iter().map(String::as_str).collect();
    let manager = Manager::launch(&plane, plane.provider_kubeconfig(), &flags);
    eventually("nothing but the certificate is missing", || async {
        let answer = manager.probe("/readyz")?;
        let missing = answer.lines().filter(|line| line.starts_with("- ")).collect::<Vec<_>>();
        let certificate = "- certificate for webhooks: cannot read ";
        (answer.starts_with("HTTP/1.1 503") && missing.len() == 1 && missing[0].starts_with(certificate)).then_some(())
    })
    .await;
    assert!(webhooks.shown().await.is_err(), "there is no handshake without a certificate");
    // Claims do not wait for it.
    let consumer = Consumer::new(&plane).await;
    consumer.pool("web", spec()).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    webhooks.renew();
    manager.wait_until_ready();
    webhooks.wire(&plane);
}
