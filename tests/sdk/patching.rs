//! Writes of object and status in one go.

use capi_ipam_controller::{
    client::{CallError, connect},
    patch,
};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use kube::Client;
use support::prelude::*;

use crate::{
    control_plane,
    interrupt::{Kill, run_until_killed},
};

pub(crate) async fn client() -> Client {
    connect(Some(control_plane().kubeconfig()), "sdk-test/0.0.1")
        .await
        .expect("the kubeconfig is valid")
}

pub(crate) fn nodes(client: Client) -> ResourceClient<Node> {
    ResourceClient::new(Api::all(client), &())
}

/// Creates a Node and returns it as the API server stored it.
pub(crate) async fn new_node(client: &Client) -> Node {
    let node: Node = object(json!({"metadata": {"name": unique("node")}}));
    nodes(client.clone())
        .create(&node)
        .await
        .expect("a node can be created")
}

/// The node with another spec and another status.
pub(crate) fn changed(node: &Node) -> Node {
    let mut wanted = node.clone();
    wanted
        .labels_mut()
        .insert("example.com/rack".to_owned(), "r1".to_owned());
    wanted
        .spec
        .get_or_insert_with(NodeSpec::default)
        .unschedulable = Some(true);
    wanted.status.get_or_insert_with(NodeStatus::default).phase = Some("Running".to_owned());
    wanted
}

/// Whether label and spec, and the status, are as in [`changed`].
fn written_parts(node: &Node) -> (bool, bool) {
    let spec = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let status = node
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        == Some("Running");
    assert_eq!(node.labels().contains_key("example.com/rack"), spec);
    (spec, status)
}

#[tokio::test]
async fn object_is_written_before_its_status() {
    let client = client().await;
    let before = new_node(&client).await;
    let result = patch::write(&nodes(client.clone()), &before, &changed(&before))
        .await
        .expect("it can be written");
    let latest = result.expect("there are changes");
    assert_eq!(
        written_parts(&latest),
        (true, true),
        "the wanted status is kept"
    );
    let stored = nodes(client.clone())
        .get(&before.name_any())
        .await
        .expect("it can be read")
        .expect("it exists");
    assert_eq!(stored.resource_version(), latest.resource_version());
    let again = patch::write(&nodes(client), &stored, &changed(&stored))
        .await
        .expect("there is nothing to write");
    assert!(again.is_none());
}

#[tokio::test]
async fn write_killed_at_any_point_is_completed_by_a_retry() {
    let client = client().await;
    let moments = [
        (Kill::Before(0), (false, false)),
        (Kill::After(0), (true, false)),
        (Kill::Before(1), (true, false)),
        (Kill::After(1), (true, true)),
    ];
    for (moment, expected) in moments {
        let before = new_node(&client).await;
        let write = async |client| patch::write(&nodes(client), &before, &changed(&before)).await;
        let (result, _) = run_until_killed(&client, Some(moment), write).await;
        assert!(result.is_none(), "{moment:?}");
        let left = nodes(client.clone())
            .get(&before.name_any())
            .await
            .expect("it can be read")
            .expect("it exists");
        assert_eq!(written_parts(&left), expected, "{moment:?}");
        let missing = [expected.0, expected.1]
            .iter()
            .filter(|written| !**written)
            .count();
        let (result, writes) = run_until_killed(&client, None, async |client| {
            patch::write(&nodes(client), &left, &changed(&left)).await
        })
        .await;
        assert!(result.expect("it is not killed").is_ok());
        assert_eq!(writes, missing, "{moment:?}");
    }
}

#[tokio::test]
async fn object_that_changed_meanwhile_is_a_conflict() {
    let client = client().await;
    let before = new_node(&client).await;
    patch::write(&nodes(client.clone()), &before, &changed(&before))
        .await
        .expect("it can be written");
    let mut other = before.clone();
    other
        .labels_mut()
        .insert("example.com/rack".to_owned(), "r2".to_owned());
    let error = patch::write(&nodes(client), &before, &other)
        .await
        .expect_err("it has changed");
    assert!(
        error.is_conflict() && !error.outcome_is_unknown(),
        "{error}"
    );
}

/// Changes nothing, everything, or fails after the change.
async fn patch_with(
    client: &Client,
    before: &Node,
    is_changed: bool,
    fails: bool,
) -> (Result<u8, CallError>, usize) {
    let (result, writes) = run_until_killed(client, None, async |client| {
        let (result, written) =
            patch::with_patch(&nodes(client), before, async |node: &mut Node| {
                if is_changed {
                    *node = changed(node);
                }
                if fails {
                    Err(CallError::TimedOut {
                        operation: "ask a backend".to_owned(),
                    })
                } else {
                    Ok(7)
                }
            })
            .await;
        assert_eq!(
            written.map(|node| written_parts(&node)),
            is_changed.then_some((true, true))
        );
        result
    })
    .await;
    (result.expect("it is not killed"), writes)
}

#[tokio::test]
async fn changes_are_written_on_every_way_out() {
    let client = client().await;
    for (is_changed, fails, writes) in [
        (false, false, 0),
        (false, true, 0),
        (true, false, 2),
        (true, true, 2),
    ] {
        let before = new_node(&client).await;
        let (result, sent) = patch_with(&client, &before, is_changed, fails).await;
        assert_eq!(sent, writes);
        match result {
            Ok(value) => assert!(!fails && value == 7),
            Err(error) => assert!(
                fails && error.to_string().contains("ask a backend"),
                "{error}"
            ),
        }
    }
}

#[tokio::test]
async fn error_of_the_change_hides_the_error_of_the_write() {
    let client = client().await;
    let before = new_node(&client).await;
    patch::write(&nodes(client.clone()), &before, &changed(&before))
        .await
        .expect("it can be written");
    for fails in [false, true] {
        let all = nodes(client.clone());
        let (result, written) = patch::with_patch(&all, &before, async |node: &mut Node| {
            node.labels_mut()
                .insert("example.com/rack".to_owned(), "r3".to_owned());
            if fails {
                Err(CallError::TimedOut {
                    operation: "ask a backend".to_owned(),
                })
            } else {
                Ok(())
            }
        })
        .await;
        let error = result.expect_err("the node has changed");
        assert_eq!(
            (error.is_conflict(), written.is_none()),
            (!fails, true),
            "{error}"
        );
    }
}
