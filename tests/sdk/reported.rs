//! The outcome of reconciles in the status of the object.

use std::sync::Arc;

use capi_ipam_controller::{
    client::CallError,
    controller::{Action, Reconciler, reconcile_fn},
    retry::Retry,
};
use capi_ipam_provider::advanced::Reported;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use support::prelude::*;

use crate::{consumer, program::Program};

/// It is given up sooner than a second status of the object is written otherwise.
#[tokio::test]
async fn last_failure_is_in_the_status() {
    let consumer = consumer().await;
    let (kubernetes, namespace) = (consumer.client.clone(), consumer.namespace.clone());
    let api = Api::namespaced(kubernetes.clone(), &namespace);
    let budgets: ResourceClient<PodDisruptionBudget> = ResourceClient::new(api, &());
    let place = reconcile_fn(async |_: Arc<PodDisruptionBudget>| {
        Err::<Action, _>(CallError::TimedOut {
            operation: "place it".to_owned(),
        })
    });
    let place = place.with_retry(|_, failures| {
        if failures < 3 {
            Retry::After(Duration::from_millis(10))
        } else {
            Retry::GiveUp
        }
    });
    let client = budgets.clone();
    let program = Program::start(async move |manager| {
        let of_budget = move |_: &PodDisruptionBudget| client.clone();
        let place = Reported::new(place, &manager.events, of_budget, |_| Some("NotPlaced"));
        let controller = manager.controller("budgets");
        let controller = controller.wants(place.is_change_by_others());
        let watch = manager.watch(Api::namespaced(kubernetes, &namespace));
        manager.run_controller(controller, watch, place);
        Ok(())
    });
    let budget = json!({"metadata": {"name": "a"}});
    let budget: PodDisruptionBudget = serde_json::from_value(budget).expect("it is valid");
    budgets.create(&budget).await.expect("it can be created");
    let found = eventually("the status says that it is stalled", || async {
        let status = json!(budgets.get("a").await.ok()??.status);
        let all = status["conditions"].as_array()?.clone();
        let stalled = all.into_iter().find(|one| one["type"] == "Stalled")?;
        (status["observedGeneration"] == 1).then_some(stalled)
    })
    .await;
    assert_eq!(found["reason"], "NotPlaced");
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("cannot place it"), "{message}");
    program.stop();
}
