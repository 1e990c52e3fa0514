//! Controllers whose objects come from something other than one watch of a Kubernetes kind.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use capi_ipam_controller::{
    client::CallError,
    controller::{Action, Attempt, Cause, Reconciler, Trigger},
    health::ReadinessGate,
    namespaced_name::NamespacedName,
    watch::{Change, EventHandler, Invalid, Keyed, Opened, Source},
};
use futures::stream::unfold;
use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;
use tokio::sync::mpsc;

use crate::{config_maps, consumer, program::Program};

/// An object of an ordering system.
#[derive(Clone, Debug)]
struct Order {
    name: String,
    amount: u32,
}

impl Keyed for Order {
    fn key(&self) -> NamespacedName {
        NamespacedName::new("", &self.name)
    }

    fn is_deleting(&self) -> bool {
        false
    }

    fn fingerprint(&self, mut hasher: &mut dyn Hasher) {
        self.amount.hash(&mut hasher);
    }
}

/// The orders that arrive by a channel.
struct Orders {
    changes: mpsc::UnboundedReceiver<Change<Order>>,
    synced: ReadinessGate,
}

impl Source for Orders {
    type Object = Order;

    fn open(self) -> Opened<Order> {
        let changes = unfold(self.changes, async |mut changes| {
            let change = changes.recv().await?;
            Some((change, changes))
        });
        Opened::new(changes, Arc::new(()), self.synced)
    }
}

/// Keeps a ConfigMap for each order.
struct OrderReconciler {
    maps: ResourceClient<ConfigMap>,
}

impl OrderReconciler {
    async fn delete(&self, name: &str) -> Result<(), CallError> {
        if let Some(found) = self.maps.get(name).await? {
            self.maps
                .delete(name, &found.uid().unwrap_or_default())
                .await?;
        }
        Ok(())
    }
}

impl Reconciler for OrderReconciler {
    type Object = Order;
    type State = ();
    type Error = CallError;

    fn wants_deleted(&self, _: &Order) -> bool {
        true
    }

    async fn reconcile(
        &self,
        order: Arc<Order>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        if attempt.cause == Cause::Deleted {
            self.delete(&order.name).await?;
            return Ok(Action::AwaitChange);
        }
        let amount = order.amount.to_string();
        let wanted: ConfigMap = object(json!({
            "metadata": {"name": order.name, "labels": {"orders": "yes"}}, "data": {"amount": amount},
        }));
        match self.maps.get(&order.name).await? {
            Some(found) if found.data == wanted.data => {}
            Some(_) => {
                self.delete(&order.name).await?;
                self.maps.create(&wanted).await?;
            }
            None => {
                self.maps.create(&wanted).await?;
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// Enqueues the order of a ConfigMap that is deleted.
struct Repair(Trigger<Order>);

impl EventHandler<ConfigMap> for Repair {
    fn apply(&self, _: &ConfigMap) {}

    fn delete(&self, map: &ConfigMap) {
        self.0.enqueue(NamespacedName::new("", &map.name_any()));
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

/// The amounts in the ConfigMaps of the orders.
async fn amounts(maps: &ResourceClient<ConfigMap>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for map in maps.list().await.expect("they can be listed") {
        if let Some(amount) = map.data.as_ref().and_then(|data| data.get("amount")) {
            found.insert(map.name_any(), amount.clone());
        }
    }
    found
}

async fn amounts_become(maps: &ResourceClient<ConfigMap>, expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> = expected
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()))
        .collect();
    eventually("the ConfigMaps are those of the orders", || async {
        (amounts(maps).await == expected).then_some(())
    })
    .await;
}

fn order(name: &str, amount: u32) -> Order {
    Order {
        name: name.to_owned(),
        amount,
    }
}

#[tokio::test]
async fn objects_outside_of_kubernetes_are_reconciled() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let (orders, changes) = mpsc::unbounded_channel();
    let reconciler = OrderReconciler { maps: maps.clone() };
    let namespace = consumer.namespace.clone();
    let program = Program::start(async move |manager| {
        let mut controller = manager.controller("orders");
        let maps = manager.watch(Api::namespaced(manager.client.clone(), &namespace));
        let repair = Arc::new(Repair(controller.trigger()));
        controller.watch(maps.handler(repair));
        let synced = manager.health.register("orders")?;
        let main = Orders { changes, synced };
        manager.run_controller(controller, main, reconciler);
        Ok(())
    });
    let send = |change| orders.send(change).expect("the source is open");
    send(Change::Init);
    send(Change::InitApply(order("a", 1)));
    send(Change::InitApply(order("b", 1)));
    send(Change::InitDone);
    amounts_become(&maps, &[("a", "1"), ("b", "1")]).await;

    send(Change::Apply(order("a", 2)));
    send(Change::Delete(order("b", 1)));
    amounts_become(&maps, &[("a", "2")]).await;

    let found = maps.get("a").await.expect("it can be read");
    let uid = found.expect("it exists").uid().unwrap_or_default();
    maps.delete("a", &uid).await.expect("it can be deleted");
    amounts_become(&maps, &[("a", "2")]).await;

    // Deleted while the source was interrupted.
    send(Change::Init);
    send(Change::InitApply(order("c", 3)));
    send(Change::InitDone);
    amounts_become(&maps, &[("c", "3")]).await;
    program.stop();
}
